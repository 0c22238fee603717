"""Rows are read by meaning: twenty wordings of a thing and more are read alike, and what is denied is not so."""

import pytest

from costmodel.measured.rows import Case, case
from costmodel.measured.rows.columns import Columns
from costmodel.measured.rows.notes import facts_of
from costmodel.measured.rows.words import between_nodes, inside
from tests.support.paraphrases import denied, in_context, spelt, wordings
from tests.support.row_by_hand import ROW, read

H100 = {"hardware": "H100-80GB-SXM", "precision": "bf16", "source": "somebody", "flash_attention": "", "recompute": ""}

SAID = {  # fact: wordings
    "async_tp": (
        "async {TP|tensor parallel|tensor parallelism}",
        "{TP|tensor parallel} {comm|communication} overlap{| on| enabled}",
        "overlap of {tensor parallel|TP} {comms|communication}",
        "overlapping {TP|tensor-parallel} {communication|traffic}",
        "userbuffers overlap",
        "tp comm overlap{=true|: on}",
    ),
    "overlap_data": (
        "overlap {grad reduce|gradient reduction|param gather}",
        "{DP|data parallel} {communication|comms|} overlap{| on}",
        "gradient {all-reduce|reduce-scatter} {overlapped|overlapping}",
        "overlapped {distributed optimizer|gradient reduction}",
        "{gradients|grads} overlap with backward",
    ),
    "overlap_pipeline": (
        "overlap {p2p|pipeline} {comm|communication|transfers}",
        "{PP|pipeline parallel|p2p} {communication|comms|} overlap{| on| enabled}",
        "{pipeline|p2p} sends overlapped",
    ),
    "overlap_expert": (
        "{EP|expert parallel|MoE} {communication|comms|a2a} overlap{| on| enabled}",
        "overlapped {all-to-all|a2a|dispatch}",
        "overlap of {MoE|expert} communication",
        "DualPipe",
    ),
    "compiled": (
        "torch{.| }compile{| on|d}",
        "{with|using} torch compile",
        "compile {on|true|enabled}",
        "{TorchInductor|TorchDynamo|inductor}",
        "compiled model",
        "compile: {true|yes|1}",
        "model.compile enabled",
        "float8{| linear| rowwise| tensorwise}",
    ),
    "chunked_loss": (
        "{Liger|liger kernel|Liger-Kernel}{| fused kernels| fused linear cross entropy}",
        "{chunked|tiled|linear|cut} cross entropy",
        "{chunked|tiled} {loss|logits|CE loss}",
        "loss {chunking|in chunks}",
        "cross-entropy in chunks",
    ),
    "fused_loss": (
        "fused {cross entropy|cross-entropy loss|CE loss|loss}",
        "{cross entropy|loss} {fusion|fused}",
        "cross_entropy_loss_fusion{|=true}",
        "{softmax|xentropy} fused with the loss",
        "fused {softmax|lm head} and {loss|cross entropy}",
        "{Triton|Apex|flash} fused {cross entropy|loss}",
        "fused kernel for {cross entropy|the loss}",
    ),
    "host_optimizer": (
        "optimizer {offload|offloaded|offloading}{| to cpu| to host memory}",
        "{CPU|host} {offload|offloading} of {the|} optimizer{| states}",
        "{offloaded|offloading} optimizer states",
        "{CPU|host} {AdamW|Adam|optimizer}",
        "DeepSpeedCPUAdam",
        "optimizer states {in|on} the {CPU|host}",
        "ZeRO-{Offload|Infinity}",
    ),
    "cuda_graphs": (
        "{CUDA|HIP} {graphs|graph}{| on| enabled|: yes}",
        "captured {graphs|graph}",
        "{with|using} {CUDA|cuda} graphs",
        "graph capture of the layers",
        "cudagraphs",
    ),
    "captured_iteration": (
        "full{-| }iteration {CUDA|cuda} graphs",
        "CUDA graphs {local full_iteration|of the full iteration|of the whole step|full iteration scope}",
        "{fully|entirely} captured iteration",
        "{whole|entire} {step|iteration} captured",
        "{full|entire} {step|iteration} graph capture",
        "captured {full|whole} iteration",
        "CUDA graph of the entire {iteration|step|model}",
    ),
    "parallel_block": (
        "parallel {transformer block|block|attention and MLP|attention+MLP|attention and feed-forward}",
        "parallel {layers|layer}",
        "parallel residuals",
        "{attention|attn} and {mlp|ffn} as parallel attention",
        "parallel {attn|attention} & {ffn|mlp}",
        "parallel transformer {layer|layers|blocks}",
        "parallel-block formulation",
    ),
    "sliding_window": (
        "sliding{-| }window{| attention}",
        "SWA",
        "{local|windowed} attention",
        "attention with {a|} sliding window",
        "{sliding window|SWA} {on|enabled|of 4096|layers}",
        "{local|sliding-window} attention layers",
        "uses {sliding-window|windowed} attention",
    ),
    "eager": ("eager{| mode| execution| PyTorch}", "{in|run in} eager{| mode}", "PyTorch eager"),
    "fast_dispatcher": ("DeepEP", "{deep_ep|deepep} {dispatcher|kernels}", "HybridEP", "dispatcher {hybridep|deepep}"),
    "allocated_memory": (
        "max{_memory|}_allocated",
        "{peak|memory|mem} allocated",
        "torch max_memory_allocated",
        "allocated {memory|peak}",
        "{memory|peak} is what torch has allocated",
    ),
    "pure_narrow": ("pure {bf16|fp16|16-bit|half} training", "{no|without} {fp32 |32-bit |}master {weights|copy}"),
    "device_memory": ("memory by nvidia-smi", "{rocm|nvidia|amd}{-| }smi {peak|memory|shows}"),
    "selective_layers": (
        "selective {layer|layers} {AC|checkpointing|recompute}",
        "checkpoint every {other|second} layer",
        "{recompute|remat} of every {2|other} layers",
        "{activation|gradient} checkpointing of alternate layers",
    ),
}


@pytest.mark.parametrize("fact", SAID)
def test_wordings_are_read_alike(fact):
    said = spelt(*SAID[fact])
    unread = [text for text in said if facts_of({"notes": in_context(text)}).get(fact, 0) <= 0]
    assert unread == []
    assert len(said) >= 20


DENIED = {
    "async_tp": ("TP overlap", "tensor parallel comm overlap", "async TP"),
    "overlap_data": ("gradient overlap", "DP overlap", "data-parallel communication overlap"),
    "overlap_pipeline": ("pipeline overlap", "p2p overlap"),
    "overlap_expert": ("EP overlap", "all-to-all overlap"),
    "compiled": ("torch.compile",),
    "chunked_loss": ("chunked loss", "Liger"),
    "fused_loss": ("fused cross entropy",),
    "host_optimizer": ("optimizer offload", "CPU optimizer"),
    "cuda_graphs": ("CUDA graphs", "graph capture"),
    "sequence_parallel": ("sequence parallelism", "SP", "sequence parallel"),
}


@pytest.mark.parametrize("fact", DENIED)
def test_a_denial_is_understood(fact):
    for text in denied(*DENIED[fact]):
        assert facts_of({"notes": in_context(text)}).get(fact) == 0, text


@pytest.mark.parametrize("fact", DENIED)
def test_what_is_left_open_is_not_said(fact):
    ways = ("{} not stated", "whether {} unknown", "{} not printed", "{} not given", "{} settings per repo")
    for way in ways:
        text = way.format(DENIED[fact][0])
        assert fact not in facts_of({"notes": in_context(text)}), text


def test_what_sounds_alike_is_not_said():
    assert "host_optimizer" not in facts_of({"notes": "cpu bound optimizer loop; activation offload to the host"})
    assert "overlap_data" not in facts_of({"notes": "gradient clipping; tokens of documents may overlap"})
    assert facts_of({"notes": "micro-batches and checkpoints are not counted"}) == {}


def test_lists_of_what_is_absent():
    found = facts_of({"notes": "without TP overlap, CUDA graphs or sequence parallelism; with torch.compile"})
    assert found == {"async_tp": 0, "cuda_graphs": 0, "sequence_parallel": 0, "compiled": 1}
    assert facts_of({"notes": "no comm overlap"})["async_tp"] == 0
    assert facts_of({"notes": "DP/TP/PP communication overlap on"})["overlap_pipeline"] == 1


NUMBERS = {
    ("accumulation", 4): ("{gradient|grad} accum{ulation|} {|steps|steps of|=} 4", "4 {gradient |}accumulation steps")
    + ("GA{=| }4", "4 micro{-|}batches", "gas{=| }4", "micro_num 4", "num_micro_batches{=| }4"),
    ("micro_batch", 2): ("{micro batch size|micro-batch size|MBS|mbs} {|=|of|:} 2", "micro{_|-}batch{| size}{=|: }2"),
    ("virtual_stages", 5): ("{vpp|VPP|VP}{=| |: }5", "virtual pipeline {size|degree|stages} {|=}5", "5 virtual stages")
    + ("interleaving {degree|factor} {|of }5", "5 model chunks", "5 interleaved {stages|chunks}"),
    ("tensor", 8): ("TP{|=| |: | size }8", "8-way {tensor|TP|tensor parallelism}", "tensor parallel{| size| degree} 8")
    + ("tensor-model-parallel-size 8", "tensor parallelism{ of | }8", "tensor parallel degree{: |=}8"),
    ("pipeline", 4): ("PP{|=| |: | size }4", "4-way {pipeline|PP}", "4 pipeline stages", "pipeline parallel{| size} 4"),
    ("head_size", 128): ("head{_| }dim{| }{=|of|:} 128", "128-dim heads", "head size {|of }128", "heads of 128"),
    ("dense_layers", 3): (
        "3 dense {layers|FFN layers|MLP layers}",
        "first 3 layers {are |}dense",
        "first_k_dense_replace=3",
    ),
    ("offload_layers", 20): (
        "{CPU|cpu|host} activation offload{|ing} of 20 layers",
        "offload{ing|ed} activations of 20 layers",
        "20 layers offloaded",
    ),
    ("recompute_layers", 5): ("full {recompute|recomputation} of 5 layers", "recompute_num_layers=5")
    + ("5 layers {recomputed|checkpointed}", "{checkpointing|remat} of 5 layers"),
    ("power_w", 500): ("500 W {cap|limit|TDP|power cap}", "TDP{ of | |: }500 W", "power {limit|cap}{ | of |: }500 W"),
    ("layers", 4): (
        "truncated to 4 layers",
        "{cut|reduced|shortened}{| down} to 4 layers",
        "proxy {model |}with 4 layers",
    ),
}


@pytest.mark.parametrize(("name", "value"), NUMBERS)
def test_numbers_in_words(name, value):
    assert len(spelt(*NUMBERS[name, value])) >= 20
    for text in spelt(*NUMBERS[name, value]):
        assert facts_of({"notes": in_context(text)}).get(name) == value, text


# choices: the cell, or the notes where the cell is empty

RECOMPUTES = {
    "full": (
        "full {recompute|recomputation|activation recomputation|activation checkpointing|remat|AC}",
        "{activation|gradient} {checkpointing|recomputation}{| on| enabled}",
        "recompute{ all layers| of every layer|-granularity full}",
        "{all|whole} layers recomputed",
    ),
    "selective": (
        "selective {recompute|recomputation|activation recompute|activation checkpointing|AC|op AC}",
        "{recompute|recomputation} of {core attention|attention only}",
        "{partial|selective} {recomputation|checkpointing|remat}",
        "SAC",
        "remat policy {minimal|save_dot_except_mlp|dots_saveable}",
        "recompute{-| }granularity selective",
    ),
    "none": (
        "no {recompute|recomputation|activation recomputation|activation checkpointing|gradient checkpointing|remat}",
        "without {recompute|activation checkpointing|any recomputation}",
        "{recompute|activation recomputation|gradient checkpointing}{ off|: none|=False| disabled|: no}",
    ),
}


@pytest.mark.parametrize("mode", RECOMPUTES)
@pytest.mark.parametrize("place", ["notes", "recompute"])
def test_recompute_in_words(mode, place):
    for text in spelt(*RECOMPUTES[mode]):
        said = in_context(text) if place == "notes" else text
        found = read(**(H100 | {place: said}))
        assert found.plan.recompute == mode, text
        assert "recompute" not in found.open


CELLS = {
    ("precision", "bf16"): ("{bf16|bfloat16|BF16-mixed|bf16 mixed precision|bf16-true|amp_bf16|"
        "mixed (bf16)|BFloat16}",),
    ("precision", "fp16"): ("{fp16|float16|FP16 mixed|half|16-bit float16|amp fp16}",),
    ("precision", "fp32"): ("{fp32|float32|tf32|single precision|32-true|fp32 everywhere|FP32 (no AMP)}",),
    ("precision", "fp8_tensor"): (
        "{fp8|FP8|float8|fp8 delayed scaling|FP8-CS|FP8 current scaling|fp8 tensorwise|fp8 rowwise|"
            "float8_e4m3|fp8-hybrid}",
        "{TE fp8|bf16 + fp8|fp8 (bf16 attention)|8-bit}",
    ),
    ("precision", "fp8_block"): ("{fp8 block|FP8 blockwise|fp8 block scaling|fp8 subchannel|"
        "float8 128x128|block-wise fp8}",),
    ("precision", "mxfp8"): ("{mxfp8|MXFP8|FP8-MX|fp8 mx|fp8 microscaling|mx-fp8|mxfp8 recipe}",),
    ("precision", "nvfp4"): ("{nvfp4|fp4|NV-FP4|nvfp4 recipe|NVFP4 (TE)|bf16 + nvfp4|fp4 e2m1}",),
    ("flash_attention", "flash_2"): ("{FA2|fa 2|FlashAttention-2|flash_attn v2|flash-attn 2.5.8|"
        "FlashAttention v2|2|sdpa}",)
    + ("{torch SDPA|Triton flash|flex attention|xformers|memory-efficient attention}",),
    ("flash_attention", "flash_3"): ("{FA3|FlashAttention-3|flash attention 3|flash-attn3|FA4|cuDNN|"
        "cuDNN attention|TE|3}",)
    + ("{Transformer Engine|fused (TE)|transformer_engine fused attention|splash|Pallas splash attention}",),
    ("flash_attention", "flash"): ("{yes|1|on|true|flash|FlashAttention|flash attention|fused attention}",),
    ("flash_attention", "unfused"): ("{no|0|off|false|none|unfused|naive attention|"
        "standard attention|no flash attention}",)
    + ("{core attention|without FlashAttention|flash attention off|vanilla attention}",),
}  # fmt: skip


@pytest.mark.parametrize(("column", "value"), CELLS)
def test_cells_in_any_wording(column, value):
    field = {"flash_attention": "attention"}.get(column, column)
    for text in spelt(*CELLS[column, value]):
        assert getattr(read(**(H100 | {column: text})).plan, field) == value, text


SHARDINGS = {
    0: ("{none|none (DDP)|DDP|ZeRO-0|zero stage 0|No|plain data parallelism|DP|0|no sharding}",),
    1: ("{ZeRO-1|zero1|ZeRO stage 1|1|distributed optimizer|DistributedOptimizer|DDP + distributed optimizer}",)
    + ("{sharded optimizer|optimizer state sharding|sharding stage1|zero_stage=1|use_distributed_optimizer}",),
    2: ("{ZeRO-2|zero2|ZeRO stage 2|2|FSDP SHARD_GRAD_OP|sharding stage 2|zero_stage: 2|ShardGradOp}",),
    3: ("{ZeRO-3|zero3|ZeRO stage 3|3|FSDP|FSDP2|FULL_SHARD|fully sharded data parallel|FSDP full shard|HSDP}",)
    + ("{hybrid shard|HYBRID_SHARD|Gemini|ZeRO-Infinity|sharding stage3|fully_shard|ZeRO++|"
        "3 + CPU optimizer offload}",),
}  # fmt: skip


@pytest.mark.parametrize("stage", SHARDINGS)
def test_sharding_by_name(stage):
    for text in spelt(*SHARDINGS[stage]):
        found = read(**(H100 | {"zero_stage_or_fsdp": text, "pp": "1", "tp": "1", "dp": "64"}))
        assert found.plan.zero_stage == stage, text


@pytest.mark.parametrize("text", wordings("{HSDP|hybrid shard|HYBRID_SHARD|hybrid sharded FSDP|FSDP (group 8)}"))
def test_hybrid_sharding_stays_in_a_node(text):
    row = H100 | {"zero_stage_or_fsdp": text, "pp": "1", "tp": "1", "dp": "64"}
    assert read(**row).plan.data_shard == 8


SCHEDULES = {
    "one_f_one_b": ("{1F1B|1f1b|one forward one backward|PipeDream-flush|DAPPLE}{| schedule}",),
    "interleaved": ("{interleaved 1F1B|1F1B-I|interleaving|looped BFS|circular|1f1b-interleaved|"
        "Interleaved1F1B}{| schedule}",),
    "gpipe": ("{GPipe|gpipe|fill-drain|AFAB|all forward all backward}{| schedule}",),
    "zb_h1": ("{ZB-H1|zero bubble|zero-bubble|ZB1P|ZBB|zb}{| schedule}",),
    "zb_h2": ("{ZB-H2|zb h2|ZB2P|zero bubble H2}{| schedule}",),
    "zb_v": ("{ZB-V|zbv|zero bubble V|V-Half|v-min|ZBV}{| schedule}",),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("column", ["schedule", "notes"])
def test_schedules_by_name(name, column):
    for text in spelt(*SCHEDULES[name]):
        found = read(**(H100 | {column: text, "vpp": "", "pp": "4", "tp": "4"}))
        assert found.plan.schedule == name, text
        assert (found.plan.virtual_stages == 2) == (name == "interleaved")


SOFTWARE = {
    "megatron-core": (
        "{Megatron-Core|NeMo|NVIDIA NeMo Framework|Megatron Bridge|MCore|Transformer Engine|TE 2.1|"
            "Megatron-LM + TE|Primus}",
        "{AMD Primus-Megatron|MindSpeed|NeMo Megatron|dgxc benchmarking|megatron_core r0.8|"
            "TransformerEngine|Megatron-LM}",
    ),
    "fsdp": ("{torchtitan|TorchTitan|FSDP|PyTorch FSDP2|llm-foundry|MosaicML LLM Foundry|HSDP|"
        "fairscale|Lightning Fabric}",)
    + ("{fms-fsdp|FULL_SHARD|NeMo AutoModel|OLMo|Axolotl|HF Accelerate|lit-gpt|VeOmni|FSDP (fairscale)}",),
    "deepspeed": ("{DeepSpeed|deepspeed|ZeRO-3|Colossal-AI|ColossalAI|HF Trainer with DeepSpeed|zero stage 3}",),
    "nanotron": ("{nanotron|HF nanotron|nanotron v0.4|Hugging Face nanotron|nanotron scaling benchmark}",),
    "xla": ("{MaxText|maxtext|Pax|PaxML|JAX|Levanter|EasyLM|XLA|T5X|Flax|Alpa|GSPMD|AXLearn|AWS Neuron|JAX-Toolbox}",),
}  # fmt: skip


@pytest.mark.parametrize("name", SOFTWARE)
@pytest.mark.parametrize("column", ["source", "notes"])
def test_software_by_name(name, column):
    for text in spelt(*SOFTWARE[name]):
        assert read(**(H100 | {"zero_stage_or_fsdp": "", column: text})).stack == name, text


def test_a_formula_for_flop_is_no_software():
    for text in ("Megatron-formula TFLOPs=120", "Megatron FLOPs formula", "TFLOPS by Megatron-LM's formula"):
        assert read(**(H100 | {"notes": text, "zero_stage_or_fsdp": "FSDP2"})).stack == "fsdp", text


# cells


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("8.0", 8), ("1,024", 1024), ("4k", 4000), ("64 GPUs", 64), ("2-way", 2), ("~8", 8), ("8 layers", 8)]
    + [(word, None) for word in ("", "-", "None", "n/a", "N/A", "?", "nan", "null", "unknown")],
)  # fmt: skip
def test_numbers_of_cells(text, value):
    assert Columns({"layers": text}).number("layers") == value


def test_parameters_in_billions():
    sizes = [Columns({"params_B": text}).number("params_B") for text in ("8", "8B", "125M", "1.5T")]
    assert sizes == pytest.approx([8, 8, 0.125, 1500])


@pytest.mark.parametrize(
    ("words", "value"), [("1 yes on true enabled Y True", True), ("0 no off false none Off", False)]
)
def test_flags_of_cells(words, value):
    for word in words.split():
        assert Columns({"sp": word}).flag("sp") is value
        assert read(sp=word).plan.sequence_parallel is value
    assert Columns({"sp": "-"}).flag("sp") is None
    assert [read(gated_ffn=word).assumed for word in ("SwiGLU", "GELU")] == [(), ()]
    assert read(sp="Ulysses (8)").plan.sequence_parallel is True


@pytest.mark.parametrize(
    ("words", "gigabytes"),
    [
        ("{8x400G|8 x 400 Gb/s|8x400 Gbps per node|8x NDR|8x NDR400|NDR x8|8 NICs of 400 Gb/s|"
            "8x ConnectX-7|8 400G NICs}", 50),
        ("{3.2 Tbps|3.2 Tb/s per node|3200 Gb/s|EFA 3200 Gb/s|EFAv2 3.2Tbps|400 GB/s per node|"
            "3200 Gbit/s node-to-node}", 50),
        ("{400 Gb/s per GPU|400G NDR per GPU|50 GB/s per GPU|400 GbE|NDR InfiniBand|CX-7 per GPU|"
            "0.4 Tbps per GPU}", 50),
        ("{1x100 GbE per node|100 Gb/s per node|one 100 Gbps NIC per node|1x HDR100 100Gb/s per host}", 100 / 64),
        ("{4x HDR|4x200 Gb/s|800 Gb/s per node|4 HDR NICs|800 Gbps RoCE node-to-node|100 Gb/s per GPU}", 12.5),
    ],
)  # fmt: skip
def test_links_in_any_unit(words, gigabytes):
    for text in words.strip("{}").split("|"):
        for note in (text, f"NVLink in node; {text}", f"{text}, NVLink 900 GB/s", f"96 GB HBM | {text}"):
            assert between_nodes(note, 8, 50e9) == pytest.approx(1e9 * gigabytes), note


def test_links_that_are_no_network():
    for note in (
        "NVLink 900 GB/s",
        "18x 5th Gen NVLink, 14.4 TB/s aggregated bandwidth",
        "XGMI",
        "bandwidth not stated",
    ):
        assert between_nodes(note, 8, 50e9) is None, note
    assert inside("NVLink 900 GB/s", 450e9) == 450e9  # both directions
    assert inside("NVLink 160 GB/s in node", 200e9) == 160e9


# what a row lacks


def test_rows_that_lack_something_are_read():
    bare = {"hardware": "H100", "gpus": "64", "model": "Llama-3-8B", "params_B": "8"}
    found = case(bare)
    assert isinstance(found, Case), found
    assert (found.workload.sequence, found.plan.accelerators) == (8192, 64)
    assert any("layers" in told and "Llama-3-8B" in told for told in found.assumed)
    for column in ROW:
        if column not in ("hardware", "gpus"):
            assert isinstance(case(ROW | {column: ""}), Case), column


def test_dimensions_follow_from_names_and_sizes():
    from costmodel.inputs.workload import parameters

    empty = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "vocab"), "")
    for model, size in (
        ("Llama 3.1 405B", 405e9),
        ("DeepSeek-V3 671B", 671e9),
        ("Mistral 7B v0.3", 7.2e9),
        ("Qwen/Qwen2.5-72B", 72.7e9),
        ("GPT-OSS-120B", 117e9),
    ):
        found = read(**(H100 | empty | {"model": model, "pp": "1", "zero_stage_or_fsdp": "FSDP"}))
        assert parameters(found.workload) == pytest.approx(size, rel=0.02), model
    for size in (0.35, 1.3, 7.0, 30.0, 175.0):
        found = read(**(H100 | empty | {"model": "own", "params_B": str(size), "pp": "1"}))
        assert parameters(found.workload) == pytest.approx(1e9 * size, rel=0.15)
        assert any("a common shape" in told for told in found.assumed)
    heads = read(heads="", kv_heads="", params_B="22", model="own")
    assert any("heads 48" in told for told in heads.assumed)
    layers = read(layers="", params_B="22", pp="1", model="own")
    assert any("layers 48" in told for told in layers.assumed)
    cut = read(layers="", model="deepseekv3 truncated to 4 layers", pp="1")
    assert sum(int(b.repeats) for b in cut.workload.blocks if b.position.name == "LAYER") == 4


def test_batches_follow_from_words():
    row = ROW | {"global_batch_sequences": "", "micro_batch": "2", "pp": "1", "tp": "1", "dp": "64"}
    for notes, batch in (
        ("4 gradient accumulation steps", 512),
        ("global batch size 1024", 1024),
        ("0.5M tokens per batch", 244),
        ("a 4M-token batch", 1953),
        ("per-GPU batch of 16k tokens", 500),
    ):
        found = case(row | {"notes": notes})
        assert isinstance(found, Case)
        assert found.workload.batch == batch, notes


# machines


@pytest.mark.parametrize(
    ("hardware", "tflops"),
    [("MI250X (one GCD)", 191.5), ("MI350X", 2300), ("TPU v3-256 (128 chips)", 123), ("NVIDIA L40S", 362)]
    + [("H20", 148), ("Trainium1 (trn1.32xlarge)", 190), ("Ascend 910B", 313), ("RTX 4090", 165), ("H200", 989.5)],
)  # fmt: skip
def test_other_accelerators_have_their_own_rates(hardware, tflops):
    found = read(hardware=hardware)
    assert found.cluster.accelerator.peak_16bit_flop_per_s == pytest.approx(1e12 * tflops, rel=0.001)


def test_a_power_cap_slows():
    assert read(hardware="H100", notes="500 W cap").cluster.accelerator.sustained_clock == pytest.approx((5 / 7) ** 0.8)
    assert read(hardware="H100", notes="TDP 700 W").cluster.accelerator.sustained_clock == 1


def test_what_notes_alone_say_of_the_model_and_its_numbers():
    assert Columns({"seq": "4k"}).number("seq") == 4096
    for text in wordings("{fp32|float32} {grad accumulation|gradient reduction|grads}", "grad_reduce_in_fp32"):
        assert read(**(H100 | {"notes": text})).plan.gradient_dtype == "fp32", text
    for text in wordings("{bf16|bfloat16} {grad accumulation|gradient reduction|gradients}", "reduce_dtype bf16"):
        assert read(**(H100 | {"notes": text, "source": "nanotron"})).plan.gradient_dtype == "bf16", text
    for text in wordings("{Ulysses|DeepSpeed-Ulysses|CP by all-to-all|a2a context parallelism|context parallel a2a}"):
        assert read(**(H100 | {"notes": text})).plan.context_kind == "all_to_all", text
    for text in wordings("{8 KV heads|GQA groups 8|num query groups 8|8 query groups|kv heads: 8}"):
        assert facts_of({"notes": text})["kv_heads"] == 8, text
    assert read(notes="untied embeddings").workload.tied == 0


def test_layers_in_the_recompute_column():
    for cell in ("full (6 layers)", "full, recompute_num_layers=6", "full recompute of 6 layers"):
        assert read(recompute=cell, pp="2").plan.recompute_share == 6 * 2 / 48, cell


# layouts that the batch tells


def test_the_batch_excludes_layouts():
    bare = {"tp": "", "pp": "", "dp": "", "vpp": "", "hardware": "H100", "global_batch_sequences": "64"}
    found = read(**(bare | {"micro_batch": "2", "notes": "4 gradient accumulation steps"}))
    assert (found.plan.data, found.plan.tensor, found.plan.pipeline) == (8, 8, 1)
    found = read(**(bare | {"global_batch_sequences": "4", "micro_batch": "", "notes": "without CP"}))
    assert (found.plan.data, found.plan.tensor, found.plan.pipeline, found.plan.context) == (4, 16, 1, 1)
    found = read(**(bare | {"global_batch_sequences": "4", "micro_batch": ""}))
    assert (found.plan.data, found.plan.context) == (4, 16)


def test_layouts_in_words():
    bare = {"tp": "", "pp": "", "dp": "", "vpp": "", "hardware": "H100"}
    for notes in (
        "TP 8, PP 2",
        "tp=8 pp=2 dp=4",
        "8-way tensor, 2-way pipeline",
        "tensor-model-parallel-size 8; 2 pipeline stages",
    ):
        found = read(**(bare | {"notes": notes}))
        assert (found.plan.tensor, found.plan.pipeline, found.plan.data) == (8, 2, 4), notes
        assert "layout" not in found.open
