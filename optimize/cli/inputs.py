"""From what was asked to what is evaluated: flags over a config file over a plan file, names to objects.

Each layer is checked under the name of the place where it was read, so a message says where to look.
"""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import (
    COUNT,
    PLAN_CHECKS,
    TEXT,
    Check,
    SpecError,
    convert,
    fail,
    load_cluster,
    load_workload,
    plain,
    read_mapping,
    violations,
)
from optimize.diagnosis import Inputs
from optimize.lattice import choose_plan, plan_precision
from optimize.launch import PlanFile, read_plan_file
from optimize.status import CommandError, Status

T = TypeVar("T")

COMMAND_LINE = "command line"
LARGEST_PIPELINE = 100_000  # stages, each of which is reported
_REQUEST_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster", "plan"), Check("a name or a file", lambda value: isinstance(value, str))),
    "out": TEXT,
    **dict.fromkeys(("accelerators", "sequence", "batch"), COUNT),
}


@dataclasses.dataclass(frozen=True)
class Given:
    """All fields that were given, and where the one that counts was read."""

    values: Mapping[str, Any]
    places: Mapping[str, str]
    unread: tuple[str, ...] = ()  # options of a launch file

    def pick(self, *names: str) -> dict[str, Any]:
        return {name: self.values[name] for name in names if name in self.values}

    def place(self, *names: str) -> str:
        """The place of the first of the fields that was given."""
        return next((self.places[name] for name in names if name in self.places), COMMAND_LINE)


def resolve(flags: Mapping[str, Any], config: str | None = None) -> Inputs:
    """Read, merge, check and complete. Raises `CommandError`, or `SpecError` for a wrong value."""
    given = merge(flags, config, _REQUEST_CHECKS | PLAN_CHECKS)
    workload, cluster = job(given, given.values.get("accelerators") or _product(given))
    fields, origin = plan_precision(cluster) | given.pick(*PLAN_CHECKS), _plan_origin(given)
    if "tensor" in fields and "pipeline" in fields:
        plan, chosen = _complete(fields, cluster, given), ""
    else:
        plan, chosen = choose_plan(fields, workload, cluster)
    broken = violations(plan, workload, cluster)
    if broken:
        raise CommandError(Status.bad_input, f"plan ({origin}): {broken[0]}", broken)
    return Inputs(
        model=str(given.values["model"]),
        cluster_from=str(given.values["cluster"]),
        workload=workload,
        cluster=cluster,
        plan=plan,
        plan_from=origin,
        chosen=chosen,
        out=Path(given.values["out"]) if "out" in given.values else None,
        unread=given.unread,
    )


def job(given: Given, accelerators: int | None) -> tuple[Workload, Cluster]:
    """The model and the cluster that are asked for."""
    for field, example in (("model", "llama3-8b"), ("cluster", "h100")):
        if field not in given.values:
            raise SpecError(f"{COMMAND_LINE}: `{field}` is missing; expected a name such as {example}, or a file")
    workload = placed(
        given.place("model"), "model", load_workload, given.values["model"], **given.pick("sequence", "batch")
    )
    return workload, placed(given.place("cluster"), "cluster", load_cluster, given.values["cluster"], accelerators)


def merge(flags: Mapping[str, Any], config: str | None, checks: Mapping[str, Check]) -> Given:
    """Flags over the config file over the plan file that one of them names, each checked under its own place."""
    layers = [(COMMAND_LINE, convert(flags, checks, COMMAND_LINE))]
    if config is not None:
        place = f"config ({plain(config)})"
        content = placed(COMMAND_LINE, "config", read_mapping, config)
        layers.insert(0, (place, convert(content, checks, place)))
    source = next((source for source, layer in reversed(layers) if "plan" in layer), None)
    file = PlanFile({})
    if source is not None:
        path = dict(layers)[source]["plan"]
        asked = {name: value for _, layer in layers for name, value in layer.items()}
        file = placed(source, "plan", read_plan_file, path, asked)
        layers.insert(0, (f"plan ({plain(path)})", file.values))
    values, places = {}, {}
    for place, layer in layers:
        values |= layer
        places |= dict.fromkeys(layer, place)
    if values.get("pipeline", 1) > LARGEST_PIPELINE:
        fail(places["pipeline"], "pipeline", values["pipeline"], f"an integer from 1 to {LARGEST_PIPELINE}")
    return Given(values, places, file.unread)


def placed(place: str, field: str, load: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Call `load`; where its message names no field or no place, the field that was given, and where, go in front."""
    try:
        return load(*arguments, **keywords)
    except SpecError as error:
        message = str(error)
        if message.startswith("`"):
            raise SpecError(f"{place}: {message}") from None
        if "`" not in message:
            allowed = "" if "expected" in message else "; expected a TOML or JSON file"
            raise SpecError(f"{place}: `{field}`: {message}{allowed}") from None
        raise


def _product(given: Given) -> int | None:
    """Accelerators of a plan whose degrees are all given."""
    degrees = given.pick("tensor", "context", "data", "pipeline")
    if not {"tensor", "data", "pipeline"} <= degrees.keys():
        return None
    return Plan(**degrees).accelerators


def _plan_origin(given: Given) -> str:
    places = dict.fromkeys(given.places[name] for name in PLAN_CHECKS if name in given.places)
    return " and ".join(places) or "defaults"


def _complete(fields: Mapping[str, Any], cluster: Cluster, given: Given) -> Plan:
    """The plan with `data` derived, where it was not given, so that the degrees multiply to the cluster."""
    if "data" in fields:
        return Plan(**fields)
    plan = Plan(**fields)
    data, rest = divmod(int(cluster.accelerators), plan.accelerators)
    if data == 0 or rest:
        place = given.place("accelerators", "tensor", "pipeline")
        raise SpecError(
            f"{place}: `accelerators` is {cluster.accelerators}; expected a multiple of `tensor` x `context` x "
            f"`pipeline`, {plan.tensor} x {plan.context} x {plan.pipeline} = {plan.accelerators}"
        )
    return dataclasses.replace(plan, data=data)
