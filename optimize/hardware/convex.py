"""Minimises many small convex problems at once, each with a certified bound: cutting planes, pulled inside.

Every round solves the linear programs over all tangents (`_cuts.py`). Their solutions lie outside; pulled towards a
point inside until all limits are met, they are candidates. Tangents are taken at both. Problems that are done leave.
"""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

from optimize.hardware.cuts import Cuts, Master

MOST_ROUNDS = 60
_HALVINGS = 45


class Model(Protocol):
    """Convex functions of `n` problems: objective and limits, at logarithms (variables first, problems last)."""

    low: np.ndarray  # problems x variables
    high: np.ndarray

    def evaluate(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values (functions first) and slopes (functions, variables)."""
        ...

    def residual_logs(self, logs: np.ndarray) -> np.ndarray:
        """Values of the limits alone."""
        ...

    def equalities(self) -> tuple[np.ndarray, np.ndarray]: ...

    def take(self, chosen: np.ndarray) -> "Model": ...


@dataclasses.dataclass
class Found:
    """Of each problem: the best point inside, its value, the bound and the multipliers that prove it."""

    point: np.ndarray
    value: np.ndarray
    bound: np.ndarray
    limit_weights: np.ndarray  # problems x limits: what one more of each limit's logarithm buys
    slope: np.ndarray  # problems x variables: what moving each variable costs, beyond the limits
    evaluations: int


def minimise(
    model: Model,
    inside: np.ndarray,
    tolerance: float,
    cutoff: float | np.ndarray = np.inf,
    enough: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Found:
    """From points inside (problems x variables). A problem is done where value - bound <= tolerance, where its bound is
    above the cutoff, or where its value is `enough`."""
    n, k = inside.shape
    limits = len(model.residual_logs(inside.T))
    found = Found(inside.copy(), np.full(n, np.inf), np.full(n, -np.inf), np.zeros((n, limits)), np.zeros((n, k)), 0)
    run = _Run(model, inside, np.broadcast_to(np.asarray(cutoff, float), (n,)))
    run.tangents(found, np.stack([model.high, (model.low + model.high) / 2, inside]))
    for _ in range(MOST_ROUNDS):
        master = run.cuts.solve()
        if master is None:
            break
        run.improve_bounds(found, master)
        run.tangents(found, np.stack([run.pulled(master.point), master.point]))
        kept = run.open(found, tolerance, enough)
        if not kept.any():
            break
        if kept.sum() <= 0.7 * len(kept) or len(kept) <= 8 and not kept.all():
            run = run.take(kept)
    return found


class _Run:
    """The problems that are not done yet: `numbers` are their places among all."""

    def __init__(self, model: Model, inside: np.ndarray, cutoff: np.ndarray) -> None:
        self.model, self.inside, self.cutoff = model, inside, cutoff
        self.numbers = np.arange(len(inside))
        self.cuts = Cuts(model.low, model.high, *model.equalities())

    def take(self, kept: np.ndarray) -> "_Run":
        chosen = np.flatnonzero(kept)
        part = _Run(self.model.take(chosen), self.inside[chosen], self.cutoff[chosen])
        part.numbers, part.cuts = self.numbers[chosen], self.cuts.take(chosen)
        return part

    def open(self, found: Found, tolerance: float, enough: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
        """Which of them go on."""
        value, bound = found.value[self.numbers], found.bound[self.numbers]
        done = (value - bound <= tolerance) | (bound > self.cutoff)
        return ~(done if enough is None else done | enough(value))

    def tangents(self, found: Found, points: np.ndarray) -> None:
        """Of all functions at points (points x problems x variables); those inside may become the best."""
        values, slopes = self.model.evaluate(np.moveaxis(points, 2, 0))
        found.evaluations += values[0].size
        for i, at in enumerate(points):
            self.cuts.add(at, values[:, i], slopes[:, :, i])
            kept = (values[1:, i] <= 0).all(axis=0) & self._equal(at) & (values[0, i] < found.value[self.numbers])
            places = self.numbers[kept]
            found.value[places], found.point[places] = values[0, i][kept], at[kept]

    def _equal(self, at: np.ndarray) -> np.ndarray:
        rows, sums = self.model.equalities()
        return np.all(np.abs(at @ rows.T - sums) <= 1e-6, axis=1) if len(rows) else np.full(len(at), True)

    def improve_bounds(self, found: Found, master: Master) -> None:
        bounds = self.cuts.bounds(master.weights, master.free)
        better = bounds > found.bound[self.numbers]
        places, functions = self.numbers[better], found.limit_weights.shape[1] + 1
        found.bound[places] = bounds[better]
        by_point = master.weights.reshape(len(bounds), -1, functions)
        found.limit_weights[places] = by_point.sum(axis=1)[better, 1:]
        found.slope[places] = self.cuts.slope(master.weights, master.free)[better]

    def pulled(self, points: np.ndarray) -> np.ndarray:
        """As far from the point inside towards these points as all limits are met."""
        near, far = np.zeros(len(points)), np.ones(len(points))
        whole = self._met(points)
        if whole.all():
            return points
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            met = self._met(self.inside + middle[:, None] * (points - self.inside))
            near, far = np.where(met, middle, near), np.where(met, far, middle)
        share = np.where(whole, 1.0, near)[:, None]
        return np.where(share == 1.0, points, self.inside + share * (points - self.inside))

    def _met(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.all(self.model.residual_logs(points.T) <= 0, axis=0))
