"""The figure, measured against predicted seconds, and the table of all layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.runner import write_figures, write_table
from optimize.report import BLACK, PALETTE, log_axis

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
        ("predicted_s", "from measure alone", PALETTE[5]),
        ("after_rows_s", "after three rows", PALETTE[0]),
    ):
        for devices, marker in _MARKERS.items():
            at = [(row["step_s"], row[name]) for row in rows if row["devices"] == devices and row[name] is not None]
            label_of = f"{label}, {devices} device{'s' * (devices > 1)}"
            axes.plot(*zip(*at, strict=True), marker, color=colour, alpha=0.75, label=label_of) if at else None
    shown = [row[name] for row in rows for name in ("step_s", "predicted_s", "after_rows_s") if row[name] is not None]
    ends = [min(shown) / 1.5, max(shown) * 1.5]
    axes.plot(ends, ends, color=BLACK, linewidth=1)
    axes.fill_between(ends, [0.75 * end for end in ends], [1.25 * end for end in ends], color="0.9", zorder=0)
    axes.fill_between([], [], color="0.9", label="within 25 %")
    axes.set(xlim=ends, ylim=ends)
    log_axis(axes.xaxis, "measured step, s")
    log_axis(axes.yaxis, "predicted step, s")
    load = results["load"]
    quiet = ": not quiet" if load["loaded"] else ""
    axes.set_title(f"{len(rows)} layouts on this machine, at load {load['before']:.1f}{quiet}", loc="left", fontsize=9)
    axes.legend()
    return figure


def table(results: Mapping[str, Any], path: Path) -> None:
    """One line a layout."""
    write_table(_COLUMNS, ([row.get(name) for name in _COLUMNS] for row in results["rows"]), path)
