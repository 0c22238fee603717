"""Which cluster should 500 million dollars and 50 megawatts buy to train a 405B and a 671B model, and with which plan?

For each model alone: the cluster of any rates, certified over plans, counts and hardware, and beside it the best of
real parts; then days to train over the money, every point closed to one per cent, what the money is spent on, what more
of each limit would buy, and how often the same choice wins under other prices and other constants of the software.
"""

import csv
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments import runner
from experiments.codesign import figures, frontier, money, robust
from experiments.codesign.tables import plan_words
from experiments.codesign.tables import tables as tables
from optimize import CommandError
from optimize.cli import answer_json
from optimize.cli import resolve_design as resolve
from optimize.clusters import DesignInputs, DesignResult, design
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
    seconds: float = 1500.0
    """Of each model at most; less where every point of its frontier is closed sooner."""
    draws: int = 200
    """Of prices and of constants, under which the choice is judged."""
    quick: bool = False
    """The first model alone, 20 seconds and 20 draws."""
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
    """Resolve, design each model, judge, draw."""
    names = config.models[:1] if config.quick else config.models
    for name in names:
        _resolved(name, config)  # what is wrong is told before any time is spent
    models = _side_by_side(names, config, say)
    limits = {name: getattr(config, name) for name in ("tokens", "budget_usd", "power_mw")}
    results = {**limits, "models": models}
    say("figures")
    figures.draw(results, folder)
    _write_csv(results, folder / "frontier.csv")
    return results


def _side_by_side(names: tuple[str, ...], config: Config, say: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Each model in a process of its own, as many at once as there are cores."""
    cores = os.cpu_count() or 1
    if min(cores, len(names)) < 2:
        return {name: _model(name, config, lambda told, n=name: say(f"{n}: {told}")) for name in names}
    say(f"{', '.join(names)}: designs, frontiers and draws")
    with ProcessPoolExecutor(min(cores, len(names)), mp_context=get_context("spawn")) as pool:
        started = {name: pool.submit(_model, name, config, _quietly) for name in names}
        return {name: answer.result() for name, answer in started.items()}


def _quietly(message: str) -> None:
    """Progress of processes side by side would be mixed up."""
    del message


def _resolved(name: str, config: Config) -> DesignInputs:
    """One question, as `equipoise design` reads it."""
    same = ("tokens", "budget_usd", "power_mw", "sequence", "batch", "accelerators", "fix", "seed")
    flags = {field: getattr(config, field) for field in same}
    flags |= {"model": name, "cluster": config.template, "seconds": 20.0 if config.quick else config.seconds}
    return resolve({field: value for field, value in flags.items() if value is not None})


def _model(name: str, config: Config, say: Callable[[str], None]) -> dict[str, Any]:
    """Both answers for one model, its frontier, what they cost, and how sure the first is."""
    started, inputs = time.perf_counter(), _resolved(name, config)
    nothing = {"continuous": None, "catalogue": None, "frontier": [], "robustness": None}
    try:
        result = design(inputs.jobs, inputs.limits, **inputs.settings(), progress=say)
    except CommandError as error:
        runner.uninterrupted(error.status)
        return {"inputs": inputs.as_json(), **nothing, "notes": [str(error)], "seconds": _since(started)}
    runner.uninterrupted(result.status)
    answers = _answers(inputs, result)
    points, designed_s = frontier.completed(inputs, result), _since(started)
    say("draws of prices and constants")
    judged = robust.judged(frontier.problem_of(inputs), inputs.curves, result, 20 if config.quick else config.draws)
    return {
        "inputs": inputs.as_json(),
        **answers,
        "frontier": [dict(point) for point in points],
        "robustness": judged,
        "notes": list(result.notes),
        "design_seconds": designed_s,
        "seconds": _since(started),
    }


def _since(started: float) -> float:
    return time.perf_counter() - started


def _answers(inputs: DesignInputs, result: DesignResult) -> dict[str, Any]:
    """As programs read them, with what their money is spent on."""
    answers: dict[str, Any] = {"continuous": None, "catalogue": None}
    if result.continuous is not None:
        usd = money.of_curves(result.continuous, inputs.curves)
        answers["continuous"] = {**answer_json(result.continuous), "money_usd": usd}
    if result.catalogue is not None:
        answers["catalogue"] = {**answer_json(result.catalogue), "money_usd": money.of_list(result.catalogue)}
    return answers


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
    """Three sentences: rates of any size, real parts, and how sure the choice is."""
    free, real, sure = [], [], []
    for name, model in results["models"].items():
        any_rates, sold, judged = model["continuous"], model["catalogue"], model["robustness"]
        if any_rates is not None:
            days, least = (any_rates[key] / SECONDS_A_DAY for key in ("value", "lower_bound"))
            free.append(f"{name} {days:.2f} days on {any_rates['cluster']['accelerators']:,.0f} (proved: {least:.2f})")
        if sold is not None:
            count, what = f"{sold['cluster']['accelerators']:,.0f}", sold["cluster"]["name"]
            real.append(f"{name} {sold['value'] / SECONDS_A_DAY:.1f} days on {count} {what}")
        if judged is not None:
            lost = judged["loss_of_plan"]["p90"]
            sure.append(f"{name} {100 * judged['same_plan']:.0f} % (at most {100 * lost:.1f} % lost in nine of ten)")
    return [
        f"With rates of any size the best clusters take: {'; '.join(free)}." if free else "No rates are feasible.",
        f"Of real parts the best are: {'; '.join(real)}." if real else "Nothing feasible is sold.",
        f"Under other prices and constants the same plan on as many stays best in so many draws: {'; '.join(sure)}.",
    ]
