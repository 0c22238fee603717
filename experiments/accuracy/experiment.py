"""How far are the predictions from published measurements, by source, and which terms of the model buy it?

Reads calibration.csv (fitted; also judged by constants that saw no row of the source) and validation.csv (never
fitted) where they are, and always the published figures that ship with the package. Beside every figure stands the
simplest model: one fraction of the peak for all rows, which `shared/tools/baseline.py` found on calibration rows.
"""

import csv
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from costmodel import specs
from costmodel.inputs import model_flop
from costmodel.measured import Case, Unreadable, posterior, read_cases, settle
from experiments.accuracy import figures, reasons, terms
from experiments.accuracy.scoring import APART, SMALL, Scored, score
from optimize.diagnosis import predict

FRACTION_OF_PEAK = 0.34
"""The baseline's fraction of the peak, chosen on calibration rows by `shared/tools/baseline.py --fit`."""
_WIDTHS = {"fp32": "32bit", "fp16": "16bit", "bf16": "16bit", "nvfp4": "4bit"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the `accuracy` experiment."""

    measurements: str = "../shared/measurements"
    """Folder of calibration.csv and validation.csv; what is not there is left out."""
    leave_out: bool = True
    """Also fit without each calibration source in turn and predict it so (a minute or two)."""
    ablation: bool = True
    """Also drop each term of the model."""


def run(config: Config, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Predict every table, score, drop terms, name the worst rows, draw."""
    files = {"published": specs.DATA / "published.csv"}
    files |= {name: Path(config.measurements) / f"{name}.csv" for name in ("calibration", "validation")}
    scored: dict[str, list[Scored]] = {}
    results: dict[str, Any] = {}
    cases: dict[str, list[Case]] = {}
    for name, path in files.items():
        if not path.is_file():
            continue
        say(f"{name}: predicting")
        scored[name], plain, cases[name] = _table(path)
        results[name] = score(scored[name]) | {"baseline": score(plain)}
        results[name]["worst"] = _worst(cases[name], scored[name])
        _write(scored[name], folder / f"predictions_{name}.csv")
    if config.ablation:
        say("dropping terms")
        _ablate(cases, scored, results)
    if config.leave_out and "calibration" in cases:
        say("leaving out each source in turn")
        results["calibration"]["left_out"] = _left_out(Path(config.measurements), scored["calibration"])
    figures.draw(scored, results, folder)
    return results


def _table(path: Path) -> tuple[list[Scored], list[Scored], list[Case]]:
    """Predictions of all rows, the baseline's, and the cases that have a time, as they were predicted."""
    read = read_cases(path)
    plain = []
    scored = []
    for entry, predicted in zip(read, predict(read), strict=True):
        if isinstance(entry, Unreadable):
            scored.append(Scored(_source(entry), None, None))
            plain.append(scored[-1])
            continue
        one = Scored(
            dict(entry.row),
            entry.measured_step_s,
            predicted.step_s,
            p10_s=predicted.step_s_p10,
            p90_s=predicted.step_s_p90,
            measured_bytes=entry.measured_mem_bytes,
            predicted_bytes=predicted.mem_bytes,
            fits=predicted.fits,
        )
        scored.append(one)
        plain.append(Scored(dict(entry.row), entry.measured_step_s, _one_constant_s(entry)))
    timed = [case for case in read if isinstance(case, Case) and case.measured_step_s]
    return scored, plain, settle(posterior.with_constants(timed))


def _source(entry: Unreadable) -> dict[str, str]:
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


def _left_out(folder: Path, scored: Sequence[Scored]) -> dict[str, Any]:
    """Scores of calibration rows by constants that saw no row of their source."""
    from costmodel.measured import Problem, kernels, left_out_errors, train

    cases = [case for case in read_cases(folder / "calibration.csv") if isinstance(case, Case) and case.measured_step_s]
    with open(folder / "microbenchmarks.csv", newline="", encoding="utf-8") as file:
        measured_kernels = kernels(list(csv.DictReader(file)))
    errors = left_out_errors(train(Problem(settle(cases), measured_kernels)))
    rows = _timed(scored)
    outside = [
        row._replace(predicted_s=float(row.measured_s * np.exp(error)), p10_s=None, p90_s=None)  # pyright: ignore[reportOperatorIssue]
        for row, error in zip(rows, errors, strict=True)
    ]
    table = score(outside)
    return {"headline": table["headline"], "groups": table["groups"], "rank": table["rank"]}


def _write(scored: Sequence[Scored], path: Path) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("source", "source_ref", "measured_step_s", "predicted_step_s", "p10_s", "p90_s", "log_error"))
        for row in scored:
            named = (row.row.get("source", ""), row.row.get("source_ref", ""))
            writer.writerow((*named, row.measured_s, row.predicted_s, row.p10_s, row.p90_s, row.error))


def tables(results: Mapping[str, Any]) -> list[Any]:
    """What the terminal shows: errors by group, terms, worst rows."""
    shown = [_groups_table(name, results[name]) for name in results]
    shown += [_sources_table(name, results[name]) for name in results if name != "published"]
    last = "validation" if "validation" in results else "published"
    if "ablation" in results[last]:
        shown.append(_ablation_table(results))
    return [*shown, _worst_table(last, results[last]["worst"])]


def _groups_table(name: str, result: Mapping[str, Any]) -> Any:
    from rich.table import Table

    head, plain = result["headline"], result["baseline"]["headline"]
    title = (
        f"{name}: {result['covered']:,} of {result['timed']:,} timed rows; mean of medians {head['median']:.3f} "
        f"(one constant {plain['median']:.3f}), of 90th percentiles {head['p90']:.3f} ({plain['p90']:.3f})"
    )
    outside = result.get("left_out")
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for column in ("group", "rows", "median", "p90", "bias", "inside", "constant", *(("left out",) if outside else ())):
        table.add_column(column, justify="left" if column == "group" else "right", no_wrap=True)
    for group, own in result["groups"].items():
        other = result["baseline"]["groups"][group]["median"]
        figures_of = (f"{own['median']:.3f}", f"{own['p90']:.3f}", f"{own['bias']:+.3f}", f"{own['inside']:.0%}")
        more = (f"{outside['groups'][group]['median']:.3f}",) if outside else ()
        table.add_row(figures.short(group, 30), f"{own['rows']:,}", *figures_of, f"{other:.3f}", *more)
    return table


def _sources_table(name: str, result: Mapping[str, Any]) -> Any:
    """Ranks of layouts, memory and fit, by source."""
    from rich.table import Table

    columns = ("sweeps", "tau", "regret", "memory", "median", "ran", "said to fit", "out", "said so")
    table = Table("source", *columns, title=f"{name}: ranks, memory, fit", title_justify="left", box=None)
    kinds = (("rank", ("sweeps", "tau", "regret")), ("memory", ("rows", "median")), ("fit", columns[5:]))
    keys = (("ran", "said to fit", "out of memory", "said so") if kind == "fit" else own for kind, own in kinds)
    shown = list(zip((kind for kind, _ in kinds), keys, strict=True))
    for source in sorted({source for kind, _ in shown[:2] for source in result[kind]}):
        cells = [_cell(result[kind].get(source, {}).get(key)) for kind, own in shown for key in own]
        table.add_row(figures.short(source, 24), *cells)
    return table


def _cell(figure: float | None) -> str:
    if figure is None:
        return ""
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:.3f}"


def _ablation_table(results: Mapping[str, Any]) -> Any:
    from rich.table import Table

    names = [name for name in results if "ablation" in results[name]]
    title = "change of the headline's median and 90th percentile"
    table = Table("without", *names, title=title, title_justify="left", box=None)
    for term in results[names[0]]["ablation"]:
        own = [results[name]["ablation"][term] for name in names]
        table.add_row(term, *(f"{change['median']:+.3f}, {change['p90']:+.3f}" for change in own))
    return table


def _worst_table(name: str, rows: Sequence[Mapping[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(
        "row", "error", "reason", title=f"worst rows of {name}, without {APART}", title_justify="left", box=None
    )
    for row in rows:
        table.add_row(f"{row['source']}: {row['row']}", f"{row['error']:+.2f}", row["reason"])
    return table
