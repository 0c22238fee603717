"""What a row prints of memory: the stage that has most with its own layers, and software that nobody names."""

import numpy as np
import pytest

from costmodel.measured import evaluated, held_in_order, in_any_software, posterior, settle
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


def test_one_kind_of_layer_is_held_as_evaluated():
    row = read()
    even = evaluated([row])
    assert np.array_equal(np.array(held_in_order([row], even)), np.array(even))


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
