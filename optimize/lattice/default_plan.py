"""The plan that is evaluated where none is given: the fastest of a few, with the least degrees that fit."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from costmodel import Exact, as_floats
from costmodel.evaluators import memory_by_stage, prepare
from costmodel.formulas import cost, counts, limit_bytes, memory, peak
from costmodel.inputs import SCHEDULES, Cluster, Kind, Plan, Workload, is_expert, layers
from costmodel.specs import demands, violations
from optimize.lattice.axis import even_layers
from optimize.lattice.degrees import expert_degrees
from optimize.lattice.enumeration import lattice
from optimize.status import CommandError, Status

LARGEST_DEGREE = 1024  # that is tried; degrees that are given may be larger
ROOM = 0.9  # of the memory that a larger microbatch may fill, to be chosen here, where the smallest fills less
_LEAST_MEMORY = {"recompute": "full", "recompute_share": 1.0, "zero_stage": 3, "microbatch": 1}
_TOGETHER = 16_384  # plans whose memory is computed at once
_EXACT, _ARRAYS = Exact(math), Exact(np)
_MORE_MEMORY: tuple[dict[str, Any], ...] = (
    {"sequence_parallel": True},
    {"recompute": "full"},
    {"zero_stage": 3},
    {"zero_stage": 3, "recompute": "full"},
)
_OFFLOADS: tuple[dict[str, Any], ...] = (
    {"offload_optimizer": 1.0},
    {"offload_optimizer": 1.0, "offload_gradients": 1.0},
    {"offload_optimizer": 1.0, "offload_gradients": 1.0, "offload_weights": 1.0},
)


def choose_plan(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> tuple[Plan, str]:
    """The fastest of those that keep all rules and fit with the least pipeline, then expert degree, and why.

    There is one for each tensor degree, with the microbatch that is fastest of those that fit. Fields in `given` stay
    as they are. Where nothing fits otherwise, what saves memory is taken too (`_MORE_MEMORY`), then whatever needs
    least, then a second memory, as far as there is one (`_OFFLOADS`). Raises `CommandError`: bad input where no
    candidate is legal, infeasible where nothing fits.
    """
    plans, tightest, illegal = _that_fit(given, workload, cluster)
    if plans:
        return _fastest(plans, given, workload, cluster), _reason(given, workload)
    if tightest is None:
        raise _nothing_legal(given, workload, cluster, illegal)
    needed, leanest = _leanest(given, workload, cluster)
    if needed > 1:
        plans = _in_second_memory(given, workload, cluster)
        if not plans:
            raise CommandError(
                Status.infeasible, _nothing_fits(given, workload, cluster, leanest or tightest[0], needed)
            )
        plan = _fastest(plans, given, workload, cluster)
        lies = {name: value for name in _OFFLOADS[-1] if (value := getattr(plan, name)) and name not in given}
        return plan, f"{_reason(given, workload)}, with {_flags(lies)}: nothing fits without"
    for change in _MORE_MEMORY:
        if not change.keys() & given.keys():
            plans, _, _ = _that_fit({**given, **change}, workload, cluster)
        if plans:
            plan = _fastest(plans, given, workload, cluster)
            return plan, f"{_reason(given, workload)}, with {_flags(change)}: nothing fits without"
    assert leanest is not None
    return leanest, "a plan that needs least memory: no usual one fits"


def _in_second_memory(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> list[Plan]:
    """Plans that fit with what of the weights, gradients and states lies in the accelerator's second memory."""
    if not cluster.accelerator.second_memory_bytes or _OFFLOADS[-1].keys() & given.keys():
        return []
    if _leanest({**given, **_OFFLOADS[-1]}, workload, cluster)[0] > 1:
        return []
    changes = ({**moved, **change} for moved in _OFFLOADS for change in ({}, *_MORE_MEMORY))
    asked = ({**given, **change} for change in changes if not change.keys() & given.keys())
    return [plan for fields in asked for plan in _that_fit(fields, workload, cluster)[0]]


_Illegal = tuple[Plan, tuple[str, ...]] | None


def _that_fit(
    given: Mapping[str, Any], workload: Workload, cluster: Cluster, most: int = LARGEST_DEGREE
) -> tuple[list[Plan], tuple[Plan, float] | None, _Illegal]:
    """The first that fits of each of up to `most` tensor degrees; without any the legal one that needs least, and the
    one that breaks fewest rules with what it breaks."""
    found, illegal, tightest = dict[int, Plan](), None, None
    for plan in _candidates(given, workload, cluster):
        if plan.tensor in found:
            continue
        broken = violations(plan, workload, cluster)
        if broken:
            illegal = min(illegal or (plan, broken), (plan, broken), key=lambda found: len(found[1]))
            continue
        needed = _cost(plan, workload, cluster)[0]
        if needed <= 1:
            found[plan.tensor] = plan
            if len(found) == most:
                break
        elif tightest is None or needed < tightest[1]:
            tightest = plan, needed
    return list(found.values()), tightest, illegal


def _fastest(plans: Iterable[Plan], given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> Plan:
    """The first of the fastest, each with its best microbatch: twice as large as long as that fits and is faster."""
    best = math.inf, Plan()
    for plan in plans:
        least, step_s = _cost(plan, workload, cluster)
        own, room = (step_s, plan), ROOM if least <= ROOM else 1.0
        while "microbatch" not in given:
            larger = dataclasses.replace(own[1], microbatch=2 * own[1].microbatch)
            if violations(larger, workload, cluster):
                break
            needed, step_s = _cost(larger, workload, cluster)
            if needed > room or step_s >= own[0]:
                break
            own = step_s, larger
        best = min(best, own, key=lambda pair: pair[0])
    return best[1]


def _nothing_legal(given: Mapping[str, Any], workload: Workload, cluster: Cluster, illegal: _Illegal) -> CommandError:
    if illegal is None:
        return CommandError(Status.bad_input, _no_product(given, workload, cluster))
    plan, broken = illegal
    told = f"plan (closest of those tried: {_short(plan)}): {broken[0]}"
    return CommandError(Status.bad_input, told, broken)


def _leanest(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> tuple[float, Plan | None]:
    """What the plan that needs least memory needs over what there is, of all that save it; and that plan."""
    saving = {name: value for name, value in _LEAST_MEMORY.items() if name not in given}
    whole = lattice(workload, cluster, {**given, **saving})
    numbers, stack, least = as_floats(whole.workload), as_floats(cluster.stack), (math.inf, -1)
    for start in range(0, len(whole), _TOGETHER):
        points = whole.points(whole.chunk(start, start + _TOGETHER).indices, np.float64)
        held = memory(counts(numbers, points, _ARRAYS), points, stack, _ARRAYS)
        needed = whole.needed(np.asarray(held.peak_bytes), held.second_bytes)
        least = min(least, (float(needed.min()), start + int(needed.argmin())))
    return least[0], whole.plan(least[1]) if least[1] >= 0 else None


def _candidates(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> Iterator[Plan]:
    """Plans that multiply to the cluster, least tensor first, then least pipeline, then least expert.

    Experts that no expert rank divides are shared by the tensor ranks, as Megatron-Core does where nothing is said.
    """
    routed = any(is_expert(op) for block in workload.blocks for op in block.ops if op.kind == Kind.MATMUL)
    count, demanded, domain = int(cluster.accelerators), demands(workload, cluster), _domain(cluster)
    for tensor in [given["tensor"]] if "tensor" in given else _divisors(count, int(cluster.tiers[0].usable_size)):
        for pipeline in [given["pipeline"]] if "pipeline" in given else _divisors(count, demanded.layers):
            inside = tensor * pipeline * given.get("context", 1)
            data = given.get("data", max(1, count // inside))
            if data * inside != count:
                continue
            free = {"tensor": tensor, "pipeline": pipeline, "data": data}
            free |= {"sequence_parallel": tensor > 1} if "tensor" not in given else {}
            free |= {"stage_layers": even_layers(demanded.layers, pipeline)} if _may_be_uneven(given) else {}
            experts, _ = expert_degrees(demanded, count // pipeline)
            for expert in [1] if "expert" in given else experts:
                own: dict[str, Any] = {"expert": expert, **domain, **free}
                if routed and given.get("expert", expert) == 1:
                    own["expert_tensor"] = tensor
                yield Plan(**{**own, **given})


def _domain(cluster: Cluster) -> dict[str, int]:
    """The most that are used of every domain where the usual number does not divide them all, as searches do."""
    count, inner = int(cluster.accelerators), cluster.tiers[0]
    usable, size = int(inner.usable_size), int(inner.size)
    if count <= usable or count % usable == 0:
        return {}
    most = max((n for n in range(size // 2 + 1, size + 1) if count % n == 0), default=None)
    return {} if most is None else {"domain": most}


def _short(plan: Plan) -> str:
    return str(dataclasses.replace(plan, stage_layers=None))


def _divisors(value: int, largest: int) -> list[int]:
    return [d for d in range(1, min(largest, LARGEST_DEGREE) + 1) if value % d == 0]


def _may_be_uneven(given: Mapping[str, Any]) -> bool:
    if "pipeline" in given:
        return False
    schedule = SCHEDULES[given.get("schedule", Plan.schedule)]
    return not (schedule.splits or schedule.interleaves) and given.get("virtual_stages", 1) == 1


def _cost(plan: Plan, workload: Workload, cluster: Cluster) -> tuple[float, float]:
    """Memory that the plan needs over what there is (of HBM or, where it lacks more, of the second memory); a step."""
    found, chip = cost(*prepare(workload, cluster, plan), _EXACT), cluster.accelerator
    second = found.second_bytes / chip.second_memory_bytes if found.second_bytes else 0.0
    needed = max(found.peak_bytes / chip.hbm_bytes, second)
    if needed <= 1 < plan.pipeline:  # each stage with its own kinds of layer, which `cost` spreads evenly
        fullest = max(peak(stage, _EXACT) for stage in memory_by_stage(workload, cluster, plan))
        needed = max(needed, fullest / limit_bytes(cluster))
    return needed, float(found.step_s)


def _reason(given: Mapping[str, Any], workload: Workload) -> str:
    experts = any(is_expert(op) for block in workload.blocks for op in block.ops)
    searched = ("tensor", "pipeline", "expert") if experts else ("tensor", "pipeline")
    free = [name for name in searched if name not in given and name != "tensor"]
    told = [f"the least {', then '.join(free)} degree that fits in memory"] if free else []
    if "tensor" not in given:
        told = [f"the fastest of all tensor degrees, each with {told[0]}" if told else "the fastest tensor degree"]
    if "microbatch" not in given:
        told.append("its fastest microbatch")
    return ", and ".join(told) or "as it is given"


def _no_product(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> str:
    degrees = {name: given[name] for name in ("tensor", "context", "data", "pipeline") if name in given}
    told = "plan: " + " and ".join(f"`{name}` is {value}" for name, value in degrees.items())
    every, product = int(cluster.accelerators), math.prod(degrees.values())
    most = {"tensor": int(cluster.tiers[0].usable_size), "pipeline": layers(workload)}
    rest = " and ".join(f"`{name}` at most {value}" for name, value in most.items() if name not in given)
    if every % product or not rest:
        return f"{told}; expected degrees whose product divides the cluster's {every} accelerators"
    return f"{told}; expected ones that leave {rest} of the cluster's {every} accelerators, not {every // product}"


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
            return f"{shortage}; it fits with {_flags(asked | change)}"
    return f"{shortage}; a smaller sequence would need less"


def _flags(fields: Mapping[str, Any]) -> str:
    return " ".join(_flag(name, value) for name, value in fields.items())


def _flag(name: str, value: Any) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if value is True else f"{flag} {value}"


def enlarged(cluster: Cluster, times: int) -> Cluster:
    """The same cluster with a last tier, and a number of accelerators, so many times as large."""
    last = cluster.tiers[-1]
    outer = dataclasses.replace(last, size=last.size * times, usable_size=last.usable_size * times)
    return dataclasses.replace(cluster, accelerators=cluster.accelerators * times, tiers=(*cluster.tiers[:-1], outer))


def _any_fits(given: Mapping[str, Any], workload: Workload, cluster: Cluster) -> bool:
    return bool(_that_fit(given, workload, cluster, most=1)[0])


def usual_formats(cluster: Cluster, given: Mapping[str, Any]) -> dict[str, str]:
    """Number formats where none is given: the widest-used precision that the accelerator has, and its gradients."""
    types = cluster.accelerator.types
    usual = {} if "bf16" in types else {"precision": "fp16" if "fp16" in types else "fp32"}
    return usual | cluster.stack.habits.with_precision(given.get("precision") or usual.get("precision"))
