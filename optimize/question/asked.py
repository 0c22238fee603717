"""The question of a design, from a template and what may be bought."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel import as_floats
from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, PriceRange
from costmodel.models import run_by
from costmodel.specs import SpecError
from optimize.question.clusters import known_bounds, whole_domains
from optimize.question.problem import Problem


def design_problem(
    template: Cluster, curves: CurveRange, bounds: Mapping[str, tuple[float, float]] | None = None, **asked: Any
) -> Problem:
    """The question of a design: rates between the least and the most of the accelerators known by name.

    `asked`: jobs, limits, objective, fixed. Raises `SpecError` for a template that cannot be varied.
    """
    if template.prices is None or len(template.tiers) < 2:
        raise SpecError(f"cluster {template.name}: expected a template with prices and two tiers or more")
    base = as_floats(template.prices.base)
    whole = whole_domains(as_floats(dataclasses.replace(template, prices=None)))
    whole = dataclasses.replace(whole, prices=PriceRange(low=base, base=base, high=base))
    if "jobs" in asked:  # with operators as the template's software has them
        asked["jobs"] = tuple(
            dataclasses.replace(job, workload=run_by(job.workload, template.stack.habits)) for job in asked["jobs"]
        )
    return Problem(template=whole, curves=as_floats(curves.base), bounds=bounds or known_bounds(), **asked)
