"""Every plan of a lattice once more, by nested loops over single plans and the rules as documented (`legal.py`)."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from costmodel.inputs import options
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.plan import Plan, layers
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.workload import Workload, is_expert
from costmodel.specs.rules import violations
from tests.oracles.legal import Model, legal


def brute_force(workload: Workload, model: Model | None, cluster: Cluster, fixed: Mapping[str, Any]) -> Iterator[Plan]:
    """Legal plans with the fixed fields, without those that `optimize.lattice` says it leaves out.

    Where nobody has written the model's sizes down by hand, `violations` judges, which `tests/specs/test_rules.py`
    compares with the rules as documented. Innermost domains of half or less are used where nothing else is legal.
    """
    first = _with_domains(workload, model, cluster, fixed, half=True)
    one = next(first, None)
    yield from _with_domains(workload, model, cluster, fixed, half=False) if one is None else (one, *first)


def _with_domains(
    workload: Workload, model: Model | None, cluster: Cluster, fixed: Mapping[str, Any], half: bool
) -> Iterator[Plan]:
    for degrees in _degrees(workload, cluster, fixed, half):
        for chosen in _options(workload, cluster, fixed, degrees):
            fields: dict[str, Any] = degrees | chosen | _overlaps(degrees) | dict(fixed)
            plan = Plan(**fields)
            if not _left_out(plan, fixed) and _is_legal(plan, workload, model, cluster):
                yield plan


def _is_legal(plan: Plan, workload: Workload, model: Model | None, cluster: Cluster) -> bool:
    return not violations(plan, workload, cluster) if model is None else legal(plan, model, cluster)


def _menu(fixed: Mapping[str, Any], name: str, values: Any) -> list[Any]:
    return [fixed[name]] if name in fixed else list(values)


def _divisors(value: int) -> list[int]:
    return [d for d in range(1, value + 1) if value % d == 0]


def _degrees(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], half: bool) -> Iterator[dict[str, Any]]:
    total = int(cluster.accelerators)
    names = ("tensor", "context", "pipeline", "data")
    for values in itertools.product(*(_menu(fixed, name, _divisors(total)) for name in names)):
        tensor, context, pipeline, data = values
        if tensor * context * pipeline * data != total or pipeline > layers(workload) or workload.batch % data:
            continue
        microbatches = _menu(fixed, "microbatch", _divisors(int(workload.batch) // data))
        mesh = _divisors(tensor * context * data) if _has_experts(workload) else [1]  # a rule again, for speed
        experts = [_menu(fixed, name, mesh) for name in ("expert", "expert_tensor")]
        for microbatch, expert, expert_tensor, domain in itertools.product(
            microbatches, *experts, _domains(cluster, fixed, half)
        ):
            yield dict(zip(names, values, strict=True)) | {
                "microbatch": microbatch,
                "expert": expert,
                "expert_tensor": expert_tensor,
                "domain": domain,
                "stage_layers": _spread(layers(workload), pipeline),
            }


def _has_experts(workload: Workload) -> bool:
    return any(is_expert(op) for block in workload.blocks for op in block.ops)


def _domains(cluster: Cluster, fixed: Mapping[str, Any], half: bool) -> list[int | None]:
    inner, total = cluster.tiers[0], int(cluster.accelerators)
    if "domain" in fixed:
        return [fixed["domain"]]
    if not half:
        return [d for d in range(1, int(inner.size) // 2 + 1) if total % d == 0]
    others = range(int(inner.size) // 2 + 1, int(inner.size) + 1) if total > inner.usable_size else []
    return [None, *(d for d in others if total % d == 0 and d != inner.usable_size)]


def _spread(count: int, stages: int) -> tuple[int, ...] | None:
    if count % stages == 0:
        return None
    held = [count // stages] * stages
    late_middle_first = [*reversed(range(1, stages - 1)), stages - 1, 0]
    for stage in late_middle_first[: count % stages]:
        held[stage] += 1
    return tuple(held)


def _options(
    workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], degrees: Mapping[str, Any]
) -> Iterator[dict[str, Any]]:
    each = -(-layers(workload) // degrees["pipeline"])
    ranks = degrees["data"] * degrees["context"]
    shards = [None, *(shard for shard in _divisors(ranks) if 1 < shard < ranks)]
    menus = {
        "schedule": SCHEDULES,
        "virtual_stages": _divisors(each),
        "zero_stage": range(4),
        "data_shard": shards,
        "sequence_parallel": (False, True),
        "context_kind": ("ring", "all_to_all"),
    }
    for values in itertools.product(*(_menu(fixed, name, menu) for name, menu in menus.items())):
        if not SCHEDULES[values[0]].interleaves and values[1] > 1:  # a rule, ahead of the others for speed
            continue
        for mode, share in _recomputes(layers(workload) / degrees["pipeline"], fixed):
            yield dict(zip(menus, values, strict=True)) | {"recompute": mode, "recompute_share": share}


def _recomputes(each: float, fixed: Mapping[str, Any]) -> list[tuple[str, float]]:
    if "recompute_share" in fixed:
        return [(mode, fixed["recompute_share"]) for mode in _menu(fixed, "recompute", options.RECOMPUTES)]
    quarters = {-(-int(each) * quarter // 4) / each for quarter in (1, 2, 3)} if each == int(each) else set()
    found = [("none", 1.0), ("selective", 1.0), ("full", 1.0), *(("full", share) for share in quarters if share < 1)]
    return [pair for pair in found if pair[0] in _menu(fixed, "recompute", options.RECOMPUTES)]


def _overlaps(degrees: Mapping[str, Any]) -> dict[str, bool]:
    return {
        "overlap_tensor": degrees["tensor"] > 1,
        "overlap_expert": degrees["expert"] * degrees["expert_tensor"] > 1,
        "overlap_pipeline": degrees["pipeline"] > 1,
    }


def _left_out(plan: Plan, fixed: Mapping[str, Any]) -> bool:
    undivided = plan.data * plan.context == 1 and plan.zero_stage > 0 and "zero_stage" not in fixed
    if plan.pipeline > 1 and SCHEDULES[fixed.get("schedule", "dualpipe")].ways > 1:
        undivided = False  # some plan of these degrees keeps two copies of the layers, and ZeRO divides them
    alike = plan.context == 1 and plan.context_kind == "all_to_all" and "context_kind" not in fixed
    plain = plan.pipeline == 1 and plan.schedule != "one_f_one_b" and "schedule" not in fixed
    return undivided or alike or plain
