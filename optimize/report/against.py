"""The screen of `explain --against`: two answers side by side, the largest difference first."""

from collections.abc import Callable
from typing import Any

from rich.table import Table

from optimize import units
from optimize.diagnosis import Difference, Explanation, comparison_of, memories, times
from optimize.report.screen import new_console, new_table, say
from optimize.report.words import job_words, memory_words, term_words

_SEEN = 5e-4  # of the total: smaller terms are left out where both are
_SAME = 1e-9


def show_comparison(first: Explanation, second: Explanation) -> None:
    """Two answers side by side."""
    console = new_console()
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
        console.print(table(first, second))


def sure_line(first: Explanation, second: Explanation) -> str:
    """Which is faster, and how sure that is."""
    sure = comparison_of(first, second)
    letter = "A" if sure.log_ratio >= 0 else "B"
    both, apart = (
        share if letter == "A" else 1.0 - share for share in (sure.probability_faster, sure.probability_apart)
    )
    told = units.probability(min(both, apart)), units.probability(max(both, apart))
    if sure.log_ratio == 0:
        return "both take the same time"
    return (
        f"{letter} is faster with a probability of {told[0]}, if the model's error in the one says nothing of that in "
        f"the other; {told[1]}, if what both share cancels"
    )


def header_lines(first: Explanation, second: Explanation) -> list[str]:
    """What is compared."""
    workload = first.inputs.workload
    lines = [job_words(workload)]
    for letter, each in (("A", first), ("B", second)):
        inputs = each.inputs
        plan = units.shorten_runs(str(inputs.plan))
        lines.append(f"{letter}  {inputs.cluster.accelerators:,} {inputs.cluster.name}; plan {plan}")
    told = {"A": first.inputs.chosen, "B": second.inputs.chosen}
    if first.inputs.chosen == second.inputs.chosen:
        told = {"A and B": first.inputs.chosen}
    return lines + [
        f"   plan of {which} chosen here: {words} (equipoise plan searches them all)"
        for which, words in told.items()
        if words
    ]


def summary_table(first: Explanation, second: Explanation) -> Table:
    """Whole figures, and B over A."""
    table = new_table("", "A", "B", "B / A")
    for name, tell, a, b in _summary(first, second):
        ratio = units.significant(b / a) if a is not None and b is not None and a > 0 and b > 0 else ""
        table.add_row(name, *("-" if value is None else tell(value) for value in (a, b)), ratio)
    return table


def _summary(first: Explanation, second: Explanation) -> list[tuple[str, Callable[[float], str], Any, Any]]:
    def money(each: Explanation, kind: str) -> float | None:
        economics = each.breakdown.economics
        usd = None if economics is None else getattr(economics.base, kind)
        return None if usd is None else 1e6 * usd / each.breakdown.tokens

    def energy(each: Explanation) -> float | None:
        economics = each.breakdown.economics
        return None if economics is None else economics.base.joule_per_token

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
    return f"{units.significant(size_bytes / 2.0**30)} GiB"


def time_table(first: Explanation, second: Explanation) -> Table:
    """Exposed seconds by term, the largest change first."""
    a, b = first.breakdown.step_s, second.breakdown.step_s
    factor, unit = units.unit_for(max(a, b), units.SECONDS)
    named = [(term_words(name), one, other) for name, one, other in times(first, second)]
    return _changes(f"time, {unit}", named, ("step", a, b), factor)


def memory_table(first: Explanation, second: Explanation) -> Table:
    """Bytes by term on the fullest stage of each, the largest change first."""
    whole = ("peak", first.fullest.peak_bytes, second.fullest.peak_bytes)
    named = [(memory_words(name), one, other) for name, one, other in memories(first, second)]
    return _changes("memory of the fullest stage, GiB", named, whole, 2.0**30)


def _changes(title: str, differences: list[Difference], whole: Difference, factor: float) -> Table:
    table = new_table(title, "A", "B", "B - A", "of A's total")
    largest = max(whole[1:])
    decimals = units.decimals_of(largest / factor)
    alike = all(abs(second - first) < _SAME * largest for _, first, second in differences)
    for difference in differences:
        if not alike and max(map(abs, difference[1:])) >= _SEEN * largest:
            table.add_row(*_cells(difference, whole, factor, decimals))
    table.add_row(*_cells(whole, whole, factor, decimals), style="bold")
    return table


def _cells(difference: Difference, whole: Difference, factor: float, decimals: int) -> tuple[str, ...]:
    name, first, second = difference
    values, change = (units.fixed(value / factor, decimals) for value in (first, second)), second - first
    return (name, *values, _signed(change / factor, decimals), f"{_signed(100 * change / whole[1], 1)} %")


def _signed(value: float, decimals: int) -> str:
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}" if rounded else f"{0:.{decimals}f}"
