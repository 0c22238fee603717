"""The exact score of what a method found: in float64, every rule of legality, every limit; None where one is broken."""

import dataclasses
import math
from typing import Any

import numpy as np

from costmodel.inputs import Plan
from costmodel.specs import violations
from experiments.search_quality.suite import Question
from optimize.clusters import continuous_answer, holding, misses
from optimize.diagnosis import validate
from optimize.plans import plan_value
from optimize.question import sized

ROUNDING = 1e-8  # by which a limit may be missed: solvers end on limits up to rounding
TINY = 1e-300


def objective_of_plans(question: Question, domains: list[int]) -> Any:
    """The value of plans on a given cluster."""
    job = question.problem.job
    return plan_value(question.problem.objective.key, job.workload, question.cluster, domains, job.tokens)


def score_plan(question: Question, plan: Plan) -> float | None:
    """Score of one plan on the cluster of the problem."""
    validation = validate(question.workload, question.cluster, plan)
    if validation.breakdown is None or not validation.fits:
        return None
    domain = plan.domain or int(question.cluster.tiers[0].usable_size)
    return objective_of_plans(question, [domain]).of_plan(question.workload, question.cluster, plan)


def score_design(
    question: Question, accelerators: int, rates: Any, hbm_bytes: float, plans: list[Plan]
) -> float | None:
    """Score of a cluster with the plan of each job. Memory is what their fullest stages need, as `design` has it."""
    problem = question.problem
    hardware = holding(problem, plans, problem.hardware(rates, hbm_bytes * (1 + 1e-12), float(accelerators)))
    whole = sized(question.template, accelerators)
    if any(violations(plan, job.workload, whole) for plan, job in zip(plans, problem.jobs, strict=True)):
        return None
    none = {"log_bound": math.log(TINY), "evaluations": 0, "shadow_prices": {}, "bound_is": ""}
    answer = continuous_answer(problem, question.template, question.curves, hardware, plans, **none)
    low, high = problem.rate_ends
    offered = (low * (1 - ROUNDING) <= rates) & (np.asarray(rates) <= high * (1 + ROUNDING))
    broken = [name for name in misses(answer) if answer.residuals[name] > ROUNDING]
    return float(answer.value) if offered.all() and not broken else None


def fields(plan: Plan) -> dict[str, Any]:
    """Fields of a plan, for JSON."""
    return dataclasses.asdict(plan)
