"""What every figure shares: palette, style, and the files of a set of figures.

Figures are drawn on `matplotlib.figure.Figure` directly: no display, no global state of pyplot.
"""

import functools
import io
import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from optimize import units
from optimize.diagnosis import Elasticity, by_resource

# Okabe and Ito's palette, safe for colour-blind readers; its black is kept for limits and totals
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
BLACK = "#000000"
MARKERS = "osD^vPX*"
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "savefig.dpi": 150,
    "svg.hashsalt": "equipoise",  # the same answer gives the same file
}

_KEPT: ContextVar[dict[str, Figure] | None] = ContextVar("kept", default=None)


def files_of(figures: Mapping[str, Callable[[], Figure | None]]) -> dict[str, bytes]:
    """The content of each file by its name, each figure as PNG and SVG; one that is None has no content to show."""
    with rc_context(_STYLE):
        drawn = {name: draw() for name, draw in figures.items()}
        if (kept := _KEPT.get()) is not None:
            kept.update({name: figure for name, figure in drawn.items() if figure is not None})
            return {}
        return {
            f"{name}.{kind}": _file_of(figure, kind)
            for name, figure in drawn.items()
            if figure is not None
            for kind in ("png", "svg")
        }


def plain_ticks(axis: Axis, values: Iterable[float], digits: int = 3) -> None:
    """Ticks at these values alone, as people write them."""
    ticks = list(values)
    axis.set_ticks(ticks, [_tick(tick, digits) for tick in ticks])
    axis.set_ticks([], minor=True)


def _tick(value: float, digits: int) -> str:
    """`0.05`, `20`, `4,096`, `10 M`: no formula, and no zero that says nothing."""
    factor, prefix = units.unit_for(value, units.DECIMAL[:4]) if abs(value) >= 1e6 else (1.0, "")
    whole = value / factor
    if whole == round(whole):
        return f"{whole:,.0f} {prefix}".rstrip()
    told = f"{whole:.{digits}g}" if abs(whole) < 1e-3 else units.significant(whole, digits)
    return f"{told.rstrip('0').rstrip('.') if '.' in told and 'e' not in told else told} {prefix}".rstrip()


def log_axis(axis: Axis, label: str = "", ticks: Iterable[float] | None = None) -> None:
    """A logarithmic axis whose label says so, with plain ticks at these values; without any, at round ones between its
    ends, which are to be set before."""
    (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")  # pyright: ignore[reportAttributeAccessIssue]
    plain_ticks(axis, _round_numbers(*axis.get_view_interval()) if ticks is None else ticks)
    if label:
        axis.set_label_text(f"{label} (log scale)")


_ROUND = ((1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8), (1, 1.5, 2, 3, 4, 5, 7), (1, 2, 5), (1, 3), (1,))
_TICKS = 8  # at most


def _round_numbers(low: float, high: float) -> list[float]:
    """Numbers between two positive ones, those of few digits first: as many as an axis has room for."""
    low, high = min(low, high) * (1 - 1e-9), max(low, high) * (1 + 1e-9)
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    found: list[float] = []
    for steps in _ROUND:
        numbers = (float(f"{step}e{decade}") for decade in decades for step in steps)
        found = [number for number in numbers if low <= number <= high]
        if len(found) <= _TICKS:
            return found if len(found) > 1 else [low, high]
    return found[:: -(-len(found) // _TICKS)]


_AN_INCH = 13  # characters of the font of headlines
_HEADLINE = {"x": 0.01, "ha": "left", "fontsize": 9}


def headline(figure: Figure, *lines: str) -> None:
    """Lines above a figure, from its left edge; one that is wider goes on below, and no further."""
    wide = int(figure.get_figwidth() * _AN_INCH)
    told = [part for line in lines for part in textwrap.wrap(line, wide, max_lines=2, placeholder=" ...")]
    place = {} if figure.get_layout_engine() else {"y": 1 - 0.09 / figure.get_figheight()}
    figure.suptitle("\n".join(told), **_HEADLINE, **place)


_BARS = 12  # resources whose effect is shown
_SEEN = 5e-4  # of the step: less is no bar


def tornado(answers: Mapping[str, Sequence[Elasticity]], *lines: str) -> Figure:
    """How much shorter the step is with a tenth more of each rate, or less of each cost, of one answer or of two; what
    is not the machine's but the software's is pale. Each resource once."""
    own = [{e.parameter.key: e for e in by_resource(tuple(each))} for each in answers.values()]
    every = {key: e.parameter for each in own for key, e in each.items()}
    most = {key: max(-each[key].tenth for each in own if key in each) for key in every}
    keys = [key for key in sorted(most, key=lambda key: -most[key]) if most[key] > _SEEN][:_BARS]
    figure = Figure(figsize=(7.5, 1.4 + 0.3 * len(answers) ** 0.5 * max(1, len(keys))), layout="constrained")
    axes, high = figure.add_subplot(), 0.76 / len(own)
    for number, each in enumerate(own):
        at = [row for row, key in enumerate(keys) if key in each]
        shorter = [-each[keys[row]].tenth for row in at]
        places = np.array(at) + (number - (len(own) - 1) / 2) * 1.05 * high
        bars = axes.barh(places, [100 * share for share in shorter], height=high, color=_ANSWERS[number])
        for bar, row in zip(bars, at, strict=True):
            bar.set_alpha(1.0 if every[keys[row]].hardware else _PALE)
        axes.bar_label(bars, [units.percent(share) for share in shorter], padding=3, fontsize=7)
    names = [f"10 % {'more' if every[key].rate else 'less'} {every[key].words}" for key in keys]
    axes.set_yticks(range(len(keys)), ["\n".join(textwrap.wrap(name, 48)) for name in names], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("how much shorter the step is, %")
    headline(figure, *lines)
    patches = [Patch(color=colour, label=name) for colour, name in zip(_ANSWERS, answers, strict=False)]
    pale = Patch(color=_ANSWERS[0], alpha=_PALE, label="pale: what software reaches of the machine")
    figure.legend(handles=[*patches, pale], loc="outside lower left", fontsize=8)
    return figure


_ANSWERS = (PALETTE[0], PALETTE[5])
_PALE = 0.4


def figures_of(draw: Callable[[], object]) -> dict[str, Figure]:
    """The figures of what else makes files of them, by name. Notebooks show each without pyplot."""
    kept: dict[str, Figure] = {}
    token = _KEPT.set(kept)
    try:
        draw()
    finally:
        _KEPT.reset(token)
    for figure in kept.values():
        setattr(figure, "_repr_png_", functools.partial(_file_of, figure, "png"))  # noqa: B010 (of this figure alone)
    return kept


def _file_of(figure: Figure, kind: str) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()
