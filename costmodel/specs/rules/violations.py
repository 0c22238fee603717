"""All rules that a plan must keep to be launched: which of them one plan breaks, in words; which plans keep them."""

import functools
import math
import operator
from collections.abc import Collection, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.models import in_pieces
from costmodel.specs.files import SpecError, show
from costmodel.specs.given import expecting
from costmodel.specs.plans import PLAN_CHECKS
from costmodel.specs.rules import degrees, hardware, placement, stages
from costmodel.specs.rules.demands import Columns, Demands, Mask, Rule, demands

_INTEGERS = tuple(name for name, check in PLAN_CHECKS.items() if check.keep is int)
_DEGREES = frozenset(("tensor", "context", "data", "pipeline"))
_RULES = (
    degrees.accelerators,
    degrees.batch,
    degrees.tensor,
    degrees.sequence,
    degrees.heads_over_context,
    stages.layers_over_stages,
    stages.schedule,
    placement.data_shard,
    hardware.domain,
    hardware.precision,
    hardware.second_memory,
    degrees.experts,
    placement.placement,
)


def all_rules(d: Demands) -> Iterator[Rule]:
    """Every rule under these demands, in the order in which they are said."""
    return (rule for rules in _RULES for rule in rules(d))


def unsound_fields(plan: Plan) -> dict[str, str]:
    """Fields with a value that no plan may have, whatever the model and the cluster, in words."""
    found = ((name, check, getattr(plan, name)) for name, check in PLAN_CHECKS.items())
    return {n: f"`{n}` is {show(value)}; expected {check.expected}" for n, check, value in found if not check(value)}


@expecting()
def violations(plan: Plan, workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """All broken rules, in words; empty for a plan that can be launched. Memory is not a rule (Breakdown says it).

    Fields of a wrong type or name are reported first, and then rules that read them are not judged.
    """
    unsound = unsound_fields(plan)
    broken = list(unsound.values())
    if "pieces" not in unsound:
        try:
            workload = in_pieces(workload, plan.pieces)
        except ValueError as error:
            broken.append(f"`pieces` is {plan.pieces}: {error}")
    p, unknown = columns(plan, unsound), set(unsound) | ({"accelerators"} if unsound.keys() & _DEGREES else set())
    for rule in all_rules(demands(workload, cluster)):
        if unknown.isdisjoint(rule.reads) and not rule.keeps(p):
            broken.append(rule.says(p))
    return tuple(dict.fromkeys(broken))


def check_plan(plan: Plan, workload: Workload, cluster: Cluster) -> None:
    """Raise a `SpecError` of one line with all broken rules, if there are any."""
    broken = violations(plan, workload, cluster)
    if broken:
        raise SpecError("plan: " + "; ".join(broken))


def columns(plan: Plan, unsound: Collection[str] = ()) -> Columns:
    """What rules read of one plan, in Python's own integers, without the fields that are unsound."""
    fields = {name: getattr(plan, name) for name in PLAN_CHECKS if name not in unsound}
    fields |= {name: int(fields[name] or 0) for name in _INTEGERS if name in fields}
    if "stage_layers" in fields:
        held = tuple(map(int, fields["stage_layers"] or ()))
        fields["stage_layers"] = (len(held), sum(held), min(held, default=0))
    if _DEGREES.isdisjoint(unsound):
        fields["accelerators"] = math.prod(fields[name] for name in _DEGREES)
    return SimpleNamespace(**fields)


def kept(d: Demands, fields: Mapping[str, Any], new: Collection[str] = ()) -> Mask:
    """Which plans keep all rules that read only these columns and, if any is named, one of those that are `new`."""
    known, p = fields.keys(), SimpleNamespace(**fields)
    rules = (
        rule for rule in all_rules(d) if known >= set(rule.reads) and not (new and set(new).isdisjoint(rule.reads))
    )
    return functools.reduce(operator.and_, (rule.keeps(p) for rule in rules), True)
