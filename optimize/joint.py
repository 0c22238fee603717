"""One job, its cluster and its plan together: search and certificate over all plans, counts and hardware.

1. Counts of accelerators whose products alone take longer than the best answer so far are dismissed.
2. Of the others every family of plans is bounded by one tangent at a reference (`tangents.dual_bound`), in batches.
3. What stays below the best answer is expanded into plans and bounded again, each at hardware nearer to its own best,
   in float64, until the gap closes or time is up.

The bound is the least over everything that was dismissed or is still open, so it is true whenever the search stops.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.plan import Plan
from optimize.counts_of_accelerators import flop_bound_s, grid, largest_alone
from optimize.families import Families
from optimize.lattice import Lattice, lattice
from optimize.objective import Job, Limits, Objective
from optimize.screen import BATCH, FLOAT32_SLACK, Screened, screen, tangents_of
from optimize.space import RATES, Space, sized
from optimize.tangents import (
    Bound,
    Left,
    Money,
    Tangents,
    aggregated,
    dual_bound,
    left,
    money,
    objective_tangents,
    project,
)

TOLERANCE = 5e-4  # of the value: what lies closer to the best answer than this is not looked at again
POLISHED = 64  # plans of each count whose hardware is solved for at once
ROUNDS = 30  # of tangents for what stays
DEFAULT_SHARES = np.array([0.55, 0.20, 0.15, 0.10])  # of the money left for the rates: where descent starts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """One job under limits, and what may be bought and planned."""

    job: Job
    limits: Limits
    objective: Objective
    space: Space
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `Plan` that are not searched

    @property
    def fill(self) -> bool:
        """Whether more hardware is never worse."""
        return not self.objective.usd_power and not self.objective.watt_power


@dataclasses.dataclass(frozen=True)
class Cell:
    """All plans of one count and one domain."""

    problem: Problem
    accelerators: int
    domain: int

    @property
    def bought(self) -> float:
        """Accelerators, with those that the domain leaves idle."""
        return self.accelerators * float(self.problem.space.domain) / self.domain

    @property
    def money(self) -> Money:
        return money(self.problem.space, self.domain)

    def families(self) -> Families:
        """Enumerated when asked for: a lattice is not kept."""
        p = self.problem
        return Families(lattice(p.job.workload, sized(p.space.template, self.accelerators), self._fixed))

    @property
    def _fixed(self) -> Mapping[str, Any]:
        return {**self.problem.fixed, "domain": self.domain}

    def left(self, hbm_bytes: np.ndarray) -> Left:
        have = left(self.money, self.problem.limits, np.full(len(hbm_bytes), self.bought), hbm_bytes)
        unbuildable = hbm_bytes > self.problem.space.ranges.most_hbm_bytes
        return have._replace(usd=np.where(unbuildable, -1.0, have.usd))

    def tangents(self, found: Screened, have: Left, y: np.ndarray) -> Tangents:
        """Of the objective, from those of a step."""
        steps = 1.0 if self.problem.objective is Objective.step_s else self.problem.job.steps
        seconds = Tangents(found.log_step_s + np.log(steps), found.slopes, y)
        return objective_tangents(self.problem.objective, self.money, seconds, have, np.full(len(y), self.bought))

    def bound(self, have: Left, at: Tangents) -> Bound:
        return dual_bound(self.problem.space, self.money.laws, have, at)

    def reference(self) -> np.ndarray:
        """Rates that spend what the limits leave for them."""
        laws, space = self.money.laws, self.problem.space
        have = self.left(np.array([0.25 * space.ranges.most_hbm_bytes]))
        usd = np.where(np.isfinite(have.usd), have.usd, laws.usd_of(np.log(space.ranges.high)).sum())
        y = np.log(DEFAULT_SHARES * np.maximum(usd, 1.0)[:, None] / laws.usd) / laws.usd_exponent
        low, high = np.log(space.ranges.low), np.log(space.ranges.high)
        return project(space, laws, have, np.clip(y, low, high))[0]


@dataclasses.dataclass
class Open:
    """Families or plans of one cell that may still be best, with bounds (logarithms of the minimised value)."""

    cell: Cell
    indices: np.ndarray
    log_bound: np.ndarray
    y: np.ndarray

    def keep(self, chosen: np.ndarray) -> "Open":
        return Open(self.cell, self.indices[chosen], self.log_bound[chosen], self.y[chosen])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """A plan with hardware that meets the limits."""

    log_value: float
    cell: Cell
    index: int
    y: np.ndarray
    hbm_bytes: float
    plan: Plan


@dataclasses.dataclass
class Progress:
    """What a search knows so far."""

    problem: Problem
    best: Best | None = None
    dismissed: float = np.inf  # the least bound among what was dismissed
    open: list[Open] = dataclasses.field(default_factory=list)
    unseen: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)  # bounds of cells not yet scanned
    evaluations: int = 0
    tightest: float = np.inf  # least bytes times accelerators over what could be bought: tells why nothing fits
    runners_up: dict[tuple[int, int, int], Best] = dataclasses.field(default_factory=dict)

    @property
    def cut(self) -> float:
        """Bounds above it need no more work."""
        return np.inf if self.best is None else self.best.log_value - TOLERANCE

    @property
    def log_bound(self) -> float:
        """Nothing is below."""
        ends = [
            self.dismissed,
            *self.unseen.values(),
            *(part.log_bound.min() for part in self.open if len(part.indices)),
        ]
        return min([*ends, np.inf if self.best is None else self.best.log_value])

    def dismiss(self, log_bound: np.ndarray) -> None:
        if len(log_bound):
            self.dismissed = min(self.dismissed, float(log_bound.min()))

    def offer(self, best: Best) -> None:
        key = (best.cell.accelerators, best.cell.domain, best.index)
        if key not in self.runners_up or best.log_value < self.runners_up[key].log_value:
            self.runners_up[key] = best
        if self.best is None or best.log_value < self.best.log_value:
            self.best = best


def cells(problem: Problem) -> list[Cell]:
    """Every count that the limits can pay for, with whole innermost domains."""
    domain = int(problem.space.template.tiers[0].usable_size)
    priced, low = money(problem.space, domain), np.log(problem.space.ranges.low)
    least = priced.laws.usd_of(low).sum(), max(1e-9, priced.laws.watt_of(low).sum())
    return [Cell(problem, count, domain) for count in grid(problem.limits, domain, *least)]


def cell_bounds(found: list[Cell]) -> np.ndarray:
    """Logarithm of the least value by the products alone (of seconds; other objectives: no bound but of rates)."""
    bounds = []
    for cell in found:
        p = cell.problem
        step_s = flop_bound_s(p.job.workload, p.space, p.limits, float(cell.accelerators), p.fixed)
        steps = 1.0 if p.objective is Objective.step_s else p.job.steps
        seconds = math.log(step_s * steps)
        if p.objective.usd_power or p.objective.watt_power:
            low = np.log(p.space.ranges.low)
            laws, priced = cell.money.laws, cell.money
            usd_per_s = (
                priced.usd_per_capital_s * laws.usd_of(low).sum() + priced.usd_per_joule * laws.watt_of(low).sum()
            )
            seconds += float(np.log(cell.bought * (usd_per_s if p.objective.usd_power else laws.watt_of(low).sum())))
        bounds.append(seconds)
    return np.array(bounds)


def search(
    problem: Problem,
    seconds: float,
    first: Iterable[int] = (),
    told: Callable[[str], None] = lambda _: None,
) -> Progress:
    """Until the gap is closed or the time is up. `first`: counts to begin with (from a descent)."""
    end, progress, wanted = time.monotonic() + seconds, Progress(problem), list(first)
    found = cells(problem)
    bounds = cell_bounds(found)
    near = [min((abs(np.log(c.accelerators / n)) for n in wanted), default=0.0) for c in found]
    order = sorted(range(len(found)), key=lambda i: (near[i] > 0.2, bounds[i] if not wanted else near[i]))
    progress.unseen = {(found[i].accelerators, found[i].domain): float(bounds[i]) for i in order}
    for i in order:
        if time.monotonic() > end:
            break
        cell = found[i]
        if bounds[i] >= progress.cut:
            progress.dismiss(np.array([progress.unseen.pop((cell.accelerators, cell.domain))]))
            continue
        told(f"{cell.accelerators:,} accelerators")
        scan(progress, cell)
        progress.unseen.pop((cell.accelerators, cell.domain))
    close(progress, end)
    return progress


def scan(progress: Progress, cell: Cell) -> None:
    """Bound all families of a cell, and solve the hardware of those that look best."""
    families = cell.families()
    reference, kept = cell.reference(), []
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        kept.append(_bounded(progress, cell, families, first, reference))
    if not kept:
        return
    joined = Open(cell, *(np.concatenate([getattr(k, name) for k in kept]) for name in ("indices", "log_bound", "y")))
    order = np.argsort(joined.log_bound, kind="stable")[:POLISHED]
    polish(progress, expand(families, joined.keep(order)), families.lattice, rounds=4)
    progress.open.append(_trim(progress, joined))


def _bounded(progress: Progress, cell: Cell, families: Families, first: np.ndarray, reference: np.ndarray) -> Open:
    """Families of one batch that are not dismissed."""
    space = progress.problem.space
    y = np.broadcast_to(reference, (len(first), len(RATES)))
    found = screen(progress.problem.job.workload, space, families.points(first, np.float32), y)
    progress.evaluations += len(first)
    have = cell.left(found.least_bytes * (1 - 1e-4))
    at = cell.tangents(found, have, y)
    crude = at.log_value + _drop(cell, have, at)
    likely = (crude < progress.cut) & (have.usd > 0)
    progress.dismiss(crude[(crude >= progress.cut) & (have.usd > 0)] - FLOAT32_SLACK)
    own = Tangents(*(column[likely] for column in at))
    bound = cell.bound(Left(*(column[likely] for column in have)), own)
    return _trim(progress, Open(cell, first[likely], bound.log_value - FLOAT32_SLACK, bound.y))


def _drop(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """By how much a tangent falls to the best corner of its box: cheap, and loose."""
    space, laws = cell.problem.space, cell.money.laws
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    ends = largest_alone(laws, np.maximum(have.usd, 1e-300), have.watt, low, high)
    return np.minimum(at.slopes * (ends - at.y), at.slopes * (low - at.y)).sum(-1)


def _trim(progress: Progress, part: Open) -> Open:
    """Without what is not possible or cannot be best."""
    above = part.log_bound >= progress.cut
    progress.dismiss(part.log_bound[above & np.isfinite(part.log_bound)])
    return part.keep(~above & np.isfinite(part.log_bound))


def expand(families: Families, part: Open) -> Open:
    """Plans of families, with the bounds of their families."""
    members, family = families.members(part.indices)
    return Open(part.cell, members, part.log_bound[family], part.y[family])


def polish(progress: Progress, part: Open, plans: Lattice, rounds: int) -> Open:
    """Tangents in float64 at hardware nearer and nearer to each plan's best; offers every answer that is found."""
    cell, space = part.cell, progress.problem.space
    peak, mean = np.zeros(0), None
    for number in range(rounds):
        if len(part.indices) == 0:
            break
        points = plans.points(part.indices, np.float64)
        peak = tangents_of(progress.problem.job.workload, space, points, part.y).peak_bytes if number == 0 else peak
        have = cell.left(peak)
        y = project(space, cell.money.laws, have, part.y, progress.problem.fill)
        found = tangents_of(progress.problem.job.workload, space, points, y)
        progress.evaluations += len(y)
        at = cell.tangents(found, have, y)
        _offer(progress, part, plans, at, have, found)
        if number < 3 or mean is None:
            mean, bound = at, cell.bound(have, at)
        else:
            mean, bound = aggregated(space, cell.money.laws, have, mean, at)
        log_bound = np.maximum(part.log_bound, bound.log_value)
        part = Open(cell, part.indices, log_bound, bound.y)
        alive = (log_bound < progress.cut) & np.isfinite(log_bound)
        progress.dismiss(log_bound[~alive & np.isfinite(log_bound)])
        part, peak, mean = part.keep(alive), peak[alive], Tangents(*(column[alive] for column in mean))
    return part


def _offer(progress: Progress, part: Open, plans: Lattice, at: Tangents, have: Left, found: Screened) -> None:
    laws = part.cell.money.laws
    fits = (laws.usd_of(at.y).sum(-1) <= have.usd * (1 + 1e-9)) & (laws.watt_of(at.y).sum(-1) <= have.watt * (1 + 1e-9))
    value = np.where(fits & (have.usd > 0), at.log_value, np.inf)
    for place in np.argsort(value, kind="stable")[:4]:
        if np.isfinite(value[place]):
            index = int(part.indices[place])
            own = {"y": at.y[place].copy(), "hbm_bytes": float(found.peak_bytes[place]), "plan": plans.plan(index)}
            progress.offer(Best(log_value=float(value[place]), cell=part.cell, index=index, **own))


def close(progress: Progress, end: float) -> None:
    """Expand what is open into plans and bound them until nothing is below the best answer, or until `end`."""
    progress.open = [_trim(progress, part) for part in progress.open]
    progress.open.sort(key=lambda part: part.log_bound.min(initial=np.inf))
    todo, progress.open = progress.open, []
    for number, part in enumerate(todo):
        if time.monotonic() > end:
            progress.open += todo[number:]
            return
        families = part.cell.families()
        for piece in _pieces(_trim(progress, part)):
            left_over = polish(progress, expand(families, piece), families.lattice, ROUNDS)
            progress.open.append(left_over)


def _pieces(part: Open, size: int = 4096) -> Iterator[Open]:
    for start in range(0, len(part.indices), size):
        yield part.keep(np.arange(start, min(start + size, len(part.indices))))
