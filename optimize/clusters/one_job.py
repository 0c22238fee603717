"""One job, its cluster and its plan together: search and certificate over all plans, counts and hardware.

0. Evolution gives the first answers, without compilation.
1. Counts of accelerators whose products alone take longer than the best answer so far are dismissed.
2. On all others every row of degrees is bounded by a tangent (`rows`), in NumPy.
3. The lowest bound is worked at first: rows become families of plans, families plans, each bounded by tangents at
   hardware nearer to its own best, the last ones by cutting planes. First what is 30 % below the
   best answer, then 20 %, and so on (`LEVELS`), so that the gap falls steadily until it closes or time is up.
4. Descent over relaxed points (`compare`) tells how far the best plan that can be launched is from what degrees between
   would do. Only where evolution finds nothing that meets the limits are plans near relaxed points looked at first.

The bound is the least over everything that was dismissed or is still open, so it is true whenever the search stops, for
the counts that were looked at (`counts`); where time was up before, the others are told (`others`).
"""

import math
import time
from collections.abc import Callable

import numpy as np

from costmodel.inputs import PlanPoint
from optimize.clusters.bounding import close, expand, families_of, polish
from optimize.clusters.counts import cell_bounds, cells, rows_of
from optimize.clusters.descent import descend, modes, nearest
from optimize.clusters.evolution import Evolved, evolve
from optimize.clusters.progress import FAMILIES, PLANS, TOLERANCE, Cell, Open, Progress, Relaxed
from optimize.clusters.rows import open_counts, possible_rows
from optimize.hardware import HardwareSolutions, solve_hardware
from optimize.lattice import number_of
from optimize.question import Problem
from optimize.time_limit import until

EVOLVED = 3  # counts whose evolved plans are polished
KNOWN = 24  # answers of a search with other limits that are polished
COMPARED = {"each": 6, "steps": 40}  # starts of each pair of options, and steps, of a descent that only compares
LEVELS = (0.3, 0.2, 0.1, 0.03, 0.01, 0.003)  # of the logarithm below the best answer, before the tolerance


def search(
    problem: Problem,
    seconds: float,
    seed: int = 0,
    told: Callable[[str], None] = lambda _: None,
    after: Progress | None = None,
    tolerance: float = TOLERANCE,
    work: float = math.inf,
) -> Progress:
    """Search until the gap is within `tolerance`, `work` evaluations are spent, or the time is up.

    Only the last depends on the machine. `after`: one with other limits, from whose points it starts.
    """
    end, progress = time.monotonic() + seconds, Progress(problem, tolerance, work)
    rows = rows_of(problem)
    every = cells(problem, rows)
    if not every:
        return progress
    progress.unseen = by_count(every)
    progress.counts = tuple(sorted(progress.unseen))
    try:
        with until(end):
            _first_answers(progress, every, seed, told, after)
            if progress.best is None:
                rows = possible_rows(progress, rows)
            if progress.best is None and progress.unseen:
                _descend(progress, every, seed, told)
            told("rows of degrees")
            open_counts(progress, rows)
            narrow(progress, end, told)
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    progress.late = time.monotonic() >= end
    own = None if progress.best is None else progress.best.cell.accelerators
    if own not in progress.unseen and len(progress.unseen) < len(progress.counts):  # of others only products are known
        progress.others, progress.unseen = tuple(sorted(progress.unseen)), {}
        progress.counts = tuple(sorted({*progress.counts} - {*progress.others}))
    return progress


def levels_of(tolerance: float) -> tuple[float, ...]:
    """How far below the best answer what is open is worked at, one after the other."""
    return (*(level for level in LEVELS if level > tolerance), tolerance)


def narrow(
    progress: Progress,
    end: float,
    told: Callable[[str], None] = lambda _: None,
    levels: tuple[float, ...] | None = None,
) -> None:
    """Search what is open and may be below the best answer, in steps of how far below: all, or `levels` alone."""
    for level in levels_of(progress.tolerance) if levels is None else levels:
        progress.level = level
        told(f"to {100 * level:.2g} %")
        close(progress, end, _solve)


def _first_answers(
    progress: Progress, every: list[Cell], seed: int, told: Callable[[str], None], after: Progress | None
) -> None:
    """Those of a search with other limits, whose best counts may be far from the best here, and by evolution."""
    progress.level = LEVELS[0]
    if after is not None:
        known = sorted(after.runners_up.values(), key=lambda best: best.log_value)[:KNOWN]
        found = [Evolved(best.log_value, best.cell.accelerators, best.plan, best.y) for best in known]
        _offer(progress, every, found, EVOLVED)
    told("evolution")
    offer_evolved(progress, every, seed)


def by_count(cells: list[Cell]) -> dict[int, float]:
    """Bounds by the products alone."""
    return dict(zip([cell.accelerators for cell in cells], cell_bounds(cells).tolist(), strict=True))


def _solve(problem: Problem, points: PlanPoint, cutoff: float) -> HardwareSolutions:
    return solve_hardware(problem, points, tolerance=0.5 * TOLERANCE, cutoff=cutoff)


def compare(progress: Progress, seconds: float, seed: int) -> None:
    """Descend from a few starts, if there was none: what degrees between the legal ones would do."""
    if progress.relaxed is not None or progress.best is None:
        return
    with until(time.monotonic() + seconds):
        progress.relaxed = descend(progress.problem, seed, **COMPARED)
        progress.evaluations += progress.relaxed.evaluations


def _descend(progress: Progress, every: list[Cell], seed: int, told: Callable[[str], None]) -> None:
    """Relaxed points, and plans near them."""
    told("descent")
    progress.relaxed = descend(progress.problem, seed)
    progress.evaluations += progress.relaxed.evaluations
    for cell in _near(every, progress.relaxed):
        told(f"rounding to {cell.accelerators:,} accelerators")
        round_to(progress, cell)


def offer_evolved(progress: Progress, every: list[Cell], seed: int, briefly: bool = False) -> None:
    """Polish the first plans that evolution finds; the last ones too where none of them is any good, or, unless that is
    done `briefly`, where the objective has a price: rows say less there of where the best plans are."""
    for found, evaluations in evolve(progress.problem, seed):
        progress.evaluations += evaluations
        _offer(progress, every, found, EVOLVED)
        if progress.best is not None and (briefly or progress.problem.fill):
            break


def _offer(progress: Progress, every: list[Cell], found: list[Evolved], counts: int) -> None:
    of_count = {cell.accelerators: cell for cell in every}
    for count in list(dict.fromkeys(each.accelerators for each in found if each.accelerators in of_count))[:counts]:
        families, own = families_of(of_count[count]), [each for each in found if each.accelerators == count]
        places = [(number_of(families.lattice, each.plan), each.y) for each in own]
        known = [(place, y) for place, y in places if place is not None]
        if known:
            indices, y = np.array([place for place, _ in known]), np.stack([y for _, y in known])
            part = Open(of_count[count], families, PLANS, indices, np.full(len(indices), -np.inf), y)
            polish(progress, part, rounds=5, dismiss=False)


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
    part = Open(cell, families, FAMILIES, first, np.full(len(first), -np.inf), y)
    polish(progress, expand(part), rounds=5, dismiss=False)
