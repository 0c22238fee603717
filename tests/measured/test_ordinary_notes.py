"""Notes that hold a word of a known phrase and mean something else, or say a known thing in another order."""

import pytest

from tests.support.row_by_hand import ROW, read, refused

OPEN = ROW | dict.fromkeys(("tp", "pp", "dp", "sp", "vpp", "zero_stage_or_fsdp", "recompute", "flash_attention"), "")
OPEN |= {"hardware": "H100-80GB-SXM", "source": "somebody", "precision": "bf16", "micro_batch": "", "kv_heads": "8"}


@pytest.mark.parametrize(
    "notes",
    ["FP8 used in forward pass only", "FlashAttention 3 in the forward only", "code base frozen at commit abc"]
    + ["pretrained, later aligned with DPO", "after training, inference latency was measured with vLLM"],
)  # fmt: skip
def test_pretraining_is_read(notes):
    assert read(**OPEN | {"notes": notes}).plan.accelerators == 64


@pytest.mark.parametrize(
    "notes",
    ["LoRA rank 16, step time averaged after 10 warm-up steps", "QLoRA fine-tuning, evaluated on MMLU"]
    + ["after the first 5 steps of LoRA", "forward only benchmark", "only the forward pass was timed"],
)  # fmt: skip
def test_what_is_timed_after_warming_up_is_no_other_training(notes):
    assert "in its words" in refused(**OPEN | {"notes": notes})


@pytest.mark.parametrize(
    ("notes", "fact", "value"),
    [("per-GPU micro batch size 2", "micro_batch", 2), ("GPU power capped at 500 W", "power_w", 500)]
    + [("interleaved pipeline VPP 4", "virtual_stages", 4), ("pipeline interleaving factor 2", "virtual_stages", 2)]
    + [("eval batch 8; micro batch 2", "batch", None), ("context window 8192", "window", None)]
    + [("NCCL ring size 64", "context", None), ("all-reduce ring size 64", "context", None)]
    + [("ring size 4", "context", 4), ("expert TP 2", "tensor", None)]
    + [("pipeline model parallel size 4", "tensor", None)]
    + [("CPU offload and activation checkpointing", "offloaded_activations", None)]
    + [("CPU offload and activation checkpointing", "host_optimizer", 1)]
    + [("activations are offloaded to the host", "offloaded_activations", 1)]
    + [("activation checkpoints offloaded to CPU", "offloaded_activations", 1)],
)  # fmt: skip
def test_numbers_and_facts_are_of_what_they_stand_beside(notes, fact, value):
    assert read(**OPEN | {"notes": notes}).facts.get(fact) == value


@pytest.mark.parametrize("notes", ["batch size 4 million tokens", "global batch size of 4 million tokens"])
def test_a_batch_of_tokens_is_none_of_sequences(notes):
    assert read(**OPEN | {"notes": notes, "global_batch_sequences": "", "seq": "4096"}).workload.batch == 1024


@pytest.mark.parametrize(
    ("notes", "precision"),
    [("FP8 except the first and last layers in BF16", "fp8_tensor"), ("FP8 excluding attention", "fp8_tensor")]
    + [("FP8 matmuls and BF16 attention", "fp8_tensor"), ("FP32 gradients and BF16 activations", "bf16")],
)
def test_what_a_few_layers_have_is_not_the_precision(notes, precision):
    assert read(**OPEN | {"notes": notes, "precision": ""}).plan.precision == precision


@pytest.mark.parametrize(
    "notes",
    ["checkpointing used to save memory", "full activation recomputation because the model would not fit otherwise"]
    + ["BF16 variant with full activation recomputation"],
)
def test_reasons_of_recomputation(notes):
    assert read(**OPEN | {"notes": notes}).plan.recompute == "full"


@pytest.mark.parametrize(
    ("hardware", "memory", "name", "gib"),
    [("NVIDIA A100 80GB (Perlmutter)", "", "a100-80gb", 80), ("Perlmutter", "80", "a100-80gb", 80)]
    + [("Perlmutter", "", "a100-40gb", 40), ("Polaris A100-40GB", "40", "a100-40gb", 40)],
)  # fmt: skip
def test_memories_of_a_site_with_both(hardware, memory, name, gib):
    chip = read(**OPEN | {"hardware": hardware, "gpu_mem_GB": memory, "gpus_per_node": "4"}).cluster.accelerator
    assert (chip.name, chip.hbm_bytes) == (name, gib * 2**30)


@pytest.mark.parametrize("note", ["v5e-64 slice", "one v5e-64 pod", "64 pod slice", "0 slices"])
def test_the_size_in_a_slice_s_name_is_no_number_of_slices(note):
    row = OPEN | {"hardware": "TPU v5e", "gpu_mem_GB": "16", "gpus_per_node": "4", "interconnect_note": note}
    assert read(**row).fabric == "ici"


@pytest.mark.parametrize(("note", "joined"), [("EC2 UltraClusters, EFAv3", False), ("Trn2 UltraServer", True)])
def test_ultraclusters_join_no_instances(note, joined):
    row = OPEN | {"hardware": "Trainium2", "gpu_mem_GB": "96", "gpus_per_node": "16", "interconnect_note": note}
    sizes = [tier.size for tier in read(**row | {"gpus": "128", "global_batch_sequences": "256"}).cluster.tiers]
    assert (64.0 in sizes) is joined


@pytest.mark.parametrize("note", ["400 Gbps InfiniBand NICs", "InfiniBand, 400 Gb Ethernet NIC per GPU", "8 NDR NICs"])
def test_a_rate_is_no_number_of_cards(note):
    assert read(**OPEN | {"interconnect_note": note}).cluster.tiers[-1].bandwidth_bytes_per_s == 50e9


def test_no_copies_is_no_division():
    assert read(**OPEN | {"zero_stage_or_fsdp": "HSDP replicate=0"}).plan.zero_stage == 3


def test_a_cell_of_many_blanks_is_refused_at_once():
    assert "`tp`" in refused(**OPEN | {"tp": f"a{' ' * 10_000}!"})


@pytest.mark.parametrize(("notes", "tokens"), [("supports up to 128k context", 2048), ("16k context", 16384)])
def test_what_a_model_can_take_is_not_what_it_took(notes, tokens):
    row = OPEN | {"notes": notes, "seq": "", "cp": "", "model": "a decoder", "params_B": "22"}
    assert read(**row).workload.sequence == tokens


def test_a_selective_recomputation_of_all_layers_is_selective():
    assert read(**OPEN | {"recompute": "selective, 1/1"}).plan.recompute == "selective"
    assert read(**OPEN | {"recompute": "selective, 1/2"}).plan.recompute_share == 0.5
