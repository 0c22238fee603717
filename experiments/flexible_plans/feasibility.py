"""What runs and what runs out of memory: co-shard and whole operators on V100, and the large table of mBART.

The rows are those of the authors' notes on GPT-3 (batch 256, microbatch 1, fp16, recompute of each layer); their
figures are peaks before the optimizer's states, as are ours. Two rows that repeat a number for two plans are left out.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from costmodel import Exact, Plan, load_cluster, load_workload, parts
from costmodel.evaluators import prepare
from costmodel.formulas import StageKind, peak
from costmodel.graph import staged
from costmodel.inputs import Workload, whole
from costmodel.models import co_sharded
from experiments.flexible_plans.interlaced import interlaced
from experiments.flexible_plans.spaces import workload

Row = tuple[str, int, int, tuple[int, int, int], int, float | None]
"""Model, accelerators, sequence, data x pipeline x tensor ranks, pieces, gigabytes (0: it ran; None: out of memory)."""

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


READINGS = {"attention and feed-forward": True, "attention": False}
"""What the notes may mean by co-shard: both readings are told."""


def table(feed_forward: bool) -> list[dict[str, Any]]:
    """Every row with this model's peak, and whether it fits, of pieces of attention and `feed_forward`."""
    return [_row(row, share, feed_forward) for share, rows in ((1.0, PUBLISHED), (0.5, SMALL)) for row in rows]


def _row(row: Row, share: float, feed_forward: bool) -> dict[str, Any]:
    size, accelerators, sequence, (data, pipeline, tensor), pieces, measured = row
    job = workload("gpt", size, sequence)
    plan = Plan(
        data=data, pipeline=pipeline, tensor=tensor, microbatch=1, recompute="full", zero_stage=0,
        attention="unfused", precision="fp16", gradient_dtype="fp16",
    )  # fmt: skip
    ours, limit = early_bytes(co_sharded(job, pieces, feed_forward=feed_forward), accelerators, plan)
    what = {
        "model": f"gpt-{size}",
        "accelerators": accelerators,
        "sequence": sequence,
        "plan": f"dp{data} pp{pipeline} tp{tensor}",
    }
    found = {"pieces": pieces, "measured_gb": measured, "ours_gb": ours / 1e9, "fits": ours <= share * limit}
    return what | found | {"right": (ours <= share * limit) == (measured is not None), "memory_gb": share * limit / 1e9}


def early_bytes(job: Workload, accelerators: int, plan: Plan) -> tuple[float, float]:
    """Bytes at the peak of the first step before the optimizer has states, and those of the accelerator."""
    numbers, machine, point = prepare(job, load_cluster("v100-16", accelerators=accelerators), plan)
    memory = parts(numbers, machine, point, _SEM).memory
    stages = (memory.first, memory.second, memory.last)[: 1 if plan.pipeline == 1 else 3]
    return max(float(s.held_bytes + s.passing_bytes - s.optimizer_bytes) for s in stages), float(
        machine.accelerator.hbm_bytes
    )


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
