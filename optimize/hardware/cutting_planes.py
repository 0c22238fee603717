r"""Minimises many small convex problems at once, each with a certified bound: cutting planes, pulled inside.

For any limits and variables, to any tolerance, at a linear program each; `tangents` bounds thousands of plans in the
time of one, under money and watts alone.

A problem is $\min f(y)$ with $c_j(y) \le 0$, $E y = e$, $l \le y \le h$, and convex $f$ and $c_j$. Tangents of these
lie below them, so the linear program over any tangents bounds the minimum from below (Kelley 1960). All problems are
blocks of one program, so that one call of HiGHS solves them. The bound is not the solver's: with its multipliers,
whatever their errors, $\sum_m \mu_m f_m + \sum \lambda_m c_m$ ($\sum \mu = 1$, $\lambda \ge 0$) is minimised over the
box in closed form, less a margin for rounding.

The solutions of the programs lie outside; pulled towards a point inside until all limits are met, they are candidates.
Tangents are taken at both. Problems that are done leave.
"""

import dataclasses
from collections.abc import Callable
from typing import Protocol

import numpy as np

MOST_ROUNDS = 60
ROUNDING = 1e-11
"""Of the logarithm of a step in float64: sums of some thousand positive terms round by less than 1e-12 of it."""
_SECTIONS, _PASSES = 32, 9  # of the way from a point inside
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_UNIT = 1e-12  # of each term of a bound; float64 rounds by 1e-16 of it


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

    def equalities(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of coefficients of the logarithms, and what they sum to."""
        ...

    def take(self, chosen: np.ndarray) -> "Model":
        """The functions of some of the problems."""
        ...


@dataclasses.dataclass
class Minima:
    """What is known of each problem: the best point inside, its value, the bound and the multipliers that prove it."""

    point: np.ndarray
    value: np.ndarray
    bound: np.ndarray
    limit_weights: np.ndarray  # problems x limits: what one more of each limit's logarithm buys
    slope: np.ndarray  # problems x variables: what moving each variable costs, beyond the limits
    evaluations: int

    def put(self, chosen: np.ndarray, part: "Minima") -> None:
        """Set the minima of some of the problems."""
        for name in ("point", "value", "bound", "limit_weights", "slope"):
            getattr(self, name)[chosen] = getattr(part, name)
        self.evaluations += part.evaluations


def nothing_known(point: np.ndarray, limits: int, bound: float) -> Minima:
    """Minima of which only points (problems x variables) and a bound are known."""
    n, k = point.shape
    return Minima(point.copy(), np.full(n, np.inf), np.full(n, bound), np.zeros((n, limits)), np.zeros((n, k)), 0)


def minimise(
    model: Model,
    inside: np.ndarray,
    tolerance: float,
    cutoff: float | np.ndarray = np.inf,
    enough: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Minima:
    """Minima of all problems, from points inside (problems x variables).

    A problem is done where value - bound <= tolerance, where its bound is above the cutoff, or where its value is
    `enough`.
    """
    n = len(inside)
    minima = nothing_known(inside, len(model.residual_logs(inside.T)), -np.inf)
    cuts = _Cuts(model, inside, np.arange(n), np.broadcast_to(np.asarray(cutoff, float), (n,)))
    cuts.touch(minima, np.stack([model.high, (model.low + model.high) / 2, inside]))
    for _ in range(MOST_ROUNDS):
        solution = cuts.solve()
        if solution is None:
            break
        point, weights, free = solution
        cuts.improve_bounds(minima, weights, free)
        cuts.touch(minima, np.stack([cuts.pulled(point), point]))
        kept = cuts.open(minima, tolerance, enough)
        if not kept.any():
            break
        if kept.sum() <= 0.7 * len(kept) or len(kept) <= 8 and not kept.all():
            cuts = cuts.take(np.flatnonzero(kept))
    return minima


class _Cuts:
    """The problems that are not done yet, and their tangents: `offset + slope . (y - low)` is below the objective, or
    must not be above zero. `numbers` are their places among all."""

    def __init__(self, model: Model, inside: np.ndarray, numbers: np.ndarray, cutoff: np.ndarray) -> None:
        self.model, self.inside, self.numbers, self.cutoff = model, inside, numbers, cutoff
        self.low, self.width = model.low, model.high - model.low
        (n, k), (self.rows, sums) = self.low.shape, model.equalities()
        self.sums = sums - self.low @ self.rows.T if len(self.rows) else np.empty((n, 0))
        self.offsets, self.slopes, self.of_objective = np.empty((n, 0)), np.empty((n, 0, k)), np.empty(0, bool)

    def take(self, chosen: np.ndarray) -> "_Cuts":
        """The cuts of some of the problems."""
        part = _Cuts(self.model.take(chosen), self.inside[chosen], self.numbers[chosen], self.cutoff[chosen])
        part.offsets, part.slopes, part.of_objective = self.offsets[chosen], self.slopes[chosen], self.of_objective
        return part

    def open(self, minima: Minima, tolerance: float, enough: Callable[[np.ndarray], np.ndarray] | None) -> np.ndarray:
        """Which of the problems go on."""
        value, bound = minima.value[self.numbers], minima.bound[self.numbers]
        done = (value - bound <= tolerance) | (bound > self.cutoff)
        return ~(done if enough is None else done | enough(value))

    def touch(self, minima: Minima, points: np.ndarray) -> None:
        """Add tangents of all functions at points (points x problems x variables); those inside may become best."""
        values, slopes = self.model.evaluate(np.moveaxis(points, 2, 0))
        minima.evaluations += values[0].size
        for i, at in enumerate(points):
            self._add(at, values[:, i], slopes[:, :, i])
            kept = (values[1:, i] <= 0).all(axis=0) & self._equal(at) & (values[0, i] < minima.value[self.numbers])
            places = self.numbers[kept]
            minima.value[places], minima.point[places] = values[0, i][kept], at[kept]

    def _add(self, at: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        """Tangents at points (problems x variables): functions x problems, and functions x variables x problems."""
        steep = np.moveaxis(slopes, (0, 1, 2), (1, 2, 0))
        offsets = values.T - np.einsum("nfk,nk->nf", steep, at - self.low)
        self.offsets = np.concatenate([self.offsets, offsets], axis=1)
        self.slopes = np.concatenate([self.slopes, steep], axis=1)
        self.of_objective = np.append(self.of_objective, np.arange(len(values)) == 0)

    def _equal(self, at: np.ndarray) -> np.ndarray:
        if not len(self.rows):
            return np.full(len(at), True)
        return np.all(np.abs(at @ self.rows.T - self.model.equalities()[1]) <= 1e-6, axis=1)

    def pulled(self, points: np.ndarray) -> np.ndarray:
        """Points as far from those inside towards these points as all limits are met."""
        near, width = np.zeros(len(points)), 1.0
        whole = self._met(points)
        if whole.all():
            return points
        parts = np.arange(1, _SECTIONS)[:, None] / _SECTIONS
        for _ in range(_PASSES):  # many at once: what takes time is their number, not their size
            shares = near + width * parts
            met = self._met(self.inside + shares[..., None] * (points - self.inside))
            near, width = near + width * np.cumprod(met, axis=0).sum(axis=0) / _SECTIONS, width / _SECTIONS
        share = np.where(whole, 1.0, near)[:, None]
        return np.where(share == 1.0, points, self.inside + share * (points - self.inside))

    def _met(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(np.all(self.model.residual_logs(np.moveaxis(points, -1, 0)) <= 0, axis=0))

    def solve(self) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """The least value of the largest objective tangent where all other tangents are met.

        Points (problems x variables), multipliers of tangents and of equalities (by problem). None: HiGHS failed.
        """
        from scipy.optimize import linprog

        (n, m), k = self.offsets.shape, self.slopes.shape[2]
        costs = np.tile(np.append(np.zeros(k), 1.0), n)
        ends = np.empty((n, k + 1, 2))
        ends[:, :k, 0], ends[:, :k, 1], ends[:, k] = 0.0, self.width, (-np.inf, np.inf)
        equal = {"A_eq": self._equal_rows(), "b_eq": self.sums.ravel()} if len(self.rows) else {}
        asked = {"A_ub": self._tangent_rows(), "b_ub": -self.offsets.ravel(), "bounds": ends.reshape(-1, 2), **equal}
        solved = linprog(costs, method="highs", options=_TIGHT, **asked)
        if solved.status != 0:
            return None
        free = solved.eqlin.marginals.reshape(n, -1) if len(self.rows) else np.empty((n, 0))
        weights = self._normalised(-solved.ineqlin.marginals.reshape(n, m))
        point = np.clip(solved.x.reshape(n, k + 1)[:, :k], 0.0, self.width)
        return self.low + point, weights, -free

    def _tangent_rows(self):
        from scipy import sparse

        (n, m), k = self.offsets.shape, self.slopes.shape[2]
        block = np.concatenate([self.slopes, np.broadcast_to(-1.0 * self.of_objective[:, None], (n, m, 1))], axis=2)
        columns = (k + 1) * np.arange(n)[:, None, None] + np.broadcast_to(np.arange(k + 1), (n, m, k + 1))
        ends = np.arange(0, n * m * (k + 1) + 1, k + 1)
        return sparse.csr_matrix((block.ravel(), columns.ravel(), ends), shape=(n * m, n * (k + 1)))

    def _equal_rows(self):
        from scipy import sparse

        row = np.concatenate([self.rows, np.zeros((len(self.rows), 1))], axis=1)
        return sparse.block_diag([row] * len(self.low), format="csr")

    def _normalised(self, weights: np.ndarray) -> np.ndarray:
        """Non-negative, those of the objective's tangents summing to one."""
        weights = np.maximum(weights, 0.0)
        sums = weights[:, self.of_objective].sum(axis=1, keepdims=True)
        lost = sums <= 0
        weights = weights + lost * self.of_objective / max(1, self.of_objective.sum())
        return weights / np.where(lost, 1.0, sums)

    def improve_bounds(self, minima: Minima, weights: np.ndarray, free: np.ndarray) -> None:
        """Keep what these multipliers prove, where it is more than what is known."""
        slope = self._slope(weights, free)
        bounds = self._bounds(slope, weights, free)
        better = bounds > minima.bound[self.numbers]
        places, functions = self.numbers[better], minima.limit_weights.shape[1] + 1
        minima.bound[places] = bounds[better]
        by_point = weights.reshape(len(bounds), -1, functions)
        minima.limit_weights[places] = by_point.sum(axis=1)[better, 1:]
        minima.slope[places] = slope[better]

    def _slope(self, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Of the weighted sum of tangents and equalities: what moving a variable costs, beyond the limits."""
        return np.einsum("nm,nmk->nk", weights, self.slopes) + (free @ self.rows if len(self.rows) else 0.0)

    def _bounds(self, slope: np.ndarray, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """What no feasible point is below, by any multipliers: problems."""
        terms = (weights * self.offsets, np.minimum(0.0, slope * self.width), -free * self.sums)
        size = sum(np.abs(term).sum(axis=1) for term in terms) + np.abs(slope * self.width).sum(axis=1)
        return sum(term.sum(axis=1) for term in terms) - ROUNDING - _UNIT * size
