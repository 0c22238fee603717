"""The figure, measured against predicted seconds, and the table of all layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.runner import write_figures, write_table

BLUE, VERMILION, BLACK = "#0072B2", "#D55E00", "#000000"
_MARKERS = {1: "o", 2: "s"}
_COLUMNS = (
    "layout", "devices", "step_s", "predicted_s", "after_rows_s", "bytes", "predicted_bytes", "flop", "steps", "load",
)  # fmt: skip


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """`steps`, as PNG and SVG."""
    write_figures({"steps": lambda: _steps(results)}, folder)


def _steps(results: Mapping[str, Any]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 5.2), layout="constrained")
    axes, rows = figure.subplots(), results["rows"]
    for name, label, colour in (
        ("predicted_s", "from measure alone", VERMILION),
        ("after_rows_s", "after three rows", BLUE),
    ):
        for devices, marker in _MARKERS.items():
            at = [(row["step_s"], row[name]) for row in rows if row["devices"] == devices and row[name] is not None]
            label_of = f"{label}, {devices} device{'s' * (devices > 1)}"
            axes.loglog(*zip(*at, strict=True), marker, color=colour, alpha=0.75, label=label_of) if at else None
    ends = [min(row["step_s"] for row in rows) / 1.5, max(row["step_s"] for row in rows) * 1.5]
    axes.loglog(ends, ends, color=BLACK, linewidth=1)
    for factor in (0.75, 1.25):
        axes.loglog(ends, [factor * end for end in ends], color=BLACK, linewidth=0.5, linestyle=":")
    axes.set_xlabel("measured seconds of a step")
    axes.set_ylabel("predicted seconds")
    load = results["load"]
    axes.set_title(f"load {load['before']:.1f}" + (": not quiet" if load["loaded"] else ""), fontsize=9)
    axes.legend(frameon=False, fontsize=8)
    return figure


def table(results: Mapping[str, Any], path: Path) -> None:
    """One line a layout."""
    write_table(_COLUMNS, ([row.get(name) for name in _COLUMNS] for row in results["rows"]), path)
