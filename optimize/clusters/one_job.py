"""One job, its cluster and its plan together: search and certificate over all plans, counts and hardware.

0. Evolution gives the first answers, while the program of large batches is compiled on another core; then descent over
   relaxed points.
1. Counts of accelerators whose products alone take longer than the best answer so far are dismissed.
2. Of the others every family of plans is bounded by one tangent at a reference (`hardware.dual_bound`), in batches.
3. What stays below the best answer is expanded into plans and bounded again, each at hardware nearer to its own best,
   in float64, until the gap closes or time is up.
4. So for the counts of a grid and between the best of its neighbours; then, while there is time, for every other count
   that has a legal plan, from the best one outwards.

The bound is the least over everything that was dismissed or is still open, so it is true whenever the search stops, for
the counts that were looked at (`counts`); the others are told (`others`).
"""

import math
import time
from collections.abc import Callable

import numpy as np

from costmodel.inputs import PlanPoint
from optimize.clusters.bounding import close, expand, families_of, polish, scan
from optimize.clusters.counts import cell_bounds, cells, near_grid
from optimize.clusters.descent import again, descend
from optimize.clusters.evolution import Found, evolve
from optimize.clusters.progress import TOLERANCE, Cell, Open, Progress, Relaxed
from optimize.clusters.rounding import modes, nearest
from optimize.clusters.screening import warm_up
from optimize.hardware import HardwareSolutions, solve_hardware
from optimize.lattice import number_of
from optimize.question import Problem
from optimize.time_limit import until

EVOLVED = 3  # counts whose evolved plans are polished
BETWEEN = 16  # counts between the neighbours of the best one that are looked at with the grid


def search(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
    after: Progress | None = None,
    tolerance: float = TOLERANCE,
    others: bool = True,
) -> Progress:
    """Search until the gap is within `tolerance` or the time is up.

    `after`: one with other limits, from whose points it starts. `others`: whether counts beside those of the grid
    are looked at too (never after another search).
    """
    end, progress = time.monotonic() + seconds, Progress(problem, tolerance)
    if after is not None:
        progress.seen = after.seen
    every = cells(problem)
    if not every:
        return progress
    first, _ = near_grid(problem)
    affordable = [cell for cell in every if cell.accelerators in first]
    progress.unseen = _by_count(affordable)
    progress.counts = tuple(sorted(progress.unseen))
    try:
        with until(end):
            _descend(progress, affordable, every, seed, told, after)
            _scan_all(progress, affordable, end, told)
            close(progress, end, _solve)
            if after is None and others:
                _look_at_others(progress, every, end, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    progress.others = tuple(cell.accelerators for cell in every if cell.accelerators not in progress.counts)
    return progress


def _look_at_others(progress: Progress, every: list[Cell], end: float, told: Callable[[str], None]) -> None:
    """Counts that are not of the grid: what their products do not dismiss is scanned and closed, one by one."""
    if progress.unseen or progress.best is None:
        return  # time was up
    todo = _dismissed(progress, every)
    here = math.log(progress.best.cell.accelerators)
    for cell in sorted(todo, key=lambda cell: (abs(math.log(cell.accelerators) - here), cell.accelerators)):
        if time.monotonic() > end:
            break
        progress.unseen |= _by_count([cell])
        progress.counts = tuple(sorted({*progress.counts, cell.accelerators}))
        _scan_all(progress, [cell], math.inf, told)
        close(progress, end, _solve, cell)


def _dismissed(progress: Progress, every: list[Cell]) -> list[Cell]:
    """The counts that are left when those are dismissed whose products alone take longer than the best answer."""
    others = [cell for cell in every if cell.accelerators not in progress.counts]
    bounds = cell_bounds(others)
    above = bounds >= progress.cut
    progress.dismiss(bounds[above])
    gone = [cell.accelerators for cell, is_above in zip(others, above, strict=True) if is_above]
    progress.counts = tuple(sorted({*progress.counts, *gone}))
    return [cell for cell, is_above in zip(others, above, strict=True) if not is_above]


def _by_count(cells: list[Cell]) -> dict[int, float]:
    """Bounds by the products alone."""
    return dict(zip((cell.accelerators for cell in cells), cell_bounds(cells).tolist(), strict=True))


def _solve(problem: Problem, points: PlanPoint, cutoff: float) -> HardwareSolutions:
    return solve_hardware(problem, points, tolerance=0.5 * TOLERANCE, cutoff=cutoff)


def _descend(
    progress: Progress,
    cells: list[Cell],
    every: list[Cell],
    seed: int,
    told: Callable[[str], None],
    after: Progress | None,
) -> None:
    """First answers by evolution; relaxed points, then plans near them; counts between the neighbours of the best one
    are added to `cells`."""
    problem = progress.problem
    warm_up(problem)
    if after is None:
        told("evolution")
        offer_evolved(progress, every, seed)
    told("descent")
    progress.relaxed = descend(problem, seed) if after is None else again(problem, after.relaxed, seed)
    progress.evaluations += progress.relaxed.evaluations
    for cell in _near(cells, progress.relaxed):
        told(f"rounding to {cell.accelerators:,} accelerators")
        round_to(progress, cell)
    _refine(progress, cells, every)


def offer_evolved(progress: Progress, every: list[Cell], seed: int) -> None:
    """Polish the best plans that evolution finds, on the best counts that it finds; early ones on the best alone."""
    for counts, (found, evaluations) in zip((1, EVOLVED), evolve(progress.problem, seed), strict=False):
        progress.evaluations += evaluations
        _offer(progress, every, found, counts)


def _offer(progress: Progress, every: list[Cell], found: list[Found], counts: int) -> None:
    of_count = {cell.accelerators: cell for cell in every}
    for count in list(dict.fromkeys(each.accelerators for each in found if each.accelerators in of_count))[:counts]:
        families, own = families_of(of_count[count]), [each for each in found if each.accelerators == count]
        places = [(number_of(families.lattice, each.plan), each.y) for each in own]
        known = [(place, y) for place, y in places if place is not None]
        if known:
            indices, y = np.array([place for place, _ in known]), np.stack([y for _, y in known])
            part = Open(of_count[count], indices, np.full(len(indices), -np.inf), y)
            polish(progress, part, families.lattice, rounds=5, dismiss=False)


def _scan_all(progress: Progress, cells: list[Cell], end: float, told: Callable[[str], None]) -> None:
    """Every count, nearest to the best one first."""
    center = math.log(_center(progress))
    for cell in sorted(cells, key=lambda cell: (abs(math.log(cell.accelerators) - center), cell.accelerators)):
        if time.monotonic() > end:
            return
        bound = progress.unseen[cell.accelerators]
        if bound >= progress.cut:
            progress.dismiss(np.array([bound]))
        else:
            told(f"{cell.accelerators:,} accelerators")
            scan(progress, cell)
        del progress.unseen[cell.accelerators]


def _center(progress: Progress) -> float:
    """The count of the best plan that is known, or of the best relaxed point."""
    if progress.best is not None:
        return progress.best.cell.accelerators
    assert progress.relaxed is not None
    return float(progress.relaxed.accelerators[0])


def _refine(progress: Progress, cells: list[Cell], every: list[Cell]) -> None:
    """Counts between the neighbours of the one that looks best."""
    counts, center = [cell.accelerators for cell in cells], _center(progress)
    low = max((count for count in counts if count < center), default=counts[0])
    high = min((count for count in counts if count > center), default=counts[-1])
    new = [cell for cell in every if low < cell.accelerators < high and cell.accelerators not in counts]
    new = sorted(new, key=lambda cell: abs(math.log(cell.accelerators / center)))[:BETWEEN]
    cells += new
    progress.unseen |= _by_count(new)
    progress.counts = tuple(sorted(cell.accelerators for cell in cells))


def _near(cells: list[Cell], relaxed: Relaxed, most: int = 4) -> list[Cell]:
    """Cells next to the counts of the best relaxed points, nearest to the best first."""
    chosen: dict[Cell, None] = {}
    for count in relaxed.accelerators[modes(relaxed)]:
        for cell in sorted(cells, key=lambda cell: abs(math.log(cell.accelerators / count)))[:2]:
            chosen.setdefault(cell)
    return list(chosen)[:most]


def round_to(progress: Progress, cell: Cell) -> None:
    """Offer the plans of a cell that are near relaxed points, with their hardware solved."""
    families, relaxed = families_of(cell), progress.relaxed
    assert relaxed is not None
    first, near = nearest(families, relaxed, modes(relaxed))
    if not len(first):
        return
    y = relaxed.y(near)
    part = Open(cell, first, np.full(len(first), -np.inf), y)
    polish(progress, expand(families, part), families.lattice, rounds=5, dismiss=False)
