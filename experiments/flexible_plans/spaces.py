"""Four models against three spaces of plans that other systems search, and against all that this model knows.

What is left out, because the cost model has no such plan: pieces of an operator one after another on one device
(co-shard), and embeddings that every stage holds a part of (interlaced pipelines).
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costmodel import Plan, evaluate, load_cluster, load_workload, violations
from costmodel.inputs import Cluster, Workload

ACCELERATORS = 8
MODELS = {
    "gpt": ("gpt-7.5b", 256),
    "swin": ("swin-5.0b", 256),
    "t5": ("t5-11.6b", 256),
    "alphafold2": ("alphafold2-512x256", 128),
}
"""Name and batch of one of each family, about as large as those that its authors ran on eight."""
SCHEDULES = (("one_f_one_b", 1), ("gpipe", 1), ("interleaved", 2), ("zb_h1", 1))

SPACES: dict[str, Callable[[Plan], bool]] = {
    "DeepSpeed": lambda plan: plan.pipeline == 1 and plan.context == 1,
    "Megatron": lambda plan: (
        plan.zero_stage <= 1 and plan.schedule == "one_f_one_b" and not plan.offloads and plan.context == 1
    ),
    "Alpa, one stage": lambda plan: (
        plan.pipeline == 1 and plan.zero_stage in (0, 2) and not plan.offloads and plan.context == 1
    ),
    "all": lambda plan: True,
}
"""ZeRO with tensor ranks and offload; tensor, pipeline and data; tensor and data alone, as the published baseline."""


def plans(split_context: bool) -> Iterator[Plan]:
    """Plans of eight accelerators over degrees, microbatches, recompute, ZeRO, schedules and offload."""
    common: dict[str, Any] = {"precision": "fp16", "gradient_dtype": "fp16"}
    degrees = (1, 2, 4, 8)
    for tensor, pipeline, context in itertools.product(degrees, degrees, degrees if split_context else (1,)):
        ranks = tensor * pipeline * context
        if ranks > ACCELERATORS:
            continue
        shape = {"tensor": tensor, "pipeline": pipeline, "context": context, "data": ACCELERATORS // ranks}
        for microbatch, recompute in itertools.product((1, 4), ("none", "full")):
            base = Plan(**shape, microbatch=microbatch, recompute=recompute, zero_stage=0, **common)
            if pipeline == 1:
                yield from (dataclasses.replace(base, zero_stage=stage) for stage in (0, 1, 2, 3))
                yield dataclasses.replace(base, zero_stage=3, offload_optimizer=1.0)
            else:
                for (schedule, virtual), stage in itertools.product(SCHEDULES, (0, 1)):
                    yield dataclasses.replace(base, schedule=schedule, virtual_stages=virtual, zero_stage=stage)


def compared(name: str, family: str) -> dict[str, Any]:
    """The fastest plan of each space for one model on eight of the cluster, or that none fits."""
    cluster, (model, batch) = load_cluster(name, accelerators=ACCELERATORS), MODELS[family]
    found = _fitting(load_workload(model, batch=batch), cluster, family == "alphafold2")
    best = {space: next((row for row in found if allows(row[1])), None) for space, allows in SPACES.items()}
    told = {space: None if row is None else {"step_s": row[0], "plan": str(row[1])} for space, row in best.items()}
    return {"family": family, "model": model, "plans": len(found), "spaces": told}


def gain(row: Mapping[str, Any]) -> float | None:
    """The slowest of the three spaces in which something fits, over all plans."""
    fastest = row["spaces"]["all"]
    others = [each["step_s"] for space, each in row["spaces"].items() if space != "all" and each]
    return max(others) / fastest["step_s"] if fastest and others else None


def _fitting(job: Workload, cluster: Cluster, split_context: bool) -> list[tuple[float, Plan]]:
    """Legal plans that fit, fastest first."""
    legal = [plan for plan in plans(split_context) if not violations(plan, job, cluster)]
    found = [(evaluate(job, cluster, plan, checked=False), plan) for plan in legal]
    return sorted(((float(b.step_s), plan) for b, plan in found if b.fits), key=lambda row: (row[0], str(row[1])))


AXIAL: Mapping[str, tuple[float, float, float]] = {
    "alphafold2-128x256": (3521.98, 2430.38, 1497.77),
    "alphafold2-512x256": (7696.62, 4663.32, 2620.09),
    "alphafold2-512x384": (16632.06, 9377.98, 5099.72),
}
"""Measured milliseconds of the Evoformer stack on 1, 2 and 4 accelerators, axes divided in turn (DAP)."""


def axial(name: str) -> list[dict[str, Any]]:
    """The same of this model, whose context ranks divide the axes."""
    types: dict[str, Any] = {"precision": "fp16", "gradient_dtype": "fp16"}
    rows = []
    for model, published in AXIAL.items():
        job, ours = load_workload(model, batch=1), []
        for ranks in (1, 2, 4):
            cluster = load_cluster(name, accelerators=ranks)
            plan = Plan(context=ranks, context_kind="all_to_all", recompute="full", zero_stage=0, **types)
            ours.append(1e3 * float(evaluate(job, cluster, plan, checked=False).step_s))
        rows.append({"model": model, "published_ms": list(published), "ours_ms": ours})
    return rows
