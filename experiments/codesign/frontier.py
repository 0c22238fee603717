"""The design's own frontier: the answer itself at the budget that was asked for, and bounds that more money carries."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.measured import with_margin
from optimize.clusters import Answer, DesignInputs, DesignResult, monotone
from optimize.lattice import thinned
from optimize.question import Problem, design_problem, failing

LIMIT = "budget_usd"


def completed(inputs: DesignInputs, result: DesignResult) -> list[Mapping[str, Any]]:
    """Points by budget."""
    asked = inputs.limits.budget_usd
    if asked is None:
        return list(result.frontier)
    points = [_answered(point, result.continuous, asked) for point in result.frontier]
    return _carried(monotone(points, LIMIT, inputs.objective.maximised))


def _answered(point: Mapping[str, Any], answer: Answer | None, asked: float) -> Mapping[str, Any]:
    """The answer itself at the budget that was asked for: it holds the fullest stage; points spread layers evenly."""
    if answer is None or point[LIMIT] != asked or point["value"] is None:
        return point
    return {
        **point,
        "value": answer.value,
        "lower_bound": answer.lower_bound,
        "gap": answer.gap,
        "hardware": {name: size for name, size in answer.hardware.items() if name in point["hardware"]},
        "plan": dataclasses.asdict(answer.jobs[0].plan),
    }


def _carried(points: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each bound at least that of the next point: less money allows no cluster that more money does not."""
    kept: list[Mapping[str, Any]] = []
    for point in reversed(points):
        after = kept[-1]["lower_bound"] if kept else None
        own = point["lower_bound"]
        if own is not None and after is not None and after > own:
            point = {**point, "lower_bound": after, "gap": max(0.0, point["value"] / after - 1)}
        kept.append(point)
    return kept[::-1]


def problem_of(inputs: DesignInputs) -> Problem:
    """The question as the design asks it."""
    template = failing(with_margin(inputs.template, inputs.margin), inputs.failures, inputs.repair_s)
    asked = {"jobs": inputs.jobs, "limits": inputs.limits, "objective": inputs.objective}
    problem = design_problem(template, inputs.curves, **asked)
    kept, _ = thinned([job.workload for job in inputs.jobs], problem.machine, inputs.fixed)
    return dataclasses.replace(problem, fixed=kept)
