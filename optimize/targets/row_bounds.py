r"""Bounds of every plan of one pair of shape and batch on every count, by rows of degrees: half a million rows a second.

A row's plan under the options that take least: ZeRO without its traffic and with everything divided over all ranks,
nothing recomputed for the time and everything for the memory, whichever needs less; schedules, their virtual stages and
the switches as they are legal. Its step is no longer and its memory no more than those of any plan of the row, and it is
convex in the logarithms of the rates like theirs, so that one tangent bounds the row over all hardware
(`hardware.dual_bound`). What is left is searched plan by plan (`clusters.look_at`).
"""

import dataclasses
from collections.abc import Iterator

import numpy as np

from costmodel import map_leaves
from costmodel.inputs import RECOMPUTES, PlanPoint, options
from optimize.clusters import FLOAT32_SLACK, Cell, bound_of, cell_bounds, crude_bound, row_codes, screen
from optimize.hardware import project
from optimize.lattice import Lattice, every_microbatch, lattice_of_rows, rows_of_counts
from optimize.question import Problem, Tangents

_TOGETHER = 65_536  # rows with an option of each axis, looked at at once
_FULLY = options.ZeroRow(shards=1.0, gradients=1.0, states=1.0)  # no traffic; weights whole, or
_WEIGHTS = dataclasses.replace(_FULLY, weights=1.0)  # divided and gathered


def open_cells(
    problem: Problem, cells: list[Cell], place: np.ndarray, cut: float
) -> tuple[list[tuple[float, Cell]], float, int]:
    """Cells of the rows that may hold a value below `cut` (a logarithm) with the least bound of each, nearest first;
    the least bound of all that is dismissed; and how many rows were evaluated. `place`: rates near the best known."""
    above = cell_bounds(cells)
    dismissed = float(above[above >= cut].min(initial=np.inf))
    counts = np.array([cell.accelerators for cell, bound in zip(cells, above, strict=True) if bound < cut], int)
    left: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    evaluations = 0
    for thin, accelerators in _rows(problem, counts):
        bounds = _bounds(problem, thin, accelerators, place, cut)
        evaluations += len(bounds)
        dismissed = min(dismissed, float(bounds[bounds >= cut].min(initial=np.inf)))
        row, _ = thin.select(np.flatnonzero(bounds < cut))
        left.append((accelerators[row], row_codes(thin.rows)[row], bounds[bounds < cut]))
    found = []
    if left:
        count, code, bound = (np.concatenate(parts) for parts in zip(*left, strict=True))
        for one in np.unique(count):
            mine = count == one
            found.append((float(bound[mine].min()), Cell(problem, int(one), rows=np.unique(code[mine]))))
    return sorted(found, key=lambda each: each[0]), dismissed, evaluations


def _rows(problem: Problem, counts: np.ndarray) -> Iterator[tuple[Lattice, np.ndarray]]:
    """Rows of degrees and microbatches on these counts with their options of time, in parts, and their counts."""
    if not len(counts):
        return
    workload, fixed = problem.job.workload, {**problem.fixed, "domain": problem.domain}
    rows = rows_of_counts(workload, problem.machine, fixed, int(counts.max()))
    kept = np.isin(rows["accelerators"], counts)
    rows = every_microbatch({name: column[kept] for name, column in rows.items()}, int(workload.batch), fixed)
    accelerators = rows.pop("accelerators")
    whole = lattice_of_rows(workload, problem.machine, fixed, rows)
    stages, _, switches, _ = whole.axes
    ends = np.cumsum(stages.count * switches.count)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _TOGETHER, side="right")))
        part = np.arange(start, stop)
        axes = (stages.at(part), switches.at(part))
        own = {name: column[part] for name, column in whole.rows.items()}
        thin = dataclasses.replace(whole, rows=own, axes=axes, ends=ends[part] - before)
        yield thin, accelerators[part]
        start = stop


def _bounds(
    problem: Problem, thin: Lattice, accelerators: np.ndarray, place: np.ndarray, cut: float
) -> np.ndarray:
    """Logarithms of what no plan of a row with an option of each axis is below; infinite where none can be built."""
    points, row = _least(thin)
    count = accelerators[row].astype(float)
    points = dataclasses.replace(points, accelerators=count.astype(np.float32))
    bounds = np.full(len(row), -np.inf)
    for at in _places(problem, place):
        open_ = np.flatnonzero(bounds < cut)
        if not len(open_):
            break
        here = map_leaves(lambda leaf, chosen=open_: leaf[chosen] if np.ndim(leaf) else leaf, points)
        y = _on_limits(problem, count[open_], at)
        bounds[open_] = np.maximum(bounds[open_], _at(problem, here, count[open_], y, cut))
    return bounds


def _least(thin: Lattice) -> tuple[PlanPoint, np.ndarray]:
    """Points of rows with an option of each axis under the options that take least, and the row of each."""
    row, entries = thin.select(np.arange(len(thin)))
    chosen: dict[str, object] = {}
    for axis, entry in zip(thin.axes, entries, strict=True):
        chosen |= axis.fields(entry, np.float32)
    own = map_leaves(np.float32, (_FULLY, RECOMPUTES["none"]))
    plain = thin.points_of_rows(row, np.float32)
    return dataclasses.replace(plain, **chosen, zero=own[0], recompute=own[1], copies=np.float32(1.0)), row


def _places(problem: Problem, place: np.ndarray) -> list[np.ndarray]:
    """Where tangents are taken; with a price of hardware also where there is more of everything (`bounding`)."""
    low, high = problem.ends
    middle = 0.5 * (low + high)
    return [place] if problem.fill else [place, 0.5 * (middle + high), middle]


def _on_limits(problem: Problem, count: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The place moved onto what each count's limits leave."""
    distinct, which = np.unique(count, return_inverse=True)
    have = problem.money.left(problem.limits, distinct, np.full(len(distinct), 0.25 * problem.most_hbm_bytes))
    moved = project(problem, have, np.broadcast_to(place, (len(distinct), len(place))), problem.fill)
    return moved[which]


def _at(problem: Problem, points: PlanPoint, count: np.ndarray, y: np.ndarray, cut: float) -> np.ndarray:
    """Bounds by tangents there: cheap ones at first, without any memory, then by the memory that the others need."""
    job, machine = problem.job, problem.machine
    steps = np.log(problem.job.steps if problem.objective.key == "step_s" else problem.steps_on(job, count))
    step = screen(job.workload, machine, points, y)
    at = step._replace(log_value=step.log_value + steps)
    bounds = crude_bound(problem, problem.money.left(problem.limits, count, np.zeros(len(y))), at, count)
    likely = np.flatnonzero(bounds < cut)
    if len(likely):
        own = map_leaves(lambda leaf: leaf[likely] if np.ndim(leaf) else leaf, points)
        divided = dataclasses.replace(own, zero=map_leaves(np.float32, _WEIGHTS))
        other = screen(job.workload, machine, divided, y[likely])
        near = Tangents(*(column[likely] for column in at))
        near = near._replace(least_bytes=np.minimum(near.least_bytes, other.least_bytes))
        bounds[likely] = np.maximum(bounds[likely], bound_of(problem, near, count[likely]) - FLOAT32_SLACK)
    return bounds

