"""Parts of the JSON of `equipoise plan`: plans, runners-up, frameworks, ranges."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import Plan
from optimize.launch import FRAMEWORKS
from optimize.plans import PlanInputs, PlanResult, Ranked, RunnerUp, launchers, refusals, restriction_cost


def launch_by(result: PlanResult, job: PlanInputs, each: Mapping[str, tuple[float, Plan]]) -> dict[str, Any]:
    """What each framework can do: whether it can launch the best plan, why not, and the best plan that it can."""
    run = result.plan, job.workload, job.cluster
    why, names = refusals(*run), launchers(*run)
    told: dict[str, Any] = {name: {"can": name in names, "cannot": why.get(name)} for name in FRAMEWORKS}
    least = min((value for value, _ in each.values()), default=math.nan)
    for name, (value, own) in each.items():
        told[name] |= {"plan": dataclasses.asdict(own), "behind": value / least - 1}
    return told


def row_json(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A row of a range, its plan as fields."""
    return None if row is None else {**row, "plan": dataclasses.asdict(row["plan"])} if "plan" in row else dict(row)


def found_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a range, its best row apart."""
    left_out = ("best", "rows", "curve", "fixed")
    rows = {name: [row_json(row) for row in found[name]] for name in ("rows", "curve")}
    return {"best": row_json(found["best"]), **rows, **{k: v for k, v in found.items() if k not in left_out}}


def ranked_json(ranked: Ranked) -> dict[str, Any]:
    """One of the best plans."""
    return {
        "plan": dataclasses.asdict(ranked.plan),
        "value": ranked.value,
        "gap": ranked.gap,
        "step_s": ranked.step_s,
        "mfu": ranked.mfu,
        "peak_bytes": ranked.peak_bytes,
        "fits_probability": ranked.validation.fits_probability,
        "reason": ranked.reason,
    }


def runner_up_json(each: RunnerUp) -> dict[str, Any]:
    """A plan of another shape, and what would make it win."""
    change = None if each.wins_with is None else {"parameter": each.wins_with[0].key, "factor": each.wins_with[1]}
    return {
        "plan": dataclasses.asdict(each.plan),
        "behind": each.behind,
        "wins_with": change,
    }


def only_json(framework: str, result: PlanResult, best: PlanResult | None) -> dict[str, Any]:
    """What `--only` costs, and the best plan without it."""
    return {
        "framework": framework,
        "cost": restriction_cost(result, best),
        "best_of_all": None if best is None else {"plan": dataclasses.asdict(best.plan), "value": best.value},
    }
