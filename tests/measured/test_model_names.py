"""Models by the names that people write: layers and parameters as published."""

import csv
import re

import pytest

from costmodel.inputs import layers, parameters
from costmodel.measured.rows.names import known_dimensions, rough_sizes
from costmodel.specs import DATA
from tests.support.row_by_hand import read, refused

OPEN = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "gated_ffn", "vocab", "params_B"), "")
OPEN |= {"gpus": "64", "global_batch_sequences": "256", "tp": "4", "pp": "1", "dp": "16"}

# Sources: what data/dimensions.csv cites (litgpt 0.5.13, transformers 5.23.0, NeMo 2.4.0, slime, mlc-llm)
PUBLISHED = {
    "GPT-2": (12, 0.124),
    "GLM-4-32B": (61, 32.57),
    "GLM-4.7": (92, 355),
    "GLM-5": (78, 744),
    "DeepSeek-V3.2-Exp": (61, 671),
    "Kimi-K2.5": (61, 1026),
    "Ling-1T": (80, 999.7),
    "Command A": (64, 111),
    "Command-R 08-2024": (40, 35),
    "granite-3.0-2b-base": (40, 2.53),
    "Magistral-Small-2506": (40, 23.57),
    "Ministral-3-8B": (34, 8.4),
    "Baichuan-7B": (32, 7.0),
    "baichuan-inc/Baichuan-13B-Base": (40, 13.26),
    "Persimmon-8B": (36, 9.4),
    "Mistral-Large-Instruct-2411": (88, 122.6),
    "Command R+": (64, 103.8),
    "ERNIE-4.5-300B-A47B": (54, 300.0),
    "tencent/Hunyuan-A13B-Instruct": (32, 80.4),
    "meta-llama/Meta-Llama-3-8B": (32, 8.03),
    "meta-llama/Meta-Llama-3.1-405B-Instruct": (126, 405.9),
    "llama31_405b": (126, 405.9),
    "llama3_1_8b": (32, 8.03),
    "llama-v2-7b": (32, 6.74),
    "llama-30b": (60, 32.5),
    "openlm-research/open_llama_7b": (32, 6.74),
    "nvidia/Llama-3.1-Nemotron-70B-Instruct-HF": (80, 70.6),
    "DeepSeek-R1-Distill-Llama-8B": (32, 8.03),
    "Llama-4-Maverick-17B-128E": (48, 400),
    "llama4_17bx16e": (48, 108),
    "Qwen/Qwen2.5-Coder-32B-Instruct": (64, 32.8),
    "Qwen2.5-Math-72B": (80, 72.7),
    "qwen2p5_72b": (80, 72.7),
    "QwQ-32B-Preview": (64, 32.8),
    "Qwen-72B": (80, 72.3),
    "Qwen1.5-110B": (80, 111),
    "Qwen2-57B-A14B": (28, 57.4),
    "Qwen1.5-MoE-A2.7B": (24, 14.3),
    "DeepSeek-V3-0324": (61, 671),
    "DeepSeek V3.1": (61, 671),
    "deepseek3-671b": (61, 671),
    "DeepSeek-V3 16B": (27, 15.7),
    "DeepSeek-V2-Lite": (27, 15.7),
    "deepseek-ai/deepseek-moe-16b-base": (28, 16.4),
    "kimi-k2-1t": (61, 1026),
    "MiniMax-M2": (62, 230),
    "Tencent Hunyuan-Large": (64, 389),
    "ERNIE-4.5-21B-A3B": (28, 21.8),
    "Phi-3.5-MoE-instruct": (32, 41.9),
    "Phi-3.5-mini-instruct": (32, 3.82),
    "Phi-3 medium (14B)": (40, 13.96),
    "Phi-4-mini-instruct": (32, 3.84),
    "phi-1_5": (24, 1.42),
    "google/gemma-2-2b-it": (26, 2.61),
    "Gemma-3-1b-it": (26, 1.0),
    "CodeGemma-7b": (28, 8.54),
    "Mistral Large 2 (123B)": (88, 122.6),
    "Mistral-Nemo 12B": (40, 12.25),
    "Mistral Small 3 24B": (40, 23.57),
    "StarCoder2-15B": (40, 15.96),
    "StarCoder": (40, 15.5),
    "internlm2-20b": (48, 19.9),
    "command-r-plus": (64, 103.8),
    "GLM-4-9B": (40, 9.4),
    "GLM-130B": (70, 130),
    "Seed-OSS-36B": (64, 36.15),
    "SmolLM3 3B": (36, 3.08),
    "GPT-3": (96, 174.6),
    "GPT-3 (175B)": (96, 174.6),
    "GPT2-1.5B": (48, 1.56),
    "gpt2-medium": (24, 0.355),
    "Cerebras-GPT 13B": (40, 12.85),
    "Turing-NLG 17.2B": (78, 17.2),
    "Megatron-Turing NLG 530B": (105, 529.6),
    "Megatron-LM GPT 8.3B": (72, 8.3),
    "OLMo-2 32B": (64, 32.2),
    "Granite 34B Code": (88, 33.7),
    "Falcon LLM 40B": (60, 41.3),
    "XLM-R XXL": (48, 10.7),
    "ViT-L/16": (24, 0.304),
    "ViT-H/14": (32, 0.632),
    "RoBERTa-large": (24, 0.355),
    "ModernBERT-large": (28, 0.395),
    "nanoGPT (124M)": (12, 0.124),
}


@pytest.mark.parametrize("model", PUBLISHED)
def test_models_in_the_spellings_of_people(model):
    found = read(**OPEN | {"model": model})
    expected_layers, expected_b = PUBLISHED[model]
    assert layers(found.workload) == expected_layers
    assert parameters(found.workload) == pytest.approx(1e9 * expected_b, rel=0.02)


@pytest.mark.parametrize(
    ("model", "expected"),
    [("4 layers of DeepSeek-V3", 4), ("DeepSeek-V3 (5L)", 5), ("8-layer Mixtral 8x7B", 8), ("llama3-70b-16L", 16)]
    + [("Llama 3 8B, 4 layers of it", 4), ("Llama-2-70B (half: 40 layers)", 40), ("GPT-3 175B with 12 layers", 12)],
)  # fmt: skip
def test_models_of_fewer_layers(model, expected):
    assert layers(read(**OPEN | {"model": model}).workload) == expected


@pytest.mark.parametrize(
    "model", ["Phi-4-mini-flash", "Grok-1.5", "Mistral Large 3", "Qwen3-Next 80B-A3B", "DeepSeek-V4", "GLM-5.2"]
)
def test_no_model_is_taken_for_another_version(model):
    assert known_dimensions(model) == {} or "mini" in model
    hybrid = "no attention" if "Next" in model else "not known by name"
    assert model.endswith("flash") or hybrid in refused(**OPEN | {"model": model})


def test_sparse_attention_is_told_as_whole():
    told = read(**OPEN | {"model": "DeepSeek-V3.2"}).assumed
    assert any("its sparse one is not modelled" in each for each in told)
    assert not any("sparse" in each for each in read(**OPEN | {"model": "DeepSeek-V3"}).assumed)


def test_a_size_behind_a_letter_counts():
    assert parameters(read(**OPEN | {"model": "Command-R7B"}).workload) < 9e9


def _named_sizes():
    with (DATA / "dimensions.csv").open() as table:
        names = [name for row in csv.DictReader(table) for name in row["name"].split("|")]
    found = ((name, re.search(r"(?:^|-)(\d+(?:\.\d+)?)([bmt])(?:-|$)", name)) for name in names)
    others = re.compile(r"17b|persimmon|gemma-(?:1\.1-)?7b")  # whose names count otherwise
    found = ((name, size) for name, size in found if not others.search(name))
    return [(name, float(size[1]) * {"m": 1e6, "b": 1e9, "t": 1e12}[size[2]]) for name, size in found if size]


@pytest.mark.parametrize(("model", "expected"), _named_sizes())
def test_dimensions_make_as_many_parameters_as_the_name_says(model, expected):
    """Within what names are rounded by, which is much of 1B to 3B."""
    rounded = 7e8 if expected in (1e9, 2e9, 3e9) else 3e7
    assert parameters(read(**OPEN | {"model": model}).workload) == pytest.approx(expected, rel=0.11, abs=rounded)


def test_a_mixture_is_no_dense_model_of_that_name():
    assert "not known by name" in refused(**OPEN | {"model": "GPT-1.3B-MoE-128 experts"})


def test_a_size_that_is_not_the_models_makes_it_another_one():
    assert max(rough_sizes(known_dimensions("phi-4"))) == pytest.approx(14.7e9, rel=0.1)
    assert "a common shape of this size" in " ".join(read(**OPEN | {"model": "Phi-4 3.8B"}).assumed)


def test_inferred_layers_are_those_that_stages_divide():
    model = {"model": "own", "params_B": "40", "tp": "1", "dp": "8"}
    assert [layers(read(**OPEN | model | {"pp": "8", "vpp": each}).workload) % 8 for each in ("", "2")] == [0, 0]
    assert read(**OPEN | model | {"pp": "8"}).plan.pipeline == 8


def test_small_models_are_narrower_than_large_ones_of_as_many_layers():
    shapes = [
        read(**OPEN | {"model": "own", "params_B": size, "tp": "1", "dp": "64"}).workload for size in ("0.35", "30")
    ]
    assert 18 <= layers(shapes[0]) <= 26
    assert 48 <= layers(shapes[1]) <= 60


def test_numbers_of_dimensions_as_people_write_them():
    sizes = {
        "layers": "32",
        "hidden": "4k",
        "heads": "32 / 8 KV",
        "ffn_hidden": "14k",
        "gated_ffn": "1",
        "vocab": "32k",
    }
    assert parameters(read(**OPEN | sizes | {"model": "own", "gated_ffn": "1"}).workload) == pytest.approx(
        7.24e9, rel=0.01
    )
