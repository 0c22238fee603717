"""The two figures: throughput over batch size, and start-up times."""

from pathlib import Path
from typing import Any

from experiments.runner import write_figures
from optimize.report import BLACK, PALETTE, log_axis

BLUE, ORANGE, GREEN, SKY, VERMILION = (PALETTE[i] for i in (0, 1, 2, 4, 5))


def draw(results: dict[str, Any], folder: Path) -> None:
    """Write throughput and startup, as PNG and SVG."""
    seconds = results["startup"]["seconds"]
    write_figures({"throughput": lambda: _throughput(results), "startup": lambda: _startup(seconds)}, folder)


def _throughput(results: dict[str, Any]) -> Any:
    """Evaluations a second over plans in a batch, with the machine's limit."""
    from matplotlib.figure import Figure

    speed = results["one_core"]["throughput"]
    limit = results["one_core"]["limit"]["per_s"]["value"]
    figure = Figure(figsize=(7.4, 4.6), layout="constrained")
    axes = figure.subplots()
    lines = (
        ("jax_per_s", "JAX values", BLUE, "o", "-"),
        ("gradient_per_s", "JAX gradients by the plan", VERMILION, "s", "-"),
        ("numpy_per_s", "NumPy values", GREEN, "^", "-"),
    )
    for key, label, colour, marker, style in lines:
        sizes = [int(size) for size in speed[key]]
        axes.plot(sizes, list(speed[key].values()), color=colour, marker=marker, linestyle=style, label=label)
    both = max(results["two_cores"].values(), default=None)
    if both:
        axes.plot([speed["value_batch"]], [both], "D", color=SKY, markeredgecolor=BLUE, label="JAX values, two cores")
    memory = results["memory"]
    total = memory["plans"] / memory["total_s"]
    axes.plot([memory["plans"]], [total], "P", color=ORANGE, label="drawn, evaluated and kept, two cores")
    axes.axhline(limit, color=BLACK, linestyle="--", linewidth=1)
    axes.annotate("limit of one core", (1e3, limit), (0, 4), textcoords="offset points", fontsize=9)
    axes.axhline(speed["python_per_s"], color=BLACK, linestyle=":", linewidth=1.4)
    axes.annotate(
        "Python floats, one plan at a time",
        (1e3, speed["python_per_s"]),
        (0, 5),
        textcoords="offset points",
        fontsize=9,
    )
    axes.set_title("Values and gradients of plans; one core where none is said", loc="left")
    axes.set(xlim=(700, 2 * memory["plans"]), ylim=(speed["python_per_s"] / 3, 4 * max(limit, both or 0)))
    log_axis(axes.xaxis, "plans evaluated together")
    log_axis(axes.yaxis, "plans evaluated in a second")
    axes.grid(which="major", color="0.88")
    axes.legend(fontsize=9, loc="center right", bbox_to_anchor=(1.0, 0.34))
    return figure


def _startup(seconds: dict[str, float]) -> Any:
    """Wall seconds of new processes, with `import jax` as the yardstick."""
    from matplotlib.figure import Figure

    names = list(seconds)[::-1]
    figure = Figure(figsize=(7.4, 0.9 + 0.34 * len(names)), layout="constrained")
    axes = figure.subplots()
    colours = [GREEN if name.startswith("explain") else ORANGE if "first" in name else BLUE for name in names]
    bars = axes.barh(names, [seconds[name] for name in names], color=colours)
    axes.axvline(seconds["import jax"], color=BLACK, linestyle="--", linewidth=1)
    labels = axes.bar_label(bars, [f"{seconds[name]:.2f} s" for name in names], padding=4, fontsize=9)
    for label in labels:
        label.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1})  # over the dashed line
    axes.set_xlim(0, 1.12 * max(seconds.values()))
    axes.set_xlabel("time of a new process by the clock, s, median; dashed: import jax")
    return figure
