"""Which cluster should 500 million dollars and 50 megawatts buy to train a 405B and a 671B model, and with which plan?

For each model alone: the cluster of any rates, certified over plans, counts and hardware, and beside it the best of
real parts; then days to train over the money, every point closed to one per cent, what the money is spent on, what more
of each limit would buy, and how often the same choice wins under other prices and other constants of the software.
"""

import time
from collections.abc import Callable, Iterator, Mapping
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

HARDWARE = ("flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
COLUMNS = ("model", "budget_usd", "days", "days_at_least", "gap", "accelerators", *HARDWARE, "plan")


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    models: tuple[str, ...] = ("llama3-405b", "deepseek-v3"),
    tokens: float = 15e12,
    budget_usd: float = 500e6,
    power_mw: float = 50.0,
    template: str = "gb200-nvl72",
    work: float = 1e7,
    seconds: float = 1500.0,
    draws: int = 200,
    quick: bool = False,
    sequence: int | None = None,
    batch: int | None = None,
    accelerators: int | None = None,
    fix: str | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Resolve, design each model, judge, draw.

    Args:
        models: Names or files; each is designed for alone.
        budget_usd: Capital.
        power_mw: At the facility's meter while training, cooling and losses included.
        template: Gives domains, latencies, software and the level of prices.
        work: Evaluations of each search and of each point of a frontier, after which it ends if its gap is not closed.
        seconds: Of each model; where they are up before that, it is told, and answers may differ another time.
        draws: Of prices and of constants, under which the choice is judged.
        quick: The first model alone, 300,000 evaluations and 20 draws.
        sequence: Tokens; left out: each model's own.
        batch: Sequences; left out: each model's own.
        accelerators: At most; left out: any number.
        fix: Fields of plans that are not searched, such as `context=1,zero_stage=1`.
    """
    limits = {"tokens": tokens, "budget_usd": budget_usd, "power_mw": power_mw}
    flags = {**limits, "sequence": sequence, "batch": batch, "accelerators": accelerators, "fix": fix, "seed": seed}
    flags |= {"cluster": template, "seconds": seconds}
    given = {field: value for field, value in flags.items() if value is not None}
    effort = (20, 3e5) if quick else (draws, work)
    asked = {name: ({"model": name, **given}, *effort) for name in (models[:1] if quick else models)}
    for own, *_ in asked.values():
        resolve(own)  # what is wrong is told before any time is spent
    results = {**limits, "models": runner.side_by_side(_model, asked, "designs, frontiers and draws", say)}
    say("figures")
    figures.draw(results, folder)
    runner.write_table(COLUMNS, _rows(results), folder / "frontier.csv")
    return results


def _model(name: str, flags: Mapping[str, Any], draws: int, work: float, say: Callable[[str], None]) -> dict[str, Any]:
    """Both answers for one model, its frontier, what they cost, and how sure the first is; `flags` as `design` has
    them."""
    started, inputs = time.perf_counter(), resolve(flags)
    nothing = {"continuous": None, "catalogue": None, "frontier": [], "robustness": None}
    try:
        asked = {**inputs.settings(), "progress": lambda told: say(f"{name}: {told}"), "work": work}
        result = design(inputs.jobs, inputs.limits, **asked)
    except CommandError as error:
        runner.uninterrupted(error.status)
        return {"inputs": inputs.as_json(), **nothing, "notes": [str(error)], "seconds": _since(started)}
    runner.uninterrupted(result.status)
    answers = _answers(inputs, result)
    points, designed_s = frontier.completed(inputs, result), _since(started)
    say(f"{name}: draws of prices and constants")
    judged = robust.judged(frontier.problem_of(inputs), inputs.curves, result, draws)
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


def _rows(results: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    for name, point in _points(results):
        days = (point["value"] / SECONDS_A_DAY, point["lower_bound"] / SECONDS_A_DAY, point["gap"])
        rates = (point["hardware"][key] for key in HARDWARE)
        yield name, point["budget_usd"], *days, point["accelerators"], *rates, plan_words(point["plan"])


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
            sure.append(
                f"{name} {100 * judged['same_plan']:.0f} % (in nine of ten it loses at most {100 * lost:.1f} %)"
            )
    return [
        f"With rates of any size the best clusters take: {'; '.join(free)}." if free else "No rates are feasible.",
        f"Of real parts the best are: {'; '.join(real)}." if real else "Nothing feasible is sold.",
        "Under other prices and constants of the software, drawn at random, the same plan on as many stays the best in "
        f"so many draws: {'; '.join(sure)}.",
    ]
