"""What rows of mixtures of experts have beside their columns: biases, limited groups, what hides the tokens' way."""

import pytest

from costmodel.inputs import Kind
from costmodel.measured import Case, case

ROW = {
    "source": "Megatron-Bridge", "hardware": "GB200", "gpus": "64", "gpus_per_node": "4", "interconnect_note": "NVL72",
    "model": "Qwen3-30B-A3B", "layers": "48", "hidden": "2048", "heads": "32", "kv_heads": "4", "ffn_hidden": "768",
    "gated_ffn": "1", "vocab": "151936", "seq": "4096", "global_batch_sequences": "512", "micro_batch": "4", "tp": "1",
    "pp": "1", "dp": "64", "ep": "8", "precision": "mxfp8", "experts": "128", "topk": "8", "measured_step_s": "5",
}  # fmt: skip
DENSE = {"model": "Llama 3 8B", "experts": "", "topk": "", "ep": ""}


def read(**cells):
    found = case(ROW | cells)
    assert isinstance(found, Case), found
    return found


def operators(found):
    return {op.name: op for block in found.workload.blocks for op in block.ops}


@pytest.mark.parametrize("notes", ["CUDA graphs full_iteration", "CUDA graphs of the whole step"])
def test_graphs_of_a_whole_iteration_hide_tokens_and_leave_no_eager_experts(notes):
    whole, parts, dense = read(notes=notes), read(notes="CUDA graphs of attn and router"), read(notes=notes, **DENSE)
    assert (whole.plan.overlap_expert, whole.cluster.stack.habits.eager_experts) == (True, False)
    assert (parts.plan.overlap_expert, parts.cluster.stack.habits.eager_experts) == (False, True)
    assert not dense.plan.overlap_expert
    assert not read(notes=f"{notes}; no overlap of EP communication").plan.overlap_expert


def test_experts_of_gpt_oss_have_biases_and_clamped_gates():
    found, plain = operators(read(model="GPT-OSS-120B")), operators(read())
    assert {"expert bias", "clamped expert activation"} <= set(found)
    for name in ("expert up", "expert down", "router"):
        assert found[name].parameters
        assert not plain[name].parameters
    assert not {"expert bias", "clamped expert activation"} & set(plain)


@pytest.mark.parametrize(("model", "groups"), [("DeepSeek-V3", 4), ("DeepSeek-V2", 3), ("Kimi-K2", 8), ("Qwen3", 8)])
def test_tokens_reach_as_many_groups_as_their_routing_allows(model, groups):
    """Of eight experts a token: at most that share of its copies leaves a domain."""
    spreads = {op.spread for op in operators(read(model=model)).values() if op.kind == Kind.EXCHANGE}
    assert spreads == {groups / 8}
