"""The algorithms themselves, round by round, on quadratics: what rates are checked against.

Each is one function `(problem, state, draw, step) -> state`, element by element over a leading axis of seeds or step
sizes, on NumPy or JAX arrays; the first part of its state is the model that all share. Their chance is drawn before:
`sketches` gives multipliers of coordinates of shape (rounds, seeds, workers, dimension). Sources of the algorithms:
`rates`.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.convergence.quadratics import Problem, gradients, optimum

State = tuple[Any, ...]
Play = Callable[[Problem, State, Any, Any], State]


def sketches(
    kind: str, rounds: int, seeds: int, workers: int, dimension: int, kept: int, seed: int = 100
) -> np.ndarray:
    """Masks of `kept` coordinates, 0 or 1: `random`, each worker's own, or `permutation`, disjoint and all covered."""
    draw = np.random.default_rng(seed)
    if kind == "permutation":
        order = draw.random((rounds, seeds, 1, dimension)).argsort(-1)
        return (order // kept == np.arange(workers)[:, None]).astype(float)
    return (draw.random((rounds, seeds, workers, dimension)).argsort(-1) < kept).astype(float)


def descend(problem: Problem, state: State, draw: Any, step: Any) -> State:
    """Gradient descent."""
    (x,) = state
    return (x - step * gradients(problem, x[..., None, :]).mean(-2),)


def local(steps: int) -> Play:
    """So many steps of every worker on its own loss, then the mean of their models."""

    def play(problem: Problem, state: State, draw: Any, step: Any) -> State:
        points = state[0][..., None, :]
        for _ in range(steps):
            points = points - step * gradients(problem, points)
        return (points.mean(-2),)

    return play


def compressed(problem: Problem, state: State, draw: Any, step: Any) -> State:
    """Distributed compressed gradient descent (DCGD): the draw multiplies every worker's gradient."""
    (x,) = state
    return (x - step * (draw * gradients(problem, x[..., None, :])).mean(-2),)


def diana(shift_step: float) -> Play:
    """DIANA: differences to a shift of every worker's are compressed, and the shifts learn them."""

    def play(problem: Problem, state: State, draw: Any, step: Any) -> State:
        x, shifts = state
        sent = draw * (gradients(problem, x[..., None, :]) - shifts)
        return x - step * (shifts + sent).mean(-2), shifts + shift_step * sent

    return play


def error_feedback(kept: int) -> Play:
    """EF21: what differs most from the last estimate of every worker's gradient is sent, its `kept` largest parts."""

    def play(problem: Problem, state: State, draw: Any, step: Any) -> State:
        x, estimates = state
        x = x - step * estimates.mean(-2)
        return x, estimates + largest(gradients(problem, x[..., None, :]) - estimates, kept)

    return play


def largest(values: Any, kept: int) -> Any:
    """The `kept` elements of largest size along the last axis, 0 elsewhere (top-k)."""
    sizes = abs(values)
    return values * (sizes >= values.__array_namespace__().sort(sizes, axis=-1)[..., -kept, None])


def plain_subnetworks(problem: Problem, state: State, draw: Any, step: Any) -> State:
    """IST with masks that are not scaled, each of $q$ coordinates: `subnetworks`."""
    (x,) = state
    n, kept = len(problem[1]), draw[0, 0].sum()
    moved = (draw * gradients(problem, draw * x[..., None, :])).sum(-2)
    return (x - step * x.shape[-1] / (kept * n) * moved,)


def scaled_subnetworks(problem: Problem, state: State, draw: Any, step: Any) -> State:
    r"""IST with permutations scaled by $\sqrt n D_i^{-1/2}$, on $x - \gamma \frac1n\sum_i C_i\nabla f_i(C_i x)$."""
    (x,) = state
    scale = draw * (len(problem[1]) / problem[0].diagonal(axis1=-2, axis2=-1)) ** 0.5
    return (x - step * (scale * gradients(problem, scale * x[..., None, :])).mean(-2),)


def play(algorithm: Play, problem: Problem, state: State, draws: Any, step: Any) -> Any:
    """The models after every round, the start first: shape (rounds + 1, ..., dimension).

    Rounds are as many as draws. Under JAX this is one loop that is compiled once and differentiable in all numbers.
    """
    if problem[0].__array_namespace__() is np:
        models = [state[0]]
        for draw in draws:
            state = algorithm(problem, state, draw, step)
            models.append(state[0])
        return np.stack(models)
    import jax

    def one(state: State, draw: Any) -> tuple[State, Any]:
        state = algorithm(problem, state, draw, step)
        return state, state[0]

    _, models = jax.lax.scan(one, state, draws)
    return jax.numpy.concatenate([state[0][None], models])


def errors(problem: Problem, models: Any) -> Any:
    r"""$\|x_k - x^*\|^2 / \|x_0 - x^*\|^2$ of every round."""
    away = ((models - optimum(problem)) ** 2).sum(-1)
    return away / away[0]
