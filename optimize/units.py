"""Numbers as people read them: one unit for a column, no NaN, no negative zero."""

import math
import re
from collections.abc import Iterable

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (1.0, "B"))
DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1.0, ""))


def unit_for(largest: float, units: Iterable[tuple[float, str]]) -> tuple[float, str]:
    """The first unit in which the largest value of a column is at least one; the last where none is."""
    units = tuple(units)
    return next((unit for unit in units if abs(largest) >= unit[0]), units[-1])


def fixed(value: float, decimals: int) -> str:
    """A fixed number of decimals; what would round to zero says that it is not, unless it is rounding itself."""
    least = 10.0**-decimals
    if abs(value) >= least / 2:
        return f"{value:.{decimals}f}"
    return f"<{least:.{decimals}f}" if value > 1e-6 * least else f"{0:.{decimals}f}"


def decimals_of(largest: float, digits: int = 4) -> int:
    """Of a column: as many as give its largest value so many significant digits."""
    return max(0, digits - 1 - math.floor(math.log10(largest))) if largest > 0 else digits - 1


def between(low: float, high: float, units: Iterable[tuple[float, str]], digits: int = 3) -> str:
    """Two values in the unit of the larger one, such as `0.723 to 1.13 s`."""
    factor, name = unit_for(high, units)
    return f"{significant(low / factor, digits)} to {significant(high / factor, digits)} {name}".rstrip()


def significant(value: float, digits: int = 3) -> str:
    """So many significant digits, thousands apart, an exponent for tiny values only."""
    if value == 0 or math.isnan(value):
        return "not known" if value else "0"
    rounded = f"{value:.{digits - 1}e}"
    exponent = int(rounded.partition("e")[2])
    decimals = digits - 1 - exponent
    if decimals <= 0:
        return f"{float(rounded):,.0f}"
    return f"{value:.{decimals}f}" if exponent >= -4 else rounded


def scaled(value: float, units: Iterable[tuple[float, str]], digits: int = 3) -> str:
    """A value with the unit that suits it."""
    factor, name = unit_for(value, units)
    return f"{significant(value / factor, digits)} {name}".rstrip()


def rate(value: float, what: str) -> str:
    """Such as `989 TFLOP/s`."""
    factor, prefix = unit_for(value, DECIMAL)
    return f"{significant(value / factor)} {prefix}{what}".rstrip()


def rounded_up(value: float, digits: int = 3) -> float:
    """The next number above with so many digits: what is enough."""
    step = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return math.ceil(value / step) * step


def dollars(value: float) -> str:
    """Millions from a million on."""
    return f"{significant(value / 1e6)} M USD" if abs(value) >= 1e6 else f"{significant(value)} USD"


def percent(share: float) -> str:
    """One decimal."""
    return f"{fixed(100 * share, 1)} %"


def probability(share: float) -> str:
    """One decimal, never quite none or all: no model is that sure."""
    if share > 0.999:
        return ">99.9 %"
    return "<0.1 %" if share < 0.001 else percent(share)


def shorten_runs(text: str) -> str:
    """`1,2,2,2,1` as `1,2x3,1`."""
    return re.sub(r"\b(\d+)(?:,\1\b)+", lambda run: f"{run[1]}x{run[0].count(',') + 1}", text)


def bar(share: float, width: int, full: str, parts: str) -> str:
    """A bar of text characters, `parts` being the fractions of one from small to large."""
    eighths = round(max(0.0, min(1.0, share)) * width * (len(parts) + 1))
    whole, rest = divmod(eighths, len(parts) + 1)
    return full * whole + (parts[rest - 1] if rest else "")
