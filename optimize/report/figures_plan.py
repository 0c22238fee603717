"""The figures of `equipoise plan --out`: the space of plans by tensor and pipeline degree, and a tornado."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from optimize import units
from optimize.plans import PlanInputs, PlanResult
from optimize.report.drawing import BLACK, PALETTE, files_of, headline, log_axis, plain_ticks, tornado
from optimize.report.figures_timeline import draw_timeline

_WORST = 3.0  # times the best value: colours end there
_WORST_STEP = 6.0  # times the fastest: what is slower is not drawn


def draw_plans(inputs: PlanInputs, result: PlanResult, points: np.ndarray | None = None) -> dict[str, bytes]:
    """The content of each file by its name, as PNG and SVG, and the best plan's trace. `points` are those of all plans
    that were looked at (`PlanTable.points`)."""
    figures = {"plan_space": _plan_space, "elasticities": _tornado}
    drawn = files_of({name: functools.partial(draw, inputs, result) for name, draw in figures.items()})
    if points is not None and points.shape[1] > 0:
        drawn |= files_of({"step_and_memory": functools.partial(_step_and_memory, inputs, result, points)})
    return drawn | draw_timeline(inputs.workload, inputs.cluster, result.plan)


def draw_counts(inputs: PlanInputs, found: Mapping[str, Any]) -> dict[str, bytes]:
    """Time and cost over the number of accelerators: the best plan of each count that was taken."""
    return files_of({"counts": functools.partial(_counts, inputs, found)})


def _counts(inputs: PlanInputs, found: Mapping[str, Any]) -> Figure | None:
    curve, best = found["curve"], found["best"]
    if len(curve) < 2:
        return None
    priced = all(row["usd_per_million_tokens"] is not None for row in curve)
    figure, counts = Figure(figsize=(7.5, 4.6)), [row["accelerators"] for row in curve]
    title = f"Numbers of accelerators that divide best, each with its best plan for a batch of {best['batch']:,}"
    headline(figure, title, f"{inputs.workload.name} on {inputs.cluster.name}")
    wide, box = counts[-1] > 4 * counts[0], (0.11, 0.5, 0.86, 0.34) if priced else (0.11, 0.12, 0.86, 0.72)
    upper = figure.add_axes(box)
    _over_counts(upper, curve, best, "step_s", wide)
    ideal = [curve[-1]["step_s"] * counts[-1] / count for count in counts]
    upper.plot(counts, ideal, "--", color=PALETTE[6], linewidth=1, label=f"as efficient as {counts[-1]:,}")
    if wide:
        upper.set_ylim(0.6 * min(row["step_s"] for row in curve), 1.6 * max(row["step_s"] for row in curve))
        log_axis(upper.yaxis, "step, s")
    else:
        upper.set_ylabel("step, s")
    upper.legend(loc="upper right", bbox_to_anchor=(1.0, 1.2), ncols=3)
    lowest = upper
    if priced:
        lowest = figure.add_axes((0.11, 0.11, 0.86, 0.34))
        _over_counts(lowest, curve, best, "usd_per_million_tokens", wide)
        lowest.set_ylabel("USD for a million tokens")
        upper.set_xticklabels([])
    lowest.set_xlabel(f"accelerators{' (log scale)' if wide else ''}")
    return figure


def _over_counts(axes: Axes, curve: Any, best: Mapping[str, Any], key: str, wide: bool) -> None:
    """The values of one kind, from zero, and that of the answer."""
    counts, values = ([row[name] for row in curve] for name in ("accelerators", key))
    at = counts.index(best["accelerators"])
    axes.plot(counts, values, "o:", color=PALETTE[0], linewidth=0.8, markersize=5, label="the best plan there")
    axes.plot(counts[at], values[at], "o", color=PALETTE[5], markersize=8, label="the answer")
    if wide:
        log_axis(axes.xaxis, ticks=counts)
    else:
        plain_ticks(axes.xaxis, counts)
    axes.set_ylim(0, 1.15 * max(values))


def _figure(inputs: PlanInputs, title: str, height: float, box: tuple[float, float, float, float]) -> tuple[Any, Axes]:
    figure = Figure(figsize=(7.5, height))
    axes = figure.add_axes(box)
    headline(figure, title, _where(inputs))
    return figure, axes


def _where(inputs: PlanInputs) -> str:
    return f"{inputs.workload.name} on {inputs.cluster.accelerators:,} {inputs.cluster.name}"


def _plan_space(inputs: PlanInputs, result: PlanResult) -> Figure:
    """The best value under each tensor and pipeline degree, over the best of all."""
    pipelines = sorted({pipeline for _, pipeline in result.legal_cells})
    tensors = sorted({tensor for tensor, _ in result.legal_cells})
    best = result.cells[(result.plan.tensor, result.plan.pipeline)]
    worse = np.full((len(tensors), len(pipelines)), np.nan)
    for (tensor, pipeline), value in result.cells.items():
        ratio = best / value if result.maximised else value / best
        worse[tensors.index(tensor), pipelines.index(pipeline)] = ratio
    height = min(9.0, 2.6 + 0.42 * len(tensors))
    what = "step" if result.objective == "step_s" else result.objective
    title = f"Plans by tensor and pipeline degree: the best {what} of each, times the best of all"
    figure, axes = _figure(inputs, title, height, (0.09, 0.6 / height, 0.80, 1 - 1.5 / height))
    image = axes.imshow(worse, cmap="viridis_r", vmin=1.0, vmax=_WORST, aspect="auto", origin="lower")
    for row, tensor in enumerate(tensors):
        for column, pipeline in enumerate(pipelines):
            _cell(axes, row, column, worse[row, column], (tensor, pipeline) in result.legal_cells)
    place = pipelines.index(result.plan.pipeline) - 0.5, tensors.index(result.plan.tensor) - 0.5
    axes.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=PALETTE[5], linewidth=2.5))
    axes.set_xticks(range(len(pipelines)), [str(p) for p in pipelines])
    axes.set_yticks(range(len(tensors)), [str(t) for t in tensors])
    axes.set_xlabel("pipeline stages")
    axes.set_ylabel("tensor-parallel degree")
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, extend="max")
    bar.set_label("times the best")
    whole = result.evaluations == result.plans_in_lattice  # else some cells were left out by their bounds
    left_out = "legal, does not fit in memory" if whole else "does not fit, or was not evaluated"
    handles = [Patch(facecolor="none", edgecolor=PALETTE[5], linewidth=2.5, label="the best plan")]
    if result.legal_cells - result.cells.keys():
        handles.append(Patch(facecolor="white", edgecolor=PALETTE[6], hatch="////", label=left_out))
    if len(result.legal_cells) < worse.size:
        handles.append(Patch(facecolor="white", edgecolor=PALETTE[6], linewidth=0.5, label="no legal plan"))
    axes.legend(handles=handles, loc="lower left", bbox_to_anchor=(0, 1.0), ncols=3)
    return figure


def _cell(axes: Axes, row: int, column: int, ratio: float, legal: bool) -> None:
    if np.isnan(ratio):
        if legal:
            box = Rectangle(
                (column - 0.5, row - 0.5), 1, 1, fill=False, hatch="////", edgecolor=PALETTE[6], linewidth=0
            )
            axes.add_patch(box)
        return
    colour = "white" if ratio > 1.9 else BLACK
    figure = f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}"
    axes.text(column, row, figure, ha="center", va="center", fontsize=7, color=colour)


def _tornado(inputs: PlanInputs, result: PlanResult) -> Figure:
    title = f"What would shorten the best plan's step of {units.scaled(result.plans[0].step_s, units.SECONDS)}"
    return tornado({"the machine": result.elasticities}, title, _where(inputs))


def _step_and_memory(inputs: PlanInputs, result: PlanResult, points: np.ndarray) -> Figure:
    """All plans by memory and step: how many lie where, and the fastest for each size of memory."""
    gib, (factor, unit) = points[0] / 2.0**30, units.unit_for(result.plans[0].step_s, units.SECONDS)
    step, limit = points[1] / factor, inputs.cluster.accelerator.hbm_bytes / 2.0**30
    title = f"{points.shape[1]:,} plans by memory and step; beside the line: ranks that are tensor, context, pipeline"
    figure, axes = _figure(inputs, title, 4.6, (0.09, 0.13, 0.80, 0.70))
    shown = (gib < 2 * limit) & (step < _WORST_STEP * step.min())
    scales: Any = {"xscale": "log", "yscale": "log", "bins": "log"}
    cloud = axes.hexbin(gib[shown], step[shown], gridsize=50, cmap="Greys", mincnt=1, linewidths=0.2, **scales)
    bar = figure.colorbar(cloud, cax=figure.add_axes((0.91, 0.13, 0.02, 0.70)))
    log_axis(bar.ax.yaxis, "plans in a cell")
    best_of = front(gib[shown], step[shown])
    across, up = gib[shown][best_of], step[shown][best_of]
    axes.step(across, up, "o-", where="post", color=PALETTE[0], markersize=3, label="nothing is better in both")
    best = result.plans[0]
    axes.plot(best.peak_bytes / 2.0**30, best.step_s / factor, "o", color=PALETTE[5], label="the best plan", zorder=5)
    axes.axvline(limit, color=BLACK, linestyle="--", linewidth=1, label="memory of an accelerator")
    last = np.inf
    for x, y, degrees in zip(across, up, points[2:, shown][:, best_of].T, strict=True):
        if y < 0.8 * last:
            words, last = ",".join(f"{degree:.0f}" for degree in degrees), y
            axes.annotate(words, (x, y), (-4, -9), textcoords="offset points", fontsize=7, ha="right")
    axes.set_xlim(0.7 * across.min(), 2 * limit)
    log_axis(axes.xaxis, "predicted peak memory of an accelerator, GiB")
    log_axis(axes.yaxis, f"step, {unit}")
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3)
    return figure


def front(gib: np.ndarray, step: np.ndarray) -> np.ndarray:
    """Indices of plans that nothing beats in both, from the least memory on."""
    order = np.lexsort((step, gib))
    least = np.minimum.accumulate(step[order])
    return order[np.flatnonzero(np.append(True, least[1:] < least[:-1]))]
