"""What notes of sources outside the bulk sets say: groups that share weights, modules that are computed again, what
lies on the host, degrees in lists and meshes, sizes of the model. The wordings were written before the reader saw them.
"""

import pytest

from costmodel.inputs import layers
from tests.measured.test_free_prose import OPEN
from tests.support.paraphrases import sentences
from tests.support.row_by_hand import read, refused

SAID = {
    ("data_shard", 16): (
        "HSDP: {4-way replicate, 16-way shard|replicate 4 x shard 16|16-GPU groups|16-rank shard groups}",
        "{weights|parameters} {sharded|partitioned} in groups of 16, {replicated 4 times|4 replicas}, FSDP",
        "MiCS{ with|,|:} {sharding group of 16 GPUs|partition group size 16|sharding degree 16}",
        "sharded data parallel degree 16",
        "HSDP {shards over 16|with shards across 16 ranks}",
        "mesh: data=4, fsdp=16",
        "full shard with 16-card hybrid",
        "model states are partitioned over 16 GPUs and replicated 4x",
    ),
    ("data_shard", 8): (
        "{parameters|weights} {are |}sharded within {the|a|each} node",
        "{MiCS within a node|HYBRID_SHARD on eight nodes|hybrid sharding inside each node}",
    ),
    ("zero_stage", 3): (
        "{parameters|weights|params} {are |}{sharded|partitioned} {over all ranks|across the GPUs}",
        "{sharded data parallelism|MiCS|ZeRO++: qwZ, hpZ and qgZ}",
        "optimizer sharded like ZeRO-3",
        "weights and optimizer {split|partitioned} among all {data-parallel |}ranks",
        "{ds_z3_config.json|stage-3 sharding|SDP 64}",
    ),
    ("zero_stage", 2): (
        "FSDP, {SHARD_GRAD_OP|sharding_strategy: SHARD_GRAD_OP|reshard_after_forward=False}",
        "FSDP, {weights kept after the forward pass|parameters stay gathered}",
    ),
    ("zero_stage", 1): ("{Adam|AdamW} with {sharded|partitioned} state", "stage-1 sharding")
    + ("{TP8 with ZeRO|DP + ZeRO|Megatron-LM, ZeRO optimizer|3D parallelism and ZeRO}",),
    ("zero_stage", 0): ("DDP. ZeRO-1 {brought|gained} {nothing|no speedup}.",)
    + ("FSDP-free: weights replicated on every rank",)
    + ("DDP. FSDP {gave|reached|had} {about |}the same speed.", "DeepSpeed, {ZeRO-2 off|no ZeRO}"),
    ("recompute", "selective"): (
        "Megatron TP 2; selective; {step derived|compiled}",
        "{recompute|activation checkpointing} {only |}{of|on} {the |}{layernorm|SwiGLU|MLA up-projections}",
        "recompute of the MoE activation function",
        "{selected|some|part of the} {ops|operators|modules} {recomputed|checkpointed}",
    ),
    ("recompute", "full"): (
        "full {gradient|activation|act} checkpointing of {attention and FFN blocks|every module}",
        "RECOMPUTE_ACTIVATIONS=full",
        "{AC|checkpointing|rematerialization|re-materialization|recomputation}; {step derived|compiled}",
        "{checkpointing|ckpt} of {the |}activations",
        "{recompute|ckpt|remat of} {all|the|decoder} layers",
        "full ckpting",
        "{layer checkpointing|checkpointing per stage}",
        "{gradient checkpointing and flash attention|grads ckpted|ckpt_num_layers 1}",
    ),
    ("recompute", "none"): ("{activation_checkpointing_type|recompute_granularity}: {disabled|none}",),
    ("optimizer", "adam_8bit"): ("adamw_bnb_8bit", "{paged|Paged} AdamW {8 bit|8bit}", "paged_adamw_8bit"),
    ("optimizer", "adam"): ("measured on the Lion {cluster|supercomputer|system}",),
    ("optimizer", "sgd"): ("Lion optimizer", "optimizer: Lion"),
    ("attention", "unfused"): ("FlashAttention {impossible|unavailable|not supported|unsupported} on {Volta|it}",),
    ("overlap_expert", True): ("combined 1F1B {hides|hiding} the {all-to-all|dispatch}",)
    + ("EP all-to-all {hidden behind|hidden under} {compute|attention}", "expert dispatch {fully|completely} hidden"),
    ("overlap_tensor", True): ("TP communication {completely|fully} hidden",),
    ("overlap_tensor", False): ("async tensor-model-parallel allreduce {disabled|off}",),
    ("offload_weights", 1.0): ("{parameters|params, gradients and optimizer states} on {NVMe|SSD}",)
    + ("weights {kept|parked} in {CPU|host} memory", "parameters and optimizer in {CPU|NVMe}"),
    ("offload_optimizer", 1.0): ("Adam on {the |}{CPU|host}", "optimizer states {in|on} {NVMe|host memory}")
    + ("DeepSpeed ZeRO-3 Offload", "ZeRO-3 {plus|with} {offload|offloading}")
    + ("optimizer states and {activation checkpoints|weights} to {CPU|DRAM}",),
    ("state_dtype", "bf16"): ("full AdamW in {bf16|BF16} states",),
    ("offload_optimizer", 0.6): ("optimizer offload {with|at} {|a }{fraction|ratio|share} {of |}0.6",),
    ("tensor", 2): ("optimizer states sharded, {sharded |}TP 2", "tensor 2, sequence 4")
    + ("TP pairs", "tensor-parallel pairs", "2-way {operator|tensor|intra-op} parallelism")
    + ("tensor 2, {context 1, |}pipeline 1", "mesh fsdp=-1, model=2", "(data 32 x model 2)"),
    ("attention", "flash_2"): ("FA CK v2", "{FA|attention}, CK backend", "TE {with|via|w/} CK"),
    ("gradient_dtype", "bf16"): ("Megatron-LM, DP gradients {compressed|cast} to {bf16|BF16}",),
    ("gradient_dtype", "fp32"): ("ZeRO-1, bf16 optimizer with {fp32|FP32} accumulation",),
    ("context", 4): ("Ulysses {sequence parallel |}size 4", "d_sp = 4, d_dp = 16")
    + ("{head-parallel|head parallel degree} 2, context-parallel 2",),
    ("data", 8): ("{8 GPUs|8 chips} per {replica|model copy}", "(D,T,P) = (8,4,2)", "8 DP, 4 TP, 2 PP")
    + ("layout t4 p2 d8", "data shards 8, model shards 8")
    + ("tensor-, pipeline- and data-parallel {sizes|degrees} 4, 2 and 8", "2D mesh (fsdp, model) = (8, 8)"),
    ("pipeline", 4): ("12 layers per stage", "DP 4, TP 4")
    + ("4-way {zero-bubble|interleaved|} pipeline parallelism", "4 stages; 1F1B", "p=4, d=16"),
    ("master_weights", False): ("precision bf16-true", "16-true precision"),
    ("master_weights", True): ("pure bf16 with {stochastic rounding|Kahan sums} not used, fp32 master{s| weights}",),
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), SAID)
def test_unseen_prose(field, value):
    for notes in sentences(*SAID[field, value]):
        assert getattr(read(**OPEN | {"notes": notes}).plan, field) == value, notes


@pytest.mark.parametrize(
    "notes",
    sentences("interleaved{| 1F1B} with 3 {chunks|stages} per {rank|GPU}", "1F1B-I with 3 chunks")
    + sentences("INTERLEAVED_PIPELINE=3", "interleaved{ |-}pipeline {size|degree} 3"),
)
def test_virtual_stages(notes):
    plan = read(**OPEN | {"pp": "2", "notes": f"{notes}; GPT"}).plan
    assert (plan.schedule, plan.virtual_stages) == ("interleaved", 3), notes


def test_another_runs_schedule_is_not_the_rows():
    plan = read(**OPEN | {"pp": "2", "notes": "1F1B-I with 3 chunks as baseline for zero bubble"}).plan
    assert (plan.schedule, plan.virtual_stages) == ("interleaved", 3)


@pytest.mark.parametrize(
    "notes",
    sentences("24 {layers|transformer layers}, {hidden|hidden size|d_model} {1024|= 1024}, 64 experts{,| with} top-1")
    + sentences("{n_layers|num_layers}=24, {d_model|h}=1024, MoE with 64 experts, top 1", "L=24, h=1024, E=64, k=1"),
)
def test_sizes_of_a_mixture_in_words(notes):
    no_sizes = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "params_B"), "")
    case = read(**OPEN | no_sizes | {"model": "MoE-Medium", "ep": "8", "notes": notes})
    assert layers(case.workload) == 24, notes
    assert case.plan.expert == 8, notes


@pytest.mark.parametrize(
    "notes",
    sentences("{4 seqs|4 sequences|4 samples} per {GPU|device}{| at a time}")
    + sentences("rank batch 8 in microbatches of 4", "dp 64, micro 4"),
)
def test_sequences_of_a_device(notes):
    row = OPEN | {"global_batch_sequences": "512", "tp": "1", "pp": "1", "notes": notes}
    assert read(**row).plan.microbatch == 4, notes


@pytest.mark.parametrize(
    "notes", sentences("recompute {ratio 50 %|of 50 % of the layers}", "ckpt 50% of {the |}layers")
)
def test_half_of_the_layers(notes):
    plan = read(**OPEN | {"notes": notes}).plan
    assert (plan.recompute, plan.recompute_share) == ("full", 0.5), notes


@pytest.mark.parametrize("notes", sentences("interleaved, v=3", "interleaved; 8 layers {per|a} stage", "3-way VPP"))
def test_chunks_of_an_interleaved_schedule(notes):
    plan = read(**OPEN | {"pp": "2", "notes": notes}).plan
    assert (plan.schedule, plan.virtual_stages) == ("interleaved", 3), notes


def test_layers_of_a_stage_that_are_recomputed_divide_nothing():
    assert read(**OPEN | {"notes": "recompute of 12 layers per stage; PP 2"}).plan.pipeline == 2


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ("text generation throughput", "nothing is trained"),
        ("{TAID |}distillation {with a|from a larger} teacher", "second model"),
        ("{linear|lightning} attention in 7 of 8 layers", "no attention"),
        ("prompt tuning of {the |}{7B |}model", "adapters"),
        ("short convolutions and a few attention layers", "no attention"),
    ],
)
def test_refused(notes, why):
    for said in sentences(notes):
        assert why in refused(**OPEN | {"notes": said})


OF_OTHERS = (
    "{7B|LoRA|FP8|HSDP} {rows|bars|curves} {use|have} {TP 4, DPO, FP8|AC, FA3 and Muon}",
    "the row with {TP 4|FP8|AsyncTP|full AC} {follows|is below|above}",
    "Megatron-SP bar{s|} {with TP 4|fail}",
    "QLoRA {rows|bars|curves} are {dropped|left out}",
)


@pytest.mark.parametrize("notes", sentences(*OF_OTHERS))
def test_what_is_told_of_other_rows(notes):
    plain = read(**OPEN | {"notes": "compiled"})
    told = read(**OPEN | {"notes": f"compiled; {notes}"})
    assert (told.plan, told.stack) == (plain.plan, plain.stack), notes


def test_this_is_the_column_behind_the_colon():
    own = read(**OPEN | {"zero_stage_or_fsdp": "FSDP", "notes": "eager vs inductor: this is the inductor column"})
    assert not own.cluster.stack.habits.eager


def test_degrees_that_columns_leave_no_room_for_are_anothers():
    row = OPEN | {"pp": "8", "dp": "8", "notes": "baseline Megatron-LM TP 8"}
    assert read(**row).plan.tensor == 1


def test_nanotrons_all_reduce_mode_divides_no_sequences():
    row = OPEN | {"tp": "2", "sp": "", "source": "nanotron"}
    assert not read(**row | {"notes": "tp_mode ALL_REDUCE"}).plan.sequence_parallel
    assert read(**row | {"notes": "tp_mode REDUCE_SCATTER"}).plan.sequence_parallel


@pytest.mark.parametrize("notes", sentences("{ZeRO++|ZeRO-3 with qwZ|hpZ and qgZ, ZeRO-3}"))
def test_what_zero_plus_plus_saves_is_said_not_to_be_counted(notes):
    assert any("ZeRO++" in note for note in read(**OPEN | {"notes": notes}).assumed)
    assert not any("ZeRO++" in note for note in read(**OPEN | {"notes": "ZeRO-3 without qwZ or hpZ"}).assumed)


@pytest.mark.parametrize(
    "notes", sentences("prompt tuning of {NCCL|the network|NCCL's environment} by the {vendor|provider}")
)
def test_prompt_tuning_of_a_network_is_no_training(notes):
    assert read(**OPEN | {"notes": notes}).plan == read(**OPEN | {"notes": "compiled"}).plan


def test_notes_deny_what_a_sources_name_says():
    row = OPEN | {"source": "Liger's benchmarks", "notes": "FSDP baseline without Liger"}
    assert read(**row).plan.loss == "usual"


@pytest.mark.parametrize(
    "notes",
    [
        "weights are {sharded|split} by {TP|tensor parallelism}",
        "expert weights {split|partitioned} by EP",
        "{trained|pretraining} {with|in} 2 stages",
        "weights kept in bf16 after the update",
        "SDP flash kernel",
        "FSDP 2",
        "on the Lion cluster",
        "{checkpoints are sent to|weights saved on} S3",
        "selective data loading",
        "pipeline of 4 data loaders",
    ],
)
def test_what_says_nothing_of_the_plan(notes):
    row = OPEN | {"zero_stage_or_fsdp": "FSDP2", "tp": "1", "pp": "1", "flash_attention": "2"}
    plain = read(**row | {"notes": "compiled"}).plan
    for said in sentences(notes):
        assert read(**row | {"notes": f"compiled; {said}"}).plan == plain, said
    open_plan = read(**OPEN | {"notes": "Megatron-LM"}).plan
    for said in sentences(notes):
        if "FSDP" not in said.upper() and "SDP" not in said.upper():
            assert read(**OPEN | {"notes": f"Megatron-LM; {said}"}).plan == open_plan, said
