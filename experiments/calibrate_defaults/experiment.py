"""Which constants of the Stack explain the published measurements best, and how sure are they?

The fit of the shipped defaults: hierarchical, robust, by gradient, on calibration.csv and microbenchmarks.csv alone.
`--write` replaces costmodel/data/stacks.toml and stacks_posterior.json.
"""

import csv
import json
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import specs
from costmodel.measured import (
    TWO_REGIMES,
    Case,
    Problem,
    Trained,
    as_fitted,
    as_posterior,
    as_tables,
    kernels,
    left_out_errors,
    likely_slow,
    memory_scatter,
    of_software,
    read_cases,
    scatter,
    settle,
    train,
    within_scatter,
    without_each,
)
from costmodel.specs import SpecError

JUDGED = ("fit", "left_out", "class_left_out")
"""By which constants rows are judged: those of all rows, and those that saw no row of the source, or of its class."""


def run(
    folder: Path,
    say: Any,
    *,
    measurements: str = "../shared/measurements",
    leave_out: bool = True,
    write: bool = False,
) -> dict[str, Any]:
    """Fit, judge by sources left out, and keep.

    Args:
        measurements: folder of calibration.csv and microbenchmarks.csv
        leave_out: also fit without each source in turn
        write: replace the shipped constants; not with --no-leave-out
    """
    if write and not leave_out:
        told = "`--write` with `--no-leave-out`: intervals need errors of sources that no fit saw"
        raise SpecError(f"command line: {told}; expected one of them alone")
    tables = Path(measurements)
    say("reading")
    read = _modelled(tables / "calibration.csv")
    cases, failed = [case for case in read if case.measured_step_s], [case for case in read if _failed(case)]
    with open(tables / "microbenchmarks.csv", newline="", encoding="utf-8") as file:
        measured_kernels = kernels(list(csv.DictReader(file)))
    say(f"fitting {len(cases)} rows and {len(measured_kernels)} kernels")
    trained = train(Problem(cases, measured_kernels))
    inside = trained.errors()
    outside = _outside(trained) if leave_out else np.array([inside, inside])
    between = scatter(cases, outside) | {"within": within_scatter(cases, inside)}
    fitted = as_fitted(trained, between, memory_scatter(cases, failed))
    provenance = _provenance(trained)
    written = (as_tables(fitted, provenance), as_posterior(fitted))
    for place in (folder, *((specs.DATA,) if write else ())):
        (place / "stacks.toml").write_text(_toml(written[0]), encoding="utf-8")
        (place / "stacks_posterior.json").write_text(json.dumps(written[1], separators=(",", ":")), encoding="utf-8")
    slow = _regimes(trained, inside)
    judged = zip(JUDGED, (inside, *outside) if leave_out else (inside,), strict=False)
    return {"provenance": provenance} | {name: by_source(cases, errors) for name, errors in judged} | slow


def _outside(trained: Trained) -> np.ndarray:
    """Errors by constants that saw no row of a case's source, and no row of its class of software."""
    by_class = left_out_errors(without_each(trained, of_software), of_software)
    return np.array([left_out_errors(without_each(trained)), by_class])


def timed(path: Path) -> list[Case]:
    """The rows of a file that can be modelled and have a time."""
    return [case for case in _modelled(path) if case.measured_step_s]


def _modelled(path: Path) -> list[Case]:
    return settle([case for case in read_cases(path) if isinstance(case, Case)])


def _failed(case: Case) -> bool:
    """Whether a row is of a run that printed nothing, and not for want of a column."""
    return not case.measured_step_s and not case.measured_mem_bytes and case.row["oom"] != "0"


def _provenance(trained: Trained) -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "what": "constants of the Stack, fitted by `python -m experiments run calibrate_defaults --write`",
        "rows": len(trained.problem.cases),
        "sources": trained.problem.sources,
        "kernels": len(trained.problem.kernels),
        "loss": round(trained.solution.objective, 3),
        "steps": trained.solution.steps,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": commit.stdout.strip() or "unknown",
    }


def _regimes(trained: Trained, errors: np.ndarray) -> dict[str, Any]:
    """How well the rule names the regime of each row of the class that has two."""
    cases = trained.problem.cases
    at = np.array([case.stack == TWO_REGIMES for case in cases])
    if not at.any():
        return {}
    named = likely_slow(trained.regime_weights, cases)[at] == 1
    slow, size = trained.problem.evaluator.slow[at] == 1, np.abs(errors[at])
    return {
        "regimes": {
            "slow_share": round(float(slow.mean()), 3),
            "rule_right": round(float((named == slow).mean()), 3),
            "ordinary_median": round(float(np.median(size[~slow])), 3),
            "slow_median": round(float(np.median(size[slow])), 3),
        }
    }


def by_source(cases: Sequence[Case], errors: np.ndarray) -> list[dict[str, Any]]:
    """Median, 90th percentile and bias of each source."""
    sources = np.array([case.source for case in cases])
    table = []
    for source in dict.fromkeys(sources):
        own = errors[sources == source]
        size = np.abs(own)
        figures = {"median": np.median(size), "p90": np.quantile(size, 0.9), "bias": np.median(own)}
        table.append({"source": str(source), "rows": len(own)} | {k: round(float(v), 3) for k, v in figures.items()})
    return table


def tables(results: Mapping[str, Any]) -> list[Any]:
    """What the terminal shows."""
    from rich.table import Table

    columns, judged = ("median", "p90", "bias"), [results[name] for name in JUDGED if name in results]
    others = ("left out: median", *columns[1:], "class: median", *columns[1:]) if len(judged) > 1 else ()
    table = Table("source", "rows", *columns, *others, box=None)
    for own, *others in zip(*judged, strict=True):
        figures = [each[k] for each in (own, *others) for k in columns]
        table.add_row(own["source"], str(own["rows"]), *(f"{figure:.3f}" for figure in figures))
    return [table]


def _toml(tables: Mapping[str, Any]) -> str:
    """The tables as TOML: top-level lists, then one table for each name."""
    lines = [
        "# Constants of the Stack. Written by a program: see [provenance]. costmodel/specs/stacks.py reads them.",
        "",
    ]
    lines += [f"{name} = {json.dumps(value)}" for name, value in tables.items() if not isinstance(value, Mapping)]
    for name, table in tables.items():
        if isinstance(table, Mapping):
            lines += _table(name, table)
    return "\n".join(lines) + "\n"


def _table(name: str, table: Mapping[str, Any]) -> list[str]:
    own = [f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, Mapping)]
    lines = ["", f"[{name}]", *own] if own else []
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _table(f"{name}.{key}", value)
    return lines


def answer(results: Mapping[str, Any]) -> list[str]:
    """Three sentences."""
    about, left = results["provenance"], sorted(results.get("left_out", ()), key=lambda row: -row["median"])
    mean = np.mean([row["median"] for row in results["fit"]])
    worst = (
        f"Left out of the fit, the worst source is {left[0]['source']}, at {left[0]['median']:.2f}."
        if left
        else ("No source was left out of the fit, as was asked.")
    )
    return [
        f"{about['rows']:,} rows of {len(about['sources'])} sources and {about['kernels']} kernels were fitted.",
        f"The medians of |log(predicted / measured)| by source are {mean:.3f} in the mean.",
        worst,
    ]
