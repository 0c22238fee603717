"""The best plan of a lattice alone, rows in the order of their lower bounds: for many lattices, one after another.

`find_plan` tells of what is around the best plan too; here nothing is evaluated that is proved to be worse than what
is known already, from whatever lattice that is.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import map_leaves
from costmodel.formulas import Cost
from costmodel.inputs import Offload, Plan, PlanPoint, embed
from costmodel.specs import violations
from optimize.lattice import Families, Lattice
from optimize.plans import exhaustive
from optimize.plans.best import Entry
from optimize.plans.evaluation import MARGIN, bytes_of, cost_of, fast_families
from optimize.plans.plan_values import PlanValue
from optimize.plans.restricted import OFFLOADS
from optimize.plans.row_bounds import in_order_of_bounds
from optimize.plans.runner_ups import fits_by_stage

_FIRST, _MOST, _TIMES = 16_384, 524_288, 8  # plans evaluated at once: few at first, for a value to compare bounds with
_MOST_OPEN = 20_000  # families that are looked at with other options where nothing fits without
_TOPS = (8, 256)  # of those: how many are tried until one is wanted and fits stage by stage

Known = dict[tuple[int, int, int, int], tuple[float, Lattice, tuple[Entry, ...]]]
"""By lattice, rows and number of plans: a value, those rows and their best plans below it."""
Found = tuple[float, Plan]
"""The value of a plan, less being better, and the plan."""


def ordered(whole: Lattice) -> Lattice:
    """The lattice with the rows of the lowest bound first, each with its bound in `floor_s`."""
    return in_order_of_bounds(whole) if len(whole) and whole.floor_s is None else whole


def least(whole: Lattice, value: PlanValue) -> float:
    """A lower bound of the values of all its plans that fit; infinite where none is legal, or none fits."""
    return math.inf if not len(whole) else exhaustive.floor(ordered(whole), value, 0)


def best_below(
    whole: Lattice,
    value: PlanValue,
    reached: float = math.inf,
    keeps: Callable[[Plan], bool] = lambda plan: True,
    known: Known | None = None,
    most: float = math.inf,
) -> tuple[Found | None, float]:
    """The best plan below `reached` that fits in every stage and that `keeps` takes; and a value that nothing is below.

    The second is infinite where the answer is proved, that there is none below `reached` too. It is not where the
    `_TOPS[-1]` best plans of some rows were refused one and all. What is evaluated is kept in `known`, for others that
    ask of the same lattice. After `most` plans the search gives up, with the bound of what is left.
    """
    whole, found, unseen, known = ordered(whole), None, math.inf, {} if known is None else known
    start, size = 0, _FIRST
    while start < len(whole.ends) and _bound(whole, start, value) < reached:
        before = int(whole.ends[start - 1]) if start else 0
        if before >= most:
            unseen = min(unseen, _bound(whole, start, value))
            break
        stop = max(start + 1, int(np.searchsorted(whole.ends, before + size, side="right")))
        rows = functools.partial(_rows_of, whole, start, stop, value, known, reached)
        better, open_from = _of_rows(rows, reached, keeps)
        found, unseen = better or found, min(unseen, open_from)
        reached, start, size = (found[0] if found else reached), stop, min(_TIMES * size, _MOST)
    return found, unseen if unseen < reached else math.inf


Variants = Sequence[Sequence[Mapping[str, Any]]]
"""Groups of other options for plans: fields of `Plan` that save memory for time. The last of a group saves most."""
Beside = tuple[Lattice, Variants, Callable[[Plan], bool]]
"""A lattice, other options for its plans, and which of them are wanted."""


def best_beside(asked: Sequence[Beside], value: PlanValue, reached: float) -> tuple[Found, int] | None:
    """The best wanted plan below `reached` that differs from one of a lattice in one of its other options, and which.

    It is looked for among plans that are faster with nothing recomputed and do not fit so, which is all that can be.
    """
    todo, points = _to_do(asked, value, reached) if value.function is None else ([], [])
    if not todo:
        return None
    whole = asked[todo[0][0]][0]
    values = _in_order(points, functools.partial(_values, whole, value, reached))
    for place in np.argsort(values, kind="stable"):
        number, families, index, variant = todo[place]
        if not values[place] < reached:
            return None
        plan = dataclasses.replace(families.lattice.plan(index), recompute_share=1.0, **variant)
        legal = asked[number][-1](plan) and not violations(plan, whole.workload, whole.cluster)
        if legal and fits_by_stage(whole.workload, whole.cluster, plan):
            return (float(values[place]), plan), number
    return None


def _to_do(
    asked: Sequence[Beside], value: PlanValue, reached: float
) -> tuple[list[tuple[int, Families, int, Mapping[str, Any]]], list[PlanPoint]]:
    """Which of the lattices, families, the number of their first plan and its other options; and their points."""
    todo, points = list[tuple[int, Families, int, Mapping[str, Any]]](), list[PlanPoint]()
    for number, (whole, groups, _) in enumerate(asked):
        for families, group, first in _open(ordered(whole), groups, value, reached):
            for variant in group:
                todo += [(number, families, int(index), variant) for index in first]
                points.append(_points_with(families, variant, first, np.float64))
    return todo, points


def _values(whole: Lattice, value: PlanValue, reached: float, points: PlanPoint, count: int) -> np.ndarray:
    """The value of each point that fits and may be below one; infinite for the others."""
    cost, found = cost_of(whole, np.arange(count), functools.partial(_some, points), np.float64), np.full(count, np.inf)
    near = np.flatnonzero((value.least(cost.step_s, 0.0) < reached) & _fits(whole, cost))
    if len(near):
        found[near] = value.of_points(whole.workload, whole.cluster, _some(points, near))
    return found


def _in_order(points: Sequence[PlanPoint], of: Callable[[PlanPoint, int], np.ndarray]) -> np.ndarray:
    """What a function says of each of many points: those with modules together, and those without."""
    sizes = [np.size(each.tensor) for each in points]
    starts, found = np.cumsum(sizes) - sizes, np.empty(sum(sizes))
    for alone in (False, True):
        own = [i for i, each in enumerate(points) if (each.modules is None) == alone]
        if own:
            places = np.concatenate([starts[i] + np.arange(sizes[i]) for i in own])
            found[places] = of(_joined([points[i] for i in own]), len(places))
    return found


def _open(
    whole: Lattice, groups: Variants, value: PlanValue, reached: float
) -> Iterator[tuple[Families, Sequence[Mapping[str, Any]], np.ndarray]]:
    """Families of which a plan may be below a value with some of a group of other options, and fit."""
    for rows in (whole, _short(whole, groups)):
        if not groups or (reached == math.inf and len(Families(rows)) > _MOST_OPEN):
            continue
        first = _faster_without(rows, value, reached)
        if not len(first):
            continue
        families = Families(rows)
        leanest = [_points_with(families, group[-1], first, np.float64) for group in groups]
        may_fit = _in_order(leanest, functools.partial(_may_fit, whole)) > 0
        for group, fits in zip(groups, may_fit.reshape(len(groups), -1), strict=True):
            if fits.any():
                yield families, group, first[fits]


def _may_fit(whole: Lattice, points: PlanPoint, count: int) -> np.ndarray:
    return _fits(whole, bytes_of(whole, np.arange(count), functools.partial(_some, points), np.float64))


def _short(whole: Lattice, groups: Variants) -> Lattice:
    """The rows of which no plan fits, with the bounds of those that fit with most in the second memory."""
    assert whole.floor_s is not None
    rows = whole.with_rows(np.flatnonzero(np.isinf(whole.floor_s)))
    most: dict[str, float] = {}
    for name, share in (pair for group in groups for variant in group for pair in variant.items()):
        if name in OFFLOADS:
            most[name] = max(share, most.get(name, 0.0))
    lean = dataclasses.replace(rows, fixed={**whole.fixed, **most}, floor_s=None)
    return in_order_of_bounds(dataclasses.replace(rows, floor_s=None), lean) if len(rows.ends) and most else rows


def _faster_without(whole: Lattice, value: PlanValue, reached: float) -> np.ndarray:
    """Families of which a plan may be below a value and does not fit so, nothing recomputed and nothing offloaded."""
    assert whole.floor_s is not None
    rows = np.flatnonzero(value.least(whole.floor_s, 0.0) < reached)
    plain = dataclasses.replace(whole, fixed={name: v for name, v in whole.fixed.items() if name not in OFFLOADS})
    first, _, cost = fast_families(plain, rows, value, np.full(len(rows), reached))
    return first[~_fits(whole, cost, 1 - MARGIN)]


def _points_with(families: Families, variant: Mapping[str, Any], first: np.ndarray, dtype: Any) -> PlanPoint:
    """Points of families with other options; nothing offloaded is a row of zeros."""
    own = families.lattice
    other = embed(Plan(**variant), own.workload, 1.0, own.cluster.stack.habits)
    points = families.points(first, dtype)
    row = {"recompute": other.recompute, "modules": other.modules, "offload": other.offload or Offload()}
    return map_leaves(lambda leaf: np.broadcast_to(leaf, len(first)), dataclasses.replace(points, **row))


def _joined(points: Sequence[PlanPoint]) -> PlanPoint:
    columns = list[list[np.ndarray]]()
    for each in points:
        columns.append([])
        map_leaves(columns[-1].append, each)
    whole = iter([np.concatenate(column) for column in zip(*columns, strict=True)])
    return map_leaves(lambda _: next(whole), points[0])


def _some(points: PlanPoint, places: np.ndarray, dtype: Any = None) -> PlanPoint:
    return map_leaves(lambda leaf: leaf[places], points)


def _fits(own: Lattice, cost: Cost, share: float = 1.0) -> np.ndarray:
    chip = own.cluster.accelerator
    return (cost.peak_bytes <= share * chip.hbm_bytes) & (cost.second_bytes <= chip.second_memory_bytes)


def _bound(whole: Lattice, row: int, value: PlanValue) -> float:
    if whole.floor_s is None or value.function is not None:
        return -math.inf
    return value.least(float(whole.floor_s[row]), 0.0)


def _rows_of(
    whole: Lattice, start: int, stop: int, value: PlanValue, known: Known, reached: float, top: int
) -> tuple[Lattice, tuple[Entry, ...]]:
    """Some rows, and the best plans of them below a value, with what else is known."""
    key = id(whole), start, stop, top
    if key not in known or known[key][0] < reached:
        rows = whole.with_rows(np.arange(start, stop))
        bounded = value.function is None
        best = (
            exhaustive.sparing(rows, value, top, reached, shapes=False)
            if bounded
            else exhaustive.search(rows, value, top)
        )
        known[key] = reached, rows, best.top
    return known[key][1:]


def _of_rows(
    rows_of: Callable[[int], tuple[Lattice, tuple[Entry, ...]]], reached: float, keeps: Callable[[Plan], bool]
) -> tuple[Found | None, float]:
    least = math.inf
    for top in _TOPS:
        rows, entries = rows_of(top)
        for entry in entries:
            if not entry.value < reached:
                return None, math.inf
            plan = rows.plan(entry.index)
            legal = keeps(plan) and not violations(plan, rows.workload, rows.cluster)
            if legal and fits_by_stage(rows.workload, rows.cluster, plan):
                return (entry.value, plan), math.inf
        if len(entries) < top:
            return None, math.inf
        least = entries[-1].value
    return None, least
