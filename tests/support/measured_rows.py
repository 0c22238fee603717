"""Made-up measured rows in the columns of measurements/calibration.csv."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from costmodel.measured.rows import Case, case

_ROW = {
    "source": "made up", "hardware": "H100-80GB-SXM", "gpus": "64", "gpus_per_node": "8", "model": "GPT",
    "layers": "32", "hidden": "4096", "heads": "32", "kv_heads": "8", "ffn_hidden": "14336", "gated_ffn": "1",
    "vocab": "128256",
    "seq": "8192", "global_batch_sequences": "128", "micro_batch": "1", "tp": "2", "cp": "1", "pp": "1", "dp": "32",
    "zero_stage_or_fsdp": "distributed optimizer", "recompute": "none", "precision": "bf16",
    "flash_attention": "fused (TE)", "notes": "",
}  # fmt: skip


def made(**cells: object) -> Case:
    """One case; cells replace those of a plain row."""
    found = case({**_ROW, **{name: str(value) for name, value in cells.items()}})
    assert isinstance(found, Case), found
    return found


VARIED: tuple[Mapping[str, object], ...] = (
    {},
    {"tp": 8, "dp": 8, "pp": 1},
    {"tp": 1, "pp": 4, "dp": 16, "micro_batch": 2},
    {"tp": 4, "pp": 2, "dp": 8, "seq": 2048, "global_batch_sequences": 512},
    {"precision": "fp8", "tp": 1, "dp": 64},
    {"hardware": "A100-80GB-SXM", "flash_attention": 0, "recompute": "full", "zero_stage_or_fsdp": "none (DDP)"},
    {"hardware": "A100-80GB-SXM", "zero_stage_or_fsdp": "FSDP FULL_SHARD", "tp": 1, "dp": 64, "model": "llm-foundry"},
    {"hardware": "V100-32GB", "precision": "fp16", "flash_attention": 0, "recompute": "full", "seq": 1024},
    {"hardware": "TPU v5p", "gpus_per_node": "", "tp": 1, "dp": 64, "zero_stage_or_fsdp": "FSDP", "notes": "MaxText"},
    {"experts": 64, "topk": 4, "ep": 8, "ffn_hidden": 2048, "tp": 1, "dp": 64, "source": "NeMo"},
)


def with_times(cases: list[Case], log_times: np.ndarray) -> list[Case]:
    """The cases as if these logarithms of seconds had been measured."""
    return [dataclasses.replace(c, measured_step_s=float(np.exp(t))) for c, t in zip(cases, log_times, strict=True)]
