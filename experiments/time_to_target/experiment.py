"""What is gained by choosing shape, tokens, batch, plan and cluster together instead of one after the other?

For each budget a loss to reach as soon as possible. One after the other: the shape and the tokens that take the fewest
FLOP, the critical batch, as many accelerators of the template as the budget buys, then the best plan on them. Together:
`optimize.targets.design_for`, with rates of any size and with real parts, and its certificate. Searches end at a gap or
after so many evaluations, so that every machine finds the same; where the clock ends one, the answer says so.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costmodel import load_cluster
from costmodel.inputs import Cluster
from costmodel.measured import FITS
from costmodel.specs import anchored, load_curves
from costmodel.target import LAW
from experiments import runner
from experiments.time_to_target import figures
from optimize import CommandError, find_plan
from optimize.clusters import DesignResult
from optimize.lattice import legal_counts
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
    work: float = 3e6,
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
        told.append(
            f"{budget} takes {first['days']:.3g} days one after the other and {both['days']:.3g} together, "
            f"{first['days'] / both['days']:.2f} times sooner."
        )
        gaps.append(f"{100 * both['gap']:.2g}")
    return [
        *told,
        f"No pair of shape and batch, plan, count or rates is better by more than {', '.join(gaps)} %.",
        *(f"With {row['budget_usd'] / 1e6:,.0f} M USD, {note}." for row in results["rows"] for note in row["late"]),
    ]


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
        "late": [note for note in joint.notes if "time was up" in note],
        "seconds": spent_s,
    }


def in_turn(template: Cluster, pairs: list[Job], budget_usd: float) -> dict[str, Any] | None:
    """The shape of the fewest FLOP at the batch nearest to the critical one, all that the budget buys, the best plan.

    None: no plan fits on that many.
    """
    shape = pairs[0].workload.name
    own = sorted((job for job in pairs if job.workload.name == shape), key=lambda job: job.workload.batch)
    job = own[-2] if len(own) > 1 else own[0]  # batches are a quarter, half, one and two critical ones
    domain = int(template.tiers[0].usable_size)
    each = quantities(sized(template, domain), domain, 1.0, rent=False).capital_usd / domain
    counts = legal_counts(job.workload, template, {"domain": domain}, int(budget_usd / each))
    for count in sorted((int(count) for count in counts), reverse=True)[:40]:
        cluster = sized(template, count)
        try:
            plan = find_plan(job.workload, cluster, margin=FITS).plans[0]
        except CommandError:
            continue
        steps = float(job.steps_on(float(count), cluster.prices))
        days = steps * plan.step_s / SECONDS_A_DAY
        found = {"model": shape, "batch": int(job.workload.batch), "accelerators": count}
        return found | {"plan": dataclasses.asdict(plan.plan), "days": days}
    return None


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
    """Days by budget, and the factor between them."""
    from rich.table import Table

    heads = ("budget", "loss", "in turn, days", "together", "gap", "pairs", "sooner by", "parts", "seconds")
    table = Table(*heads, box=None, pad_edge=False)
    for row in results["rows"]:
        turn, both = row["in_turn"], row["together"]
        days = [None if part is None else part["days"] for part in (turn, both["any_rates"], both["real_parts"])]
        told = ["" if value is None else f"{value:.3g}" for value in days]
        gap = "" if both["any_rates"] is None else f"{both['any_rates']['gap']:.2%}"
        factor = "" if days[0] is None or days[1] is None else f"{days[0] / days[1]:.2f}"
        first = [f"{row['budget_usd']:.0e}", f"{row['target']['loss']:g}", told[0], told[1], gap]
        table.add_row(*first, str(both["pairs"]), factor, told[2], f"{row['seconds']:.0f}")
    return [table]
