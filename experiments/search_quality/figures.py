"""The figure: gap to the best known over time, by kind of problem, one line for each method."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, PALETTE, log_axis

STYLES = {
    "equipoise": (BLACK, "-", 2.4),
    "evolution": (PALETTE[5], "-", 1.4),
    "differential": (PALETTE[0], "--", 1.4),
    "nested": (PALETTE[4], "-", 1.6),
    "greedy": (PALETTE[2], ":", 1.6),
    "scipy": (PALETTE[4], "-.", 1.2),
    "cma": (PALETTE[3], "--", 1.2),
    "tpe": (PALETTE[1], "-.", 1.2),
    "exhaustive": (PALETTE[3], "--", 1.4),
    "convex": (PALETTE[0], "--", 1.4),
}
"""Okabe and Ito's colours, which colour-blind readers tell apart; dashes differ too."""

LEAST, MOST = 1e-3, 300.0  # % of the gaps shown: exact answers lie on the lower edge, none on the upper


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write `search_quality`, as PNG and SVG."""
    write_figures({"search_quality": lambda: _panels(results)}, folder)


def _panels(results: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    kinds = list(results["by_kind"])
    across = min(len(kinds), 3)
    down = -(-len(kinds) // across)
    figure = Figure(figsize=(3.0 * across, 2.9 * down + 0.5), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).ravel()
    for axes in panels[len(kinds) :]:
        axes.set_visible(False)
    for axes, kind in zip(panels, kinds, strict=False):
        _panel(axes, results, kind)
    figure.supylabel(
        "worse than the best known, %, median over problems (log scale; lowest: 0.001 or less)", fontsize=9
    )
    every = [line for axes in panels for line in axes.get_lines()]
    lines = {str(line.get_label()): line for line in every if not str(line.get_label()).startswith("_")}
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=min(6, len(lines)))
    return figure


def _panel(axes: Any, results: dict[str, Any], kind: str) -> None:
    names = [problem["name"] for problem in results["problems"] if problem["kind"] == kind]
    times = np.geomspace(0.3, results["run_s"], 200)
    for method in results["by_kind"][kind]:
        gaps = [_over_time(results["traces"][f"{name} {method}"], times) for name in names]
        colour, dashes, width = STYLES[method]
        median = np.clip(100 * np.median(gaps, axis=0), LEAST, None)
        axes.plot(times, np.where(median > MOST, np.nan, median), color=colour, ls=dashes, lw=width, label=method)
    axes.set(ylim=(0.7 * LEAST, MOST), xlim=(times[0], times[-1]))
    clock = "processor time" if results["clock"] == "cpu" else "time"
    log_axis(axes.xaxis, f"{clock}, s", [s for s in (0.5, 1, 2, 5, 10, 20, 60) if s <= times[-1]])
    log_axis(axes.yaxis, ticks=(1e-3, 1e-2, 1e-1, 1, 10, 100))
    axes.axhline(0.1, color="0.8", lw=0.8, zorder=0)
    axes.set_title(f"{kind}: {len(names)} problem{'s' if len(names) != 1 else ''}", loc="left", fontsize=9)


def _over_time(trace: list[tuple[float, float]], times: np.ndarray) -> np.ndarray:
    """The least gap known at each time; infinite before the first."""
    if not trace:
        return np.full(len(times), np.inf)
    seconds, gaps = np.array(trace).T
    place = np.searchsorted(seconds, times, side="right") - 1
    return np.where(place >= 0, gaps[np.maximum(place, 0)], np.inf)
