"""Units of results: times, memory, rates, as cells and names of columns print them."""

import math
import re

COUNTED = 1e6
"""Of a column of 1e9 or 1e6 parameters, from which on a number counts each of them."""
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "microseconds"), 1e-6),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_GIGABYTES = {
    **dict.fromkeys(("gb", "gbyte", "gbytes", "g", "go"), 1.0),
    **dict.fromkeys(("gib", "gio"), 2.0**30 / 1e9),
    **dict.fromkeys(("mb", "mo"), 1e-3),
    **dict.fromkeys(("mib", "m", "mio"), 2.0**20 / 1e9),
    "tb": 1e3,
    "kib": 2.0**10 / 1e9,
    **dict.fromkeys(("bytes", "byte"), 1e-9),
}
_TERAFLOPS = {"tflops": 1.0, "tflop": 1.0, "gflops": 1e-3, "pflops": 1e3, "t": 1.0}
_OF_COLUMN = {
    "measured_step_s": _SECONDS,
    "measured_mem_GB": _GIGABYTES,
    "measured_tflops_per_gpu": _TERAFLOPS,
    "measured_mfu": {"%": 0.01},
}
_COUNTS = ("b", "m", "million", "millions", "billion", "billions")
_AMOUNT = re.compile(
    r"[~\u2248]?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+,\d{1,2}(?!\d)|\d*\.?\d+(?:e[+\-]?\d+)?)\s*([a-z%\u00b5]*)\s*"
    r"(?:(?:/|\u00b1|\+/?-)\s*[\d.,]+\s*([a-z%\u00b5]*)|(?:(?:/|\u00b1|\+/?-|\().*)?)"
)


def table_unit(text: str) -> float | None:
    """How much of its column a unit is, of times and of memory; None for what is neither."""
    name = text.strip().lower()
    return _SECONDS.get(name, _GIGABYTES.get(name))


def is_unit(column: str, unit: str) -> bool:
    """Whether a word in the name of a column is a unit of its cells (`HFU` is none)."""
    return unit in _OF_COLUMN.get(column, {}) or table_unit(unit) is not None or unit in _COUNTS or unit == "%"


def unit_of_time_s(unit: str) -> float | None:
    """Seconds of a unit of time; None for what is none."""
    return _SECONDS.get(unit)


def with_unit(cell: str, unit: str) -> str:
    """A cell's amount in the unit of its column, where it has none of its own."""
    found = _AMOUNT.fullmatch(cell.strip().lower())
    return f"{found[1]} {unit}" if unit and found and not (found[2] or found[3]) else cell


def measured(column: str, cell: str) -> float | None:
    """The number of a measured cell in its column's unit, with or without one of its own; None for anything else."""
    found = _AMOUNT.fullmatch(cell.strip().lower())
    if found is None:
        return None
    scale = {"": 1.0, **_OF_COLUMN.get(column, {})}.get(found[2] or found[3] or "")
    return None if scale is None else _plain(found[1]) * scale


def _plain(number: str) -> float:
    """A number with commas between thousands, or before one or two decimals."""
    is_decimal = re.fullmatch(r"\d+,\d{1,2}", number)
    return float(number.replace(",", "." if is_decimal else ""))


_LARGEST_ODD, _NARROW = 15, 0.03
"""Of powers of two: the odd factor of amounts in which people count, and by how much of a number it may be rounded."""


def tokens_told(size: str, letter: str, sequence: int) -> float:
    """Tokens of a batch as people tell them. Few thousands and millions of sequences of a power of two are powers of
    two themselves: 4M tokens are 512 sequences of 8,192. Others are decimal, rounded from the roundest number of
    sequences that they may be: 63M tokens are 15,360 sequences of 4,096."""
    value, power = float(size.replace(",", "")), {"k": 1, "m": 2}.get(letter[:1], 0)
    is_binary = sequence & (sequence - 1) == 0 and (2.0 * value).is_integer()  # 1.05M tokens are no power of two
    if power and not (is_binary and _odd_factor(int(2.0 * value)) <= _LARGEST_ODD):
        half = 0.5 * 10.0 ** -len(size.partition(".")[2])
        ends = (1000.0**power * end / sequence for end in (value - half, value + half))
        sequences = _roundest(*ends) if half <= _NARROW * value else None
        if sequences:
            return float(sequences * sequence)
    return value * (1024.0 if is_binary else 1000.0) ** power


def _odd_factor(number: int) -> int:
    return number // max(1, number & -number)


def _roundest(least: float, most: float) -> int | None:
    """The whole number between two with the largest power of two in it; None where there is none."""
    step = 2.0 ** math.ceil(math.log2(max(1.0, most)))
    while step >= 1.0:
        found = step * math.ceil(least / step)
        if 0.0 < found <= most:
            return int(found)
        step /= 2.0
    return None
