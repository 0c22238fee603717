"""How far are the predictions from published measurements, by source, and which terms of the model buy it?

Reads calibration.csv (fitted; also judged by constants that saw no row of the source) and validation.csv (never
fitted) where they are, and always the published figures that ship with the package. Beside every figure stands the
simplest model: one fraction of the peak for all rows, which `shared/tools/baseline.py` found on calibration rows.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import specs
from costmodel.inputs import model_flop
from costmodel.measured import Case, Fitted, Unreadable, posterior, read_cases, settle
from experiments.accuracy import few_rows, figures, reasons, terms
from experiments.accuracy import tables as shown
from experiments.accuracy.left_out import fits_without
from experiments.accuracy.scoring import APART, SMALL, Scored, score
from optimize.diagnosis import Prediction, predict

FRACTION_OF_PEAK = 0.34
"""The baseline's fraction of the peak, chosen on calibration rows by `shared/tools/baseline.py --fit`."""
_WIDTHS = {"fp32": "32bit", "fp16": "16bit", "bf16": "16bit", "nvfp4": "4bit"}


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    measurements: str = "../shared/measurements",
    leave_out: bool = True,
    after_rows: bool = True,
    ablation: bool = True,
) -> dict[str, Any]:
    """Predict every table, score, leave sources out, drop terms, name the worst rows, draw.

    Args:
        measurements: Folder of calibration.csv and validation.csv; what is not there is left out.
        leave_out: Also fit without each calibration source in turn and predict it so (five minutes or so).
        after_rows: Also predict each source after three of its rows, by six draws.
        ablation: Also drop each term of the model.
    """
    files = {"published": specs.DATA / "published.csv"}
    files |= {name: Path(measurements) / f"{name}.csv" for name in ("calibration", "validation")}
    scored: dict[str, list[Scored]] = {}
    results: dict[str, Any] = {}
    cases: dict[str, list[Case]] = {}
    for name, path in files.items():
        if not path.is_file():
            continue
        say(f"{name}: predicting")
        read = read_cases(path)
        scored[name], cases[name] = _scored(read, {}), _settled(read)
        results[name] = score(scored[name]) | {"baseline": score(_plain(read))}
        results[name]["worst"] = _worst(cases[name], scored[name])
        _write(scored[name], folder / f"predictions_{name}.csv")
        fits: dict[str, Fitted] = {}
        if leave_out and name == "calibration":
            say("leaving out each source in turn")
            fits = fits_without([case for case in read if isinstance(case, Case) and case.measured_step_s], path.parent)
            outside = _scored(read, fits)
            results[name]["left_out"] = score(outside)
            _write(outside, folder / f"predictions_{name}_left_out.csv")
        if after_rows and name != "published":
            say(f"{name}: after three rows")
            results[name]["after_rows"] = few_rows.after_rows(cases[name], fits, APART)
    if ablation:
        say("dropping terms")
        _ablate(cases, scored, results)
    figures.draw(scored, results, folder)
    return results


def _scored(read: Sequence[Case | Unreadable], fits: Mapping[str, Fitted]) -> list[Scored]:
    """Predictions of all rows, each by the fit that its source has, by default the shipped one."""
    predictions: list[Prediction | None] = [None] * len(read)
    by_fit: dict[str, list[int]] = {}
    for i, entry in enumerate(read):
        source = _source(entry)["source"]
        by_fit.setdefault(source if source in fits else "", []).append(i)
    for source, at in by_fit.items():
        for i, predicted in zip(at, predict([read[i] for i in at], fitted=fits.get(source)), strict=True):
            predictions[i] = predicted
    return [_row(entry, one) for entry, one in zip(read, predictions, strict=True) if one is not None]


def _row(entry: Case | Unreadable, predicted: Prediction) -> Scored:
    if isinstance(entry, Unreadable):
        return Scored(_source(entry), None, None)
    return Scored(
        dict(entry.row),
        entry.measured_step_s,
        predicted.step_s,
        p10_s=predicted.step_s_p10,
        p90_s=predicted.step_s_p90,
        measured_bytes=entry.measured_mem_bytes,
        predicted_bytes=predicted.mem_bytes,
        fits=predicted.fits,
    )


def _plain(read: Sequence[Case | Unreadable]) -> list[Scored]:
    """The baseline's predictions."""
    return [
        Scored(_source(entry), None, None)
        if isinstance(entry, Unreadable)
        else Scored(dict(entry.row), entry.measured_step_s, _one_constant_s(entry))
        for entry in read
    ]


def _settled(read: Sequence[Case | Unreadable]) -> list[Case]:
    """The rows that have a time, as they were predicted."""
    timed = [case for case in read if isinstance(case, Case) and case.measured_step_s]
    return settle(posterior.with_constants(timed))


def _source(entry: Case | Unreadable) -> dict[str, str]:
    return {"source": "?", **entry.row}


def _one_constant_s(case: Case) -> float:
    """Model FLOP (nothing masked, nothing recomputed) at a fraction of the precision's peak."""
    width = _WIDTHS.get(case.plan.precision, "8bit")
    peak = float(getattr(case.cluster.accelerator, f"peak_{width}_flop_per_s"))
    flop = float(model_flop(case.workload) * case.workload.batch)
    return flop / (float(case.plan.accelerators) * peak * FRACTION_OF_PEAK)


def _timed(scored: Sequence[Scored]) -> list[Scored]:
    return [row for row in scored if row.measured_s is not None]


def _worst(cases: Sequence[Case], scored: Sequence[Scored]) -> list[dict[str, Any]]:
    """The worst rows of all but the group that stands apart, whose second regime would fill the list."""
    rows = _timed(scored)
    errors = np.array([np.nan if row.error is None else row.error for row in rows])
    sources = [row.row["source"] for row in rows]
    small = f"sources with fewer than {SMALL} rows"
    groups = [source if sources.count(source) >= SMALL else small for source in sources]
    listed = np.isfinite(errors) & np.array([not source.startswith(APART) for source in sources])
    at = np.flatnonzero(listed).tolist()
    return reasons.worst([cases[i] for i in at], errors[listed], [groups[i] for i in at])


def _ablate(
    cases: Mapping[str, Sequence[Case]], scored: Mapping[str, Sequence[Scored]], results: dict[str, Any]
) -> None:
    """The headline of each table without each term; the factor that makes up for it is chosen on calibration rows."""
    fitted_on = "calibration" if "calibration" in cases else "published"
    for name, own in cases.items():
        results[name]["ablation"] = {}
        for term in terms.DROPPED:
            without_s = {table: terms.without(cases[table], term) for table in {name, fitted_on}}
            factor = _factor(scored[fitted_on], without_s[fitted_on])
            rows = _timed(scored[name])
            changed = [
                row._replace(predicted_s=float(factor * s)) for row, s in zip(rows, without_s[name], strict=True)
            ]
            headline, whole = score(changed)["headline"], results[name]["headline"]
            results[name]["ablation"][term] = {key: headline[key] - whole[key] for key in ("median", "p90")}
            assert len(rows) == len(own)


def _factor(scored: Sequence[Scored], seconds: np.ndarray) -> float:
    """The median over sources of what their predictions have to be multiplied by."""
    by_source: dict[str, list[float]] = {}
    for row, without_s in zip(_timed(scored), seconds, strict=True):
        if row.measured_s and np.isfinite(without_s):
            by_source.setdefault(row.row["source"], []).append(np.log(row.measured_s / without_s))
    return float(np.exp(np.median([np.median(own) for own in by_source.values()])))


def _write(scored: Sequence[Scored], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("source", "source_ref", "measured_step_s", "predicted_step_s", "p10_s", "p90_s", "log_error"))
        for row in scored:
            named = (row.row.get("source", ""), row.row.get("source_ref", ""))
            writer.writerow((*named, row.measured_s, row.predicted_s, row.p10_s, row.p90_s, row.error))


def tables(results: Mapping[str, Any]) -> list[Any]:
    """What the terminal shows: the headlines, errors by source, ranks and memory, terms, worst rows."""
    return shown.tables(results)


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    last = next(name for name in ("validation", "calibration", "published") if name in results)
    own, plain = results[last]["headline"], results[last]["baseline"]["headline"]
    left = results.get("calibration", {}).get("left_out", {}).get("headline")
    outside = "was not asked for" if left is None else f"has {left['median']:.3f} and {left['p90']:.3f}"
    return [
        f"On {own['rows']:,} rows of {own['groups']} sources ({last}) the median of |log(predicted / measured)| is "
        f"{own['median']:.3f} and the 90th percentile {own['p90']:.3f}, in the mean over sources; one fraction of the "
        f"peak for all rows gives {plain['median']:.2f} and {plain['p90']:.2f}.",
        f"Software that the fit did not see (each source of the calibration left out) {outside}.",
        _farthest(results[last]["worst"]),
    ]


def _farthest(worst: Sequence[Mapping[str, Any]]) -> str:
    """The row that is predicted worst, in plain words; the table of worst rows says what may be behind it."""
    if not worst:
        return "No row is far off."
    row = worst[0]
    way = "short" if row["error"] < 0 else "long"
    return f"Farthest off is {row['row']} ({row['source']}), predicted {np.exp(abs(row['error'])):.2g} times too {way}."
