r"""Quadratic problems of several workers: where rates are exact, and every algorithm can be played.

$$f(x) = \frac1n \sum_i f_i(x),\quad f_i(x) = \tfrac12 x^\top L_i x - b_i^\top x,\quad
x^* = \bar L^{-1}\bar b,\quad \bar L = \frac1n\sum L_i,\ \bar b = \frac1n\sum b_i$$

A problem is the pair of arrays `(hessians, offsets)` of shapes (workers, dimension, dimension) and (workers,
dimension), of NumPy or JAX. Source: Shulgin and Richtarik, arXiv 2306.16484, section 3.
"""

from typing import Any

import numpy as np

from costmodel.semantics import Scalar

Problem = tuple[Any, Any]


def random_quadratic(
    seed: int, workers: int, dimension: int, ends: tuple[float, float] = (1.0, 10.0), offsets: bool = True
) -> Problem:
    """Workers with the same evenly spaced spectrum in random orthogonal bases; without offsets all share the optimum 0.

    A worker's basis is drawn, then its offset, then the next worker's.
    """
    draw, spectrum = np.random.default_rng(seed), np.linspace(*ends, dimension)
    hessians, linear = [], []
    for _ in range(workers):
        basis = np.linalg.qr(draw.standard_normal((dimension, dimension)))[0]
        hessians.append(basis @ np.diag(spectrum) @ basis.T)
        linear.append(draw.standard_normal(dimension))
    return np.stack(hessians), np.stack(linear) * float(offsets)


def optimum(problem: Problem) -> Any:
    """The minimum of the mean, $x^*$."""
    hessians, offsets = problem
    library = hessians.__array_namespace__()
    return library.linalg.solve(hessians.mean(0), offsets.mean(0))


def gradients(problem: Problem, points: Any) -> Any:
    """Gradients of every worker at its own point: (..., workers, dimension), or (..., 1, dimension) for one of all."""
    hessians, offsets = problem
    by_worker = points.reshape(-1, *points.shape[-2:]).swapaxes(0, 1)
    slopes = (by_worker @ hessians).swapaxes(0, 1)
    return slopes.reshape(*points.shape[:-2], *slopes.shape[-2:]) - offsets


def energy(matrix: Any, vector: Any) -> Scalar:
    """$v^T A v$ along the last axis."""
    return ((vector @ matrix) * vector).sum(-1)


def constants(problem: Problem, start: Any) -> dict[str, Scalar]:
    r"""What rates read of a problem: extremes of its spectra, workers, and how far the workers' optima lie apart.

    `spread` is $\frac1n\sum\|\nabla f_i(x^*)\|^2 / \|x_0 - x^*\|^2$: 0 under interpolation.
    """
    hessians, offsets = problem
    library = hessians.__array_namespace__()
    mean, own = library.linalg.eigvalsh(hessians.mean(0)), library.linalg.eigvalsh(hessians)
    best = optimum(problem)
    return {
        "mu": mean[0],
        "smooth": mean[-1],
        "mu_least": own[:, 0].min(),
        "smooth_max": own[:, -1].max(),
        "smooth_rms": (own[:, -1] ** 2).mean() ** 0.5,
        "workers": float(len(offsets)),
        "spread": (gradients(problem, best[None]) ** 2).sum(-1).mean() / ((start - best) ** 2).sum(),
    }
