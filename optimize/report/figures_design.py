"""The figures of `equipoise design --out`: frontier, what would shorten the step, the way from relaxed to rounded."""

import functools
import textwrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from optimize import units
from optimize.clusters import DesignResult
from optimize.diagnosis import by_resource
from optimize.question import SECONDS_A_DAY, Objective
from optimize.report.drawing import BLACK, PALETTE, files_of, plain_ticks

_LABELS = {
    "budget_usd": ("budget, million USD", 1e-6),
    "power_w": ("power at the meter, MW", 1e-6),
    "accelerators": ("accelerators at most", 1.0),
    "carbon_g": ("CO2 of the electricity, t", 1e-6),
}
_BARS = 12  # resources whose effect is shown
_SEEN = 0.05  # % of the step: less is no bar


def draw_design(result: DesignResult) -> dict[str, bytes]:
    """The content of each file by its name, each as PNG and SVG; what has no content is left out."""
    figures = {"frontier": _frontier, "elasticities": tornado_of, "trajectory": _trajectory}
    return files_of({name: functools.partial(draw, result) for name, draw in figures.items()})


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
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_ticks(axes.xaxis, x)
    plain_ticks(axes.yaxis, [point["value"] / factor for point in points])
    axes.set_xlabel(label)
    axes.set_ylabel(name)
    axes.set_title(f"{name.capitalize()} by {label}; numbers are accelerators", loc="left", fontsize=9)
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
    """How much shorter the step is with a tenth more of each rate, or less of each cost, of both answers."""
    answers = [answer for answer in (result.continuous, result.catalogue) if answer is not None]
    shorter = [{e.parameter.key: -100 * e.tenth for e in by_resource(answer.elasticities)} for answer in answers]
    parameters = {e.parameter.key: e.parameter for answer in answers for e in answer.elasticities}
    most = {key: max(own.get(key, 0.0) for own in shorter) for key in parameters}
    keys = [key for key in sorted(most, key=lambda key: -most[key]) if most[key] > _SEEN][:_BARS]
    figure = Figure(figsize=(6.8, 1.6 + 0.4 * max(1, len(keys))), layout="constrained")
    axes = figure.add_subplot()
    for number, (answer, own) in enumerate(zip(answers, shorter, strict=True)):
        rows = np.arange(len(keys)) + (0.4 * number - 0.2 * (len(answers) - 1))
        bars = axes.barh(rows, [own.get(key, 0.0) for key in keys], height=0.38, color=(PALETTE[0], PALETTE[5])[number])
        bars.set_label(answer.name)
        axes.bar_label(bars, [units.percent(own.get(key, 0.0) / 100) for key in keys], padding=3, fontsize=7)
    names = [f"10 % {'more' if parameters[key].rate else 'less'}: {parameters[key].words}" for key in keys]
    axes.set_yticks(range(len(keys)), ["\n".join(textwrap.wrap(name, 44)) for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("% that the step is shorter")
    figure.suptitle("What would shorten the step most", x=0.01, ha="left", fontsize=9)
    figure.legend(loc="outside lower left", fontsize=8)
    return figure


def _trajectory(result: DesignResult) -> Figure | None:
    """The best relaxed value by step of the descent, then the best plan, then its bound."""
    if result.relaxed is None or result.continuous is None or result.objective.maximised:
        return None
    factor, name = _scale(result)
    path = np.exp(result.relaxed.path) / factor
    value, bound = result.continuous.value / factor, result.continuous.lower_bound / factor
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    axes.plot(np.arange(len(path)), path, color=PALETTE[0], label="descent: best relaxed point so far")
    end = len(path) * 1.12
    axes.plot([len(path) - 1, end], [path[-1], value], ":", color=PALETTE[6], label="rounded, hardware solved again")
    axes.plot([end], [value], "o", color=PALETTE[5], label=f"best plan: {units.significant(value, 4)}")
    axes.axhline(bound, color=BLACK, linestyle="--", label=f"no plan is below: {units.significant(bound, 4)}")
    axes.set_yscale("log")
    low, high = min(path[-1], bound), float(np.quantile(path, 0.97))
    axes.set_ylim(0.97 * low, 1.05 * high)
    plain_ticks(axes.yaxis, list(np.geomspace(low, high, 5)))
    axes.set_xlabel("steps of the descent")
    axes.set_ylabel(name)
    loss = value / path[-1] - 1
    apart = f"{units.percent(abs(loss))} {'above' if loss >= 0 else 'below'}"
    axes.set_title(f"Relaxed to rounded: the best plan is {apart} the relaxed point", loc="left", fontsize=9)
    axes.legend(loc="upper right")
    return figure
