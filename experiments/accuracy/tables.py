"""What the terminal shows of the accuracy: headlines, one line for each source, ranks and memory, terms, worst rows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.accuracy import figures
from experiments.accuracy.scoring import APART

_MEANING = (
    "errors: |log(predicted / measured)|; inside: measured between p10 and p90; tau: rank correlation of a sweep's "
    "layouts; memory: median error of the peak; covered: rows read; after 3: median error with three rows known"
)
_RANKS = (
    "tau: rank correlation of a sweep's layouts; regret: what the layout predicted fastest loses to the fastest; "
    "memory: rows and median error; ran, out: layouts that ran, and that did not, and how many of them were said to"
)
_HEAD = ("rows", "sources", "median", "90 %", "inside", "tau", "memory", "covered", "after 3", "one factor")


def tables(results: Mapping[str, Any]) -> list[Any]:
    """All tables, the headlines first."""
    shown = [_headlines(results)]
    shown += [_groups_table(name, results[name]) for name in results]
    shown += [_sources_table(name, results[name]) for name in results if name != "published"]
    last = "validation" if "validation" in results else "published"
    if "ablation" in results[last]:
        shown.append(_ablation_table(results))
    return [*shown, _worst_table(last, results[last]["worst"])]


def _headlines(results: Mapping[str, Any]) -> Any:
    """Means over sources. What unseen software gets comes first."""
    table = _table("means over sources", ("predicted", *_HEAD))
    table.caption = _MEANING
    if "left_out" in results.get("calibration", {}):
        own = results["calibration"]
        table.add_row("calibration, each source left out", *_head(own["left_out"]["headline"], own.get("after_rows")))
    for name, own in results.items():
        after = None if "left_out" in own else own.get("after_rows")
        table.add_row(name, *_head(own["headline"], after))
        table.add_row(f"{name}, one constant", *_head(own["baseline"]["headline"], None))
    return table


def _head(headline: Mapping[str, float], after: Mapping[str, Mapping[str, float]] | None) -> list[str]:
    keys = ("rows", "groups", "median", "p90", "inside", "tau", "memory", "coverage")
    cells = [_cell(headline[key], share=key in ("inside", "coverage")) for key in keys]
    few = [float(np.median([own[key] for own in (after or {}).values()])) if after else None for key in _AFTER]
    return [*cells, *map(_cell, few)]


_AFTER = ("after", "one_factor")


def _groups_table(name: str, result: Mapping[str, Any]) -> Any:
    """One line for each source: errors, those left out of the fit, the simplest model's, and after three rows."""
    outside, after = result.get("left_out"), result.get("after_rows", {})
    beyond = ("left out", "90 %", "inside") if outside else ()
    last = ("after 3", "factor", "without") if after else ()
    errors = ("rows", "median", "90 %", "bias", "inside")
    columns = ("source", *errors, *beyond, "constant", "90 %", *last, "worst row", "error")
    covered = f"{result['covered']:,} of {result['timed']:,} timed rows"
    table = _table(f"{name}: {covered}", columns)
    for group, own in result["groups"].items():
        other = result["baseline"]["groups"][group]
        cells = [f"{own['rows']:,}", *(_cell(own[key]) for key in ("median", "p90", "bias"))]
        cells.append(_cell(own["inside"], True))
        if outside:
            left = outside["groups"][group]
            cells += [_cell(left["median"]), _cell(left["p90"]), _cell(left["inside"], True)]
        cells += [_cell(other["median"]), _cell(other["p90"])]
        cells += [_cell(after.get(group, {}).get(key)) for key in (*_AFTER, "without")] if after else []
        worst = (outside or result)["groups"][group]
        cells += [figures.short(worst["worst"], 34), f"{worst['worst_error']:+.2f}"]
        table.add_row(figures.short(group, 30), *cells)
    return table


def _table(title: str, columns: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", caption_justify="left", box=None, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        left = i == 0 or column == "worst row"
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _sources_table(name: str, result: Mapping[str, Any]) -> Any:
    """Ranks of layouts, memory and fit, by source."""
    columns = ("sweeps", "tau", "regret", "memory", "median", "ran", "said to fit", "out", "said so")
    table = _table(f"{name}: ranks, memory, fit", ("source", *columns))
    table.caption = _RANKS
    kinds = (("rank", ("sweeps", "tau", "regret")), ("memory", ("rows", "median")), ("fit", columns[5:]))
    keys = (("ran", "said to fit", "out of memory", "said so") if kind == "fit" else own for kind, own in kinds)
    shown = list(zip((kind for kind, _ in kinds), keys, strict=True))
    for source in sorted({source for kind, _ in shown[:2] for source in result[kind]}):
        cells = [_cell(result[kind].get(source, {}).get(key)) for kind, own in shown for key in own]
        table.add_row(figures.short(source, 24), *cells)
    return table


def _cell(figure: float | None, share: bool = False) -> str:
    if figure is None or figure != figure:
        return ""
    if share:
        return f"{figure:.0%}"
    return f"{figure:,}" if isinstance(figure, int) else f"{figure:.3f}"


def _ablation_table(results: Mapping[str, Any]) -> Any:
    names = [name for name in results if "ablation" in results[name]]
    table = _table("change of the headline's median and 90th percentile", ("without", *names))
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
