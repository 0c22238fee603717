r"""Lower bounds of a mix at one count of accelerators: all jobs on the same hardware, not each on its own.

With the logarithms $L_{jp}(y)$ of weighted seconds, any shares $s$ that sum to 1 and any tilts with
$\sum_j s_j m_j = 0$ (they cancel where all jobs have the same rates $y$), with $H(s) = -\sum_j s_j \log s_j$:

$$\log \sum_j e^{L_j} \ge \sum_j s_j L_j + H(s), \qquad
\min_y \log \sum_j \min_p e^{L_{jp}(y)} \ge
\sum_j s_j \min_{p, y_j} \big[L_{jp}(y_j) + m_j \cdot (y_j - y_0)\big] + H(s)$$

The first is Jensen's inequality, the second Lagrange's: each bracket is one job alone, convex in the rates, and
searched as such (`bounding`). The shares and the slopes of the known answer make both exact for its plans, so what is
left of the gap is what other plans could gain by rates that the jobs do not share. Bytes of HBM are shared too: they
are split once, at what the known answer has, and every job pays for the least of its range and has room for the most;
then the rates are split where the jobs disagree most about them (branch and bound over boxes of hardware).
"""

import dataclasses
import time
from typing import Any

import numpy as np

from costmodel.formulas import Hardware
from costmodel.inputs import Plan, embed
from optimize.clusters.bounding import close, scan
from optimize.clusters.progress import Best, Cell, Progress
from optimize.clusters.screening import tangents_of
from optimize.question import RATES, Objective, Problem, Tangents

NARROWEST = 0.01  # logarithm of the ratio of the ends of a range of a rate that is not split any more
_BELOW = 1 - 1e-3  # of the bytes of the known answer: where its range is split first


@dataclasses.dataclass(eq=False)
class SharedBound:
    """All jobs at one count and in one range of HBM bytes: their searches so far, and what follows for the mix."""

    alone: list[Cell]
    plans: tuple[Plan, ...]
    place: np.ndarray  # rates of the answer that is known
    answer_bytes: float
    values: np.ndarray  # logarithms of the weighted values there, by job
    levels: np.ndarray  # that are enough for each job
    log_scale: float  # of the objective, over the sum of weighted seconds
    tilts: np.ndarray
    hbm_bytes: tuple[float, float]
    ends: tuple[np.ndarray, np.ndarray]  # logarithms of the least and most of the rates
    least: float = -np.inf  # a bound that is known already
    searches: list[Progress] = dataclasses.field(default_factory=list)
    closed: list[bool] = dataclasses.field(default_factory=list)

    @property
    def accelerators(self) -> int:
        """How many the cluster has."""
        return self.alone[0].accelerators

    @property
    def shares(self) -> np.ndarray:
        """What part of the sum each job is at the known answer."""
        shares = np.exp(self.values - self.values.max())
        return shares / shares.sum()

    @property
    def log_bound(self) -> float:
        """The logarithm that nothing is below; infinite where one job has no plan."""
        each = np.array([search.log_bound for search in self.searches])
        if any(_impossible(search) for search in self.searches):
            return np.inf
        shares = np.maximum(self.shares, 1e-300)
        return max(self.least, float((self.shares * (each - np.log(shares))).sum()) + self.log_scale)

    def scan(self, seen: list[dict[tuple[int, int], Tangents]], end: float) -> None:
        """Bound every family of every job once."""
        self.closed = [False] * len(self.alone)
        for i, cell in enumerate(self.alone):
            problem = cell.problem.within(self.ends)
            tilted = Cell(
                problem,
                cell.accelerators,
                tilt=self.tilts[i],
                place=self.place,
                log_weight=float(np.log(problem.job.weight)),
                hbm_bytes=self.hbm_bytes,
            )
            search = Progress(problem, seen=seen[i])
            own = {"y": self.place, "hbm_bytes": 0.0, "plan": self.plans[i]}
            search.best = Best(log_value=float(self.levels[i]), cell=tilted, **own)
            self.searches.append(search)
            if time.monotonic() > end:
                search.unseen[cell.accelerators] = -np.inf
            else:
                scan(search, tilted)

    def close_one(self, end: float) -> bool:
        """Search the job that is furthest from enough; false where all have been."""
        lost = self.shares * (self.levels - [search.log_bound for search in self.searches])
        lost[self.closed] = -np.inf
        chosen = int(lost.argmax())
        if lost[chosen] <= 0:
            return False
        self.closed[chosen] = True
        close(self.searches[chosen], end)
        return True

    def split(self, end: float) -> list["SharedBound"]:
        """The two halves of this box of hardware, bounded; none where it is narrow, or empty."""
        parts = []
        for changes in self._halves() if np.isfinite(self.log_bound) else []:
            part = dataclasses.replace(self, least=self.log_bound, searches=[], closed=[], **changes)
            part.scan([search.seen for search in self.searches], end)
            parts.append(part)
        return parts

    def _halves(self) -> list[dict[str, Any]]:
        low, high = self.hbm_bytes
        at = self.answer_bytes * _BELOW
        if low < at < high:
            return [{"hbm_bytes": (low, at)}, {"hbm_bytes": (at, high)}]
        low, high = self.ends
        wanted = np.stack([_least_at(search, self.place) for search in self.searches])
        apart = (self.shares[:, None] * np.abs(self.tilts) * np.abs(wanted - self.shares @ wanted)).sum(0)
        wide = high - low > NARROWEST
        if not wide.any():
            return []
        rate = int(np.where(wide, apart + 1e-6 * (high - low), -1.0).argmax())
        middle = low[rate] + np.clip((self.shares @ wanted - low) / (high - low), 0.2, 0.8)[rate] * (high - low)[rate]
        below, above = high.copy(), low.copy()
        below[rate] = above[rate] = middle
        return [{"ends": (low, below)}, {"ends": (above, high)}]


def _least_at(search: Progress, place: np.ndarray) -> np.ndarray:
    """Rates at which what is still open may be best; `place` where nothing is."""
    parts = [part for part in search.open if len(part.indices)]
    if not parts:
        return place
    part = min(parts, key=lambda part: part.log_bound.min())
    return part.y[int(part.log_bound.argmin())]


def _impossible(search: Progress) -> bool:
    """Whether nothing was dismissed and nothing is open: no plan can be built."""
    return not np.isfinite(search.dismissed) and not search.unseen and not any(len(o.indices) for o in search.open)


def shared_bound(
    problem: Problem, count: int, plans: tuple[Plan, ...], hardware: Hardware, log_best: float, end: float
) -> SharedBound:
    """The bound of a count, every family of every job bounded once, tilted by the slopes of plans at their hardware."""
    scale, y = problem.log_scale, np.log([float(getattr(hardware, name)) for name in RATES])
    timed = dataclasses.replace(problem, objective=Objective.time) if scale else problem
    alone = [Cell(dataclasses.replace(timed, jobs=(job,)), count) for job in problem.jobs]
    at = [_at(cell, plan, y[None]) for cell, plan in zip(alone, plans, strict=True)]
    pairs = zip(alone, at, strict=True)
    values = np.array(
        [float(cell.log_value(cell.left(own.peak_bytes), own)[0] + _log_weight(cell)) for cell, own in pairs]
    )
    slopes = np.stack([own.slopes[0] for own in at])
    levels = values - max(0.0, float(np.logaddexp.reduce(values)) + scale - log_best)
    shared = SharedBound(
        alone=alone,
        plans=plans,
        place=y,
        answer_bytes=float(hardware.hbm_bytes),
        values=values,
        levels=levels,
        log_scale=scale,
        tilts=np.exp(values - np.logaddexp.reduce(values)) @ slopes - slopes,
        hbm_bytes=(0.0, problem.most_hbm_bytes),
        ends=problem.ends,
    )
    shared.scan([{} for _ in alone], end)
    return shared


def _log_weight(cell: Cell) -> float:
    return np.log(cell.problem.job.weight)


def _at(cell: Cell, plan: Plan, y: np.ndarray) -> Tangents:
    """Of one plan at several rates, without tilt."""
    problem = cell.problem
    points = embed(plan, problem.job.workload, float(problem.domain), problem.machine.stack.habits)
    at = tangents_of(problem.job.workload, problem.machine, points, y, problem.loads)
    return cell.tangents(at, cell.left(at.peak_bytes))
