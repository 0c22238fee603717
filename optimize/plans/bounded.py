"""The best plan of a lattice alone, rows in the order of their lower bounds: for many lattices, one after another.

`find_in_lattice` tells of what is around the best plan too; here nothing is evaluated that is proved to be worse than
what is known already, from whatever lattice that is.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from costmodel.inputs import Plan
from costmodel.specs import violations
from optimize.lattice import Lattice
from optimize.plans import exhaustive
from optimize.plans.best import Best, Entry
from optimize.plans.evaluation import least_value, values_of
from optimize.plans.plan_values import PlanValue
from optimize.plans.row_bounds import in_order_of_bounds, least_of_all_s
from optimize.plans.runner_ups import fits_by_stage

_FIRST, _MOST, _TIMES = 16_384, 524_288, 8  # plans evaluated at once: few at first, for a value to compare bounds with
_GLANCE, _AMONG = 512, 1_048_576  # plans of each lattice that are looked at first, among so many
_TOP = 256  # of those: how many are tried until one is wanted and fits stage by stage

Known = dict[tuple[int, int, int], tuple[float, Lattice, Best]]
"""By lattice and rows: a value, those rows and their best plans below it."""
Found = tuple[float, Plan]
"""The value of a plan, less being better, and the plan."""


def ordered(whole: Lattice) -> Lattice:
    """The lattice with the rows of the lowest bound first, each with its bound in `floor_s`."""
    return in_order_of_bounds(whole) if len(whole) and whole.floor_s is None else whole


def least(whole: Lattice, value: PlanValue) -> float:
    """A lower bound of the values of all its plans that fit; infinite where none is legal, or none fits."""
    return math.inf if not len(whole) else exhaustive.floor(ordered(whole), value, 0)


def least_of_any(whole: Lattice, value: PlanValue) -> float:
    """The same of all its plans and of those beside it, whether or not they fit: a third of the work."""
    return least_value(whole, value, least_of_all_s(whole)) if len(whole) else math.inf


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
    `_TOP` best plans of some rows were refused one and all. What is evaluated is kept in `known`, for others that
    ask of the same lattice. After `most` plans the search gives up, with the bound of what is left.
    """
    whole, found, unseen, known = ordered(whole), None, math.inf, {} if known is None else known
    start, size = 0, _FIRST if reached == math.inf else _TIMES * _FIRST
    while start < len(whole.ends) and _bound(whole, start, value) < reached:
        before = int(whole.ends[start - 1]) if start else 0
        if before >= most:
            unseen = min(unseen, _bound(whole, start, value))
            break
        stop = max(start + 1, int(np.searchsorted(whole.ends, before + size, side="right")))
        better, open_from = _of_rows(*_rows_of(whole, start, stop, value, known, reached), reached, keeps)
        found, unseen = better or found, min(unseen, open_from)
        reached, start, size = (found[0] if found else reached), stop, min(_TIMES * size, _MOST)
    return found, unseen if unseen < reached else math.inf


def _bound(whole: Lattice, row: int, value: PlanValue) -> float:
    if whole.floor_s is None or value.function is not None:
        return -math.inf
    return least_value(whole, value, float(whole.floor_s[row]))


def _rows_of(
    whole: Lattice, start: int, stop: int, value: PlanValue, known: Known, reached: float
) -> tuple[Lattice, tuple[Entry, ...]]:
    """Some rows, and the best plans of them below a value, with what else is known."""
    key = id(whole), start, stop
    if key not in known or known[key][0] < reached:
        rows = whole.with_rows(np.arange(start, stop))
        bounded = value.function is None
        best = (
            exhaustive.sparing(rows, value, _TOP, reached, shapes=False)
            if bounded
            else exhaustive.search(rows, value, _TOP)
        )
        known[key] = reached, rows, best
    return known[key][1], known[key][2].top


def _of_rows(
    rows: Lattice, entries: tuple[Entry, ...], reached: float, keeps: Callable[[Plan], bool]
) -> tuple[Found | None, float]:
    """The first of the best plans of some rows that is wanted; and a value that no plan left out is below."""
    for entry in entries:
        if not entry.value < reached:
            return None, math.inf
        if is_answer(plan := rows.plan(entry.index), rows, keeps):
            return (entry.value, plan), math.inf
    return None, math.inf if len(entries) < _TOP else entries[-1].value


def is_answer(plan: Plan, of: Lattice, keeps: Callable[[Plan], object]) -> bool:
    """Whether a plan of a lattice is wanted, legal and fits in every stage."""
    wanted = keeps(plan) and not violations(plan, of.workload, of.cluster)
    return bool(wanted) and fits_by_stage(of.workload, of.cluster, plan)


def glance(lattices: Sequence[Lattice], value: PlanValue) -> list[Found]:
    """The best of some plans of each lattice, of those with the lowest bounds, evaluated together; an infinite value
    where none of them fits."""
    some = [np.unique(np.linspace(0, min(len(each), _AMONG) - 1, _GLANCE).astype(np.int64)) for each in lattices]
    if not some:
        return []
    points = [each.points(indices, np.float64) for each, indices in zip(lattices, some, strict=True)]
    values = np.split(values_of(lattices[0], points, value), np.cumsum(list(map(len, some)))[:-1])
    best = [int(np.argmin(own)) for own in values]
    return [(float(values[i][best[i]]), each.plan(int(some[i][best[i]]))) for i, each in enumerate(lattices)]
