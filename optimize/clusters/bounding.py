"""Bounds of all plans of a cell: of families by a tangent each in batches, then of single plans until none is open."""

import math
import time
from collections.abc import Iterator

import numpy as np

from optimize.clusters.cells import Cell
from optimize.clusters.counts import largest_alone
from optimize.clusters.progress import TOLERANCE, Best, Open, Progress, joined, trim
from optimize.clusters.screening import BATCH, FLOAT32_SLACK, Screened, screen, tangents_of
from optimize.clusters.tangents import Left, Tangents, aggregated, project
from optimize.hardware import HardwareSolutions, hardware_problem, solve_hardware
from optimize.lattice import Families, Lattice
from optimize.question import RATES

POLISHED = 64  # plans of each count whose hardware is solved for at once
FEW = 2048  # families below which gradients without compilation are sooner
ROUNDS = 10  # of tangents for what stays
TOGETHER = 16  # plans whose hardware is solved by cutting planes at once


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
    return trim(progress, Open(cell, part.indices[likely], log_bound, 0.5 * (own.y + bound.y)))


def _drop(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """By how much a tangent falls to the best corner of its box: cheap, and loose."""
    space, laws = cell.problem.space, cell.money.laws
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    ends = largest_alone(laws, np.maximum(have.usd, 1e-300), have.watt, low, high)
    cheapest = np.log(cell.price(have).of(laws, np.broadcast_to(low, at.y.shape))) + cell.log_bought
    return np.minimum(at.slopes * (ends - at.y), at.slopes * (low - at.y)).sum(-1) + cheapest


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
        y = project(space, cell.money.laws, have, part.y, cell.fill)
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


def close(progress: Progress, end: float, exactly: bool = True) -> None:
    """Expand what is open into plans and bound them until nothing is below the best answer, or until `end`.

    `exactly`: what tangents do not decide is solved by cutting planes. (Not where the objective of the cell is tilted.)
    """
    progress.open = [trim(progress, part) for part in progress.open]
    progress.open.sort(key=lambda part: part.log_bound.min(initial=np.inf))
    for number, part in enumerate(progress.open):
        families, done = part.cell.families(), []
        for piece in _pieces(trim(progress, part)):
            if time.monotonic() > end:
                done.append(piece)
                continue
            left_over = polish(progress, expand(families, piece), families.lattice, ROUNDS)
            done.append(_exactly(progress, left_over, families.lattice, end) if exactly else left_over)
        progress.open[number] = joined(part.cell, done)


def _exactly(progress: Progress, part: Open, plans: Lattice, end: float) -> Open:
    """The few that tangents do not decide, by cutting planes: their best hardware, or a bound above the best answer."""
    part, kept = trim(progress, part), []
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
        kept.append(trim(progress, few))
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
