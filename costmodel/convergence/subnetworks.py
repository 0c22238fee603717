r"""Independent subnetwork training (IST) on quadratics: where it goes, how fast, and how far from the optimum it ends.

A round with sketches $C_i$ is $x^+ = \frac1n\sum_i [C_i x - \gamma C_i \nabla f_i(C_i x)]$: every worker takes one
exact local step on its part of the coordinates. Two kinds. *Scaled* permutations ($n = d$): worker $i$ owns one
coordinate $\pi_i$, scaled with $\sqrt n\,[D_i^{-1/2}]_{\pi_i}$, $D_i = \mathrm{Diag}(L_i)$. *Plain* masks $P_i$ of $q$
coordinates, not scaled, as published code of IST has them: $x^+ = x - \frac{d\gamma}{qn}\sum_i P_i \nabla f_i(P_i x)$.

Limits: quadratic losses, exact local gradients, one local step, all workers take part. Source: Shulgin and Richtarik,
arXiv 2306.16484, theorems 1 and 2. The stationary values and all of plain masks are derived here, from the first two
moments of a random permutation.
"""

from typing import Any

from costmodel.convergence.quadratics import Problem, energy, optimum
from costmodel.semantics import Scalar


def scaled_offsets(problem: Problem) -> Any:
    """$v_i = D_i^{-1/2} b_i$, one row for each worker."""
    hessians, offsets = problem
    return offsets / hessians.diagonal(axis1=-2, axis2=-1) ** 0.5


def scaled_limit(problem: Problem) -> Any:
    r"""The mean of scaled IST after many rounds, $x_\infty = n^{-3/2}\sum_i D_i^{-1/2} b_i$, whatever the step."""
    return scaled_offsets(problem).mean(0) / len(problem[1]) ** 0.5


def scaled_mean(problem: Problem, start: Any, step: Scalar, rounds: Scalar) -> Any:
    r"""$E x_k = (1-\gamma)^k x_0 + (1-(1-\gamma)^k) x_\infty$."""
    kept = (1 - step) ** rounds
    return kept * start + (1 - kept) * scaled_limit(problem)


def scaled_covariance(problem: Problem) -> Any:
    r"""Covariance of a move at step 1: $\mathrm{Var}_i(v_{ij})/n$; off it $-\mathrm{Cov}_i(v_j, v_k)/(n(n-1))$."""
    library, n = problem[0].__array_namespace__(), len(problem[1])
    rows = scaled_offsets(problem)
    rows = rows - rows.mean(0)
    spread, own = rows.T @ rows / n, library.eye(n)
    return own * spread / n - (1 - own) * spread / (n * (n - 1))


def scaled_bias(problem: Problem) -> Scalar:
    r"""$\|h\|^2_{\bar L}$ with $h = x^* - x_\infty$: no step and no number of rounds removes it."""
    return energy(problem[0].mean(0), optimum(problem) - scaled_limit(problem))


def scaled_variance(problem: Problem) -> Scalar:
    r"""$\sigma^2 = E\|g - E g\|^2_{\bar L} = \mathrm{tr}(\bar L\,\mathrm{Cov})$: the same at every point."""
    return (problem[0].mean(0) * scaled_covariance(problem)).sum()


def scaled_stationary(problem: Problem, step: Scalar) -> Scalar:
    r"""$E\|\nabla f\|^2_{\bar L^{-1}} = \|h\|^2 + \gamma\sigma^2/(2-\gamma)$ after many rounds; half of it in $f$."""
    return scaled_bias(problem) + step * scaled_variance(problem) / (2 - step)


def theorem_2(problem: Problem, start: Any, beta: Scalar, step: Scalar, rounds: Scalar) -> Scalar:
    r"""The published bound of the mean $\|\nabla f(x_k)\|^2_{\bar L^{-1}}$ over so many rounds.

    $2(f_0 - f^*)/(\gamma K) + (2(1-\gamma)/\beta + \gamma)\|h\|^2_{\bar L} + \gamma\sigma^2$ for $0 < \beta < 1/2$ and
    $0 < \gamma \le (1/2-\beta)/(1/2+\beta)$. With $f^*$ for $E f_K$ it is a little above the published one.
    """
    gap = 0.5 * energy(problem[0].mean(0), start - optimum(problem))
    biased = (2 * (1 - step) / beta + step) * scaled_bias(problem)
    return 2 * gap / (step * rounds) + biased + step * scaled_variance(problem)


def theorem_2_mean(problem: Problem, start: Any, step: Scalar, rounds: Scalar) -> Scalar:
    r"""What it bounds, exactly: the mean of $E\|\nabla f(x_k)\|^2_{\bar L^{-1}}$ over rounds 0 to K-1."""
    library = problem[0].__array_namespace__()
    k = library.arange(rounds, dtype=problem[0].dtype)[:, None]
    away = energy(problem[0].mean(0), scaled_mean(problem, start, step, k) - optimum(problem))
    return (away + step * (1 - (1 - step) ** (2 * k[:, 0])) / (2 - step) * scaled_variance(problem)).mean()


def preconditioner(problem: Problem) -> Any:
    r"""$\bar W = \frac12 E[\bar L\bar B + \bar B\bar L]$ of theorem 1 for unscaled permutations, $E\bar B = n\bar D$.

    Interpolation converges by the theorem where this is positive definite, which it need not be.
    """
    hessians = problem[0]
    mean = hessians.mean(0)
    blocks = len(hessians) * mean.diagonal() * mean
    return 0.5 * (blocks + blocks.T)


def plain_map(problem: Problem, kept: Scalar) -> Any:
    r"""The mean map of plain masks of $q$, $M = \mathrm{Diag}(\bar L) + \frac{q-1}{d-1}\mathrm{Off}(\bar L)$.

    Stable in the mean for steps below $2/\lambda_{max}(M)$; gradient descent at $q = d$.
    """
    mean = problem[0].mean(0)
    own, share = mean.__array_namespace__().eye(len(mean)), (kept - 1) / (len(mean) - 1)
    return mean * (own + share * (1 - own))


def plain_limit(problem: Problem, kept: Scalar) -> Any:
    r"""The mean end of plain masks, $M^{-1}\bar b$: not the optimum unless $q = d$ or all offsets are 0."""
    moved = plain_map(problem, kept)
    return moved.__array_namespace__().linalg.solve(moved, problem[1].mean(0))


def plain_noise(problem: Problem, kept: Scalar) -> Scalar:
    r"""$E\|\sum_i P_i(L_i P_i x - b_i)\|^2$ at $x = M^{-1}\bar b$ for disjoint masks that cover all, $nq = d$.

    Blocks are orthogonal, so it is a sum over workers and coordinates; given that $j$ is in a block of $q$, each other
    is with probability $p = (q-1)/(d-1)$ and two are with $p\,(q-2)/(d-2)$.
    """
    (hessians, offsets), x = problem, plain_limit(problem, kept)
    d = len(x)
    once = (kept - 1) / (d - 1)
    twice = once * (kept - 2) / max(d - 2, 1)
    own = hessians.diagonal(axis1=-2, axis2=-1) * x
    parts = hessians * x - own[..., None] * hessians.__array_namespace__().eye(d)
    summed, squares = parts.sum(-1), (parts**2).sum(-1)
    mean = own - offsets + once * summed
    return (mean**2 + (once - twice) * squares + (twice - once**2) * summed**2).mean(0).sum()


def plain_floor(problem: Problem, kept: Scalar, step: Scalar) -> tuple[Scalar, Scalar]:
    r"""Bounds of $E\|x - x^*\|^2$ after many rounds of plain masks, from below and above.

    From below the bias $\|M^{-1}\bar b - x^*\|^2$; at most $\gamma\tau^2/((2-\gamma\lambda)\lambda_{min}(M))$ is added,
    with `plain_noise` $\tau^2$ and $\lambda = \max_i\lambda_{max}(L_i)$, $\gamma < 2/\lambda$: $B = \sum P_iL_iP_i$ has
    $0 \preceq B \preceq \lambda$, so $E(I-\gamma B)^2 \preceq I - \gamma(2-\gamma\lambda)M$.
    """
    library = problem[0].__array_namespace__()
    bias = ((plain_limit(problem, kept) - optimum(problem)) ** 2).sum()
    slowest = library.linalg.eigvalsh(plain_map(problem, kept))[0]
    smooth_max = library.linalg.eigvalsh(problem[0])[:, -1].max()
    return bias, bias + step * plain_noise(problem, kept) / ((2 - step * smooth_max) * slowest)
