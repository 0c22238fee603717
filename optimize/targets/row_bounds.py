r"""Bounds of every plan of one pair of shape and batch on every count, by rows of degrees: some 100,000 rows a second.

A row's plan under the options that take least: ZeRO without its traffic and with everything divided over all ranks,
nothing recomputed for the time and everything for the memory, whichever needs less; schedules, their virtual stages and
the switches as they are legal. Its step is no longer and its memory no more than those of any plan of the row, and it
is convex in the logarithms of the rates like theirs, so that one tangent bounds the row over all hardware
(`hardware.dual_bound`). What is left is searched plan by plan (`clusters.look_at`).
"""

import dataclasses
from typing import Any

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
    if not len(counts):
        return [], dismissed, 0
    thin, accelerators = _rows(problem, counts)
    open_, bounds = [], []
    for start in range(0, len(thin), _TOGETHER):
        numbers = np.arange(start, min(start + _TOGETHER, len(thin)))
        row, own = _bounds(problem, thin, numbers, accelerators, place, cut)
        dismissed = min(dismissed, float(own[own >= cut].min(initial=np.inf)))
        open_.append(row[own < cut])
        bounds.append(own[own < cut])
    return _by_count(problem, thin, accelerators, np.concatenate(open_), np.concatenate(bounds)), dismissed, len(thin)


def _by_count(
    problem: Problem, thin: Lattice, accelerators: np.ndarray, row: np.ndarray, bound: np.ndarray
) -> list[tuple[float, Cell]]:
    """Cells of some rows with the least bound of each, nearest first."""
    found, count, code = [], accelerators[row], row_codes(thin.rows)[row]
    for one in np.unique(count):
        mine = count == one
        found.append((float(bound[mine].min()), Cell(problem, int(one), rows=np.unique(code[mine]))))
    return sorted(found, key=lambda each: each[0])


def _rows(problem: Problem, counts: np.ndarray) -> tuple[Lattice, np.ndarray]:
    """Rows of degrees and microbatches on these counts with their options of time, and the count of each."""
    workload, fixed = problem.job.workload, {**problem.fixed, "domain": problem.domain}
    rows = rows_of_counts(workload, problem.machine, fixed, int(counts.max()))
    kept = np.isin(rows["accelerators"], counts)
    rows = every_microbatch({name: column[kept] for name, column in rows.items()}, int(workload.batch), fixed)
    accelerators = rows.pop("accelerators")
    whole = lattice_of_rows(workload, problem.machine, fixed, rows)
    stages, _, switches, _ = whole.axes
    return dataclasses.replace(
        whole, axes=(stages, switches), ends=np.cumsum(stages.count * switches.count)
    ), accelerators


def _bounds(
    problem: Problem, thin: Lattice, numbers: np.ndarray, accelerators: np.ndarray, place: np.ndarray, cut: float
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of some numbers, each with the logarithm of what no plan of it is below; infinite: none can be built."""
    points, row = _least(thin, numbers)
    count = accelerators[row].astype(float)
    points = dataclasses.replace(points, accelerators=count.astype(np.float32))
    bounds = np.full(len(row), -np.inf)
    for at in _places(problem, place):
        left = np.flatnonzero(bounds < cut)
        if not len(left):
            break
        here, own = (points, count) if len(left) == len(row) else (_chosen(points, left), count[left])
        bounds[left] = np.maximum(bounds[left], _at(problem, here, own, _on_limits(problem, own, at), cut))
    return row, bounds


def _chosen(points: PlanPoint, places: np.ndarray) -> PlanPoint:
    return map_leaves(lambda leaf: leaf[places] if np.ndim(leaf) else leaf, points)


def _least(thin: Lattice, numbers: np.ndarray) -> tuple[PlanPoint, np.ndarray]:
    """Points of rows with an option of each axis under the options that take least, and the row of each."""
    row, entries = thin.select(numbers)
    chosen: dict[str, Any] = {}
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
    distinct = np.unique(count)
    have = problem.money.left(problem.limits, distinct, np.full(len(distinct), 0.25 * problem.most_hbm_bytes))
    moved = project(problem, have, np.broadcast_to(place, (len(distinct), len(place))), problem.fill)
    return moved[np.searchsorted(distinct, count)]


def _at(problem: Problem, points: PlanPoint, count: np.ndarray, y: np.ndarray, cut: float) -> np.ndarray:
    """Bounds by tangents there: cheap ones at first, without any memory, then by the memory that the others need."""
    job, machine = problem.job, problem.machine
    steps = np.log(problem.job.steps if problem.objective.key == "step_s" else problem.steps_on(job, count))
    step = screen(job.workload, machine, points, y)
    at = step._replace(log_value=step.log_value + steps)
    bounds = crude_bound(problem, problem.money.left(problem.limits, count, np.zeros(len(y))), at, count)
    likely = np.flatnonzero(bounds < cut)
    if len(likely):
        divided = dataclasses.replace(_chosen(points, likely), zero=map_leaves(np.float32, _WEIGHTS))
        other = screen(job.workload, machine, divided, y[likely])
        near = Tangents(*(column[likely] for column in at))
        near = near._replace(least_bytes=np.minimum(near.least_bytes, other.least_bytes))
        bounds[likely] = np.maximum(bounds[likely], bound_of(problem, near, count[likely]) - FLOAT32_SLACK)
    return bounds
