"""The best cluster for a job with its plan: rates, count and degrees together, and beside it the best of real parts.

`design` answers both for one question. The continuous answer is certified by `joint.search`, the catalogue by
enumeration (`parts.search_parts`); every plan that is reported has been validated on its cluster in float64.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel.cluster import Cluster
from costmodel.curves import CurveRange, priced
from costmodel.plan import Plan
from optimize import joint
from optimize.objective import Job, Limits, Objective, Quantities, minimised, residuals, told
from optimize.parts import Parts, bill, search_parts
from optimize.sensitivity import Elasticity, elasticities
from optimize.space import Ranges, as_table, sized, space
from optimize.status import CommandError, Status
from optimize.validate import Validation, validate
from optimize.versions import versions

CONTINUOUS_SHARE = 0.7  # of the time, for the continuous answer


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobAnswer:
    """One job on the cluster of an answer."""

    job: Job
    plan: Plan
    step_s: float
    train_s: float
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
    quantities: Quantities
    residuals: Mapping[str, float]
    shadow_prices: Mapping[str, Any]
    elasticities: tuple[Elasticity, ...]
    evaluations: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignResult:
    """Both answers to one question. One of them may be None, where nothing meets the limits or no price is known."""

    status: Status
    message: str
    objective: Objective
    limits: Limits
    continuous: Answer | None
    catalogue: Answer | None
    frontier: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]
    seconds: float
    seed: int
    versions: Mapping[str, str]


def design(
    job: Job,
    limits: Limits,
    *,
    template: Cluster,
    curves: CurveRange,
    objective: Objective = Objective.time_s,
    fixed: Mapping[str, Any] | None = None,
    ranges: Ranges | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
) -> DesignResult:
    """The best cluster of any rates, and the best of real parts. Raises `CommandError` where neither can be."""
    start = time.monotonic()
    problem = joint.Problem(
        job=job, limits=limits, objective=objective, space=space(template, curves, ranges), fixed=fixed or {}
    )
    found = joint.search(problem, CONTINUOUS_SHARE * seconds, told=progress)
    progress("real parts")
    parts = search_parts(job, limits, objective, max(1.0, start + seconds - time.monotonic()), fixed)
    continuous = None if found.best is None else _continuous(problem, found, template, curves)
    catalogue = None if parts.best is None or parts.plan is None else _catalogue(problem, parts)
    if continuous is None and catalogue is None:
        raise CommandError(Status.infeasible, "no answer meets the limits")
    return DesignResult(
        status=Status.ok,
        message=Status.ok.value,
        objective=objective,
        limits=limits,
        continuous=continuous,
        catalogue=catalogue,
        frontier=(),
        notes=(),
        seconds=time.monotonic() - start,
        seed=seed,
        versions=versions(),
    )


def _continuous(problem: joint.Problem, found: joint.Progress, template: Cluster, curves: CurveRange) -> Answer:
    best = found.best
    assert best is not None
    count = float(best.cell.accelerators)
    hardware = problem.space.hardware(np.exp(best.y), best.hbm_bytes * (1 + 1e-12), count)
    whole = dataclasses.replace(problem.space.template, prices=template.prices)
    cluster = sized(priced(whole, hardware, curves), best.cell.accelerators)
    cluster = dataclasses.replace(cluster, name=f"designed from {template.name}")
    return _answer(
        problem,
        cluster,
        best.cell.domain,
        best.plan,
        log_bound=found.log_bound,
        hardware={**as_table(np.exp(best.y)), "hbm_bytes": best.hbm_bytes, "accelerators": count},
        evaluations=found.evaluations,
        shadow_prices={},
        name=cluster.name,
    )


def _catalogue(problem: joint.Problem, parts: Parts) -> Answer:
    assert parts.best is not None
    assert parts.plan is not None
    cluster, chip = parts.best.cluster, parts.best.cluster.accelerator
    hardware = {
        "flop_per_s": chip.peak_16bit_flop_per_s,
        "hbm_bytes_per_s": chip.hbm_bytes_per_s,
        "scale_up_bytes_per_s": cluster.tiers[0].bandwidth_bytes_per_s,
        "scale_out_bytes_per_s": cluster.tiers[-1].bandwidth_bytes_per_s,
        "hbm_bytes": chip.hbm_bytes,
        "accelerators": parts.best.bought,
    }
    return _answer(
        problem,
        cluster,
        parts.best.domain,
        parts.plan,
        log_bound=parts.log_bound,
        hardware=hardware,
        evaluations=parts.evaluations,
        shadow_prices={},
        name=parts.best.name,
    )


def _answer(
    problem: joint.Problem, cluster: Cluster, domain: int, plan: Plan, *, log_bound: float, **told_as_is: Any
) -> Answer:
    """The exact score of what was found, and everything that explains it."""
    validation, job = validate(problem.job.workload, cluster, plan), problem.job
    assert validation.breakdown is not None, validation.violations  # lattices are legal
    step_s = float(validation.breakdown.step_s)
    quantities = quantities_of(cluster, domain, step_s * job.steps, problem.limits.rent)
    least = minimised(problem.objective, quantities, job.steps)
    bound = min(math.exp(log_bound), least)
    answer = JobAnswer(
        job=job,
        plan=plan,
        step_s=step_s,
        train_s=step_s * job.steps,
        mfu=float(validation.breakdown.mfu),
        validation=validation,
    )
    return Answer(
        cluster=cluster,
        domain=domain,
        jobs=(answer,),
        value=told(problem.objective, least, job.tokens),
        lower_bound=told(problem.objective, bound, job.tokens),
        gap=least / bound - 1,
        quantities=quantities,
        residuals=residuals(problem.limits, quantities, validation.peak_bytes, float(cluster.accelerator.hbm_bytes)),
        elasticities=elasticities(job.workload, cluster, plan),
        **told_as_is,
    )


def quantities_of(cluster: Cluster, domain: int, train_s: float, rent: bool) -> Quantities:
    """What limits and objectives read; nan where no price is known."""
    money = bill(cluster, domain, 1.0, 1.0)
    usd_per_s = money.rental_usd if rent else money.owned_usd
    size = float(cluster.tiers[0].size)
    return Quantities(
        train_s=train_s,
        usd_per_s=math.nan if usd_per_s is None else float(usd_per_s),
        meter_w=math.nan if money.draw is None else float(money.draw.meter_w),
        capital_usd=math.nan if money.bill is None else float(money.bill.usd),
        accelerators=float(cluster.accelerators) * max(1.0, size / domain),
    )
