"""The plans that one launcher can run: `equipoise plan --only megatron`.

What a launcher can be told is a table of alternatives (`launch/framework.py`). Each is a lattice of its own, with the
fields that it allows; what lies beyond the table (`Framework.cannot`) is left out of each one's best.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from costmodel.inputs import RECOMPUTES, Cluster, Plan, Workload, modules_of
from optimize.lattice import Lattice, usual_formats
from optimize.launch import FRAMEWORKS, FREE, Framework
from optimize.plans.best import Best, Entry
from optimize.plans.plan_values import PlanValue
from optimize.status import CommandError, Status

SEARCHED = (
    "tensor", "context", "pipeline", "data", "expert", "expert_tensor", "microbatch", "schedule", "virtual_stages",
    "zero_stage", "sequence_parallel", "context_kind", "recompute",
)  # fmt: skip
"""Fields of which a lattice takes sets."""
JUDGED = ("domain", "data_shard", "stage_layers")
"""Fields that follow from others in a lattice: plans that ask too much are left out one by one."""
AMONG = (2, 16, 128, 1024)
"""Plans that are looked at, for each one told, for those that can be launched: until all that are asked are among them,
of the last ones until there is one."""

_DEFAULTS = {field.name: field.default for field in dataclasses.fields(Plan)}
OFFLOADS = tuple(name for name in _DEFAULTS if name.startswith("offload_"))
FORMATS = ("precision", "gradient_dtype")  # of numbers that are multiplied, and of those that are summed
Part = tuple[dict[str, Any], Lattice]
"""What an alternative of a framework fixes, and its lattice with bounds."""
Search = Callable[[Lattice, PlanValue, int], Best]
"""The best few plans of a lattice by a value."""


def narrow(
    fixed: Mapping[str, Any], alternative: Mapping[str, Collection[Any]], usual: Mapping[str, Any]
) -> dict[str, Any] | None:
    """What is fixed, and what the alternative allows; None where the two exclude each other.

    Overlap is left to the lattice, which has it wherever there is traffic, unless it is not allowed.
    """
    fields = dict(fixed)
    for name in _DEFAULTS:
        given = fixed.get(name)
        allowed = tuple(alternative.get(name, () if name in FREE else (_DEFAULTS[name],)))
        if name in JUDGED or not allowed:
            continue
        if given is not None:
            wanted = given if isinstance(given, set | frozenset) else (given,)
            allowed = tuple(value for value in allowed if value in wanted)
            if not allowed:
                return None
        if given is None and name in OFFLOADS and 0.0 not in allowed:
            return None  # offload is not searched: only where it is asked for
        if name in SEARCHED:
            fields[name] = allowed[0] if len(allowed) == 1 else frozenset(allowed)
        elif given is None and not (name.startswith("overlap_") and True in allowed):
            preferred = usual.get(name, _DEFAULTS[name])
            fields[name] = preferred if preferred in allowed else allowed[0]
    return fields


def narrowed(
    framework: Framework, fixed: Mapping[str, Any], usual: Mapping[str, Any], workload: Workload | None = None
) -> list[dict[str, Any]]:
    """What each alternative of a framework that keeps `fixed` fixes, of those in the usual number formats if there are.

    A format is never chosen because another option goes with it alone. Without a workload nobody searches them.
    """
    tables = framework.alternatives if workload is None else framework.searched(workload)
    each = [narrow(fixed, alternative, usual) for alternative in tables]
    kept = [fields for fields in each if fields is not None]
    for name in FORMATS:
        wanted = usual.get(name, _DEFAULTS[name])
        if name not in fixed:
            kept = [fields for fields in kept if fields.get(name, wanted) == wanted] or kept
    return kept


def beside(
    framework: Framework, fields: Mapping[str, Any], fixed: Mapping[str, Any], workload: Workload, cluster: Cluster
) -> list[list[dict[str, Any]]]:
    """What else the framework takes of options that a lattice leaves alone: fields of `Plan`, for plans with `fields`.

    Modules that are computed again alone, of those that the model has; what lies in the second memory, if there is one.
    Each saves memory for time, the last of a group most.
    """
    usual = usual_formats(cluster, fixed)
    tables = [table for table in framework.searched(workload) if narrow(fixed, table, usual) == fields]
    if fixed.get("recompute") is not None or fixed.get("recompute_share") is not None or not tables:
        return []
    modes, own = tables[0].get("recompute", ()), {op.module for block in workload.blocks for op in block.ops}
    named = [mode for mode in modes if modules_of(mode) and own.issuperset(modules_of(mode))]
    groups: list[list[dict[str, Any]]] = [[{"recompute": mode} for mode in named]]
    if cluster.accelerator.second_memory_bytes > 0 and not any(name in fixed for name in OFFLOADS):
        plain = [mode for mode in modes if mode in RECOMPUTES]
        offloads = _offloads(framework.searched(workload), fields, fixed, usual)
        groups += [[{**offload, "recompute": mode} for mode in plain] for offload in offloads]
    return [group for group in groups if group]


def _offloads(
    tables: Iterable[Mapping[str, Collection[Any]]],
    fields: Mapping[str, Any],
    fixed: Mapping[str, Any],
    usual: Mapping[str, Any],
) -> list[dict[str, float]]:
    """What may lie in the second memory, of alternatives that differ from one in that alone."""
    found = list[dict[str, float]]()
    for table in tables:
        for shares in itertools.product(*(table.get(name, (0.0,)) for name in OFFLOADS)):
            chosen = {name: share for name, share in zip(OFFLOADS, shares, strict=True) if share > 0}
            same = chosen and narrow({**fixed, **chosen}, table, usual)
            if same and _resident(same) == _resident(fields) and chosen not in found:
                found.append(chosen)
    return found


def _resident(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in OFFLOADS}


def search_tellable(framework: Framework, workload: Workload, cluster: Cluster, search: Search) -> Search:
    """A search whose best plans are those that the framework can be told."""

    def keeps(lattice: Lattice, entry: Entry) -> bool:
        return framework.can(lattice.plan(entry.index), workload, cluster)

    def run(lattice: Lattice, value: PlanValue, top: int) -> Best:
        best, kept = Best(), []
        for factor in AMONG:
            best = search(lattice, value, factor * top)
            kept = [entry for entry in best.top if keeps(lattice, entry)]
            if len(kept) >= top or (kept and factor >= AMONG[-2]) or len(best.top) < factor * top:
                break
        if best.top and not kept:
            why = "; ".join(framework.cannot(lattice.plan(best.top[0].index), workload, cluster))
            raise CommandError(Status.infeasible, f"none of the {len(best.top)} best plans can be told: {why}")
        levels = {level: entry for level, entry in best.levels.items() if keeps(lattice, entry)}
        return dataclasses.replace(best, top=tuple(kept[:top]), levels=levels)

    return run


def its_own(plan: Plan, parts: Iterable[Part]) -> bool:
    """Whether a plan lies in a framework's own lattices: it can be told others too (`_of_each`)."""
    return any(_has(plan, fields, int(part.cluster.tiers[0].usable_size)) for fields, part in parts)


def _has(plan: Plan, fields: Mapping[str, Any], usable: int) -> bool:
    """Whether a plan has what fields are fixed to; the usual domain has no number in a plan."""
    own = dataclasses.asdict(plan) | {"domain": plan.domain or usable}
    return all(own[name] in members(asked) for name, asked in fields.items() if asked is not None)


def told_by(name: str, of: Lattice) -> Callable[[Plan], bool]:
    """Whether the framework can be told a plan of a lattice."""
    return lambda plan: FRAMEWORKS[name].can(plan, of.workload, of.cluster)


def members(asked: Any) -> Iterable[Any]:
    """Values that a field may have: those of a set, or the one that it is fixed to."""
    return asked if isinstance(asked, set | frozenset) else (asked,)
