"""Plans of a lattice evaluated by NumPy: in float32 for searches, in float64 for what is told."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, Scalar, map_leaves
from costmodel.formulas import Cost, cost, counts, memory
from costmodel.inputs import RECOMPUTES, SCHEDULES, Cluster, PlanPoint, Workload
from optimize.lattice import OVERLAPS, Chunk, Families, Lattice
from optimize.plans.plan_values import PlanValue
from optimize.plans.row_bounds import any_schedule, fill_of, flop_bound_s, least_s, numbers_of

MARGIN = 1e-4
"""Relative. Errors of float32 on a step and on a peak are below a tenth of it (tests/plans/test_exhaustive.py)."""

_MANY = 16_384  # plans from which their rows are bounded anew, with the schedules and the overlap that they have
_BLOCK_BYTES = 65_536  # of a field of the points of one NumPy evaluation: its intermediates stay in the cache
_EXACT = Exact(np)
_FIELDS = tuple(field.name for field in dataclasses.fields(Cost))  # pyright: ignore[reportArgumentType]

Evaluate = Callable[[Chunk], Cost]
"""The cost of the plans of a chunk."""


def in_numpy(lattice: Lattice) -> Evaluate:
    """Evaluation by NumPy, in float32."""
    return lambda chunk: cost_of(lattice, chunk.indices, lattice.points, np.float32)


def exactly(lattice: Lattice, indices: np.ndarray) -> Cost:
    """Cost of the plans with these numbers, in float64."""
    return cost_of(lattice, indices, lattice.points, np.float64)


def cost_of(
    lattice: Lattice, indices: np.ndarray, points_of: Callable[[np.ndarray, Any], PlanPoint], dtype: Any
) -> Cost:
    """Cost of the points that `points_of` gives for plans with these numbers."""
    return _evaluated(lattice, indices, points_of, dtype, cost)


def bytes_of(
    lattice: Lattice, indices: np.ndarray, points_of: Callable[[np.ndarray, Any], PlanPoint], dtype: Any
) -> Cost:
    """The same without the time, which is told as nothing."""

    def held(workload: Workload, cluster: Cluster, points: PlanPoint, sem: Exact) -> Cost:
        used = memory(counts(workload, points, sem), points, cluster.stack, sem)
        nothing_s = np.zeros(np.shape(points.microbatch))
        return Cost(step_s=nothing_s, peak_bytes=used.needed_bytes, second_bytes=used.second_bytes)

    return _evaluated(lattice, indices, points_of, dtype, held)


def _evaluated(
    lattice: Lattice,
    indices: np.ndarray,
    points_of: Callable[[np.ndarray, Any], PlanPoint],
    dtype: Any,
    of: Callable[[Workload, Cluster, PlanPoint, Exact], Cost],
) -> Cost:
    """What a function says of the points of many plans, block by block."""
    workload, cluster = numbers_of(lattice.workload, lattice.cluster, dtype)
    parts = []
    for own in _blocks(indices, dtype):
        points = points_of(own, dtype)
        with np.errstate(all="ignore"):  # of hardware beyond anything physical: told by `find_in_lattice`
            parts.append(of(workload, cluster, map_leaves(_as(dtype), points), _EXACT))
    if not parts:
        return Cost(step_s=np.empty(0), peak_bytes=np.empty(0), second_bytes=np.empty(0))
    whole = [[np.broadcast_to(getattr(part, name), np.shape(part.step_s)) for part in parts] for name in _FIELDS]
    return Cost(**dict(zip(_FIELDS, map(np.concatenate, whole), strict=True)))


def _blocks(indices: np.ndarray, dtype: Any) -> Iterator[np.ndarray]:
    """So many at a time as are evaluated together."""
    size = _BLOCK_BYTES // np.dtype(dtype).itemsize
    return (indices[start : start + size] for start in range(0, len(indices), size))


def _as(dtype: Any) -> Callable[[Any], Any]:
    """Numbers as numbers of a type; arrays have it already."""
    return lambda leaf: leaf if np.ndim(leaf) else dtype(leaf)


def least_value(lattice: Lattice, value: PlanValue, step_s: Scalar) -> Any:
    """What no plan of a lattice is worth less than that takes so many seconds: its products keep units busy."""
    return value.least(step_s, flop_bound_s(lattice) if value.loads is not None and len(lattice) else 0.0)


def fast_families(
    lattice: Lattice, rows: np.ndarray, value: PlanValue, limits: np.ndarray
) -> tuple[np.ndarray, Cost, np.ndarray]:
    """Families of some rows of which a plan may be below a value, one for each row; the cost of each, and a value that
    none of its plans is below.

    By their first plans, and with nothing recomputed, than which no plan of a family is faster. Families that differ in
    the schedule alone are dismissed by one bound.
    """
    families, limit_of = Families(lattice), np.full(len(lattice.ends), np.inf)
    limit_of[rows] = limits * (1 + MARGIN)
    rows = rows[_row_bounds(lattice, rows, value) <= limit_of[rows]]
    first, _ = families.of_any_schedule(rows)
    if np.isfinite(limits).any():
        least = _least_of_runs(lattice, first, value)
        first = first[least <= _of_plans(limit_of, lattice, first)]
    first = families.of_every_schedule(first)
    found = cost_of(lattice, first, functools.partial(_with_recompute, lattice, "none"), np.float32)
    least, limits = least_value(lattice, value, found.step_s), _of_plans(limit_of, lattice, first)
    below = np.flatnonzero(least <= limits)
    if value.loads is not None and np.isfinite(limits).any():
        least[below] = np.maximum(least[below], _least_paid(lattice, value, first[below]))
        below = below[least[below] <= limits[below]]
    return first[below], _some(found, below), least[below]


def _least_paid(lattice: Lattice, value: PlanValue, first: np.ndarray) -> np.ndarray:
    """Values that no plan of some families is below, with the draw of units that are busy with nothing recomputed."""
    parts = [np.empty(0)]
    for own in _blocks(first, np.float64):
        points = _with_recompute(lattice, "none", own, np.float64)
        parts.append(value.least_of_points(lattice.workload, lattice.cluster, points))
    return np.concatenate(parts)


def _row_bounds(lattice: Lattice, rows: np.ndarray, value: PlanValue) -> np.ndarray:
    """Values that no plan of some rows is below: by their bounds, which may be those of more plans."""
    bounds_s = np.full(len(rows), 0.0) if lattice.floor_s is None else lattice.floor_s[rows]
    fewer = "schedule" in lattice.fixed or any(lattice.fixed.get(name) is False for name in OVERLAPS)
    if fewer and Families(lattice).sizes[rows].sum() > _MANY:
        bounds_s = np.maximum(bounds_s, least_s(lattice, rows))
    return least_value(lattice, value, bounds_s)


def promising(lattice: Lattice, rows: np.ndarray, value: PlanValue, limits: np.ndarray) -> np.ndarray:
    """Numbers of the plans of some rows that may fit and be below a value, one for each row. Others are not."""
    first, plain, _ = fast_families(lattice, rows, value, limits)
    whole = bytes_of(lattice, first, functools.partial(_with_recompute, lattice, "full"), np.float32)
    least = (np.minimum(getattr(plain, name), getattr(whole, name)) for name in ("peak_bytes", "second_bytes"))
    return Families(lattice).members(first[lattice.needed(*least) <= 1 + MARGIN])[0]


def _of_plans(by_row: np.ndarray, lattice: Lattice, indices: np.ndarray) -> np.ndarray:
    return by_row[np.searchsorted(lattice.ends, indices, side="right")]


def _some(found: Cost, kept: np.ndarray) -> Cost:
    return Cost(**{name: getattr(found, name)[kept] for name in _FIELDS})


def _with_recompute(lattice: Lattice, name: str, indices: np.ndarray, dtype: Any) -> PlanPoint:
    return dataclasses.replace(lattice.points(indices, dtype), recompute=RECOMPUTES[name], modules=None)


def values_of(whole: Lattice, points: Sequence[PlanPoint], value: PlanValue, reached: float = np.inf) -> np.ndarray:
    """The value of each of many points that fits and may be below one, in float64; infinite for the others. They are of
    `whole`, or without `reached` of whatever lattices of a question."""

    def values(points: PlanPoint, count: int) -> np.ndarray:
        found, own = np.full(count, np.inf), functools.partial(some_points, points)
        cost = cost_of(whole, np.arange(count), own, np.float64)
        near = np.flatnonzero((least_value(whole, value, cost.step_s) < reached) & fits(whole, cost))
        if len(near):
            found[near] = value.of_points(whole.workload, whole.cluster, own(near, np.float64))
        return found

    return in_order(points, values)


def in_order(points: Sequence[PlanPoint], of: Callable[[PlanPoint, int], np.ndarray]) -> np.ndarray:
    """What a function says of each of many points: those together that have the same fields."""
    sizes, have = [np.size(each.tensor) for each in points], [(each.modules, each.offload) for each in points]
    starts, found = np.cumsum(sizes) - sizes, np.empty(sum(sizes))
    kinds = [tuple(row is None for row in rows) for rows in have]
    for kind in dict.fromkeys(kinds):
        own = [i for i, each in enumerate(kinds) if each == kind]
        places = np.concatenate([starts[i] + np.arange(sizes[i]) for i in own])
        found[places] = of(_joined([points[i] for i in own]), len(places))
    return found


def _joined(points: Sequence[PlanPoint]) -> PlanPoint:
    columns = list[list[np.ndarray]]()
    for each in points:
        columns.append(own := [])
        map_leaves(lambda leaf, own=own, each=each: own.append(np.broadcast_to(leaf, np.shape(each.tensor))), each)
    whole = iter([np.concatenate(column) for column in zip(*columns, strict=True)])
    return map_leaves(lambda _: next(whole), points[0])


def some_points(points: PlanPoint, places: np.ndarray, dtype: Any = None) -> PlanPoint:
    """Some of many points, all of whose fields are arrays."""
    return map_leaves(lambda leaf: leaf[places], points)


def fits(own: Lattice, cost: Cost, share: float = 1.0) -> np.ndarray:
    """Which plans fit in so much of what memory there is."""
    chip = own.cluster.accelerator
    return (cost.peak_bytes <= share * chip.hbm_bytes) & (cost.second_bytes <= chip.second_memory_bytes)


def _least_of_runs(lattice: Lattice, indices: np.ndarray, value: PlanValue) -> np.ndarray:
    """Values that no plan is below by more than float32 rounds which differs from one of these in schedule and
    recompute."""
    (workload, cluster), parts = numbers_of(lattice.workload, lattice.cluster, np.float32), [np.empty(0)]
    plain = map_leaves(np.float32, SCHEDULES["one_f_one_b"].row)
    for own in _blocks(indices, np.float32):
        fill = fill_of(lattice, np.searchsorted(lattice.ends, own, side="right")).astype(np.float32)
        point = map_leaves(_as(np.float32), _with_recompute(lattice, "none", own, np.float32))
        point = dataclasses.replace(point, schedule=plain, virtual_stages=np.float32(1.0))
        with np.errstate(all="ignore"):
            counted = counts(workload, point, _EXACT)
            found = any_schedule(lattice, counted, point, cluster, _EXACT, fill, value.loads)
        parts.append(np.broadcast_to((1 - MARGIN / 10) * value.least_busy(*found), len(own)))
    return np.concatenate(parts)
