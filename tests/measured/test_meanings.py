"""Rows are read by meaning: twenty wordings of a thing and more are read alike, and what is denied is not so."""

import pytest

from costmodel.measured.rows.notes import facts_of
from tests.support.paraphrases import denied, in_context, spelt, wordings
from tests.support.row_by_hand import read

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
        "compiled {cross entropy|loss}",
    ),
    "engine_loss": (
        "{TE|Transformer Engine} {fused |}{cross entropy|cross-entropy loss|CE loss}",
        "{cross entropy|CE loss} {of|by|from|in} {TE|Transformer Engine}",
        "cross_entropy_fusion_impl{=| }te",
        "{cross entropy|CE} fusion {TE|te}",
        "NeMo {|Framework }{|container }{25.04|25.07|25.11|26.02.01}",
        "container nvcr.io/nvidia/nemo:{25.09|25.04.01|26.04.00}",
        "{25.11|26.02} NeMo {|Framework }Container",
        "DGX Cloud {recipe|benchmarking}{| release} {v25.08|25.10.01}",
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
    "gathers_8bit": (
        "{float8|Float8} {linear|rowwise|tensorwise|training}{| on}",
        "{fp8|float8|8-bit} {all-gather|param gather|parameter gather|weight gather}{| on| enabled}",
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
    "engine_loss": ("TE cross entropy", "Transformer Engine CE loss"),
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


def test_recompute_of_modules_is_no_layer():
    for text in ("mlp", "moe_act, layernorm", "['layernorm', 'moe_act']", "mla_up_proj"):
        assert read(**(H100 | {"recompute": text})).plan.recompute == "selective", text
    assert read(**(H100 | {"recompute": "none (no AC)"})).plan.recompute == "none"


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
    ("precision", "fp8_block"): ("{fp8 block|FP8 blockwise|fp8 block scaling|fp8 subchannel|FP8-SC|"
        "float8 128x128|block-wise fp8}",),
    ("precision", "mxfp8"): ("{mxfp8|MXFP8|FP8-MX|fp8 mx|fp8 microscaling|mx-fp8|mxfp8 recipe}",),
    ("precision", "nvfp4"): ("{nvfp4|fp4|NV-FP4|nvfp4 recipe|NVFP4 (TE)|bf16 + nvfp4|fp4 e2m1}",),
    ("flash_attention", "flash_2"): ("{FA2|fa 2|FlashAttention-2|flash_attn v2|flash-attn 2.5.8|"
        "FlashAttention v2|2|sdpa}",)
    + ("{torch SDPA|flex attention|xformers|memory-efficient attention|AOTriton|CK|composable kernels}",),
    ("flash_attention", "flash_1"): ("{FA1|FlashAttention-1|flash_attn v1|Triton flash|triton|flash (triton or FA2)}",),
    ("flash_attention", "flash_3"): ("{FA3|FlashAttention-3|flash attention 3|flash-attn3|FA4|cuDNN|"
        "cuDNN attention|TE|3}",)
    + ("{Transformer Engine|fused (TE)|transformer_engine fused attention|splash|Pallas splash attention}",),
    ("flash_attention", "flash"): ("{yes|1|on|true|flash|FlashAttention|flash attention|fused attention}",),
    ("flash_attention", "unfused"): ("{no|0|off|false|none|unfused|naive attention|"
        "standard attention|no flash attention}",)
    + ("{eager|math|naive|standard}",)
    + ("{core attention|without FlashAttention|flash attention off|vanilla attention}",),
}  # fmt: skip


@pytest.mark.parametrize(("column", "value"), CELLS)
def test_cells_in_any_wording(column, value):
    field = "attention" if column == "flash_attention" else column
    row = H100 | ({"hardware": "B200"} if value == "nvfp4" else {})
    for text in spelt(*CELLS[column, value]):
        assert getattr(read(**(row | {column: text})).plan, field) == value, text


SHARDINGS = {
    0: ("{none|none (DDP)|DDP|ZeRO-0|zero stage 0|No|plain data parallelism|DP|0|no sharding}",),
    1: ("{ZeRO-1|zero1|ZeRO stage 1|1|distributed optimizer|DistributedOptimizer|DDP + distributed optimizer|"
        "z1|optim}",)
    + ("{sharded optimizer|optimizer state sharding|sharding stage1|zero_stage=1|use_distributed_optimizer}",),
    2: ("{ZeRO-2|zero2|ZeRO stage 2|2|FSDP SHARD_GRAD_OP|sharding stage 2|zero_stage: 2|ShardGradOp|"
        "z2|optim_grads}",),
    3: ("{ZeRO-3|zero3|ZeRO stage 3|3|FSDP|FSDP2|FULL_SHARD|fully sharded data parallel|FSDP full shard|HSDP}",)
    + ("{hybrid shard|HYBRID_SHARD|Gemini|ZeRO-Infinity|sharding stage3|fully_shard|ZeRO++|"
        "3 + CPU optimizer offload|z3|optim_grads_params}",),
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
        "{NeMo-RL|AxoNN|FlagScale|MegaBlocks|MindFormers|Megatron-SWIFT}",
    ),
    "fsdp": ("{torchtitan|TorchTitan|FSDP|PyTorch FSDP2|llm-foundry|MosaicML LLM Foundry|HSDP|"
        "fairscale|Lightning Fabric}",)
    + ("{fms-fsdp|FULL_SHARD|NeMo AutoModel|OLMo|Axolotl|HF Accelerate|lit-gpt|VeOmni|FSDP (fairscale)}",)
    + ("{NeMo AutoModel, TE + DeepEP|LLaMA-Factory|llama-recipes|SageMaker SMP|SageMaker model parallelism|fairseq2}",)
    + ("{prime-rl|SimpleFSDP|YaFSDP|BMTrain|nanochat|XTuner|ms-swift|HF Trainer|Hugging Face Trainer}",),
    "deepspeed": ("{DeepSpeed|deepspeed|ZeRO-3|Colossal-AI|ColossalAI|HF Trainer with DeepSpeed|zero stage 3}",)
    + ("{DeepSpeed-Chat|Optimum Habana|GaudiTrainer|ArcticTraining|LLaMA-Factory, DeepSpeed ZeRO-3}",),
    "nanotron": ("{nanotron|HF nanotron|nanotron v0.4|Hugging Face nanotron|nanotron scaling benchmark}",),
    "xla-gpu": ("{MaxText|maxtext|Pax|PaxML|JAX|Levanter|EasyLM|XLA|T5X|Flax|Alpa|GSPMD|AXLearn|AWS Neuron}",)
    + ("{JAX-Toolbox|TensorFlow|Mesh TensorFlow|Tunix|Kithara|PyTorch/XLA|mesh-transformer-jax}",),
}  # fmt: skip


@pytest.mark.parametrize("name", SOFTWARE)
@pytest.mark.parametrize("column", ["source", "notes"])
def test_software_by_name(name, column):
    for text in spelt(*SOFTWARE[name]):
        assert read(**(H100 | {"zero_stage_or_fsdp": "", column: text})).stack == name, text


def test_a_formula_for_flop_is_no_software():
    for text in ("Megatron-formula TFLOPs=120", "Megatron FLOPs formula", "TFLOPS by Megatron-LM's formula"):
        assert read(**(H100 | {"notes": text, "zero_stage_or_fsdp": "FSDP2"})).stack == "fsdp", text
