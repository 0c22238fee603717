"""The figures: two orders of one placement as they go by, and four models in each space of plans."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.flexible_plans.spaces import SPACES
from optimize.report import BLACK, PALETTE, files_of

_COLOURS = {"F": PALETTE[4], "B": PALETTE[0], "A": PALETTE[1]}
_WORDS = {"F": "forward", "B": "backward", "A": "block on all devices"}


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write both, as PNG and SVG."""
    drawn = {"timelines": lambda: _timelines(results["timelines"]), "spaces": lambda: _spaces(results["spaces"])}
    for name, content in files_of(drawn).items():
        (folder / name).write_bytes(content)


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
    """Bars over the fastest plan of all."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 3.6), layout="constrained")
    axes, place = figure.add_subplot(), np.arange(len(rows))
    for number, space in enumerate(SPACES):
        values = [np.nan if row["spaces"][space] is None else _over(row, space) for row in rows]
        axes.bar(place + 0.2 * (number - 1.5), values, 0.19, color=PALETTE[number], label=space)
        for x, row in zip(place, rows, strict=True):
            if row["spaces"][space] is None:
                axes.text(x + 0.2 * (number - 1.5), 0.02, "nothing fits", rotation=90, fontsize=7, ha="center")
    axes.axhline(1.0, color=BLACK, linewidth=0.8)
    axes.set_xticks(place, [row["model"] for row in rows])
    axes.set_ylabel("step over that of the fastest plan")
    axes.set_title("Fastest plan of each space on eight accelerators", loc="left")
    figure.legend(loc="outside lower right", ncols=4)
    return figure


def _over(row: Mapping[str, Any], space: str) -> float:
    return row["spaces"][space]["step_s"] / row["spaces"]["all"]["step_s"]
