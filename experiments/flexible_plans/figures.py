"""The figures: two orders as they go by, gains over each space of plans, and which rates would turn an order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.flexible_plans.rates import GRID, RATES
from experiments.flexible_plans.spaces import SPACES, gain
from experiments.runner import write_figures
from optimize.report import BLACK, PALETTE, log_axis

_PLAIN = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
_COLOURS = {"F": PALETTE[4], "B": PALETTE[0], "A": PALETTE[1]}
_WORDS = {"F": "forward", "B": "backward", "A": "block on all devices"}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write all, as PNG and SVG."""
    drawn = {"timelines": lambda: _timelines(results["timelines"]), "spaces": lambda: _spaces(results["spaces"])}
    for family in dict.fromkeys(row["family"] for row in results["rates"]):
        mine = [row for row in results["rates"] if row["family"] == family]
        drawn[f"rates_{family.replace(' ', '_')}"] = lambda mine=mine: _rates(mine)
    write_figures(drawn, folder)


def _timelines(orders: Mapping[str, Sequence[Sequence[tuple[str, int, float, float]]]]) -> Any:
    """Operations by device; the number is the microbatch."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    figure = Figure(figsize=(9.4, 2.1 * len(orders) + 0.8), layout="constrained")
    longest = max(span[3] for devices in orders.values() for spans in devices for span in spans)
    panels = figure.subplots(len(orders), 1, sharex=True, squeeze=False).ravel()
    for axes, (name, devices) in zip(panels, orders.items(), strict=True):
        end = max(span[3] for spans in devices for span in spans)
        for row, spans in enumerate(devices):
            for block, microbatch, start, stop in spans:
                kind = block[0]
                axes.barh(row, stop - start, 0.86, left=start, color=_COLOURS[kind], edgecolor="white", linewidth=0.5)
                ink = "white" if kind == "B" else BLACK
                axes.text((start + stop) / 2, row, str(microbatch), ha="center", va="center", fontsize=6, color=ink)
        busy = sum(stop - start for spans in devices for _, _, start, stop in spans) / (len(devices) * end)
        axes.set_title(f"{name}: {end:.0f} for 8 microbatches, {100 * (1 - busy):.0f} % idle", loc="left")
        axes.set_yticks(range(len(devices)), [f"device {d}" for d in range(len(devices))])
        axes.set_xlim(0, longest)
        axes.invert_yaxis()
    panels[-1].set_xlabel("time, in forward passes of a stage (backward 3, block on all devices 1)")
    patches = [Patch(color=colour, label=_WORDS[kind]) for kind, colour in _COLOURS.items()]
    figure.legend(handles=patches, loc="outside lower right", ncols=3)
    return figure


def _spaces(rows: Sequence[Mapping[str, Any]]) -> Any:
    """The best plan of each space over the best of all, by accelerators."""
    from matplotlib.figure import Figure

    counts = list(dict.fromkeys(row["accelerators"] for row in rows))
    figure = Figure(figsize=(7.4, 1.5 * len(counts) + 1.0), layout="constrained")
    panels = figure.subplots(len(counts), 1, sharex=True, squeeze=False).ravel()
    for axes, count in zip(panels, counts, strict=True):
        mine = [row for row in rows if row["accelerators"] == count]
        place = np.arange(len(mine))
        for number, space in enumerate(SPACES):
            at = place + 0.26 * (number - 1)
            gains = [gain(row, space) for row in mine]
            heights = [np.nan if each is None else each - 1 for each in gains]
            axes.bar(at, heights, 0.24, bottom=1, color=PALETTE[number], label=space if count == counts[0] else None)
            for x, each in zip(at, gains, strict=True):
                words = "none fits" if each is None else f"{each:.2f}"
                axes.text(
                    x,
                    1.03 if each is None else each + 0.03,
                    words,
                    fontsize=6,
                    ha="center",
                    rotation=90 * (each is None),
                )
        axes.axhline(1.0, color=BLACK, linewidth=0.8)
        axes.set_ylim(0.97, 0.2 + max(each or 1.3 for row in mine for space in SPACES for each in [gain(row, space)]))
        axes.set_title(f"{count} V100", loc="left", fontsize=8)
        axes.set_xticks(place, [row["family"] for row in mine])
    figure.supylabel(
        "step of the best plan that the system knows, times that of the best of all (bars begin at 1)", fontsize=8
    )
    figure.legend(loc="outside lower right", ncols=3)
    return figure


def _rates(rows: Sequence[Mapping[str, Any]]) -> Any:
    """How far losing orders lie behind the winner of one model, over each rate."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(RATES), sharey=True)
    for axes, rate in zip(panels, RATES, strict=True):
        told: list[float] = []  # orders that turn at the same rate are told once
        for number, row in enumerate(rows):
            words = row["loser"]["words"] if rate == next(iter(RATES)) else None
            way = ("-", "--", ":")[number % 3]  # of those that take the same time both are seen
            axes.plot(GRID, row["curves"][rate], way, color=PALETTE[number], label=words)
            factor = row["factors"][rate]
            if factor is None:
                continue
            axes.plot(factor, 1.0, "o", color=PALETTE[number], markersize=5)
            if all(abs(factor / other - 1) > 0.05 for other in told):
                words = f"{factor:.2g}x, {row['prices'][rate]:+,.0f} USD"
                at = (6, 8 + 11 * len(told))
                left = factor > 1.5  # else the words leave the panel
                look = {"fontsize": 6.5, "color": PALETTE[number], "bbox": _PLAIN, "ha": "right" if left else "left"}
                axes.annotate(
                    words, (factor, 1.0), (-at[0] if left else at[0], at[1]), textcoords="offset points", **look
                )
                told.append(factor)
        axes.axhline(1.0, color=BLACK, linewidth=0.8)
        axes.axvline(1.0, color=BLACK, linewidth=0.4, linestyle=":")
        log_axis(axes.xaxis, ticks=(1 / 8, 1 / 2, 1, 2, 8))
        axes.set_xlabel(f"times the {rate}")
    panels[0].set_ylabel("step, times that of the winner")
    title = f"{rows[0]['model']} on {rows[0]['accelerators']} V100; the winner is {rows[0]['winner']['words']}"
    words = "a point: where another takes the same time, and what that rate adds to the price of an accelerator"
    figure.suptitle(f"{title}\n{words}", x=0.01, ha="left", fontsize=9)
    figure.legend(loc="outside lower right", ncols=3)
    return figure
