"""The phase diagrams: what is soonest at each bandwidth and target, one panel for each number of workers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import PALETTE, log_axis

COLOURS = {
    "plain": PALETTE[6],
    "subnetworks": PALETTE[0],
    "dcgd 1/8": PALETTE[1],
    "diana 1/8": PALETTE[2],
    "ef21 1/8": PALETTE[3],
    "diana 1/8 by server": PALETTE[4],
    "local 4": PALETTE[5],
    "local 32": PALETTE[7],
}


def draw(diagrams: Mapping[str, Any], folder: Path) -> None:
    """Write `phases`, as PNG and SVG."""
    write_figures({"phases": lambda: _phases(diagrams)}, folder)


def _phases(diagrams: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = -(-len(diagrams) // 2)
    figure = Figure(figsize=(7.4, 2.6 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for axes in panels[len(diagrams) :]:
        axes.set_visible(False)
    for axes, (workers, diagram) in zip(panels, diagrams.items(), strict=False):
        _panel(axes, workers, diagram)
    for axes in panels[max(0, len(diagrams) - 2) : len(diagrams)]:
        axes.set_xlabel("bandwidth, GB/s (log scale)")
    figure.supylabel("relative squared error to reach (log scale)", fontsize=9)
    used = [name for name in COLOURS if any(name in np.unique(d["soonest"]) for d in diagrams.values())]
    told = {"plain": "data parallelism", "subnetworks": "independent subnetworks"}
    patches = [Patch(color=COLOURS[name], label=told.get(name, name)) for name in used]
    figure.legend(handles=patches, loc="outside lower center", ncols=4, title="reaches the error first")
    return figure


def _panel(axes: Any, workers: str, diagram: Mapping[str, Any]) -> None:
    from matplotlib.colors import ListedColormap

    names = list(COLOURS)
    numbers = np.array([[names.index(name) for name in row] for row in diagram["soonest"]])
    x, y = np.array(diagram["bandwidths"]) / 1e9, np.array(diagram["targets"])
    colours = ListedColormap(list(COLOURS.values()))
    axes.pcolormesh(x, y, numbers, cmap=colours, vmin=-0.5, vmax=len(names) - 0.5, shading="nearest")
    axes.axhline(diagram["bias"], color="black", linewidth=0.8, linestyle="--")
    axes.annotate(
        "subnetworks get no nearer (bias)", (x[0], diagram["bias"]), (3, 3), textcoords="offset points", fontsize=7
    )
    axes.set(xlim=(x[0], x[-1]), ylim=(y.min(), y.max()))
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    axes.set_title(f"{workers} workers", loc="left")
