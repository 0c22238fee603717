"""What a row prints of memory: the stage that has most with its own layers, and software that nobody names."""

import dataclasses

import numpy as np
import pytest

from costmodel.measured import evaluated, held_in_order, in_any_software, logged_bytes, posterior, settle
from optimize.diagnosis import explain
from optimize.diagnosis.predict import predict
from tests.support.row_by_hand import read

EXPERTS = {
    "source": "Megatron-LM table", "hardware": "H100-80GB-SXM", "model": "truncated", "layers": "4", "hidden": "2048",
    "heads": "16", "kv_heads": "16", "ffn_hidden": "8192", "gated_ffn": "1", "experts": "8", "topk": "2", "ep": "4",
    "gpus": "8", "tp": "1", "sp": "0", "pp": "2", "dp": "4", "micro_batch": "1", "recompute": "none",
    "precision": "bf16", "zero_stage_or_fsdp": "distributed optimizer",
}  # fmt: skip


def test_a_stage_is_held_with_its_own_layers():
    """One dense layer and one with experts on the first stage, two with experts on the last: a rank has two of a
    layer's 8 experts, each as large as the dense layer's own products. `evaluated` spreads 1.5 on each stage."""
    row = read(**EXPERTS, notes="1 dense layer")
    even = evaluated([row])
    held = held_in_order([row], even)
    told = explain(row.workload, row.cluster, row.plan)
    assert held.peak_bytes[0] == pytest.approx(told.fullest.peak_bytes, rel=1e-12)
    assert held.tensor_bytes[0] == pytest.approx(told.fullest.reserved_bytes, rel=1e-12)
    assert held.allocated_bytes[0] == pytest.approx(told.fullest.allocated_bytes, rel=1e-12)
    first, last = (stage.terms["weights"] for stage in told.stages)
    assert last - first == pytest.approx((2 - 1) * 2 * 3 * 2048 * 8192, rel=1e-3)
    assert held.peak_bytes[0] > 1.05 * even.peak_bytes[0]


@pytest.mark.parametrize(
    ("words", "stage"),
    [
        ("", "first"),
        ("memory as printed (peak per GPU)", "first"),
        ("torchtitan; memory of the first stage", "first"),
        ("torchtitan; reserved memory on rank 0", "first"),
        ("memory of the first stage", "first"),
        ("memory is the maximum over all ranks", "fullest"),
        ("max_memory_reserved of the worst rank", "fullest"),
        ("Mem = nvidia-smi max on first/last nodes", "fullest"),
        ("peak memory across all GPUs", "fullest"),
        ("max memory reserved over the ranks", "fullest"),
        ("highest of the stages", "fullest"),
        ("memory on the last stage", "last"),
        ("reserved memory is that of the last rank", "last"),
        ("last rank memory", "last"),
        ("2 layers fewer on the last stage", "first"),
        ("trained with Primus", "last"),
        ("torchtitan", "last"),
        ("torchtitan, memory of the worst rank", "fullest"),
        ("rank-7 rocm max mem usage/usage_ratio", "fullest"),
    ],
)
def test_of_which_stage_a_row_prints_the_memory(words, stage):
    """Against `explain`, stage by stage, of a model whose last stage has most: few layers, large logits."""
    sizes = {"layers": "8", "hidden": "2048", "heads": "16", "kv_heads": "16", "ffn_hidden": "8192"}
    row = read(**sizes, vocab="200000", micro_batch="8", notes=words)
    of_device = bool(row.facts.get("device_memory"))
    each = [
        own.reserved_bytes + of_device * (row.cluster.stack.context_bytes + own.terms["buffers"])
        for own in explain(row.workload, row.cluster, row.plan).stages
    ]
    assert each[-1] > 1.1 * each[0]
    meant = {"first": each[0], "last": each[-1], "fullest": max(each)}[stage]
    assert logged_bytes([row], evaluated([row]))[0] == pytest.approx(meant, rel=1e-9)


def test_without_a_pipeline_the_words_for_ranks_change_nothing():
    plain, last = (read(pp="1", dp="8", notes=words) for words in ("", "memory of the last rank"))
    assert logged_bytes([plain], evaluated([plain])) == logged_bytes([last], evaluated([last]))


def test_zero_3_shows_the_weights_that_are_loaded_whole():
    """7B parameters in 16 bits on 64 ranks, of which a small microbatch needs less; not where they do not fit."""
    sizes = {"hidden": "4096", "heads": "32", "kv_heads": "32", "ffn_hidden": "11008", "gated_ffn": "1"}
    sizes |= {"layers": "32", "tp": "1", "pp": "1", "dp": "64", "micro_batch": "1", "recompute": "full", "seq": "256"}
    sizes |= {"source": "DeepSpeed", "zero_stage_or_fsdp": "ZeRO-3", "precision": "bf16"}
    row = read(**sizes)
    figures = evaluated([row])
    by_hand = 2 * (32 * (4 * 4096**2 + 3 * 4096 * 11008) + 2 * 51200 * 4096)
    assert figures.tensor_bytes[0] < 0.6 * by_hand
    assert logged_bytes([row], figures)[0] == pytest.approx(by_hand, rel=1e-3)
    small = dataclasses.replace(row.cluster.accelerator, hbm_bytes=0.9 * by_hand)
    tight = dataclasses.replace(row, cluster=dataclasses.replace(row.cluster, accelerator=small))
    assert logged_bytes([tight], figures)[0] == figures.tensor_bytes[0]
    watched = read(**sizes, notes="nvidia-smi")
    assert logged_bytes([watched], evaluated([watched]))[0] == figures.device_bytes[0]


def test_one_kind_of_layer_is_held_as_evaluated():
    row = read()
    even = evaluated([row])
    for own, other in zip(held_in_order([row], even), even, strict=True):
        assert np.array_equal(own, other)


NAMED = {"notes": "gradients in bf16", "hardware": "H100-80GB-SXM", "precision": "bf16", "pp": "1", "dp": "8"}


@pytest.mark.parametrize("tensor", ["1", "8"])
def test_memory_in_software_that_nobody_names_is_the_geometric_mean(tensor):
    """Over the four classes that run on the accelerator, each as the row is predicted where it names that one."""
    layout = NAMED | {"tp": tensor, "gpus": str(8 * int(tensor)), "zero_stage_or_fsdp": "ZeRO-1", "hidden": "2048"}
    unnamed = read(**layout, source="somebody's table")
    classes = {"megatron-core", "fsdp", "deepspeed", "nanotron"}
    assert {unnamed.stack, *(other.stack for other in in_any_software(unnamed))} == classes
    (found,), each = predict([unnamed]), predict(in_any_software(unnamed))
    (own,) = settle(posterior.with_constants([unnamed]))
    alone = [evaluated([own]).tensor_bytes[0], *(other.mem_bytes for other in each)]
    assert max(alone) > 1.1 * min(alone)
    assert found.mem_bytes == pytest.approx(np.exp(np.mean(np.log(alone))), rel=1e-9)


def test_named_software_is_its_own():
    assert in_any_software(read()) == ()
