"""Rows as other parties collect them: unusual accelerators and frameworks are read right, or refused with a reason."""

import pytest

from tests.support.row_by_hand import read, refused

OPEN = {"recompute": "", "zero_stage_or_fsdp": "", "flash_attention": "", "precision": "bf16", "source": "somebody"}
WHOLE = OPEN | {"hardware": "H100", "tp": "", "pp": "", "dp": "", "sp": "", "vpp": ""}


@pytest.mark.parametrize(
    ("hardware", "tflop_per_s", "gib", "gb_per_s"),
    [
        ("NVIDIA A800 80GB", 312, 80, 200),
        ("A100 PCIe 40GB", 312, 40, 32),
        ("A100 64GB (Leonardo)", 312, 64, 300),
        ("H100 64GB (MareNostrum 5)", 989, 64, 450),
        ("H100 SXM 96GB (JUPITER GH200)", 989, 96, 450),
        ("NVIDIA H20-3e 141GB", 148, 141, 450),
        ("NVIDIA H200 141GB HBM3e", 989, 141, 450),
        ("H200-SXM-141GB", 989, 141, 450),
        ("H200 NVL", 835, 141, 450),
        ("256 GB200", 2500, 185, 900),
        ("GB200 384GB", 2500, 185, 900),
        ("H100 100Gb RoCE", 989, 80, 450),
        ("AMD Instinct MI300A", 980.6, 128, 384),
        ("Ascend 910C", 752, 128, 392),
        ("Tesla V100 PCIe 32GB", 112, 32, 16),
        ("Tesla V100-PCIE-16GB", 112, 16, 16),
        ("p5.48xlarge", 989, 80, 450),
        ("p4d.24xlarge", 312, 40, 300),
        ("TPU7x", 2307, 192, 200),
    ],
)
def test_accelerators_by_their_sheets(hardware, tflop_per_s, gib, gb_per_s):
    cluster = read(**OPEN, hardware=hardware).cluster
    assert cluster.accelerator.peak_16bit_flop_per_s == pytest.approx(1e12 * tflop_per_s, rel=0.003)
    assert cluster.accelerator.hbm_bytes == pytest.approx(2.0**30 * gib, rel=0.01)
    assert cluster.tiers[0].bandwidth_bytes_per_s == pytest.approx(1e9 * gb_per_s, rel=0.001)


def test_a_rack_is_as_large_as_its_name():
    names = [f"GB200 NVL{size}" for size in ("36", "72", "36x2")]
    sizes = [read(**OPEN, hardware=name, gpus_per_node="4").cluster.tiers[0].usable_size for name in names]
    assert sizes == [36, 64, 64]


def test_memory_of_a_node_is_not_that_of_an_accelerator():
    usual = read(**OPEN, hardware="H100").cluster.accelerator.hbm_bytes
    assert read(**OPEN, hardware="H100", gpu_mem_GB="640").cluster.accelerator.hbm_bytes == usual


def test_flags_of_a_command_are_apart():
    notes = "--use-flash-attn --recompute-method block --recompute-num-layers 2"
    plan = read(**OPEN, notes=notes).plan
    assert (plan.recompute, plan.recompute_share) == ("full", 2 * 2 / 48)


def test_degrees_of_virtual_stages_are_not_those_of_the_pipeline():
    plan = read(**OPEN | {"pp": "", "vpp": "", "dp": ""}, notes="pipeline_parallel_degree 4, virtual_pp_degree 3").plan
    assert (plan.pipeline, plan.virtual_stages) == (4, 3)
    assert read(**OPEN, notes="use_flash_attention 1").plan.attention == "flash"


@pytest.mark.parametrize(
    ("notes", "mode", "share"),
    [
        ("remat policy: save nothing", "full", 1.0),
        ("nothing_saveable", "full", 1.0),
        ("Every block is checkpointed.", "full", 1.0),
        ("all layers are recomputed", "full", 1.0),
        ("AC on every 2nd layer", "full", 0.5),
        ("remat policy: save_dot_products", "selective", 1.0),
        ("no block is checkpointed", "none", 1.0),
    ],
)
def test_what_is_kept_in_words(notes, mode, share):
    plan = read(**OPEN, notes=notes).plan
    assert (plan.recompute, plan.recompute_share) == (mode, share)


def test_degrees_in_prose_name_the_software_too():
    """Whoever divides tensors or layers runs Megatron's kind of software where no name is told."""
    assert read(**WHOLE, notes="TP=4, PP=4 with 2 virtual chunks, DP=4").stack == "megatron-core"
    assert read(**WHOLE, notes="DP=64").stack == "fsdp"


def test_hybrid_sharding_in_prose():
    assert read(**WHOLE, notes="hybrid sharding: FSDP inside a node, replicated across nodes").plan.data_shard == 8


@pytest.mark.parametrize(
    "words",
    ["LoRA finetuning rank 8", "QLoRA 4-bit nf4", "DPO with a reference model", "vLLM decode throughput"]
    + ["Mamba-2 hybrid", "SDXL UNet, 512x512", "only the adapters are trained"],
)  # fmt: skip
def test_what_is_no_pretraining_is_refused(words):
    assert "in its words" in refused(**OPEN, notes=words)


def test_a_refusal_names_the_word_that_was_read():
    assert "`tensorrt_llm` in its words" in refused(**OPEN, notes="benchmarked with TensorRT-LLM")


@pytest.mark.parametrize("notes", ["full finetune, no LoRA", "trained with 8 network adapters per node"])
def test_full_training_is_read(notes):
    assert read(**OPEN, notes=notes).plan.tensor == 8


def test_units_that_a_chip_lacks_are_refused():
    assert "no units of 4 bits" in refused(**OPEN | {"precision": "nvfp4"}, hardware="H100")
    assert read(**OPEN | {"precision": "nvfp4"}, hardware="B200").plan.precision == "nvfp4"
