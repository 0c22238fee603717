"""`equipoise predict`: a prediction for every row of a table, one of its rows term by term, or what its columns are."""

import dataclasses
from typing import Any

from costmodel.measured import COLUMN_WORDS, Fitted, read_cases, with_deviations
from costmodel.specs import chosen_software, load_stack, plain, read_mapping
from optimize import report
from optimize.cli.command import COMMAND_LINE, Command, Count, Switch, Text, answered, needed, placed
from optimize.diagnosis import (
    ExplainedRow,
    Prediction,
    explain_row,
    explained_row_json,
    predict_file,
    prediction_json,
)

_OLDEST = "v100"  # on which every class of software ran

Answer = tuple[Prediction, ...] | ExplainedRow | None
"""Predictions of all rows, or one row explained; nothing where the columns were asked for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise predict`."""

    rows: Text = None
    """CSV file of rows; may stand first, without the flag"""
    out: Text = None
    """CSV file of predictions, one row for each, in order"""
    stack: Text = None
    """TOML or JSON file as `calibrate` writes it, for all rows: its deviations, else its table `stack`"""
    software: Text = None
    """training software of rows that do not say theirs: megatron-core, megatron-2022, fsdp, deepspeed, nanotron, xla,
    or a framework's name"""
    explain: Count = None
    """number of a row (1: the first after the header), which is shown term by term instead"""
    columns: Switch = False
    """say what the columns of rows are, and nothing else"""
    json: Switch = False
    """print one JSON object and nothing else"""


def ask(request: Request) -> Request:
    """The files that the question needs, and the class of the software."""
    if request.columns:
        return request
    needed(request, {"rows": "rows.csv"} | ({} if request.explain else {"out": "--out predictions.csv"}))
    if request.software is None:
        return request
    software, _ = chosen_software(_OLDEST, request.software, COMMAND_LINE)
    return dataclasses.replace(request, software=software)


def run(request: Request) -> Answer:
    """Read, and predict and write, or explain one row."""
    if request.columns:
        return None
    stack, fitted = None, None
    if request.stack is not None:
        fitted = placed(COMMAND_LINE, "stack", _deviations, request.stack)
        stack = None if fitted else placed(COMMAND_LINE, "stack", load_stack, request.stack)
    if request.explain is None:
        return predict_file(str(request.rows), str(request.out), stack, fitted, request.software)
    return explain_row(read_cases(str(request.rows), request.software), request.explain, stack, fitted)


def _deviations(path: str) -> Fitted | None:
    """The fit with what `calibrate` found, which each accelerator applies to its own constants; None in other files."""
    tables = read_mapping(path).get("deviations")
    return None if tables is None else with_deviations(tables, f"stack ({plain(path)})")


def as_json(request: Request, answer: Answer) -> dict[str, Any]:
    """How many rows were predicted, and why not the others; or one row's terms; or the columns."""
    inputs = {name: getattr(request, name) for name in ("rows", "out", "stack", "software", "explain")}
    if answer is None:
        return answered(inputs) | {"columns": dict(COLUMN_WORDS)}
    if isinstance(answer, ExplainedRow):
        told = explained_row_json(answer)
        return told | {"inputs": inputs | told["inputs"]}
    return answered(inputs) | prediction_json(answer)


def show(request: Request, answer: Answer) -> None:
    """One line, one row's screen, or the table of columns."""
    if answer is None:
        report.show_columns(COLUMN_WORDS)
    elif isinstance(answer, ExplainedRow):
        report.show_row(answer)
    else:
        counts = prediction_json(answer)
        print(f"{request.out}: {counts['predicted']} of {counts['rows']} rows predicted")


PREDICT = Command(
    request=Request,
    about="Time with an interval, and memory, of every row of a table of runs (--columns says what its columns are).",
    examples="""
examples:
  equipoise predict rows.csv --out predictions.csv
  equipoise predict rows.csv --out predictions.csv --software torchtitan
  equipoise predict rows.csv --explain 3
  equipoise predict rows.csv --out predictions.csv --stack my_cluster.toml --json
  equipoise predict --columns""",
    first="--rows",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
)
