"""Seconds of a step of which only a rate is printed: tokens, FLOP or a share of the peak, by how FLOP are counted.

Conventions differ by up to 35 % (measurements/README.md, section 1), so what rows of calibration and validation are
scored by is their time alone (`Case.measured_step_s`); this is for tables that print nothing else.
"""

import dataclasses
import functools
import re

from costmodel.inputs import Kind, Op, Workload, active_parameters, model_flop
from costmodel.measured.rows.columns import cells, lenient
from costmodel.measured.rows.job_sizes import OPEN_BATCH
from costmodel.measured.rows.layouts import OPEN_RECOMPUTE
from costmodel.measured.rows.records import Case
from costmodel.models import map_operators

_HARDWARE = re.compile(
    r"\bhfu\b|\bhardware (?:flops?|utili)|(?:with|incl\w*|count\w*|and)\W+(?:\w+\W+)?(?:re-?comput|checkpoint|remat)"
    r"|re-?comput\w*\W+(?:is |are )?(?:counted|included)|\b8 ?\*? ?n\b|\bfactor (?:of )?4\b|\b96\s?\*?\s?b",
    re.IGNORECASE,
)
_INCLUDED = re.compile(_HARDWARE.pattern.replace(r"\bhfu\b|", ""), re.IGNORECASE)  # `HFU 60 %` is another figure
_OF_MODEL = re.compile(r"\bmfu\b|\bmodel (?:flops?|utili)", re.IGNORECASE)
# K: Megatron-Bridge counts half of the scores (`flop_utils.py`); its rows with their step agree (README, section 1)
_CAUSAL = re.compile(  # neither a causal or masked language model, nor half of the layers or half precision
    r"\b(?:causal|masked)(?!\W+(?:lms?|language|models?|decoders?|tokens?)\b)|\btriang|\bmegatron[ -]bridge"
    r"|\bhal(?:f|ved)\b[^;,.|]{0,30}\b(?:att(?:entio)?n|scores?|flops?)\b"
    r"|\b(?:att(?:entio)?n|scores?|flops?)\b[^;,.|]{0,30}\bhal(?:f|ved)\b",
    re.IGNORECASE,
)
_NO_ATTENTION = re.compile(
    r"\b(?:no|without|exclud\w+|ignor\w+|neglect\w+) (?:the )?att(?:entio)?n\b"
    r"(?! (?:dropout|bias|recomp\w*|checkpoint\w*|kernels?|sinks?|masks?)\b)",
    re.IGNORECASE,
)
_SIX_N = re.compile(r"\b6 ?[*x\u00b7]? ?(?:n|p|params?)(?: ?[*x\u00b7]? ?(?:d|t))?\b", re.IGNORECASE)
_ATTENTION = re.compile(  # of FLOP; a kernel's name alone counts none
    r"(?:\+|\b(?:plus|and|with|incl\w*|count\w*)) (?:the |its )?(?:self[ -])?att(?:entio)?n"
    r"|\b12 ?[*x\u00b7]? ?l|\bpalm\b",
    re.IGNORECASE,
)
_TOKENS_OF_CHIP = re.compile(
    r"(?<![\d.,])(\d+(?:,\d{3})*(?:\.\d+)?)\s*(k?)\s*tok(?:en)?s?\s*(?:/|per)\s*s(?:ec(?:ond)?)?\s*(?:/|per)\s*"
    r"(?:gpu|chip|device|accelerator)\b",
    re.IGNORECASE,
)
_OF_WIDE = re.compile(r"\b(?:bf16|fp16|16-?bit) peak", re.IGNORECASE)


def timed_by_rate(case: Case) -> Case:
    """The case with the step that its printed rate makes of its model, where it has no time of its own; as it is where
    nothing says how many sequences a step has."""
    if case.measured_step_s or OPEN_BATCH in case.open:
        return case
    sequences_of_chip = float(case.workload.batch) / float(case.plan.accelerators)
    tokens_per_s = lenient(case.row, "measured_tokens_per_s_per_gpu") or _told_tokens_per_s(case)
    if tokens_per_s:
        step_s = sequences_of_chip * float(case.workload.sequence) / tokens_per_s
        return dataclasses.replace(case, measured_step_s=step_s)
    rate, told = _rate(case)
    if not rate:
        return case
    flop, counted = _flop(case)
    step_s = sequences_of_chip * flop / rate
    note = f"measured step {step_s:.4g} s by {told}, {counted}"
    return dataclasses.replace(case, measured_step_s=step_s, assumed=(*case.assumed, note))


def _told_tokens_per_s(case: Case) -> float | None:
    """Tokens a second of one accelerator, in words: `380 tokens/s/GPU`."""
    found = _TOKENS_OF_CHIP.search(cells(case.row, "notes"))
    return float(found[1].replace(",", "")) * (1e3 if found[2] else 1.0) if found else None


def _rate(case: Case) -> tuple[float, str]:
    """FLOP per second of one accelerator as printed, and in which way. Shares are of the peak of the products' format
    (K: llm-foundry's table of peaks; C: torchtitan's rows in float8), unless the row says of which."""
    per_s, share = lenient(case.row, "measured_tflops_per_gpu"), lenient(case.row, "measured_mfu")
    if per_s:
        return 1e12 * per_s, f"{per_s:g} TFLOP/s"
    if not share or share > 100.0:
        return 0.0, ""
    share = share / 100.0 if share > 1.0 else share
    bits = 16 if _OF_WIDE.search(_words(case)) else case.product_bits
    return share * case.peak_flop_per_s(bits), f"{100.0 * share:.3g} % of the {bits}-bit peak"


def _flop(case: Case) -> tuple[float, str]:
    """FLOP of one sequence as the row counts them, and in words how."""
    words, work = _words(case), case.workload
    if _NO_ATTENTION.search(words) or (_SIX_N.search(words) and not _ATTENTION.search(words)):
        return 6.0 * float(active_parameters(work)) * float(work.sequence), "six FLOP a parameter and token"
    if _CAUSAL.search(words):
        return float(model_flop(work)), "attention under its mask"
    whole = float(model_flop(with_density(work, 1.0)))
    if not _counts_recompute(case, words):
        return whole, "attention without its mask"
    core = whole - float(model_flop(with_density(work, 0.0)))
    again = {"full": case.plan.recompute_share * whole, "selective": core}.get(case.plan.recompute, 0.0)
    again = whole if OPEN_RECOMPUTE in case.open and case.stack == "megatron-2022" else again  # its equation 3
    return whole + again / 3.0, "attention without its mask, recomputation counted"


def _counts_recompute(case: Case, words: str) -> bool:
    """Whether FLOP are those of the hardware: as Megatron-LM printed its rates until 2022 (arXiv 2104.04473, eq. 3)."""
    convention = case.row.get("flops_convention") or ""
    if _OF_MODEL.search(convention):
        return _HARDWARE.search(_OF_MODEL.sub("", convention)) is not None
    if _HARDWARE.search(convention) or _INCLUDED.search(words):
        return True
    is_rate = lenient(case.row, "measured_tflops_per_gpu") is not None
    return is_rate and case.stack == "megatron-2022" and not _OF_MODEL.search(words)


def _words(case: Case) -> str:
    return cells(case.row, "source", "flops_convention", "notes")


@functools.lru_cache(maxsize=1024)
def with_density(work: Workload, density: float) -> Workload:
    """The model whose attention computes that share of its scores."""

    def changed(op: Op) -> tuple[Op]:
        return (dataclasses.replace(op, density=density) if op.kind == Kind.ATTENTION else op,)

    return dataclasses.replace(work, blocks=map_operators(work.blocks, changed))
