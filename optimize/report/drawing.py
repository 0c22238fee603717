"""What every figure shares: palette, style, and the files of a set of figures.

Figures are drawn on `matplotlib.figure.Figure` directly: no display, no global state of pyplot.
"""

import functools
import io
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any

from matplotlib import rc_context
from matplotlib.axis import Axis
from matplotlib.figure import Figure

from optimize import units

# Okabe and Ito's palette, safe for colour-blind readers; its black is kept for limits and totals
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999", "#F0E442")
BLACK = "#000000"
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
    axis.set_ticks(ticks, [units.significant(tick, digits) for tick in ticks])
    axis.set_ticks([], minor=True)


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
