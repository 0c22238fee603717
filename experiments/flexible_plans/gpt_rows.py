"""Rows of GPT-3 on V100 that the authors of the plan-generation papers printed: time and memory, never fitted.

Layouts are not printed. The authors' system (AutoDist) cuts each operator along one dimension over all ranks of a stage
(`is_valid_partition`), so a microbatch of fewer sequences than ranks is not cut at all: ranks divide tensors, the more
so as printed memories grow with the microbatch as they do then; of the numbers of stages the fastest within their 30 GB
is taken. Printed memories grow from 8 bytes a parameter (350M: 2.93 GB without a sequence): Adam's states are in fp16.
Their models sum the logits and have no cross entropy (`examples/nlp/gpt/model.py` of the same repository).
Alpa's rows have no pipeline either and the same ranks; those of 6.7B do not say whether they recompute, and are left
out.
"""

import dataclasses
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import Exact, parts
from costmodel.inputs import Cluster
from costmodel.measured import Case, case, posterior, stacked
from experiments.flexible_plans.feasibility import in_tensors

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
STAGES = (1, 2, 4, 8, 16)
LIMIT_BYTES = 30.0 * 2**30  # that their search kept to
TARGETS = TABLE["mean_absolute_time_error_of_the_authors"] | {"alpa": None}
"""Mean error in time of the authors' own model by class of rows; they do not predict Alpa's."""
MEMORY_TARGET = TABLE["mean_absolute_memory_error_of_the_authors"]


def classes() -> dict[str, list[Mapping[str, Any]]]:
    """The rows by what ran them: the authors' system with pipelines and without, and Alpa without."""
    own = {name: [row for row in TABLE["rows"] if row["plans"] == name] for name in ("pipeline", "tensor")}
    return own | {"alpa": TABLE["alpa"]}


def as_row(golden: Mapping[str, Any]) -> dict[str, str]:
    """Columns of a published run."""
    sizes = {name: str(golden[name]) for name in ("layers", "hidden", "heads", "model")}
    return sizes | {
        "source": "plan generation on V100",
        "hardware": "V100-32GB",
        "gpus": str(golden["accelerators"]),
        "gpus_per_node": "16",
        "ffn_hidden": str(4 * golden["hidden"]),
        "gated_ffn": "0",
        "vocab": "51200",
        "seq": "1024",
        "global_batch_sequences": "1024",
        "micro_batch": str(golden["microbatch"]),
        "zero_stage_or_fsdp": "none",
        "recompute": golden.get("recompute", "none"),
        "precision": "fp16",
        "flash_attention": "0",
    }


def plans(golden: Mapping[str, Any]) -> list[Case]:
    """All plans of the row's class at its microbatch."""
    read, ranks = case(as_row(golden)), golden["accelerators"]
    assert isinstance(read, Case)
    base = dataclasses.replace(read, cluster=_with_few_passes(read.cluster))
    types: dict[str, Any] = {"gradient_dtype": "fp16", "state_dtype": "fp16", "master_weights": False, "data": 1}
    stages = [n for n in STAGES if ranks % n == 0] if golden["plans"] == "pipeline" else [1]
    found = [dataclasses.replace(base.plan, tensor=ranks // n, pipeline=n, **types) for n in stages]
    return [dataclasses.replace(base, plan=plan) for plan in found]


def _with_few_passes(cluster: Cluster) -> Cluster:
    """A sum of the logits reads them and writes their gradient, which is nearest to a fused loss."""
    habits = dataclasses.replace(cluster.stack.habits, loss="usual")
    return dataclasses.replace(cluster, stack=dataclasses.replace(cluster.stack, habits=habits))


def fastest(golden: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds, and GiB in tensors, of the fastest plan that fits, or of the smallest."""
    candidates = []
    for candidate in posterior.with_constants(plans(golden)):
        (batch,) = stacked([candidate])
        found = parts(batch.workload, batch.cluster, batch.point, Exact(np))
        stages = (found.memory.first, found.memory.second, found.memory.last)[
            : 1 if candidate.plan.pipeline == 1 else 3
        ]
        held_bytes = max(float(np.max(in_tensors(stage))) for stage in stages)
        candidates.append((max(0.0, held_bytes - LIMIT_BYTES), float(found.step.step_s[0]), held_bytes / 2**30))
    return min(candidates)[1:]


def errors(rows: Iterable[Mapping[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of time and memory of rows."""
    pairs = [(fastest(row), (row["measured_step_s"], row["measured_peak_gb"])) for row in rows]
    ours, measured = (np.array(side) for side in zip(*pairs, strict=True))
    return tuple((ours / measured - 1).T)
