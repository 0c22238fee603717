"""The screen of `explain --against`. Used by `report.py` alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from optimize import units
from optimize.diagnosis import Difference, comparison_of, memories, times

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from optimize.diagnosis import Explanation

NewTable = Callable[..., "Table"]
Say = Callable[["Console", str], None]
_SEEN = 5e-4  # of the total: smaller terms are left out where both are
_SAME = 1e-9


def show(first: "Explanation", second: "Explanation", console: "Console", say: Say, new_table: NewTable) -> None:
    """Print it."""
    title, *lines = header_lines(first, second)
    console.print(title, style="bold")
    for line in lines:
        say(console, line)
    for letter, each in (("A", first), ("B", second)):
        if not each.fits:
            console.print(f"{letter} does not fit in memory", style="bold red")
    say(console, sure_line(first, second))
    for table in (summary_table, time_table, memory_table):
        console.print()
        console.print(table(first, second, new_table))


def sure_line(first: "Explanation", second: "Explanation") -> str:
    """Which is faster, and how sure that is."""
    found = comparison_of(first, second)
    letter, share = ("A", found.probability_faster) if found.log_ratio >= 0 else ("B", 1.0 - found.probability_faster)
    return f"{letter} is faster with a probability of {units.percent(share)}: what both share cancels"


def header_lines(first: "Explanation", second: "Explanation") -> list[str]:
    """What is compared."""
    workload = first.inputs.workload
    lines = [f"{workload.name}: {workload.batch:,} sequences of {workload.sequence:,} tokens"]
    for letter, each in (("A", first), ("B", second)):
        inputs = each.inputs
        plan = units.shorten_runs(str(inputs.plan))
        lines.append(f"{letter}  {inputs.cluster.accelerators:,} {inputs.cluster.name}; plan {plan}")
    chosen = dict.fromkeys(each.inputs.chosen for each in (first, second) if each.inputs.chosen)
    return lines + [f"   chosen here: {words} (not for speed)" for words in chosen]


def summary_table(first: "Explanation", second: "Explanation", new_table: NewTable) -> "Table":
    """Whole figures, and B over A."""
    table = new_table("", "A", "B", "B / A")
    for name, tell, a, b in _summary(first, second):
        ratio = units.significant(b / a) if a is not None and b is not None and a > 0 and b > 0 else ""
        table.add_row(name, *("-" if value is None else tell(value) for value in (a, b)), ratio)
    return table


def _summary(first: "Explanation", second: "Explanation") -> list[tuple[str, Callable[[float], str], Any, Any]]:
    def money(each: "Explanation", kind: str) -> float | None:
        found = each.breakdown.economics
        usd = None if found is None else getattr(found.base, kind)
        return None if usd is None else 1e6 * usd / each.breakdown.tokens

    def energy(each: "Explanation") -> float | None:
        found = each.breakdown.economics
        return None if found is None else found.base.joule_per_token

    rows: list[tuple[str, Callable[[float], str], Callable[[Explanation], float | None]]] = [
        ("step", lambda x: units.scaled(x, units.SECONDS), lambda e: e.breakdown.step_s),
        ("tokens/s", units.significant, lambda e: e.breakdown.tokens_per_s),
        ("MFU", units.percent, lambda e: e.breakdown.mfu),
        ("peak memory", lambda x: units.scaled(x, units.BYTES), lambda e: e.fullest.peak_bytes),
        ("margin to the limit", _signed_gib, lambda e: e.breakdown.limit_bytes - e.fullest.peak_bytes),
        ("owned, USD a million tokens", units.significant, lambda e: money(e, "owned_usd")),
        ("rented, USD a million tokens", units.significant, lambda e: money(e, "rental_usd")),
        ("energy, J a token", units.significant, energy),
    ]
    return [(name, tell, value(first), value(second)) for name, tell, value in rows]


def _signed_gib(size_bytes: float) -> str:
    return f"{size_bytes / 2.0**30:.2f} GiB"


def time_table(first: "Explanation", second: "Explanation", new_table: NewTable) -> "Table":
    """Exposed seconds by term, the largest change first."""
    a, b = first.breakdown.step_s, second.breakdown.step_s
    factor, unit = units.unit_for(max(a, b), units.SECONDS)
    return _changes(
        f"time, {unit}", times(first, second), Difference(name="step", first=a, second=b), factor, new_table
    )


def memory_table(first: "Explanation", second: "Explanation", new_table: NewTable) -> "Table":
    """Bytes by term on the fullest stage of each, the largest change first."""
    whole = Difference(name="peak", first=first.fullest.peak_bytes, second=second.fullest.peak_bytes)
    return _changes("memory of the fullest stage, GiB", memories(first, second), whole, 2.0**30, new_table)


def _changes(title: str, found: list[Difference], whole: Difference, factor: float, new_table: NewTable) -> "Table":
    table = new_table(title, "A", "B", "B - A", "of A's total")
    largest = max(whole.first, whole.second)
    alike = all(abs(difference.change) < _SAME * largest for difference in found)
    for difference in found:
        if not alike and max(abs(difference.first), abs(difference.second)) >= _SEEN * largest:
            table.add_row(*_cells(difference, whole, factor))
    table.add_row(*_cells(whole, whole, factor), style="bold")
    return table


def _cells(difference: Difference, whole: Difference, factor: float) -> tuple[str, ...]:
    values = (units.fixed(value / factor, 3) for value in (difference.first, difference.second))
    change, share = _signed(difference.change / factor, 3), _signed(100 * difference.change / whole.first, 1)
    return (difference.name, *values, change, f"{share} %")


def _signed(value: float, decimals: int) -> str:
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}" if rounded else f"{0:.{decimals}f}"
