"""The best cluster and plan for a target loss, with the shape and the batch that they train.

Pairs of shape and batch are enumerated outside of the search for cluster and plan, in which they are constants, so that
its certificate holds over all of them (`joint`). Of rented parts, which have no rates of any size, the pair is chosen
by evolution.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, parameters
from costmodel.measured import FITS, with_margin
from optimize.clusters import (
    Answer,
    Cell,
    DesignResult,
    Progress,
    cell_bounds,
    design,
    evolved,
    most_accelerators,
    priced_products,
)
from optimize.hardware import solve_plans
from optimize.lattice import thinned
from optimize.question import SECONDS_A_DAY, Job, Limits, Objective, Problem, design_problem, failing
from optimize.status import CommandError, Status
from optimize.targets.joint import over_all, search_pairs
from optimize.targets.pairs import Target, job_of, scatter

SEARCHED_SHARE = 0.75  # of the time, for shape, batch, cluster of any rates and plan
RENTED_SHARE = 0.4  # of the time, for shape and batch of rented parts
LOOKED_AT = 8  # of these, for which evolution looks for a plan and a cluster


def choose(
    jobs: Sequence[Job],
    ask: Callable[[Job], Problem],
    seconds: float,
    seed: int = 0,
) -> tuple[Job, list[dict[str, Any]]]:
    """The best pair by evolution, in the order of the bounds of their products, and what is known of every pair."""
    end = time.monotonic() + seconds
    bounds = {i: bound(ask(job)) for i, job in enumerate(jobs)}
    values: dict[int, float] = {}
    for i in sorted(bounds, key=lambda i: bounds[i])[:LOOKED_AT]:
        if values and (time.monotonic() > end or bounds[i] >= min(values.values())):
            break
        values[i] = min((each.log_value for each in evolved(ask(jobs[i]), seed)), default=math.inf)
    best = min(values, key=lambda i: values[i])
    return jobs[best], [_row(job, bounds[i], values.get(i, math.inf)) for i, job in enumerate(jobs)]


def certified(
    jobs: Sequence[Job],
    ask: Callable[[Job], Problem],
    seconds: float,
    seed: int,
    told: Callable[[str], None],
    **ending: float,
) -> tuple[Job, list[dict[str, Any]], Progress | None]:
    """The best pair by search and bounds, what is known of every pair, and the search; None where it has no answer."""
    problems = [_thinned(ask(job)) for job in jobs]
    products = [bound(problem) for problem in problems]
    best, known = search_pairs(problems, products, seconds, seed, told, **ending)
    values = [math.inf if each.best is None else each.best.log_value for each in known]
    table = [_row(job, each.log_bound, value) for job, each, value in zip(jobs, known, values, strict=True)]
    return (jobs[0], table, None) if best is None else (jobs[best], table, over_all(known, best))


def _thinned(problem: Problem) -> Problem:
    """With the plans that a design searches."""
    kept, _ = thinned([job.workload for job in problem.jobs], problem.machine, problem.fixed)
    return dataclasses.replace(problem, fixed=kept)


def bound(problem: Problem) -> float:
    """Logarithm of the least value by the products alone, over all counts of accelerators.

    What they cost does not depend on the count. Between two counts they take no less than at the first with the
    accelerators of the second.
    """
    most = max(1, most_accelerators(problem))
    counts = np.unique(np.geomspace(1, most, 64).astype(int)).tolist()
    own = cell_bounds([Cell(problem, count) for count in counts])
    return max(float((own - np.log(np.append(counts[1:], most) / counts)).min()), priced_products(problem))


def _row(job: Job, log_bound: float, log_value: float) -> dict[str, Any]:
    """A pair, a value that it does not go below, and the best that was found (None: nothing, or nothing was looked
    for)."""
    shape = job.workload
    return {
        "model": shape.name,
        "parameters": float(parameters(shape)),
        "batch": int(shape.batch),
        "tokens": job.tokens,
        "lower_bound": math.exp(log_bound),
        "value": None if math.isinf(log_value) else math.exp(log_value),
    }


def _check_deadline(pairs: Sequence[Job], ask: Callable[[Job], Problem]) -> None:
    """Raise where the products alone end later on the fastest cluster within the other limits, whatever the pair."""
    deadline_s = ask(pairs[0]).limits.deadline_s
    if deadline_s is None:
        return
    free = (dataclasses.replace(ask(job), objective=Objective.time) for job in pairs)
    problems = (dataclasses.replace(each, limits=dataclasses.replace(each.limits, deadline_s=None)) for each in free)
    least_s = math.exp(min(bound(each) for each in problems))
    if least_s > deadline_s:
        days, asked = least_s / SECONDS_A_DAY, deadline_s / SECONDS_A_DAY
        told = f"`deadline_days` is {asked:.3g}; the products alone take {days:.3g} days on the fastest cluster within"
        nearest = f"the limits, of any that reaches the loss; --deadline-days {2.0 * days:.2g} may be possible"
        raise CommandError(Status.infeasible, f"{told} {nearest}")


def asker(
    template: Cluster, curves: CurveRange, failures: str, repair_s: float | None = None, **asked: Any
) -> Callable[[Job], Problem]:
    """The question of one pair, as `design` asks it."""
    own = failing(template, failures, repair_s)
    return lambda job: design_problem(own, curves, jobs=(job,), **asked)


def prices(
    target: Target, problem: Problem, answer: Answer, log_sd: float, priced: bool = True
) -> dict[str, float | None]:
    """What one day sooner costs, and one hundredth of loss less; None where the answer does not say, or it is not
    reached.

    A day sooner is bought with more hardware, at the shadow price of the budget or of the deadline. A hundredth takes
    seconds on the same cluster, and their dollars: purchase written off, and electricity. Only clusters of any rates
    are `priced`.
    """
    job, train_s = answer.jobs[0].job, answer.quantities.train_s
    lower = job_of({**target, "loss": target["loss"] - 0.01}, job.workload, log_sd)
    more_s = None if lower is None else train_s * (lower.tokens / job.tokens - 1)
    usd_per_s = answer.quantities.usd_per_s
    return {
        "day_sooner_usd": _day_sooner_usd(problem, answer) if priced else None,
        "hundredth_of_loss_s": more_s,
        "hundredth_of_loss_usd": None if more_s is None or math.isnan(usd_per_s) else more_s * usd_per_s,
    }


def _day_sooner_usd(problem: Problem, answer: Answer) -> float | None:
    """Dollars of training, where they are minimised: the same plan on the best hardware that ends a day sooner.

    Of the purchase, where the time is: by the shadow price of the budget. None: no such hardware, or no such price.
    """
    train_s, limits = answer.quantities.train_s, problem.limits
    if problem.objective is Objective.cost and not limits.rent:
        sooner = [_least_usd(problem, answer, end_s) for end_s in (train_s, train_s - SECONDS_A_DAY)]
        return sooner[1] - sooner[0] if all(map(math.isfinite, sooner)) else None
    share = answer.shadow_prices.get("budget_usd", {}).get("value_per_limit", 0.0)
    if problem.objective is Objective.time and share > 0 and limits.budget_usd and train_s > SECONDS_A_DAY:
        return limits.budget_usd / (share * train_s / SECONDS_A_DAY)
    return None


def _least_usd(problem: Problem, answer: Answer, end_s: float) -> float:
    """Dollars of the answer's plan on the best hardware that ends by then; infinite where none does."""
    if end_s <= 0:
        return math.inf
    limits = dataclasses.replace(problem.limits, deadline_s=end_s)
    plans = [job.plan for job in answer.jobs]
    return float(solve_plans(dataclasses.replace(problem, limits=limits), plans).value[0])


def design_for(
    target: Target,
    pairs: Sequence[Job],
    limits: Limits,
    seconds: float,
    template: Cluster,
    seed: int = 0,
    failures: str = "base",
    repair_s: float | None = None,
    progress: Callable[[str], None] = lambda _: None,
    **asked: Any,
) -> DesignResult:
    """The best of these pairs of shape and batch (`jobs_of`), then its cluster and plan as by `design`.

    What is told of the target stands in the result: the pair, what is known of the others, prices. `asked`: other
    keywords of `design`.
    """
    start, own = time.monotonic(), {name: asked[name] for name in ("curves", "objective", "fixed")}
    ending = {name: asked[name] for name in ("tolerance", "work") if name in asked}
    margin = asked.get("margin", FITS)
    fails: dict[str, Any] = {"failures": failures, "repair_s": repair_s}
    ask = asker(with_margin(template, margin), limits=limits, **fails, **own)
    _check_deadline(pairs, ask)
    job, table, known = pairs[0], [], None
    if not limits.rent:
        job, table, known = certified(pairs, ask, SEARCHED_SHARE * seconds, seed, progress, **ending)
    elif len(pairs) > 1:
        progress("shapes and batches")
        job, table = choose(pairs, ask, RENTED_SHARE * seconds, seed)
    rest = {"seconds": max(1e-3, seconds - (time.monotonic() - start)), "seed": seed, "known": known, **fails}
    result = design((job,), limits, template=template, progress=progress, **rest, **asked)
    answer = result.continuous or result.catalogue
    assert answer is not None  # else `design` raised
    told = {
        **target,
        "model": job.workload.name,
        "parameters": float(parameters(job.workload)),
        "batch": int(job.workload.batch),
        "tokens": job.tokens,
        "steps": job.steps,
        "pairs": table,
        **prices(target, ask(job), answer, scatter(template), priced=result.continuous is not None),
    }
    return dataclasses.replace(result, target=told)
