"""The figures: days to train over the money, with what is not proved, and what the money of each answer is spent on."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from experiments.codesign.money import PARTS
from experiments.runner import write_figures
from optimize import units
from optimize.question import SECONDS_A_DAY
from optimize.report import PALETTE, log_axis

COLOURS = [PALETTE[i] for i in (0, 5, 2, 3, 4, 1, 6)]
_PARTS: dict[str, str] = dict(zip(PARTS, (PALETTE[i] for i in (0, 2, 4, 6, 7, 1, 5)), strict=True))
_WORDS = {"servers": "servers (not listed by part)"}
_DARK = ("FLOP/s",)  # bars with white letters
_SHOWN = 0.03  # of the money, from which a part's share is written into its bar


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write `frontier`, `money` and `robustness`, as PNG and SVG."""
    figures = {"frontier": _frontier, "money": _money, "robustness": _robustness}
    write_figures({name: functools.partial(draw, results) for name, draw in figures.items()}, folder)


def _frontier(results: dict[str, Any]) -> Any:
    """One line for each model, a band from its bound to its value, and a diamond for real parts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 5.4), layout="constrained")
    axes, budgets, days = figure.add_subplot(), set(), []
    for colour, (name, model) in zip(COLOURS, results["models"].items(), strict=False):
        points = [point for point in model.get("frontier", []) if point["value"] is not None]
        if points:
            budgets |= {point["budget_usd"] / 1e6 for point in points}
            days += _line(axes, name, points, colour)
        real = model.get("catalogue")
        if real is not None:
            days.append(real["value"] / SECONDS_A_DAY)
            label = f"{name}: real parts ({real['cluster']['name']})"
            axes.plot([results["budget_usd"] / 1e6], days[-1:], "D", color=colour, markerfacecolor="white", label=label)
    log_axis(axes.xaxis, "capital, million USD", sorted(budgets))
    if days:
        axes.set_ylim(0.9 * min(days), 1.25 * max(days))
    log_axis(axes.yaxis, "days to train")
    told = f"{results['tokens'] / 1e12:g} T tokens, at most {results['power_mw']:g} MW at the meter"
    title = f"{told}; numbers are accelerators\nbounds hold at the points; between them lines and bands guide the eye"
    axes.set_title(title, loc="left", fontsize=9)
    if days:
        figure.legend(loc="outside lower left", fontsize=8)
    return figure


def _line(axes: Any, name: str, points: list[dict[str, Any]], colour: str) -> list[float]:
    """Draw the points of one model; their days, bounds and values."""
    x = [point["budget_usd"] / 1e6 for point in points]
    low, high = ([point[key] / SECONDS_A_DAY for point in points] for key in ("lower_bound", "value"))
    worst = max(point["gap"] for point in points)
    axes.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    label = f"{name}: rates of any size (band: not proved, up to {units.significant(100 * worst, 2)} %)"
    axes.plot(x, high, "o-", color=colour, label=label)
    for across, up, point in zip(x, high, points, strict=True):
        text = f"{point['accelerators']:,.0f}"
        axes.annotate(text, (across, up), (4, 5), textcoords="offset points", fontsize=7, color=colour)
    return [*low, *high]


def _money(results: dict[str, Any]) -> Any:
    """A bar for each answer: shares of its money."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = list(_bars(results))
    figure = Figure(figsize=(7.4, 1.5 + 0.5 * len(rows)), layout="constrained")
    axes, used = figure.add_subplot(), set()
    for number, (_, money) in enumerate(rows):
        start, whole = 0.0, sum(money.values())
        for part in (part for part in PARTS if part in money):
            share = 100 * money[part] / whole
            axes.barh(number, share, left=start, color=_PARTS[part], edgecolor="white", height=0.7)
            if share > 100 * _SHOWN:
                ink = "white" if part in _DARK else "black"
                axes.text(start + share / 2, number, f"{share:.0f}", ha="center", va="center", fontsize=8, color=ink)
            start += share
            used.add(part)
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.invert_yaxis()
    axes.set(xlim=(0, 100), xlabel="% of the purchase")
    patches = [Patch(color=_PARTS[part], label=_WORDS.get(part, part)) for part in PARTS if part in used]
    figure.legend(handles=patches, loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _bars(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Label and money of each answer."""
    for name, model in results["models"].items():
        for key in ("continuous", "catalogue"):
            answer = model.get(key)
            if answer is not None:
                own = "any rates" if key == "continuous" else answer["cluster"]["name"]
                yield (
                    f"{name}\n{own}, {units.significant(sum(answer['money_usd'].values()) / 1e6)} M USD",
                    answer["money_usd"],
                )


def _robustness(results: dict[str, Any]) -> Any:
    """Over the share of draws, what the choice loses: of its plan, and of the cluster as it is bought."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.6), layout="constrained")
    axes = figure.add_subplot()
    words = {"loss_of_plan": "the plan kept, rates chosen anew", "loss_of_cluster": "the cluster kept as bought"}
    judged = {name: model["robustness"] for name, model in results["models"].items() if model.get("robustness")}
    for colour, (name, each) in zip(COLOURS, judged.items(), strict=False):
        for style, (key, told) in zip(("-", "--"), words.items(), strict=True):
            losses = sorted(100 * loss for loss in each["losses"][key])
            shares = [100 * (place + 1) / len(losses) for place in range(len(losses))]
            axes.step(losses, shares, style, color=colour, label=f"{name}: {told}", where="post")
    axes.set(xlabel="more days than the best for that draw, %", ylabel="share of the draws with no more, %")
    axes.set(xlim=(-0.1, None), ylim=(0, 101))
    if judged:
        draws = max(each["draws"] for each in judged.values())
        axes.set_title(f"{draws} draws of prices and of the software's constants", loc="left", fontsize=9)
        axes.legend(loc="lower right", fontsize=8)
    return figure
