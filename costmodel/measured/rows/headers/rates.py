"""Seconds of a step from rates: tokens, samples or steps a second, of all accelerators or of each."""

import re
from collections.abc import Mapping

from costmodel.measured.rows.headers.quantities import tokens_told, unit_of_time_s

RATES = ("tokens", "logged_tokens", "tokens_per_gpu", "samples", "samples_per_gpu", "steps")
"""What a column of a rate may count."""


def step_s(given: Mapping[str, str], rate: str, cell: str, unit: str) -> str:
    """Seconds of a step from a rate, where its row says how much a step is; nothing where it does not."""
    *scale, time = unit.split() or ["s"]
    value, chips, tokens = plain_number(f"{cell}{''.join(scale)}"), chips_of(given), batch_tokens(given)
    batch, sequence = plain_number(given.get("global_batch_sequences") or ""), _sequence(given)
    sequences = batch or (tokens and sequence and tokens / sequence)
    amount = 1.0 if rate == "steps" else sequences if rate.startswith("samples") else tokens
    each = chips if _is_of_chip(given, rate) else 1.0
    if not (value and amount and each):
        return ""
    return f"{amount * (unit_of_time_s(time) or 1.0) / (value * each):.7g}"


def _sequence(given: Mapping[str, str]) -> float | None:
    """Tokens of a sequence, whose thousands are 1,024 (`columns.as_number`)."""
    cell = (given.get("seq") or "").strip().lower()
    value = plain_number(cell)
    return value and value * (1.024 if cell.endswith("k") else 1.0)


def batch_tokens(given: Mapping[str, str]) -> float | None:
    """Tokens of a step, where its sequences are printed with their length, or they are, rounded without one."""
    cell, sequence = (given.get("global_batch_sequences") or "").strip(), _sequence(given)
    told = re.fullmatch(r"(\d[\d,]*(?:\.\d+)?) ?(k|m|million)? ?tokens", cell.lower())
    if told and sequence:
        tokens = tokens_told(told[1], told[2] or "", int(sequence))
        return sequence * max(1, round(tokens / sequence))
    if told:
        return float(told[1].replace(",", "")) * {"": 1.0, "k": 1e3, "m": 1e6}[(told[2] or "")[:1]]
    batch = plain_number(cell)
    return batch and sequence and batch * sequence


_TITAN = re.compile(
    r"torch[\s\-_]?titan", re.IGNORECASE
)  # K: its `tps` and `wps` are a device's (docs/performance.md: 2,162 at 61.1 % MFU)


def chips_of(given: Mapping[str, str]) -> float | None:
    nodes, each = (given.get("gpus") or "").removesuffix(" nodes"), plain_number(given.get("gpus_per_node") or "")
    count = plain_number(nodes)
    return count if nodes == given.get("gpus") else count and each and count * each


def plain_number(cell: str) -> float | None:
    """A plain number, with its thousands; None for anything else."""
    found = re.fullmatch(r"(.*?\d\.?)\s*([km]?)", cell.strip().replace(",", "").lower())
    try:
        value = float(found[1]) * {"": 1.0, "k": 1e3, "m": 1e6}[found[2]] if found else 0.0
    except ValueError:
        return None
    return value if value > 0 else None


def tokens_of_chip(given: Mapping[str, str], rate: str, cell: str, unit: str) -> str:
    """Tokens per second and accelerator from a rate of tokens or samples; nothing where it makes none."""
    *scale, time = unit.split() or ["s"]
    value, chips = plain_number(f"{cell}{''.join(scale)}"), chips_of(given)
    each = _sequence(given) if rate.startswith("samples") else 1.0
    of_chip = _is_of_chip(given, rate)
    if rate == "steps" or not (value and each and (chips or of_chip)):
        return ""
    return f"{value * each / (unit_of_time_s(time) or 1.0) / (1.0 if of_chip else chips or 1.0):.7g}"


def _is_of_chip(given: Mapping[str, str], rate: str) -> bool:
    """Whether a rate is one accelerator's: by its name, or as torchtitan logs it."""
    titan = rate == "logged_tokens" and any(_TITAN.search(each or "") for each in given.values())
    return titan or rate.endswith("per_gpu")
