"""What a search for one job knows: relaxed points, the best answer, what is open, the bound of what was dismissed.

Also the cell that it searches at a time, and the two kinds of points in it: plans that may still be best, and answers.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from costmodel.inputs import Plan, PlanPoint
from optimize.beside import Beside
from optimize.lattice import Families
from optimize.question import RATES, Left, Money, Objective, Problem, Tangents, whole

TOLERANCE = 5e-4  # of the value: what lies closer to the best answer than this is not looked at again


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """All plans of one job on one count of accelerators; or the plans of a part, each on a count of its own."""

    problem: Problem
    accelerators: Any  # a number, or an array

    def of(self, chosen: np.ndarray) -> "Cell":
        """The cell of some of the plans of a part."""
        return (
            self
            if np.ndim(self.accelerators) == 0
            else dataclasses.replace(self, accelerators=self.accelerators[chosen])
        )

    def counts(self, length: int) -> np.ndarray:
        """Accelerators of each of so many plans."""
        return np.broadcast_to(np.asarray(self.accelerators, float), (length,))

    def left(self, hbm_bytes: np.ndarray) -> Left:
        """What the limits leave for the rates of plans that need so many bytes; less than nothing if it is not sold."""
        have = self.problem.money.left(self.problem.limits, self.counts(len(hbm_bytes)), hbm_bytes)
        return have._replace(usd=np.where(hbm_bytes > self.problem.most_hbm_bytes, -1.0, have.usd))

    def tangents(self, step: Tangents, have: Left) -> Tangents:
        """Tangents of the objective of all steps but for its price, from those of one step."""
        alone = self.problem.objective is Objective.step
        more = 0.0 if alone else np.log(self.problem.steps_on(self.problem.job, self.counts(len(step.log_value))))
        drawn = None if step.log_drawn is None else step.log_drawn + more
        return self.money.paid(step._replace(log_value=step.log_value + more, log_drawn=drawn), have)

    @property
    def money(self) -> Money:
        """What multiplies seconds: of the objective, or where that pays for nothing, of the CO2 that is limited."""
        problem = self.problem
        return problem.carbon if problem.rationed and problem.carbon is not None else problem.money

    def aim(self, at: Tangents) -> Tangents:
        """Tangents of what is minimised, from those of what is paid."""
        if not self.problem.rationed or at.log_s is None or at.s_slopes is None:
            return at
        return at._replace(log_value=at.log_s, slopes=at.s_slopes, share=np.zeros(len(at.log_s)))

    def over(self, have: Left, at: Tangents) -> list[Tangents]:
        """Tangents, one for each limit beside money and power, that must not be above 0 (with their price)."""
        problem, found = self.problem, []
        if at.log_s is None or at.s_slopes is None:  # the least seconds are best
            return found
        seconds = at._replace(log_value=at.log_s, slopes=at.s_slopes, share=np.zeros(len(at.log_s)))
        if problem.limits.deadline_s is not None and not problem.fill:
            found.append(seconds._replace(log_value=at.log_s - math.log(problem.limits.deadline_s)))
        if problem.carbon is not None:
            grams = at if problem.rationed else whole(problem.carbon, seconds, have)
            more = np.log(self.counts(len(at.log_s))) - problem.log_carbon_g
            found.append(grams._replace(log_value=grams.log_value + more, log_drawn=None))
        return found

    def within(self, have: Left, at: Tangents) -> np.ndarray:
        """Whether money, power and the other limits are met where the tangents were taken."""
        money, log_price = self.problem.money, np.log(self.money.price(at.y, have))
        met = (money.usd(at.y) <= have.usd * (1 + 1e-9)) & (money.watt(at.y) <= have.watt * (1 + 1e-9))
        for limit in self.over(have, at):
            met &= limit.log_value + limit.share * log_price <= 1e-9
        return met & (have.usd > 0)

    @property
    def log_count(self) -> Any:
        """Logarithm of the accelerators, which is added where the objective has a price; else 0."""
        return 0.0 if self.problem.fill else np.log(self.accelerators)

    def log_value(self, have: Left, at: Tangents) -> np.ndarray:
        """Logarithm of the objective, where the tangents were taken."""
        aim = self.aim(at)
        return aim.log_value + aim.share * np.log(self.problem.money.price(at.y, have)) + self.log_count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relaxed:
    """The ends of a descent, one for each start, best first. `path` is the value of the best so far at each step."""

    jobs: tuple[dict[str, np.ndarray], ...]  # degrees and share of each job, not logarithms
    rates: dict[str, np.ndarray]
    schedule: np.ndarray  # options of each start
    zero: np.ndarray
    log_value: np.ndarray
    feasible: np.ndarray  # keeps all limits and fits
    path: np.ndarray  # logarithms
    evaluations: int

    @property
    def accelerators(self) -> np.ndarray:
        """Accelerators of the largest plan of each start."""
        return np.max([x["tensor"] * x["context"] * x["pipeline"] * x["data"] for x in self.jobs], axis=0)

    def y(self, which: np.ndarray) -> np.ndarray:
        """Logarithms of the rates of some starts."""
        return np.log(np.stack([self.rates[name][which] for name in RATES], axis=-1))


ROWS, RUNS, PLANS, STUCK, SOLVED = range(5)
"""What the numbers of a part are, from the widest to the narrowest: rows of degrees, runs of plans that differ in the
schedule, plans, those of them that no tangent decides, and those that nothing does."""


@dataclasses.dataclass
class Open:
    """Rows, runs or plans that may still be best, with bounds (logarithms of the minimised value)."""

    cell: Cell
    families: Families  # whose lattice has the rows, runs and plans
    kind: int
    indices: np.ndarray
    log_bound: np.ndarray
    y: np.ndarray

    def keep(self, chosen: np.ndarray) -> "Open":
        """The chosen ones of them."""
        columns = {name: getattr(self, name)[chosen] for name in ("indices", "log_bound", "y")}
        return dataclasses.replace(self, cell=self.cell.of(chosen), **columns)

    def narrowed(self, kind: int, indices: np.ndarray, place: np.ndarray) -> "Open":
        """What its members are made of, with the bounds of the member at `place`."""
        part = self.keep(place)
        return dataclasses.replace(part, kind=kind, indices=indices)

    def points(self) -> PlanPoint:
        """What the cost model reads of each plan."""
        points = self.families.lattice.points(self.indices, np.float64)
        return dataclasses.replace(points, accelerators=self.cell.counts(len(self.indices)).astype(float))


def joined(first: Open, *others: Open) -> Open:
    """Several parts of one kind as one."""
    parts = (first, *(part for part in others if len(part.indices)))
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "log_bound", "y")}
    cell = first.cell
    if np.ndim(cell.accelerators):
        cell = dataclasses.replace(cell, accelerators=np.concatenate([part.cell.accelerators for part in parts]))
    return dataclasses.replace(first, cell=cell, **columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """A plan with hardware that meets the limits."""

    log_value: float
    cell: Cell  # of one count
    y: np.ndarray
    hbm_bytes: float
    plan: Plan


@dataclasses.dataclass
class Progress:
    """What a search knows so far."""

    problem: Problem
    tolerance: float = TOLERANCE
    work: float = math.inf  # evaluations after which it ends: the same on every machine, whatever else runs there
    best: Best | None = None
    dismissed: float = np.inf  # the least bound among what was dismissed
    open: list[Open] = dataclasses.field(default_factory=list)
    unseen: dict[int, float] = dataclasses.field(default_factory=dict)  # bounds of cells not yet scanned, by count
    level: float = TOLERANCE  # what is open and further below the best answer than this is worked at
    evaluations: int = 0
    relaxed: Relaxed | None = None
    interrupted: bool = False
    late: bool = False  # time was up: another time it may end with something else
    counts: tuple[int, ...] = ()  # of accelerators, that the bound is about
    others: tuple[int, ...] = ()  # that have legal plans too, and were not looked at
    over: str = ""  # what else the bound is over, in words
    runners_up: dict[tuple[int, Plan], Best] = dataclasses.field(default_factory=dict)
    beside: Beside | None = None  # evolution that goes on while bounds are raised
    ahead: Best | None = None  # the best of that: how soon it comes depends on the machine

    @property
    def finished(self) -> bool:
        """Whether everything was looked at: without an answer, there is none."""
        return not self.unseen and not self.others and not any(len(part.indices) for part in self.open)

    @property
    def spent(self) -> bool:
        """Whether it has evaluated as much as it may."""
        return self.evaluations >= self.work

    @property
    def cut(self) -> float:
        """The logarithm above which bounds need no more work."""
        return np.inf if self.best is None else self.best.log_value - self.tolerance

    @property
    def busy(self) -> float:
        """The logarithm below which what is open is worked at now."""
        return np.inf if self.best is None else self.best.log_value - self.level

    @property
    def log_bound(self) -> float:
        """The logarithm that nothing is below."""
        ends = [
            self.dismissed,
            *self.unseen.values(),
            *(part.log_bound.min() for part in self.open if len(part.indices)),
        ]
        return min([*ends, np.inf if self.best is None else self.best.log_value])

    def place(self) -> np.ndarray:
        """Rates near the best that are known."""
        if self.best is not None:
            return self.best.y
        assert self.relaxed is not None
        return self.relaxed.y(np.array([0]))[0]

    def may_be_best(self, log_bound: np.ndarray) -> np.ndarray:
        """Of what is left by these bounds: what is no number says nothing, minus infinity stays, infinity goes."""
        return ~(log_bound >= self.cut)

    def left(self, log_bound: np.ndarray) -> np.ndarray:
        """The same, where the others are dismissed: the least bound of what is not looked at again is remembered."""
        left = self.may_be_best(log_bound)
        self.dismissed = min(self.dismissed, float(log_bound[~left].min(initial=np.inf)))
        return left

    def offer(self, best: Best) -> None:
        """Keep an answer if it is the best so far, or the best of its plan."""
        key = (best.cell.accelerators, best.plan)
        if key not in self.runners_up or best.log_value < self.runners_up[key].log_value:
            self.runners_up[key] = best
        if self.best is None or best.log_value < self.best.log_value:
            self.best = best

    def hear(self) -> None:
        """Note what evolution has found beside the search."""
        for found in self.beside.heard() if self.beside is not None else ():
            self.note(best_of(self.problem, found))

    def note(self, best: Best) -> None:
        """Keep the last that evolution has found, the best of it."""
        self.ahead = best

    def close(self, take: bool) -> None:
        """End evolution beside the search; where time decides what is known, `take` the best that it has found."""
        if self.beside is not None:
            self.hear()
            self.beside.close()
            self.beside = None
        if take and self.ahead is not None:
            self.offer(self.ahead)


def best_of(problem: Problem, found: Any) -> Best:
    """What evolution has found (`genes.Found`), as an answer."""
    own = {"y": found.y, "hbm_bytes": found.hbm_bytes, "plan": found.plans[0]}
    return Best(log_value=found.log_value, cell=Cell(problem, found.accelerators), **own)


def trim(progress: Progress, part: Open) -> Open:
    """A part without what cannot be best."""
    return part.keep(progress.left(part.log_bound))
