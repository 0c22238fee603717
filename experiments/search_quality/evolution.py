"""Two strong baselines in NumPy on vectors in the unit cube: evolutionary local search and differential evolution.

Both evaluate a whole generation at once and call `told` with every batch; both stop when it returns False.
"""

from collections.abc import Callable

import numpy as np

Values = Callable[[np.ndarray], np.ndarray]
Go = Callable[[], bool]


def evolve(values: Values, genes: int, seed: int, go: Go, parents: int = 16, children: int = 256) -> None:
    """(mu + lambda): children of two parents, a few genes moved by steps of several sizes, the best kept.

    A population that has not improved for `_PATIENCE` generations starts anew, its best kept for one in two restarts.
    """
    generator = np.random.default_rng(seed)
    elite: np.ndarray | None = None
    while go():
        population = generator.random((children, genes))
        if elite is not None and generator.random() < 0.5:
            population[0] = elite
        elite = _one_life(values, population, generator, go, parents, children)


_PATIENCE = 40
_SIZES = np.array([0.003, 0.01, 0.03, 0.1, 0.3])


def _one_life(
    values: Values, population: np.ndarray, generator: np.random.Generator, go: Go, parents: int, children: int
) -> np.ndarray:
    """One population until it stagnates; its best."""
    scores, since = values(population), 0
    order = np.argsort(scores, kind="stable")[:parents]
    population, scores = population[order], scores[order]
    while go() and since < _PATIENCE:
        born = _children(population, children, generator)
        own = values(born)
        best = scores[0]
        population, scores = _distinct_best(np.concatenate([population, born]), np.concatenate([scores, own]), parents)
        since = 0 if scores[0] < best - 1e-7 * abs(best) else since + 1
    return population[0]


def _children(population: np.ndarray, children: int, generator: np.random.Generator) -> np.ndarray:
    n, genes = len(population), population.shape[1]
    first, second = generator.integers(n, size=(2, children))
    mixed = generator.random((children, 1)) < 0.4
    crossed = mixed & (generator.random((children, genes)) < 0.5)
    born = np.where(crossed, population[second], population[first])
    moved = generator.random((children, genes)) < generator.choice([1.0, 2.0, 4.0], (children, 1)) / genes
    moved[np.arange(children), generator.integers(genes, size=children)] = True
    size = generator.choice(_SIZES, (children, 1))
    step = size * generator.standard_normal((children, genes))
    fresh = generator.random((children, genes))
    anew = generator.random((children, genes)) < 0.15
    return np.where(moved, np.where(anew, fresh, reflected(born + step)), born)


def _distinct_best(population: np.ndarray, scores: np.ndarray, keep: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of distinct values: equal ones are the same plan."""
    _, first = np.unique(scores, return_index=True)
    chosen = first[:keep]
    return population[chosen], scores[chosen]


def differential(values: Values, genes: int, seed: int, go: Go, size: int = 0) -> None:
    """JADE-like: current-to-pbest/1/bin, each vector with its own F and CR; restarts when the spread is gone."""
    generator = np.random.default_rng(seed)
    while go():
        _one_differential(values, genes, generator, go, size or max(64, 8 * genes))


def _one_differential(values: Values, genes: int, generator: np.random.Generator, go: Go, size: int) -> None:
    population: np.ndarray = generator.random((size, genes))
    scores: np.ndarray = values(population)
    means: tuple[float, float] = (0.6, 0.7)
    since: int = 0
    while go() and since < 3 * _PATIENCE:
        f, cr, trial = _trials(population, scores, means, generator)
        own, least = values(trial), scores.min()
        means = _learnt(means, f, cr, own < scores)
        accepted = own <= scores
        population = np.where(accepted[:, None], trial, population)
        scores = np.where(accepted, own, scores)
        since = 0 if scores.min() < least - 1e-7 * abs(least) else since + 1


def _trials(
    population: np.ndarray, scores: np.ndarray, means: tuple[float, float], generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F and CR of each vector, and what it becomes: moved towards one of the best tenth and along a difference."""
    size, genes = population.shape
    f = np.clip(means[0] + 0.1 * generator.standard_cauchy((size, 1)), 0.1, 1.0)
    cr = np.clip(means[1] + 0.1 * generator.standard_normal((size, 1)), 0.0, 1.0)
    best = np.argsort(scores, kind="stable")[: max(2, size // 10)]
    guide = population[generator.choice(best, size)]
    a, b = population[generator.integers(size, size=size)], population[generator.integers(size, size=size)]
    trial = population + f * (guide - population) + f * (a - b)
    cross = generator.random((size, genes)) < cr
    cross[np.arange(size), generator.integers(genes, size=size)] = True
    return f, cr, np.where(cross, reflected(trial), population)


def _learnt(means: tuple[float, float], f: np.ndarray, cr: np.ndarray, better: np.ndarray) -> tuple[float, float]:
    """The means of F (by Lehmer) and CR, moved a tenth of the way to those that improved."""
    if not better.any():
        return means
    lehmer = float((f[better] ** 2).sum() / f[better].sum())
    return 0.9 * means[0] + 0.1 * lehmer, 0.9 * means[1] + 0.1 * float(cr[better].mean())


def reflected(x: np.ndarray) -> np.ndarray:
    """Folded back into [0, 1] at its ends."""
    folded = np.abs(x) % 2.0
    return np.where(folded > 1.0, 2.0 - folded, folded)
