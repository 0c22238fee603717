r"""Several jobs at one count as one job each: what a plan takes, tilted so that the tilts of all jobs cancel.

With shares $s_j$ of the value and tilts $m_j$, $\sum_j s_j m_j = 0$, the logarithm of a sum over jobs is at least
(Jensen)

$$\log \sum_j e^{L_j(y)} \ge \sum_j s_j \big[ L_j(y) + m_j \cdot (y - y_0) - \log s_j \big]
\ge \sum_j s_j (e_j - \log s_j)$$

if no plan of job $j$ is below $e_j$ with its tilt, wherever the limits allow. So each job is bounded alone, as in a
design for one job, and any $s$ and $m$ give a true bound; those at the hardware and the plans that are best close it
but for what plans in steps cost. $m_j$ is the mean slope less the job's own.
"""

from typing import NamedTuple

import numpy as np

from optimize.hardware import dual_bound, largest_alone, priced_bound
from optimize.question import Problem, Tangents, whole


class Tilts(NamedTuple):
    """Tilts of some counts: where they are zero, shares and slopes of the jobs there, what all values have besides."""

    counts: np.ndarray  # ascending
    place: np.ndarray  # counts x rates
    values: np.ndarray  # counts x jobs: logarithms of the weighted seconds (or what they are worth) near the best
    slopes: np.ndarray  # counts x jobs x rates
    log_price: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """The share of each job in the value."""
        with np.errstate(invalid="ignore"):
            shares = np.exp(self.values - np.logaddexp.reduce(self.values, axis=-1)[:, None])
        return np.nan_to_num(shares)

    @property
    def tilts(self) -> np.ndarray:
        """What is added to the slopes of each job."""
        return np.einsum("nj,njk->nk", self.shares, self.slopes)[:, None] - self.slopes

    def bounds(self, least: np.ndarray) -> np.ndarray:
        """Logarithms of the value that no mix is below, by what no plan of each job is: counts x jobs."""
        shares = self.shares
        some = np.asarray(np.isfinite(least).all(axis=-1))
        parts = shares * (np.where(some[:, None], least, 0.0) - np.log(np.maximum(shares, 1e-300)))
        return np.where(some, parts.sum(-1), np.inf) + self.log_price

    def levels(self, log_target: np.ndarray | float) -> np.ndarray:
        """What no plan of each job may be below for a target, with the same room for all jobs."""
        with np.errstate(invalid="ignore"):
            return self.values + (log_target - self.log_price - np.logaddexp.reduce(self.values, axis=-1))[:, None]


def tilted(at: Tangents, tilt: np.ndarray, place: np.ndarray) -> Tangents:
    """Tangents with a tilt each, which is zero at a place."""
    more = ((at.y - place) * tilt).sum(-1)
    own = {"log_value": at.log_value + more, "slopes": at.slopes + tilt}
    if at.log_s is not None and at.s_slopes is not None and at.log_drawn is not None and at.drawn_slopes is not None:
        own |= {"log_s": at.log_s + more, "s_slopes": at.s_slopes + tilt}
        own |= {"log_drawn": at.log_drawn + more, "drawn_slopes": at.drawn_slopes + tilt}
    return at._replace(**own)


def least_value(
    problem: Problem, counts: np.ndarray, at: Tangents, level: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """What each tangent (`paid`) is at least, wherever the limits allow, and where; above `level` only roughly.

    Infinite where the limits leave nothing, or where more memory is needed than is sold.
    """
    have = problem.money.left(problem.limits, counts.astype(float), at.peak_bytes)
    if problem.money.priced:
        bound, y = priced_bound(problem.money, have, at, problem.ends, rounds=4)
    else:
        highest, (low, _) = largest_alone(problem, np.maximum(have.usd, 1e-300), have.watt), problem.ends
        corner = np.minimum(at.slopes * (highest - at.y), at.slopes * (low - at.y)).sum(-1)
        bound, y = at.log_value + corner, at.y.copy()
    bound[(have.usd <= 0) | (at.peak_bytes > problem.most_hbm_bytes)] = np.inf
    below = bound < level
    bound[below], y[below] = within(problem, counts[below], at.keep(below))
    return bound, y


def within(problem: Problem, counts: np.ndarray, at: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """What each tangent is at least within the limits, and where."""
    return dual_bound(problem, problem.money.left(problem.limits, counts.astype(float), at.peak_bytes), at)


def paid(problem: Problem, at: Tangents) -> Tangents:
    """Tangents of what is minimised, but for a price that is convex itself, from those of all seconds."""
    return problem.money.paid(at, problem.money.left(problem.limits, np.ones(len(at.y)), at.peak_bytes))


def priced(problem: Problem, at: Tangents) -> Tangents:
    """The same with the price in the tangent, too."""
    if not problem.money.priced or at.log_drawn is None:
        return at
    return whole(problem.money, at, problem.money.left(problem.limits, np.ones(len(at.y)), at.peak_bytes))
