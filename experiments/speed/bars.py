"""What the speed of the model must be, and whether it is: each bar with its figure, within one run."""

from typing import Any

from experiments.speed.structures import together

PYTHON_ONE_CORE = 1_000.0
PYTHON_TWO_CORES = 1_700.0
LIMIT = 4.0
GRADIENTS = 1_500.0
BY_HARDWARE = 600.0
GRADIENT_LIMIT = 5.0
GRID = 6.0
MEMORY_BYTES = 2.0 * 2**30
EXPLAIN = 0.7
EXPLAIN_OUT = 4.0


Bar = dict[str, Any]


def bar(name: str, value: float | None, bound: float, at_least: bool, unit: str, note: str = "") -> Bar:
    """One requirement, and whether it is met. `value` is None where it could not be measured, and `note` says why."""
    passed = None if value is None else value >= bound if at_least else value <= bound
    told = {"name": name, "value": value, "bound": bound, "at_least": at_least, "unit": unit, "note": note}
    return {**told, "passed": passed}


def bars(results: dict[str, Any]) -> list[Bar]:
    """Every bar, from the results of one run."""
    core = results["one_core"]
    speed = core["throughput"]
    python, value = speed["python_per_s"], max(speed["jax_per_s"].values())
    gradient, both_ways = max(speed["gradient_per_s"].values()), speed["by_hardware_per_s"]
    grid = core["grid"]
    lattice = grid["lattice"]["numpy_s"] / grid["lattice"]["jax_s"]
    axes = grid["axes"]["numpy_s"] / grid["axes"]["jax_s"]
    both = max(results["two_cores"].values(), default=None)
    memory = results["memory"]["peak_rss_bytes"]
    return [
        bar("values, one core, over Python floats", value / python, PYTHON_ONE_CORE, True, "x"),
        bar("values, two cores, over Python floats", both and both / python, PYTHON_TWO_CORES, True, "x",
            "" if both else "one core only"),
        bar("the machine's limit over values, one core", core["limit"]["per_s"]["value"] / value, LIMIT, False, "x"),
        bar("gradients by the plan over Python floats' values", gradient / python, GRADIENTS, True, "x"),
        bar("gradients by plan and hardware over Python floats' values", both_ways and both_ways / python, BY_HARDWARE,
            True, "x", "" if both_ways else "not with --quick"),
        bar("the machine's limit over gradients by the plan", core["limit"]["per_s"]["gradient by plan"] / gradient,
            GRADIENT_LIMIT, False, "x"),
        bar("grid in NumPy over JAX, laid out as a lattice", lattice, GRID, False, "x",
            f"with an axis for each degree: {axes:.1f} x"),
        bar(f"peak memory of {results['memory']['plans']:,} plans", memory / 2**30, MEMORY_BYTES / 2**30, False, "GiB"),
        *_structure_bars(results["structures"]),
        *_explain_bars(results["startup"]),
    ]  # fmt: skip


def _structure_bars(measured: dict[str, dict[str, Any]]) -> list[Bar]:
    """Each against a loop over the same structure, and all three against a loop over all three."""
    ratios = {row["model"]: max(row["jax_per_s"].values()) / row["python_per_s"] for row in measured.values()}
    python, jax = together(measured)
    ratios["three structures of block"] = jax / python
    return [bar(f"values, one core, {name}", ratio, PYTHON_ONE_CORE, True, "x") for name, ratio in ratios.items()]


def _explain_bars(startup: dict[str, Any]) -> list[Bar]:
    seconds, failed = startup["seconds"], startup["failed"]
    against = seconds["import jax"]

    def over_jax(name: str, bound: float) -> Bar:
        value = seconds[name] / against if name in seconds else None
        note = failed.get(name, "") if value else failed.get(name, "no optimize.cli yet")
        return bar(f"{name}, over `import jax`", value, bound, False, "x", note)

    return [
        over_jax("explain", EXPLAIN),
        over_jax("explain, cached", EXPLAIN),
        over_jax("explain --out", EXPLAIN_OUT),
        over_jax("explain --out, cached", EXPLAIN_OUT),
    ]
