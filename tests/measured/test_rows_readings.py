"""A row of each source of the bulk sets is read as a person reads it; skipped where they are not beside the project."""

import numpy as np
import pytest

from costmodel.inputs.workload import parameters
from costmodel.measured.rows import (
    Case,
    case,
)
from tests.support.row_by_hand import bulk_rows, needs_bulk

# file, words of the source, which of its rows; software, family, fabric; fields of the plan
READINGS = [
    (
        "calibration",
        "BigScience",
        0,
        "megatron-2022 v100 infiniband",
        {"data": 8, "recompute": "full", "zero_stage": 1},
    ),
    (
        "calibration",
        "nanotron",
        5,
        "nanotron h100 node",
        {"data": 4, "pipeline": 2, "stage_layers": (11, 5), "zero_stage": 0},
    ),
    (
        "calibration",
        "Korthikanti",
        1,
        "megatron-2022 a100 node",
        {"tensor": 8, "sequence_parallel": True, "recompute": "selective"},
    ),
    (
        "calibration",
        "MaxText README",
        10,
        "xla tpu datacentre",
        {"data": 512, "data_shard": 256, "zero_stage": 3, "microbatch": 6},
    ),
    ("calibration", "README 2020", 9, "megatron-2022 a100 infiniband", {"tensor": 2, "data": 128, "zero_stage": 0}),
    (
        "calibration",
        "README Jan 2021",
        5,
        "megatron-2022 a100 infiniband",
        {"pipeline": 4, "microbatch": 1, "attention": "unfused"},
    ),
    ("calibration", "foundry", 3, "fsdp a100 node", {"data": 8, "zero_stage": 3, "microbatch": 1, "recompute": "full"}),
    (
        "calibration",
        "NeMo 24.07",
        20,
        "megatron-core h100 infiniband",
        {"virtual_stages": 20, "schedule": "interleaved", "precision": "fp8_tensor", "sequence_parallel": True},
    ),
    (
        "calibration",
        "Narayanan",
        12,
        "deepspeed a100 infiniband",
        {"data": 1536, "zero_stage": 3, "gradient_dtype": "fp16"},
    ),
    ("calibration", "vTrain", 100, "megatron-2022 a100 node", {"data": 2, "microbatch": 2, "overlap_data": False}),
    (
        "calibration",
        "Megatron-Bridge",
        30,
        "megatron-core h100 infiniband",
        {"expert": 8, "pipeline": 2, "virtual_stages": 24},
    ),
    (
        "calibration",
        "torchtitan docs",
        3,
        "fsdp a100 infiniband",
        {"zero_stage": 3, "recompute": "none", "microbatch": 2},
    ),
    ("validation", "Azure", 4, "deepspeed a100 infiniband", {"zero_stage": 3, "data": 1024}),
    ("validation", "gpu-recipes", 0, "xla-gpu h200 roce", {"zero_stage": 3, "microbatch": 2}),
    ("validation", "Ironwood", 3, "xla tpu ici", {"data": 256, "expert": 256, "precision": "fp8_tensor"}),
    (
        "validation",
        "Hagemann",
        300,
        "megatron-2022 a100 infiniband",
        {"data": 64, "zero_stage": 1, "fused_kernels": False, "gradient_dtype": "bf16"},
    ),
    ("validation", "fms", 7, "fsdp h100 infiniband", {"recompute": "selective", "fused_kernels": True}),
    (
        "validation",
        "InternEvo",
        10,
        "megatron-2022 a100 roce",
        {"data_shard": 8, "zero_stage": 1, "gradient_dtype": "bf16"},
    ),
    (
        "validation",
        "MegaScale",
        5,
        "megatron-2022 a100 infiniband",
        {"zero_stage": 2, "overlap_tensor": True, "overlap_data": True},
    ),
    (
        "validation",
        "Llama-3 FP8",
        2,
        "megatron-core h100 infiniband",
        {"context": 2, "stage_layers": (15, 16, 16, 16, 16, 16, 16, 15)},
    ),
    ("validation", "AutoModel", 3, "fsdp h100 infiniband", {"expert": 64, "pipeline": 4}),
    ("validation", "dgxc", 200, "megatron-core h100 infiniband", {"tensor": 4, "data": 256, "zero_stage": 1}),
    ("validation", "Oracle", 3, "megatron-core gb300 node", {"data": 8, "tensor": 1}),
    ("validation", "PaLM", 0, "xla tpu datacentre", {"tensor": 12, "data_shard": 256}),
    (
        "validation",
        "torchtitan 2024",
        14,
        "fsdp h100-96gb roce",
        {"overlap_tensor": True, "zero_stage": 1, "pipeline": 8},
    ),
    ("validation", "nnScaler", 1, "megatron-core mi300x roce", {"tensor": 4, "pipeline": 2, "data": 2}),
]


@needs_bulk
@pytest.mark.parametrize(("split", "source", "which", "kind", "fields"), READINGS, ids=lambda value: str(value)[:20])
def test_a_row_of_each_source_is_read_as_a_person_does(split, source, which, kind, fields):
    row = [row for row in bulk_rows(split) if source in row["source"]][which]
    found = case(row)
    assert isinstance(found, Case), found
    assert f"{found.stack} {found.family} {found.fabric}" == kind
    assert {name: getattr(found.plan, name) for name in fields} == fields
    assert found.plan.accelerators == int(row["gpus"])


@needs_bulk
def test_nearly_every_timed_row_is_covered():
    for split in ("calibration", "validation"):
        found = [(case(row), row) for row in bulk_rows(split) if row["measured_step_s"]]
        read_of_them = [isinstance(entry, Case) for entry, _ in found]
        assert np.mean(read_of_them) > 0.97


@needs_bulk
def test_parameters_agree_with_the_printed_size():
    """Independent of the reading: public parameter counts, within what tied heads and vocabularies leave open."""
    for row in bulk_rows("calibration")[::37]:
        found = case(row)
        if isinstance(found, Case) and row["params_B"]:
            assert parameters(found.workload) == pytest.approx(1e9 * float(row["params_B"]), rel=0.25), row["model"]
