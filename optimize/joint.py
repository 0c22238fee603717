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
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.plan import Plan
from optimize.counts_of_accelerators import between, flop_bound_s, grid, largest_alone
from optimize.families import Families
from optimize.hardware import HardwareSolutions, solve_hardware
from optimize.lattice import Lattice, lattice
from optimize.objective import Objective
from optimize.problem import Problem
from optimize.rounding import modes, nearest
from optimize.screen import BATCH, FLOAT32_SLACK, Screened, screen, tangents_of, warm_up
from optimize.shadow import hardware_problem
from optimize.solve import Relaxed, again, descend
from optimize.space import RATES, sized
from optimize.tangents import (
    Bound,
    Left,
    Money,
    Rate,
    Tangents,
    aggregated,
    dual_bound,
    left,
    money,
    project,
    rate,
)

TOLERANCE = 5e-4  # of the value: what lies closer to the best answer than this is not looked at again
POLISHED = 64  # plans of each count whose hardware is solved for at once
FEW = 2048  # families below which gradients without compilation are sooner
MOST_SEEN = 8_000_000  # families whose screens are kept: some 200 MB
ROUNDS = 10  # of tangents for what stays
TOGETHER = 16  # plans whose hardware is solved by cutting planes at once


@dataclasses.dataclass(frozen=True, eq=False)
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

    def tangents(self, found: Screened, y: np.ndarray) -> Tangents:
        """Of the seconds of all steps, from those of one."""
        steps = 1.0 if self.problem.objective is Objective.step else self.problem.job.steps
        return Tangents(found.log_step_s + np.log(steps), found.slopes, y)

    def price(self, have: Left) -> Rate:
        """What multiplies the seconds, for one accelerator."""
        return rate(self.problem.objective, self.money, have)

    @property
    def log_bought(self) -> float:
        """What is added to logarithms where the objective has a price."""
        return 0.0 if self.problem.fill else math.log(self.bought)

    def bound(self, have: Left, at: Tangents) -> Bound:
        found = dual_bound(self.problem.space, self.money.laws, have, self.price(have), at)
        return found._replace(log_value=found.log_value + self.log_bought)

    def log_value(self, have: Left, at: Tangents) -> np.ndarray:
        """Of the objective, where the tangents were taken."""
        return at.log_value + np.log(self.price(have).of(self.money.laws, at.y)) + self.log_bought

    def reference(self, y: np.ndarray) -> np.ndarray:
        """Rates like these, on the limits where more is never worse."""
        space = self.problem.space
        have = self.left(np.array([0.25 * space.ranges.most_hbm_bytes]))
        return project(space, self.money.laws, have, y[None], self.problem.fill)[0]


@dataclasses.dataclass
class Open:
    """Families or plans of one cell that may still be best, with bounds (logarithms of the minimised value)."""

    cell: Cell
    indices: np.ndarray
    log_bound: np.ndarray
    y: np.ndarray

    def keep(self, chosen: np.ndarray) -> "Open":
        return Open(self.cell, self.indices[chosen], self.log_bound[chosen], self.y[chosen])


def _joined(cell: Cell, parts: list[Open]) -> Open:
    """Several parts of one cell as one."""
    parts = [part for part in parts if len(part.indices)]
    if not parts:
        return Open(cell, np.zeros(0, int), np.zeros(0), np.zeros((0, len(RATES))))
    columns = (np.concatenate([getattr(part, name) for part in parts]) for name in ("indices", "log_bound", "y"))
    return Open(cell, *columns)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Best:
    """A plan with hardware that meets the limits."""

    log_value: float
    cell: Cell
    index: int
    y: np.ndarray
    hbm_bytes: float
    plan: Plan


@dataclasses.dataclass(frozen=True)
class Seen:
    """Screens of whole batches by count, domain and first family: they hold for every budget (float32 to save room)."""

    batches: dict[tuple[int, int, int], tuple[Screened, np.ndarray]]

    def of(
        self, cell: Cell, first: np.ndarray, y: np.ndarray, make: Callable[[], Screened]
    ) -> tuple[Screened, np.ndarray]:
        """A batch at the place where it was first screened, or now at `y`."""
        key = (cell.accelerators, cell.domain, int(first[0]))
        if key not in self.batches:
            found = make()
            if len(self.batches) * BATCH > MOST_SEEN:
                return found, y
            self.batches[key] = Screened(*(column.astype(np.float32) for column in found)), y[0]
            return found, y
        kept, place = self.batches[key]
        return Screened(*(column.astype(float) for column in kept)), np.broadcast_to(place, y.shape)


@dataclasses.dataclass
class Progress:
    """What a search knows so far."""

    problem: Problem
    best: Best | None = None
    dismissed: float = np.inf  # the least bound among what was dismissed
    open: list[Open] = dataclasses.field(default_factory=list)
    unseen: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)  # bounds of cells not yet scanned
    evaluations: int = 0
    relaxed: Relaxed | None = None
    interrupted: bool = False
    counts: tuple[int, ...] = ()  # of accelerators, that the bound is about
    seen: "Seen" = dataclasses.field(default_factory=lambda: Seen({}))
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

    def place(self) -> np.ndarray:
        """Rates near the best that are known."""
        if self.best is not None:
            return self.best.y
        assert self.relaxed is not None
        return self.relaxed.y(np.array([0]))[0]

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
        steps = 1.0 if p.objective is Objective.step else p.job.steps
        seconds = math.log(step_s * steps)
        if not p.fill and p.limits.deadline_s is not None and seconds > math.log(p.limits.deadline_s):
            seconds = math.inf
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
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
    after: Progress | None = None,
) -> Progress:
    """Until the gap is closed or the time is up. `after`: a search with other limits, from whose points it starts."""
    end, progress = time.monotonic() + seconds, Progress(problem)
    if after is not None:
        progress.seen = after.seen
    found = cells(problem)
    if not found:
        return progress
    bounds = dict(zip(found, cell_bounds(found).tolist(), strict=True))
    progress.unseen = {(cell.accelerators, cell.domain): bound for cell, bound in bounds.items()}
    try:
        _descend(progress, found, seed, told, after)
        _scan_all(progress, found, end, told)
        close(progress, end)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    return progress


def _descend(
    progress: Progress, found: list[Cell], seed: int, told: Callable[[str], None], after: Progress | None
) -> None:
    """Relaxed points, then plans near them; counts between the neighbours of the best one are added to `found`."""
    problem = progress.problem
    told("descent")
    compiling = warm_up([problem.job.workload], problem.space)
    progress.relaxed = descend(problem, seed) if after is None else again(problem, after.relaxed, seed)
    progress.evaluations += progress.relaxed.evaluations
    for cell in _near(found, progress.relaxed):
        told(f"rounding to {cell.accelerators:,} accelerators")
        round_to(progress, cell)
    compiling.join()
    _refine(progress, found)


def _scan_all(progress: Progress, found: list[Cell], end: float, told: Callable[[str], None]) -> None:
    """Every count, nearest to the best one first."""
    center = math.log(_center(progress))
    for cell in sorted(found, key=lambda cell: (abs(math.log(cell.accelerators) - center), cell.accelerators)):
        if time.monotonic() > end:
            return
        key = (cell.accelerators, cell.domain)
        if progress.unseen[key] >= progress.cut:
            progress.dismiss(np.array([progress.unseen[key]]))
        else:
            told(f"{cell.accelerators:,} accelerators")
            scan(progress, cell)
        del progress.unseen[key]


def _center(progress: Progress) -> float:
    """The count of the best plan that is known, or of the best relaxed point."""
    if progress.best is not None:
        return progress.best.cell.accelerators
    assert progress.relaxed is not None
    return float(progress.relaxed.accelerators[0])


def _refine(progress: Progress, found: list[Cell]) -> None:
    """Counts between the neighbours of the one that looks best."""
    counts, center = [cell.accelerators for cell in found], _center(progress)
    low = max((count for count in counts if count < center), default=counts[0])
    high = min((count for count in counts if count > center), default=counts[-1])
    domain = found[0].domain
    new = [Cell(progress.problem, n, domain) for n in between(low, high, domain) if n not in counts]
    found += new
    bounds = cell_bounds(new)
    progress.unseen |= {(cell.accelerators, cell.domain): float(b) for cell, b in zip(new, bounds, strict=True)}
    progress.counts = tuple(sorted(cell.accelerators for cell in found))


def _near(found: list[Cell], relaxed: Relaxed, most: int = 4) -> list[Cell]:
    """Cells next to the counts of the best relaxed points, nearest to the best first."""
    chosen: dict[Cell, None] = {}
    for count in relaxed.accelerators[modes(relaxed)]:
        for cell in sorted(found, key=lambda cell: abs(math.log(cell.accelerators / count)))[:2]:
            chosen.setdefault(cell)
    return list(chosen)[:most]


def round_to(progress: Progress, cell: Cell) -> None:
    """Plans of a cell that are near relaxed points, with their hardware solved."""
    families, relaxed = cell.families(), progress.relaxed
    assert relaxed is not None
    first, near = nearest(families, relaxed, modes(relaxed))
    if not len(first):
        return
    y = relaxed.y(near)
    part = Open(cell, first, np.full(len(first), -np.inf), y)
    polish(progress, expand(families, part), families.lattice, rounds=5, dismiss=False)


def scan(progress: Progress, cell: Cell) -> None:
    """Bound all families of a cell, and solve the hardware of those that look best."""
    families, kept = cell.families(), []
    reference = cell.reference(progress.place())
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        unknown = np.full(len(first), -np.inf)
        part = Open(cell, first, unknown, np.broadcast_to(reference, (len(first), len(RATES))))
        part = _bounded(progress, families, part)
        for place in _elsewhere(progress, cell):
            part = _bounded(progress, families, part, place)
        kept.append(part)
    if not kept:
        return
    joined = _joined(cell, kept)
    order = np.argsort(joined.log_bound, kind="stable")[:POLISHED]
    polish(progress, expand(families, joined.keep(order)), families.lattice, rounds=4, dismiss=False)
    progress.open.append(_trim(progress, joined))


def _elsewhere(progress: Progress, cell: Cell) -> list[np.ndarray | None]:
    """More places for tangents; None: where the last bound was taken, half way from the last place.

    Where the objective has a price, the best hardware may have none of what another plan lives on (a network), and the
    tangent there says nothing of it: rates in the middle of their ranges follow.
    """
    if progress.problem.fill:
        return [None]
    space = progress.problem.space
    middle = 0.5 * (np.log(space.ranges.low) + np.log(space.ranges.high))
    return [cell.reference(0.5 * (middle + np.log(space.ranges.high))), cell.reference(middle), None, None]


def _bounded(progress: Progress, families: Families, part: Open, place: np.ndarray | None = None) -> Open:
    """What is not dismissed, with bounds from tangents at `place` (None: each at its own)."""
    cell, space = part.cell, progress.problem.space
    if not len(part.indices):
        return part
    y = part.y if place is None else np.broadcast_to(place, part.y.shape)

    def make() -> Screened:
        progress.evaluations += len(y)
        points = families.points(part.indices, np.float32 if len(y) > FEW else np.float64)
        return (screen if len(y) > FEW else tangents_of)(progress.problem.job.workload, space, points, y)

    whole = np.isneginf(part.log_bound).all() and place is None
    found, y = progress.seen.of(cell, part.indices, y, make) if whole else (make(), y)
    have = cell.left(found.least_bytes * (1 - 1e-4))
    at = cell.tangents(found, y)
    crude = np.maximum(at.log_value + _drop(cell, have, at) - FLOAT32_SLACK, part.log_bound)
    possible = have.usd > 0
    likely = (crude < progress.cut) & possible
    progress.dismiss(crude[(crude >= progress.cut) & possible])
    own = Tangents(*(column[likely] for column in at))
    bound = cell.bound(Left(*(column[likely] for column in have)), own)
    log_bound = np.maximum(part.log_bound[likely], bound.log_value - FLOAT32_SLACK)
    return _trim(progress, Open(cell, part.indices[likely], log_bound, 0.5 * (own.y + bound.y)))


def _drop(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """By how much a tangent falls to the best corner of its box: cheap, and loose."""
    space, laws = cell.problem.space, cell.money.laws
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    ends = largest_alone(laws, np.maximum(have.usd, 1e-300), have.watt, low, high)
    cheapest = np.log(cell.price(have).of(laws, np.broadcast_to(low, at.y.shape))) + cell.log_bought
    return np.minimum(at.slopes * (ends - at.y), at.slopes * (low - at.y)).sum(-1) + cheapest


def _trim(progress: Progress, part: Open) -> Open:
    """Without what is not possible or cannot be best."""
    above = part.log_bound >= progress.cut
    progress.dismiss(part.log_bound[above & np.isfinite(part.log_bound)])
    return part.keep(~above & np.isfinite(part.log_bound))


def expand(families: Families, part: Open) -> Open:
    """Plans of families, with the bounds of their families."""
    members, family = families.members(part.indices)
    return Open(part.cell, members, part.log_bound[family], part.y[family])


def polish(progress: Progress, part: Open, plans: Lattice, rounds: int, dismiss: bool = True) -> Open:
    """Tangents in float64 at hardware nearer and nearer to each plan's best; offers every answer that is found.

    Without `dismiss`, what it leaves is another's to bound.
    """
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
        at = cell.tangents(found, y)
        _offer(progress, part, plans, at, have, found)
        if number < 3 or mean is None:
            mean, bound = at, cell.bound(have, at)
        else:
            mean, bound = aggregated(space, cell.money.laws, have, cell.price(have), mean, at)
            bound = bound._replace(log_value=bound.log_value + cell.log_bought)
        log_bound = np.maximum(part.log_bound, bound.log_value)
        part = Open(cell, part.indices, log_bound, bound.y)
        alive = (log_bound < progress.cut) & np.isfinite(log_bound)
        if dismiss:
            progress.dismiss(log_bound[~alive & np.isfinite(log_bound)])
        part, peak, mean = part.keep(alive), peak[alive], Tangents(*(column[alive] for column in mean))
    return part


def _offer(progress: Progress, part: Open, plans: Lattice, at: Tangents, have: Left, found: Screened) -> None:
    laws = part.cell.money.laws
    fits = (laws.usd_of(at.y).sum(-1) <= have.usd * (1 + 1e-9)) & (laws.watt_of(at.y).sum(-1) <= have.watt * (1 + 1e-9))
    value = np.where(fits & (have.usd > 0), part.cell.log_value(have, at), np.inf)
    for place in np.argsort(value, kind="stable")[:4]:
        if np.isfinite(value[place]):
            index = int(part.indices[place])
            own = {"y": at.y[place].copy(), "hbm_bytes": float(found.peak_bytes[place]), "plan": plans.plan(index)}
            progress.offer(Best(log_value=float(value[place]), cell=part.cell, index=index, **own))


def close(progress: Progress, end: float) -> None:
    """Expand what is open into plans and bound them until nothing is below the best answer, or until `end`."""
    progress.open = [_trim(progress, part) for part in progress.open]
    progress.open.sort(key=lambda part: part.log_bound.min(initial=np.inf))
    for number, part in enumerate(progress.open):
        families, done = part.cell.families(), []
        for piece in _pieces(_trim(progress, part)):
            if time.monotonic() > end:
                done.append(piece)
                continue
            left_over = polish(progress, expand(families, piece), families.lattice, ROUNDS)
            done.append(_exactly(progress, left_over, families.lattice, end))
        progress.open[number] = _joined(part.cell, done)


def _exactly(progress: Progress, part: Open, plans: Lattice, end: float) -> Open:
    """The few that tangents do not decide, by cutting planes: their best hardware, or a bound above the best answer."""
    part, kept = _trim(progress, part), []
    order = np.argsort(part.log_bound, kind="stable")
    for start in range(0, len(order), TOGETHER):
        few = part.keep(order[start : start + TOGETHER])
        if time.monotonic() > end:
            kept.append(few)
            continue
        asked, points = hardware_problem(progress.problem), plans.points(few.indices, np.float64)
        cutoff = math.exp(progress.cut) if progress.best else np.inf
        solved = solve_hardware(asked, points, tolerance=0.5 * TOLERANCE, cutoff=cutoff)
        progress.evaluations += solved.evaluations
        for place in np.flatnonzero(np.isfinite(solved.value)):
            _offer_solved(progress, few, plans, solved, int(place))
        with np.errstate(divide="ignore"):
            few.log_bound = np.maximum(few.log_bound, np.log(solved.lower_bound))
        kept.append(_trim(progress, few))
    if not kept:
        return part
    return Open(
        part.cell, *(np.concatenate([getattr(k, name) for k in kept]) for name in ("indices", "log_bound", "y"))
    )


def _offer_solved(progress: Progress, part: Open, plans: Lattice, solved: HardwareSolutions, place: int) -> None:
    hardware, index = solved.hardware(place), int(part.indices[place])
    log_value = float(np.log(solved.value[place]))
    if log_value >= min(progress.cut + TOLERANCE, np.inf):
        return
    y = np.log([float(getattr(hardware, name)) for name in RATES])
    own = {"y": y, "hbm_bytes": float(hardware.hbm_bytes), "plan": plans.plan(index)}
    progress.offer(Best(log_value=log_value, cell=part.cell, index=index, **own))


def _pieces(part: Open, size: int = 4096) -> Iterator[Open]:
    for start in range(0, len(part.indices), size):
        yield part.keep(np.arange(start, min(start + size, len(part.indices))))
