"""One job, its cluster and its plan together: search and certificate over all plans, counts and hardware.

0. Evolution gives the first answers, without compilation, and goes on over the rows that bounds leave open.
1. Counts of accelerators whose products alone take longer than the best answer so far are dismissed.
2. On all others every row of degrees is bounded by a tangent (`rows`), in NumPy, what that leaves by some at rates of
   its own.
3. The lowest bound is worked at first: rows become runs of plans that differ in the schedule, runs plans, each bounded
   by tangents at hardware nearer to its own best, the last ones by cutting planes. First what is 30 % below the best
   answer, then 20 %, and so on (`LEVELS`), so that the gap falls steadily until it closes or time is up.
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
from optimize.beside import beside
from optimize.clusters.bounding import close, families_of, polish
from optimize.clusters.counts import cell_bounds, cells, rows_of
from optimize.clusters.descent import descend, modes, nearest
from optimize.clusters.evolution import EVOLVED, FirstAnswers
from optimize.clusters.progress import PLANS, TOLERANCE, Cell, Open, Progress, Relaxed, best_of
from optimize.clusters.rows import Rows, open_counts, open_rows, possible_rows
from optimize.hardware import HardwareSolutions, solve_hardware
from optimize.lattice import Families, number_of
from optimize.question import Problem
from optimize.time_limit import until

AGAIN = 16_000  # evaluations of evolution over the rows that bounds leave open
BRIEFLY = 8_000  # evaluations of evolution where there are answers
ROUNDS = 6  # of tangents by which evolved plans are polished
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
            told("evolution")
            first = offer_evolved(progress, seed, EVOLVED, after=after)
            if after is None and math.isinf(work):
                progress.beside = beside(first, end)
            if progress.best is None:
                rows = possible_rows(progress, rows)
            if progress.best is None and progress.unseen:
                _descend(progress, every, seed, told)
            told("rows of degrees")
            open_counts(progress, rows)
            narrow(progress, end, told, before=_evolving(progress, seed, told))
    except KeyboardInterrupt:  # what is known so far, with its bound, is an answer
        progress.interrupted = True
    finally:
        progress.late = time.monotonic() >= end
        progress.close(take=progress.late or progress.interrupted)
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
    before: Callable[[], None] = lambda: None,
) -> None:
    """Search what is open and may be below the best answer, in steps of how far below: all, or `levels` alone.

    `before`: what is done before each of them.
    """
    for level in levels_of(progress.tolerance) if levels is None else levels:
        before()
        progress.level = level
        told(f"to {100 * level:.2g} %")
        close(progress, end, _solve)


def _evolving(progress: Progress, seed: int, told: Callable[[str], None]) -> Callable[[], None]:
    """Evolution over what bounds leave open, which are few of the rows: once, and again wherever the answer has become
    better since by more than the tolerance, by evolution itself or by the plans of the lowest bounds."""
    known, number = math.inf, seed

    def go_on() -> None:
        nonlocal known, number
        best = math.inf if progress.best is None else progress.best.log_value
        if best < known - progress.tolerance and progress.open and not progress.spent:
            known, number = best, number + 1
            told("evolution of what is open")
            offer_evolved(progress, number, AGAIN, open_rows(progress))

    return go_on


def offer_evolved(
    progress: Progress, seed: int, evaluations: int, rows: Rows | None = None, after: Progress | None = None
) -> FirstAnswers:
    """Offer what evolution finds (of some `rows`), as it is found; then polish the best of its plans, and of those of a
    search with other limits (`after`), whose best counts may be far from the best here."""
    problem = progress.problem

    first = FirstAnswers(problem, seed, lambda found: progress.offer(best_of(problem, found)), rows)
    (tree,) = first.values.genes.jobs
    first.run(evaluations, progress.hear)
    progress.evaluations += first.values.evaluations
    places = [(int(found.plans[0][place]), found.y[place]) for found, place in first.kept()]
    others = [] if after is None else sorted(after.runners_up.values(), key=lambda best: best.log_value)[:KNOWN]
    places += [(number, best.y) for best in others if (number := number_of(tree.lattice, best.plan)) is not None]
    if places:
        numbers, y = np.array([number for number, _ in places]), np.stack([y for _, y in places])
        row, _ = tree.lattice.select(numbers)
        cell, unknown = Cell(problem, tree.accelerators[row]), np.full(len(numbers), -np.inf)
        polish(progress, Open(cell, Families(tree.lattice), PLANS, numbers, unknown, y), ROUNDS, dismiss=False)
    return first


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
    plans, family = families.members(first)
    part = Open(cell, families, PLANS, plans, np.full(len(plans), -np.inf), relaxed.y(near[family]))
    polish(progress, part, rounds=5, dismiss=False)
