"""The design's own frontier, with the budgets that its time did not reach.

`design` gives its frontier the last few per cent of its seconds. The budgets that are missing are searched here in
the same way, from where its descent ended; each point carries its own bound, however far the time took it.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

from optimize import joint
from optimize.design import DesignResult
from optimize.design_command import DesignInputs
from optimize.frontier import FACTORS, monotone, point_of
from optimize.objective import Limits
from optimize.problem import Problem
from optimize.space import space
from optimize.thinning import thinned

LIMIT = "budget_usd"


def completed(
    inputs: DesignInputs, result: DesignResult, seconds: float, say: Callable[[str], None]
) -> list[Mapping[str, Any]]:
    """Points by budget: those of `result`, and in `seconds` the others of `FACTORS`, in equal shares of the time."""
    points, asked = list(result.frontier), inputs.limits.budget_usd
    if not points or asked is None:
        return points
    known = {point[LIMIT] for point in points}
    missing = [asked * factor for factor in FACTORS if asked * factor not in known]
    end, after = time.monotonic() + seconds, joint.Progress(_problem(inputs, asked), relaxed=result.relaxed)
    for number, budget_usd in enumerate(missing):
        say(f"frontier: {budget_usd / 1e6:,.0f} million USD")
        share_s = max(0.0, end - time.monotonic()) / (len(missing) - number)
        problem = _problem(inputs, budget_usd)
        found = joint.search(problem, share_s, inputs.seed, after=after)
        if found.best is not None:
            after = found
        points.append(point_of(LIMIT, problem, found))
    return monotone(points, LIMIT, inputs.objective.maximised)


def _problem(inputs: DesignInputs, budget_usd: float) -> Problem:
    """The question of the design with another budget."""
    own = space(inputs.template, inputs.curves)
    kept, _ = thinned([job.workload for job in inputs.jobs], own, inputs.fixed)
    had = inputs.limits
    limits = Limits(
        budget_usd=budget_usd, power_w=had.power_w, accelerators=had.accelerators, deadline_s=had.deadline_s
    )
    return Problem(jobs=inputs.jobs, limits=limits, objective=inputs.objective, space=own, fixed=kept)
