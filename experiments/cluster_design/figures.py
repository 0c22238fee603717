"""The figures: the sweep, the second memory, scaling of rates, clusters that are sold and the best at equal cost."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, MARKERS, PALETTE, log_axis


def draw(results: Mapping[str, Any], folder: Path) -> None:
    """Write all of them, as PNG and SVG."""
    drawn = {
        "sweep": lambda: _sweep(results["sweep"], results["footprints"]),
        "expansion": lambda: _expansion(results["expansion"]),
        "scaling": lambda: _scaling(results["scaling"]),
        "clusters": lambda: _clusters(results["clusters"], results["equal_cost"]),
    }
    write_figures(drawn, folder)


def _sweep(rows: Sequence[Mapping[str, Any]], footprints: Mapping[str, Sequence[float]]) -> Any:
    """Seconds over MP, and what an accelerator holds by ZeRO stage."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    degrees = [row["tensor"] for row in rows]
    fit = np.array([row["fits"] for row in rows])
    for number, (key, label) in enumerate((("hidden_s", "gradient traffic hidden"), ("exposed_s", "exposed"))):
        values, colour = np.array([row[key] for row in rows]), PALETTE[number]
        left.plot(degrees, values, color=colour, label=label)
        for fits, fill in ((True, colour), (False, "white")):
            at = fit == fits
            left.plot(np.array(degrees)[at], values[at], MARKERS[number], color=colour, markerfacecolor=fill)
    left.plot([], [], "o", color=BLACK, markerfacecolor="white", label="hollow: more than 72 of 80 GB")
    for stage, values in enumerate(np.array([footprints[f"{d}_{1024 // d}"] for d in degrees]).T):
        right.plot(degrees, values, marker=MARKERS[stage], color=PALETTE[stage], label=f"ZeRO {stage}", markersize=5)
    right.axhline(72, color=BLACK, linewidth=1, linestyle=":", label="72 of 80 GB, the rest activations'")
    for axes in (left, right):
        log_axis(axes.xaxis, "tensor ranks (data ranks: 1,024 / tensor)", degrees[::2])
        axes.legend()
    left.set_ylim(10, 1000)
    log_axis(left.yaxis, "step, s")
    left.set_title("time with ZeRO 2, assumed rates", loc="left")
    log_axis(right.yaxis, "weights, gradients, states, GB")
    right.set_title("what one accelerator holds", loc="left")
    return figure


def _expansion(rows: Sequence[Mapping[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.4, 4.2), layout="constrained")
    axes = figure.add_subplot()
    degrees = list(dict.fromkeys(row["degree"] for row in rows))
    for row in rows:
        number = degrees.index(row["degree"])
        style = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5}
        line, words = ("-", "hidden") if row["hidden"] else ("--", "exposed")
        label = f"{row['degree']} tensor ranks, gradient traffic {words}"
        axes.plot(np.array(row["bandwidth"]) / 1e9, row["gain"], line, label=label, **style)
    axes.axhline(1.0, color=BLACK, linewidth=1)
    axes.axhline(1.4, color=BLACK, linewidth=1, linestyle=":")
    axes.annotate("published abstract: up to 1.4", (400, 1.43), fontsize=8)
    ticks = [5, 10, 20, 50, 100, 200, 500, 1000, 2000]
    log_axis(axes.xaxis, "bandwidth of the second memory in each direction, GB/s", ticks)
    axes.set(ylim=(0, 2.1), ylabel="speed, times that of 64 tensor ranks in 80 GB of HBM")
    axes.set_title("Weights, gradients and states beyond 72 GB lie in a second memory", loc="left")
    axes.legend(loc="lower right")
    return figure


def _scaling(rows: Sequence[Mapping[str, Any]]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.6), layout="constrained")
    names = list(dict.fromkeys(row["rate"] for row in rows))
    memories = list(dict.fromkeys(row["memory"] for row in rows))
    for axes, memory in zip(figure.subplots(1, 2, sharey=True), memories, strict=True):
        for row in (row for row in rows if row["memory"] == memory):
            number = names.index(row["rate"])
            style = {"color": PALETTE[number], "marker": MARKERS[number], "markersize": 5}
            axes.plot(row["factors"], row["gain"], label=row["rate"], **style)
        log_axis(axes.xaxis, "times the rate, others as they are", (0.5, 1, 2, 4, 8))
        axes.set_title("HBM alone" if memory == memories[0] else "HBM and a second memory of 100 GB/s", loc="left")
    figure.axes[0].set_ylabel("speed of the best plan, times that at rate 1")
    figure.axes[0].set_ylim(0, 1.05 * max(max(row["gain"]) for row in rows))
    figure.axes[0].legend()
    return figure


def _clusters(rows: Sequence[Mapping[str, Any]], money: Mapping[str, Any]) -> Any:
    """Bars of seconds, and of the best hardware at equal cost with its bound."""
    from matplotlib.figure import Figure

    labels = [row["cluster"] for row in rows]
    best = money["pipelines"]
    figure = Figure(figsize=(7.4, 1.6 + 0.42 * (len(labels) + 1)), layout="constrained")
    axes, place = figure.add_subplot(), np.arange(len(labels))
    kinds = (("sweep_s", "tensor and data ranks alone"), ("pipelines_s", "pipelines too"))
    for number, (key, label) in enumerate(kinds):
        values = [np.nan if row[key] is None else row[key] for row in rows]
        axes.barh(place + 0.2 * (2 * number - 1), values, 0.38, color=PALETTE[number], label=label)
    label = f"best rates for the money of {money['template']}"
    axes.barh(len(labels), best["step_s"], 0.6, color=PALETTE[2], label=label)
    axes.plot(
        [best["lower_bound_s"]], [len(labels)], "|", color=BLACK, markersize=14, label="with any rates none is faster"
    )
    for at, row in enumerate(rows):
        if row["sweep_s"] is None:
            axes.text(0, at - 0.2, " nothing fits", va="center", fontsize=8)
    axes.set_yticks(range(len(labels) + 1), [*labels, "any rates"])
    axes.invert_yaxis()
    axes.set_xlabel("step of Megatron 1T, 1,024 sequences of 2,048 tokens on 1,024 accelerators, s")
    axes.legend(loc="lower right")
    return figure
