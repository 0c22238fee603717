"""One answer of a design: a cluster with the plan of each job, scored exactly, validated and explained."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Shown, evaluate
from costmodel.formulas import CurveRange, Hardware, limit_bytes
from costmodel.inputs import Cluster, Plan
from costmodel.specs import priced
from optimize.clusters.progress import Relaxed
from optimize.diagnosis import Elasticity, Validation, elasticities, validate
from optimize.question import RATES, Job, Limits, Objective, Problem, Quantities, quantities, residuals, sized
from optimize.status import Status

_SIZES = (*RATES, "hbm_bytes", "accelerators")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobAnswer:
    """One job on the cluster of an answer."""

    job: Job
    plan: Plan
    step_s: float
    train_s: float  # of the clock: with what failures cost
    goodput: float  # share of them in which training goes on
    mfu: float
    validation: Validation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """A cluster with the plans of its jobs. `value` and `lower_bound` are as the objective reports them."""

    name: str
    cluster: Cluster  # with prices
    domain: int
    hardware: Mapping[str, float]
    jobs: tuple[JobAnswer, ...]
    value: float
    lower_bound: float  # an upper bound where the objective is maximised
    gap: float
    bound_is: str
    quantities: Quantities
    residuals: Mapping[str, float]
    shadow_prices: Mapping[str, Any]
    elasticities: tuple[Elasticity, ...]
    evaluations: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignResult(Shown):
    """Both answers to one question. One of them may be None, where nothing meets the limits or no price is known."""

    status: Status
    message: str
    objective: Objective
    limits: Limits
    continuous: Answer | None
    catalogue: Answer | None
    frontier: tuple[Mapping[str, Any], ...]
    runners_up: tuple[Mapping[str, Any], ...]  # other plans and counts, each with its own best hardware
    counts: tuple[int, ...]  # of accelerators that the continuous bound is about
    others: tuple[int, ...]  # that have legal plans too, and that there was no time for
    relaxed: Relaxed | None
    notes: tuple[str, ...]
    seconds: float
    seed: int
    versions: Mapping[str, str]
    jobs: tuple[Job, ...]
    template: Cluster
    target: Mapping[str, Any] | None = None  # of a loss: `targets.design_for`


def continuous_answer(
    problem: Problem,
    template: Cluster,
    curves: CurveRange,
    hardware: Hardware,
    plans: Sequence[Plan],
    **known: Any,
) -> Answer:
    """Plans on hardware of any rates. `known`: log_bound, evaluations, shadow_prices, bound_is."""
    whole = dataclasses.replace(problem.machine, prices=template.prices)
    cluster = sized(priced(whole, hardware, curves), int(hardware.accelerators))
    cluster = dataclasses.replace(cluster, name=f"designed from {template.name}")
    table = {name: float(getattr(hardware, name)) for name in _SIZES}
    return answer_of(problem, cluster, problem.domain, plans, hardware=table, name=cluster.name, **known)


def answer_of(
    problem: Problem, cluster: Cluster, domain: int, plans: Sequence[Plan], *, log_bound: float, **known: Any
) -> Answer:
    """The exact score of plans on a cluster, and everything that explains it. `known`: the other fields."""
    jobs = tuple(_job(problem, job, cluster, plan) for job, plan in zip(problem.jobs, plans, strict=True))
    train_s = sum(answer.job.weight * answer.train_s for answer in jobs)
    own = quantities(cluster, domain, train_s, problem.limits.rent, _load(cluster, jobs))
    least = own.minimised(problem.objective, sum(job.weight * job.steps for job in problem.jobs))
    bound, tokens = min(math.exp(log_bound), least), sum(job.tokens for job in problem.jobs)
    peak_bytes = max(answer.validation.peak_bytes for answer in jobs)
    return Answer(
        cluster=cluster,
        domain=domain,
        jobs=jobs,
        value=problem.objective.reported(least, tokens),
        lower_bound=problem.objective.reported(bound, tokens),
        gap=least / bound - 1,
        quantities=own,
        residuals=_residuals(problem, own, jobs, peak_bytes, float(limit_bytes(cluster))),
        elasticities=_elasticities(cluster, jobs),
        **known,
    )


def _job(problem: Problem, job: Job, cluster: Cluster, plan: Plan) -> JobAnswer:
    validation = validate(job.workload, cluster, plan)
    assert validation.breakdown is not None, validation.violations  # lattices are legal
    step_s, alone = float(validation.breakdown.step_s), problem.objective is Objective.step
    steps = job.steps if alone else float(job.steps_on(float(plan.accelerators), cluster.prices))
    return JobAnswer(
        job=job,
        plan=plan,
        step_s=step_s,
        train_s=step_s * steps,
        goodput=job.steps / steps,
        mfu=float(validation.breakdown.mfu),
        validation=validation,
    )


def _load(cluster: Cluster, jobs: tuple[JobAnswer, ...]) -> float:
    """What the servers draw over what is usual in training, in the mean over the jobs' seconds."""
    weights = [answer.job.weight * answer.train_s for answer in jobs]
    if cluster.accelerator.power_w is None:
        return 1.0
    found = [evaluate(answer.job.workload, cluster, answer.plan, checked=False).economics for answer in jobs]
    loads = [1.0 if each is None or each.base.draw is None else float(each.base.draw.load) for each in found]
    return float(np.average(loads, weights=weights))


def _residuals(
    problem: Problem, own: Quantities, jobs: tuple[JobAnswer, ...], peak_bytes: float, most_bytes: float
) -> dict[str, float]:
    """Of the limits of all jobs, and of each job's deadline."""
    shared = residuals(problem.limits, own, peak_bytes, most_bytes)
    late = [answer for answer in jobs if answer.job.deadline_s is not None]
    return shared | {
        f"deadline_s of {answer.job.workload.name}": math.log(answer.train_s / float(answer.job.deadline_s or 1.0))
        for answer in late
    }


def _elasticities(cluster: Cluster, jobs: tuple[JobAnswer, ...]) -> tuple[Elasticity, ...]:
    """Of the weighted seconds of all jobs: those of each step, by its share."""
    shares = np.array([answer.job.weight * answer.train_s for answer in jobs])
    shares = shares / shares.sum()
    each = [{e.parameter.key: e for e in elasticities(a.job.workload, cluster, a.plan)} for a in jobs]
    joint = []
    for key, first in each[0].items():
        own = [table[key] for table in each if key in table]
        if len(own) < len(each):
            continue
        sides = {side: float(sum(s * getattr(e, side) for s, e in zip(shares, own, strict=True))) for side in _SIDES}
        joint.append(dataclasses.replace(first, **sides))
    return tuple(joint)


_SIDES = ("left", "right", "tenth")


def misses(answer: Answer | None) -> list[str]:
    """Names of the limits that an answer breaks, beyond rounding."""
    return [] if answer is None else [name for name, value in answer.residuals.items() if value > 1e-9]
