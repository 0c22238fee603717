"""The screens of `equipoise predict`: how many rows and how far off, one row term by term, the columns."""

import sys
from collections.abc import Mapping, Sequence

from costmodel.specs import plain
from optimize import units
from optimize.diagnosis import ExplainedRow, Prediction, errors_of, worst_first
from optimize.report.explain import show_explanation
from optimize.report.screen import new_console, new_table, say

_MOST = 40  # rows of the table


def show_predictions(out: str, predictions: Sequence[Prediction], misspelled: Sequence[str]) -> None:
    """How many rows were predicted, how far off they are, and a table of the measured ones, the worst first."""
    known = [prediction for prediction in predictions if prediction.step_s is not None]
    if not known:
        why = f"; the first: {predictions[0].note}" if predictions else ": the table has none"
        print(f"equipoise: rows: no row could be predicted{why}", file=sys.stderr)
        return
    console = new_console()
    say(console, f"{out}: {len(known)} of {len(predictions)} rows predicted")
    for name in misspelled:
        say(console, f"not read: the column {name}")
    errors = errors_of(predictions)
    if errors is None:
        return
    worst = errors["worst"]
    say(
        console,
        f"beside {errors['rows']} measured: median error {units.percent(errors['median_error'])}, nine of ten within "
        f"{units.percent(errors['p90_error'])}, worst row {worst['row']} ({100 * worst['error']:+.1f} %); "
        f"{units.percent(errors['inside_interval'])} inside p10 to p90",
    )
    table = new_table("row", "measured s", "predicted s", "p10 to p90", "error")
    for number, each in worst_first(predictions)[:_MOST]:
        ends = " to ".join(units.significant(end or 0.0, 4) for end in (each.step_s_p10, each.step_s_p90))
        values = [units.significant(value or 0.0, 4) for value in (each.measured_step_s, each.step_s)]
        error = (each.step_s or 0.0) / (each.measured_step_s or 1.0) - 1
        table.add_row(f"{number} {each.name or ''}".strip(), *values, ends, f"{100 * error:+.1f} %")
    console.print(table)


def show_row(explained: ExplainedRow) -> None:
    """What was read and what was assumed, and then the screen of `explain`."""
    console, row, predicted = new_console(), explained.row, explained.prediction
    say(console, f"row {explained.number}: {plain(row.source or 'no source')}", "bold")
    say(console, f"read: {', '.join(f'{name} {plain(cell)}' for name, cell in explained.cells.items())}")
    if row.facts:
        say(console, f"in its words: {', '.join(_in_words(name, value) for name, value in row.facts.items())}")
    say(console, f"assumed: {'; '.join(row.assumed) or 'nothing'}")
    if predicted.step_s is not None:
        middle = units.scaled(predicted.step_s, units.SECONDS, 4)
        ends = units.between(predicted.step_s_p10 or 0.0, predicted.step_s_p90 or 0.0, units.SECONDS, 4)
        mean = f", the mean over {explained.readings} microbatches" if explained.readings > 1 else ""
        say(console, f"predicted: {middle}{mean}; of ten runs eight from {ends}")
    console.print()
    show_explanation(explained.explanation, interval=False)


def _in_words(name: str, value: float) -> str:
    """`no overlap data`, `compiled`, `accumulation 4`."""
    words = name.replace("_", " ")
    return f"no {words}" if value == 0 else words if value == 1 else f"{words} {value:g}"


def show_columns(columns: Mapping[str, str]) -> None:
    """A table of the columns and what stands in them."""
    table = new_table("column", "what stands in it", left=2)
    table.columns[1].no_wrap = False
    for name, meaning in columns.items():
        table.add_row(name, meaning)
    new_console().print(table)
