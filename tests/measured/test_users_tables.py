"""Whole tables as users have them, written before the reader saw them: exports of trackers, sheets in other languages,
contests, whole runs; of each two rows, with what they mean."""

from pathlib import Path

import pytest

from costmodel.inputs import layers, parameters
from costmodel.measured.rows import Case, case, read_cases, settle, timed_by_rate

FILES = Path(__file__).parent.parent / "support" / "files" / "users_tables"
TABLES = {
    "weights_and_biases": (
        dict(gpus=64, layers=32, tp=2, pp=1, batch=128, seq=8192, step_s=2.21, mem_gb=62.277, precision="bf16", mb=1),
        dict(gpus=256, layers=80, tp=8, pp=2, batch=512, step_s=19.1, mem_gb=71),
    ),
    "german": (
        dict(gpus=8, layers=32, seq=4096, batch=128, mb=1, tp=1, step_s=18.35, mem_gb=61.2),
        dict(gpus=8, mb=2, step_s=8.02),
    ),
    "french": (
        dict(gpus=16, seq=4096, batch=256, tp=1, step_s=7.9505, mem_gb=71.3, layers=32, precision="bf16"),
        dict(gpus=32, tp=2, step_s=9.12),
    ),
    "partitions_of_slurm": (
        dict(gpus=32, layers=40, seq=2048, batch=512, mb=4, zero=3, recompute="full", step_s=24.8, mem_gb=35.2),
        dict(gpus=32, recompute="none", step_s=None),
    ),
    "settings_of_nemo": (
        dict(gpus=128, layers=80, tp=4, pp=4, batch=128, seq=8192, recompute="selective", step_s=12.9),
        dict(gpus=32, tp=2, mb=2, step_s=3.6),
    ),
    "maxtext": (
        dict(gpus=64, layers=32, seq=4096, batch=256, step_s=3.034, zero=3),
        dict(gpus=64, batch=256, step_s=7.8),
    ),
    "thousands_of_tokens_a_second": (
        dict(gpus=512, seq=2048, batch=2048, step_s=8.73813, mem_gb=55.942, recompute="full", zero=3),
        dict(gpus=8, batch=128, step_s=5.82542, recompute="none"),
    ),
    "whole_runs": (
        dict(gpus=2048, layers=32, batch=1024, step_s=0.679477),
        dict(gpus=384, layers=60, batch=1152, step_s=12.2306),
    ),
    "two_figures_in_a_column": (
        dict(gpus=8, layers=32, seq=8192, batch=128, mb=1, tp=1, step_s=12.4),
        dict(gpus=16, seq=32768, cp=2, step_s=6.6),
    ),
    "trainer_of_huggingface": (
        dict(gpus=8, layers=32, seq=4096, batch=64, mb=2, recompute="full", zero=3, step_s=6.09524, mem_gb=61.234),
        dict(batch=128, mb=4, recompute="none", step_s=4.74074),
    ),
    "german_sheet_in_csv": (
        dict(gpus=256, tp=4, pp=4, batch=512, seq=8192, step_s=17.2, mem_gb=69.9006, layers=80),
        dict(gpus=64, tp=2, step_s=3.05),
    ),
    "markdown_with_counted_chips": (
        dict(gpus=64, layers=32, seq=8192, batch=512, zero=3, step_s=8.1, mem_gb=60),
        dict(gpus=8, batch=128, step_s=7),
    ),
    "chip_hours_in_thousands": (
        dict(gpus=256, layers=32, batch=2048, seq=2048, step_s=4.86015),
        dict(seq=8192, batch=512, step_s=9.44603),
    ),
    "contest_with_systems": (
        dict(gpus=64, batch=64, tp=4, step_s=1.42, precision="fp8_tensor"),
        dict(gpus=1024, layers=126, tp=8, pp=8, step_s=20.1),
    ),
    "french_sheet_of_tokens": (
        dict(gpus=16, seq=8192, batch=128, step_s=8.84874, mem_gb=67.1089, zero=3, recompute="full"),
        dict(gpus=64, tp=8, pp=4, layers=60, step_s=16.7772),
    ),
    "sizes_in_thousands": (
        dict(gpus=8, layers=48, seq=1024, batch=256, mb=8, step_s=3.1, mem_gb=28.1),
        dict(gpus=32, tp=4, batch=256, step_s=14.7),
    ),
    "chinese_sheet": (
        dict(gpus=8, seq=4096, batch=128, tp=1, step_s=18.9, mem_gb=70.1, recompute="full"),
        dict(gpus=8, layers=27, step_s=12),
    ),
    "jobs_of_slurm": (
        dict(gpus=32, step_s=8),
        dict(gpus=128, step_s=17.28, tp=8),
    ),
    "days_of_a_trillion_tokens": (
        dict(gpus=1024, layers=96, step_s=22.8304),
        dict(step_s=4.52985),
    ),
    "spanish": (
        dict(gpus=32, seq=8192, batch=128, tp=1, step_s=4.02, mem_gb=66.1, zero=3),
        dict(tp=2, recompute="none", step_s=17.95),
    ),
    "chips_of_tpu": (
        dict(gpus=128, batch=256, step_s=14.6286),
        dict(gpus=256, batch=1024, step_s=4.45823, precision="fp8_tensor"),
    ),
    "papers": (
        dict(gpus=2240, layers=105, tp=8, pp=35, step_s=51),
        dict(gpus=2048, layers=80, batch=2048, step_s=5.38947),
    ),
    "training_logs": (
        dict(gpus=64, ep=8, layers=48, step_s=5.2, mem_gb=68.1574, recompute="selective"),
        dict(step_s=6.4, recompute="full"),
    ),
    "torchtitan": (
        dict(gpus=8, batch=16, mb=1, step_s=2.15579, mem_gb=47.3),
        dict(gpus=128, tp=8, batch=16, step_s=1.23522),
    ),
    "peaks_of_gigabytes": (
        dict(gpus=8, batch=128, mb=4, step_s=15.9, mem_gb=68.3),
        dict(gpus=32, batch=256, layers=44, zero=3, step_s=9.9),
    ),
    "german_units": (
        dict(gpus=256, batch=2048, seq=2048, step_s=4.94985),
        dict(gpus=1024, batch=1024, seq=8192, step_s=1.04357),
    ),
    "days_of_chips": (
        dict(gpus=256, batch=1024, step_s=2.42064),
        dict(gpus=128, step_s=3.65219),
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_read_as_they_mean(name):
    expected = TABLES[name]
    found = read_cases(FILES / f"{name}.txt")
    assert len(found) == len(expected)
    for row, means in zip(found, expected, strict=True):
        assert isinstance(row, Case), row
        assert figures(timed_by_rate(settle([row])[0]), means) == means


def figures(row, means):
    """What was read of a row, in the words of the expectations; amounts as expected where they agree to 1 %."""
    plan, memory_gb = row.plan, row.measured_mem_bytes and row.measured_mem_bytes / 1e9
    found = {"gpus": plan.accelerators, "layers": layers(row.workload), "tp": plan.tensor, "pp": plan.pipeline}
    found |= {"cp": plan.context, "ep": plan.expert, "mb": plan.microbatch, "zero": plan.zero_stage}
    found |= {"batch": row.workload.batch, "seq": row.workload.sequence, "precision": plan.precision}
    found |= {"recompute": plan.recompute, "step_s": row.measured_step_s, "mem_gb": memory_gb}
    amounts = {name: means[name] for name in ("step_s", "mem_gb") if means.get(name)}
    near = {name: value for name, value in amounts.items() if found[name] == pytest.approx(value, rel=0.01)}
    return {name: found[name] for name in means} | near


@pytest.mark.parametrize(
    ("model", "published_b"),
    [("T5-small", 0.0605), ("t5-base", 0.2229), ("T5-large", 0.7377), ("T5-3B", 2.8516), ("T5 11B", 11.3073)]
    + [("google/flan-t5-xl", 2.8498), ("flan-t5-xxl", 11.1353)],
)
def test_models_of_two_stacks_are_known_by_name(model, published_b):
    """Published: 60, 220 and 770 million, 3 (2.85) and 11 (11.3) billion (arXiv 1910.10683, section 3.1.4)."""
    row = {"model": model, "gpus": "64", "hardware": "A100-80GB", "seq": "512", "global_batch_sequences": "2048"}
    found = case(row | {"tp": "1", "pp": "1"})
    assert isinstance(found, Case), found
    assert parameters(found.workload) == pytest.approx(1e9 * published_b, rel=0.001)


@pytest.mark.parametrize(
    "model",
    [
        "Zamba2-7B",
        "Jamba-1.5-Large",
        "Nemotron-H-47B",
        "Nemotron 3 Nano 30B",
        "Granite-4.0-H-Small",
        "Qwen3-Next-80B-A3B",
    ]
    + ["Falcon-H1-34B", "Mamba2-2.7B", "Kimi-Linear-48B-A3B", "MiniMax-M1", "MiniMax-Text-01", "RWKV-7"],
)
def test_hybrids_are_refused_in_one_line(model):
    sizes = {"layers": "48", "hidden": "4096", "heads": "32", "ffn_hidden": "16384", "seq": "4096"}
    found = case(sizes | {"model": model, "gpus": "64", "hardware": "H100", "global_batch_sequences": "256"})
    assert not isinstance(found, Case)
    assert "no attention" in found.reason or "its layers" in found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize("model", ["Nemotron-4-340B", "Granite-3-8B", "Qwen3-30B-A3B", "Falcon-40B", "MiniMax-M2"])
def test_their_relatives_are_not(model):
    sizes = {"layers": "48", "hidden": "4096", "heads": "32", "ffn_hidden": "16384", "seq": "4096", "experts": ""}
    row = sizes | {"model": model, "gpus": "64", "hardware": "H100", "global_batch_sequences": "256"}
    assert isinstance(case(row), Case)
