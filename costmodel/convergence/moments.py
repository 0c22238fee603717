r"""Errors of the methods round by round, exactly: the mean and the second moment of linear recursions.

What the rates bound, these give, from the whole spectrum and the start instead of its ends. Limits: quadratics.
"""

from typing import Any

from costmodel.convergence.quadratics import Problem, gradients, optimum
from costmodel.semantics import Scalar


def local_map(problem: Problem, step: Scalar, local: int) -> tuple[Any, Any]:
    r"""The linear map of a round of $\tau$ local steps, $A = \frac1n\sum(I-\gamma L_i)^\tau$, and its fixed point.

    $x_\infty = (I-A)^{-1}\frac1n\sum (I-(I-\gamma L_i)^\tau) L_i^{-1} b_i$: the optimum at $\tau = 1$ or under
    interpolation. One local step is gradient descent.
    """
    hessians, offsets = problem
    library = hessians.__array_namespace__()
    same = library.eye(hessians.shape[-1])
    power, gathered = same, 0.0 * hessians
    for _ in range(local):
        gathered = gathered + step * power
        power = power @ (same - step * hessians)
    moved = (gathered @ offsets[..., None])[..., 0].mean(0)
    return power.mean(0), library.linalg.solve(gathered_slopes(gathered, hessians), moved)


def gathered_slopes(gathered: Any, hessians: Any) -> Any:
    r"""$I - A = \frac1n\sum G_i L_i$ with $G_i = \gamma\sum_{t<\tau}(I-\gamma L_i)^t$, without a difference."""
    return (gathered @ hessians).mean(0)


def local_errors(problem: Problem, start: Any, step: Scalar, local: int, rounds: int) -> Any:
    r"""$\|x_k-x^*\|^2/\|x_0-x^*\|^2$ of local steps, rounds 0 to K: $x_k = x_\infty + A^k(x_0-x_\infty)$."""
    library, best = problem[0].__array_namespace__(), optimum(problem)
    moved, limit = local_map(problem, step, local)
    away, found = start - limit, []
    for _ in range(rounds + 1):
        found.append(((away + limit - best) ** 2).sum())
        away = moved @ away
    return library.stack(found) / found[0]


def dcgd_errors(problem: Problem, start: Any, step: Scalar, kept: int, rounds: int) -> Any:
    r"""$E\|x_k-x^*\|^2/\|x_0-x^*\|^2$ of gradients of which each worker sends its own K random coordinates times d/K.

    $S = E e e^\top$ goes to $(I-\gamma\bar L)S(I-\gamma\bar L) + \frac{\gamma^2}{n^2}\sum_i V_i$, where with
    $R_i = E\,\nabla f_i\nabla f_i^\top$ the covariance $V_i$ is $(\frac dK-1)R_i$ on the diagonal and
    $(\frac{d(K-1)}{K(d-1)}-1)R_i$ off it.
    """
    hessians, offsets = problem
    library, n, d = hessians.__array_namespace__(), len(offsets), len(start)
    best, same = optimum(problem), library.eye(d)
    own = same * (d / kept - 1) + (1 - same) * (d * (kept - 1) / (kept * (d - 1)) - 1)
    rest, shrink = gradients(problem, best[None]), same - step * hessians.mean(0)
    mean, second = start - best, (start - best)[:, None] * (start - best)
    found = []
    for _ in range(rounds + 1):
        found.append(second.trace())
        cross = (hessians @ mean)[..., None] * rest[:, None, :]
        squares = hessians @ second @ hessians + cross + cross.swapaxes(-1, -2) + rest[..., None] * rest[:, None, :]
        second = shrink @ second @ shrink + step**2 / n**2 * (own * squares).sum(0)
        mean = shrink @ mean
    return library.stack(found) / found[0]


def rounds_until(errors: Any, target: float) -> Scalar:
    """The fractional round at which a curve of errors first falls to the target; nan where it does not.

    Between rounds by logarithms; differentiable in the errors.
    """
    library = errors.__array_namespace__()
    after = int((errors <= target).argmax())
    if after == 0:
        return 0.0 * errors[0] if errors[0] <= target else library.nan * errors[0]
    low, high = library.log(errors[after - 1]), library.log(errors[after])
    return after - 1 + (low - library.log(target + 0.0 * low)) / (low - high)
