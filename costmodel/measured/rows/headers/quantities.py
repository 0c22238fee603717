"""Units of results: times, memory, rates, as cells and names of columns print them."""

import re

COUNTED = 1e6
"""Of a column of 1e9 or 1e6 parameters, from which on a number counts each of them."""
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "\u00b5s", "microseconds"), 1e-6),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("day", "days"), 86400.0),
}
_GIGABYTES = {
    **dict.fromkeys(("gb", "gbyte", "gbytes", "g"), 1.0),
    "gib": 2.0**30 / 1e9,
    "mb": 1e-3,
    **dict.fromkeys(("mib", "m"), 2.0**20 / 1e9),
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
_AMOUNT = re.compile(
    r"[~\u2248]?\s*(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d*\.?\d+(?:e[+\-]?\d+)?)\s*([a-z%\u00b5]*)\s*"
    r"(?:(?:/|\u00b1|\+/?-)\s*[\d.,]+\s*([a-z%\u00b5]*)|(?:(?:/|\u00b1|\+/?-|\().*)?)"
)


def table_unit(text: str) -> float | None:
    """How much of its column a unit is, of times and of memory; None for what is neither."""
    name = text.strip().lower()
    return _SECONDS.get(name, _GIGABYTES.get(name))


def seconds(unit: str) -> float:
    """Seconds of a unit of time."""
    return _SECONDS.get(unit, 1.0)


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
    return None if scale is None else float(found[1].replace(",", "")) * scale
