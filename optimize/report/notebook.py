"""Results in a notebook or printed: the same paragraphs, tables and figures as on a terminal and on a page."""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from matplotlib.figure import Figure

from costmodel.formulas import Breakdown
from costmodel.measured import Calibrated
from costmodel.specs import show
from optimize import units
from optimize.clusters import DesignResult
from optimize.diagnosis import Explanation, Predictions, constant_words, limiting
from optimize.layers import LayersResult
from optimize.plans import PlanInputs, PlanResult
from optimize.report.design import show_design
from optimize.report.drawing import BLACK, PALETTE, figures_of, files_of
from optimize.report.explain import BESIDE_BARS, show_explanation, time_table
from optimize.report.figures_design import draw_design
from optimize.report.figures_explain import draw_explanation
from optimize.report.figures_plan import draw_plans
from optimize.report.figures_predict import draw_predictions
from optimize.report.page import Part, fragment
from optimize.report.plan import show_plans
from optimize.report.rows import show_predictions
from optimize.report.screen import kept, new_console, say, written
from optimize.report.words import constant_amount, term_words
from optimize.status import Status

_STYLE = """<style>.equipoise td,.equipoise th{text-align:left}.equipoise .right{text-align:right}
.equipoise .bar{color:#0072B2;font-family:monospace}.equipoise .dim{opacity:.7}
.equipoise .wide{overflow-x:auto}</style>"""


def as_html(result: Any) -> str:
    """What a notebook shows of a result."""
    return f'<div class="equipoise">{_STYLE}{fragment(_of(result)[0]())}</div>'


def as_text(result: Any) -> str:
    """What `print` shows of a result."""
    return written(_of(result)[0])


def as_figure(result: Any, name: str | None = None) -> Figure:
    """The figure of that name, or the first. Raises `ValueError` for a name that no figure has."""
    figures = figures_of(_of(result)[1])
    name = next(iter(figures)) if name is None and figures else name
    if name not in figures:
        raise ValueError(f"`name` is {show(name)}; expected one of {', '.join(figures) or 'nothing: it has no figure'}")
    return figures[name]


def _of(result: Any) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    """What shows a result, and what draws it."""
    return next(make(result) for kind, make in _KINDS.items() if isinstance(result, kind))


def _screen(show_screen: Callable[..., None], *arguments: Any) -> Callable[[], Sequence[Part]]:
    return lambda: kept(functools.partial(show_screen, *arguments))


def _plan(result: PlanResult) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    inputs = PlanInputs(
        model=result.workload.name,
        workload=result.workload,
        cluster=result.cluster,
        fixed=result.fixed,
        objective=result.objective,
        tokens=None,
        top=len(result.plans),
        out=None,
        margin=result.margin,
    )
    return _screen(show_plans, inputs, result), functools.partial(draw_plans, inputs, result)


def _design(result: DesignResult) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    asked: Any = SimpleNamespace(jobs=result.jobs, limits=result.limits, template=result.template)
    return _screen(show_design, asked, result), functools.partial(draw_design, result)


def _show_terms(found: Breakdown) -> None:
    """Time by term and the fullest stage's memory."""
    console = new_console()
    peak, limit = (units.scaled(float(size), units.BYTES) for size in (found.memory.peak_bytes, found.limit_bytes))
    say(console, f"step {units.scaled(float(found.step_s), units.SECONDS, 4)}, MFU {units.percent(float(found.mfu))}")
    console.print(time_table(found, console.width - BESIDE_BARS))
    say(console, f"{'fits' if found.fits else 'does not fit'} in memory: {peak} of {limit}")


def _bars(names: Sequence[str], values: Sequence[float], words: str) -> Figure:
    figure = Figure(figsize=(6.4, 1.0 + 0.28 * len(names)), layout="constrained")
    axes = figure.add_subplot()
    axes.barh(range(len(names)), values, color=PALETTE[0])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_xlabel(words)
    return figure


def _drawn(name: str, bars: Mapping[str, float], words: str) -> Callable[[], object]:
    draw = functools.partial(_bars, [*bars], [*bars.values()], words)
    return lambda: files_of({name: draw})


def _breakdown(found: Breakdown) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    bars = {term_words(term.name): float(term.exposed_s) for term in found.terms if limiting(term) is not None}
    return _screen(_show_terms, found), _drawn("step_time", bars, "exposed seconds of the step")


def _layers(found: LayersResult) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    bars = {f"stage {number}": count for number, count in enumerate(found.stage_layers, 1)}
    recompute = itertools.groupby(found.recompute_by_block)
    rows = [
        ("step", units.scaled(found.step_s, units.SECONDS, 4)),
        ("nothing is better by more than", units.percent(found.gap)),
        ("layers of each stage", units.shorten_runs(",".join(map(str, found.stage_layers)))),
        ("sequences of a microbatch", str(found.microbatch)),
        ("recompute of each layer", ", ".join(f"{len([*own])} x {kind}" for kind, own in recompute)),
    ]
    said = [] if found.status is Status.ok else [found.message]
    return lambda: [*said, (("what", "found"), rows)], _drawn("layers", bars, "layers of each stage")


def _calibrated(found: Calibrated) -> tuple[Callable[[], Sequence[Part]], Callable[[], object]]:
    rows = [(constant_words(name), *(constant_amount(name, end) for end in ends)) for name, *ends in found.moved]
    errors = [f"row {i + 1}" for i in found.used]
    bars = dict(zip(errors, map(float, found.after), strict=True))
    head = f"all times x {found.common:.3g}; {len(found.used)} rows used"
    parts: list[Part] = [head, (("constant", "before", "after"), rows), *found.problems]
    return lambda: parts, _drawn("errors", bars, "|log(predicted / measured)|, each row predicted without itself")


_KINDS: Mapping[type, Callable[[Any], tuple[Callable[[], Sequence[Part]], Callable[[], object]]]] = {
    Explanation: lambda found: (_screen(show_explanation, found), functools.partial(draw_explanation, found)),
    PlanResult: _plan,
    DesignResult: _design,
    Predictions: lambda found: (_screen(show_predictions, "rows", found, ()), lambda: draw_predictions(found)),
    Breakdown: _breakdown,
    LayersResult: _layers,
    Calibrated: _calibrated,
}
