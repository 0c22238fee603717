"""Rows whose notes are settings of launch files, and machines by the names of clouds and sites."""

import pytest

from costmodel.inputs.workload import parameters
from costmodel.measured.rows.hardware import _KNOWN
from costmodel.measured.rows.other_accelerators import _sheets
from tests.support.row_by_hand import ROW, read, refused

OPEN = ROW | dict.fromkeys(("tp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute", "flash_attention"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "bf16", "micro_batch": "", "cp": ""}


@pytest.mark.parametrize(
    ("notes", "fields"),
    [
        (
            "tensor_model_parallel_size: 4; pipeline_model_parallel_size: 2; micro_batch_size: 2",
            {"tensor": 4, "pipeline": 2, "data": 8, "microbatch": 2},
        ),
        (
            "tensor_model_parallel_size 2 pipeline_model_parallel_size 4 virtual_pipeline_model_parallel_size 3",
            {"tensor": 2, "pipeline": 4, "virtual_stages": 3, "schedule": "interleaved"},
        ),
        ('"pipe_parallel_size": 2, "model_parallel_size": 4', {"tensor": 4, "pipeline": 2, "data": 8}),
        ("expert_tensor_parallel_size 2, tensor_model_parallel_size 4", {"tensor": 4, "data": 16}),
        ("EP16PP4TP2", {"tensor": 2, "pipeline": 4, "data": 8}),
        ("tp4-cp2-pp4", {"tensor": 4, "context": 2, "pipeline": 4, "data": 2}),
        ("optimizer.use_distributed_optimizer=true", {"zero_stage": 1}),
        ("distributed_fused_adam", {"zero_stage": 1}),
        (
            '"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}, '
            '"train_micro_batch_size_per_gpu": 1',
            {"zero_stage": 3, "offload_optimizer": 1.0, "microbatch": 1},
        ),
        (
            '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "none"}}',
            {"zero_stage": 2, "offload_optimizer": 0.0},
        ),
        (
            "fsdp_sharding_strategy: FULL_SHARD; gradient_checkpointing: true",
            {"zero_stage": 3, "recompute": "full"},
        ),
        ("gradient_checkpointing: false", {"recompute": "none"}),
        (
            'activation_checkpoint.mode = "selective", selective_ac_option = "2"',
            {"recompute": "full", "recompute_share": 0.5},
        ),
        ('activation_checkpoint.mode = "selective", selective_ac_option = "op"', {"recompute": "selective"}),
        ("zero bubble schedule over 8 GPUs, ZeRO-1", {"zero_stage": 1, "data_shard": None}),
    ],
)
def test_settings_in_notes(notes, fields):
    plan = read(**OPEN | {"notes": notes}).plan
    assert {name: getattr(plan, name) for name in fields} == fields


def test_settings_name_their_software():
    for notes, stack in (('"zero_optimization": {"stage": 2}', "deepspeed"), ("compile.enable = true", "fsdp")):
        assert read(**OPEN | {"notes": notes}).stack == stack
    assert read(**OPEN | {"notes": "compile.enable = true"}).facts["compiled"] == 1


def test_whose_batch_it_is():
    """Fewer sequences than ranks are a rank's, unless nobody says how many ranks a large model has."""
    row = OPEN | {"global_batch_sequences": "", "notes": "batch size 32"}
    small = {"params_B": "1.3", "layers": "24", "hidden": "2048", "heads": "16", "kv_heads": "16", "ffn_hidden": "8192"}
    assert read(**row | small).workload.batch == 32 * 64
    assert read(**row | {"tp": "1", "pp": "1"}).workload.batch == 32 * 64
    assert read(**row | {"params_B": "22"}).workload.batch == 32


@pytest.mark.parametrize(
    ("hardware", "changes", "tflop_per_s", "gib", "domain"),
    [
        ("GB200 NVL4", {"gpus_per_node": "4"}, 2500, 185, 4),
        ("GH200", {"gpus_per_node": "4"}, 989, 96, 4),
        ("GH200 144GB HBM3e", {"gpus_per_node": "4"}, 989, 140.4, 4),
        ("H100 SXM5 94GB", {"gpu_mem_GB": "94"}, 989, 94, 8),
        ("LUMI-G", {"gpus_per_node": "8"}, 191.5, 64, 8),
        ("Frontier", {"gpus_per_node": "", "notes": "a device is one GCD"}, 191.5, 64, 8),
        ("MI250X", {"gpus_per_node": ""}, 383, 128, 4),
        ("Perlmutter", {"gpus_per_node": "4"}, 312, 40, 4),
        ("Standard_ND96isr_H100_v5", {}, 989, 79.6, 8),
        ("ND96asr_v4", {}, 312, 40, 8),
        ("p3.16xlarge", {}, 125, 15.8, 8),
        ("DGX-2", {"gpus_per_node": "16"}, 125, 31.7, 16),
        ("a4-highgpu-8g", {}, 2250, 179, 8),
        ("g6.48xlarge", {}, 121, 24, 8),
        ("RTX TITAN", {}, 130.5, 24, 8),
        ("RTX PRO 6000", {}, 503.8, 96, 8),
        ("NVIDIA L4 24GB", {}, 121, 24, 8),
        ("H100 PCIe 80GB (NVLink bridge)", {}, 756, 80, 8),
        ("H200 SXM NVLink", {}, 989, 140.4, 8),
        ("DGX A100 640GB", {}, 312, 80, 8),
        ("DGX A100 320GB", {}, 312, 40, 8),
        ("GH200 (120GB)", {"gpus_per_node": "1"}, 989, 96, 1),
        ("V100 16G", {}, 125, 15.8, 8),
        ("V100S-PCIE-32GB", {}, 130, 32, 8),
        ("V100-SXM2-32GB", {}, 125, 31.7, 8),
        ("RTX 3090 Ti", {}, 80, 24, 8),
        ("RTX 6000 Blackwell", {}, 503.8, 96, 8),
        ("NVIDIA A10 24 GB", {}, 125, 24, 8),
        ("Tesla T4", {}, 65, 16, 8),
        ("P100-PCIE-16GB", {}, 18.7, 16, 8),
        ("NVIDIA H800 PCIe", {}, 756, 80, 8),
        ("Summit", {"gpus_per_node": "6"}, 125, 15.8, 6),
        ("Moore Threads MTT S4000", {}, 100, 48, 8),
    ],
)
def test_machines_by_their_names(hardware, changes, tflop_per_s, gib, domain):
    found = read(**OPEN | {"hardware": hardware} | changes)
    chip = found.cluster.accelerator
    assert chip.peak_16bit_flop_per_s == pytest.approx(1e12 * tflop_per_s, rel=0.003)
    assert chip.hbm_bytes == pytest.approx(2.0**30 * gib, rel=0.01)
    assert found.plan.domain == domain


@pytest.mark.parametrize("hardware", ["Cerebras CS-3", "Groq LPU", "SambaNova SN40L", "GPU", ""])
def test_accelerators_that_nobody_describes_are_refused_in_one_line(hardware):
    reason = refused(**OPEN | {"hardware": hardware})
    assert reason.startswith("`hardware` is ")
    assert "expected one such as H100-80GB-SXM" in reason
    assert "\n" not in reason


def test_a_memory_of_96_gb_is_no_power_cap():
    clocks = {name: read(**OPEN | {"hardware": name}) for name in ("H100 96GB", "H100-96GB-HBM2e", "H100 (lower TDP)")}
    assert [found.cluster.accelerator.sustained_clock for found in clocks.values()] == [1.0, 0.76, 0.76]


@pytest.mark.parametrize(
    ("model", "parameters_b"),
    [("DeepSeek-R1", 671), ("DSv3 671B", 671), ("deepseek_v3_671b", 671), ("DeepSeek-V3 w/o MTP", 671)]
    + [("Qwen3 235B", 235), ("Qwen3-MoE-235B-A22B", 235), ("DBRX 132B", 132), ("bigscience/bloom", 176)]
    + [("OLMo-2-1124-7B", 7.3), ("meta-llama/Meta-Llama-3.1-70B-Instruct", 70.6), ("Llama 4 Scout 17B-16E", 108)],
)  # fmt: skip
def test_models_by_other_names(model, parameters_b):
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "vocab", "params_B")
    found = read(**OPEN | dict.fromkeys(sizes, "") | {"model": model, "tp": "1", "pp": "1", "dp": "64"})
    assert parameters(found.workload) == pytest.approx(1e9 * parameters_b, rel=0.01)


@pytest.mark.parametrize("model", ["Switch-XXL 395B", "GLaM 1.2T", "ERNIE-4.5-424B-A47B", "Own MoE 40B", "Arctic 480B"])
def test_no_size_tells_the_shape_of_experts(model):
    """An unknown mixture of experts without its dimensions is no dense model of as many parameters."""
    sizes = ("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "vocab", "params_B")
    assert "expected `layers` and `hidden`, `experts`" in refused(**OPEN | dict.fromkeys(sizes, "") | {"model": model})


@pytest.mark.parametrize("hardware", ["trn1.32xlarge", "trn2.48xlarge"])
def test_a_host_of_trainium_is_a_torus_and_no_more(hardware):
    alone, joined = (
        read(**OPEN | {"hardware": name, "gpus_per_node": "16"}) for name in (hardware, "Trn2 UltraServer")
    )
    assert [tier.size for tier in alone.cluster.tiers] == [4, 16, 64]
    assert [tier.name for tier in joined.cluster.tiers][:3] == ["neuronlink-x", "neuronlink-y", "efa"]
    assert alone.fabric == "efa"
    whole = read(**OPEN | {"hardware": "Trn2 UltraServer", "gpus_per_node": "16", "gpus": "128"})
    assert [tier.size for tier in whole.cluster.tiers] == [4, 16, 64, 128]


def test_sheets_are_rates_of_whole_accelerators():
    """Each sheet has positive rates, links no faster than memory, and says where it is from."""
    for sheet in _sheets():
        rates = {name: float(sheet[name]) for name in ("tflop_16bit", "tflop_8bit", "hbm_gib", "hbm_tb_per_s")}
        assert all(rate > 0 for rate in rates.values()), sheet
        assert rates["tflop_8bit"] >= rates["tflop_16bit"]
        assert float(sheet["link_gb_per_s"]) < 1e3 * rates["hbm_tb_per_s"]
        assert sheet["source"]
    assert len({cluster for _, cluster, _ in _KNOWN}) >= 20


IN_PASSING = (
    "checkpoint every 500 steps; average over the run, checkpoints and restarts included; async checkpointing enabled"
    "; distributed checkpointing to disk; restarted from a checkpoint; step time captured from the log"
    "; captured step times; read off the GPU graph in figure 3; LoRA is in another row; FP8 rows of the table"
    "; compared with Megatron-LM, which uses full recomputation; 1.2x faster than the baseline without overlap"
    "; the paper's ZeRO-3 rows are in another table; served with vLLM in another section; 16 of 32 nodes"
    "; speedup over FlashAttention-1 1.3x; eager comparison is 8 % slower; data loading overlapped"
    "; batch size ramp from 16 to 512; averaged over a window of 100 iterations; torch 2.4, cuDNN 9.1"
    "; the repo also ships an FSDP script; an FSDP variant reaches 51 % MFU; also trained on TPU"
    "; FP8 not used; ZeRO stage not printed; micro-batch and recompute not listed; CUDA graph capture failed"
    "; inference of unseen layouts; teacher forcing; gradient clipping 1.0; rollout of the new driver; grad clip"
).split("; ")
"""Notes that tell of other things than how the row was run."""


@pytest.mark.parametrize("source", ["Megatron-Core", "torchtitan"])
def test_what_notes_tell_of_other_things_changes_nothing(source):
    row = OPEN | {"source": source, "tp": "8", "pp": "2", "dp": "4", "micro_batch": "1"}
    plain = read(**row)
    for note in IN_PASSING:
        found = read(**row | {"notes": note})
        assert (found.plan, found.workload, found.stack) == (plain.plan, plain.workload, plain.stack), note
        assert found.open == plain.open, note


@pytest.mark.parametrize(
    ("citation", "loss"),
    [
        ("NVIDIA/dgxc-benchmarking llama3.1/README.md @v25.05 'Llama 3.1 405b BF16'", "fused"),
        ("NVIDIA/dgxc-benchmarking nemotron/README_15b.md @v25.12.02", "fused"),
        ("NVIDIA/dgxc-benchmarking llama3.1/README.md @v25.04.02 'Llama 3.1 405b BF16'", "usual"),
        ("NVIDIA/dgxc-benchmarking nemo_megatron/README_175b.md @v24.11.1 'NeMo Megatron 24.11 BF16'", "usual"),
        ("docs/performance_summary.md, 25.07 NeMo container", "fused"),
        ("NeMo Framework 25.02, page 3 of 25.04", "usual"),
        ("nvcr.io/nvidia/nemo:24.12", "usual"),
    ],
)
def test_a_citation_names_the_release(citation, loss):
    """Transformer Engine's loss is in NeMo's performance scripts since 25.04, in DGX Cloud's recipes since 25.05."""
    assert read(**(OPEN | {"source": "NeMo", "source_ref": citation})).plan.loss == loss
