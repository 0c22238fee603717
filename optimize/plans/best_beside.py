"""The best plan with an option that lattices leave alone: modules computed again, a second memory (`beside`).

Each saves memory for time: it is only looked for among families that are faster with nothing recomputed. Those of all
lattices are taken in the order of that time, which bounds them, until it is no better than what is found.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Offload, Plan, PlanPoint, Workload, embed
from costmodel.measured import FITS, with_margin
from costmodel.specs import COUNT, FLAG, LEAF, MAPPING, PROBABILITY, Check, expecting
from optimize.lattice import SEARCHED, Families, Lattice, lattice, usual_formats
from optimize.launch import FRAMEWORKS
from optimize.plans import exhaustive
from optimize.plans.bounded import Found, is_answer, ordered
from optimize.plans.evaluation import (
    MARGIN,
    bytes_of,
    fast_families,
    fits,
    in_order,
    least_value,
    some_points,
    values_of,
)
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.plan_values import PlanValue, UserObjective, value_on
from optimize.plans.restricted import OFFLOADS, Part, Search, beside, its_own, members, narrowed, told_by
from optimize.plans.result import PlanResult, compared, incomplete, lowered, merged, restriction_cost
from optimize.plans.row_bounds import in_order_of_bounds
from optimize.question import Objective
from optimize.status import CommandError, Status, unless_refused
from optimize.time_limit import or_else

_CHECKS = {
    "objective": Check(
        f"one of {', '.join(each.key for each in Objective)}, or a function",
        lambda value: isinstance(value, str) or callable(value),
    ),
    "fixed": MAPPING,
    "tokens": LEAF,
    "top": COUNT,
    "margin": PROBABILITY,
    "unrestricted": FLAG,
}
_FIRST, _MOST, _TIMES = 256, 4_096, 4  # families that are looked at together: few at first, for a value to stop at
_MOST_OPEN = 262_144  # families that are opened at once where nothing is known to fit

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
        """Points with other options; nothing offloaded is a row of zeros."""
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
    """The same of one lattice. Where nothing is known to fit, first some plan that does, of a few rows at a time: its
    value is what bounds are compared with."""
    best, rows = None, ordered(whole)
    if groups and reached == math.inf:
        short = _short(rows, groups, math.inf)
        blocks = (block for each in (rows, short) for block in _blocks(each))
        firsts = (_best_of_open(_opened([block], value, math.inf), groups, keeps, value, math.inf) for block in blocks)
        best = next((found for found in firsts if found is not None), None)
        reached = math.inf if best is None else best[0]
    if not groups or reached == math.inf:
        return None
    parts = [rows, _short(rows, groups, (reached - least_value(whole, value, 0.0)) / value.least(1.0, 0.0))]
    return _best_of_open(_opened(parts, value, reached), groups, keeps, value, reached) or best


def _best_of_open(
    opened: Sequence[_Open], groups: Variants, keeps: Callable[[Plan], object], value: PlanValue, reached: float
) -> Found | None:
    """The best of some families, a few at a time, in the order of their bounds."""
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


def _opened(parts: Iterable[Lattice], value: PlanValue, reached: float) -> list[_Open]:
    """Families of which a plan may be below a value with other options."""
    each = ((rows, *_faster_without(rows, value, reached)) for rows in parts)
    return [_Open(Families(rows), first, bounds) for rows, first, bounds in each if len(first)]


def _blocks(rows: Lattice) -> Iterator[Lattice]:
    """Rows that may fit, in their order, so many at a time that their families are few at first."""
    assert rows.floor_s is not None
    ends, stop, size = Families(rows).ends, int(np.searchsorted(rows.floor_s, math.inf)), _MOST
    start = 0
    while start < stop:
        before = int(ends[start - 1]) if start else 0
        end = min(stop, max(start + 1, int(np.searchsorted(ends, before + size, side="right"))))
        yield rows.with_rows(np.arange(start, end))
        start, size = end, min(_TIMES * size, _MOST_OPEN)


def least_beside(whole: Lattice, groups: Variants, value: PlanValue) -> float:
    """A value that no plan is below which fits with other options alone, because it lies in the second memory."""
    if not groups or not len(whole):
        return math.inf
    rows = _short(ordered(whole), groups, math.inf)
    return float(least_value(whole, value, rows.floor_s[0])) if len(rows) and rows.floor_s is not None else math.inf


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
    """Families of which a plan may be below a value with nothing recomputed and nothing offloaded; and a value that
    none of each is below. Some of them fit so, with every kind of layer spread evenly, but not in the model's order."""
    assert whole.floor_s is not None
    rows = np.flatnonzero(least_value(whole, value, whole.floor_s) < reached)
    plain = dataclasses.replace(whole, fixed={name: v for name, v in whole.fixed.items() if name not in OFFLOADS})
    first, _, least = fast_families(plain, rows, value, np.full(len(rows), reached))
    return first, (1 - MARGIN) * least


def _may_fit(whole: Lattice, points: PlanPoint, count: int) -> np.ndarray:
    return fits(whole, bytes_of(whole, np.arange(count), functools.partial(some_points, points), np.float64))


def best_variant(
    parts: Mapping[str, list[Part]],
    fixed: Mapping[str, Any],
    value: PlanValue,
    reached: float,
    known: Plan | None = None,
) -> tuple[str, Found, Part] | None:
    """The best plan below a value with what some framework takes beside its lattices, which of them, and beside which
    lattice. That of a known plan comes first."""
    asked = _besides(parts, fixed)
    if known is not None:
        asked.sort(key=lambda each: not its_own(known, [(each[1], each[2])]))
    wanted: list[Beside] = [
        (part, variants, functools.partial(_first_that_can, names, part)) for names, _, part, variants in asked
    ]
    if (better := best_beside(wanted, value, reached)) is None:
        return None
    found, (names, fields, part, _) = better[0], asked[better[1]]
    name = _first_that_can(names, part, found[1])
    assert name is not None, found
    return name, found, (fields, part)


def _besides(
    parts: Mapping[str, list[Part]], fixed: Mapping[str, Any]
) -> list[tuple[list[str], dict[str, Any], Lattice, Variants]]:
    """Lattices with what else frameworks take for their plans, and which of them: those that hold another one's."""
    found = list[tuple[list[str], dict[str, Any], Lattice, Variants]]()
    for name, (fields, part) in ((name, pair) for name, own in parts.items() for pair in own):
        variants = beside(FRAMEWORKS[name], fields, fixed, part.workload, part.cluster)
        same = (names for names, outer, _, others in found if others == variants and _contains(outer, fields))
        if variants and (names := next(same, None)) is not None:
            names.append(name)
        elif variants:
            found.append(([name], fields, part, variants))
    return found


def least_variant(parts: Mapping[str, list[Part]], fixed: Mapping[str, Any], value: PlanValue) -> float:
    """A value that no plan is below which fits with what frameworks take beside their lattices alone."""
    found = (least_beside(part, variants, value) for _, _, part, variants in _besides(parts, fixed))
    return min(found, default=math.inf)


def all_besides(whole: Lattice, names: Iterable[str] = tuple(FRAMEWORKS)) -> Variants:
    """What any of these frameworks may take beside its lattices, for all plans together: no lattice is made."""
    usual, found = usual_formats(whole.cluster, whole.fixed), list[Sequence[Mapping[str, Any]]]()
    for framework in map(FRAMEWORKS.__getitem__, names):
        for fields in narrowed(framework, whole.fixed, usual, whole.workload):
            groups = beside(framework, fields, whole.fixed, whole.workload, whole.cluster)
            found += [group for group in groups if group not in found]
    return found


def _contains(outer: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    """Whether all plans with some fields are among those with others: they differ in what is searched alone."""
    alike = all(outer.get(name) == inner.get(name) for name in {*outer, *inner}.difference(SEARCHED))
    asked = {name: kept for name, kept in outer.items() if name in SEARCHED}
    return alike and all(n in inner and set(members(inner[n])) <= set(members(kept)) for n, kept in asked.items())


def _first_that_can(names: Iterable[str], of: Lattice, plan: Plan) -> str | None:
    """The first of some frameworks that can be told a plan of a lattice."""
    return next((name for name in names if told_by(name, of)(plan)), None)


@expecting(**_CHECKS)
def find_plan(
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    objective: str | UserObjective = "step_s",
    tokens: float | None = None,
    top: int = 10,
    search: Search = exhaustive.sooner,
    unrestricted: bool = False,
    margin: float = FITS,
) -> PlanResult:
    """The best of all plans that are searched and fit, by `objective` (a key of `Objective`, or your function).

    Those of the lattice (`find_in_lattice`), and what any framework takes beside its own for any of them: single
    modules computed again, a second memory. No framework needs to launch it, and beside the lattice nothing is compared
    by a function. A plan fits where it does so with the probability `margin`, by how far predictions of memory were off
    on measured runs of the software; 0.5 takes them as they are. `fixed` holds fields of `Plan` that are not searched
    (a set among its values: any of its members); with `unrestricted` the answer says what they cost. Its `gap` is of
    what is searched; `not_searched` names other legal plans. Raises `CommandError` where no plan is legal (bad input),
    or none fits (infeasible).
    """
    job, given = (workload, cluster), dict(fixed or {})
    question: dict[str, Any] = {"objective": objective, "tokens": tokens, "search": search, "margin": margin}
    if not isinstance(objective, str):
        return find_in_lattice(*job, fixed=given, unrestricted=unrestricted, top=top, **question)
    result = _with_any_variant(*job, given, {**question, "top": top})
    kept = {name: value for name, value in given.items() if name not in SEARCHED}  # what no search would change
    if not unrestricted or kept.keys() == given.keys() or result.status is not Status.ok:
        return result
    heard = list[bool]()
    freely = functools.partial(_with_any_variant, *job, kept, {**question, "top": 1})
    free = or_else(lambda: unless_refused(freely), None, heard)
    cost = restriction_cost(result, free if free is not None and free.status is Status.ok else None)
    return dataclasses.replace(incomplete(result) if heard else result, restriction=cost)


def _with_any_variant(
    workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], question: Mapping[str, Any]
) -> PlanResult:
    """The answer of `find_in_lattice`, with what any framework takes beside its lattices where that is better or all
    that fits."""
    machine, result, why = with_margin(cluster, question["margin"]), None, None
    whole = ordered(lattice(workload, machine, usual_formats(machine, fixed) | dict(fixed)))
    value, groups = value_on(whole, question["objective"], question["tokens"]), all_besides(whole)
    try:
        result = find_in_lattice(workload, cluster, fixed=fixed, among=whole, **question)
    except CommandError as error:
        if error.status is not Status.infeasible:
            raise
        why = error
    if result is not None and result.status is not Status.ok:
        return result

    def better() -> PlanResult | None:
        reached = math.inf if result is None else compared(result, result.value)
        found = best_beside([(whole, groups, lambda plan: True)], value, reached)
        if found is None:
            return result
        own = {name: kept for name in ("recompute", *OFFLOADS) if (kept := getattr(found[0][1], name))}
        other = find_in_lattice(workload, cluster, fixed={**fixed, **own}, **question)
        answers = [other] if result is None else [other, result]
        return dataclasses.replace(merged(answers, question["top"]), fixed=dict(fixed))

    heard = list[bool]()
    answer = or_else(better, result, heard)
    if answer is None:
        raise why if why is not None and not heard else KeyboardInterrupt
    return incomplete(lowered(answer, least_beside(whole, groups, value))) if heard else answer
