"""The design's own frontier, with the budgets that its time did not reach.

`design` gives its frontier the last few per cent of its seconds. The budgets that are missing are searched here in
the same way, from where its descent ended; each point carries its own bound, however far the time took it.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

from optimize.clusters import FACTORS, Answer, DesignInputs, DesignResult, Progress, monotone, point_of
from optimize.clusters import one_job as joint
from optimize.lattice import thinned
from optimize.question import Limits, Problem, design_problem

LIMIT = "budget_usd"


def completed(
    inputs: DesignInputs, result: DesignResult, seconds: float, say: Callable[[str], None]
) -> list[Mapping[str, Any]]:
    """Points by budget: those of `result`, and in `seconds` the others of `FACTORS`, in equal shares of the time."""
    asked = inputs.limits.budget_usd
    if not result.frontier or asked is None:
        return list(result.frontier)
    points = [_answered(point, result.continuous, asked) for point in result.frontier]
    searched = _searched(inputs, result, asked, seconds, say) if seconds > 0 else []
    return _carried(monotone([*points, *searched], LIMIT, inputs.objective.maximised))


def _searched(
    inputs: DesignInputs, result: DesignResult, asked: float, seconds: float, say: Callable[[str], None]
) -> list[Mapping[str, Any]]:
    """The budgets that are missing."""
    points: list[Mapping[str, Any]] = []
    known = {point[LIMIT] for point in result.frontier}
    missing = [asked * factor for factor in FACTORS if asked * factor not in known]
    end, after = time.monotonic() + seconds, Progress(_problem(inputs, asked), relaxed=result.relaxed)
    for number, budget_usd in enumerate(missing):
        say(f"frontier: {budget_usd / 1e6:,.0f} million USD")
        share_s = max(0.0, end - time.monotonic()) / (len(missing) - number)
        problem = _problem(inputs, budget_usd)
        search = joint.search(problem, share_s, inputs.seed, after=after)
        if search.best is not None:
            after = search
        points.append(point_of(LIMIT, problem, search))
    return points


def _answered(point: Mapping[str, Any], answer: Answer | None, asked: float) -> Mapping[str, Any]:
    """The answer itself at the budget that was asked for: its hardware was solved to the end, the point's was not."""
    if answer is None or point[LIMIT] != asked or point["value"] is None or point["value"] <= answer.value:
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


def _problem(inputs: DesignInputs, budget_usd: float) -> Problem:
    """The question of the design with another budget."""
    had = inputs.limits
    limits = Limits(
        budget_usd=budget_usd, power_w=had.power_w, accelerators=had.accelerators, deadline_s=had.deadline_s
    )
    asked = {"jobs": inputs.jobs, "limits": limits, "objective": inputs.objective}
    problem = design_problem(inputs.template, inputs.curves, **asked)
    kept, _ = thinned([job.workload for job in inputs.jobs], problem.machine, inputs.fixed)
    return dataclasses.replace(problem, fixed=kept)
