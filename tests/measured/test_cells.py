"""Cells, gaps and layouts of rows as people write them: numbers with units, links, dimensions, batches."""

import pytest

from costmodel.inputs import layers
from costmodel.measured.rows import Case, case
from costmodel.measured.rows.columns import Columns
from costmodel.measured.rows.headers import tokens_told
from costmodel.measured.rows.notes import facts_of
from costmodel.measured.rows.words import between_nodes, inside
from tests.support.paraphrases import wordings
from tests.support.row_by_hand import ROW, read

H100 = {"hardware": "H100-80GB-SXM", "precision": "bf16", "source": "somebody", "flash_attention": "", "recompute": ""}


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
    assert [read(gated_ffn=word).assumed for word in ("SwiGLU", "GELU")] == [("gradients in fp16",)] * 2
    assert read(sp="Ulysses (8)").plan.sequence_parallel is True


@pytest.mark.parametrize(
    ("words", "gigabytes"),
    [
        ("{8x400G|8 x 400 Gb/s|8x400 Gbps per node|8x NDR|8x NDR400|NDR x8|8 NICs of 400 Gb/s|"
            "8x ConnectX-7|8 400G NICs|8 ConnectX-7 HCAs|ConnectX-7 x8}", 50),
        ("{3.2 Tbps|3.2 Tb/s per node|3200 Gb/s|EFA 3200 Gb/s|EFAv2 3.2Tbps|400 GB/s per node|"
            "3200 Gbit/s node-to-node}", 50),
        ("{400 Gb/s per GPU|400G NDR per GPU|50 GB/s per GPU|400 GbE|NDR InfiniBand|CX-7 per GPU|"
            "0.4 Tbps per GPU}", 50),
        ("{1x100 GbE per node|100 Gb/s per node|one 100 Gbps NIC per node|1x HDR100 100Gb/s per host|"
            "1x HDR100}", 100 / 64),
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
    assert between_nodes("2 switches 400 Gb/s", 8, 50e9) == 50e9
    assert inside("NVLink 900 GB/s", 450e9) == 450e9  # both directions
    assert inside("NVLink 160 GB/s in node", 200e9) == 160e9


def test_omni_path_carries_what_nccl_reaches_over_it():
    """21 Gb/s an accelerator, whatever its links have; unless they are slower, or the note says nothing of them."""
    for note in ("4x100 Gb/s Omni-Path links per node", "OPA 100 Gb/s per GPU", "Jean Zay V100 nodes of 4"):
        assert between_nodes(note, 8, 25e9) == 21e9 / 8, note
    for note in ("1x100 Gb/s Omni-Path per node", "4 Omni-Path 25 Gb/s per node", "4 OPA 25 Gbps per node"):
        assert between_nodes(note, 8, 25e9) == 100e9 / 64, note
    assert between_nodes("Jean Zay, H100 nodes", 4, 50e9) is None


def test_links_of_a_node_by_their_number():
    for note in ("NVLink 4 inter-gpu connects", "NVLink with 4 links, 4 Omni-Path links", "4 NVLinks per GPU"):
        assert inside(note, 300e9) == 100e9, note
    assert inside("18 NVLinks/GPU", 900e9) == 900e9
    assert inside("NVLink 4 links", 450e9) is None  # the generation of an H100's
    assert inside("18x 5th Gen NVLink", 900e9) is None


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
        ("Llama-4-Scout", 109e9),  # this and what follows: the models' own cards
        ("llama4-17b-128e", 400e9),
        ("Gemma 2 2B", 2.61e9),
        ("gemma-7b", 8.54e9),
        ("gemma3-27b", 27.4e9),
        ("Qwen3 0.6B", 0.596e9),
        ("Qwen3-Coder-480B-A35B", 480e9),
        ("GLM-4.5-Air", 106e9),
        ("zai-org/GLM-4.5", 355e9),
        ("OLMo2-13B", 13.7e9),
        ("OLMoE-1B-7B", 6.9e9),
        ("SmolLM2 1.7B", 1.71e9),
        ("pythia-6.9b", 6.86e9),
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
        ("0.5M tokens per batch", 256),
        ("a 4M-token batch", 2048),
        ("per-GPU batch of 16k tokens", 512),
        ("63M tokens per batch", 30720),
        ("524k tokens per batch", 256),
    ):
        found = case(row | {"notes": notes})
        assert isinstance(found, Case)
        assert found.workload.batch == batch, notes


@pytest.mark.parametrize(
    ("notes", "modules"),
    [("with MTP", 1), ("1 MTP layer", 1), ("mtp_num_layers=1", 1), ("2 MTP modules", 2)]
    + [("multi-token prediction on", 1), ("w/o MTP", 0), ("mtp_num_layers: 0", 0), ("MTP off", 0), ("", 0)]
    + [("no multi-token prediction", 0)],
)  # fmt: skip
def test_modules_of_multi_token_prediction_are_layers(notes, modules):
    assert layers(read(**(H100 | {"notes": notes})).workload) == int(ROW["layers"]) + modules


# machines


@pytest.mark.parametrize(
    ("hardware", "tflops"),
    [("MI250X (one GCD)", 191.5), ("MI350X", 2300), ("MI355X", 2500), ("TPU v3-256 (128 chips)", 123)]
    + [("NVIDIA L40S", 362)]
    + [("H20", 148), ("Trainium1 (trn1.32xlarge)", 190), ("Ascend 910B", 313), ("RTX 4090", 165), ("H200", 989.5)],
)  # fmt: skip
def test_other_accelerators_have_their_own_rates(hardware, tflops):
    found = read(hardware=hardware)
    assert found.cluster.accelerator.peak_16bit_flop_per_s == pytest.approx(1e12 * tflops, rel=0.001)


@pytest.mark.parametrize(
    ("hardware", "cell", "precision"),
    [("H100", "", "fp8_tensor"), ("MI355X", "", "fp8_tensor"), ("A100", "", "bf16"), ("H100", "bf16", "bf16")],
)
def test_submissions_to_mlperf_run_in_8_bits_where_they_can(hardware, cell, precision):
    found = read(**(H100 | {"hardware": hardware, "source": "MLPerf Training v5.1", "precision": cell}))
    assert found.plan.precision == precision
    assert ("precision" in found.open) == (precision == "bf16" and not cell)
    assert read(**(H100 | {"hardware": hardware, "precision": cell})).plan.precision == (cell or "bf16")


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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gpus": "8 x DGX H100", "hardware": "H100-80GB-SXM"}, {"accelerators": 64}),
        ({"gpus": "2^6"}, {"accelerators": 64}),
        ({"seq": "2^11"}, {"sequence": 2048}),
        ({"global_batch_sequences": "16 x 16"}, {"batch": 256}),
        ({"global_batch_sequences": "~0.525M tokens"}, {"batch": 256}),
        ({"micro_batch": "2/GPU"}, {"microbatch": 2}),
        ({"gpus_per_node": "8 x A100"}, {"accelerators": 64}),
        ({"gpu_mem_GB": "80GB HBM2e"}, {"accelerators": 64}),
        ({"recompute": "block 10"}, {"recompute": "full"}),
        ({"gpus": "64x A100"}, {"accelerators": 64}),
        ({"global_batch_sequences": "16 per GPU"}, {"batch": 16 * 4}),
        ({"params_B": "22.1e9", "layers": "48L", "gated_ffn": "not gated"}, {"accelerators": 64}),
        ({"flash_attention": "v2.5"}, {"attention": "flash_2"}),
        ({"flash_attention": "yes (2.x)"}, {"attention": "flash_2"}),
    ],
)
def test_cells_of_products_powers_and_units(changes, expected):
    found = read(**changes)
    got = {
        "accelerators": found.cluster.accelerators,
        "sequence": found.workload.sequence,
        "batch": found.workload.batch,
    }
    plan = found.plan
    got |= {"microbatch": plan.microbatch, "recompute": plan.recompute, "attention": plan.attention}
    assert {name: got[name] for name in expected} == expected


def test_some_layers_of_a_stage_are_recomputed_by_block():
    assert 0 < read(recompute="block 10", pp="1", dp="8", tp="8").plan.recompute_share < 1


@pytest.mark.parametrize(
    ("note", "between", "within"),
    [("10 GbE", 0.15625, 300), ("25GbE between nodes", 0.390625, 300), ("dual-rail EDR 100Gb/s", 3.125, 300)]
    + [("PCIe only, 200 Gb/s per GPU", 25, 32), ("no NVLink; 8x200 Gb/s IB", 25, 32)],
)  # fmt: skip
def test_slow_links_and_nodes_without_nvlink(note, between, within):
    tiers = read(hardware="A100-80GB-SXM", interconnect_note=note).cluster.tiers
    assert [tier.bandwidth_bytes_per_s / 1e9 for tier in (tiers[-1], tiers[0])] == pytest.approx([between, within])


@pytest.mark.parametrize(
    ("told", "sequence", "sequences"),
    [("4M", 8192, 512), ("0.5M", 2048, 256), ("60M", 4096, 15360), ("100k", 4096, 25), ("1.05M", 4096, 256)]
    + [("63M", 4096, 15360), ("62.9M", 4096, 15360), ("37.7M", 4096, 9216), ("18.9M", 4096, 4608)]  # DeepSeek's
    + [("67M", 4096, 16384), ("2.4M", 2048, 1152), ("524k", 4096, 128), ("524,288", 4096, 128)],  # Kimi's, Falcon's
)
def test_tokens_of_a_batch_are_the_roundest_number_of_sequences(told, sequence, sequences):
    """Published batches, told in so many tokens; few thousands and millions are powers of two."""
    size, letter = (told[:-1], told[-1].lower()) if told[-1].isalpha() else (told, "")
    assert tokens_told(size, letter, sequence) == sequences * sequence
