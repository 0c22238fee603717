"""The question of a design, from a template and what may be bought."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel import as_floats
from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, PriceRange
from costmodel.models import in_pieces, run_by
from costmodel.specs import SpecError
from optimize.question.clusters import known_bounds, whole_domains
from optimize.question.objective import CLEAN, Objective
from optimize.question.problem import Job, Problem


def design_problem(
    template: Cluster, curves: CurveRange, bounds: Mapping[str, tuple[float, float]] | None = None, **asked: Any
) -> Problem:
    """The question of a design: rates between the least and the most of the accelerators known by name.

    `asked`: jobs, limits, objective, fixed. Raises `SpecError` for a template that cannot be varied.
    """
    if template.prices is None or len(template.tiers) < 2:
        raise SpecError(f"cluster {template.name}: expected a template with prices and two tiers or more")
    base = as_floats(template.prices.base)
    _check_carbon(template.name, base.carbon_g_per_j, asked)
    whole = whole_domains(as_floats(dataclasses.replace(template, prices=None)))
    whole = dataclasses.replace(whole, prices=PriceRange(low=base, base=base, high=base))
    fixed: Mapping[str, Any] = asked.get("fixed", {})
    asked["fixed"] = template.stack.habits.with_precision(fixed.get("precision")) | dict(fixed)
    if "jobs" in asked:
        pieces = fixed.get("pieces", 1)
        asked["jobs"] = tuple(_as_run(job, template, pieces) for job in asked["jobs"])
    return Problem(template=whole, curves=as_floats(curves.base), bounds=bounds or known_bounds(), **asked)


def _check_carbon(name: str, carbon_g_per_j: float, asked: Mapping[str, Any]) -> None:
    """Raise `SpecError` where CO2 is minimised or limited, and there is none."""
    minimised, limits = asked.get("objective") is Objective.carbon, asked.get("limits")
    if carbon_g_per_j == 0 and (minimised or (limits is not None and limits.carbon_g is not None)):
        what = "the objective" if minimised else "limited"
        raise SpecError(f"cluster {name}: carbon_g is {what}; {CLEAN}")


def _as_run(job: Job, template: Cluster, pieces: int) -> Job:
    """With operators as the template's software has them, layers in the pieces that plans are to have."""
    try:
        workload = in_pieces(job.workload, pieces)
    except ValueError as error:
        raise SpecError(f"fixed: `pieces` is {pieces}: {error}") from error
    return dataclasses.replace(job, workload=run_by(workload, template.stack.habits))
