"""Rows in the dialects of blogs, papers, launch scripts and submissions: what each cell means was decided before the
reader saw it."""

import pytest

from costmodel.inputs import parameters
from costmodel.measured.rows import Case
from tests.support.paraphrases import wordings
from tests.support.row_by_hand import ROW, read, refused

OPEN = ROW | dict.fromkeys(("tp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute", "flash_attention"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "bf16", "micro_batch": "", "kv_heads": "8"}
MIXTURE = OPEN | {"experts": "8", "topk": "2", "gated_ffn": "1", "ffn_hidden": "8192", "layers": "32"}


def _of(found: Case, name: str) -> object:
    if name in ("batch", "sequence"):
        return getattr(found.workload, name)
    return found.stack if name == "stack" else getattr(found.plan, name)


def _assert_read(row: dict[str, str], fields: dict[str, object], **changes: str) -> None:
    found = read(**row | changes)
    assert {name: _of(found, name) for name in fields} == fields, changes


@pytest.mark.parametrize(
    ("cells", "number"),
    [("{8x8|8 x 8|4x16 H100|8 nodes x 8 GPUs|8 nodes of 8|8 nodes|64 GPUs (8 nodes)}", 64)]
    + [("{16,384|16K|2048 nodes x 8}", 16384)],
)
def test_accelerators_in_any_words(cells, number):
    for cell in wordings(cells):
        assert read(**OPEN | {"gpus": cell, "global_batch_sequences": "16384"}).plan.accelerators == number, cell


@pytest.mark.parametrize("cell", ["8 or 16", "8-16", "8/16", "none of 3", "some", "8 to 16"])
def test_cells_that_hold_no_single_number_are_refused(cell):
    assert "`gpus`" in refused(**OPEN | {"gpus": cell})


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"tp": "TP8", "pp": "PP=2", "dp": "DP 4"}, {"tensor": 8, "pipeline": 2, "data": 4}),
        ({"tp": "8", "pp": "4 (VPP 3)"}, {"pipeline": 4, "virtual_stages": 3, "schedule": "interleaved"}),
        ({"tp": "8", "pp": "4", "vpp": "3 chunks"}, {"virtual_stages": 3}),
        ({"tp": "8", "pp": "4", "notes": "--num-layers-per-virtual-pipeline-stage 4"}, {"virtual_stages": 3}),
        ({"tp": "8", "pp": "4", "notes": "2 layers per virtual stage"}, {"virtual_stages": 6}),
        ({"cp": "cp=2 (ring)"}, {"context": 2, "context_kind": "ring"}),
        ({"cp": "8 (Ulysses)"}, {"context": 8, "context_kind": "all_to_all"}),
        ({"cp": "", "sp": "8", "notes": "DeepSpeed-Ulysses"}, {"context": 8, "context_kind": "all_to_all", "data": 8}),
        ({"cp": "", "notes": "ring attention over 4 GPUs"}, {"context": 4, "data": 16}),
        ({"cp": "", "tp": "8", "sp": "8", "notes": "Ulysses off"}, {"context": 1, "tensor": 8}),
        ({"notes": "tensor parallelism within each node, data parallel across"}, {"tensor": 8, "data": 8}),
        ({"notes": "intra-node TP"}, {"tensor": 8, "data": 8}),
        ({"micro_batch": "MBS=1", "tp": "1", "pp": "1"}, {"microbatch": 1}),
        ({"seq": "1M", "global_batch_sequences": "1"}, {"sequence": 1048576.0}),
    ],
)
def test_degrees_in_any_words(changes, fields):
    _assert_read(OPEN, fields, **changes)


@pytest.mark.parametrize(
    ("words", "stage", "shard"),
    [
        ("dp replicate 4 shard 16|data_parallel_shard_degree=16, data_parallel_replicate_degree=4|HSDP 4x16 (replicate"
            " x shard)|HSDP, shard 16, replicate 4|FSDP over 16 GPUs, replicated 4x|FSDP within 16 GPUs", 3, 16),
        ("HSDP|hybrid shard|MiCS-like: sharding within one node|shard within a node, FSDP", 3, 8),
        ("FSDP, reshard_after_forward=False|FSDP without resharding after forward", 2, None),
        ("trained with ZeRO-1|distributed optimizer on|--use-distributed-optimizer", 1, None),
        ("DeepSpeed ZeRO stage 2|ZeRO-2 (DeepSpeed)|SHARD_GRAD_OP", 2, None),
        ("plain DDP|DDP on eight nodes|PyTorch DistributedDataParallel|pure data parallelism", 0, None),
    ],
)  # fmt: skip
def test_sharding_in_the_column_or_in_notes(words, stage, shard):
    for text in words.split("|"):
        for column in ("zero_stage_or_fsdp", "notes"):
            found = read(**OPEN | {column: text, "tp": "1", "pp": "1"})
            assert (found.plan.zero_stage, found.plan.data_shard) == (stage, shard), (column, text)


@pytest.mark.parametrize(
    ("cells", "mode", "share"),
    [
        ("AC|full AC|gradient checkpointing: True|act ckpt|all layers|with|uniform, 1 layer|full uniform 4", "full", 1),
        ("act ckpt 12/48 layers|12 of 48 layers|25%|25 % of layers|1 of every 4 blocks|every 4th layer", "full", 0.25),
        ("half of the layers|every other layer|selective AC, every 2nd layer|AC on alternate blocks", "full", 0.5),
        ("no AC|w/o|no act ckpt|off|\u2717", "none", 1),
        ("SAC|selective|core_attn|attention only|mlp + layernorm|minimal_flash|save_qkv_proj", "selective", 1),
    ],
)  # fmt: skip
def test_recompute_cells(cells, mode, share):
    for cell in cells.split("|"):
        plan = read(**OPEN | {"recompute": cell, "tp": "1", "pp": "1"}).plan
        assert (plan.recompute, plan.recompute_share) == (mode, share), cell


def test_groups_of_layers_are_no_number_of_layers():
    """Megatron's `uniform` recomputes all layers, so many at a time; `block` so many of each stage."""
    for method, share in (("uniform", 1.0), ("block", 8 / 48)):
        notes = f"--recompute-granularity full --recompute-method {method} --recompute-num-layers 8"
        assert read(**OPEN | {"notes": notes, "pp": "1", "tp": "8"}).plan.recompute_share == share


@pytest.mark.parametrize(
    ("cells", "precision"),
    [
        ("BF16 + FP8 attention|bf16 (fp8 all-gather)|BF16 compute, FP8 optimizer states|bfloat16 (fp32 softmax, norms)"
            "|BF16, FP32 gradient accumulation|BF16 (FP32 master weights)", "bf16"),
        ("fp8 hybrid|BF16 + FP8 linear layers|FP8 (E4M3/E5M2) delayed scaling|FP8/BF16|8-bit float|FP8, BF16 attention",
            "fp8_tensor"),
        ("FP8 (1x128 tile / 128x128 block)|FP8 blockwise|fp8-sc", "fp8_block"),
        ("FP8 with MX scaling|mxfp8|MXFP8 (E4M3), last layers BF16", "mxfp8"),
        ("nvfp4 + bf16 last layers|NVFP4 (first and last 4 layers BF16)", "nvfp4"),
    ],
)  # fmt: skip
def test_precision_of_products(cells, precision):
    for cell in cells.split("|"):
        assert read(**OPEN | {"precision": cell, "hardware": "B200"}).plan.precision == precision, cell


@pytest.mark.parametrize(
    ("changes", "batch", "micro"),
    [
        ({"notes": "batch_size 12"}, 768, 12),  # fewer than ranks: of each of them
        ({"notes": "batch size 480"}, 480, 4),
        ({"notes": "batch_size = 12, gradient_accumulation_steps = 5"}, 3840, 12),
        ({"notes": "per_device_train_batch_size=4, gradient_accumulation_steps=2"}, 512, 4),
        ({"notes": "total batch of 512 sequences"}, 512, 4),
        ({"notes": "GBS 4M tokens"}, 2048, 4),
        ({"notes": "global batch = 4M tokens"}, 2048, 4),
        ({"notes": "total batch size (524288 tokens)"}, 256, 4),
        ({"notes": "tokens per step: 4M"}, 2048, 4),
        ({"notes": "2M-token batches (2,097,152)"}, 1024, 4),
        ({"notes": "global batch of 1,024 sequences"}, 1024, 4),
        ({"notes": "batch size ramps to 2048"}, 2048, 4),
        ({"global_batch_sequences": "4M tokens"}, 2048, 4),
        ({"global_batch_sequences": "1536 (3.1M tokens)"}, 1536, 4),
        ({"notes": "MBS 2, GA 8"}, 1024, 2),
    ],
)
def test_batches_in_any_words(changes, batch, micro):
    row = OPEN | {"global_batch_sequences": "", "tp": "1", "pp": "1", "zero_stage_or_fsdp": "ZeRO-1"}
    _assert_read(row, {"batch": batch, "microbatch": micro}, **changes)


@pytest.mark.parametrize(
    ("notes", "precision"),
    [("block scaling (1x128 activations, 128x128 weights)", "fp8_block"), ("blockwise", "fp8_block")]
    + [("MX scaling", "mxfp8"), ("delayed scaling", "fp8_tensor"), ("recompute of 4 blocks", "fp8_tensor")],
)
def test_how_8_bits_are_scaled(notes, precision):
    assert read(**OPEN | {"precision": "fp8", "hardware": "B200", "notes": notes}).plan.precision == precision


def test_a_source_of_ulysses_sends_whole_heads():
    assert read(**OPEN | {"source": "DeepSpeed Ulysses blog", "cp": "8"}).plan.context_kind == "all_to_all"


def test_experts_in_any_words():
    _assert_read(MIXTURE, {"expert": 4, "expert_tensor": 2}, ep="4", tp="2", notes="ETP 2")
    _assert_read(MIXTURE, {"expert": 8, "expert_tensor": 2}, ep="8", tp="2", notes="expert-tensor-parallel-size 2")
    _assert_read(MIXTURE, {"expert": 8, "expert_tensor": 1, "tensor": 2}, ep="EP=8", tp="2", topk="top-2")
    _assert_read(MIXTURE, {"expert": 8}, experts="8 (top-2)", topk="")
    told = read(**MIXTURE | {"experts": "64+2 shared", "topk": "", "notes": "first layer dense, 6 active experts"})
    assert {name: told.facts[name] for name in ("shared_experts", "top_k", "first_dense")} == dict(
        shared_experts=2, top_k=6, first_dense=1
    )
    whole, half = (read(**MIXTURE | {"notes": notes}) for notes in ("", "MoE on every other layer"))
    assert sum(block.repeats for block in whole.workload.blocks) == sum(b.repeats for b in half.workload.blocks)
    assert len(half.workload.blocks) > len(whole.workload.blocks)


def test_heads_in_words():
    heads = {"GQA 8": 8, "8 (GQA)": 8, "MQA": 1, "MHA": 64}
    wide = {name: read(**OPEN | {"kv_heads": cell}).workload for name, cell in zip(heads, heads, strict=True)}
    plain = {name: read(**OPEN | {"kv_heads": str(number)}).workload for name, number in heads.items()}
    assert wide == plain
    assert read(**OPEN | {"ffn_hidden": "4h"}).workload == read(**OPEN | {"ffn_hidden": "24576"}).workload


# what is offloaded


@pytest.mark.parametrize(
    ("changes", "optimizer", "activations"),
    [
        ({"zero_stage_or_fsdp": "zero-3 + cpu offload"}, 1.0, 0.0),
        ({"notes": "CPU offload enabled"}, 1.0, 0.0),
        ({"notes": "optimizer states on the Grace CPU"}, 1.0, 0.0),
        ({"notes": "activations offloaded to CPU"}, 0.0, 1.0),
        ({"notes": "activation offloading"}, 0.0, 1.0),
        ({"notes": "activation offload of 12 layers", "pp": "1", "tp": "8"}, 0.0, 0.25),
        ({"notes": "no CPU offload"}, 0.0, 0.0),
    ],
)
def test_what_goes_to_the_host(changes, optimizer, activations):
    found = read(**OPEN | changes)
    held = found.cluster.stack.habits.offloaded_activations
    assert (found.plan.offload_optimizer, held) == (optimizer, activations)


# links and machines


@pytest.mark.parametrize(
    ("note", "gigabytes"),
    [
        ("RoCE 8x200", 25),
        ("2x400 per node", 12.5),
        ("IB 8x400", 50),
        ("2x dual-port HDR100 (4x100 Gb/s) per node", 6.25),
    ]
    + [("4x Slingshot-11 (200 Gb/s) per node", 12.5), ("two 200G NICs per node", 6.25), ("8x8x16 torus", 50)]
    + [("8 RoCE NICs at 400 Gbps per node", 50), ("4x 25 GB/s Slingshot per node", 12.5)]
    + [("Quantum-2 NDR, one 400 Gb/s port per GPU", 50), ("8 InfiniBand EDR adapters per node", 12.5)],
)
def test_links_without_units_or_in_brackets(note, gigabytes):
    assert read(**OPEN | {"interconnect_note": note}).cluster.tiers[-1].bandwidth_bytes_per_s == 1e9 * gigabytes


@pytest.mark.parametrize(
    ("hardware", "changes", "tflop_per_s", "gib"),
    [
        ("trn1.32xlarge", {"gpus_per_node": "32"}, 95, 16),
        ("Trainium1", {"gpus_per_node": "16"}, 190, 32),
        ("Trainium1", {"gpus_per_node": "", "notes": "one NeuronCore each"}, 95, 16),
        ("trn2.48xlarge", {"gpus_per_node": "64"}, 166.75, 24),
        ("trn2.48xlarge", {"gpus_per_node": "128"}, 83.4, 12),
        ("Trainium2", {"gpus_per_node": "16"}, 667, 96),
        ("Trainium2", {"gpu_mem_GB": "24", "gpus_per_node": ""}, 166.75, 24),
        ("AMD MI250X", {"gpus_per_node": "8"}, 191.5, 64),
        ("MI250X", {"gpu_mem_GB": "64", "gpus_per_node": ""}, 191.5, 64),
        ("MI250X", {"gpus": "64 GCDs", "gpus_per_node": ""}, 191.5, 64),
        ("MI250 (two dies)", {"gpus_per_node": "4"}, 362, 128),
        ("Ascend 910C", {"gpus_per_node": "16"}, 376, 64),
        ("v5p-128", {"gpus": "128", "gpus_per_node": "4"}, 229.5, 47.5),
        ("v5p-128", {"gpus": "64", "gpus_per_node": "4"}, 459, 95),
        ("TPU v3-64", {"gpus": "64", "gpus_per_node": "8"}, 61.5, 16),
        ("v6e-64", {"gpus": "64", "gpus_per_node": "4"}, 918, 32),
        ("A800-40GB", {}, 312, 40),
        ("A800", {}, 312, 80),
    ],
)
def test_dies_and_cores_are_counted_by_what_a_row_tells(hardware, changes, tflop_per_s, gib):
    chip = read(**OPEN | {"hardware": hardware, "interconnect_note": ""} | changes).cluster.accelerator
    assert chip.peak_16bit_flop_per_s == pytest.approx(1e12 * tflop_per_s, rel=0.003)
    assert chip.hbm_bytes == pytest.approx(2.0**30 * gib, rel=0.01)


def test_slices_of_pods():
    for hardware, gpus, note, slices in (
        ("TPU v5p", "6144", "", 1),
        ("TPU v5e", "512", "", 2),
        ("TPU v5e", "256", "4 slices, DCN between", 4),
        ("TPU v6e", "512", "2x v6e-256: 2 slices of 256", 2),
    ):
        row = OPEN | {"hardware": hardware, "gpus": gpus, "interconnect_note": note, "gpus_per_node": "4"}
        found = read(**row | {"global_batch_sequences": gpus})
        sizes = [tier.size for tier in found.cluster.tiers if tier.name.startswith("ici")]
        assert max(sizes) == int(gpus) / slices, (hardware, gpus)


# what is trained


@pytest.mark.parametrize("model", ["BERT-Large", "RoBERTa", "ViT-L/16", "Megatron-BERT 3.9B", "DeiT-B"])
def test_encoders_see_both_ways(model):
    found = read(**OPEN | {"model": model, "seq": "512"})
    decoder = read(**OPEN | {"model": "GPT", "seq": "512"})
    assert any("without a causal mask" in told for told in found.assumed)
    density = {op.density for b in found.workload.blocks for op in b.ops if op.kind.value == "attention"}
    masked = {op.density for b in decoder.workload.blocks for op in b.ops if op.kind.value == "attention"}
    assert (density, masked) == ({1.0}, {0.5})


@pytest.mark.parametrize("model", ["T5-11B", "Flan-UL2", "mBART", "DiT-XL/2", "Qwen2.5-VL-7B", "LLaVA 13B", "CLIP"])
def test_models_of_several_parts_need_their_dimensions(model):
    told = ("encoder and decoder", "diffusion", "vision tower")
    assert any(part in assumed for part in told for assumed in read(**OPEN | {"model": model}).assumed)
    assert "is no decoder alone" in refused(**OPEN | {"model": model, "layers": ""})


@pytest.mark.parametrize("model", ["Swin-L", "ResNet-50", "DLRM v2"])
def test_other_models_are_refused(model):
    assert "in its words" in refused(**OPEN | {"model": model})


@pytest.mark.parametrize(("model", "density"), [("DiT-XL/2", 1.0), ("Wan 2.1 14B", 1.0), ("LLaVA 13B", 0.5)])
def test_diffusion_models_see_both_ways(model, density):
    blocks = read(**OPEN | {"model": model}).workload.blocks
    assert {op.density for b in blocks for op in b.ops if op.kind.value == "attention"} == {density}


@pytest.mark.parametrize(("size", "each"), [("2.8", 24), ("1.4", 12)])
def test_layers_of_two_stacks_are_of_each_or_of_both(size, each):
    sizes = {"layers": "24", "params_B": size, "tied": "0", "hidden": "2048", "heads": "32", "kv_heads": "32"}
    sizes |= {"gated_ffn": "1", "ffn_hidden": "5120", "vocab": "32128", "seq": "512"}
    found = read(**OPEN | sizes | {"model": "T5-XL"}).workload
    assert [float(block.repeats) for block in found.blocks if "layer" in block.name] == [each, each]
    assert parameters(found) == pytest.approx(1e9 * float(size), rel=0.1)


@pytest.mark.parametrize(
    "notes",
    ["after training, inference latency was measured with vLLM", "serving with TensorRT-LLM later; pretraining"]
    + ["inference engine of our own", "evaluated with vLLM", "full-parameter SFT", "gradient clip 1.0", "no LoRA"],
)  # fmt: skip
def test_what_is_mentioned_in_passing_is_read(notes):
    assert read(**OPEN | {"notes": notes}).plan.accelerators == 64


@pytest.mark.parametrize(
    "notes",
    ["inference decode, batch 64", "prefill throughput", "GRPO with rollouts", "reinforcement learning"]
    + ["frozen backbone", "distilled from teacher logits", "MLPerf Inference v5.0"],
)  # fmt: skip
def test_what_is_not_trained_is_refused(notes):
    assert "in its words" in refused(**OPEN | {"notes": notes})


def test_software_that_nobody_names():
    named, unnamed = (read(**OPEN | {"source": source}) for source in ("torchtitan", "a blog"))
    assert ("software" in named.open, "software" in unnamed.open) == (False, True)
    assert "fsdp: its software is not named" in unnamed.assumed
    for source, stack in (
        ("MindSpore", "megatron-core"),
        ("PaddleNLP (PaddlePaddle)", "megatron-core"),
        ("ModelLink", "megatron-core"),
        ("veScale", "fsdp"),
        ("nanoGPT", "fsdp"),
        ("torchtune", "fsdp"),
        ("ZeRO-Offload paper", "deepspeed"),
        ("JAX-Toolbox Pax on H100", "xla-gpu"),
        ("MaxText on GPUs", "xla-gpu"),
        ("Levanter", "xla-gpu"),
    ):
        found = read(**OPEN | {"source": source})
        assert (found.stack, "software" in found.open) == (stack, False), source
