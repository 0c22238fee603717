"""`equipoise plan`: from the words to the answer, and the answer as plain data with the keys programs rely on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.specs import COUNT, PLAN_CHECKS, POSITIVE, TEXT, Check, SpecError, fail, nearest, one_of, show
from optimize.cli.inputs import Given, job, merge
from optimize.plans import WAIT_S, PlanInputs, PlanResult, PlanTable, Ranked, RunnerUp, Sharding
from optimize.question import Objective

SCHEMA = 1
LAUNCHERS = ("megatron", "megatron-bridge", "torchtitan", "maxtext", "deepspeed")
MOST_TOLD = 1_000  # plans: each is scored exactly and validated
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster"), Check("a name or a file", lambda value: isinstance(value, str))),
    **dict.fromkeys(("fix", "out", "checkpoint"), TEXT),
    **dict.fromkeys(("accelerators", "sequence", "batch", "top", "processes", "process"), COUNT),
    **dict.fromkeys(("tokens", "wait"), POSITIVE),
    "layers": Check("true or false", lambda value: isinstance(value, bool)),
    "coordinator": Check("host:port", lambda value: isinstance(value, str) and _is_address(value)),
    **dict.fromkeys(("only", "launch"), Check(f"one of {', '.join(LAUNCHERS)}", lambda value: value in LAUNCHERS)),
    "objective": one_of([objective.key for objective in Objective]),
}


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return host != "" and port.isdecimal() and 0 < int(port) < 65536


def resolve(flags: Mapping[str, Any], config: str | None = None) -> PlanInputs:
    """Read, merge and check. Raises `SpecError` for a wrong value."""
    given = merge(flags, config, _CHECKS)
    if given.values.get("top", 1) > MOST_TOLD:
        raise SpecError(f"{given.place('top')}: `top` is {show(given.values['top'])}; expected at most {MOST_TOLD:,}")
    workload, cluster = job(given, given.values.get("accelerators"))
    return PlanInputs(
        model=str(given.values["model"]),
        workload=workload,
        cluster=cluster,
        fixed=fixed_fields(given),
        objective=given.values.get("objective", "step_s"),
        tokens=given.values.get("tokens"),
        top=given.values.get("top", 10),
        out=Path(given.values["out"]) if "out" in given.values else None,
        sharding=_sharding(given),
        only=given.values.get("only"),
        launch=given.values.get("launch"),
        layers=given.values.get("layers", False),
    )


def _sharding(given: Given) -> Sharding:
    """Which part of the search this process does."""
    asked = given.pick("processes", "process", "coordinator")
    processes, process = asked.get("processes", 1), asked.get("process", 1)
    if processes > 1 and len(asked) < 3:
        missing = next(name for name in ("process", "coordinator") if name not in asked)
        example = "--process 1" if missing == "process" else "--coordinator 127.0.0.1:12345"
        raise SpecError(f"{given.place('processes')}: `{missing}` is missing with `processes`; expected {example}")
    if process > processes:
        fail(given.place("process"), "process", process, f"an integer from 1 to `processes` ({processes})")
    return Sharding(
        processes=processes,
        process=process - 1,
        coordinator=asked.get("coordinator"),
        checkpoint=Path(given.values["checkpoint"]) if "checkpoint" in given.values else None,
        wait_s=given.values.get("wait", WAIT_S),
    )


def fixed_fields(given: Given) -> dict[str, Any]:
    """The fields of `--fix tensor=8,schedule=one_f_one_b`."""
    if "fix" not in given.values:
        return {}
    place, found = given.place("fix"), {}
    for part in str(given.values["fix"]).split(","):
        name, equals, text = (word.strip() for word in part.partition("="))
        name = name.replace("-", "_")
        if not equals or name not in PLAN_CHECKS:
            told = f"`fix` has {show(part.strip())}; expected field=value"
            raise SpecError(f"{place}: {told}; {nearest(name, PLAN_CHECKS)}" if equals else f"{place}: {told}")
        if name in found:
            raise SpecError(f"{place}: `fix` gives `{name}` twice; expected one value")
        found[name] = _typed(place, name, text)
    return found


_WORDS = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


def _typed(place: str, name: str, text: str) -> Any:
    """The value that a field takes: of the readings of the text, the first that its check accepts."""
    check = PLAN_CHECKS[name]
    for read in (int, float, lambda word: _WORDS[word], str, lambda word: [int(part) for part in word.split(":")]):
        try:
            value = read(text)
        except (ValueError, KeyError):
            continue
        if check(value):
            return check.keep(value)
    raise SpecError(f"{place}: `fix` sets `{name}` to {show(text)}; expected {check.expected}")


def table_for(inputs: PlanInputs) -> PlanTable | None:
    """Where the plans that are looked at are noted, with `--out`."""
    return PlanTable() if inputs.out is not None and inputs.sharding.process == 0 else None


def with_table(inputs: PlanInputs, table: PlanTable | None) -> PlanInputs:
    """The same search, noted."""
    looked = None if table is None else table.add
    return dataclasses.replace(inputs, sharding=dataclasses.replace(inputs.sharding, looked=looked))


def table_file(table: PlanTable | None) -> dict[str, bytes]:
    """The file by its name."""
    return {} if table is None else {"plans.csv.gz": table.content()}


def as_json(inputs: PlanInputs, result: PlanResult, table: PlanTable | None = None) -> dict[str, Any]:
    """The answer of DESIGN section 9, without the keys that every command adds."""
    best = result.plans[0]
    return {
        "schema": SCHEMA,
        "status": result.status.name,
        "message": result.message,
        "inputs": inputs.as_json(),
        "plan": dataclasses.asdict(best.plan),
        "step_s": best.step_s,
        "lower_bound_s": result.lower_bound_s,
        "gap": result.gap,
        "objective": result.objective,
        "unit": result.unit,
        "value": result.value,
        "lower_bound": result.lower_bound,
        "plans": [_ranked(plan) for plan in result.plans],
        "simplest": None if result.simplest is None else _ranked(result.simplest),
        "runner_ups": [_runner_up(each) for each in result.runner_ups],
        "restriction": result.restriction,
        "evaluations": result.evaluations,
        "plans_in_lattice": result.plans_in_lattice,
        "fitting": result.fitting,
        "elasticities": {e.parameter.key: e.value for e in result.elasticities},
        "validation": best.validation.as_json(),
        "table": None if table is None else {"file": "plans.csv.gz", "rows": table.rows, "of": table.seen},
        "seed": result.seed,
    }


def _ranked(ranked: Ranked) -> dict[str, Any]:
    return {
        "plan": dataclasses.asdict(ranked.plan),
        "value": ranked.value,
        "gap": ranked.gap,
        "step_s": ranked.step_s,
        "mfu": ranked.mfu,
        "peak_bytes": ranked.peak_bytes,
        "reason": ranked.reason,
    }


def _runner_up(each: RunnerUp) -> dict[str, Any]:
    change = each.wins_with
    return {
        "plan": dataclasses.asdict(each.plan),
        "behind": each.behind,
        "wins_with": None if change is None else {"parameter": change.parameter.key, "factor": change.factor},
    }
