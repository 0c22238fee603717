"""The figures: predicted against measured with the 10 % band, and errors by group beside the simplest baseline."""

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.accuracy.scoring import APART, Scored
from experiments.runner import write_figures
from optimize.report import BLACK, MARKERS, PALETTE, log_axis

_NAMED = 7  # groups with a colour of their own


def draw(tables: Mapping[str, Sequence[Scored]], scores: Mapping[str, Mapping[str, Any]], folder: Path) -> None:
    """Write `scatter_TABLE` and `groups_TABLE`, as PNG and SVG."""
    drawn: dict[str, Callable[[], Any]] = {}
    for name, rows in tables.items():
        timed = [row for row in rows if row.error is not None]
        drawn[f"scatter_{name}"] = functools.partial(_scatter, name, timed)
        drawn[f"groups_{name}"] = functools.partial(_groups, name, scores[name])
    write_figures(drawn, folder)


def _scatter(name: str, rows: Sequence[Scored]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 5), layout="constrained")
    axes = figure.subplots()
    sources = [row.row["source"] for row in rows]
    largest = sorted(set(sources), key=lambda source: -sources.count(source))[:_NAMED]
    seconds = np.array([(row.measured_s, row.predicted_s) for row in rows], float)
    order = [*largest, "others"]
    for k, source in enumerate(order):
        at = np.array([(s == source) if source in largest else (s not in largest) for s in sources])
        if at.any():
            colour = PALETTE[k] if k < _NAMED else BLACK
            style = {"s": 12, "alpha": 0.6, "linewidths": 0, "color": colour, "marker": MARKERS[k]}
            axes.scatter(*seconds[at].T, label=f"{short(source)} ({at.sum():,})", **style)
    ends = np.array([seconds.min() / 1.5, seconds.max() * 1.5])
    axes.fill_between(ends, ends / 1.1, ends * 1.1, color="0.85", zorder=0, label="within 10 %")
    axes.plot(ends, ends, color=BLACK, linewidth=0.8, zorder=0)
    axes.set(xlim=ends, ylim=ends)
    log_axis(axes.xaxis, "measured step, s")
    log_axis(axes.yaxis, "predicted step, s")
    inside = np.mean(np.abs(np.log(seconds[:, 1] / seconds[:, 0])) <= np.log(1.1))
    axes.set_title(f"{name}: {len(rows):,} timed rows, {100 * inside:.0f} % of them within 10 %", loc="left")
    axes.legend(fontsize=7, loc="upper left")
    return figure


def _groups(name: str, score: Mapping[str, Any]) -> Any:
    """Median errors with their signs' lean, 90th percentiles, and those of one constant for all rows."""
    from matplotlib.figure import Figure

    groups, plain = score["groups"], score["baseline"]["groups"]
    order = sorted(groups, key=lambda group: groups[group]["median"])
    figure = Figure(figsize=(7.5, 1.2 + 0.3 * len(order)), layout="constrained")
    axes = figure.subplots()
    place = np.arange(len(order))
    median, p90 = (np.array([100 * groups[group][key] for group in order]) for key in ("median", "p90"))
    axes.hlines(place, median, p90, color=PALETTE[0], linewidth=1)
    axes.plot(median, place, "o", color=PALETTE[0], label="median, to 90th percentile")
    axes.plot(
        [100 * plain[g]["median"] for g in order],
        place,
        "D",
        color=PALETTE[5],
        markersize=4,
        label="same share of the peak for all: median",
    )
    axes.axvline(10.0, color="0.7", linewidth=0.8, zorder=0)
    axes.set_xlim(1, 250)
    log_axis(axes.xaxis, "error of the step, |log(predicted / measured)|, %", (1, 3, 10, 30, 100))
    axes.set_yticks(place, [f"{short(group)} ({groups[group]['rows']:,} rows)" for group in order], fontsize=7)
    head = score["headline"]
    title = f"{name}: mean over sources of medians {head['median']:.3f}, of 90th percentiles {head['p90']:.3f}"
    apart = f"\n(without {APART}, which stands apart)" if any(g.startswith(APART) for g in order) else ""
    figure.suptitle(title + apart, x=0.01, ha="left", fontsize=9)
    figure.legend(loc="outside lower left", ncols=2)  # inside it may cover points
    return figure


def short(source: str, most: int = 40) -> str:
    """A name that fits its place."""
    return source if len(source) <= most else source[: most - 1].rstrip() + "…"
