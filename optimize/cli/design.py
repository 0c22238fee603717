"""`equipoise design`: from the words to the answer, and the answer as plain data with the keys programs rely on."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.formulas import anchored
from costmodel.specs import (
    COUNT,
    FLAG,
    POSITIVE,
    TEXT,
    Check,
    SpecError,
    load_cluster,
    load_curves,
    load_workload,
    one_of,
)
from optimize.cli.inputs import COMMAND_LINE, Given, merge, placed
from optimize.cli.jobs import read_jobs
from optimize.cli.plan import fixed_fields
from optimize.clusters import SWEPT, Answer, DesignInputs, DesignResult
from optimize.question import SECONDS_A_DAY, Job, Limits, Objective

SCHEMA = 1
TEMPLATE = "gb200-nvl72"
SECONDS = 30.0
_OBJECTIVES = {objective.key: objective for objective in (Objective.time, *Objective)}  # the default one first
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster", "curves"), Check("a name or a file", lambda value: isinstance(value, str))),
    "jobs": Check("a file", lambda value: isinstance(value, str)),
    **dict.fromkeys(("fix", "out"), TEXT),
    **dict.fromkeys(("accelerators", "sequence", "batch"), COUNT),
    **dict.fromkeys(("tokens", "budget_usd", "power_mw", "deadline_days", "seconds"), POSITIVE),
    "seed": Check(
        "an integer >= 0", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ),
    "rent": FLAG,
    "sweep": one_of(SWEPT),
    "objective": one_of(_OBJECTIVES),
}


def resolve_design(flags: Mapping[str, Any], config: str | None = None) -> DesignInputs:
    """Read, merge and check. Raises `SpecError` for a wrong value."""
    given = merge(flags, config, _CHECKS)
    if not given.values.keys() & {"budget_usd", "power_mw"}:
        raise SpecError(f"{COMMAND_LINE}: `budget_usd` is missing; expected it, or `power_mw`, or both")
    models, jobs = _jobs(given)
    days, megawatt = given.values.get("deadline_days"), given.values.get("power_mw")
    limits = Limits(
        budget_usd=given.values.get("budget_usd"),
        rent=given.values.get("rent", False),
        power_w=None if megawatt is None else 1e6 * megawatt,
        accelerators=given.values.get("accelerators"),
        deadline_s=None if days is None else SECONDS_A_DAY * days,
    )
    template = placed(given.place("cluster"), "cluster", load_cluster, given.values.get("cluster", TEMPLATE))
    curves = placed(given.place("curves"), "curves", load_curves, *given.pick("curves").values())
    return DesignInputs(
        jobs=jobs,
        models=models,
        limits=limits,
        objective=_OBJECTIVES[given.values.get("objective", Objective.time.key)],
        template=template,
        curves=curves if "curves" in given.values else anchored(curves, template),
        fixed=fixed_fields(given),
        seconds=given.values.get("seconds", SECONDS),
        seed=given.values.get("seed", 0),
        sweep=given.values.get("sweep"),
        out=Path(given.values["out"]) if "out" in given.values else None,
    )


def _jobs(given: Given) -> tuple[tuple[str, ...], tuple[Job, ...]]:
    """The one of the command line, or those of a file."""
    if "jobs" in given.values:
        for name in ("model", "tokens", "sequence", "batch"):
            if name in given.values:
                raise SpecError(f"{given.place(name)}: `{name}` is given beside `jobs`; expected it in that file")
        return read_jobs(given.values["jobs"], given.place("jobs"))
    for field, example in (("model", "a name such as megatron-1t, or a file"), ("tokens", "a number such as 20e12")):
        if field not in given.values:
            raise SpecError(f"{COMMAND_LINE}: `{field}` is missing; expected {example}")
    workload = placed(
        given.place("model"), "model", load_workload, given.values["model"], **given.pick("sequence", "batch")
    )
    return (str(given.values["model"]),), (Job(workload=workload, tokens=given.values["tokens"]),)


def as_json(inputs: DesignInputs, result: DesignResult) -> dict[str, Any]:
    """The answer of DESIGN section 9, without the keys that every command adds."""
    empty: dict[str, Any] = {"cluster": None, "jobs": [], "value": None, "lower_bound": None, "gap": None}
    return {
        "schema": SCHEMA,
        "status": result.status.name,
        "message": result.message,
        "inputs": inputs.as_json(),
        "objective": result.objective.key,
        "objective_is": result.objective.meaning,
        **(empty if result.continuous is None else answer_json(result.continuous)),
        "frontier": [dict(point) for point in result.frontier],
        "catalogue": None if result.catalogue is None else answer_json(result.catalogue),
        "runners_up": [dict(other) for other in result.runners_up],
        "counts": list(result.counts),
        "notes": list(result.notes),
        "seed": result.seed,
    }


def answer_json(answer: Answer) -> dict[str, Any]:
    """One of the two answers."""
    q = answer.quantities
    return {
        "cluster": {
            "name": answer.name,
            **answer.hardware,
            "domain": answer.domain,
            "capital_usd": _number(q.capital_usd),
            "meter_w": _number(q.meter_w),
            "usd_per_s": _number(q.usd_per_s),
        },
        "jobs": [
            {
                "model": job.job.workload.name,
                "tokens": job.job.tokens,
                "plan": dataclasses.asdict(job.plan),
                "step_s": job.step_s,
                "train_s": job.train_s,
                "mfu": job.mfu,
                "peak_bytes": job.validation.peak_bytes,
                "validation": job.validation.as_json(),
            }
            for job in answer.jobs
        ],
        "value": answer.value,
        "lower_bound": answer.lower_bound,
        "gap": answer.gap,
        "bound_is": answer.bound_is,
        "residuals": dict(answer.residuals),
        "shadow_prices": dict(answer.shadow_prices),
        "elasticities": {e.parameter.key: e.value for e in answer.elasticities},
        "evaluations": answer.evaluations,
    }


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)
