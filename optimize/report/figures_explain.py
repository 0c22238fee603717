"""The figures of `explain --out`: step time as a waterfall, memory by stage, operators on the roofline."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from costmodel.evaluators import prepare
from costmodel.formulas import Term, rates
from optimize import units
from optimize.diagnosis import Explanation, RoofedOperator, limiting, times
from optimize.report.drawing import BLACK, PALETTE, files_of, headline, log_axis
from optimize.report.figures_timeline import draw_timeline
from optimize.report.words import memory_words, term_words


def draw_explanation(explanation: Explanation) -> dict[str, bytes]:
    """The content of each file by its name: four figures, each as PNG and SVG, and the trace of the pipeline."""
    figures = {"step_time": _step_time, "memory": _memory, "roofline": _roofline}
    drawn = files_of({name: functools.partial(draw, explanation) for name, draw in figures.items()})
    inputs = explanation.inputs
    return drawn | draw_timeline(inputs.workload, inputs.cluster, inputs.plan)


def draw_comparison(first: Explanation, second: Explanation) -> dict[str, bytes]:
    """`against` as PNG and SVG: the terms of both steps side by side, the largest change first."""
    return files_of({"against": functools.partial(_against, first, second)})


_LEAST = 5e-4  # of the longer step: shorter terms of both are left out


def _against(first: Explanation, second: Explanation) -> Figure:
    both = (("A", first, PALETTE[0]), ("B", second, PALETTE[5]))
    longest = max(each.breakdown.step_s for _, each, _ in both)
    (factor, unit), rows = units.unit_for(longest, units.SECONDS), times(first, second)
    rows = [row for row in rows if max(row[1:]) >= _LEAST * longest]
    decimals = units.decimals_of(longest / factor)
    figure = Figure(figsize=(7.5, 1.9 + 0.36 * len(rows)), layout="constrained")
    axes, places = figure.add_subplot(), np.arange(len(rows))
    for number, (letter, each, colour) in enumerate(both):
        shown = np.array([row[1 + number] for row in rows]) / factor
        label = f"{letter}: {units.scaled(each.breakdown.step_s, units.SECONDS)} in all"
        bars = axes.barh(places + 0.4 * number - 0.2, shown, height=0.38, color=colour, label=label)
        axes.bar_label(bars, [units.fixed(value, decimals) for value in shown], padding=3, fontsize=7)
    axes.set_yticks(places, [term_words(name) for name, *_ in rows])
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel(f"exposed time of a step, {unit}")
    plans = (f"{letter}: {_place(each)}; {units.shorten_runs(str(each.inputs.plan))}" for letter, each, _ in both)
    headline(figure, f"{first.inputs.workload.name}: steps term by term, the largest change first", *plans)
    figure.legend(loc="outside lower left", ncols=2)
    return figure


def _place(explanation: Explanation) -> str:
    cluster = explanation.inputs.cluster
    return f"{cluster.accelerators:,} {cluster.name}"


def _axes(explanation: Explanation, title: str, box: tuple[float, float, float, float]) -> tuple[Figure, Axes]:
    """A figure and its axes at a fixed place: left, bottom, width, height (a search for it would double the time)."""
    inputs = explanation.inputs
    figure = Figure(figsize=(7.5, 4.5))
    headline(figure, title, f"{inputs.workload.name} on {_place(explanation)}", units.shorten_runs(str(inputs.plan)))
    return figure, figure.add_axes(box)


def _step_time(explanation: Explanation) -> Figure:
    """Terms one after the other; what is hidden hangs pale below its term."""
    breakdown = explanation.breakdown
    factor, unit = units.unit_for(breakdown.step_s, units.SECONDS)
    terms = [term for term in breakdown.terms if limiting(term) is not None]
    figure, axes = _axes(
        explanation,
        f"Step time {units.scaled(breakdown.step_s, units.SECONDS)}, term by term",
        (0.20, 0.19, 0.78, 0.64),
    )
    start = 0.0
    for row, term in enumerate(terms):
        exposed, hidden = term.exposed_s / factor, max(0.0, term.hidden_s) / factor
        axes.barh(row, exposed, left=start, color=_colour(term), height=0.7)
        if hidden > 0.002 * breakdown.step_s / factor:
            axes.barh(row, hidden, left=start - hidden, color="none", edgecolor=_colour(term), hatch="////", height=0.7)
        share = units.percent(term.exposed_s / breakdown.step_s)
        axes.annotate(share, (start + exposed, row), (4, 0), textcoords="offset points", va="center", fontsize=8)
        start += exposed
    axes.barh(len(terms), start, color=BLACK, height=0.7)
    axes.set_yticks(range(len(terms) + 1), [*(term_words(term.name) for term in terms), "step"])
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), 1.1 * start)
    axes.set_xlabel(f"time since the start of the step, {unit}, as if one after the other")
    _legend_of_groups(figure)
    return figure


_GROUPS = {"compute": PALETTE[0], "exposed traffic": PALETTE[1], "idle, overhead": PALETTE[6]}
_COMPUTE = ("matmuls", "attention", "norms, activations", "recompute", "embedding, head", "optimizer")
_TRAFFIC = (
    "tensor traffic",
    "context traffic",
    "expert traffic",
    "data traffic",
    "pipeline transfers",
    "shared links",
    "offload",
)


def _colour(term: Term) -> str:
    group = "compute" if term.name in _COMPUTE else "exposed traffic" if term.name in _TRAFFIC else "idle, overhead"
    return _GROUPS[group]


def _legend_of_groups(figure: Figure) -> None:
    patches = [Patch(color=colour, label=name) for name, colour in _GROUPS.items()]
    hidden = Patch(facecolor="none", edgecolor=PALETTE[1], hatch="////", label="traffic hidden behind compute")
    figure.legend(handles=[*patches, hidden], loc="lower left", ncols=4)


def _memory(explanation: Explanation) -> Figure:
    """One stacked bar a stage, and the limit."""
    stages, limit_bytes = explanation.stages, explanation.breakdown.limit_bytes
    fullest = explanation.fullest
    moment = f"stage {fullest.number}, {fullest.moment}"
    title = f"Memory at each stage's peak; highest {units.scaled(fullest.peak_bytes, units.BYTES)} ({moment})"
    figure, axes = _axes(explanation, title, (0.08, 0.11, 0.57 if explanation.second_bytes else 0.72, 0.72))
    offloads = explanation.second_bytes > 0
    numbers, base = [stage.number for stage in stages], [0.0] * len(stages)
    names = [name for name in stages[0].terms if any(stage.terms[name] > 0 for stage in stages)]
    colours = _colours((*names, *stages[0].second))
    at, wide = ([number - 0.2 for number in numbers], 0.4) if offloads else (numbers, 0.8)
    for name in names:
        heights = [stage.terms[name] / 2.0**30 for stage in stages]
        axes.bar(at, heights, bottom=base, width=wide, color=colours[name], label=memory_words(name))
        base = [below + height for below, height in zip(base, heights, strict=True)]
    limit = limit_bytes / 2.0**30
    axes.axhline(limit, color=BLACK, linestyle="--", label=f"limit {limit:.1f} GiB")
    highest = max(limit, *base, _second_memory(axes, explanation, colours))
    axes.set_ylim(0, 1.1 * highest)
    axes.set_xlim(0.4, len(stages) + 0.6 if len(stages) > 1 else 1.6)
    step = -(-len(stages) // 16)
    axes.set_xticks(numbers[::step])
    axes.set_xlabel("pipeline stage")
    axes.set_ylabel("memory of one accelerator, GiB")
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles[::-1], labels[::-1], loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _colours(names: Sequence[str]) -> dict[str, str]:
    return dict(zip(dict.fromkeys(names), (*PALETTE, BLACK, "#663300", "#C0C0C0", "#000080"), strict=False))


def _second_memory(axes: Axes, explanation: Explanation, colours: dict[str, str]) -> float:
    """What is offloaded, hatched beside each stage's bar, and its limit; the highest of them in GiB."""
    if explanation.second_bytes == 0:
        return 0.0
    stages, limit = explanation.stages, explanation.breakdown.second_limit_bytes / 2.0**30
    beside, base = [stage.number + 0.2 for stage in stages], [0.0] * len(stages)
    for name in stages[0].second:
        heights = [stage.second[name] / 2.0**30 for stage in stages]
        if any(heights):
            style: dict[str, Any] = {"color": "none", "edgecolor": colours[name], "hatch": "////"}
            axes.bar(beside, heights, bottom=base, width=0.4, label=f"second memory: {memory_words(name)}", **style)
        base = [below + height for below, height in zip(base, heights, strict=True)]
    axes.axhline(limit, color=BLACK, linestyle=":", label=f"second memory: limit {limit:.1f} GiB")
    return max(limit, *base)


def _roofline(explanation: Explanation) -> Figure:
    """FLOP/s against FLOP a byte, forward, with the roofs of the data sheet and of what kernels reach."""
    inputs = explanation.inputs
    _, cluster, point = prepare(inputs.workload, inputs.cluster, inputs.plan)
    speed, hbm = rates(cluster.accelerator, point, cluster.stack), cluster.accelerator.hbm_bytes_per_s
    reached = 1.0 / speed.matmul_s_per_flop
    peak = reached / cluster.stack.matmul_ceiling
    figure, axes = _axes(
        explanation, "Operators of one microbatch on one accelerator, forward", (0.10, 0.11, 0.53, 0.72)
    )
    at = [operator.flop / operator.bytes_moved for operator in explanation.operators]
    span = min(at) / 4, 4 * max(*at, reached / hbm)
    _roof(axes, span, hbm, peak, "-", f"data sheet: {units.rate(peak, 'FLOP/s')}, {units.rate(hbm, 'B/s')}")
    _roof(axes, span, 1.0 / speed.memory_s_per_byte, reached, ":", "what large kernels reach")
    _points(axes, explanation.operators)
    slowest = min(operator.flop / operator.seconds for operator in explanation.operators)
    axes.set(xlim=span, ylim=(0.5 * min(slowest, span[0] * hbm), 2 * peak))
    log_axis(axes.xaxis, "FLOP per byte of HBM traffic")
    log_axis(axes.yaxis, "FLOP/s of one accelerator")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _roof(axes: Axes, span: tuple[float, float], bandwidth: float, peak: float, line: str, label: str) -> None:
    x = [span[0], peak / bandwidth, span[1]]
    axes.plot(x, [min(peak, bandwidth * value) for value in x], line, color=BLACK, linewidth=1, label=label)


def _points(axes: Axes, operators: tuple[RoofedOperator, ...]) -> None:
    """A colour for each operator, another shape once the colours are used up; those that only move data share one."""
    computing = {operator.name: operator for operator in operators if operator.kind != "memory"}
    for index, (name, operator) in enumerate(computing.items()):
        shape = "s" if operator.kind == "attention" else "oDPvX<>"[index // len(PALETTE) % 7]
        colour = PALETTE[index % len(PALETTE)]
        label = f"{name}: {units.rate(operator.flop / operator.seconds, 'FLOP/s')}"
        _mark(axes, [operator], shape, colour, label)
    moving = [operator for operator in operators if operator.kind == "memory"]
    _mark(axes, moving, "^", PALETTE[6], "moves data only (1 FLOP an element)")


def _mark(axes: Axes, operators: Sequence[RoofedOperator], shape: str, colour: str, label: str) -> None:
    x = [operator.flop / operator.bytes_moved for operator in operators]
    y = [operator.flop / operator.seconds for operator in operators]
    axes.plot(x, y, shape, color=colour, label=label, markersize=7, markeredgecolor="white", clip_on=False)
