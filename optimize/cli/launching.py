"""What `equipoise plan --only` and `--launch` add: the search restricted, and the best plan as a launch file."""

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from optimize import units
from optimize.launch import frameworks as export
from optimize.plans import OnlyResult, PlanInputs, PlanResult, find_plan, find_plan_for

_FILES = {
    "megatron": "launch-megatron.sh",
    "megatron-bridge": "launch-megatron-bridge.txt",
    "torchtitan": "launch_torchtitan.py",
    "maxtext": "launch-maxtext.yml",
    "deepspeed": "launch-deepspeed.json",
}


def search(inputs: PlanInputs) -> tuple[PlanResult, OnlyResult | None]:
    """The best plans, with `--only` of those that a framework can be told."""
    asked: dict[str, Any] = {"fixed": inputs.fixed, "objective": inputs.objective, "tokens": inputs.tokens}
    asked |= {"top": inputs.top, "search": inputs.sharding.search}
    if inputs.only is None:
        return find_plan(inputs.workload, inputs.cluster, **asked, unrestricted=True), None
    only = find_plan_for(inputs.only, inputs.workload, inputs.cluster, **asked)
    return only.result, only


def text(inputs: PlanInputs, result: PlanResult) -> str | None:
    """The best plan as the launch file that was asked for."""
    if inputs.launch is None:
        return None
    return export.launch(inputs.launch, result.plan, inputs.workload, inputs.cluster)


def as_json(inputs: PlanInputs, result: PlanResult, only: OnlyResult | None) -> dict[str, Any]:
    """Keys beside those of `plan_command.as_json`."""
    added: dict[str, Any] = {} if only is None else {"only": only.as_json()}
    if inputs.launch is not None:
        added |= {"launch": text(inputs, result), "launch_cannot": list(_cannot(inputs, result))}
        added |= {"launch_elsewhere": list(export.FRAMEWORKS[inputs.launch].elsewhere(result.plan))}
    return added


def files(inputs: PlanInputs, result: PlanResult) -> dict[str, bytes]:
    """Beside result.json."""
    return {} if inputs.launch is None else {_FILES[inputs.launch]: str(text(inputs, result)).encode()}


def show(
    inputs: PlanInputs,
    result: PlanResult,
    only: OnlyResult | None,
    show_plans: Callable[[], None],
    said: tuple[str, ...] = (),
) -> None:
    """On the screen: with `--launch` its text alone on standard output, so that it can be sent to a file."""
    with contextlib.redirect_stdout(sys.stdout if inputs.launch is None else sys.stderr):
        show_plans()
        for line in (*said, *_said(inputs, result, only)):
            print(line)
    if inputs.launch is not None:
        print(text(inputs, result), end="")


def _said(inputs: PlanInputs, result: PlanResult, only: OnlyResult | None) -> list[str]:
    lines = []
    if only is not None:
        lines.append(f"only what {only.title} can be told: {_worse(only.cost, result.objective)}")
    if inputs.launch is not None:
        lines += [f"not in the launch file: {told}" for told in _cannot(inputs, result)]
        lines += [f"set outside it: {told}" for told in export.FRAMEWORKS[inputs.launch].elsewhere(result.plan)]
        if _cannot(inputs, result) and inputs.only != inputs.launch:
            lines.append(f"--only {inputs.launch} searches the plans that it can be told")
    return lines


def _worse(cost: float | None, objective: str) -> str:
    if cost is None:
        return "what that costs is not known, the search was stopped"
    return f"{units.percent(cost)} worse in {objective} than the best of all plans" if cost > 1e-9 else "costs nothing"


def _cannot(inputs: PlanInputs, result: PlanResult) -> tuple[str, ...]:
    return export.FRAMEWORKS[str(inputs.launch)].cannot(result.plan, inputs.workload)
