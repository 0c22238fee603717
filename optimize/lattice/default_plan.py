"""The plan that is evaluated where none is given: the least tensor, then the least pipeline degree that fits."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from costmodel import Exact
from costmodel.evaluators import prepare
from costmodel.formulas import cost
from costmodel.inputs import SCHEDULES, Cluster, Kind, Plan, Workload, is_expert, layers
from costmodel.specs import violations
from optimize.lattice.axis import even_layers
from optimize.status import CommandError, Status

LARGEST_DEGREE = 1024  # that is tried; degrees that are given may be larger
_EXACT = Exact(math)
_MORE_MEMORY: tuple[dict[str, Any], ...] = (
    {"sequence_parallel": True},
    {"recompute": "full"},
    {"zero_stage": 3},
    {"zero_stage": 3, "recompute": "full"},
)


def choose_plan(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> tuple[Plan, str]:
    """The first plan that keeps all rules and fits, in the order of tensor, then pipeline; and why it was chosen.

    Fields in `given` stay as they are. Raises `CommandError`: bad input where no candidate is legal, infeasible where
    none of the legal ones fits.
    """
    illegal, tightest = None, None
    for plan in _candidates(given, workload, cluster):
        broken = violations(plan, workload, cluster)
        if broken:
            illegal = min(illegal or (plan, broken), (plan, broken), key=lambda found: len(found[1]))
            continue
        needed = _needed(plan, workload, cluster)
        if needed <= 1:
            return plan, _reason(given)
        if tightest is None or needed < tightest[1]:
            tightest = plan, needed
    if tightest is not None:
        raise CommandError(Status.infeasible, _nothing_fits(given, workload, cluster, *tightest))
    if illegal is not None:
        plan, broken = illegal
        told = f"plan (closest of those tried: {_short(plan)}): {broken[0]}"
        raise CommandError(Status.bad_input, told, broken)
    raise CommandError(Status.bad_input, _no_product(given, cluster))


def _candidates(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> Iterator[Plan]:
    """Plans that multiply to the cluster, least tensor first, then least pipeline.

    Experts that no expert rank divides are shared by the tensor ranks, as Megatron-Core does where nothing is said.
    """
    routed = any(is_expert(op) for block in workload.blocks for op in block.ops if op.kind == Kind.MATMUL)
    count, stages = int(cluster.accelerators), layers(workload)
    for tensor in [given["tensor"]] if "tensor" in given else _divisors(count, int(cluster.tiers[0].usable_size)):
        for pipeline in [given["pipeline"]] if "pipeline" in given else _divisors(count, stages):
            inside = tensor * pipeline * given.get("context", 1)
            data = given.get("data", max(1, count // inside))
            if data * inside != count:
                continue
            free = {"tensor": tensor, "pipeline": pipeline, "data": data}
            free |= {"sequence_parallel": tensor > 1} if "tensor" not in given else {}
            free |= {"stage_layers": even_layers(stages, pipeline)} if _may_be_uneven(given) else {}
            free |= {"expert_tensor": tensor} if routed and given.get("expert", 1) == 1 else {}
            yield Plan(**(free | dict(given)))


def _short(plan: Plan) -> str:
    return str(dataclasses.replace(plan, stage_layers=None))


def _divisors(value: int, largest: int) -> list[int]:
    return [d for d in range(1, min(largest, LARGEST_DEGREE) + 1) if value % d == 0]


def _may_be_uneven(given: Mapping[str, Any]) -> bool:
    if "pipeline" in given:
        return False
    schedule = SCHEDULES[given.get("schedule", Plan.schedule)]
    return not (schedule.splits or schedule.interleaves) and given.get("virtual_stages", 1) == 1


def _needed(plan: Plan, workload: Workload, cluster: Cluster) -> float:
    """Memory that the plan needs over what there is: of HBM or, where it lacks more, of the second memory."""
    found, chip = cost(*prepare(workload, cluster, plan), _EXACT), cluster.accelerator
    second = found.second_bytes / chip.second_memory_bytes if found.second_bytes else 0.0
    return max(found.peak_bytes / chip.hbm_bytes, second)


def _reason(given: Mapping[str, Any]) -> str:
    free = [name for name in ("tensor", "pipeline") if name not in given]
    return f"the least {', then '.join(free)} degree that fits in memory"


def _no_product(given: Mapping[str, Any], cluster: Cluster) -> str:
    degrees = {name: given[name] for name in ("tensor", "context", "data", "pipeline") if name in given}
    told = " and ".join(f"`{name}` is {value}" for name, value in degrees.items())
    return f"plan: {told}; expected degrees whose product divides the cluster's {cluster.accelerators} accelerators"


def _nothing_fits(given: Mapping[str, Any], workload: Workload, cluster: Cluster, plan: Plan, needed: float) -> str:
    """What is short, and the first of a few changes that would make it fit."""
    shortage = (
        f"{workload.name} does not fit on {cluster.accelerators} {cluster.name}: the least memory that a plan needs is "
        f"{needed:.3g} times the accelerator's, with {_short(plan)}"
    )
    for times in (1, 2, 4, 8, 16, 32, 64):
        for change in _MORE_MEMORY if times == 1 else ({}, *_MORE_MEMORY):
            if change.keys() & given.keys() or not _any_fits({**given, **change}, workload, enlarged(cluster, times)):
                continue
            asked = {"accelerators": cluster.accelerators * times} if times > 1 else {}
            flags = " ".join(_flag(name, value) for name, value in (asked | change).items())
            return f"{shortage}; it fits with {flags}"
    return f"{shortage}; a smaller sequence would need less"


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"


def enlarged(cluster: Cluster, times: int) -> Cluster:
    """The same cluster with a last tier, and a number of accelerators, so many times as large."""
    last = cluster.tiers[-1]
    outer = dataclasses.replace(last, size=last.size * times, usable_size=last.usable_size * times)
    return dataclasses.replace(cluster, accelerators=cluster.accelerators * times, tiers=(*cluster.tiers[:-1], outer))


def _any_fits(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> bool:
    legal = (plan for plan in _candidates(given, workload, cluster) if not violations(plan, workload, cluster))
    return any(_needed(plan, workload, cluster) <= 1 for plan in legal)


def plan_precision(cluster: Cluster) -> dict[str, str]:
    """The widest-used precision that the accelerator has, where none is given."""
    types = cluster.accelerator.types
    return {} if "bf16" in types else {"precision": "fp16" if "fp16" in types else "fp32"}
