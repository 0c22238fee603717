"""The figures: shares by columns of a rank, the map of elasticities, generations of accelerators."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, MARKERS, PALETTE, log_axis

_APART = 1.12 ** np.arange(-1, 2)  # so that the three series are seen beside each other


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write `shares`, `elasticities` and `generations`, as PNG and SVG."""
    drawn = {
        "shares": lambda: _shares(results),
        "elasticities": lambda: _elasticities(results["map"]),
        "generations": lambda: _generations(results["generations"]),
    }
    write_figures(drawn, folder)


def _shares(results: Mapping[str, Any]) -> Any:
    """Serialized share over the columns that a rank keeps, one series for each growth of FLOP/s."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 4.2), layout="constrained")
    axes, rows = figure.add_subplot(), results["grid"]["rows"]
    columns = np.array([row["hidden"] / row["tensor"] for row in rows])
    axes.axhspan(40, 75, color="0.9", zorder=0, label="40 to 75 %: the range of the paper's abstract")
    for number, k in enumerate((1, 2, 4)):
        share = 100 * np.array([row[f"share_{k}"] for row in rows])
        shifted = columns * _APART[number]
        style = {"s": 14, "alpha": 0.55, "linewidths": 0, "marker": MARKERS[number], "color": PALETTE[number]}
        axes.scatter(shifted, share, label=f"FLOP/s over bandwidth {k}x", **style)
    for row in results["table"]:
        hidden, _, tensor = row["point"]
        axes.plot(hidden / tensor * _APART, row["expected"], "_", color=BLACK, markersize=11)
    label = f"derived by counting, for {len(results['table'])} of the layers"
    axes.plot([], [], "_", color=BLACK, markersize=11, label=label)
    log_axis(axes.xaxis, "columns of the layer's width on a tensor rank", sorted(set(columns.tolist())))
    axes.set(ylim=(0, 100))
    axes.set_ylabel("communication that nothing hides, % of a layer's time")
    axes.set_title(f"{len(rows)} layers on an MI210 that reaches fixed shares of its data sheet", loc="left")
    axes.legend(loc="upper right")
    return figure


def _elasticities(found: Mapping[str, Any]) -> Any:
    """Three heat maps over width and tensor degree."""
    from matplotlib.figure import Figure

    names = ("FLOP/s", "scale-up bandwidth", "scale-out bandwidth")
    figure = Figure(figsize=(9.4, 3.9), layout="constrained")
    grid = figure.subplots(1, len(names), sharey=True)
    picture: Any = None
    for axes, name in zip(grid, names, strict=True):
        values = np.array(found["elasticities"][name])
        picture = axes.imshow(values, origin="lower", vmin=0, vmax=1, cmap="cividis", aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            ink = BLACK if value > 0.55 else "white"
            axes.text(j, i, f"{value:.2f}".lstrip("0"), ha="center", va="center", fontsize=7, color=ink)
        axes.set_xticks(range(len(found["tensor"])), [f"{t:.0f}" for t in found["tensor"]])
        axes.set_yticks(range(len(found["hidden"])), [f"{h:,.0f}" for h in found["hidden"]])
        axes.set_title(name, loc="left")
        axes.set_xlabel("tensor ranks")
        axes.spines[:].set_visible(False)
    grid[0].set_ylabel("width of the layer")
    label = "% less time for 1 % more of it"
    figure.colorbar(picture, ax=grid, label=label, shrink=0.9)
    figure.suptitle(
        f"What a layer's time depends on: {found['device']}, 4,096 tokens, as calibrated", x=0.01, ha="left"
    )
    return figure


def _generations(found: list[Mapping[str, Any]]) -> Any:
    """Share by width for each accelerator; beside it the ratio of FLOP to bytes at which it would be 5 %."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, each in enumerate(found):
        style = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5, "label": each["cluster"]}
        left.plot(each["hidden"], 100 * np.array(each["share"]), **style)
        ratio = each["flop_per_byte"][0] * np.array([np.nan if x is None else x for x in each["small_at"]])
        right.plot(each["hidden"], ratio, **style)
        right.axhline(each["flop_per_byte"][0], color=PALETTE[number], linewidth=0.8, linestyle=":")
    for axes in (left, right):
        log_axis(axes.xaxis, "width of the layer", found[0]["hidden"])
    left.set(ylim=(0, None), ylabel="communication that nothing hides, % of a layer's time")
    left.set_title("8 tensor ranks, 4,096 tokens", loc="left")
    log_axis(right.yaxis, "16-bit FLOP/s over bytes/s of scale-up links")
    right.set_title("ratio at which it is 5 % (solid); the machine's (dotted)", loc="left", fontsize=9)
    left.legend()
    return figure
