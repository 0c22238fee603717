"""What is gained by choosing shape, tokens, batch, plan and cluster together instead of one after the other?

For each budget a loss to reach as soon as possible. One after the other: the shape and the tokens that take the fewest
FLOP, the critical batch, then the fastest plan on any number of accelerators of the template that the budget buys.
Together: `optimize.targets.design_for`, with rates of any size and with real parts, and its proof. Searches end at
a gap or after so many evaluations, so that every machine finds the same; where the clock ends one, the answer says so.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costmodel import load_cluster
from costmodel.inputs import Cluster
from costmodel.measured import FITS, with_margin
from costmodel.specs import anchored, load_curves
from costmodel.target import LAW
from experiments import beside, runner
from experiments.time_to_target import figures
from optimize import CommandError, Status, units
from optimize.clusters import DesignResult
from optimize.plans import Question, best_over
from optimize.question import SECONDS_A_DAY, Job, Limits, Objective, quantities, sized
from optimize.targets import Target, design_for, jobs_of, scatter, shapes


def run(
    folder: Path,
    say: Callable[[str], None],
    *,
    budgets_usd: tuple[float, ...] = (1e6, 1e8, 1e9),
    losses: tuple[float, ...] = (2.4, 2.1, 2.0),
    confidence: float = 0.9,
    template: str = "gb200-nvl72",
    gap: float = 0.001,
    work: float = 3e7,
    seconds: float = 600.0,
    quick: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Both answers for every budget.

    Args:
        losses: One for each budget, in nats a token.
        gap: Of each joint answer, at which its search ends.
        work: Evaluations of each, after which it ends in any case.
        seconds: Of each; where they are up before that, it is told, and the answer may differ another time.
        quick: The first budget alone.
    """
    asked = list(zip(budgets_usd, losses, strict=True))[: 1 if quick else None]
    rows, cluster = [], load_cluster(template)
    for budget_usd, loss in asked:
        say(f"{budget_usd:.0e} USD to a loss of {loss:g}")
        target: Target = {"loss": loss, "law": LAW, "confidence": confidence}
        ending = {"tolerance": math.log1p(gap), "work": work, "seconds": seconds, "seed": seed}
        rows.append(_row(cluster, budget_usd, target, ending))
    figures.draw(rows, folder)
    return {"rows": rows}


def answer(results: Mapping[str, Any]) -> list[str]:
    """A sentence for each budget, and how sure the joint answers are."""
    told, gaps = [], []
    for row in results["rows"]:
        first, both = row["in_turn"], row["together"]["any_rates"]
        budget = f"With {row['budget_usd'] / 1e6:,.0f} million USD a loss of {row['target']['loss']:g}"
        if first is None or both is None:
            told.append(f"{budget} was reached by {'neither' if first is both else 'one'} of the two ways.")
            continue
        parts = row["together"]["real_parts"]
        real = "" if parts is None else f"{_sooner(first, parts)} on real parts and "
        joint = f"{_sooner(first, both)} with rates of any size"
        told.append(f"{budget} takes {first['days']:#.3g} days one after the other, together {real}{joint}.")
        gaps.append(f"{100 * both['gap']:.2g}")
    return [
        *told,
        f"No pair of shape and batch, plan, count or rates is better by more than {', '.join(gaps)} %.",
        *(f"With {row['budget_usd'] / 1e6:,.0f} M USD, {note}." for row in results["rows"] for note in row["late"]),
    ]


def _sooner(first: Mapping[str, Any], together: Mapping[str, Any]) -> str:
    """Days together, and how many times sooner that is."""
    return f"{together['days']:#.3g} ({first['days'] / together['days']:.2f} times sooner)"


def _row(template: Cluster, budget_usd: float, target: Target, ending: Mapping[str, Any]) -> dict[str, Any]:
    pairs = jobs_of(target, list(shapes(target)), None, scatter(template))
    one_by_one = in_turn(template, pairs, budget_usd)
    started, limits = time.monotonic(), Limits(budget_usd=budget_usd)
    asked = {"curves": anchored(load_curves(), template), "objective": Objective.time, "fixed": {}}
    joint = design_for(target, pairs, limits, template=template, sweep="", **ending, **asked)
    runner.uninterrupted(joint.status)
    spent_s = time.monotonic() - started
    return {
        "budget_usd": budget_usd,
        "target": dict(target),
        "in_turn": one_by_one,
        "together": _together(joint),
        "asked_gap": math.expm1(ending["tolerance"]),
        "late": [note for note in joint.notes if "time was up" in note],
        "seconds": spent_s,
    }


def in_turn(template: Cluster, pairs: list[Job], budget_usd: float) -> dict[str, Any] | None:
    """The shape of the fewest FLOP at the batch nearest to the critical one, and the fastest plan on as many
    accelerators as the budget buys, or fewer, where those are faster.

    None: no plan fits on that many.
    """
    shape = pairs[0].workload.name
    own = sorted((job for job in pairs if job.workload.name == shape), key=lambda job: job.workload.batch)
    job = own[-2] if len(own) > 1 else own[0]  # batches are a quarter, half, one and two critical ones
    domain = int(template.tiers[0].usable_size)
    each = quantities(sized(template, domain), domain, 1.0, rent=False).capital_usd / domain
    most, batch = int(budget_usd / each), int(job.workload.batch)
    machine = functools.cache(lambda count: with_margin(sized(template, count), FITS))
    asked = {"objective": Objective.time.key, "tokens": job.tokens}
    question = Question(workload=job.workload, machine=machine, most=most, fixed={}, **asked)
    try:
        found = best_over(question, range(1, most + 1), (batch,))
    except CommandError:
        return None
    runner.uninterrupted(Status.ok if found["complete"] else Status.incomplete)
    best = found["best"]
    told = {"model": shape, "batch": batch, "accelerators": best["accelerators"], "affordable": most}
    return told | {"plan": dataclasses.asdict(best["plan"]), "days": best["value"] / SECONDS_A_DAY}


def _together(joint: DesignResult) -> dict[str, Any]:
    """The joint answers: that of any rates is certified over all pairs of shape and batch, real parts over the chosen
    one alone."""
    assert joint.target is not None
    answers = {"any_rates": joint.continuous, "real_parts": joint.catalogue}
    days = {
        name: None
        if answer is None
        else {"days": answer.value / SECONDS_A_DAY, "gap": answer.gap, "accelerators": answer.quantities.accelerators}
        for name, answer in answers.items()
    }
    chosen = {name: joint.target[name] for name in ("model", "batch", "tokens", "day_sooner_usd")}
    return chosen | days | {"pairs": len(joint.target["pairs"])}


def tables(results: Mapping[str, Any]) -> list[Any]:
    """Days by budget, and the factors between them."""
    heads = ("M USD", "loss", "in turn", "real parts", "sooner", "any rates", "sooner", "gap, %", "pairs", "s")
    rows = []
    for row in results["rows"]:
        turn, both = row["in_turn"], row["together"]
        told = [cell for name in ("real_parts", "any_rates") for cell in _cells(turn, both[name])]
        days, gap = "" if turn is None else f"{turn['days']:#.3g}", both["any_rates"] and both["any_rates"]["gap"]
        first = (row["budget_usd"] / 1e6, f"{row['target']['loss']:g}", days)
        percent = None if gap is None else units.fixed(100 * gap, 3)
        rows.append((*first, *told, percent, both["pairs"], f"{row['seconds']:.0f}"))
    title = "Days to the loss; how many times sooner than one choice after the other; seconds of the search"
    return [beside.plain_table(heads, rows, title)]


def _cells(turn: Mapping[str, Any] | None, together: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """Days, and how many times sooner they are than one after the other."""
    if together is None:
        return "", ""
    return f"{together['days']:#.3g}", "" if turn is None else f"{turn['days'] / together['days']:.2f} x"


def failure(results: Mapping[str, Any]) -> str | None:
    """A joint answer that is no sooner than one choice after the other, or not proved as far as was asked."""
    wrong = []
    for row in results["rows"]:
        first, both = row["in_turn"], row["together"]["any_rates"]
        if first is not None and both is not None and both["days"] >= first["days"]:
            wrong.append(f"{row['budget_usd']:.0e} USD: together is not sooner")
        if not row["late"] and both is not None and both["gap"] > row["asked_gap"]:
            wrong.append(f"{row['budget_usd']:.0e} USD: the gap is {both['gap']:.2%} after all evaluations")
    return "; ".join(wrong) or None
