"""`equipoise predict`: a prediction for every row of a table, one of its rows term by term, or what its columns are."""

import dataclasses
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from costmodel.measured import COLUMN_WORDS, Case, Fitted, Unreadable, read_cases, with_deviations
from costmodel.specs import SpecError, chosen_software, load_stack, plain, read_mapping, write_file
from optimize import report
from optimize.cli.command import COMMAND_LINE, Command, Count, Switch, Text, answered, apart, needed, placed
from optimize.diagnosis import (
    ExplainedRow,
    Prediction,
    explain_row,
    explained_row_json,
    predict,
    prediction_json,
    prediction_table,
)

_OLDEST = "v100"  # on which every class of software ran

Answer = tuple[tuple[Prediction, ...], tuple[str, ...]] | ExplainedRow | None
"""Predictions of all rows, and what columns look misspelled; or one row explained; nothing where the columns were asked
for."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise predict`."""

    rows: Text = None
    """CSV file of rows; may stand first, without the flag"""
    out: Text = None
    """CSV file of predictions, one row for each, in order; or a directory for it, result.json and index.html"""
    stack: Text = None
    """TOML or JSON file as `calibrate` writes it, for all rows: its deviations, else its table `stack`"""
    software: Text = None
    """training software of rows that do not say theirs, named as for `explain`"""
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
    for read in ("rows", "stack"):
        apart(request, read, "out")
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
    rows = read_cases(str(request.rows), request.software)
    if request.explain is not None:
        return explain_row(rows, request.explain, stack, fitted)
    predictions = predict(rows, stack, fitted)
    if directory(request) is None:
        write_file(str(request.out), prediction_table(predictions))
    return predictions, _misspelled(rows)


def directory(request: Request) -> Path | None:
    """What `--out` names, where it is a directory: it is there, or its name has no ending."""
    if request.out is None or request.explain is not None or request.columns:
        return None
    path = Path(request.out)
    try:
        return path if path.is_dir() or not (path.suffix or path.exists()) else None
    except OSError as error:  # a name that is too long
        told = f"`out` is {plain(request.out)[:80]!r}; expected a name of a file that can be written ({error.strerror})"
        raise SpecError(f"{COMMAND_LINE}: {told}") from None


def _misspelled(rows: Sequence[Case | Unreadable]) -> tuple[str, ...]:
    """Columns that are not known and look or begin like one that the rows lack (`seq_len`)."""
    unknown = dict.fromkeys(name for row in rows for name in row.row if name.strip() and name not in COLUMN_WORDS)
    lacking = [name for name in COLUMN_WORDS if not any(name in row.row for row in rows)]
    near = ((name, difflib.get_close_matches(name, lacking, n=1, cutoff=0.75)) for name in unknown)
    meant = ((name, found or _begun(name, lacking)) for name, found in near)
    return tuple(f"{plain(name)} (did you mean {found[0]}?)" for name, found in meant if found)


def _begun(name: str, known: Sequence[str]) -> list[str]:
    """Known names of which one begins with the other's words."""
    return [other for other in known if f"{name}_".startswith(f"{other}_") or other.startswith(f"{name}_")]


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
    predictions, misspelled = answer
    return answered(inputs) | prediction_json(predictions) | {"columns_not_read": list(misspelled)}


def files(request: Request, answer: Answer) -> dict[str, bytes] | None:
    """The table, and what was measured beside what was predicted."""
    if answer is None or isinstance(answer, ExplainedRow):
        return None
    return {"predictions.csv": prediction_table(answer[0])} | report.draw_predictions(answer[0])


def show(request: Request, answer: Answer) -> None:
    """How many rows, and how far off; one row's screen; or the table of columns."""
    if answer is None:
        report.show_columns(COLUMN_WORDS)
    elif isinstance(answer, ExplainedRow):
        report.show_row(answer)
    else:
        report.show_predictions(str(request.out), *answer)


PREDICT = Command(
    request=Request,
    about="Time with an interval, and memory, of every row of a table of runs (--columns says what its columns are).",
    examples="""
examples:
  equipoise predict rows.csv --out predictions.csv
  equipoise predict rows.csv --out predictions.csv --software torchtitan
  equipoise predict rows.csv --out results/predict
  equipoise predict rows.csv --explain 3
  equipoise predict rows.csv --out predictions.csv --stack my_cluster.toml --json
  equipoise predict --columns""",
    first="--rows",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
    files=files,
    directory=directory,
)
