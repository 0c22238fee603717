r"""Cutting planes for many small convex problems at once: tangents, the linear programs over them, valid bounds.

A problem is $\min f(y)$ with $c_j(y) \le 0$, $E y = e$, $l \le y \le h$, and convex $f$ and $c_j$. Tangents of these
lie below them, so the linear program over any tangents bounds the minimum from below (Kelley 1960). All problems are
blocks of one program, so that one call of HiGHS solves them. The bound is not the solver's: with its multipliers,
whatever their errors, $\sum_m \mu_m f_m + \sum \lambda_m c_m$ ($\sum \mu = 1$, $\lambda \ge 0$) is minimised over the
box in closed form, less a margin for rounding.
"""

import dataclasses

import numpy as np

ROUNDING = 1e-11
"""Of the logarithm of a step in float64: sums of some thousand positive terms round by less than 1e-12 of it."""
_TIGHT = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
_UNIT = 1e-12  # of each term of a bound; float64 rounds by 1e-16 of it


@dataclasses.dataclass(frozen=True)
class Master:
    """Solution of the linear programs: a point and the multipliers of the tangents, for each problem."""

    point: np.ndarray  # problems x variables
    weights: np.ndarray  # problems x tangents
    free: np.ndarray  # problems x equalities


class Cuts:
    """Tangents of `n` problems: `offset + slope . (y - low)` is below the objective, or must not be above zero."""

    def __init__(self, low: np.ndarray, high: np.ndarray, rows: np.ndarray, sums: np.ndarray) -> None:
        self.low, self.width = low, high - low
        self.rows, self.sums = rows, sums - low @ rows.T if len(rows) else np.empty((len(low), 0))
        n, k = low.shape
        self.offsets, self.slopes, self.of_objective = np.empty((n, 0)), np.empty((n, 0, k)), np.empty(0, bool)

    def add(self, at: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        """Tangents at points (problems x variables): functions x problems, and functions x variables x problems."""
        steep = np.moveaxis(slopes, (0, 1, 2), (1, 2, 0))
        offsets = values.T - np.einsum("nfk,nk->nf", steep, at - self.low)
        self.offsets = np.concatenate([self.offsets, offsets], axis=1)
        self.slopes = np.concatenate([self.slopes, steep], axis=1)
        self.of_objective = np.append(self.of_objective, np.arange(len(values)) == 0)

    def take(self, chosen: np.ndarray) -> "Cuts":
        """Those of some of the problems."""
        part = Cuts(self.low[chosen], self.low[chosen] + self.width[chosen], self.rows, np.empty(len(self.rows)))
        part.width, part.sums = self.width[chosen], self.sums[chosen]
        part.offsets, part.slopes, part.of_objective = self.offsets[chosen], self.slopes[chosen], self.of_objective
        return part

    def solve(self) -> Master | None:
        """The least value of the largest objective tangent where all other tangents are met. None: HiGHS failed."""
        from scipy.optimize import linprog

        (n, m), k = self.offsets.shape, self.slopes.shape[2]
        costs = np.tile(np.append(np.zeros(k), 1.0), n)
        ends = np.empty((n, k + 1, 2))
        ends[:, :k, 0], ends[:, :k, 1], ends[:, k] = 0.0, self.width, (-np.inf, np.inf)
        equal = {"A_eq": self._equal_rows(), "b_eq": self.sums.ravel()} if len(self.rows) else {}
        asked = {"A_ub": self._tangent_rows(), "b_ub": -self.offsets.ravel(), "bounds": ends.reshape(-1, 2), **equal}
        found = linprog(costs, method="highs", options=_TIGHT, **asked)
        if found.status != 0:
            return None
        free = found.eqlin.marginals.reshape(n, -1) if len(self.rows) else np.empty((n, 0))
        weights = self._normalised(-found.ineqlin.marginals.reshape(n, m))
        point = np.clip(found.x.reshape(n, k + 1)[:, :k], 0.0, self.width)
        return Master(self.low + point, weights, -free)

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

    def slope(self, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Of the weighted sum of tangents and equalities: what moving a variable costs, beyond the limits."""
        return np.einsum("nm,nmk->nk", weights, self.slopes) + (free @ self.rows if len(self.rows) else 0.0)

    def bounds(self, weights: np.ndarray, free: np.ndarray) -> np.ndarray:
        """What no feasible point is below, by any multipliers: problems."""
        slope = self.slope(weights, free)
        terms = (weights * self.offsets, np.minimum(0.0, slope * self.width), -free * self.sums)
        size = sum(np.abs(term).sum(axis=1) for term in terms) + np.abs(slope * self.width).sum(axis=1)
        return sum(term.sum(axis=1) for term in terms) - ROUNDING - _UNIT * size
