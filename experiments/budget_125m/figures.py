"""The figures: samples per second over the sixteen combinations with the best design, and its shadow prices."""

from pathlib import Path
from typing import Any

import numpy as np

from experiments.runner import write_figures
from optimize.report import BLACK, PALETTE

SHADOWS = {
    "budget": "budget",
    "hbm_bytes_needed": "HBM bytes",
    "second_bytes_needed": "second-memory bytes",
    "second_memory_bytes_per_s": "second-memory bandwidth",
    "hbm_bytes_per_s": "HBM bandwidth",
    "flop_per_s": "FLOP/s",
    "scale_up_bytes_per_s": "scale-up bandwidth",
    "scale_out_bytes_per_s": "scale-out bandwidth",
}


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write `designs` and `shadow_prices`, as PNG and SVG."""
    drawn = {"designs": lambda: _designs(results), "shadow_prices": lambda: _shadow_prices(results)}
    write_figures(drawn, folder)


def _designs(results: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    models = results["models"]
    figure = Figure(figsize=(3.3 * len(models), 3.7), layout="constrained")
    for axes, (name, model) in zip(np.atleast_1d(figure.subplots(1, len(models))), models.items(), strict=True):
        _heat_map(axes, model["combinations"])
        best = model["design"]
        title = f"{name}: {best['samples_per_s']:.0f} samples/s as needed\n" if best else f"{name}\n"
        told = (
            f"{best['accelerators']:,} x ({best['hbm_gib']:.0f} + {best['second_gib']:.0f} GiB)" if best else "no plan"
        )
        axes.set_title(title + told, loc="left", fontsize=9)
    words = "Samples/s for the same money: in the map by listed sizes, the best framed; above it sizes as needed"
    figure.suptitle(words, x=0.01, ha="left", fontsize=9)
    return figure


def _heat_map(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Combinations of listed sizes; hatched where no plan fits, the best one framed."""
    from matplotlib.patches import Rectangle

    hbm, second = (sorted({row[key] for row in rows}) for key in ("hbm", "second"))
    rates = np.full((len(second), len(hbm)), np.nan)
    for row in rows:
        if row["best"]:
            rates[second.index(row["second"]), hbm.index(row["hbm"])] = row["best"]["samples_per_s"]
    axes.set_facecolor("0.9")
    axes.imshow(rates, origin="lower", cmap="cividis")
    best = np.unravel_index(np.nanargmax(rates), rates.shape) if np.isfinite(rates).any() else None
    for place, rate in np.ndenumerate(rates):
        y, x = place
        if np.isnan(rate):
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, hatch="///", edgecolor="0.6", linewidth=0))
            continue
        dark = rate < (np.nanmin(rates) + np.nanmax(rates)) / 2
        weight = "bold" if place == best else "normal"
        axes.text(x, y, f"{rate:.0f}", ha="center", va="center", color="white" if dark else BLACK, fontweight=weight)
    if best is not None:
        axes.add_patch(Rectangle((best[1] - 0.5, best[0] - 0.5), 1, 1, fill=False, edgecolor=PALETTE[5], linewidth=2))
    axes.set_xticks(range(len(hbm)), [f"{size:,}" for size in hbm])
    axes.set_yticks(range(len(second)), [f"{size:,}" for size in second])
    axes.set(xlabel="HBM of an accelerator, GiB", ylabel="second memory, GiB")


def _shadow_prices(results: dict[str, Any]) -> Any:
    from matplotlib.figure import Figure

    models = {name: model for name, model in results["models"].items() if "shadow_prices" in model}
    figure = Figure(figsize=(7.4, 4.2), layout="constrained")
    axes = figure.subplots()
    places, height = np.arange(len(SHADOWS))[::-1], 0.8 / max(1, len(models))
    for i, (colour, (name, model)) in enumerate(zip(PALETTE, models.items(), strict=False)):
        values = [model["shadow_prices"][key] for key in SHADOWS]
        right = [value[1] if isinstance(value, list) else value for value in values]
        bars = axes.barh(places + (len(models) / 2 - 0.5 - i) * height, right, height, color=colour, label=name)
        axes.bar_label(bars, [f"{value:.2f}" for value in right], padding=3, fontsize=8)
    axes.set_yticks(places, list(SHADOWS.values()))
    axes.set_xlabel("% more samples/s for 1 % more of it (of bytes: for 1 % fewer that the plan needs)")
    axes.legend()
    return figure
