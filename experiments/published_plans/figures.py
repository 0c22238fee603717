"""One figure: published, predicted and best steps of each run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, PALETTE


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write `steps`, as PNG and SVG."""
    write_figures({"steps": lambda: _steps(results["runs"])}, folder)


def _steps(rows: list[Mapping[str, Any]]) -> Any:
    """Over the published step: predicted, and the fastest plans of the two spaces."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 1.6 + 0.36 * len(rows)), layout="constrained")
    axes, place = figure.add_subplot(), np.arange(len(rows))
    axes.axvspan(0.85, 1.15, color="0.92", zorder=0, label="within 15 %")
    axes.axvline(1.0, color=BLACK, linewidth=0.8, label="published step")
    published = np.array([row["published_s"] for row in rows])
    series = {
        "predicted, published plan": [row["predicted_s"] for row in rows],
        "predicted, fastest plan looked at, same software": [_best(row, "same software") for row in rows],
        "predicted, fastest plan looked at, any software": [_best(row, "all") for row in rows],
    }
    for number, (label, seconds) in enumerate(series.items()):
        over = np.array(seconds) / published
        at = place + 0.22 * (number - 1)  # none over another
        axes.plot(over, at, "oDs"[number], color=PALETTE[number], label=label, markersize=5)
    axes.set_yticks(place, [row["run"] for row in rows])
    axes.invert_yaxis()
    axes.set(xlabel="step, times the published step", xlim=(0, None))
    figure.legend(loc="outside lower right", ncols=2)
    return figure


def _best(row: Mapping[str, Any], space: str) -> float:
    found = row["spaces"][space]["best_s"]
    return np.nan if found is None else found
