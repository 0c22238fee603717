"""Rows of measurements: what each source's row means, chosen by hand from the row; malformed rows; speed.

The bulk sets are not shipped. Tests that read them skip where `shared/measurements` is not beside the project.
"""

import csv
import dataclasses
import io
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import Exact, cost, prepare
from costmodel.inputs.workload import parameters
from costmodel.measured.rows import (
    Case,
    Unreadable,
    alternatives,
    case,
    evaluated,
    lightened,
    read_cases,
    settle,
    stacked,
)
from costmodel.measured.rows.hardware import between_nodes
from costmodel.measured.rows.stages import by_cost, stage_layers
from costmodel.specs.files import SpecError
from costmodel.specs.rows import read_rows
from tests.support import SHARED

_PLACES = (SHARED / "measurements", Path("/work/shared/measurements"))
BULK = next((place for place in _PLACES if place.is_dir()), None)
needs_bulk = pytest.mark.skipif(BULK is None, reason="the bulk measurements are not beside the project")

ROW = {
    "source": "somebody's Megatron-LM table",
    "hardware": "A100-80GB-SXM",
    "gpus": "64",
    "gpus_per_node": "8",
    "interconnect_note": "8x200 Gb/s HDR InfiniBand per node",
    "model": "GPT 22B",
    "layers": "48",
    "hidden": "6144",
    "heads": "64",
    "kv_heads": "64",
    "ffn_hidden": "24576",
    "gated_ffn": "0",
    "vocab": "51200",
    "seq": "2048",
    "global_batch_sequences": "64",
    "micro_batch": "2",
    "tp": "8",
    "sp": "1",
    "cp": "1",
    "pp": "2",
    "vpp": "1",
    "dp": "4",
    "zero_stage_or_fsdp": "none (DDP)",
    "recompute": "selective",
    "precision": "fp16",
    "flash_attention": "0",
    "notes": "",
}


def read(**changes: str) -> Case:
    found = case(ROW | changes)
    assert isinstance(found, Case), found
    return found


def refused(**changes: str) -> str:
    found = case(ROW | changes)
    assert isinstance(found, Unreadable), found
    assert "\n" not in found.reason
    return found.reason


# one row of every large source, and what a person reads in it


def bulk_rows(split: str) -> list[dict[str, str]]:
    assert BULK is not None
    with open(BULK / f"{split}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# file, words of the source, which of its rows; software, family, fabric; fields of the plan
READINGS = [
    (
        "calibration",
        "BigScience",
        0,
        "megatron_early v100 infiniband",
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
        "megatron_early a100 node",
        {"tensor": 8, "sequence_parallel": True, "recompute": "selective"},
    ),
    (
        "calibration",
        "MaxText README",
        10,
        "xla tpu datacentre",
        {"data": 512, "data_shard": 256, "zero_stage": 3, "microbatch": 6},
    ),
    ("calibration", "README 2020", 9, "megatron_early a100 infiniband", {"tensor": 2, "data": 128, "zero_stage": 0}),
    (
        "calibration",
        "README Jan 2021",
        5,
        "megatron_early a100 infiniband",
        {"pipeline": 4, "microbatch": 1, "attention": "unfused"},
    ),
    ("calibration", "foundry", 3, "fsdp a100 node", {"data": 8, "zero_stage": 3, "microbatch": 1, "recompute": "full"}),
    (
        "calibration",
        "NeMo 24.07",
        20,
        "megatron_core h100 infiniband",
        {"virtual_stages": 20, "schedule": "interleaved", "precision": "fp8_tensor", "sequence_parallel": True},
    ),
    (
        "calibration",
        "Narayanan",
        12,
        "deepspeed a100 infiniband",
        {"data": 1536, "zero_stage": 3, "gradient_dtype": "fp16"},
    ),
    ("calibration", "vTrain", 100, "megatron_early a100 node", {"data": 2, "microbatch": 2, "overlap_data": False}),
    (
        "calibration",
        "Megatron-Bridge",
        30,
        "megatron_core h100 infiniband",
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
    ("validation", "gpu-recipes", 0, "xla h200 roce", {"zero_stage": 3, "microbatch": 2}),
    ("validation", "Ironwood", 3, "xla tpu ici", {"data": 256, "expert": 256, "precision": "fp8_tensor"}),
    (
        "validation",
        "Hagemann",
        300,
        "megatron_early a100 infiniband",
        {"data": 64, "zero_stage": 1, "fused_kernels": False, "gradient_dtype": "bf16"},
    ),
    ("validation", "fms", 7, "fsdp h100 infiniband", {"recompute": "selective", "fused_kernels": True}),
    (
        "validation",
        "InternEvo",
        10,
        "megatron_early a100 roce",
        {"data_shard": 8, "zero_stage": 1, "gradient_dtype": "bf16"},
    ),
    (
        "validation",
        "MegaScale",
        5,
        "megatron_early a100 infiniband",
        {"zero_stage": 1, "overlap_tensor": True, "overlap_data": True},
    ),
    (
        "validation",
        "Llama-3 FP8",
        2,
        "megatron_core h100 infiniband",
        {"context": 2, "stage_layers": (15, 16, 16, 16, 16, 16, 16, 15)},
    ),
    ("validation", "AutoModel", 3, "megatron_core h100 infiniband", {"expert": 64, "pipeline": 4}),
    ("validation", "dgxc", 200, "megatron_core h100 infiniband", {"tensor": 4, "data": 256, "zero_stage": 1}),
    ("validation", "Oracle", 3, "megatron_core gb300 node", {"data": 8, "tensor": 1}),
    ("validation", "PaLM", 0, "xla tpu datacentre", {"tensor": 12, "data_shard": 256}),
    (
        "validation",
        "torchtitan 2024",
        14,
        "fsdp h100-96gb roce",
        {"overlap_tensor": True, "zero_stage": 1, "pipeline": 8},
    ),
    ("validation", "nnScaler", 1, "megatron_core mi300x roce", {"tensor": 4, "pipeline": 2, "data": 2}),
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


# words of one row


def test_words_name_the_software():
    assert read(source="a NeMo table", hardware="H100-80GB-SXM").stack == "megatron_core"
    assert read(source="x", notes="MaxText", zero_stage_or_fsdp="FSDP").stack == "xla"
    assert read(source="x", notes="Megatron-formula TFLOPs=120", zero_stage_or_fsdp="FSDP2").stack == "fsdp"
    assert read(source="x", zero_stage_or_fsdp="ZeRO-3 (DeepSpeed)").stack == "deepspeed"
    assert read(source="x").stack == "megatron_early"
    assert read(source="x", hardware="B200").stack == "megatron_core"


@pytest.mark.parametrize(
    ("note", "gigabytes"),
    [
        ("8x200 Gb/s HDR InfiniBand per node", 25.0),
        ("800 Gb/s inter-node per node total, NVLink intra-node (effective 150 GB/s)", 12.5),
        ("RoCE 400 Gb/s per GPU, Grand Teton, NVLink in node", 50.0),
        ("NVLink 160 GB/s in node, InfiniBand 50 GB/s per GPU", 50.0),
        ("4x HDR ConnectX-6 per node", 12.5),
        ("1600 Gb/s RoCE node-to-node", 25.0),
        ("NVLink; EFA 800 Gb/s (trn1) between nodes", 12.5),
    ],
)
def test_notes_say_how_fast_nodes_are_joined(note, gigabytes):
    assert between_nodes(note, 8) == pytest.approx(1e9 * gigabytes)


def test_notes_change_the_model_and_the_plan():
    plain, changed = read(), read(notes="parallel transformer block + sliding-window attention + overlaps")
    names = [{op.name for block in found.workload.blocks for op in block.ops} for found in (plain, changed)]
    assert names[0] - names[1] == {"ffn norm", "attention sync", "attention residual"}
    assert (plain.plan.overlap_data, changed.plan.overlap_data) == (False, True)
    slower, faster = evaluated([plain, changed]).step_s
    assert faster < slower
    assert read(notes="vanilla TP, torch.compile", source="torchtitan").plan.overlap_tensor is False
    assert read(notes="async TP, torch.compile", source="torchtitan").plan.overlap_tensor is True
    kernels = ("torch", "flash_attention2", "flash_attention2 + RMS kernel")
    eager = [
        read(notes=f"kernel={name}; rest", gated_ffn="1", flash_attention=str(2 * ("flash" in name)))
        for name in kernels
    ]
    assert [found.plan.fused_kernels for found in eager] == [False] * 3
    times_s = evaluated(eager).step_s
    assert times_s[0] > times_s[1] > times_s[2]


def test_defaults_are_said():
    found = read(precision="", micro_batch="", zero_stage_or_fsdp="", interconnect_note="", vocab="")
    assert found.plan.precision == "bf16"
    for word in ("bf16", "microbatch", "ZeRO", "Gb/s", "vocabulary"):
        assert any(word in told for told in found.assumed)
    assert read().assumed == ()


def test_stages_of_uneven_layers():
    assert stage_layers(126, 8) == (15, 16, 16, 16, 16, 16, 16, 15)
    assert stage_layers(10, 4) == (2, 3, 3, 2)
    # nanotron's documents print five layers on the first of eight stages of Llama 3 8B, whose head costs 2.2 layers
    assert by_cost(32, 8, 128256 * 4096 / (4 * 4096**2 + 3 * 4096 * 14336))[0] == 5
    assert sum(by_cost(16, 32, 4.0)) == 16


def test_open_recompute_is_the_least_that_fits():
    large = read(
        recompute="",
        pp="1",
        tp="1",
        dp="64",
        layers="24",
        hidden="2048",
        micro_batch="1",
        heads="16",
        ffn_hidden="8192",
    )
    small = dataclasses.replace(large, cluster=dataclasses.replace(
        large.cluster, accelerator=dataclasses.replace(large.cluster.accelerator, hbm_bytes=1e9)))  # fmt: skip
    chosen = settle([large, small, read()])
    assert [found.plan.recompute for found in chosen] == ["none", "full", "selective"]
    assert chosen[1].plan.recompute_share == 1.0
    assert alternatives(large) == (large,)
    unprinted = read(micro_batch="", pp="1", dp="8", global_batch_sequences="64")
    assert [found.plan.microbatch for found in alternatives(unprinted)] == [2, 4, 8]


# batches


def test_batches_agree_with_one_at_a_time():
    cases = [
        read(),
        read(pp="1", dp="8", source="FSDP", zero_stage_or_fsdp="FSDP2", hardware="H100"),
        read(experts="8", topk="2", gated_ffn="1", ffn_hidden="4096", ep="8"),
        read(seq="4096", tp="4", dp="8"),
    ]
    together = evaluated(cases)
    for i, found in enumerate(cases):
        alone = evaluated([found])
        assert together.step_s[i] == alone.step_s[0]
        assert together.peak_bytes[i] == alone.peak_bytes[0]
    assert sorted(np.concatenate([batch.indices for batch in stacked(cases)])) == [0, 1, 2, 3]
    assert len(stacked(cases)) == 3  # the first and the last share a structure
    first = cost(*prepare(cases[0].workload, cases[0].cluster, cases[0].plan), Exact(np))
    assert together.step_s[0] == pytest.approx(float(first.step_s), rel=1e-12)


def test_memory_that_logs_print_is_less_than_the_device_holds():
    found = evaluated(lightened([read(), read(source="nanotron", hardware="H100-80GB-SXM")]))
    assert (found.tensor_bytes < found.peak_bytes).all()


# malformed rows


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": "many"}, "`layers` is 'many'"),
        ({"layers": "nan"}, "`layers` is 'nan'"),
        ({"layers": "1e400"}, "`layers` is '1e400'"),
        ({"hidden": "-5"}, "`hidden` is '-5'"),
        ({"seq": ""}, "`seq` is empty"),
        ({"gpus": "0"}, "`gpus` is '0'"),
        ({"gpus": "8.5"}, "`gpus` is '8.5'"),
        ({"gpus": "8"}, "`tp` x `cp` x `pp` is 16"),
        ({"hardware": "abacus"}, "`hardware` is 'abacus'"),
        ({"precision": "roman"}, "`precision` is 'roman'"),
        ({"recompute": "perhaps"}, "`recompute` is 'perhaps'"),
        ({"gated_ffn": "x"}, "`gated_ffn` is 'x'"),
        ({"experts": "8", "topk": ""}, "`topk` is empty"),
        ({"pp": "49", "tp": "1", "gpus": "49", "dp": "1"}, "`pp` is 49"),
        ({"global_batch_sequences": ""}, "`global_batch_sequences` is empty"),
    ],
)
def test_a_malformed_row_says_why(changes, said):
    assert said in refused(**changes)


def table(tmp_path: Path, rows: list[dict[str, str]], *broken: str) -> Path:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(ROW), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path = tmp_path / "rows.csv"
    path.write_text(text.getvalue() + "".join(broken), encoding="utf-8")
    return path


def test_a_malformed_line_costs_that_row_alone(tmp_path):
    good = table(tmp_path, [ROW]).read_text().splitlines()[1] + "\n"
    broken = ["a,b\n", '"opened and never closed\n', good, "\n", good.replace("6144", "\0"), good]
    found = read_cases(table(tmp_path, [ROW], *broken))
    assert [isinstance(entry, Case) for entry in found] == [True, False, False, True, False, True]
    quoted = ROW | {"notes": "two\nlines, and a comma"}
    assert [entry.row["notes"] for entry in read_cases(table(tmp_path, [quoted, ROW]))] == [quoted["notes"], ""]


def test_a_file_of_something_else_is_one_error(tmp_path):
    for content in (b"", b"name,age\nx,3\n", b"\xff\xfe\x00"):
        path = tmp_path / "other.csv"
        path.write_bytes(content)
        with pytest.raises(SpecError, match="expected column names"):
            read_rows(path)
    with pytest.raises(SpecError, match="no such file"):
        read_rows(tmp_path / "absent.csv")


_CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "2", "8", "1e9", "-1", "inf", "full", "none", "fp8", "FSDP", "H100", "TPU v5p", "ZeRO-1"]
    ),
    st.text(max_size=12),
)


@given(st.dictionaries(st.sampled_from(list(ROW) + ["experts", "topk", "ep"]), _CELLS, max_size=6))
def test_any_row_is_read_or_refused(changes):
    found = case(ROW | changes)
    if isinstance(found, Unreadable):
        assert found.reason
        return
    figures = evaluated(lightened(settle([found])))
    assert figures.step_s[0] > 0 or not np.isfinite(figures.step_s[0])


def test_ten_thousand_rows_take_seconds(tmp_path):
    """1,000 distinct rows in 2 s of processor time: 10,000 in 20."""
    rows = [
        ROW
        | {
            "layers": str(2 * (8 + i % 50)),
            "micro_batch": str(1 + i % 2),
            "tp": str(2 ** (i % 4)),
            "dp": "",
            "recompute": "",
        }
        for i in range(1000)
    ]
    path = table(tmp_path, rows)
    start = time.process_time()
    cases = [entry for entry in read_cases(path) if isinstance(entry, Case)]
    figures = evaluated(settle(cases))
    assert time.process_time() - start < 2.0
    assert np.isfinite(figures.step_s).all()
    assert len(cases) == 1000
