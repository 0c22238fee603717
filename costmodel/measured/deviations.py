"""What `calibrate` found, as a file holds it: deviations from the shipped constants, which every accelerator applies
to its own.

A deviation is in the constant's unbounded variable (its logarithm, or logit of a share), and belongs to all rows
(`shared`) or to those of one die, accelerator, class of software or fabric, like the tables of data/stacks.toml.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Stack
from costmodel.measured import posterior
from costmodel.measured.fit import LEVELS, PARAMETERS, SHARED, SLOW, Fitted, Group, shipped
from costmodel.measured.rows import Case
from costmodel.specs import constant_group, fail, is_number

_NOTHING = 2e-3  # of an unbounded variable
_LARGEST_SHARE = 0.999
_BY_NAME = {p.name: p for p in PARAMETERS if p.name != SLOW}


def as_deviations(after: Fitted, cases: Sequence[Case], before: Fitted | None = None) -> dict[str, Any]:
    """The tables: what moved, and the standard deviation of a prediction on each accelerator of the rows."""
    before = before or shipped()
    tables: dict[str, Any] = {"log_sd": {}}
    spread = posterior.log_sd(cases, after) if cases else np.zeros(0)
    for family in dict.fromkeys(case.family for case in cases):
        own = spread[[case.family == family for case in cases]]
        tables["log_sd"][family] = float(np.sqrt(np.mean(own**2)))
    for (name, level, member), z in zip(after.keys, after.z - before.z, strict=True):
        if name not in _BY_NAME:
            continue
        moved = float(getattr(_BY_NAME[name], level) * z)
        if abs(moved) > _NOTHING:
            place = tables.setdefault(level, {})
            (place if level == SHARED else place.setdefault(member, {}))[name] = moved
    return tables


def with_deviations(tables: Mapping[str, Any], where: str, base: Fitted | None = None) -> Fitted:
    """The fit that such tables describe. On accelerators of the rows its intervals are theirs."""
    base = base or shipped()
    checked = _checked(tables, where)
    moved = np.array([_of(checked, key) for key in base.keys])
    scatter = {**base.scatter, **{posterior.on(family): sd for family, sd in checked["log_sd"][""].items()}}
    return dataclasses.replace(base, z=base.z + moved, factor=np.zeros_like(base.factor), scatter=scatter)


def deviated(stack: Stack, tables: Mapping[str, Any], group: Group) -> Stack:
    """A stack whose constants moved by what such tables hold for its die, accelerator, software and fabric."""
    values = {}
    for name, p in _BY_NAME.items():
        moved = tables.get(SHARED, {}).get(name, 0.0)
        moved += sum(tables.get(level, {}).get(group[level], {}).get(name, 0.0) for level in LEVELS)
        value = float(getattr(stack, name))
        if moved and value > 0.0:
            value = min(value, _LARGEST_SHARE) if p.share else value
            values[name] = float(p.value(p.free(value) + moved))
    return dataclasses.replace(stack, **values)


def drawn_stack(stack: Stack, accelerator: str, generator: np.random.Generator, fitted: Fitted | None = None) -> Stack:
    """The constants of a stack as the posterior of the fit leaves them open: one draw of all of them together.

    Deviations that no row moved are drawn from their prior (Laplace approximation: normal in the unbounded variables).
    """
    fitted, group = fitted or shipped(), constant_group(accelerator, stack.software)
    known = dict(zip(fitted.keys, fitted.factor @ generator.standard_normal(len(fitted.keys)), strict=True))
    tables: dict[str, Any] = {SHARED: {}}
    for p in _BY_NAME.values():
        for level in (SHARED, *LEVELS):
            member = "" if level == SHARED else group[level]
            own = tables[SHARED] if level == SHARED else tables.setdefault(level, {}).setdefault(member, {})
            z = known.get((p.name, level, member), generator.standard_normal())
            own[p.name] = float(getattr(p, level) * z)
    return deviated(stack, tables, group)


def _of(tables: Mapping[str, Any], key: tuple[str, str, str]) -> float:
    name, level, member = key
    own = tables.get(level, {}).get(member, {}).get(name, 0.0)
    return own / getattr(_BY_NAME[name], level) if own else 0.0


def _checked(tables: Mapping[str, Any], where: str) -> dict[str, dict[str, dict[str, float]]]:
    """By level and member; what holds for all has the member ''."""
    found: dict[str, dict[str, dict[str, float]]] = {"log_sd": {"": {}}}
    for level, table in tables.items():
        if level not in (SHARED, "log_sd", *LEVELS) or not isinstance(table, Mapping):
            fail(where, f"deviations.{level}", table, f"tables named {', '.join((SHARED, 'log_sd', *LEVELS))}")
        members = {"": table} if level in (SHARED, "log_sd") else table
        for member, own in members.items():
            if not isinstance(own, Mapping):
                fail(where, f"deviations.{level}.{member}", own, "a table of constants")
            found.setdefault(level, {})[member] = {name: _number(level, name, own[name], where) for name in own}
    return found


def _number(level: str, name: str, value: Any, where: str) -> float:
    if level != "log_sd" and name not in _BY_NAME:
        fail(where, f"deviations.{level}", name, f"one of {', '.join(_BY_NAME)}")
    if not is_number(value):
        fail(where, f"deviations.{level}.{name}", value, "a number")
    return float(value)
