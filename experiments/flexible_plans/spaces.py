"""Four models against three spaces of plans that other systems search, and against all that this model knows.

The same costs, memory and accelerators; only the space differs. Attention keeps its scores, as the published runs did:
no fused kernel ran on V100. Sizes are those of the authors' configurations.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel import Exact, Plan, load_cluster, load_workload, parts, violations
from costmodel.evaluators import prepare
from costmodel.inputs import Cluster, Workload
from costmodel.models import co_sharded, decoder
from experiments.flexible_plans.interlaced import interlaced
from optimize.hardware import stack

COUNTS = (4, 8, 16, 32)
SIZES: Mapping[str, Sequence[str]] = {
    "gpt 2k": ("2.6b", "6.7b", "15b", "15b"),
    "gpt 8k": ("2.6b", "6.7b", "15b", "15b"),
    "swin": ("swin-1.8b", "swin-5.0b", "swin-10.4b", "swin-27.0b"),
    "t5": ("t5-3.87b", "t5-11.6b", "t5-21.3b", "t5-46.4b"),
    "mbart": ("mbart-4.9b", "mbart-10.9b", "mbart-22.2b", "mbart-39.3b"),
    "alphafold2": ("alphafold2-512x256",) * 4,
}
"""Models of each family on 4, 8, 16 and 32 accelerators. AlphaFold2 grows only in sources that are not to be cited."""
GPT = {
    "1.3b": (24, 2048, 32),
    "2.6b": (32, 2560, 32),
    "6.7b": (32, 4096, 32),
    "15b": (48, 5120, 32),
    "19b": (24, 8192, 64),
}
"""Layers, width and heads of the authors' GPT-3; vocabulary 50,432."""
PIECES = (2, 4, 8)
SCHEDULES = (("one_f_one_b", 1), ("gpipe", 1), ("interleaved", 2), ("zb_h1", 1))

SET_TENSOR = {4: 2, 8: 4, 16: 4, 32: 8}
"""Tensor ranks of DeepSpeed on Swin in the artifact (OSDI 2024), by accelerators; its optimizer was on the host."""
HOST = {"second_memory_bytes": 1.5e12 / 16, "second_memory_bytes_per_s": 12e9, "host_bytes_per_s": 16e9}
"""For each accelerator of a DGX-2: a part of 1.5 TB (NVIDIA DGX-2 datasheet) over PCIe 3 x16 (12 of 15.8 GB/s:
assumption), and of two processors' six channels of DDR4-2666."""

SPACES: Mapping[str, Callable[[Plan, str], bool]] = {
    "DeepSpeed": lambda plan, family: plan.pipeline == 1,
    "Megatron": lambda plan, family: (
        plan.zero_stage <= 1
        and plan.schedule == "one_f_one_b"
        and not plan.offloads
        and plan.context == 1
        and (plan.pipeline == 1 or family != "alphafold2")
    ),
    "Alpa, one stage": lambda plan, family: (
        plan.pipeline == 1 and plan.zero_stage in (0, 2) and not plan.offloads and plan.context == 1
    ),
}
"""ZeRO with tensor ranks, axes and offload; tensor, pipeline and data, whose 1F1B has one forward for each backward;
tensor and data alone, as the published baseline."""
ALL, AS_SET = "all", "DeepSpeed as it was set"


class FittingPlan(NamedTuple):
    """A plan that fits: its seconds, what it is, and the pieces of its layers (1: none; 0: interlaced)."""

    step_s: float
    plan: Plan
    pieces: int = 1

    @property
    def words(self) -> str:
        """The plan in words."""
        return f"{self.plan}" + {0: ", interlaced", 1: ""}.get(self.pieces, f", co-shard {self.pieces}")


def workload(family: str, size: str, sequence: int | None = None) -> Workload:
    """A model of the table, with its global batch."""
    if size in GPT:
        layers, hidden, heads = GPT[size]
        return decoder(
            name=f"gpt-{size}", layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocabulary=50432, batch=256,
            sequence=sequence or (2048 if family.endswith("2k") else 8192), bias=True, layer_norm=True,
            learned_positions=True, dropout=True, tied=True,
        )  # fmt: skip
    return load_workload(size, batch=128 if family == "alphafold2" else 256)


def plans(accelerators: int, family: str) -> Iterator[Plan]:
    """Plans over degrees, microbatches, recompute, ZeRO, schedules and offload."""
    kind = "fp32" if family == "mbart" else "fp16"
    common: dict[str, Any] = {"precision": kind, "gradient_dtype": kind, "attention": "unfused"}
    degrees = [2**n for n in range(accelerators.bit_length())]
    contexts = degrees if family == "alphafold2" else (1,)
    for tensor, pipeline, context in itertools.product(degrees, degrees, contexts):
        ranks = tensor * pipeline * context
        if ranks > accelerators or tensor > 16 or (tensor > 1 and family == "alphafold2"):
            continue
        shape = {"tensor": tensor, "pipeline": pipeline, "context": context, "data": accelerators // ranks}
        shape |= {"context_kind": "all_to_all"} if context > 1 else {}
        for microbatch, recompute in itertools.product((1, 4), ("none", "full")):
            base = Plan(**shape, microbatch=microbatch, recompute=recompute, zero_stage=0, **common)
            if pipeline == 1:
                yield from (dataclasses.replace(base, zero_stage=stage) for stage in (0, 1, 2, 3))
                yield from (dataclasses.replace(base, zero_stage=stage, offload_optimizer=1.0) for stage in (2, 3))
            else:
                for (schedule, virtual), stage in itertools.product(SCHEDULES, (0, 1)):
                    yield dataclasses.replace(base, schedule=schedule, virtual_stages=virtual, zero_stage=stage)


def compared(name: str, family: str, accelerators: int) -> dict[str, Any]:
    """The fastest plan of each space for one model on so many of the cluster, or that none fits."""
    size = SIZES[family][COUNTS.index(accelerators)]
    cluster, job = with_host(name, accelerators), workload(family, size)
    found = flexible(job, cluster, family)
    best: dict[str, FittingPlan | None] = {
        space: next((each for each in found if each.pieces == 1 and allows(each.plan, family)), None)
        for space, allows in SPACES.items()
    }
    best[ALL] = found[0] if found else None
    if family == "swin":
        best[AS_SET] = next((each for each in found if each.pieces == 1 and as_set(each.plan)), None)
    told = {s: None if each is None else {"step_s": each.step_s, "plan": each.words} for s, each in best.items()}
    return {"family": family, "model": job.name, "accelerators": accelerators, "plans": len(found), "spaces": told}


def as_set(plan: Plan) -> bool:
    """Whether a plan of Swin is what the artifact gives DeepSpeed: its tensor ranks, the optimizer on the host."""
    return plan.offloads and plan.tensor == SET_TENSOR[plan.accelerators]


def with_host(name: str, accelerators: int) -> Cluster:
    """The cluster with a host's memory behind each accelerator."""
    cluster = load_cluster(name, accelerators=accelerators)
    return dataclasses.replace(cluster, accelerator=dataclasses.replace(cluster.accelerator, **HOST))


def flexible(job: Workload, cluster: Cluster, family: str) -> list[FittingPlan]:
    """All plans that fit, those in pieces and interlaced ones among them, fastest first."""
    legal = [plan for plan in plans(int(cluster.accelerators), family) if not violations(plan, job, cluster)]
    found = fitting(job, cluster, legal)
    again = [plan for plan in legal if plan.recompute == "full"]
    blocks = ("stage 1", "stage 2 entry", "stage 2") if family == "swin" else None
    for pieces in PIECES if family != "alphafold2" else ():
        cut = co_sharded(job, pieces, blocks)
        found += fitting(cut, cluster, [plan for plan in again if not violations(plan, cut, cluster)], pieces)
    if family not in ("swin", "alphafold2"):
        staged = [p for p in legal if p.pipeline > 1 and p.schedule == "one_f_one_b" and p.tensor * p.pipeline <= 32]
        for plan in staged:
            step_s, peak_bytes = interlaced(job, cluster, plan)
            if peak_bytes <= cluster.accelerator.hbm_bytes:
                found.append(FittingPlan(float(step_s), plan, 0))
    return sorted(found, key=lambda each: (each.step_s, each.words))


def fitting(job: Workload, cluster: Cluster, legal: Sequence[Plan], pieces: int = 1) -> list[FittingPlan]:
    """Those that fit in memory, of plans that are legal."""
    found = []
    for offloads in (False, True):
        mine = [plan for plan in legal if plan.offloads == offloads]
        if mine:
            step_s, fits = evaluated(job, cluster, mine)
            found += [
                FittingPlan(float(s), plan, pieces) for s, plan, there in zip(step_s, mine, fits, strict=True) if there
            ]
    return found


def evaluated(job: Workload, cluster: Cluster, alike: Sequence[Plan]) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a step, and whether it fits, of plans that all offload or all do not: in one batch."""
    prepared = [prepare(job, cluster, plan) for plan in alike]
    numbers, machine, _ = prepared[0]
    with np.errstate(all="ignore"):
        done = parts(numbers, machine, stack([point for _, _, point in prepared]), Exact(np))
    chip = machine.accelerator
    fits = np.asarray(done.memory.needed_bytes) <= chip.hbm_bytes
    second = np.asarray(done.memory.second_bytes) <= chip.second_memory_bytes
    return np.broadcast_to(done.step.step_s, len(alike)), fits & second


def gain(row: Mapping[str, Any], space: str) -> float | None:
    """Seconds of the fastest plan of a space over the fastest of all; None where nothing fits."""
    fastest, other = row["spaces"][ALL], row["spaces"][space]
    return other["step_s"] / fastest["step_s"] if fastest and other else None


AXIAL: Mapping[str, tuple[float, float, float]] = {
    "alphafold2-128x256": (3521.98, 2430.38, 1497.77),
    "alphafold2-512x256": (7696.62, 4663.32, 2620.09),
    "alphafold2-512x384": (16632.06, 9377.98, 5099.72),
}
"""Measured milliseconds of the Evoformer stack on 1, 2 and 4 accelerators, axes divided in turn (DAP)."""


def axial(name: str) -> list[dict[str, Any]]:
    """The same of this model, whose context ranks divide the axes."""
    types: dict[str, Any] = {"precision": "fp16", "gradient_dtype": "fp16", "attention": "unfused", "recompute": "full"}
    rows = []
    for model, published in AXIAL.items():
        job, ours = load_workload(model, batch=1), []
        for ranks in (1, 2, 4):
            cluster = load_cluster(name, accelerators=ranks)
            step_s, _ = evaluated(job, cluster, [Plan(context=ranks, context_kind="all_to_all", **types)])
            ours.append(1e3 * float(step_s[0]))
        rows.append({"model": model, "published_ms": list(published), "ours_ms": ours})
    return rows
