"""Which cluster should 500 million dollars and 50 megawatts buy to train a 405B and a 671B model, and with which plan?

For each model alone: the cluster of any rates, certified over all plans, counts and hardware, and beside it the best
of real parts. Then days to train over the money, what the money is spent on, and what more of each limit would buy.
"""

import csv
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.codesign import figures, frontier, money
from experiments.codesign.tables import plan_words
from experiments.codesign.tables import tables as tables
from optimize import CommandError
from optimize.cli import answer_json
from optimize.cli import resolve_design as resolve
from optimize.clusters import DesignInputs, design
from optimize.question import SECONDS_A_DAY


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the `codesign` experiment."""

    models: tuple[str, ...] = ("llama3-405b", "deepseek-v3")
    """Names or files; each is designed for alone."""
    tokens: float = 15e12
    budget_usd: float = 500e6
    """Capital."""
    power_mw: float = 50.0
    """At the facility's meter while training, cooling and losses included."""
    template: str = "gb200-nvl72"
    """Gives domains, latencies, software and the level of prices."""
    seconds: float = 60.0
    """Of each design."""
    frontier_seconds: float = 40.0
    """Of each model, for budgets that the design's own frontier did not reach."""
    quick: bool = False
    """The first model alone, 20 seconds and its own frontier."""
    sequence: int | None = None
    """Tokens; left out: each model's own."""
    batch: int | None = None
    """Sequences; left out: each model's own."""
    accelerators: int | None = None
    """At most; left out: any number."""
    fix: str | None = None
    """Fields of plans that are not searched, such as `context=1,zero_stage=1`."""
    seed: int = 0


def run(config: Config, folder: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Resolve, design, draw."""
    names = config.models[:1] if config.quick else config.models
    asked = {name: _resolved(name, config) for name in names}  # what is wrong is told before any time is spent
    spare_s = 0.0 if config.quick else config.frontier_seconds
    models = {name: _model(inputs, spare_s, lambda told, n=name: say(f"{n}: {told}")) for name, inputs in asked.items()}
    limits = {name: getattr(config, name) for name in ("tokens", "budget_usd", "power_mw")}
    results = {**limits, "models": models}
    say("figures")
    figures.draw(results, folder)
    _write_csv(results, folder / "frontier.csv")
    return results


def _resolved(name: str, config: Config) -> DesignInputs:
    """One question, as `equipoise design` reads it."""
    same = ("tokens", "budget_usd", "power_mw", "sequence", "batch", "accelerators", "fix", "seed")
    flags = {field: getattr(config, field) for field in same}
    flags |= {"model": name, "cluster": config.template, "seconds": 20.0 if config.quick else config.seconds}
    return resolve({field: value for field, value in flags.items() if value is not None})


def _model(inputs: DesignInputs, frontier_seconds: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Both answers for one model, its frontier and what they cost."""
    started = time.perf_counter()
    try:
        result = design(inputs.jobs, inputs.limits, **inputs.settings(), progress=say)
    except CommandError as error:
        spent_s = time.perf_counter() - started
        nothing = {"continuous": None, "catalogue": None, "frontier": [], "notes": [str(error)]}
        return {"inputs": inputs.as_json(), **nothing, "design_seconds": spent_s, "seconds": spent_s}
    answers: dict[str, Any] = {"continuous": None, "catalogue": None}
    if result.continuous is not None:
        usd = money.of_curves(result.continuous, inputs.curves)
        answers["continuous"] = {**answer_json(result.continuous), "money_usd": usd}
    if result.catalogue is not None:
        answers["catalogue"] = {**answer_json(result.catalogue), "money_usd": money.of_list(result.catalogue)}
    designed_s = time.perf_counter() - started
    points = frontier.completed(inputs, result, frontier_seconds, say)
    return {
        "inputs": inputs.as_json(),
        **answers,
        "frontier": [dict(point) for point in points],
        "notes": list(result.notes),
        "design_seconds": designed_s,
        "seconds": time.perf_counter() - started,
    }


def _write_csv(results: dict[str, Any], path: Path) -> None:
    hardware = ("flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("model", "budget_usd", "days", "days_at_least", "gap", "accelerators", *hardware, "plan"))
        for name, point in _points(results):
            days = (point["value"] / SECONDS_A_DAY, point["lower_bound"] / SECONDS_A_DAY, point["gap"])
            rates = (point["hardware"][key] for key in hardware)
            plan = plan_words(point["plan"])
            writer.writerow((name, point["budget_usd"], *days, point["accelerators"], *rates, plan))


def _points(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Points of all models at which something is feasible."""
    for name, model in results["models"].items():
        yield from ((name, point) for point in model["frontier"] if point["value"] is not None)


def answer(results: Mapping[str, Any]) -> list[str]:
    """A sentence for each model with rates of any size, and one for real parts."""
    told, real = [], []
    for name, model in results["models"].items():
        free, sold = model["continuous"], model["catalogue"]
        if free is not None:
            days, least = (free[key] / SECONDS_A_DAY for key in ("value", "lower_bound"))
            count = f"{free['cluster']['accelerators']:,.0f}"
            told.append(
                f"{name} trains in {days:.2f} days on {count} of the best rates, and in no less than {least:.2f}."
            )
        if sold is not None:
            count, what = f"{sold['cluster']['accelerators']:,.0f}", sold["cluster"]["name"]
            real.append(f"{name} {sold['value'] / SECONDS_A_DAY:.1f} days on {count} {what}")
    return [*told, f"Of real parts the best are: {'; '.join(real)}." if real else "Nothing feasible is sold."]
