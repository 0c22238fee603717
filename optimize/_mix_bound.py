r"""Lower bounds of a mix at one count of accelerators: all jobs on the same hardware, not each on its own.

With the logarithms $L_{jp}(y)$ of weighted seconds, any shares $s$ that sum to 1 and any tilts with
$\sum_j s_j m_j = 0$ (they cancel where all jobs have the same rates $y$), with $H(s) = -\sum_j s_j \log s_j$:

$$\log \sum_j e^{L_j} \ge \sum_j s_j L_j + H(s), \qquad
\min_y \log \sum_j \min_p e^{L_{jp}(y)} \ge
\sum_j s_j \min_{p, y_j} \big[L_{jp}(y_j) + m_j \cdot (y_j - y_0)\big] + H(s)$$

The first is Jensen's inequality, the second Lagrange's: each bracket is one job alone, convex in the rates, and searched
as such (`_bounding`). The shares and the slopes of the known answer make both exact for its plans, so what is left of
the gap is what other plans could gain by rates that the jobs do not share.
"""

import dataclasses
import time

import numpy as np

from costmodel.plan import Plan, embed
from optimize._bounding import close, scan
from optimize._cells import Cell
from optimize._progress import Best, Progress
from optimize.objective import Objective
from optimize.problem import Problem
from optimize.screen import Screened, tangents_of
from optimize.space import RATES
from optimize.tangents import Tangents

NEAR = 0.02  # of a logarithm: where slopes are taken besides the answer itself, for kinks
_AROUND = 24  # such places


@dataclasses.dataclass(frozen=True, eq=False)
class Tilted(Cell):
    """One job alone, its logarithm weighted and tilted: `log(weight) + L + tilt . (y - place)`."""

    tilt: np.ndarray
    place: np.ndarray
    log_weight: float

    def tangents(self, found: Screened, y: np.ndarray) -> Tangents:
        at = super().tangents(found, y)
        moved = self.log_weight + (y - self.place) @ self.tilt
        return Tangents(at.log_value + moved, at.slopes + self.tilt, y)


@dataclasses.dataclass
class SharedBound:
    """All jobs at one count: their searches so far, and what follows for the mix."""

    accelerators: int
    shares: np.ndarray
    searches: list[Progress]
    levels: np.ndarray  # of each job, that is enough
    closed: list[bool]
    log_scale: float  # of the objective, over the weighted seconds

    @property
    def log_bound(self) -> float:
        each = np.array([search.log_bound for search in self.searches])
        shares = np.maximum(self.shares, 1e-300)
        return float((self.shares * (each - np.log(shares))).sum()) + self.log_scale

    def close_one(self, end: float) -> bool:
        """Search the job that is furthest from enough; false where all have been."""
        lost = self.shares * (self.levels - [search.log_bound for search in self.searches])
        lost[self.closed] = -np.inf
        chosen = int(lost.argmax())
        if self.closed[chosen] or lost[chosen] <= 0:
            return False
        self.closed[chosen] = True
        close(self.searches[chosen], end, exactly=False)
        return True


def log_scale(problem: Problem) -> float:
    """Of the objective over the sum of weighted seconds and what multiplies them: a step is their mean."""
    if problem.objective is not Objective.step:
        return 0.0
    return -float(np.log(sum(job.weight * job.steps for job in problem.jobs)))


def shared_bound(
    problem: Problem, count: int, domain: int, plans: tuple[Plan, ...], y: np.ndarray, log_best: float, end: float
) -> SharedBound:
    """Every family of every job bounded once, tilted by the slopes of these plans at these rates."""
    timed = dataclasses.replace(problem, objective=Objective.time) if log_scale(problem) else problem
    alone = [Cell(dataclasses.replace(timed, jobs=(job,)), count, domain) for job in problem.jobs]
    weights = [float(np.log(job.weight)) for job in problem.jobs]
    values = np.array([_value(cell, plan, y) + more for cell, plan, more in zip(alone, plans, weights, strict=True)])
    log_value = float(np.logaddexp.reduce(values)) + log_scale(problem)
    shares = np.exp(values - values.max())
    shares /= shares.sum()
    slopes = _slopes(alone, plans, y, shares)
    tilts = shares @ slopes - slopes
    levels = values - max(0.0, log_value - log_best)
    searches = []
    for cell, plan, tilt, more, level in zip(alone, plans, tilts, weights, levels, strict=True):
        tilted = Tilted(cell.problem, count, domain, tilt, y, more)
        search = Progress(cell.problem)
        search.best = Best(log_value=float(level), cell=tilted, index=-1, y=y, hbm_bytes=0.0, plan=plan)
        searches.append(search)
    for number, search in enumerate(searches):
        if time.monotonic() > end:
            search.unseen[(count, domain)] = -np.inf
        else:
            assert search.best is not None
            scan(search, search.best.cell)
    return SharedBound(count, shares, searches, levels, [False] * len(searches), log_scale(problem))


def _at(cell: Cell, plan: Plan, y: np.ndarray) -> tuple[Screened, Tangents]:
    """Of one plan at several rates, without tilt."""
    points = embed(plan, cell.problem.job.workload, float(cell.domain))
    found = tangents_of(cell.problem.job.workload, cell.problem.space, points, y)
    return found, cell.tangents(found, y)


def _value(cell: Cell, plan: Plan, y: np.ndarray) -> float:
    found, at = _at(cell, plan, y[None])
    return float(cell.log_value(cell.left(found.peak_bytes), at)[0])


def _slopes(alone: list[Cell], plans: tuple[Plan, ...], y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    return np.stack([_at(cell, plan, y[None])[1].slopes[0] for cell, plan in zip(alone, plans, strict=True)])
