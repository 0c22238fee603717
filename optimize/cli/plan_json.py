"""What `equipoise plan` answers, and its JSON: plans, runners-up, frameworks, ranges."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from costmodel import evaluate
from costmodel.inputs import Plan
from optimize.cli.launching import chosen_framework, launch_text, launched
from optimize.diagnosis import Inputs, step_interval_s, time_to_target
from optimize.launch import FRAMEWORKS, outside
from optimize.layers import ImprovedLayers
from optimize.plans import (
    PlanInputs,
    PlanResult,
    PlanTable,
    Ranked,
    Row,
    RunnerUp,
    launchers,
    refusals,
    restriction_cost,
)
from optimize.versions import SCHEMA


class Answer(NamedTuple):
    """The best plans, and what the options add."""

    result: PlanResult
    best_of_all: PlanResult | None  # with `--only`: of all plans, where the search was not stopped before it
    layers: ImprovedLayers | None  # with `--layers`
    table: PlanTable | None  # with `--out`: every plan that was looked at
    each: Mapping[str, tuple[float, Plan]] = {}  # the best of each framework, where that was asked
    found: Mapping[str, Any] | None = None  # of a search over ranges (`best_over`)
    near: tuple[Row | None, Row | None] = (None, None)  # what `nearby` found
    job: PlanInputs | None = None  # of the best pair of ranges


def as_json(inputs: PlanInputs, answer: Answer) -> dict[str, Any]:
    """The answer of DESIGN section 9, without the keys that every command adds."""
    result, table, best = answer.result, answer.table, answer.result.plans[0]
    job, (less, other) = answer.job or inputs, answer.near
    low, high = step_interval_s(job.workload, job.cluster, best.plan, best.step_s)
    content = {
        "schema": SCHEMA,
        "status": result.status.name,
        "message": result.message,
        "inputs": inputs.as_json(),
        "plan": dataclasses.asdict(best.plan),
        "step_s": best.step_s,
        "step_s_p10": low,
        "step_s_p90": high,
        "fits_probability": best.validation.fits_probability,
        "time_to_target": time_of_best(job, best),
        "lower_bound_s": result.lower_bound_s,
        "gap": result.gap,
        "not_searched": list(result.not_searched),
        "objective": result.objective,
        "unit": result.unit,
        "value": result.value,
        "lower_bound": result.lower_bound,
        "plans": [_ranked_json(plan) for plan in result.plans],
        "simplest": None if result.simplest is None else _ranked_json(result.simplest),
        "runner_ups": [_runner_up_json(each) for each in result.runner_ups],
        "restriction": result.restriction,
        "evaluations": result.evaluations,
        "plans_in_lattice": result.plans_in_lattice,
        "fitting": result.fitting,
        "elasticities": {e.parameter.key: e.value for e in result.elasticities},
        "validation": best.validation.as_json(),
        "launch_by": _launch_by(result, job, answer.each),
        "nearby": {"fewer": _row_json(less), "batch": _row_json(other)},
        "range": None if answer.found is None else _found_json(answer.found),
        "table": None if table is None else {"file": "plans.csv.gz", "rows": table.rows, "of": table.seen},
        "seed": result.seed,
    }
    if inputs.only is not None:
        content |= {"only": _only_json(inputs.only, result, answer.best_of_all)}
    if inputs.launch is not None:
        inputs = answer.job or inputs
        framework, plan = chosen_framework(inputs), launched(inputs, answer.result, answer.layers)
        content |= {
            "launch": launch_text(inputs, answer.result, answer.layers),
            "launch_cannot": list(framework.cannot(plan, inputs.workload, inputs.cluster)),
            "launch_elsewhere": list(outside(framework, plan, inputs.workload, inputs.cluster)),
        }
    return content if answer.layers is None else content | {"layers": answer.layers.as_json()}


def time_of_best(inputs: PlanInputs, best: Ranked) -> dict[str, Any] | None:
    """What `explain --tokens` tells, of the best plan; None without tokens."""
    if inputs.tokens is None:
        return None
    asked = {"workload": inputs.workload, "cluster": inputs.cluster, "plan": best.plan}
    found = evaluate(*asked.values(), checked=False)
    return time_to_target(Inputs(**asked, tokens=inputs.tokens, deadline_s=inputs.deadline_s), found)


def _launch_by(result: PlanResult, job: PlanInputs, each: Mapping[str, tuple[float, Plan]]) -> dict[str, Any]:
    """What each framework can do: whether it can launch the best plan, why not, and the best plan that it can."""
    run = result.plan, job.workload, job.cluster
    why, names = refusals(*run), launchers(*run)
    told: dict[str, Any] = {name: {"can": name in names, "cannot": why.get(name)} for name in FRAMEWORKS}
    least = min((value for value, _ in each.values()), default=math.nan)
    for name, (value, own) in each.items():
        told[name] |= {"plan": dataclasses.asdict(own), "behind": value / least - 1}
    return told


def _row_json(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A row of a range, its plan as fields."""
    return None if row is None else {**row, "plan": dataclasses.asdict(row["plan"])} if "plan" in row else dict(row)


def _found_json(found: Mapping[str, Any]) -> dict[str, Any]:
    """What became of a range, its best row apart."""
    left_out = ("best", "rows", "curve", "fixed")
    rows = {name: [_row_json(row) for row in found[name]] for name in ("rows", "curve")}
    return {"best": _row_json(found["best"]), **rows, **{k: v for k, v in found.items() if k not in left_out}}


def _ranked_json(ranked: Ranked) -> dict[str, Any]:
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


def _runner_up_json(each: RunnerUp) -> dict[str, Any]:
    """A plan of another shape, and what would make it win."""
    change = None if each.wins_with is None else {"parameter": each.wins_with[0].key, "factor": each.wins_with[1]}
    return {
        "plan": dataclasses.asdict(each.plan),
        "behind": each.behind,
        "wins_with": change,
    }


def _only_json(framework: str, result: PlanResult, best: PlanResult | None) -> dict[str, Any]:
    """What `--only` costs, and the best plan without it."""
    return {
        "framework": framework,
        "cost": restriction_cost(result, best),
        "best_of_all": None if best is None else {"plan": dataclasses.asdict(best.plan), "value": best.value},
    }
