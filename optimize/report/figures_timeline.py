"""The pipeline of a plan as it goes by: operations by stage, and the memory of each below them; and a Chrome trace."""

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from costmodel.inputs import Cluster, Plan, Workload
from optimize import units
from optimize.diagnosis import Span, Timeline, chrome_trace, timeline
from optimize.report.drawing import BLACK, PALETTE, files_of, headline

_WIDTH_IN = 9.0
_MOST_DRAWN = 160  # operations of a stage in one picture; else its start and its end are drawn
_DIGIT_IN, _LINE_IN = 0.045, 0.09  # of a number in a bar
_WORDS = {"F": "forward", "B": "backward", "W": "weight gradient", "FB": "forward with backward", "BW": "backward"}
_COLOURS = {"F": PALETTE[4], "B": PALETTE[0], "W": PALETTE[2], "FB": PALETTE[3], "BW": PALETTE[0]}
_AFTER = PALETTE[6]


def draw_timeline(workload: Workload, cluster: Cluster, plan: Plan) -> dict[str, bytes]:
    """`timeline` as PNG and SVG, and `trace.json` for Perfetto; nothing where the operations are too many."""
    found = timeline(workload, cluster, plan)
    if found is None:
        return {}
    trace = chrome_trace(found)
    files = files_of({"timeline": lambda: _figure(workload, cluster, plan, found)})
    return files if trace is None else files | {"trace.json": trace}


def _figure(workload: Workload, cluster: Cluster, plan: Plan, found: Timeline) -> Figure:
    stages = len(found.spans)
    rows_in = min(6.0, 0.5 + 0.28 * stages)
    height = rows_in + 3.2
    figure = Figure(figsize=(_WIDTH_IN, height))
    windows = _windows(found)
    factor, unit = units.unit_for(found.step_s, units.SECONDS)
    for place, window in enumerate(windows):
        left, width = 0.07 + 0.48 * place, 0.90 if len(windows) == 1 else 0.42
        upper = figure.add_axes((left, 2.35 / height, width, rows_in / height))
        lower = figure.add_axes((left, 0.65 / height, width, 1.45 / height))
        _operations(upper, found, window, factor, (_WIDTH_IN * width, rows_in / stages))
        _memory(lower, found, window, factor)
        lower.set_xlabel(f"{'end' if place else 'time'} of the step, {unit} since its start")
        if place == 0:
            upper.set_ylabel("stage")
            lower.set_ylabel("memory, GiB")
    bubble = units.percent(1 - _busy_s(found) / (stages * found.passes_s))
    where = f"{workload.name} on {cluster.accelerators:,} {cluster.name}"
    length = f"{stages} stages" if stages > 1 else "one stage"
    title = f"One pipeline of {length}, played out: {bubble} of the passes idle"
    headline(figure, title, where, units.shorten_runs(str(plan)))
    _legend(figure, found)
    return figure


def _windows(found: Timeline) -> list[tuple[float, float]]:
    """The whole step, or its start and its end where it would be too fine to see."""
    most = max(map(len, found.spans))
    if most <= _MOST_DRAWN:
        return [(0.0, found.step_s)]
    back_s = max(next(span.end_s for span in spans if "B" in span.kind) for spans in found.spans)
    each_s = min(max(found.passes_s * 0.5 * _MOST_DRAWN / most, 1.2 * back_s), 0.5 * found.passes_s)
    after_s = min(found.step_s - found.passes_s, each_s)
    return [(0.0, each_s), (found.passes_s - each_s, found.passes_s + after_s)]


def _busy_s(found: Timeline) -> float:
    return sum(span.end_s - span.start_s for spans in found.spans for span in spans)


def _operations(
    axes: Axes, found: Timeline, window: tuple[float, float], factor: float, row_in: tuple[float, float]
) -> None:
    for stage, spans in enumerate(found.spans):
        shown = [span for span in spans if span.end_s > window[0] and span.start_s < window[1]]
        for kind in dict.fromkeys(_kind(span) for span in shown):
            bars = [_bar(span, factor) for span in shown if _kind(span) == kind]
            axes.broken_barh(bars, (stage + 0.6, 0.8), color=_COLOURS[kind], edgecolor="white", linewidth=0.4)
        after_s = found.step_s - found.passes_s
        axes.broken_barh([(found.passes_s / factor, after_s / factor)], (stage + 0.6, 0.8), color=_AFTER)
        _number(axes, [span for span in shown if has_room(span, window, *row_in)], stage, factor)
    stages = len(found.spans)
    axes.set_xlim(window[0] / factor, window[1] / factor)
    axes.set_ylim(stages + 0.5, 0.5)
    axes.set_yticks(range(1, stages + 1, -(-stages // 16)))
    axes.tick_params(labelbottom=False)


def _kind(span: Span) -> str:
    return "FB" if {"F", "B"} <= set(span.kind) else span.kind


def _bar(span: Span, factor: float) -> tuple[float, float]:
    return span.start_s / factor, (span.end_s - span.start_s) / factor


def _microbatches(span: Span) -> list[str]:
    """Those of its parts, counted from 1."""
    return [str(n + 1) for n in dict.fromkeys(task.microbatch for task in span.parts)]


def has_room(span: Span, window: tuple[float, float], wide_in: float, high_in: float) -> bool:
    """Whether its numbers are no wider than its bar, and no higher than its row, one below the other."""
    numbers, share = _microbatches(span), (span.end_s - span.start_s) / (window[1] - window[0])
    return share * wide_in >= _DIGIT_IN * max(map(len, numbers)) and high_in >= _LINE_IN * len(numbers)


def _number(axes: Axes, spans: Sequence[Span], stage: int, factor: float) -> None:
    """The microbatches of operations."""
    for span in spans:
        middle_s = 0.5 * (span.start_s + span.end_s)
        axes.text(
            middle_s / factor,
            stage + 1,
            "\n".join(_microbatches(span)),
            ha="center",
            va="center",
            fontsize=5,
            color=BLACK if _kind(span) == "F" else "white",
            clip_on=True,
        )


def _memory(axes: Axes, found: Timeline, window: tuple[float, float], factor: float) -> None:
    """A line for each stage, from dark to light, and the limit."""
    stages = len(found.spans)
    for stage, held in enumerate(found.held_bytes):
        times = [at_s / factor for at_s, _ in held] + [found.passes_s / factor]
        gib = [held_bytes / 2.0**30 for _, held_bytes in held]
        colour = colormaps["viridis"](stage / max(1, stages - 1) * 0.9)
        axes.step(times, [*gib, gib[-1]], where="post", color=colour, linewidth=1)
    limit = found.limit_bytes / 2.0**30
    axes.axhline(limit, color=BLACK, linestyle="--", linewidth=1)
    highest = max(limit, *(held_bytes / 2.0**30 for held in found.held_bytes for _, held_bytes in held))
    axes.set_ylim(0, 1.1 * highest)
    axes.set_xlim(window[0] / factor, window[1] / factor)
    axes.text(window[0] / factor, limit, " limit", va="bottom", fontsize=7)


def _legend(figure: Figure, found: Timeline) -> None:
    kinds = dict.fromkeys(_kind(span) for spans in found.spans for span in spans)
    names = {_WORDS[kind]: _COLOURS[kind] for kind in kinds} | {"gradients, optimizer, processor": _AFTER}
    handles = [Patch(color=colour, label=name) for name, colour in names.items()]
    stages = len(found.spans)
    if stages > 1:
        for stage, name in ((0, "first stage"), (stages - 1, "last stage")):
            handles.append(Patch(color=colormaps["viridis"](stage / (stages - 1) * 0.9), label=f"memory: {name}"))
    place = {"loc": "lower left", "bbox_to_anchor": (0.06, 0.0), "ncols": len(handles)}
    figure.legend(handles=handles, **place, fontsize=7, handlelength=1.2, columnspacing=1.0)
