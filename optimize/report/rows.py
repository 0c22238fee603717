"""The screens of `equipoise predict`: one row term by term, and the columns that rows have."""

from collections.abc import Mapping

from costmodel.specs import plain
from optimize import units
from optimize.diagnosis import ExplainedRow
from optimize.report.explain import show_explanation
from optimize.report.screen import new_console, new_table, say


def show_row(explained: ExplainedRow) -> None:
    """What was read and what was assumed, and then the screen of `explain`."""
    console, row, predicted = new_console(), explained.row, explained.prediction
    say(console, f"row {explained.number}: {plain(row.source or 'no source')}", "bold")
    say(console, f"read: {', '.join(f'{name} {plain(cell)}' for name, cell in explained.cells.items())}")
    if row.facts:
        say(console, f"in its words: {', '.join(_in_words(name, value) for name, value in row.facts.items())}")
    say(console, f"assumed: {'; '.join(row.assumed) or 'nothing'}")
    if predicted.step_s is not None:
        low, middle, high = (units.scaled(s or 0.0, units.SECONDS, 4) for s in _ends(explained))
        mean = f", the mean over {explained.readings} microbatches" if explained.readings > 1 else ""
        say(console, f"predicted: {middle}{mean}; of ten runs eight from {low} to {high}")
    console.print()
    show_explanation(explained.explanation, interval=False)


def _in_words(name: str, value: float) -> str:
    """`no overlap data`, `compiled`, `accumulation 4`."""
    words = name.replace("_", " ")
    return f"no {words}" if value == 0 else words if value == 1 else f"{words} {value:g}"


def _ends(explained: ExplainedRow) -> tuple[float | None, ...]:
    predicted = explained.prediction
    return predicted.step_s_p10, predicted.step_s, predicted.step_s_p90


def show_columns(columns: Mapping[str, str]) -> None:
    """A table of the columns and what stands in them."""
    table = new_table("column", "what stands in it", left=2)
    table.columns[1].no_wrap = False
    for name, meaning in columns.items():
        table.add_row(name, meaning)
    new_console().print(table)
