"""Bounds of all plans of a cell: of families by a tangent each in batches, then of single plans until none is open."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from costmodel.inputs import PlanPoint
from optimize.clusters.progress import Best, Cell, Open, Progress, joined, trim
from optimize.clusters.screening import BATCH, FLOAT32_SLACK, screen, tangents_of
from optimize.hardware import aggregated, dual_bound, largest_alone, project
from optimize.lattice import Families, Lattice, lattice
from optimize.question import RATES, Left, Problem, Tangents, sized

POLISHED = 64  # plans of each count whose hardware is solved for at once
FEW = 2048  # families below which gradients without compilation are sooner
ROUNDS = 10  # of tangents for what stays
DEADLINE_ROUNDS = 7  # of the multiplier of a deadline
TOGETHER = 16  # plans whose hardware is solved by cutting planes at once
SAME = 1e-9  # of a logarithm: solved hardware that is better by less is not (and may hold more HBM than the plan needs)
MOST_SEEN = 8_000_000  # families whose screens are kept: some 200 MB

Solve = Callable[[Problem, PlanPoint, float], Any]
"""The best hardware of plans (`HardwareSolutions`) by cutting planes; those that cannot be below a value are left."""


def families_of(cell: Cell) -> Families:
    """Every family of plans of a cell: enumerated when asked for, a lattice is not kept."""
    p = cell.problem
    return Families(
        lattice(p.job.workload, sized(p.machine, cell.accelerators), {**p.fixed, "domain": p.domain}, every_shard=False)
    )


def reference(cell: Cell, y: np.ndarray) -> np.ndarray:
    """Rates like `y` for a cell: on the limits, where more hardware is never worse."""
    have = cell.left(np.array([0.25 * cell.problem.most_hbm_bytes]))
    return project(cell.problem, have, y[None], cell.problem.fill)[0]


def scan(progress: Progress, cell: Cell) -> None:
    """Bound all families of a cell, and solve the hardware of those that look best."""
    families, kept = families_of(cell), []
    here = reference(cell, progress.place())
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        unknown = np.full(len(first), -np.inf)
        part = Open(cell, first, unknown, np.broadcast_to(here, (len(first), len(RATES))))
        part = _bounded(progress, families, part)
        for place in _elsewhere(progress, cell):
            part = _bounded(progress, families, part, place)
        kept.append(part)
    if not kept:
        return
    whole = joined(cell, kept)
    order = np.argsort(whole.log_bound, kind="stable")[:POLISHED]
    polish(progress, expand(families, whole.keep(order)), families.lattice, rounds=4, dismiss=False)
    progress.open.append(trim(progress, whole))


def _elsewhere(progress: Progress, cell: Cell) -> list[np.ndarray | None]:
    """More places for tangents; None: where the last bound was taken, half way from the last place.

    Where the objective has a price, the best hardware may have none of what another plan lives on (a network), and the
    tangent there says nothing of it: rates in the middle of their ranges follow.
    """
    if progress.problem.fill:
        return [None]
    low, high = progress.problem.ends
    middle = 0.5 * (low + high)
    return [reference(cell, 0.5 * (middle + high)), reference(cell, middle), None, None]


def _bounded(progress: Progress, families: Families, part: Open, place: np.ndarray | None = None) -> Open:
    """What is not dismissed, with bounds from tangents at `place` (None: each at its own)."""
    cell = part.cell
    if not len(part.indices):
        return part
    y = part.y if place is None else np.broadcast_to(place, part.y.shape)

    def make() -> Tangents:
        progress.evaluations += len(y)
        points = families.points(part.indices, np.float32 if len(y) > FEW else np.float64)
        of = screen if len(y) > FEW else tangents_of
        return of(progress.problem.job.workload, progress.problem.machine, points, y, progress.problem.loads)

    whole = np.isneginf(part.log_bound).all() and place is None
    step = _screened_once(progress, cell, int(part.indices[0]), make) if whole else make()
    have = cell.left(step.least_bytes * (1 - 1e-4))
    at = cell.tangents(step, have)
    crude = np.maximum(at.log_value + _drop(cell, have, at) - FLOAT32_SLACK, part.log_bound)
    possible = have.usd > 0
    likely = (crude < progress.cut) & possible
    progress.dismiss(crude[(crude >= progress.cut) & possible])
    own = at.keep(likely)
    log_value, y = _bound(cell, Left(*(column[likely] for column in have)), own)
    log_bound = np.maximum(part.log_bound[likely], log_value - FLOAT32_SLACK)
    return trim(progress, Open(cell, part.indices[likely], log_bound, 0.5 * (own.y + y)))


def _screened_once(progress: Progress, cell: Cell, first: int, make: Callable[[], Tangents]) -> Tangents:
    """A batch at the place where it was first screened, or now where `make` does."""
    key = (cell.accelerators, first)
    if key in progress.seen:
        kept = progress.seen[key].each(lambda column: column.astype(float))
        return kept._replace(y=np.broadcast_to(kept.y, kept.slopes.shape))
    at = make()
    if len(progress.seen) * BATCH <= MOST_SEEN:
        progress.seen[key] = at.each(lambda column: column.astype(np.float32))._replace(y=at.y[0])
    return at


def _bound(cell: Cell, have: Left, at: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """What no hardware is below, for each plan, and where."""
    log_value, y = dual_bound(cell.problem, have, at)
    if cell.log_deadline is not None and len(y):
        log_value, y = _in_time(cell, have, at, (log_value, y))
    return log_value + cell.log_count, y


def _in_time(
    cell: Cell, have: Left, at: Tangents, known: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The same of hardware that meets the deadline: the tangent of the seconds weighs more by a multiplier.

    Seconds are convex in the logarithms of the rates, so every multiplier gives a bound; the one at which the tangent
    just meets the deadline gives most (by bisection of its logarithm).
    """
    (log_value, y), deadline = known, cell.log_deadline
    log_s, steep = (at.log_value, at.slopes) if at.log_s is None or at.s_slopes is None else (at.log_s, at.s_slopes)
    assert deadline is not None
    least, most = np.full(len(y), -5.0), np.full(len(y), 5.0)

    def late(y: np.ndarray) -> np.ndarray:
        """Whether even the tangent of the seconds is above the deadline."""
        return log_s + (steep * (y - at.y)).sum(-1) > deadline

    y = np.where(late(y)[:, None], at.y, y)
    for _ in range(DEADLINE_ROUNDS):
        middle = 0.5 * (least + most)
        more = np.exp(middle)
        weighed = at._replace(
            log_value=at.log_value + more * (log_s - deadline), slopes=at.slopes + more[:, None] * steep
        )
        value, where = dual_bound(cell.problem, have, weighed)
        is_late = late(where)
        log_value = np.maximum(log_value, value)
        y = np.where(is_late[:, None], y, where)
        least, most = np.where(is_late, middle, least), np.where(is_late, most, middle)
    return log_value, y


def _drop(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """By how much a tangent falls to the best corner of its box: cheap, and loose."""
    low, _ = cell.problem.ends
    highest = largest_alone(cell.problem, np.maximum(have.usd, 1e-300), have.watt)
    cheapest = at.share * np.log(cell.problem.money.price(np.broadcast_to(low, at.y.shape), have)) + cell.log_count
    return np.minimum(at.slopes * (highest - at.y), at.slopes * (low - at.y)).sum(-1) + cheapest


def expand(families: Families, part: Open) -> Open:
    """Plans of families, with the bounds of their families."""
    members, family = families.members(part.indices)
    return Open(part.cell, members, part.log_bound[family], part.y[family])


def polish(progress: Progress, part: Open, plans: Lattice, rounds: int, dismiss: bool = True) -> Open:
    """Bound plans by tangents in float64, at hardware nearer and nearer to each one's best; offer every answer.

    Without `dismiss`, what it leaves is another's to bound.
    """
    cell, problem = part.cell, progress.problem
    peak, mean = np.zeros(0), None
    for number in range(rounds):
        if len(part.indices) == 0:
            break
        points = plans.points(part.indices, np.float64)
        if number == 0:
            peak = tangents_of(problem.job.workload, problem.machine, points, part.y).peak_bytes
        have = cell.left(peak)
        y = project(cell.problem, have, part.y, cell.fill)
        at = cell.tangents(tangents_of(problem.job.workload, problem.machine, points, y, problem.loads), have)
        progress.evaluations += len(y)
        _offer(progress, part, plans, at, have)
        if number < 3 or mean is None or cell.log_deadline is not None:
            mean, (log_value, y) = at, _bound(cell, have, at)
        else:
            mean, (log_value, y) = aggregated(cell.problem, have, mean, at)
            log_value = log_value + cell.log_count
        log_bound = np.maximum(part.log_bound, log_value)
        part = Open(cell, part.indices, log_bound, y)
        alive = (log_bound < progress.cut) & np.isfinite(log_bound)
        if dismiss:
            progress.dismiss(log_bound[~alive & np.isfinite(log_bound)])
        part, peak, mean = part.keep(alive), peak[alive], mean.keep(alive)
    return part


def _offer(progress: Progress, part: Open, plans: Lattice, at: Tangents, have: Left) -> None:
    """The best four of the plans whose tangents were taken within the limits."""
    money = part.cell.problem.money
    fits = (money.usd(at.y) <= have.usd * (1 + 1e-9)) & (money.watt(at.y) <= have.watt * (1 + 1e-9))
    deadline = part.cell.log_deadline
    fits &= (at.log_value if at.log_s is None else at.log_s) <= (np.inf if deadline is None else deadline + 1e-9)
    value = np.where(fits & (have.usd > 0), part.cell.log_value(have, at), np.inf)
    for place in np.argsort(value, kind="stable")[:4]:
        if np.isfinite(value[place]):
            index = int(part.indices[place])
            own = {"y": at.y[place].copy(), "hbm_bytes": float(at.peak_bytes[place]), "plan": plans.plan(index)}
            progress.offer(Best(log_value=float(value[place]), cell=part.cell, index=index, **own))


def close(progress: Progress, end: float, solve: Solve | None = None, only: Cell | None = None) -> None:
    """Expand what is open (of `only` one cell) into plans and bound them until nothing is below the best answer, or
    until `end`.

    What tangents do not decide is left to `solve`. (Which cannot where the objective of the cell is tilted.)
    """
    progress.open = [part for part in (trim(progress, part) for part in progress.open) if len(part.indices)]
    progress.open.sort(key=lambda part: part.log_bound.min(initial=np.inf))
    for number, part in enumerate(progress.open):
        if only is not None and part.cell is not only:
            continue
        families, done = families_of(part.cell), []
        for piece in _pieces(trim(progress, part)):
            if time.monotonic() > end:
                done.append(piece)
                continue
            left_over = polish(progress, expand(families, piece), families.lattice, ROUNDS)
            done.append(_exactly(progress, left_over, families.lattice, end, solve) if solve else left_over)
        progress.open[number] = joined(part.cell, done)


def _exactly(progress: Progress, part: Open, plans: Lattice, end: float, solve: Solve) -> Open:
    """The few that tangents do not decide, by cutting planes: their best hardware, or a bound above the best answer."""
    part, kept = trim(progress, part), []
    order = np.argsort(part.log_bound, kind="stable")
    for start in range(0, len(order), TOGETHER):
        few = part.keep(order[start : start + TOGETHER])
        if time.monotonic() > end:
            kept.append(few)
            continue
        cutoff = math.exp(progress.cut) if progress.best else np.inf
        solved = solve(progress.problem, plans.points(few.indices, np.float64), cutoff)
        progress.evaluations += solved.evaluations
        for place in np.flatnonzero(np.isfinite(solved.value)):
            _offer_solved(progress, few, plans, solved, int(place))
        with np.errstate(divide="ignore"):
            few.log_bound = np.maximum(few.log_bound, np.log(solved.lower_bound))
        kept.append(trim(progress, few))
    return joined(part.cell, kept)


def _offer_solved(progress: Progress, part: Open, plans: Lattice, solved: Any, place: int) -> None:
    hardware, index = solved.hardware(place), int(part.indices[place])
    log_value = float(np.log(solved.value[place]))
    if progress.best is not None and log_value >= progress.best.log_value - SAME:
        return
    y = np.log([float(getattr(hardware, name)) for name in RATES])
    own = {"y": y, "hbm_bytes": float(hardware.hbm_bytes), "plan": plans.plan(index)}
    progress.offer(Best(log_value=log_value, cell=part.cell, index=index, **own))


def _pieces(part: Open, size: int = 4096) -> Iterator[Open]:
    for start in range(0, len(part.indices), size):
        yield part.keep(np.arange(start, min(start + size, len(part.indices))))
