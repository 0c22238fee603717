"""Rows as authors of many kinds write them: degrees in lists and formulas, comparisons with other runs, optimizers,
what lies in the host's memory, other languages. Each wording was written before the reader saw it."""

import time

import pytest

from costmodel.measured.rows import case
from tests.support.paraphrases import sentences
from tests.support.row_by_hand import ROW, read

OPEN = ROW | dict.fromkeys(("tp", "cp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "", "micro_batch": "", "flash_attention": ""}

DEGREES = (
    "TP8 {PP2|PP 2|PP=2} {DP4|DP 4}",
    "{(TP, PP, DP)|TP/PP/DP|TP-PP-DP|TP x PP x DP|[TP, PP, DP]} {=|:|of|is|} {(8, 2, 4)|8/2/4|8-2-4|8x2x4|[8, 2, 4]}",
    "{8x2x4 (TP x PP x DP)|8-2-4 TP-PP-DP|(8, 2, 4) = tp, pp, dp|8/2/4 for TP/PP/DP}",
    "{tensor, pipeline and data parallelism|TP, PP and DP} {of|with degrees|set to} 8, 2 and 4",
    "{DP4xTP8xPP2|tp8xpp2|dict(zero1=8, tensor=8, pipeline=dict(size=2))|tensor=8, pipeline=2}",
    "{model|tensor} {axis|degree} 8, pipeline {degree|size|depth|of depth} 2",
    "{one model copy|a replica} {per|in each} node (tensor parallel), 2 pipeline stages",
    "{t=8, p=2, d=4|t = 8; p = 2; d = 4|t8p2d4|tp8pp2dp4}",
    "{tensor parallelism|TP} {over|across|spanning} {8|eight|the eight|all 8} GPUs{| of it}, {2|two} pipeline stages",
    "{TP|tensor parallelism} increased from 4 to 8 and {PP|pipeline parallelism} {reduced|lowered} from 4 to 2",
    "{张量并行8，流水线并行2|张量并行度 8、流水并行 2|TP 8，PP 2，使用数据并行}",
    "{TP 8 und 2 Pipeline-Stufen|Tensorparallelität 8 mit Pipelineparallelität 2}",
    "TP=8, PP=2 {(vs. TP=4 in the baseline)|(compared to TP=4, PP=4)|instead of the TP=4 of others}",
    "TP=8, PP=2; {the baseline with TP=4 and PP=4 was 12% slower|previous setting (TP=4, PP=1): 5% worse}",
)


@pytest.mark.parametrize("pattern", DEGREES)
def test_degrees_in_lists_formulas_sentences_and_languages(pattern):
    for notes in sentences(pattern):
        plan = read(**OPEN | {"notes": notes}).plan
        assert (plan.tensor, plan.pipeline, plan.data) == (8, 2, 4), notes


@pytest.mark.parametrize("notes", ["dp, fsdp, tp, sp = (1, 4, 8, 1)", "mesh (4, 8) = (fsdp, tp)", "FSDP x TP = 4 x 8"])
def test_meshes(notes):
    plan = read(**OPEN | {"gpus": "32", "notes": notes}).plan
    assert (plan.tensor, plan.context, plan.data, plan.zero_stage, plan.data_shard) == (8, 1, 4, 3, None)


SAID = {
    ("optimizer", "adam_8bit"): ("{8-bit|8bit|int8} {Adam|AdamW|optimizer}{| (bitsandbytes)}", "AdamW8bit"),
    ("optimizer", "muon"): ("Muon{| optimizer| with AdamW for embeddings}", "{distributed|Moonlight} Muon"),
    ("optimizer", "adafactor"): ("{Adafactor|AdaFactor optimizer}",),
    ("optimizer", "adam"): ("AdamW", "no 8-bit Adam", "{fp8 matmuls|tokenizer}", "{faster|better} than Muon"),
    ("gradient_dtype", "bf16"): ("pure bf16 (weights, gradients, optimizer state)", "pure bf16, Megatron-LM"),
    ("state_dtype", "bf16"): (
        "pure bf16 (weights, gradients, optimizer state)",
        "{BF16|bfloat16|16-bit} {moments|optimizer states|Adam states|exp_avg}",
        "{moments|optimizer states} {in|kept in} {bf16|BF16}",
    ),
    ("offload_optimizer", 0.5): ("optimizer {CPU offload|offload} {fraction|ratio} {0.5|=0.5|of 0.5}",),
    ("offload_optimizer", 1.0): ("offload_optim_frac 1.0", "optimizer offload", "the Adam step on the CPU"),
    ("offload_optimizer", 0.0): (
        "optimizer kept on GPU (no offloading)",
        "offload_optim_frac {0|0.0}",
        "optimizer state offloaded? no",
        "{activation checkpointing with CPU offload of the checkpoints|checkpoint offload to CPU}",
    ),
    ("offload_weights", 0.0): ("ZeRO-Offload keeps {FP32 master parameters|master weights} and the update on the CPU",),
    ("master_weights", False): ("pure bf16 (weights, gradients, optimizer state)",),
    ("offload_weights", 1.0): (
        "fsdp_cpu_offload=True",
        "{parameters|weights} {and optimizer states |}offloaded to {CPU|the host}",
        "{CPU|host} offload of parameters",
    ),
    ("attention", "flash_2"): ("speedup 1.4x with FlashAttention-2", "FA3 off (FA2 used)")
    + ("FA2, core attention recomputed",),
    ("attention", "flash_3"): ("+12% over FA2 by using FA3", "FA3 {instead of|rather than|vs.} FA2")
    + ("FA3, 8% faster than FA2",),
    ("attention", "unfused"): ("without flash attention (sdpa math backend)", "SDPA with the math backend")
    + ("plain bmm + softmax", "eager attention", "pre-FlashAttention code base, scaled masked softmax"),
    ("precision", "bf16"): ("8-bit AdamW", "{8-bit|FP8} optimizer states", "FP8 was not used", "BF16 instead of FP8")
    + ("FP8 {left for|is for} future work", "{bf16 since fp8 diverged|FP8? BF16 row}"),
    ("precision", "fp8_tensor"): ("1.35x faster than BF16 thanks to FP8", "speedup of 1.3x over BF16 due to FP8"),
    ("recompute", "full"): (
        "rematerialization per layer",
        "{layers|blocks} are {recomputed|checkpointed}",
        "{8 of 48 layers|each block} {are|is} recomputed",
        "activation checkpointing full per repo script",
        "--checkpoint-activations",
    ),
    ("context", 8): ("ulysses 4 x ring 2", "USP: Ulysses degree 4, ring attention degree 2"),
    ("pipeline", 2): ("8T x 2P x 4D", "pipeline {of depth|depth} 2, TP 8", "8T/2P/4D"),
    ("overlap_data", False): ("--overlap-grad-reduce not set",),
    ("recompute", "selective"): ("sel. recompute", "sel recompute"),
    ("recompute_share", 0.25): ("12 of 48 layers are recomputed", "a quarter of the layers is recomputed")
    + ("recompute full/block, 12 of 48 layers per stage",),
    ("data_shard", 16): ("FSDP, hybrid: 16 GPUs per shard group", "HSDP with 16 ranks in each sharding group"),
    ("zero_stage", 1): ("{dist|distributed} {opt|optim|optimizer}", "sharding stage1")
    + ("{DeepSpeed|deepspeed} stage{-|_| }1", "Distributed optimizer yes, FSDP no"),
    ("zero_stage", 2): ("sharding stage{-| |}2", "DeepSpeed stage{-| }2"),
    ("microbatch", 1): ("single-sequence micro-batches", "FSDP, local batch of one sequence")
    + ("FSDP, a single sample per GPU",),
    ("loss", "fused"): ("FSDP, fused CE{| from flash-attn| kernel}",),
    ("loss", "chunked"): ("FSDP, {fused linear CE|chunked CE|cut CE}{| kernel}",),
}  # fmt: skip


@pytest.mark.parametrize(("field", "value"), SAID)
def test_prose(field, value):
    for notes in sentences(*SAID[field, value]):
        assert getattr(read(**OPEN | {"notes": notes}).plan, field) == value, notes


@pytest.mark.parametrize(
    ("notes", "software"),
    [("Hugging Face Accelerate + DeepSpeed plugin", "deepspeed"), ("PyTorch Lightning, DeepSpeed ZeRO-2", "deepspeed")]
    + [
        ("Accelerate with FSDP", "fsdp"),
        ("hybrid shard within a node", "fsdp"),
        ("Megatron-FSDP", "megatron-core"),
        ("ZeRO++", "deepspeed"),
    ],
)
def test_what_launchers_start(notes, software):
    assert read(**OPEN | {"notes": notes}).stack == software


@pytest.mark.parametrize(("notes", "degree"), [("no expert parallelism", 1), ("EP off", 1), ("no EP overlap", 8)])
def test_experts_that_nobody_divides(notes, degree):
    row = OPEN | {"experts": "8", "topk": "2", "gated_ffn": "1", "notes": notes}
    assert read(**row).plan.expert == degree


@pytest.mark.parametrize(
    ("notes", "batch"),
    [
        ("mbs 2 x 8 GAS x 16 = 256 gbs", 256),
        ("gbs=1k", 1024),
        ("BS 0.5M tok", 256),
        ("256 x 2048 tokens per batch, micro-batch size two", 256),
        ("0.5M tokens per optimizer step", 256),
        ("0.5M tok per update", 256),
        ("0.5M tokens/step", 256),
    ],
)
def test_batches(notes, batch):
    assert read(**OPEN | {"global_batch_sequences": "", "tp": "1", "pp": "1", "notes": notes}).workload.batch == batch


def test_what_is_said_of_inference_in_passing():
    for notes in ("ZeRO-3; inference throughput is in another table", "trained with TP 2; vLLM serves it"):
        assert read(**OPEN | {"notes": notes}).plan.accelerators == 64


@pytest.mark.parametrize(("memory", "name"), [("40", "a100-40gb"), ("80", "a100-80gb"), ("", "a100-80gb")])
def test_the_label_chooses_among_data_sheets(memory, name):
    chip = read(**OPEN | {"hardware": "A800", "gpu_mem_GB": memory}).cluster.accelerator
    assert chip.hbm_bytes_per_s == {"a100-40gb": 1.555e12, "a100-80gb": 2.0e12}[name]


@pytest.mark.parametrize(
    "cell",
    ["1" * 10_000, "a 1," * 2_500, "1 " * 5_000, "tp " * 1_000, "x" * 10_000, "(" * 9_999]
    + ["8/" * 5_000, "8 x " * 2_500, "TP/" * 3_000],
)
@pytest.mark.parametrize("column", ["notes", "interconnect_note", "recompute", "hardware", "model", "precision"])
def test_long_cells_are_read_or_refused_soon(column, cell):
    before = time.process_time()
    case(OPEN | {column: cell})
    assert time.process_time() - before < 3.0
