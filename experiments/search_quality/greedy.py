"""Bottleneck-greedy search, as people do it by hand: change the one thing that helps most, until nothing does."""

from collections.abc import Callable

import numpy as np

Values = Callable[[np.ndarray], np.ndarray]
STEPS = (0.25, 0.1, 0.05, 0.02, 0.005)


def bottleneck_greedy(values: Values, genes: int, seed: int, go: Callable[[], bool], starts: int = 64) -> None:
    """Climb from the best of some random points: every gene up and down by one step, the best move made.

    Raising one rate at a fixed budget lowers the others (the projection): the move that wins raises what limits. Where
    no move of any size helps, a new start.
    """
    generator = np.random.default_rng(seed)
    while go():
        points = generator.random((starts, genes))
        scores = values(points)
        point, best, size = points[scores.argmin()], float(scores.min()), 0
        while go() and size < len(STEPS):
            moves = np.concatenate([np.eye(genes), -np.eye(genes)]) * STEPS[size]
            tried = np.clip(point + moves, 0.0, 1.0)
            scores = values(tried)
            i = int(scores.argmin())
            if scores[i] < best - 1e-9:
                point, best, size = tried[i], float(scores[i]), 0
            else:
                size += 1
