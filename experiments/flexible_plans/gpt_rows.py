"""The 22 rows of GPT-3 on V100 that the authors of the plan-generation papers printed: time and memory, never fitted.

Layouts are not published, so each row is predicted as the fastest plan of its class. `split`: data ranks share the
microbatch, as a batch dimension that operators are cut along. `tensor and pipeline` leaves data ranks out: the printed
memories rise with the microbatch as they do for plans without. Their memory is that before the optimizer's states.
"""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import Exact, parts
from costmodel.measured import Case, case, posterior, stacked

TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
DEGREES = (1, 2, 4, 8, 16)
TARGETS = TABLE["mean_absolute_time_error_of_the_authors"], TABLE["mean_absolute_memory_error_of_the_authors"]
"""Mean error of the authors' own model on these rows: time and memory."""


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
        "micro_batch": "1",
        "zero_stage_or_fsdp": "none",
        "recompute": "none",
        "precision": "fp16",
        "flash_attention": "0",
    }


def plans(golden: Mapping[str, Any], data_ranks: bool) -> list[Case]:
    """All plans of the row's class at its microbatch."""
    base, ranks, micro = case(as_row(golden)), golden["accelerators"], golden["microbatch"]
    assert isinstance(base, Case)
    stages = DEGREES if golden["plans"] == "pipeline" else (1,)
    found = []
    for tensor in DEGREES:
        for pipeline in stages:
            data = ranks // (tensor * pipeline)
            if data * tensor * pipeline != ranks or micro % data or (data > 1 and not data_ranks):
                continue
            degrees = {"tensor": tensor, "pipeline": pipeline, "data": data, "microbatch": micro // data}
            found.append(dataclasses.replace(base.plan, gradient_dtype="fp16", **degrees))
    return [dataclasses.replace(base, plan=plan) for plan in found]


def fastest(golden: Mapping[str, Any], data_ranks: bool) -> tuple[float, float]:
    """Seconds, and gigabytes before the optimizer's states, of the fastest plan that fits, or of the smallest."""
    candidates = []
    for candidate in posterior.with_constants(plans(golden, data_ranks)):
        (batch,) = stacked([candidate])
        found = parts(batch.workload, batch.cluster, batch.point, Exact(np))
        stages = (found.memory.first, found.memory.second, found.memory.last)
        early = max(float((s.held_bytes + s.passing_bytes - s.optimizer_bytes)[0]) for s in stages)
        over = max(0.0, float(found.memory.peak_bytes[0]) - float(candidate.cluster.accelerator.hbm_bytes))
        candidates.append((over, float(found.step.step_s[0]), early / 1e9))
    return min(candidates)[1:]


def errors(data_ranks: bool) -> tuple[np.ndarray, np.ndarray]:
    """Relative errors of time and memory of all rows."""
    rows = TABLE["rows"]
    times, memories = np.array([fastest(golden, data_ranks) for golden in rows]).T
    measured = np.array([(golden["measured_step_s"], golden["measured_peak_gb"]) for golden in rows]).T
    return times / measured[0] - 1, memories / measured[1] - 1
