"""What runs and what runs out of memory: co-shard and whole operators on V100, and the large table of mBART.

The rows are those of the authors' notes on GPT-3 (batch 256, microbatch 1, fp16, recompute of each layer). What is
counted is what their script does (msrasys/nnscaler, `handcraft/gpt3` at 4297a13c, with `handcraft/module/schedule.py`
and `cube/runtime/adapter/reducer.py`), read in April 2022's code; nothing is fitted to the rows:

- GB are GiB, the most that tensors held over six steps (`max_memory_allocated`), so with the optimizer's states: Adam's
  two in fp16, no 32-bit copy. The half memory is `set_per_process_memory_fraction(0.5)`, which counts no context.
- The feed-forward's output was thrown away (mended later: "fatal bug fix: mlp not backward"): it has no gradients, no
  states, and nothing of it is kept. No dropout.
- Scores are filled with the mask in place, through a view: its backward pass (autograd's `CopySlices`) has four copies
  of them. Of all this only the fourth copy was looked for after sums of three were seen to be one short.
- The loss: 32-bit logits, their softmax and two gradients, 12 bytes for each, whole on every tensor rank. They are gone
  before the layers' backward passes begin.
- Each microbatch in flight holds its stage's output beside the inputs of the layers; data ranks flatten all gradients
  into one more buffer.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, Plan, load_cluster, load_workload, parts
from costmodel.evaluators import prepare
from costmodel.formulas import StageKind, StageMemory, peak
from costmodel.graph import staged
from costmodel.inputs import Kind, Op, Role, Stack, Workload, whole
from costmodel.models import co_sharded, decoder, freeze, map_operators, run_by
from experiments.flexible_plans.interlaced import interlaced
from experiments.flexible_plans.spaces import GPT

Row = tuple[str, int, int, tuple[int, int, int], int, float | None]
"""Model, accelerators, sequence, data x pipeline x tensor ranks, pieces, GiB (0: it ran; None: out of memory)."""

PUBLISHED: Sequence[Row] = (
    ("2.6b", 1, 2048, (1, 1, 1), 1, 0.0), ("2.6b", 1, 4096, (1, 1, 1), 1, 15.5),
    ("2.6b", 1, 8192, (1, 1, 1), 1, 28.38), ("2.6b", 1, 2048, (1, 1, 1), 8, 12.24),
    ("6.7b", 8, 4096, (8, 1, 1), 1, None), ("6.7b", 8, 8192, (4, 2, 1), 1, None),
    ("6.7b", 8, 8192, (2, 4, 1), 1, 26.06), ("6.7b", 8, 8192, (4, 2, 1), 8, 20.4),
    ("6.7b", 8, 8192, (8, 1, 1), 8, None), ("6.7b", 8, 12288, (1, 8, 1), 1, None),
    ("6.7b", 8, 12288, (2, 4, 1), 1, None), ("6.7b", 8, 12288, (1, 8, 1), 8, 16.73),
    ("6.7b", 8, 12288, (2, 4, 1), 8, 25.17), ("6.7b", 8, 12288, (4, 2, 1), 8, None),
    ("19b", 8, 2048, (1, 8, 1), 1, 15.45), ("19b", 8, 4096, (1, 8, 1), 1, 22.84),
    ("19b", 8, 8192, (1, 8, 1), 1, None), ("15b", 16, 2048, (4, 4, 1), 1, 18.91),
    ("15b", 16, 4096, (2, 8, 1), 1, 15.62), ("15b", 16, 4096, (1, 16, 1), 1, 12.42),
    ("15b", 16, 2048, (8, 2, 1), 1, None), ("15b", 16, 2048, (4, 4, 1), 8, 20.93),
    ("15b", 16, 8192, (1, 8, 2), 1, 17.17), ("15b", 16, 8192, (4, 4, 1), 8, 26.73),
    ("15b", 16, 12288, (1, 4, 4), 1, 20.29), ("15b", 16, 12288, (1, 8, 2), 1, None),
    ("15b", 16, 12288, (2, 8, 1), 8, 26.88), ("15b", 16, 12288, (4, 4, 1), 8, None),
)  # fmt: skip
SMALL: Sequence[Row] = (
    ("6.7b", 16, 2048, (4, 4, 1), 1, 9.29), ("6.7b", 16, 4096, (4, 4, 1), 1, 13.05),
    ("6.7b", 16, 2048, (8, 2, 1), 1, None), ("6.7b", 16, 4096, (4, 4, 1), 8, 10.45),
    ("6.7b", 16, 8192, (4, 4, 1), 1, None), ("6.7b", 16, 8192, (2, 8, 1), 1, None),
    ("6.7b", 16, 8192, (1, 16, 1), 1, None), ("6.7b", 16, 8192, (1, 8, 2), 1, 13.46),
    ("6.7b", 16, 8192, (4, 4, 1), 8, 14.38), ("6.7b", 16, 12288, (1, 1, 16), 1, None),
    ("6.7b", 16, 12288, (2, 4, 2), 8, 13.31),
)  # fmt: skip
"""On accelerators with half of the memory, as the folder of these notes is named."""

_SEM = Exact(math)
TABLES = (("mbart-4.9b", 4, 24.6), ("mbart-10.9b", 8, 32.8), ("mbart-22.2b", 16, 41.0), ("mbart-39.3b", 32, 49.2))
"""Models with 500,000 words in fp32, the accelerators, and published gigabytes of the embedding on one stage."""

LOGIT_BYTES, SCORE_COPIES = 12.0, 4.0
_UNTRAINED = ("ffn norm", "ffn up", "activation", "ffn down")


def table() -> list[dict[str, Any]]:
    """Every row with the most that tensors hold in this model, and whether it fits."""
    return [_row(row, share) for share, rows in ((1.0, PUBLISHED), (0.5, SMALL)) for row in rows]


def _row(row: Row, share: float) -> dict[str, Any]:
    size, accelerators, sequence, (data, pipeline, tensor), pieces, measured = row
    plan = Plan(
        data=data, pipeline=pipeline, tensor=tensor, microbatch=1, recompute="full", zero_stage=0, attention="unfused",
        precision="fp16", gradient_dtype="fp16", state_dtype="fp16", master_weights=False,
    )  # fmt: skip
    cluster = load_cluster("v100-16", accelerators=accelerators)
    stack = dataclasses.replace(cluster.stack, logit_bytes=LOGIT_BYTES, update_copies=0.5 if data > 1 else 0.0)
    job = co_sharded(as_scripted(size, sequence, stack), pieces)
    numbers, machine, point = prepare(job, dataclasses.replace(cluster, stack=stack), plan)
    done = parts(numbers, machine, point, _SEM)
    stages = [(done.memory.first, pipeline), (done.memory.second, pipeline - 1), (done.memory.last, 0)]
    held = [
        (stage, in_tensors(stage, min(live, done.counts.microbatches) * done.counts.boundary_bytes))
        for stage, live in (stages if pipeline > 1 else stages[:1])
    ]
    beside = stack.context_bytes if share == 1 else 0.0
    ours = max(tensors for _, tensors in held)
    needed = max(tensors + s.fragmentation_bytes + (beside and beside + s.buffers_bytes) for s, tensors in held)
    fits = bool(needed <= share * machine.accelerator.hbm_bytes)
    return {
        "model": f"gpt-{size}",
        "accelerators": accelerators,
        "sequence": sequence,
        "plan": f"dp{data} pp{pipeline} tp{tensor}",
        "pieces": pieces,
        "measured_gib": measured,
        "ours_gib": float(ours) / 2**30,
        "fits": fits,
        "right": fits == (measured is not None),
        "memory_gb": share * float(machine.accelerator.hbm_bytes) / 1e9,
    }


def as_scripted(size: str, sequence: int, stack: Stack) -> Workload:
    """The model that the script trains."""
    layers, hidden, heads = GPT[size]
    job = decoder(
        name=f"gpt-{size}", layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocabulary=50273, batch=256,
        sequence=sequence, bias=True, layer_norm=True, learned_positions=True, tied=True,
    )  # fmt: skip
    job = run_by(job, dataclasses.replace(stack.habits, gathered_loss=True))
    return dataclasses.replace(job, blocks=map_operators(freeze(job, _UNTRAINED).blocks, _scripted))


def _scripted(op: Op) -> tuple[Op, ...]:
    """Scores as often as their backward pass has them, and nothing of what no gradient reaches."""
    if op.name in _UNTRAINED:
        return (dataclasses.replace(op, saved=()),)
    if op.kind != Kind.ATTENTION:
        return (op,)
    copies = (dataclasses.replace(s, activations=SCORE_COPIES) if s.role == Role.CORE else s for s in op.saved)
    return (dataclasses.replace(op, saved=tuple(copies)),)


def in_tensors(stage: StageMemory, outputs_bytes: Any = 0.0) -> Any:
    """Bytes in tensors at a stage's peak; it holds `outputs_bytes` of the microbatches in flight besides."""
    held = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
    passing = stage.activations_bytes + outputs_bytes + np.maximum(stage.logits_bytes, stage.working_bytes)
    return held + np.maximum(passing, stage.update_bytes)


def embeddings() -> Iterator[dict[str, Any]]:
    """A stage of one accelerator that owns the whole table and a single layer, and the stages that share it."""
    for name, accelerators, published_gb in TABLES:
        job, cluster = load_workload(name), load_cluster("v100-16", accelerators=accelerators)
        plan = Plan(
            pipeline=accelerators, microbatch=1, recompute="full", zero_stage=0, attention="unfused",
            precision="fp32", gradient_dtype="fp32",
        )  # fmt: skip
        numbers, machine, point = prepare(job, cluster, plan)
        (table,) = (op for block in numbers.blocks for op in block.ops if op.name == "embedding")
        layer = [[float(kind == 0 and mode == plan.recompute) for mode in staged.MODES] for kind in range(2)]
        body = staged.model(numbers, machine, point, _SEM)
        at = StageKind(remaining=float(accelerators), first=1.0, last=0.0)
        alone = float(peak(staged.memory_of_stages(body, layer, at, _SEM), _SEM))
        shared, limit = float(interlaced(job, cluster, plan)[1]), float(machine.accelerator.hbm_bytes)
        yield {
            "model": name,
            "accelerators": accelerators,
            "hidden": int(whole(table.columns)),
            "published_gb": published_gb,
            "table_gb": 16e-9 * float(whole(table.inner) * whole(table.columns)),
            "alone_gb": alone / 1e9,
            "alone_fits": alone <= limit,
            "shared_gb": shared / 1e9,
            "shared_fits": shared <= limit,
        }


def mistakes(rows: Sequence[Mapping[str, Any]]) -> int:
    """Rows that ran and do not fit here, or the other way round."""
    return sum(not row["right"] for row in rows)
