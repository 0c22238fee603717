"""The figure of `equipoise predict`: what was measured beside what was predicted."""

import functools
from collections.abc import Sequence

from matplotlib.figure import Figure

from optimize.diagnosis import Prediction, worst_first
from optimize.report.drawing import BLACK, PALETTE, files_of, log_axis


def draw_predictions(predictions: Sequence[Prediction]) -> dict[str, bytes]:
    """`predictions` as PNG and SVG."""
    return files_of({"predictions": functools.partial(figure_of_predictions, predictions)})


def figure_of_predictions(predictions: Sequence[Prediction]) -> Figure | None:
    """Predicted over measured, with p10 to p90; without measured times the intervals row by row."""
    told, known = worst_first(predictions), [(i + 1, p) for i, p in enumerate(predictions) if p.step_s is not None]
    if not known:
        return None
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    shown = told or known
    across = [each.measured_step_s or float(number) for number, each in shown]
    middle = [each.step_s or 0.0 for _, each in shown]
    below = [(each.step_s or 0.0) - (each.step_s_p10 or 0.0) for _, each in shown]
    above = [(each.step_s_p90 or 0.0) - (each.step_s or 0.0) for _, each in shown]
    axes.errorbar(across, middle, (below, above), fmt="o", markersize=4, color=PALETTE[0], ecolor=PALETTE[4])
    intervals = [value for _, each in shown for value in (each.step_s_p10, each.step_s_p90) if value]
    axes.set_ylim(min(intervals) / 1.1, max(intervals) * 1.1)
    log_axis(axes.yaxis, "predicted step, s; lines hold eight of ten runs")
    if not told:
        axes.set_xlabel("row")
        return figure
    ends = (min(*across, *middle), max(*across, *middle))
    axes.plot(ends, ends, color=BLACK, linewidth=0.8)
    axes.set_xlim(min(across) / 1.1, max(across) * 1.2)
    log_axis(axes.xaxis, "measured step, s; on the line both are the same")
    for number, each in told[:3]:
        place = (each.measured_step_s or 0.0, each.step_s or 0.0)
        axes.annotate(each.name or f"row {number}", place, (6, -3), textcoords="offset points", fontsize=8)
    return figure
