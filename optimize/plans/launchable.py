"""Which frameworks can launch a plan, and the best plan that each of them can: by the exporters' own rules.

A framework's plans are some lattices (`narrow`), of which what lies beyond the table is left out one by one
(`Framework.cannot`). All have rows of degrees of the lattice of all plans, whose lower bounds hold for them too.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.inputs import Plan, Workload
from optimize.lattice import OVERLAPS, SEARCHED, Lattice, lattice, plan_precision
from optimize.launch import FRAMEWORKS, Framework
from optimize.plans.bounded import Found, Known, best_below, ordered
from optimize.plans.plan_values import PlanValue
from optimize.plans.restricted import narrow

Made = dict[str, Lattice | None]
"""Lattices by what is fixed in them; None: no plan is legal."""


def launchers(plan: Plan, workload: Workload) -> tuple[str, ...]:
    """Names of the frameworks whose launch files can say all of a plan."""
    return tuple(name for name, framework in FRAMEWORKS.items() if not framework.cannot(plan, workload))


def refusals(plan: Plan, workload: Workload) -> dict[str, str]:
    """By the frameworks that cannot be told a plan: the first thing of it that they cannot be told."""
    told = {name: framework.cannot(plan, workload) for name, framework in FRAMEWORKS.items()}
    return {name: why[0] for name, why in told.items() if why}


def best_for_each(whole: Lattice, value: PlanValue, names: Iterable[str] = tuple(FRAMEWORKS)) -> dict[str, Found]:
    """The best plan of each framework, of those that have one; `whole` has the rows of all plans, in `ordered` form."""
    made: Made = {}
    known: Known = {}
    found = {name: _best_of(whole, value, FRAMEWORKS[name], math.inf, made, known) for name in names}
    return {name: best for name, best in found.items() if best is not None}


def best_of_any(whole: Lattice, value: PlanValue, names: Iterable[str], reached: float) -> tuple[str, Found] | None:
    """The best plan below `reached` that one of the frameworks can launch, and which of them."""
    made: Made = {}
    known: Known = {}
    best: tuple[str, Found] | None = None
    for name in names:
        found = _best_of(whole, value, FRAMEWORKS[name], reached, made, known)
        if found is not None:
            best, reached = (name, found), found[0]
    return best


def _best_of(
    whole: Lattice, value: PlanValue, framework: Framework, reached: float, made: Made, known: Known
) -> Found | None:
    best: Found | None = None
    for part in parts(whole, framework, made):
        found, _ = best_below(part, value, reached, _told(framework, whole.workload), known)
        if found is not None:
            best, reached = found, found[0]
    return best


def _told(framework: Framework, workload: Workload) -> Callable[[Plan], bool]:
    return lambda plan: not framework.cannot(plan, workload)


def parts(whole: Lattice, framework: Framework, made: Made) -> list[Lattice]:
    """The lattices of a framework's alternatives, the smallest first; `made` holds those that others had, too."""
    lattices = []
    for fields in _narrowed(whole, framework):
        key = repr(sorted((name, sorted(map(repr, _members(asked)))) for name, asked in fields.items()))
        if key not in made:
            made[key] = _with_bounds(lattice(whole.workload, whole.cluster, fields), whole)
        if (part := made[key]) is not None:
            lattices.append(part)
    return sorted(lattices, key=len)


def _members(asked: Any) -> Iterable[Any]:
    return asked if isinstance(asked, set | frozenset) else (asked,)


def _narrowed(whole: Lattice, framework: Framework) -> Iterator[Mapping[str, Any]]:
    for alternative in framework.alternatives:
        fields = narrow(whole.fixed, alternative, plan_precision(whole.cluster))
        if fields is not None:
            yield fields


def _with_bounds(part: Lattice, whole: Lattice) -> Lattice | None:
    """The part with the bounds of the whole, where both compute alike; else with its own."""
    if not len(part):
        return None
    if whole.floor_s is None or _plain(part) != _plain(whole):
        return ordered(part)
    keys, own = _keys(whole), _keys(part)
    order = np.argsort(keys)
    place = order[np.minimum(np.searchsorted(keys, own, sorter=order), len(keys) - 1)]
    if np.any(keys[place] != own):
        return ordered(part)
    floor_s = whole.floor_s[place]
    order = np.argsort(floor_s, kind="stable")
    return dataclasses.replace(part.with_rows(order), floor_s=floor_s[order])


def _plain(own: Lattice) -> dict[str, Any]:
    """What the bounds depend on beside the rows; overlap that is off is never faster."""
    left_out = {*SEARCHED, *OVERLAPS}
    given = {field.name: field.default for field in dataclasses.fields(Plan)} | plan_precision(own.cluster)
    given |= {name: asked for name, asked in own.fixed.items() if asked is not None}
    return {name: asked for name, asked in given.items() if name not in left_out}


def _keys(own: Lattice) -> np.ndarray:
    """Each row of degrees as one value."""
    return np.ascontiguousarray(np.stack(list(own.rows.values()), axis=1)).view(f"V{8 * len(own.rows)}").ravel()
