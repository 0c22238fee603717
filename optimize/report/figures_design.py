"""The figures of `equipoise design --out`: frontier, what would shorten the step, the way from relaxed to rounded."""

import functools
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from optimize import units
from optimize.clusters import DesignResult
from optimize.question import SECONDS_A_DAY, Objective
from optimize.report.drawing import BLACK, PALETTE, files_of, headline, log_axis, tornado

_LABELS = {
    "budget_usd": ("budget, million USD", 1e-6),
    "power_w": ("power at the meter, MW", 1e-6),
    "accelerators": ("accelerators at most", 1.0),
    "carbon_g": ("CO2 of the electricity, t", 1e-6),
}


def draw_design(result: DesignResult) -> dict[str, bytes]:
    """The content of each file by its name, each as PNG and SVG; what has no content is left out."""
    figures = {"frontier": _frontier, "elasticities": tornado_of, "trajectory": _trajectory}
    return files_of({name: functools.partial(draw, result) for name, draw in figures.items()})


def _jobs_words(result: DesignResult) -> str:
    """What is trained: one job with its tokens, of several their models."""
    if len(result.jobs) == 1:
        return f"{result.jobs[0].workload.name}, {units.scaled(result.jobs[0].tokens, units.COUNTS)} tokens"
    return ", ".join(job.workload.name for job in result.jobs)


def _scale(result: DesignResult) -> tuple[float, str]:
    """What values are divided by, and the label of their axis."""
    if result.objective is Objective.time:
        return SECONDS_A_DAY, "days to train"
    return 1.0, result.objective.meaning


def _frontier(result: DesignResult) -> Figure | None:
    """Values with their bounds over the swept limit, and real parts at the limit that was asked for."""
    points = [point for point in result.frontier if point["value"] is not None]
    if len(points) < 2:  # no frontier
        return None
    limit = next(iter(points[0]))
    label, scale = _LABELS[limit]
    factor, name = _scale(result)
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    x = [scale * point[limit] for point in points]
    axes.fill_between(
        x,
        [point["lower_bound"] / factor for point in points],
        [point["value"] / factor for point in points],
        color=PALETTE[4],
        alpha=0.4,
        label=f"what is not proved: at most {units.percent(max(point['gap'] for point in points))}",
    )
    axes.plot(x, [point["value"] / factor for point in points], "o-", color=PALETTE[0], label="rates of any size")
    _real_parts(axes, result, limit, scale, factor)
    for across, point in zip(x, points, strict=True):
        count = f"{point['accelerators']:,}"
        axes.annotate(count, (across, point["value"] / factor), (5, 6), textcoords="offset points", fontsize=8)
    log_axis(axes.xaxis, label, x)
    axes.margins(x=0.08, y=0.12)
    log_axis(axes.yaxis, name)
    headline(figure, f"{name.capitalize()} by {label}; numbers are accelerators", _jobs_words(result))
    figure.legend(loc="outside lower left")  # inside it may cover points
    return figure


def _real_parts(axes: Any, result: DesignResult, limit: str, scale: float, factor: float) -> None:
    at = getattr(result.limits, limit)
    if result.catalogue is not None and at is not None:
        axes.plot(
            [scale * at],
            [result.catalogue.value / factor],
            "D",
            color=PALETTE[5],
            label=f"real: {result.catalogue.name}",
        )


def tornado_of(result: DesignResult) -> Figure:
    """What would shorten the step most, of both answers."""
    answers = (answer for answer in (result.continuous, result.catalogue) if answer is not None)
    lines = "What would shorten the step most", _jobs_words(result)
    return tornado({answer.name: answer.elasticities for answer in answers}, *lines)


def _trajectory(result: DesignResult) -> Figure | None:
    """The best relaxed value by step of the descent, then the best plan, then its bound."""
    if result.relaxed is None or result.continuous is None or result.objective.maximised:
        return None
    factor, name = _scale(result)
    path = np.exp(result.relaxed.path) / factor
    value, bound = result.continuous.value / factor, result.continuous.lower_bound / factor
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(np.arange(len(path)), path, color=PALETTE[0], label="descent: the best so far, degrees in fractions")
    end = len(path) * 1.12
    label = "in whole numbers, hardware solved again"
    axes.plot([len(path) - 1, end], [path[-1], value], ":", color=PALETTE[6], label=label)
    axes.plot([end], [value], "o", color=PALETTE[5], label=f"best plan: {units.significant(value, 4)}")
    axes.axhline(bound, color=BLACK, linestyle="--", label=f"no plan is below: {units.significant(bound, 4)}")
    axes.set_ylim(0.97 * min(path[-1], bound), 1.05 * float(np.quantile(path, 0.97)))
    log_axis(axes.yaxis, name)
    axes.set_xlabel("steps of the descent")
    loss = value / path[-1] - 1
    apart = f"{units.percent(abs(loss))} {'above' if loss >= 0 else 'below'}"
    title = f"From fractions to whole numbers: the best plan is {apart} the best in fractions"
    headline(figure, title, _jobs_words(result))
    axes.legend(loc="upper right")
    return figure
