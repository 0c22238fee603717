"""One figure: days to the loss by budget, one choice after the other, and all together."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize import units
from optimize.report import PALETTE

_WAYS = {
    "one after the other": lambda row: row["in_turn"],
    "together, real parts": lambda row: row["together"]["real_parts"],
    "together, rates of any size": lambda row: row["together"]["any_rates"],
}


def draw(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write `days`, as PNG and SVG."""
    write_figures({"days": lambda: _days(rows)}, folder)


def _days(rows: Sequence[Mapping[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.6), layout="constrained")
    axes, place = figure.add_subplot(), np.arange(len(rows))
    for number, (label, of) in enumerate(_WAYS.items()):
        days = [np.nan if of(row) is None else of(row)["days"] for row in rows]
        if np.isnan(days).all():  # time was up before
            continue
        bars = axes.bar(place + 0.27 * (number - 1), days, 0.25, color=PALETTE[number], label=label)
        axes.bar_label(
            bars, ["" if np.isnan(each) else units.significant(each) for each in days], fontsize=7, padding=1
        )
    labels = [f"{row['budget_usd'] / 1e6:,.0f} M USD\nloss {row['target']['loss']:.1f}" for row in rows]
    axes.set_xticks(place, labels)
    axes.set(ylabel="days to the loss")  # from zero: the length of a bar is what it says
    axes.legend()
    return figure
