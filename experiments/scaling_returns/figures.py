"""The figures: weak scaling by generation and by model, degrees, returns of the next one, the published all-reduces."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, MARKERS, PALETTE, log_axis

Rows = Sequence[Mapping[str, Any]]


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write all of them, as PNG and SVG."""
    weak = results["weak"]
    drawn = {
        "generations": lambda: _panels(_split(weak, "cluster", "model", weak[0]["model"]), weak[0]["model"]),
        "models": lambda: _panels(_split(weak, "model", "cluster", results["degrees_on"]), results["degrees_on"]),
        "degrees": lambda: _degrees(results["degrees"]),
        "returns": lambda: _returns(results["returns"]),
        "all_reduce": lambda: _all_reduce(results["all_reduce"]["rows"]),
    }
    write_figures(drawn, folder)


def _split(rows: Rows, by: str, fixed: str, value: str) -> dict[str, Rows]:
    kept = [row for row in rows if row[fixed] == value]
    return {name: [row for row in kept if row[by] == name] for name in dict.fromkeys(row[by] for row in kept)}


_SHOWN = (
    ("tokens_per_s_each", 1.0, "tokens/s of each accelerator"),
    ("mfu", 100.0, "MFU, % of the peak FLOP/s"),
    ("exposed", 100.0, "exposed communication, % of the step"),
    ("tokens_per_j", 1.0, "tokens per joule at the meter"),
)


def _counts(axes: Any, counts: Sequence[int]) -> None:
    log_axis(axes.xaxis, "accelerators", counts[::2])


def _panels(series: Mapping[str, Rows], title: str) -> Any:
    """Four panels over the number of accelerators; hollow markers where nothing fits in memory."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 6.2), layout="constrained")
    panels = figure.subplots(2, 2).ravel()
    for number, (name, rows) in enumerate(series.items()):
        counts = [row["accelerators"] for row in rows]
        for axes, (key, factor, label) in zip(panels, _SHOWN, strict=True):
            values = factor * np.array([row[key] for row in rows])
            style = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "linewidth": 1.4}
            axes.plot(counts, values, label=name, **style)
            out = np.array([not row["fits"] for row in rows])
            axes.plot(np.array(counts)[out], values[out], **style | {"linestyle": ""}, markerfacecolor="white")
            axes.set_ylabel(label)
            _counts(axes, counts)
    log_axis(panels[0].yaxis, _SHOWN[0][2])
    for axes in panels[1:]:
        axes.set_ylim(0, None)
    if not all(row["fits"] for rows in series.values() for row in rows):
        panels[2].plot([], [], "o", color=BLACK, markerfacecolor="white", label="hollow: does not fit in memory")
    panels[2].legend()
    figure.suptitle(f"{title}: 2 x 4,096 tokens on each accelerator, all parameters sharded", x=0.01, ha="left")
    return figure


def _degrees(found: Rows) -> Any:
    """Steps of each tensor and pipeline degree over that of sharding alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 4.0), layout="constrained")
    axes, number = figure.add_subplot(), 0
    axes.axhline(1.0, color=BLACK, linewidth=1, label="sharding alone")
    for shape in ((2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2)):
        points = [
            (each["accelerators"], run["step_s"] / each["plain"]["step_s"])
            for each in found
            if each["plain"]
            for run in each["shapes"]
            if (run["tensor"], run["pipeline"]) == shape
        ]
        if points:
            label = f"tensor {shape[0]}, pipeline {shape[1]}"
            axes.plot(*zip(*points, strict=True), marker=MARKERS[number], color=PALETTE[number], label=label)
            number += 1
    _counts(axes, [each["accelerators"] for each in found])
    axes.set(ylim=(0, None), ylabel="step, times that of sharding alone, same batch")
    axes.set_title("Where tensor and pipeline ranks begin to win (below the line)", loc="left")
    axes.legend(ncols=2)
    return figure


_BATCH = {"weak": "batch grows with them", "strong": "batch as it is"}


def _returns(found: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    keys = (("next_accelerator", "next accelerator, or dollar"), ("next_watt", "next watt at the meter"))
    for axes, (name, each) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        for number, (key, label) in enumerate(keys):
            values = 100 * np.array(each[key])
            axes.plot(each["accelerators"], values, marker=MARKERS[number], color=PALETTE[number], label=label)
        _counts(axes, each["accelerators"])
        axes.set_title(f"{name} scaling: {_BATCH[name]}", loc="left", fontsize=9)
        axes.set_ylim(0, 105)
    figure.axes[0].set_ylabel("tokens/s that the next one brings,\n% of what the mean one brings")
    figure.axes[0].legend(loc="lower left")
    return figure


def _all_reduce(rows: Rows) -> Any:
    """Bus bandwidth over payload: published points, our curves."""
    from matplotlib import colormaps
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    nodes = sorted({row["nodes"] for row in rows})
    colours = colormaps["viridis"](np.linspace(0, 0.9, len(nodes)))  # from few nodes to many
    for number, (n, colour) in enumerate(zip(nodes, colours, strict=True)):
        own = [row for row in rows if row["nodes"] == n]
        size = [row["payload_mib"] for row in own]
        axes.plot(size, [row["published_gb_per_s"] for row in own], MARKERS[number], color=colour, markersize=5)
        axes.plot(size, [row["ours_gb_per_s"] for row in own], color=colour, label=f"{n:.0f} nodes", linewidth=1.2)
    log_axis(axes.xaxis, "size of the message, MiB", (4, 16, 64, 256, 1024, 4096, 16384))
    axes.set(ylim=(0, None), ylabel="bus bandwidth, GB/s")
    axes.set_title("All-reduces on nodes of 8 H100: published (markers) and ours (lines)", loc="left")
    axes.legend(ncols=2, loc="lower right")
    return figure
