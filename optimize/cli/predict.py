"""`equipoise predict`: a prediction for every row of a table."""

import dataclasses
from typing import Any

from costmodel.measured import Fitted, with_deviations
from costmodel.specs import load_stack, plain, read_mapping
from optimize.cli.command import COMMAND_LINE, Command, Switch, Text, answered, needed, placed
from optimize.diagnosis import Prediction, predict_file, prediction_json


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise predict`."""

    rows: Text = None
    """CSV file of rows; may stand first, without the flag"""
    out: Text = None
    """CSV file of predictions, one row for each, in order"""
    stack: Text = None
    """TOML or JSON file as `calibrate` writes it, for all rows: its deviations, else its table `stack`"""
    json: Switch = False
    """print one JSON object and nothing else"""


def ask(request: Request) -> Request:
    """The files, both of which must be named."""
    needed(request, {"rows": "rows.csv", "out": "--out predictions.csv"})
    return request


def run(request: Request) -> tuple[Prediction, ...]:
    """Read, predict and write."""
    stack, fitted = None, None
    if request.stack is not None:
        fitted = placed(COMMAND_LINE, "stack", _deviations, request.stack)
        stack = None if fitted else placed(COMMAND_LINE, "stack", load_stack, request.stack)
    return predict_file(str(request.rows), str(request.out), stack, fitted)


def _deviations(path: str) -> Fitted | None:
    """The fit with what `calibrate` found, which each accelerator applies to its own constants; None in other files."""
    tables = read_mapping(path).get("deviations")
    return None if tables is None else with_deviations(tables, f"stack ({plain(path)})")


def as_json(request: Request, predictions: tuple[Prediction, ...]) -> dict[str, Any]:
    """How many rows were predicted, and why not the others."""
    inputs = {"rows": request.rows, "out": request.out, "stack": request.stack}
    return answered(inputs) | prediction_json(predictions)


def show(request: Request, predictions: tuple[Prediction, ...]) -> None:
    """One line."""
    counts = prediction_json(predictions)
    print(f"{request.out}: {counts['predicted']} of {counts['rows']} rows predicted")


PREDICT = Command(
    request=Request,
    about="Time with an interval, and memory, of every row of a table in the columns of measurements/calibration.csv.",
    examples="""
examples:
  equipoise predict rows.csv --out predictions.csv
  equipoise predict rows.csv --out predictions.csv --stack my_cluster.toml --json""",
    first="--rows",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show,
)
