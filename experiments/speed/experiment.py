"""How fast is the model, beside plain Python, NumPy and what the machine could do at most?

Start-up of new processes; compile time by role and compiler options; evaluations and gradients a second over batch
sizes, on one core and on two; three structures of block; a broadcast grid; peak memory. Every plan has every option
switched on in a random mix. Ratios are taken within one run, each figure is the best of many, because others use the
machine too.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from experiments.runner import write_table
from experiments.speed import bars, figures, processes, startup
from experiments.speed.structures import together

QUICK_PLANS, QUICK_REPEATS = 1_000_000, 1
QUICK = {
    "seconds": 0.05,
    "sizes": (1_000, 100_000),
    "gradient_sizes": (8_192,),
    "candidates": ("512-bit",),
    "roles": ("value",),
    "by_hardware": False,
    "links": (64,),
}
THOROUGH = {
    "sizes": (1_000, 10_000, 100_000, 1_000_000),
    "gradient_sizes": (1_000, 10_000, 100_000),
    "candidates": ("default", "512-bit", "512-bit, no fusion", "no emitters, 512-bit"),
    "roles": ("value", "gradient by plan", "gradient by plan and hardware"),
    "by_hardware": True,
    "links": (64, 160),
}
"""What `evaluators.Bench` times, quickly or not."""


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    quick: bool = False,
    seed: int = 0,
    plans: int = 10_000_000,
    repeats: int = 5,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """Measure, draw, compare with the bars.

    Args:
        quick: Half a minute: fewer sizes, repeats and compiler options.
        seed: Of the random plans.
        plans: How many are evaluated, and kept, where memory is measured.
        repeats: Rounds of new processes.
        seconds: For each figure of throughput.
    """
    on, effort = processes.cores()[-2:], QUICK if quick else {"seconds": seconds, **THOROUGH}
    results: dict[str, Any] = {"startup": startup.seconds(QUICK_REPEATS if quick else repeats, not quick, say)}
    say("one core: values, gradients, grids, compile times, the machine's rates; three structures of block")
    with ThreadPoolExecutor(2 if quick else 1) as side_by_side:  # each process on a core of its own
        core = side_by_side.submit(processes.measure, "one_core", on[-1:], effort=effort, plans=256, seed=seed)
        order = {"seconds": effort["seconds"], "plans": 64, "seed": seed, "thorough": not quick}
        others = side_by_side.submit(processes.measure, "structures", on[:1], **order)
    core, others = core.result(), others.result()
    results["one_core"], results["structures"] = core, others
    say("two cores")
    batch = core["throughput"]["value_batch"]
    several = len(on) > 1
    results["two_cores"] = processes.two_cores(on, batch, effort["seconds"], 5, seed) if several else {}
    say("memory")
    plans = min(plans, QUICK_PLANS) if quick else plans
    results["memory"] = processes.measure("many_plans", on, plans=plans, seed=seed)
    results["bars"] = bars.bars(results)
    figures.draw(results, folder)
    write_table(("what", "plans", "per_s"), _throughput_rows(results), folder / "throughput.csv")
    return results


def _throughput_rows(results: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
    """What was evaluated, in batches of how many plans, how many a second; one core unless it says otherwise."""
    speed = results["one_core"]["throughput"]
    yield "Python floats", 1, speed["python_per_s"]
    for label, key in (
        ("NumPy", "numpy_per_s"),
        ("JAX", "jax_per_s"),
        ("JAX gradient by plan", "gradient_per_s"),
        ("JAX, from and to NumPy arrays", "batch_cost_per_s"),
    ):
        for size, per_s in speed[key].items():
            yield label, int(size), per_s
    if speed["by_hardware_per_s"]:
        yield "JAX gradient by plan and hardware", speed["gradient_batch"], speed["by_hardware_per_s"]
    memory = results["memory"]
    yield "JAX, plans drawn, results kept, two cores", memory["plans"], memory["plans"] / memory["total_s"]
    for label, per_s in results["two_cores"].items():
        yield f"JAX, two cores: {label}", speed["value_batch"], per_s
    yield from _structure_rows(results["structures"])
    for layout, grid in results["one_core"]["grid"].items():
        if isinstance(grid, dict):
            for library in ("numpy", "jax"):
                plans = results["one_core"]["grid"]["plans"]
                yield f"grid ({layout}), {library}", plans, plans / grid[f"{library}_s"]


def _structure_rows(measured: dict[str, Any]) -> Iterator[tuple[str, int, float]]:
    for label, row in measured.items():
        yield f"{label}, Python floats", 1, row["python_per_s"]
        for size, per_s in row["jax_per_s"].items():
            yield f"{label}, JAX", int(size), per_s


def _structures_table(results: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table("structure", "model", "per second", "x Python", "compile s", "plans", "kinds", "operators",
                  title="Structures of block, one program each, one core", title_justify="left")  # fmt: skip
    measured = results["structures"]
    for label, row in measured.items():
        plans, per_s = max(row["jax_per_s"].items(), key=lambda item: item[1])
        rates = f"{per_s:,.0f}", f"{per_s / row['python_per_s']:,.0f}"
        sizes = f"{row['compile_s']:.1f}", f"{int(plans):,}", str(row["kinds"]), str(row["operators"])
        table.add_row(label, row["model"], *rates, *sizes)
    python, jax = together(measured)
    table.add_row("all three, summed outside", "", f"{jax:,.0f}", f"{jax / python:,.0f}", "", "", "", "")
    return table


def _limits_table(limit: dict[str, Any]) -> Any:
    from rich.table import Table

    kinds = tuple(limit["rates_per_s"])
    table = Table("program", "limit, M a second", *(kind.replace("_", " ") for kind in kinds),
                  title="Operations a plan, and the machine's limit", title_justify="left")  # fmt: skip
    for name, operations in limit["operations"].items():
        table.add_row(name, f"{limit['per_s'][name] / 1e6:,.1f}", *(f"{operations[kind]:,.1f}" for kind in kinds))
    table.add_row("rate, G a second", "", *(f"{limit['rates_per_s'][kind] / 1e9:.1f}" for kind in kinds))
    return table


def tables(results: dict[str, Any]) -> Iterator[Any]:
    """What the terminal shows: throughput, the limit, compile times, start-up, and the bars last."""
    from rich.table import Table

    python, own = results["one_core"]["throughput"]["python_per_s"], set(_structure_rows(results["structures"]))
    speed = Table("evaluated", "plans", "per second", "x Python", title="Throughput", title_justify="left")
    for label, size, per_s in _throughput_rows(results):
        if (label, size, per_s) not in own:  # which have a table below, beside their own loops
            speed.add_row(label, f"{size:,}", f"{per_s:,.0f}", f"{per_s / python:,.0f}")
    yield speed
    yield _limits_table(results["one_core"]["limit"])
    compiled = Table("role", "options", "trace s", "compile s", "per second", "chosen", title="Compilation",
                     title_justify="left")  # fmt: skip
    for row in results["one_core"]["compile"]:
        times = (f"{row['trace_s']:.2f}", f"{row['compile_s']:.2f}", f"{row['per_s']:,.0f}")
        compiled.add_row(row["role"], row["options"], *times, "yes" if row["chosen"] else "")
    yield compiled
    yield _structures_table(results)
    yield from _closing_tables(results)


def _closing_tables(results: dict[str, Any]) -> Iterator[Any]:
    from rich.table import Table

    start = Table("new process", "seconds", title="Start-up, median", title_justify="left")
    for name, seconds in results["startup"]["seconds"].items():
        start.add_row(name, f"{seconds:.3f}")
    yield start
    table = Table("bar", "measured", "required", "", title="Bars", title_justify="left")
    words = {True: "[green]pass[/green]", False: "[red]FAIL[/red]", None: "not measured"}
    for bar in results["bars"]:
        value = bar["note"] if bar["value"] is None else f"{bar['value']:,.2f} {bar['unit']}"
        sign = ">=" if bar["at_least"] else "<="
        note = f" ({bar['note']})" if bar["note"] and bar["value"] is not None else ""
        table.add_row(bar["name"] + note, value, f"{sign} {bar['bound']:,g} {bar['unit']}", words[bar["passed"]])
    yield table


def answer(results: dict[str, Any]) -> list[str]:
    """Three sentences."""
    bars = results["bars"]
    missed = [f"{bar['name']} ({bar['value']:.3g} {bar['unit']})" for bar in bars if bar["passed"] is False]
    first = bars[0]
    return [
        f"{first['name'].capitalize()}: {first['value']:,.0f} {first['unit']} (asked {first['bound']:g}).",
        f"{sum(bar['passed'] is True for bar in bars)} of {len(bars)} bars are met.",
        "Missed: " + "; ".join(missed) + "." if missed else "None is missed.",
    ]
