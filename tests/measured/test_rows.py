"""Rows of measurements: what the words of a row change, and batches of rows against one at a time."""

import dataclasses

import numpy as np
import pytest

from costmodel import Exact, cost, prepare
from costmodel.measured.rows import (
    alternatives,
    evaluated,
    lightened,
    settle,
    stacked,
)
from costmodel.measured.rows.layouts import by_cost, stage_layers
from costmodel.measured.rows.readings import _layouts, _median_layout, _with_least_recompute
from costmodel.measured.rows.words import between_nodes
from tests.support.row_by_hand import read


def test_words_name_the_software():
    assert read(source="a NeMo table", hardware="H100-80GB-SXM").stack == "megatron-core"
    assert read(source="x", notes="MaxText", zero_stage_or_fsdp="FSDP").stack == "xla-gpu"
    assert read(source="x", notes="Megatron-formula TFLOPs=120", zero_stage_or_fsdp="FSDP2").stack == "fsdp"
    assert read(source="x", zero_stage_or_fsdp="ZeRO-3 (DeepSpeed)").stack == "deepspeed"
    assert read(source="x").stack == "megatron-2022"
    assert read(source="x", hardware="B200").stack == "megatron-core"


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
    for word in ("bf16", "microbatch", "ZeRO", "Gb/s", "vocab"):
        assert any(word in told for told in found.assumed)
    assert read().assumed == ("gradients in fp16",)


def test_stages_of_uneven_layers():
    assert stage_layers(126, 8) == (15, 16, 16, 16, 16, 16, 16, 15)
    assert stage_layers(10, 4) == (2, 3, 3, 2)
    # nanotron's documents print five layers on the first of eight stages of Llama 3 8B, whose head costs 2.2 layers
    assert by_cost(32, 8, 128256 * 4096 / (4 * 4096**2 + 3 * 4096 * 14336))[0] == 5
    assert sum(by_cost(16, 32, 4.0)) == 16


@pytest.mark.parametrize(("layers", "virtual"), [("105", 3), ("70", 2), ("35", 1)])
def test_stages_that_interleave_are_cut_as_little_as_their_layers_allow(layers, virtual):
    found = read(layers=layers, pp="35", tp="8", gpus="280", dp="1", vpp="", notes="interleaved schedule used")
    assert found.plan.virtual_stages == virtual


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


BARE = {"tp": "", "pp": "", "dp": "", "vpp": "", "sp": "", "hardware": "H100", "micro_batch": ""}


def test_an_open_layout_is_a_middling_one_of_those_that_fit():
    large = BARE | {"layers": "96", "hidden": "12288", "heads": "96", "ffn_hidden": "49152", "recompute": "full"}
    row = read(**(large | {"gpus": "512", "global_batch_sequences": "1536"}))
    (chosen,) = settle([row])
    others = [settled for settled in _with_least_recompute(_layouts(row)) if settled.plan != chosen.plan]
    figures, own = evaluated(others), evaluated([chosen])
    hbm_bytes = float(row.cluster.accelerator.hbm_bytes)
    fits = figures.peak_bytes <= hbm_bytes
    assert own.peak_bytes[0] <= hbm_bytes
    assert 0.02 < np.mean(figures.step_s[fits] < own.step_s[0]) < 0.5  # of all; the slowest are hardly likely
    assert 0.2 < np.mean(figures.peak_bytes[fits] < own.peak_bytes[0]) < 0.8
    assert len(alternatives(chosen)) == 1  # its microbatch is of the layout
    assert not any("tp 1" in note for note in chosen.assumed)


def test_what_a_row_tells_of_an_open_layout_stays():
    told = BARE | {"micro_batch": "2", "notes": "4 gradient accumulation steps", "global_batch_sequences": "64"}
    (chosen,) = settle([read(**told)])
    assert (chosen.plan.data, chosen.plan.microbatch, chosen.plan.tensor * chosen.plan.pipeline) == (8, 2, 8)


def test_the_median_layout_of_three():
    likely, every = np.array([1.0, 1.01, 1.02]), np.ones(3, bool)
    assert _median_layout(likely, np.array([3.0, 2.0, 1.0]), 4.0, every) == 1
    assert _median_layout(likely, np.array([3.0, 2.0, 1.0]), 1.5, every) == 2  # alone fits
    assert _median_layout(likely, np.array([3.0, 2.0, 1.0]), 0.5, every) == 2  # nothing fits: least memory
    assert _median_layout(np.array([1.0, np.nan, np.inf]), np.array([3.0, 2.0, 1.0]), 4.0, every) == 0
    assert _median_layout(np.full(3, np.nan), np.full(3, np.inf), 4.0, every) == 0  # sizes that no model has
    assert (
        _median_layout(np.array([1.0, 9.0, 9.0]), np.array([3.0, 2.0, 1.0]), 4.0, every) == 0
    )  # nobody runs the others
    assert _median_layout(likely, np.array([3.0, 2.0, 1.0]), 4.0, np.array([True, False, False])) == 0
    assert _median_layout(likely, np.array([3.0, 2.0, 1.0]), 2.5, np.array([True, False, False])) == 1  # no usual fits


def test_as_many_data_ranks_as_accelerators_are_a_layout():
    row = BARE | {"source": "ColossalAI", "zero_stage_or_fsdp": "zero2 (dp64)"}
    assert "layout" not in read(**row).open
    assert read(**row).plan.data == 64
    assert "layout" in read(**row | {"zero_stage_or_fsdp": "zero2 (dp8)"}).open


def test_a_batch_of_each_rank_grows_with_the_ranks_of_an_open_layout():
    """K: batches `per DP` of ColossalAI's and DeepSpeed's loops; the number is no degree."""
    told = BARE | {"source": "DeepSpeed", "zero_stage_or_fsdp": "ZeRO-2", "global_batch_sequences": ""}
    row = read(**told, notes="batch size per DP 36")
    assert (row.facts["local_batch"], row.workload.batch) == (36.0, 36 * 64)
    assert "data" not in row.facts
    for layout in _layouts(row):
        plan = layout.plan
        assert layout.workload.batch == 36 * plan.data
        assert plan.data * plan.tensor * plan.pipeline == 64
        assert plan.pipeline > 1 or plan.microbatch == 36
    assert {layout.plan.microbatch for layout in _layouts(row) if layout.plan.pipeline > 1} == {1, 2, 4, 8}


def test_deepspeed_divides_layers_where_nothing_else_fits():
    row = BARE | {"source": "DeepSpeed", "zero_stage_or_fsdp": "ZeRO-2", "recompute": "full", "precision": "bf16"}
    (small,) = settle([read(**row, layers="8", hidden="2048", heads="16", kv_heads="16", ffn_hidden="8192")])
    (large,) = settle([read(**row, layers="96", hidden="12288", heads="96", kv_heads="96", ffn_hidden="49152")])
    assert small.plan.tensor * small.plan.pipeline == 1 < large.plan.tensor * large.plan.pipeline


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
