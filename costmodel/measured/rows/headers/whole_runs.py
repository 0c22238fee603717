"""Columns of whole runs: hours of accelerators, days and tokens, of which a step has its share."""

import re
from collections.abc import Mapping

from costmodel.measured.rows.headers.quantities import unit_of_time_s
from costmodel.measured.rows.headers.spellings import CHIP

_TRAINED = r"(?:trained|seen|processed|consumed)"
_TRAINING = r"(?:pre ?)?train(?:ing)?"
RUN_NAMES: tuple[tuple[str, str], ...] = (
    ("run_tokens", rf"(?:total )?(?:tokens {_TRAINED}(?: on)?|{_TRAINED} tokens|{_TRAINING} tokens)|total tokens"),
    ("run_tokens", rf"{_TRAINING} (?:data|corpus)(?: size)?(?: in)? tokens|tokens total"),
    ("run_chip_time", rf"(?:total |training |used )*(?:{CHIP}) ?(?P<time>hours?|hrs?|h|days?)(?: total| used)?"),
    ("run_time", rf"(?:total )?{_TRAINING} (?:time|duration|(?P<time>days|hours))(?: total)?|time to train"),
    (
        "run_time",
        rf"(?:{_TRAINING} )?(?P<time>time|days|hours) (?:for|to train(?: on)?) \d+(?: \d+)? ?[bt](?: tokens)?|elapsed",
    ),
    ("run_time", r"(?P<time>days|hours)"),
    ("run_time", r"wall(?: ?clock)?(?: time)?|(?P<time>days|hours) (?:of|for) (?:training|\d+[bt](?: tokens)?)"),
    ("run_steps", rf"(?:total |{_TRAINING} |num |number of |max )*(?:steps|iterations|updates)"),
)
"""Names of columns of a whole run, as `spellings.NAMES`."""
RUN_COLUMNS = frozenset(column for column, _ in RUN_NAMES)
_AMOUNT = re.compile(r"[~\u2248]?\s*(\d+(?:,\d{3})*(?:\.\d+)?)\s*([kmbt]?)\w*\s*(?:tokens?)?\W*", re.IGNORECASE)
_TIME = re.compile(
    r"[~\u2248]?\s*(\d+(?:,\d{3})*(?:\.\d+)?)\s*([km]?)\s*(?:gpu[\s-]*)?"
    r"(days?|hours?|hrs?|h|d|min(?:utes)?|s|secs?|seconds)?"
)
_CLOCK = re.compile(r"(?:(\d+)(?:-| days?,? ))?(\d+):(\d\d):(\d\d(?:\.\d+)?)")
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_THOUSANDS = ("k", "m", "thousand", "thousands", "million", "millions")  # of hours


def run_meaning(words: str, unit: str) -> tuple[str, str] | None:
    """Which column of a run a name means, and its unit."""
    if words == "tokens" and unit in ("b", "t", "billion", "billions", "trillion", "trillions"):
        return "run_tokens", unit
    if unit == "tokens":  # `total tokens`, `days for 1T tokens`
        words, unit = f"{words} tokens", ""
    for column, names in RUN_NAMES:
        found = re.fullmatch(names, words)
        if found:
            told = found.groupdict().get("time") or ""
            told = "" if told == "time" else told
            return column, f"{unit[0]} {told}".strip() if unit in _THOUSANDS else unit or told
    return None


def tokens_in(name: str) -> dict[str, tuple[str, str]]:
    """The tokens of a run that the name of its time tells (`days for 1T tokens`)."""
    found = re.search(r"(?:for|on|train)\s+(\d+(?:\.\d+)?\s?[BT])\b", name, re.IGNORECASE)
    return {"run_tokens": (found[1], "")} if found else {}


def step_of_run_s(run: Mapping[str, tuple[str, str]], chips: float | None, batch_tokens: float | None) -> float | None:
    """Seconds of a step from what a whole run took; None where tokens, time or batch are missing."""
    steps = _amount(*run["run_steps"]) if "run_steps" in run else None
    if steps is None and "run_tokens" in run and batch_tokens:
        steps = (_amount(*run["run_tokens"]) or 0.0) / batch_tokens
    if not steps:
        return None
    if "run_time" in run and (took_s := _seconds(*run["run_time"])):
        return took_s / steps
    if "run_chip_time" in run and chips and (took_s := _seconds(*run["run_chip_time"])):
        return took_s / chips / steps
    return None


def _amount(cell: str, unit: str) -> float | None:
    found = _AMOUNT.fullmatch(cell.strip())
    if found is None:
        return None
    letter = (found[2] or ("" if unit == "tokens" else unit[:1])).lower()
    return float(found[1].replace(",", "")) * _SCALES.get(letter, 1.0)


def _seconds(cell: str, unit: str) -> float | None:
    clock = _CLOCK.fullmatch(cell.strip())
    if clock:
        days, hours, minutes, rest = (float(each or 0) for each in clock.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + rest
    found = _TIME.fullmatch(cell.strip().lower())
    if found is None:
        return None
    *scale, named = unit.lower().split() or [""]
    each = unit_of_time_s(found[3] or named)
    if each is None:
        return None  # hours or seconds: nobody says
    return float(found[1].replace(",", "")) * _SCALES[found[2] or "".join(scale)] * each
