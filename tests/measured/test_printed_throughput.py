"""FLOP/s that rows print, against the FLOP of what was read of them.

A source that prints its rate beside its step has counted the FLOP of its own model and batch, whatever any cost model
says: where both agree, dimensions, vocabulary, batch, accelerators and step are read as the authors had them.
"""

import csv
import dataclasses
import functools

import numpy as np
import pytest

from costmodel.inputs import Kind, model_flop
from costmodel.measured.rows import Case, case, lenient, timed_by_rate
from costmodel.models import map_operators
from tests.support.row_by_hand import BULK, needs_bulk, read

WHOLE, CAUSAL = False, True
REDONE = 4 / 3  # three passes' FLOP, and the forward again: of hardware, where all is recomputed
COUNTED = {
    "Korthikanti2022": (WHOLE, 1.0),  # arXiv 2205.05198, appendix A: no mask
    "Megatron-LM README": (WHOLE, REDONE),  # arXiv 2104.04473, equation 3
    "Narayanan2021": (WHOLE, REDONE),
    "BigScience BLOOM": (WHOLE, REDONE),
    "MosaicML": (WHOLE, 1.0),  # llm-foundry's README: 6 N and 12 l h s
    "NVIDIA NeMo": (WHOLE, 1.0),
    "Megatron-Bridge": (CAUSAL, 1.0),
    "ml-engineering": (CAUSAL, 1.0),
}
"""How each source counts: attention whole or under its mask, and times how much."""
OTHERWISE = ("SFT packed", "GPT-OSS", "BLOOM-like 20B")
"""Packed examples attend to themselves alone: 6 N and 2 to 4 % of the attention are printed. GPT-OSS is printed with
two matrices an expert, not three, and without its windows: 4.53 GFLOP a token over six, 4.56 counted so, 5.45 as
it is. The old estimate of BLOOM's rows leaves out the vocabulary, a sixth of eight layers."""


@functools.cache
def ratios(source: str) -> tuple[float, ...]:
    """FLOP of a sequence as printed over those as read and counted, row by row."""
    assert BULK is not None
    with open(BULK / "calibration.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if source in row["source"] and row["measured_step_s"]]
    masked, times = COUNTED[source]
    read = [case(row) for row in rows if not any(name in row["model"] for name in OTHERWISE)]
    return tuple(printed_flop(one) / (times * counted_flop(one, masked)) for one in read if isinstance(one, Case))


def printed_flop(one: Case) -> float:
    """Of one sequence, by the printed rate, or its share of the 16-bit peak."""
    share, step_s = lenient(one.row, "measured_mfu"), one.measured_step_s
    rate = 1e12 * (lenient(one.row, "measured_tflops_per_gpu") or 0.0)
    rate = rate or (share or np.nan) * float(one.cluster.accelerator.peak_16bit_flop_per_s)
    assert step_s is not None
    return rate * step_s * float(one.plan.accelerators) / float(one.workload.batch)


def counted_flop(one: Case, masked: bool) -> float:
    """Of one sequence of the workload, with its masks or as if there were none."""
    work = one.workload
    if not masked:
        blocks = map_operators(
            work.blocks, lambda op: (dataclasses.replace(op, density=1.0) if op.kind == Kind.ATTENTION else op,)
        )
        work = dataclasses.replace(work, blocks=blocks)
    return float(model_flop(work))


@needs_bulk
@pytest.mark.parametrize("source", COUNTED)
def test_what_is_read_makes_the_rate_that_is_printed(source):
    """Within 2 % in the median and 5 % in nine rows of ten."""
    off = np.abs(np.log(ratios(source)))
    assert len(off) >= 8
    assert np.median(off) < 0.02
    assert np.quantile(off, 0.9) < 0.05


@needs_bulk
def test_models_without_printed_sizes_are_those_of_the_authors():
    """Nemotron 8B and 22B have no dimension in their rows: those by name make the printed rates to 1 %."""
    assert np.quantile(np.abs(np.log(ratios("NVIDIA NeMo"))), 0.9) < 0.01


RATES = ("measured_tflops_per_gpu", "measured_mfu")
TIMES = ("measured_step_s", "measured_tokens_per_s_per_gpu")


@functools.cache
def steps_by_rate(source: str, column: str) -> tuple[float, ...]:
    """Steps from one printed rate over those that are printed, row by row."""
    assert BULK is not None
    with open(BULK / "calibration.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if source in row["source"] and row[column]]
    rows = [row for row in rows if not any(name in row["model"] for name in OTHERWISE)]
    pairs = [(case(row), case({**row, **dict.fromkeys((*TIMES, *RATES), ""), column: row[column]})) for row in rows]
    timed = [
        (whole, timed_by_rate(alone)) for whole, alone in pairs if isinstance(whole, Case) and isinstance(alone, Case)
    ]
    return tuple(
        (alone.measured_step_s or np.nan) / whole.measured_step_s for whole, alone in timed if whole.measured_step_s
    )


@needs_bulk
@pytest.mark.parametrize(
    ("source", "column"),
    [(source, "measured_tflops_per_gpu") for source in COUNTED if source != "Korthikanti2022"]
    + [("Korthikanti2022", "measured_mfu"), ("MosaicML", "measured_mfu"), ("torchtitan", "measured_mfu")],
)
def test_rates_alone_make_the_printed_steps(source, column):
    """By the convention that the row, its column or its software has: 1.2 % in the median, 6 % in nine rows of ten."""
    off = np.abs(np.log(steps_by_rate(source, column)))
    assert len(off) >= 8
    assert np.median(off) < 0.012
    assert np.quantile(off, 0.9) < 0.06


LLAMA = {"model": "Llama-3-8B", "seq": "8192", "gpus": "64", "tp": "1", "pp": "1", "global_batch_sequences": "256"}
LLAMA |= {"source": "Megatron-Core", "hardware": "H100-80GB-SXM", "precision": "bf16", "recompute": "none"}
LLAMA |= dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "params_B", "notes"), "")
LLAMA |= {"gated_ffn": "", "tied": ""}


@pytest.mark.parametrize(
    ("cells", "flop_of_a_token"),
    [
        ({"flops_convention": "6ND"}, 6 * 8.03e9),
        ({"flops_convention": "6*N*D, no attention"}, 6 * 8.03e9),
        ({"flops_convention": "6ND", "notes": "FlashAttention-2; attention dropout"}, 6 * 8.03e9),
        ({"notes": "MFU excludes attention"}, 6 * 8.03e9),
        ({"notes": "no attention dropout; half precision"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
        ({"notes": "causal LM; half of the layers have bias"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
        ({"notes": "attention FLOPs are halved"}, 6 * 7.504e9 + 6 * 32 * 4096 * 8192),
        ({"flops_convention": "6N + attention"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
        ({"notes": "MFU counts causal attention"}, 6 * 7.504e9 + 6 * 32 * 4096 * 8192),
        ({"flops_convention": "PaLM"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
        ({"flops_convention": "HFU", "recompute": "full"}, 8 * 7.504e9 + 16 * 32 * 4096 * 8192),
        ({"flops_convention": "model FLOPs", "recompute": "full"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
        ({"notes": "HFU 52 % beside it", "recompute": "full"}, 6 * 7.504e9 + 12 * 32 * 4096 * 8192),
    ],
)
@pytest.mark.parametrize("share", ["0.4", "40", "40 %"])
def test_a_share_of_the_peak_is_a_time_by_its_convention(cells, flop_of_a_token, share):
    found = timed_by_rate(read(**(LLAMA | {"measured_step_s": "", "measured_mfu": share} | cells)))
    expected_s = flop_of_a_token * 256 * 8192 / (0.4 * 989.5e12 * 64)
    assert found.measured_step_s == pytest.approx(expected_s, rel=0.005)
    assert "measured step" in found.assumed[-1]


def test_shares_of_8_bit_products_are_of_their_peak():
    given = LLAMA | {"measured_step_s": "", "measured_mfu": "0.3"}
    wide, narrow = (timed_by_rate(read(**(given | {"precision": name}))) for name in ("bf16", "fp8"))
    said = timed_by_rate(read(**(given | {"precision": "fp8", "notes": "of the bf16 peak"})))
    assert narrow.measured_step_s == pytest.approx(0.5 * (wide.measured_step_s or 0.0), rel=0.001)
    assert said.measured_step_s == wide.measured_step_s


def test_a_time_of_its_own_and_an_open_batch_need_no_rate():
    given = LLAMA | {"measured_mfu": "0.3"}
    assert timed_by_rate(read(**(given | {"measured_step_s": "3.5"}))).measured_step_s == 3.5
    open_batch = given | {"measured_step_s": "", "measured_tokens_per_s_per_gpu": "", "global_batch_sequences": ""}
    assert timed_by_rate(read(**(open_batch | {"micro_batch": "", "notes": ""}))).measured_step_s is None
