"""Notes that weigh what the row has not, products of batches, parts of a node and of the layers, meshes in a tuple."""

import pytest

from tests.measured.test_free_prose import OPEN
from tests.support.paraphrases import sentences
from tests.support.row_by_hand import read

SAID = {
    ("recompute", "none"): (
        "{gradient_checkpointing|activation_checkpointing}: null",
        "no recompute; full {recompute|recomputation} {costs|adds|takes} {about |}30 %",
        "{nothing recomputed|activations kept}; recomputing everything was {30% |much |}slower",
        'activation_checkpoint.mode="none"',
    ),
    ("recompute", "selective"): (
        "activations {are |}checkpointed selectively",
        "selective recompute; full recomputation {would add|costs} 33%",
        "{activations|outputs} of linear layers kept, {the others|the rest} recomputed in the backward pass",
        "{SAVE_DOT_EXCEPT_LOGITS|save_qkv} checkpoint policy",
        "SP + selective (slide 4)",
        "MLA recompute",
        "recompute {moe|expert} layers only",
        "{moe|expert} layers are recomputed",
    ),
    ("recompute", "full"): (
        "{checkpointing|AC} {had to be|is|was} {switched|turned} on",
        "full recompute, which costs 30 %",
        "full AC is slower, but {needed|is needed}",
        "checkpoint 100 %",
        "recompute of the {whole|entire} MoE layer", "the whole MoE layer is recomputed",
        "full activation checkpointing costs about 30% here",
        "full recompute; {an earlier post|the previous version} used selective recompute",
        "{recompute always|recomputation throughout|remat at layer boundaries}",
    ),
    ("context_kind", "all_to_all"): ("Arctic ALST: SP=4, ZeRO-3",),
    ("recompute_share", 0.5): ("recompute 6 of the 12 layers of each stage",),
    ("recompute_share", 0.75): ("{three quarters|3 quarters} of the layers recomputed",),
    ("virtual_stages", 1): (
        "PP 2, 1F1B; {interleaved|the interleaved schedule} {was slower|was 4% slower|did not help|ran slower}",
    ),
    ("schedule", "interleaved"): (
        "PP 2 (virtual pipeline, v = 3)",
        "PP 2, interleaved pipeline with virtual stages (number not {printed|given})",
        "PP 2; interleaved, plain 1F1B was slower",),
    ("precision", "fp8_tensor"): ("FP8 per tensor; MXFP8 figures differ by 3 %",),
    ("precision", "bf16"): (
        "FP8 was {not|no} faster at this size, so BF16",
        "BF16 column; FP8 column is 1.4x",
        "{BF16 and FP8|FP8 and BF16} run; this row {BF16|is bf16}",
        "FP8: {N/A|n/a}",
        "{fp8|fp8_recipe|FP8 recipe}: {null|none}",
        "BF16 (FP8 {in|see} the row above)",
        "FP8 not {in this row|here}",
        "bf16 (fp8 {run|training} diverged{| and is left out})", "bf16; {fp8|FP8} {omitted|left out|skipped}",
       "{float8|FP8} is the next row", "{bf16|BF16}; the next {row|table} has FP8"),
    ("gradient_dtype", "bf16"): ("Megatron-LM; main grads bf16", "Megatron-LM, gradients {kept in|reduced in} bf16"),
    ("attention", "flash_2"): ("{flash attention ROCm|FlashAttention} (CK)", "CK attention"),
    ("zero_stage", 0): ("parameters replicated over {dp|data-parallel ranks}",),
    ("zero_stage", 2): ("ZeRO-100B (stage 2)",),
    ("sequence_parallel", True): ("Megatron-LM TP 8; row 3: SP and selective recomputation", "TP 8, SP & full AC"),
    ("sequence_parallel", False): ("TP 8 without SP; {+SP and selective follow|the SP rows are} in rows 2 and 3",),
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
    ("context", 8): ("sequence parallelism (Ulysses-style) over the 8 GPUs of a node",),
    ("tensor", 4): (
        "tensor_parallel_dim 4, data_parallel_shard_dim 16",
        "mesh_dim {'1,16,4'|(1, 16, 4)} (dp, fsdp, mp)",
        "ICI mesh [1, 16, 4] (replica, data, mdl)",
        "4-way Megatron tensor, 2-way Megatron pipeline",
    ),
    ("overlap_tensor", False): ("Megatron-LM TP 2; TP overlap not {there yet|implemented}",),
    ("data", 32): ("32 replicas of 2 GPUs each (tensor parallel)", "a copy on 2 GPUs"),
    ("pipeline", 2): ("2-way Megatron{-LM|} pipeline", "tensor parallel 8 and pipeline 2 {in|across} nodes"),
    ("microbatch", 8): ("GBS {64|} = 4 DP x 8 {MBS|micro-batch} x 2 accumulation",)
    + ("t=8, p=2, b=8", "TP 8, PP 2; {b=8|b = 8|batch 8} (micro{|-batch})", "TP 8, PP 2, micro b=8")
    + ("GBS derived as 8 (micro-batch) x 2 (accumulation) x 4 (DP)", "8*2*4 (micro x accumulation x DP)"),
    ("virtual_stages", 2): ("PP 4 ({x2|2x} virtual)",),
    ("data_shard", 16): ("HSDP with {one replica per|a copy on every} 2 nodes", "HSDP, shard over 2 nodes"),
    ("offload_optimizer", 0.0): ("CPU offload of optimizer and activations {both|are both} {off|disabled}",),
    ("offload_optimizer", 1.0): (
        "CPU offload of the optimizer {is|was} slower{,|} but {needed|necessary|was required|kept}",
        "{ds_z3_offload_config.json|z2 offload}",
       "Adam on Grace", "optimizer states and fp32 masters in LPDDR5"),
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), SAID)
def test_said(field, value):
    for notes in sentences(*SAID[field, value]):
        assert getattr(read(**OPEN | {"notes": notes}).plan, field) == value, notes


SWITCHED_OFF = (
    ("cuda_graphs", "cuda_graph_impl: {null|none}"),
    ("compiled", "{torch_compile|compile}: null"),
    ("multi_token", "mtp_num_layers: null"),
    ("gathers_8bit", "enable_fsdp_float8_all_gather=false"),
    ("offloaded_weights", "offload_param: null"),
)


@pytest.mark.parametrize(("fact", "words"), SWITCHED_OFF)
def test_settings_without_a_value_are_off(fact, words):
    for notes in sentences(words):
        assert not read(**OPEN | {"notes": notes}).facts.get(fact), notes


@pytest.mark.parametrize(
    "notes", sentences("decoder layer inputs {are |}offloaded{ to the host|}", "layer-input offload")
)
def test_activations_offloaded(notes):
    assert read(**OPEN | {"notes": notes}).facts["offloaded_activations"] == 1.0


@pytest.mark.parametrize(
    ("cell", "share"),
    [
        ("5 of 20 layers per stage", 0.25),
        ("partial (half)", 0.5),
        ("partial (a quarter)", 0.25),
        ("two thirds of the layers", 2 / 3),
    ],
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
    "note",
    sentences("400 Gb/s per GPU (8x400G{ Ethernet|})", "NDR 400 x8", "8 x NDR 400", "3.2 Tb/s fabric (8 x 400 Gb/s)"),
)
def test_as_many_links_as_accelerators_are_one_each(note):
    assert read(**OPEN | {"interconnect_note": note}).cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(50e9)


@pytest.mark.parametrize(
    "note",
    sentences(
        "4 {InfiniBand|IB|Slingshot|CX-6|EFA} 100 {Gb/s|Gbps} per node",
        "4 Slingshot 100 Gb/s",
        "4 Slingshot-11 NICs of 100 Gb/s",
    ),
)
def test_links_counted_before_their_name(note):
    row = OPEN | {"hardware": "A100-80GB-SXM", "interconnect_note": note}
    assert read(**row).cluster.tiers[-1].bandwidth_bytes_per_s == pytest.approx(4 * 100e9 / 8 / 8)


OF_SIZES = "no AC for {7B|8B}, selective AC for 13B, full AC for {70B|the 65B}"


@pytest.mark.parametrize(("size", "recompute"), [("7", "none"), ("13", "selective"), ("70", "full")])
def test_notes_that_tell_of_several_sizes(size, recompute):
    for notes in sentences(OF_SIZES):
        assert read(**OPEN | {"params_B": size, "notes": notes}).plan.recompute == recompute, notes


def test_notes_of_other_sizes_alone_are_read():
    assert read(**OPEN | {"params_B": "30", "notes": "full AC for 70B"}).plan.recompute == "full"


def test_the_source_names_the_schedule_where_notes_do_not():
    row = OPEN | {"pp": "2", "source": "torchgpipe paper"}
    assert read(**row | {"notes": "TP 1"}).plan.schedule == "gpipe"
    assert read(**row | {"notes": "1F1B"}).plan.schedule == "one_f_one_b"


def test_a_cell_may_say_why_there_is_none():
    assert read(**OPEN | {"recompute": "off (fits)"}).plan.recompute == "none"


def test_a_batch_as_a_product():
    row = OPEN | {"global_batch_sequences": "", "tp": "8", "pp": "1"}
    for notes in sentences("{GBS =|GBS derived =|global batch size of} 4*16 x 2"):
        assert read(**row | {"notes": notes}).workload.batch == 128, notes


def test_a_devices_batch():
    row = OPEN | {"global_batch_sequences": "", "tp": "1", "pp": "1", "notes": "device batch 4"}
    assert read(**row).workload.batch == 256
    assert read(**row | {"notes": "bf16; 4 per GPU"}).workload.batch == 256
    assert read(**row | {"notes": "512 sequences = 64 ranks x 8"}).workload.batch == 512


@pytest.mark.parametrize(
    "notes", sentences("{auto plan, |}{layout|degrees|parallel configuration} not {printed|disclosed}")
)
def test_a_layout_that_is_told_nowhere_is_open(notes):
    row = OPEN | {"source": "Colossal-AI blog", "params_B": "22"}
    assert "layout" in read(**row | {"notes": notes}).open
    assert "layout" not in read(**row | {"notes": "compiled"}).open


def test_what_brackets_tell_of_others_is_no_reason_to_refuse():
    notes = "pretraining: FP8 (the LoRA benchmark {of|in} the same {post|table} is FP4)"
    for told in sentences(notes):
        assert read(**OPEN | {"precision": "", "notes": told}).plan.precision == "fp8_tensor", told


@pytest.mark.parametrize(
    ("notes", "batch"),
    [
        ("FSDP2, batch_size 1, no gradient accumulation", 64),
        ("TP 8; micro-batch 4 a GPU, 1024 sequences (2M tokens) a step", 1024),
        ("FSDP, 8 a GPU, 2 accumulation steps (1024, that is 2M tokens)", 1024),
    ],
)
def test_batches_beside_other_numbers(notes, batch):
    row = OPEN | {"params_B": "70", "global_batch_sequences": "", "notes": notes}
    assert read(**row).workload.batch == batch


@pytest.mark.parametrize("notes", sentences("no --sequence-parallel{, no|and no} --use-distributed-optimizer"))
def test_flags_that_are_absent(notes):
    plan = read(**OPEN | {"tp": "8", "source": "Megatron-LM", "notes": notes}).plan
    assert (plan.zero_stage, plan.sequence_parallel) == (0, False), notes


def test_software_that_was_used_before_is_not_the_rows():
    assert read(**OPEN | {"notes": "JaxFormer was used before; here DeepSpeed ZeRO 3"}).stack == "deepspeed"


def test_files_that_are_written_are_no_recomputation():
    for notes in ("checkpoint every 69B tokens", "it includes evaluation, checkpoints and interruptions"):
        assert "recompute" in read(**OPEN | {"notes": notes}).open, notes
