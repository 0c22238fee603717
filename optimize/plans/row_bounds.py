r"""A lower bound of the step for each row of degrees of a lattice, and the lattice in the order of it.

No schedule ends before every stage has passed all microbatches: with $m$ microbatches, a plain stage of $s$ seconds and
$f$, $l$ beyond it on the first and the last, a step takes at least $m s + \max(m f, m l)$ and the host's time, under
the options that take least for themselves (no recompute, no traffic for ZeRO). Where microbatches may go both ways, the
outer stages pass half of them at each end of the model, at least $m (f + l) / 2$. A search in this order may stop where
the bound passes its worst kept value: the rest is proved to be no better, unevaluated. So it is branch and bound
over rows; where the lattice is small, everything is evaluated instead (`exhaustive`).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel import Exact, Scalar, Semantics, as_floats, by_identity, map_leaves
from costmodel.formulas import Loads, OpCounts, Pipeline, around, counts, operators_s, sent_s, stages, timing, work
from costmodel.inputs import SCHEDULES, Cluster, PlanPoint, Workload
from optimize.lattice import (
    DEGREES,
    SAFE,
    Lattice,
    cheapest,
    least_bytes,
    least_fill,
    least_step_s,
    least_way_s,
    under_any,
)
from optimize.question import products_s

_ROWS = 8_192
MANY = 16_384  # rows from which most are bounded by others of their own group alone
_NEAR = 12_288  # rows, at least, of which each has a bound of its own
_EXACT = Exact(np)


@by_identity(64)
def numbers_of(workload: Workload, cluster: Cluster, dtype: Any) -> tuple[Workload, Cluster]:
    """Both with all numbers of a type and without prices."""
    machine = dataclasses.replace(cluster, prices=None)
    return map_leaves(dtype, as_floats(workload)), map_leaves(dtype, as_floats(machine))


def row_bounds_s(lattice: Lattice, lean: Lattice | None = None, below: float = math.inf) -> np.ndarray:
    """Seconds below which no plan of a row can be that fits; infinite where none does, by the bytes of `lean`: the same
    rows with what saves memory for time. Of rows that take `below` or longer in any case, nobody asks whether they fit.
    """
    rows, lean = np.arange(len(lattice.ends)), lean or lattice
    found = _least_below_s(lattice, below) if len(rows) and below < math.inf else least_s(lattice, rows)
    asked = rows[found < below]
    found[asked[~may_fit(lean, asked)]] = np.inf
    return found


def least_s(lattice: Lattice, rows: np.ndarray, loosely: bool = False) -> np.ndarray:
    """The same of some rows, whether or not a plan of theirs fits. `loosely`: of all rows with a smaller microbatch
    too, which may go both ways where these may not."""
    given = numbers_of(lattice.workload, lattice.cluster, float)
    found = np.empty(len(rows))
    for start in range(0, len(rows), _ROWS):
        own = rows[start : start + _ROWS]
        bounds = [_bound_s(lattice, *given, own, *switches, loosely) for switches in _switches(lattice)]
        found[start : start + _ROWS] = np.min(bounds, axis=0)
    return SAFE * found


def least_of_all_s(lattice: Lattice) -> float:
    """Seconds below which no plan of a lattice can be, nor one with other options that save memory for time, whether or
    not it fits; of very many rows by the largest microbatch of all. Infinite where none is legal."""
    if not len(lattice.ends):
        return math.inf
    if len(lattice.ends) <= MANY:
        return float(np.min(least_s(lattice, np.arange(len(lattice.ends)))))
    own, starts = _by_microbatch(lattice)
    last = np.append(starts[1:], len(own)) - 1
    return float(np.min(least_s(lattice, own[last], loosely=True)))


def _least_below_s(lattice: Lattice, below: float) -> np.ndarray:
    """The same of all rows, of those that may be below a value; of the others that of the largest microbatch."""
    own, starts = _by_microbatch(lattice)
    last = np.append(starts[1:], len(own)) - 1
    return _by_groups_s(lattice, own, starts, last, lambda found: found < below)


def many_bounds_s(lattice: Lattice) -> np.ndarray:
    """Bounds of very many rows: those of the rows that may be fastest are their own (`row_bounds_s`), others are those
    of the largest microbatch that fits with the same degrees, and at least as long as the first.

    It never takes less memory: a stage holds so many microbatches or the whole batch. (tests/plans hold it.)
    """
    own, starts = _by_microbatch(lattice)

    def nearest(found: np.ndarray) -> np.ndarray:
        near = np.sort(found)[min(_NEAR, len(found) - 1)]
        return found <= near if near < np.inf else np.isfinite(found)

    return _by_groups_s(lattice, own, starts, _largest_that_fits(lattice, own, starts), nearest)


def _by_groups_s(
    lattice: Lattice,
    own: np.ndarray,
    starts: np.ndarray,
    last: np.ndarray,
    wanted: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Bounds of groups of rows that differ in the microbatch (`_by_microbatch`), by the `last` place of each that
    counts, infinite after it; then of the rows that are wanted by these bounds, their own.

    A larger microbatch takes no longer for a sequence: latencies, the host and loads of weights are shared by more of
    them. (tests/plans hold it.)
    """
    count, some = np.diff(starts, append=len(own)), last >= starts
    of_group, found = np.full(len(starts), np.inf), np.empty(len(own))
    of_group[some] = least_s(lattice, own[last[some]], loosely=True)
    found[own] = np.where(np.arange(len(own)) <= np.repeat(last, count), np.repeat(of_group, count), np.inf)
    rows = np.flatnonzero(wanted(found))
    found[rows] = np.maximum(found[rows], least_s(lattice, rows))
    return found


def _by_microbatch(lattice: Lattice) -> tuple[np.ndarray, np.ndarray]:
    """Rows by all degrees but the microbatch, the smallest first; and where each group starts."""
    degrees = [lattice.rows[name] for name in DEGREES if name != "microbatch"]
    own = np.lexsort([lattice.rows["microbatch"], *degrees])
    changes = np.any([column[own][1:] != column[own][:-1] for column in degrees], axis=0)
    return own, np.concatenate([[0], np.flatnonzero(changes) + 1])


def _largest_that_fits(lattice: Lattice, own: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """The last place of each group, by bisection, at which a plan may fit; the one before its first where none does."""
    low, high = starts - 1, np.append(starts[1:], len(own)) - 1
    while np.any(open_ := low < high):
        middle = (low[open_] + high[open_] + 1) // 2
        fits = may_fit(lattice, own[middle])
        low[open_], high[open_] = np.where(fits, middle, low[open_]), np.where(fits, high[open_], middle - 1)
    return low


def may_fit(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    """Whether any plan of a row may fit, under the options that take least memory."""
    return row_bytes(lattice, rows) <= float(lattice.cluster.accelerator.hbm_bytes)


def row_bytes(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    """Bytes that no plan of a row needs less than, under the options that take least memory.

    The leanest schedules keep fewest microbatches live; sequence parallelism divides; ZeRO 2 divides more than 0 and 1
    (3 gathers; 0 is asked too where ZeRO keeps copies); weights shared by all ranks are the least; a share of the
    layers under recompute keeps more than all.
    """
    (workload, cluster), found = numbers_of(lattice.workload, lattice.cluster, float), np.empty(len(rows))
    switches = max(_switches(lattice)) if len(rows) else (0.0, 0.0)
    for start in range(0, len(rows), _ROWS):
        point = _cheapest_of(lattice, rows[start : start + _ROWS], *switches)
        found[start : start + _ROWS] = least_bytes(workload, cluster.stack, point)
    return found


def _switches(lattice: Lattice) -> set[tuple[float, float]]:
    """Sequence parallelism and ring, as they occur."""
    table = next(axis.table for axis in lattice.axes if "all_to_all" in axis.table)
    pairs = zip(table["sequence_parallel"].tolist(), table["all_to_all"].tolist(), strict=True)
    return {(float(parallel), 1.0 - exchange) for parallel, exchange in pairs}


def _bound_s(
    lattice: Lattice,
    workload: Workload,
    cluster: Cluster,
    rows: np.ndarray,
    parallel: float,
    ring: float,
    loosely: bool = False,
) -> np.ndarray:
    point = _cheapest_of(lattice, rows, parallel, ring)
    counted = counts(workload, point, _EXACT)
    most = counted.microbatches * point.microbatch if loosely else counted.microbatches
    point, both_ways = _overlapped(lattice, most, point)
    pipe = stages(counted, timing(counted, point, cluster, _EXACT), point)
    fill = np.zeros(len(rows)) if loosely else fill_of(lattice, rows)  # a smaller microbatch fills sooner
    return _passes_s(pipe, counted, point, both_ways, fill, _EXACT) + cluster.stack.step_s


def fill_of(lattice: Lattice, rows: np.ndarray) -> np.ndarray:
    """Turns of a plain stage, at least, in which a pipeline of each row fills and drains."""
    return least_fill(lattice.axes[0].at(rows), lattice.rows["pipeline"][rows])


def any_schedule_s(
    lattice: Lattice, counted: OpCounts, point: PlanPoint, cluster: Cluster, sem: Semantics, fill: Scalar = 0.0
) -> Scalar:
    """Seconds that plans take at least which differ from these, of 1F1B, in the schedule alone: of the bubble what all
    schedules of the lattice have (`fill_of`), and all else.

    Where microbatches may go both ways, or weights stream, traffic of gradients is taken to be hidden.
    """
    return any_schedule(lattice, counted, point, cluster, sem, fill)[0]


def any_schedule(
    lattice: Lattice,
    counted: OpCounts,
    point: PlanPoint,
    cluster: Cluster,
    sem: Semantics,
    fill: Scalar = 0.0,
    loads: Loads = None,
) -> tuple[Scalar, Scalar]:
    """The same, and with loads the seconds at the usual power that draw as much as the units that operators and
    messages within layers keep busy, whatever else is done."""
    point, both_ways = _overlapped(lattice, counted.microbatches, point)
    times = timing(counted, point, cluster, sem)
    todo = work(counted, times, point, cluster, sem)
    passes_s = _passes_s(todo.pipe, counted, point, both_ways, fill, sem)
    seen = (1.0 - both_ways) * (todo.gradient_traffic_s if times.streams is None else 0.0)
    todo = dataclasses.replace(todo, gradient_traffic_s=seen)
    step_s = around(passes_s, todo, times, point, cluster.stack, sem).step_s
    if loads is None:
        return step_s, 0.0
    compute_s, hbm_s = operators_s(counted, times.rates, point, cluster.stack)
    busy_s = loads[1] * compute_s + loads[2] * hbm_s + loads[3] * sent_s(times)
    return step_s, counted.microbatches / point.pipeline * busy_s


def _overlapped(lattice: Lattice, microbatches: Scalar, point: PlanPoint) -> tuple[PlanPoint, np.ndarray]:
    """`under_any` of the schedules of a lattice."""
    listed = list(SCHEDULES.values())
    tables = [np.unique(axis.table["schedule"]) for axis in lattice.axes if "schedule" in axis.table]
    return under_any([listed[i] for i in np.concatenate(tables)], point, microbatches)


def _passes_s(
    pipe: Pipeline, counted: OpCounts, point: PlanPoint, both_ways: Scalar, fill: Scalar, sem: Semantics
) -> Scalar:
    """Where every schedule fills and drains, also the way of the first microbatch through all stages, and m - 1 turns
    on the slowest (`formulas/pipeline/paths.py`): on the last, interleaved, with what stages have less on the first."""
    own_s = tuple(getattr(pipe, name).seconds for name in ("plain", "first", "middle", "last"))
    (_, first_s, middle_s, last_s), m = own_s, counted.microbatches
    on_last_s = (m - 1) * last_s + (point.pipeline - 1) * sem.minimum(first_s, 0.0)
    way_s = least_way_s(own_s, m, fill, sem.maximum((m - 1) * middle_s, on_last_s))
    return sem.maximum(least_step_s(own_s, point.pipeline, m, both_ways, sem), way_s)


def _cheapest_of(lattice: Lattice, rows: np.ndarray, parallel: float, ring: float) -> PlanPoint:
    return cheapest(lattice.points_of_rows(rows, np.float64), parallel, ring)


def flop_bound_s(lattice: Lattice) -> float:
    """Seconds in which all accelerators together could do the model's FLOP at the best rate of a kernel."""
    workload, cluster = numbers_of(lattice.workload, lattice.cluster, float)
    point = lattice.points_of_rows(np.array([0]), np.float64)
    return SAFE * products_s(workload, cluster, point) / cluster.accelerators


def in_order_of_bounds(lattice: Lattice, lean: Lattice | None = None, below: float = math.inf) -> Lattice:
    """The same plans, rows of the lowest bound first. Numbers of plans change with it. `lean`, `below`: as in
    `row_bounds_s`."""
    many = lean is None and len(lattice.ends) > MANY
    bounds_s = many_bounds_s(lattice) if many else row_bounds_s(lattice, lean, below)
    order = np.argsort(bounds_s, kind="stable")
    return dataclasses.replace(lattice.with_rows(order), floor_s=bounds_s[order])
