"""The phase diagrams: what is soonest at each bandwidth and target, one panel for each number of workers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures

COLOURS = {
    "plain": "#999999",
    "subnetworks": "#0072B2",
    "dcgd 1/8": "#E69F00",
    "diana 1/8": "#009E73",
    "ef21 1/8": "#CC79A7",
    "diana 1/8 by server": "#56B4E9",
    "local 4": "#D55E00",
    "local 32": "#F0E442",
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
        axes.set_xlabel("bandwidth, GB/s")
    figure.supylabel("relative squared error to reach", fontsize=9)
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
    axes.annotate("bias of subnetworks", (x[0], diagram["bias"]), (3, 3), textcoords="offset points", fontsize=7)
    axes.set(xscale="log", yscale="log", xlim=(x[0], x[-1]), ylim=(y.min(), y.max()))
    axes.set_title(f"{workers} workers", loc="left")
