"""Differential evolution in NumPy on vectors in the unit cube; a whole generation is evaluated at once.

The other evolution that takes part is that of the solver's own first answers (`optimize.clusters.evolve`).
"""

from collections.abc import Callable

import numpy as np

from optimize.clusters import reflected

Values = Callable[[np.ndarray], np.ndarray]
Go = Callable[[], bool]
PATIENCE = 120  # generations without improvement


def differential(values: Values, genes: int, seed: int, go: Go) -> None:
    """JADE-like: current-to-pbest/1/bin, each vector with its own F and CR; restarts when the spread is gone."""
    generator = np.random.default_rng(seed)
    while go():
        _one_differential(values, genes, generator, go, max(64, 8 * genes))


def _one_differential(values: Values, genes: int, generator: np.random.Generator, go: Go, size: int) -> None:
    population: np.ndarray = generator.random((size, genes))
    scores: np.ndarray = values(population)
    means: tuple[float, float] = (0.6, 0.7)
    since: int = 0
    while go() and since < PATIENCE:
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
