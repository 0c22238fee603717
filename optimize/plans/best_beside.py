"""The best plan with an option that lattices leave alone: modules computed again, a second memory (`beside`).

Each saves memory for time: it is only looked for among families that are faster with nothing recomputed and do not fit
so. Those of all lattices are taken in the order of that time, which bounds them, until it is no better than what is
found.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Offload, Plan, PlanPoint, embed
from optimize.lattice import Families, Lattice
from optimize.plans.bounded import Found, is_answer, ordered
from optimize.plans.evaluation import MARGIN, bytes_of, fast_families, fits, in_order, some_points, values_of
from optimize.plans.plan_values import PlanValue
from optimize.plans.restricted import OFFLOADS
from optimize.plans.row_bounds import in_order_of_bounds

_FIRST, _MOST, _TIMES = 256, 4_096, 4  # families that are looked at together: few at first, for a value to stop at
_MOST_OPEN = 20_000  # families that are looked at with other options where nothing fits without

Variants = Sequence[Sequence[Mapping[str, Any]]]
"""Groups of other options for plans: fields of `Plan` that save memory for time. The last of a group saves most."""
Beside = tuple[Lattice, Variants, Callable[[Plan], object]]
"""A lattice, other options for its plans, and which of them are wanted (what is not None or False)."""


@dataclasses.dataclass(frozen=True)
class _Open:
    """Families of one lattice, by their first plan, and a value that none of each is below."""

    families: Families
    first: np.ndarray
    bounds: np.ndarray

    def some(self, places: np.ndarray) -> "_Open":
        return dataclasses.replace(self, first=self.first[places], bounds=self.bounds[places])

    def points(self, variant: Mapping[str, Any]) -> PlanPoint:
        """With other options; nothing offloaded is a row of zeros."""
        own = self.families.lattice
        other = embed(Plan(**variant), own.workload, 1.0, own.cluster.stack.habits)
        row = {"recompute": other.recompute, "modules": other.modules, "offload": other.offload or Offload()}
        return dataclasses.replace(self.families.points(self.first, np.float64), **row)


def best_beside(asked: Sequence[Beside], value: PlanValue, reached: float) -> tuple[Found, int] | None:
    """The best wanted plan below a value that differs from one of a lattice in one of its other options, and which.

    Lattices that may hold it come first, so that there is less to look at in the others.
    """
    best: tuple[Found, int] | None = None
    for number, (whole, groups, keeps) in enumerate(asked if value.function is None else ()):
        found = _best_of_lattice(whole, groups, keeps, value, reached)
        if found is not None:
            best, reached = (found, number), found[0]
    return best


def _best_of_lattice(
    whole: Lattice, groups: Variants, keeps: Callable[[Plan], object], value: PlanValue, reached: float
) -> Found | None:
    opened = list(_opened(ordered(whole), groups, value, reached))
    if not opened:
        return None
    bounds, of = _joined_with_places([each.bounds for each in opened])
    order = np.argsort(bounds, kind="stable")
    best, start, size = None, 0, _FIRST
    while start < len(order) and bounds[order[start]] < reached:
        block = np.sort(order[start : start + size])
        parts = [each.some(places) for each, places in zip(opened, _by_part(of, block), strict=True) if len(places)]
        best = _best_of(parts, groups, keeps, value, reached) or best
        reached, start, size = (best[0] if best else reached), start + size, min(_TIMES * size, _MOST)
    return best


def _joined_with_places(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All values, and for each the number of its part."""
    return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(part) for part in parts])


def _by_part(of: np.ndarray, places: np.ndarray) -> list[np.ndarray]:
    """Places among all values as places in each part."""
    starts = np.searchsorted(of, np.arange(of[-1] + 1))
    return [places[of[places] == part] - start for part, start in enumerate(starts)]


def _best_of(
    parts: Sequence[_Open], groups: Variants, keeps: Callable[[Plan], object], value: PlanValue, reached: float
) -> Found | None:
    """The best wanted plan of some families with any of their other options."""
    whole = parts[0].families.lattice  # workload and cluster are the same in all
    pairs = [(each, group) for each in parts for group in groups]
    leanest = [each.points(group[-1]) for each, group in pairs]
    fitting = np.split(
        in_order(leanest, functools.partial(_may_fit, whole)) > 0, _ends([each for each, _ in pairs])[:-1]
    )
    chosen = [
        (each.some(np.flatnonzero(kept)), variant)
        for (each, group), kept in zip(pairs, fitting, strict=True)
        for variant in (group if kept.any() else ())
    ]
    if not chosen:
        return None
    points, ends = [each.points(variant) for each, variant in chosen], _ends([each for each, _ in chosen])
    values = values_of(whole, points, value, reached)
    for place in np.argsort(values, kind="stable"):
        if not values[place] < reached:
            return None
        each, variant = chosen[which := int(np.searchsorted(ends, place, side="right"))]
        index = int(each.first[place - (ends[which - 1] if which else 0)])
        plan = dataclasses.replace(each.families.lattice.plan(index), recompute_share=1.0, **variant)
        if is_answer(plan, whole, keeps):
            return float(values[place]), plan
    return None


def _ends(parts: Sequence[_Open]) -> np.ndarray:
    return np.cumsum([len(each.first) for each in parts])


def _opened(whole: Lattice, groups: Variants, value: PlanValue, reached: float) -> Iterator[_Open]:
    """Families of which a plan may be below a value with some of a group of other options, and does not fit without."""
    for rows in (whole, _short(whole, groups, reached / value.least(1.0, 0.0))):
        if not groups or (reached == math.inf and len(Families(rows)) > _MOST_OPEN):
            continue
        first, bounds = _faster_without(rows, value, reached)
        if len(first):
            yield _Open(Families(rows), first, bounds)


def _short(whole: Lattice, groups: Variants, below_s: float) -> Lattice:
    """The rows of which no plan fits, with the bounds of those that fit with most in the second memory, as far as they
    are below so many seconds."""
    assert whole.floor_s is not None
    rows = whole.with_rows(np.flatnonzero(np.isinf(whole.floor_s)))
    most: dict[str, float] = {}
    for name, share in (pair for group in groups for variant in group for pair in variant.items()):
        if name in OFFLOADS:
            most[name] = max(share, most.get(name, 0.0))
    lean = dataclasses.replace(rows, fixed={**whole.fixed, **most}, floor_s=None)
    return (
        in_order_of_bounds(dataclasses.replace(rows, floor_s=None), lean, below_s) if len(rows.ends) and most else rows
    )


def _faster_without(whole: Lattice, value: PlanValue, reached: float) -> tuple[np.ndarray, np.ndarray]:
    """Families of which a plan may be below a value and does not fit so, nothing recomputed and nothing offloaded; and
    a value that none of each is below."""
    assert whole.floor_s is not None
    rows = np.flatnonzero(value.least(whole.floor_s, 0.0) < reached)
    plain = dataclasses.replace(whole, fixed={name: v for name, v in whole.fixed.items() if name not in OFFLOADS})
    first, _, cost = fast_families(plain, rows, value, np.full(len(rows), reached))
    short = ~fits(whole, cost, 1 - MARGIN)
    return first[short], (1 - MARGIN) * value.least(cost.step_s[short], 0.0)


def _may_fit(whole: Lattice, points: PlanPoint, count: int) -> np.ndarray:
    return fits(whole, bytes_of(whole, np.arange(count), functools.partial(some_points, points), np.float64))
