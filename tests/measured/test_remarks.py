"""Notes that weigh what the row has not, products of batches, parts of a node and of the layers, meshes in a tuple."""

import pytest

from tests.measured.test_free_prose import OPEN
from tests.support.paraphrases import sentences
from tests.support.row_by_hand import read

SAID = {
    ("recompute", "none"): (
        "no recompute; full {recompute|recomputation} {costs|adds|takes} {about |}30 %",
        "{nothing recomputed|activations kept}; recomputing everything was {30% |much |}slower",
        'activation_checkpoint.mode="none"',
    ),
    ("recompute", "selective"): (
        "selective recompute; full recomputation {would add|costs} 33%",
        "{activations|outputs} of linear layers kept, {the others|the rest} recomputed in the backward pass",
        "{SAVE_DOT_EXCEPT_LOGITS|save_qkv} checkpoint policy",
        "SP + selective (slide 4)",
    ),
    ("recompute", "full"): (
        "full recompute, which costs 30 %",
        "full activation checkpointing costs about 30% here",
        "full recompute; {an earlier post|the previous version} used selective recompute",
        "{recompute always|recomputation throughout|remat at layer boundaries}",
    ),
    ("recompute_share", 0.75): ("{three quarters|3 quarters} of the layers recomputed",),
    ("virtual_stages", 1): (
        "PP 2, 1F1B; {interleaved|the interleaved schedule} {was slower|was 4% slower|did not help|ran slower}",
    ),
    ("schedule", "interleaved"): ("PP 2; interleaved, plain 1F1B was slower",),
    ("precision", "fp8_tensor"): ("FP8 per tensor; MXFP8 figures differ by 3 %",),
    ("precision", "bf16"): (
        "bf16 (fp8 {run|training} diverged{| and is left out})", "bf16; {fp8|FP8} {omitted|left out|skipped}",
       "{float8|FP8} is the next row", "{bf16|BF16}; the next {row|table} has FP8"),
    ("master_weights", False): (
        "bf16 weights and optimizer, {no|without an} {fp32|FP32|32-bit} copy",
        "no {fp32|float32} copies of the weights",
    ),
    ("tensor", 8): (
        "{tensor parallelism|TP} {spans|fills|covers} {the|a whole|one} node",
        "tensor parallel across all GPUs of {the|a} node",
        "config_64x8x144xtp8pp2cp1_cg.sh",
        "tensor parallel 8 and pipeline 2 {within a pod|across nodes|with 1F1B}",
    ),
    ("tensor", 4): (
        "mesh_dim {'1,16,4'|(1, 16, 4)} (dp, fsdp, mp)",
        "ICI mesh [1, 16, 4] (replica, data, mdl)",
        "4-way Megatron tensor, 2-way Megatron pipeline",
    ),
    ("overlap_tensor", False): ("Megatron-LM TP 2; TP overlap not {there yet|implemented}",),
    ("data", 32): ("32 replicas of 2 GPUs each (tensor parallel)", "a copy on 2 GPUs"),
    ("pipeline", 2): ("2-way Megatron{-LM|} pipeline", "tensor parallel 8 and pipeline 2 {in|across} nodes"),
    ("microbatch", 8): ("GBS {64|} = 4 DP x 8 {MBS|micro-batch} x 2 accumulation",)
    + ("TP 8, PP 2; {b=8|b = 8|batch 8} (micro{|-batch})", "TP 8, PP 2, micro b=8")
    + ("GBS derived as 8 (micro-batch) x 2 (accumulation) x 4 (DP)", "8*2*4 (micro x accumulation x DP)"),
    ("data_shard", 16): ("HSDP with {one replica per|a copy on every} 2 nodes", "HSDP, shard over 2 nodes"),
    ("offload_optimizer", 1.0): ("Adam on Grace", "optimizer states and fp32 masters in LPDDR5"),
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), SAID)
def test_said(field, value):
    for notes in sentences(*SAID[field, value]):
        assert getattr(read(**OPEN | {"notes": notes}).plan, field) == value, notes


@pytest.mark.parametrize(
    ("cell", "share"),
    [("partial (half)", 0.5), ("partial (a quarter)", 0.25), ("two thirds of the layers", 2 / 3)],
)
def test_parts_of_the_layers_in_the_column(cell, share):
    plan = read(**OPEN | {"recompute": cell}).plan
    assert (plan.recompute, plan.recompute_share) == ("full", share)


@pytest.mark.parametrize(
    "notes",
    sentences(
        "batch size 12, {gradient_accumulation_steps 40 (divided by the ranks)|40 accumulation steps over all ranks}",
        "nanoGPT, batch_size 12, gradient_accumulation_steps 40",
    ),
)
def test_microbatches_that_all_ranks_have_together(notes):
    row = OPEN | {"gpus": "8", "tp": "1", "pp": "1", "global_batch_sequences": "", "notes": notes}
    assert read(**row).workload.batch == 480, notes


def test_a_batch_beside_accumulation_on_one_accelerator_is_the_microbatch():
    row = OPEN | {"gpus": "1", "global_batch_sequences": "", "notes": "batch 4, gradient accumulation 4"}
    case = read(**row)
    assert (case.workload.batch, case.plan.microbatch) == (16, 4)


def test_a_slow_link_between_nodes_is_the_nodes():
    row = OPEN | {"hardware": "V100-32GB", "precision": "fp16", "interconnect_note": "25 Gb/s between nodes"}
    assert read(**row).cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(25e9 / 8 / 8)


@pytest.mark.parametrize(
    "note", sentences("4 {Omni-Path|OPA|Slingshot|CX-6|EFA} 100 {Gb/s|Gbps} per node", "4 Omni-Path 100 Gb/s")
)
def test_links_counted_before_their_name(note):
    row = OPEN | {"hardware": "A100-80GB-SXM", "interconnect_note": note}
    assert read(**row).cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(4 * 100e9 / 8 / 8)
