"""Predictions for a table of rows: time with an interval, memory, whether it fits, and what was assumed."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import Shown
from costmodel.inputs import Stack
from costmodel.measured import (
    OPEN_LAYOUT,
    Case,
    Fitted,
    Unreadable,
    alternatives,
    doubts,
    evaluated,
    held_in_order,
    in_any_software,
    in_other_software,
    lightened,
    logged_bytes,
    posterior,
    read_cases,
    settle,
    timed_by_rate,
)
from costmodel.specs import Check, as_table, expecting
from optimize.status import Status

ID = "id"
"""A column of the rows that the predictions keep, in front."""
HEADER = ("predicted_step_s", "predicted_step_s_p10", "predicted_step_s_p90", "predicted_mem_bytes", "fits", "note")
_OPEN_LAYOUT = 0.3  # of a row whose degrees are not printed: four calibration rows are off by .14, .19, .38 and 1.28
_LARGEST_SD = 5.0  # of a logarithm: beyond it an interval says nothing, and its ends leave the floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prediction:
    """One row of the answer; without figures where the row cannot be modelled. What was measured is told beside it."""

    note: str
    name: str | None = None  # the row's own `id`; None where the table has no such column
    step_s: float | None = None
    step_s_p10: float | None = None
    step_s_p90: float | None = None
    mem_bytes: float | None = None
    fits: bool | None = None
    measured_step_s: float | None = None
    measured_mem_bytes: float | None = None

    @property
    def log_error(self) -> float | None:
        """Logarithm of the predicted time over the measured one."""
        known = self.step_s and self.measured_step_s
        return math.log(self.step_s / self.measured_step_s) if known else None  # pyright: ignore[reportOperatorIssue]

    def cells(self) -> tuple[str, ...]:
        """The row as it stands in the file."""
        figures = (self.step_s, self.step_s_p10, self.step_s_p90, self.mem_bytes)
        said = "" if self.fits is None else str(int(self.fits))
        return (*("" if figure is None else f"{figure:.7g}" for figure in figures), said, self.note)


class Predictions(Shown, tuple[Prediction, ...]):
    """Predictions in the order of their rows."""


def prediction_table(predictions: Sequence[Prediction]) -> bytes:
    """The CSV file of predictions, with the rows' own names in front where they have any. Measured values stay out."""
    if all(prediction.name is None for prediction in predictions):
        return as_table(HEADER, (prediction.cells() for prediction in predictions))
    return as_table((ID, *HEADER), ((prediction.name or "", *prediction.cells()) for prediction in predictions))


_STACK = {field.name for field in dataclasses.fields(Stack)}
_ROWS = Check(
    "the path of a CSV file, or a list of its rows",
    lambda value: (
        isinstance(value, str | Path)
        or (isinstance(value, Sequence) and all(isinstance(row, Case | Unreadable) for row in value))
    ),
)
_OWN_STACK = Check(
    "a mapping of fields of a Stack to numbers, such as {'matmul_ceiling': 0.8}",
    lambda value: isinstance(value, Mapping) and _STACK.issuperset(value) and all(own == own for own in value.values()),
)


@expecting(rows=_ROWS, stack=_OWN_STACK)
def predict(
    rows: Sequence[Case | Unreadable] | str | Path,
    stack: Mapping[str, Any] | None = None,
    fitted: Fitted | None = None,
) -> Predictions:
    """A prediction for each row of a table, or of a CSV file. `stack` holds fields of the Stack that replace the fitted
    ones everywhere; `fitted` is the fit that predicts, by default the shipped one."""
    rows = read_cases(rows) if isinstance(rows, str | Path) else rows
    named = any(ID in row.row for row in rows)
    return Predictions(
        dataclasses.replace(prediction, name=(row.row.get(ID) or "") if named else None)
        for row, prediction in zip(rows, _predictions(rows, stack, fitted), strict=True)
    )


def _predictions(
    rows: Sequence[Case | Unreadable], stack: Mapping[str, Any] | None, fitted: Fitted | None
) -> tuple[Prediction, ...]:
    readable = [(i, row) for i, row in enumerate(rows) if isinstance(row, Case)]
    if not readable:
        return tuple(Prediction(note=row.reason) for row in rows if isinstance(row, Unreadable))
    constant = posterior.with_constants([row for _, row in readable], fitted)
    settled = [timed_by_rate(row) for row in settle([with_stack(row, stack or {}) for row in constant])]
    times_s = readings_s(settled)
    elsewhere = _in_other_software(settled, stack or {}, fitted)
    spread = np.hypot(posterior.log_sd(settled, fitted), open_log_sd(settled, times_s, elsewhere))
    peak_bytes, printed_bytes = _held(settled)
    printed_bytes = _over_software(settled, printed_bytes, stack or {}, fitted)
    answers = [Prediction(note=row.reason) if isinstance(row, Unreadable) else None for row in rows]
    for k, (i, _) in enumerate(readable):
        memory = float(peak_bytes[k]), float(printed_bytes[k])
        answers[i] = _prediction(settled[k], float(np.mean(times_s[k])), float(spread[k]), *memory)
    return tuple(answer for answer in answers if answer is not None)


def readings_s(settled: Sequence[Case]) -> list[np.ndarray]:
    """Times of the readings of each row over which its prediction is the mean: of one, unless microbatches are open."""
    readings = [alternatives(row) for row in settled]
    times_s = evaluated([reading for own in readings for reading in own]).step_s
    return np.split(times_s, np.cumsum([len(own) for own in readings])[:-1])


def _held(settled: Sequence[Case]) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the bytes that its plan needs, and those that it prints."""
    run = lightened(settled)
    held = held_in_order(run, evaluated(run))
    return held.peak_bytes, logged_bytes(run, held)


def _over_software(
    settled: Sequence[Case], printed_bytes: np.ndarray, stack: Mapping[str, Any], fitted: Fitted | None
) -> np.ndarray:
    """The bytes that rows print; of those that do not name their software the geometric mean over what it may be."""
    others = _settled([in_any_software(row) for row in settled], stack, fitted)
    logs, number = np.log(printed_bytes), np.array([1 + len(own) for own in others])
    at = [i for i, own in enumerate(others) for _ in own]
    elsewhere = np.log(_held([row for own in others for row in own])[1])
    return np.exp((logs + np.bincount(np.array(at, int), elsewhere, minlength=len(logs))) / number)


def _in_other_software(
    settled: Sequence[Case], stack: Mapping[str, Any], fitted: Fitted | None
) -> list[tuple[tuple[float, Case], ...]]:
    """Rows that do not name their software, as others would run them, unless the fit has seen rows like them."""
    seen = (fitted or posterior.shipped()).scatter
    found = [() if posterior.on(row.family) in seen else in_other_software(row) for row in settled]
    others = _settled([[row for _, row in own] for own in found], stack, fitted)
    weights = [[weight for weight, _ in own] for own in found]
    return [tuple(zip(*each, strict=True)) for each in zip(weights, others, strict=True)]


def _settled(readings: Sequence[Sequence[Case]], stack: Mapping[str, Any], fitted: Fitted | None) -> list[list[Case]]:
    """Other readings of each row with the fitted constants, settled."""
    constant = posterior.with_constants([row for own in readings for row in own], fitted)
    others = iter(settle([with_stack(row, stack) for row in constant]))
    return [[next(others) for _ in own] for own in readings]


Readings = Sequence[tuple[tuple[float, Case], ...]]
"""Of each row other readings, each with its probability."""


def open_log_sd(
    settled: Sequence[Case], times_s: Sequence[np.ndarray], elsewhere: Readings | None = None
) -> np.ndarray:
    """Standard deviation of the logarithm of each step's time that comes of what its row leaves open.

    What is open counts once: readings over which the prediction is the mean (microbatches, whose times are given) about
    it; other formats, recompute and batches (`doubts`), and other software (`elsewhere`), by their probability, about
    the row's own; layouts as a whole.
    """
    other = [doubts(row) + own for row, own in zip(settled, elsewhere or [()] * len(settled), strict=True)]
    at = [i for i, readings in enumerate(other) for _ in readings]
    assumed_s = evaluated([settled[i] for i in at]).step_s
    other_s = evaluated([reading for readings in other for _, reading in readings]).step_s
    weights = np.array([weight for readings in other for weight, _ in readings])
    with np.errstate(all="ignore"):
        squares = np.nan_to_num(weights * np.log(other_s / assumed_s) ** 2, posinf=0.0)
        between = np.nan_to_num([np.var(np.log(own_s)) for own_s in times_s], posinf=0.0)
    layouts = np.array([_OPEN_LAYOUT**2 * (OPEN_LAYOUT in row.open) for row in settled])
    return np.sqrt(between + layouts + np.bincount(np.array(at, int), squares, minlength=len(settled)))


def with_stack(row: Case, fields: Mapping[str, Any]) -> Case:
    """The row under a stack of which these fields were given."""
    if not fields:
        return row
    stack = dataclasses.replace(row.cluster.stack, **fields)
    return dataclasses.replace(row, cluster=dataclasses.replace(row.cluster, stack=stack))


def _prediction(row: Case, step_s: float, log_sd: float, peak_bytes: float, tensor_bytes: float) -> Prediction:
    """Median and interval of a log-normal distribution; memory as training logs print it, of the framework's tensors;
    fits where all of the peak is below what the driver reports."""
    if not (math.isfinite(step_s) and step_s > 0 and math.isfinite(peak_bytes)):
        return Prediction(note="the sizes of this row are beyond what numbers can hold")
    spread = math.exp(posterior.P90 * min(log_sd, _LARGEST_SD))
    return Prediction(
        step_s=step_s,
        step_s_p10=step_s / spread,
        step_s_p90=step_s * spread,
        mem_bytes=tensor_bytes,
        fits=peak_bytes <= row.cluster.accelerator.hbm_bytes,
        note="; ".join((f"{row.stack} on {row.cluster.name}", *row.assumed)),
        measured_step_s=row.measured_step_s,
        measured_mem_bytes=row.measured_mem_bytes,
    )


def prediction_json(predictions: Sequence[Prediction]) -> dict[str, Any]:
    """What a program may want to know before it opens the file. Where no row could be predicted, that is no answer."""
    unreadable = [(i + 1, p.note) for i, p in enumerate(predictions) if p.step_s is None]
    status = Status.infeasible if len(unreadable) == len(predictions) else Status.ok
    return {
        "status": status.name,
        "message": status.value if status is Status.ok else "no row could be predicted",
        "rows": len(predictions),
        "predicted": len(predictions) - len(unreadable),
        "unreadable": [{"row": row, "note": note} for row, note in unreadable],
        "measured": errors_of(predictions),
    }


def worst_first(predictions: Sequence[Prediction]) -> list[tuple[int, Prediction]]:
    """Rows of which both times are known, by their number, the worst first."""
    told = [(i + 1, each) for i, each in enumerate(predictions) if each.log_error is not None]
    return sorted(told, key=lambda each: -abs(each[1].log_error or 0.0))


def errors_of(predictions: Sequence[Prediction]) -> dict[str, Any] | None:
    """How far predicted times are from measured ones, as |predicted / measured - 1|; None where none was measured."""
    told = [(i + 1, p) for i, p in enumerate(predictions) if p.log_error is not None]
    if not told:
        return None
    errors = np.abs(np.expm1([p.log_error or 0.0 for _, p in told]))
    inside = [abs(p.log_error or 0.0) <= math.log((p.step_s_p90 or 0.0) / (p.step_s or 0.0)) for _, p in told]
    number, worst = worst_first(predictions)[0]
    return {
        "rows": len(told),
        "median_error": float(np.median(errors)),
        "p90_error": float(np.quantile(errors, 0.9)),
        "inside_interval": float(np.mean(inside)),
        "worst": {"row": number, "error": float(np.expm1(worst.log_error or 0.0))},
    }
