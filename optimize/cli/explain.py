"""`equipoise explain`: what a step costs under a plan, and `--against` another plan or on another cluster."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.measured import with_margin
from costmodel.specs import (
    COUNT,
    PLAN_CHECKS,
    PROBABILITY,
    TEXT,
    Check,
    SpecError,
    cluster_names,
    is_path,
    load_cluster,
    nearest,
    one_of,
    read_mapping,
    show,
    violations,
)
from optimize import report
from optimize.cli.command import AMOUNT, COMMAND_LINE, Command, Count, Number, Software, Switch, Text, given, placed
from optimize.cli.inputs import Given, job, merge
from optimize.cli.plan_flags import PlanFlags
from optimize.diagnosis import Explanation, Inputs, differences_json, explain_inputs, explanation_json, tokens_to
from optimize.lattice import choose_plan, usual_formats
from optimize.launch import TABLE, is_launch_file
from optimize.question import FAILURES, SECONDS_A_DAY, failing
from optimize.status import CommandError, Status

_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster", "plan"), Check("a name or a file", lambda value: isinstance(value, str))),
    **dict.fromkeys(("out", "software"), TEXT),
    **dict.fromkeys(("accelerators", "sequence", "batch"), COUNT),
    **dict.fromkeys(("target_loss", "tokens", "deadline_days", "repair_days"), AMOUNT),
    "failures": one_of(("none", *FAILURES)),
    "margin": PROBABILITY,
}

AS_PREDICTED = 0.5  # the probability of fitting that takes predictions of memory as they are

Explained = tuple[Explanation, Explanation | None]
"""The answer, and that of `--against`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise explain`."""

    model: Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    cluster: Text = None
    """name of a cluster (`equipoise clusters`), or a TOML or JSON file"""
    software: Software = None
    accelerators: Count = None
    """how many are used; default: the product of the plan's degrees, or the cluster's own number"""
    sequence: Count = None
    """tokens of one sequence; default: the model's"""
    batch: Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    plan: Text = None
    """TOML or JSON file of a plan, or an answer that holds one; flags below override its fields"""
    against: Text = None
    """plan file, cluster file or name of a cluster, to be put beside the first, largest difference first"""
    margin: Number = None
    """the probability that the plan must fit in memory with; default: 0.5, memory as it is predicted"""
    target_loss: Number = None
    """loss in nats a token, of which it is told how long it takes with failures (law besiroglu-2024, at even odds)"""
    tokens: Number = None
    """tokens to train, of which the same is told"""
    deadline_days: Number = None
    """with either: how likely it is that training ends by then"""
    failures: Text = None
    """how often parts fail and how long it takes to go on: none, low, base (default) or high, of `prices`"""
    repair_days: Number = None
    """days until a server that failed is back: spares for them are bought, and powered idle; default: none are"""
    config: Text = None
    """TOML file of these same fields (`model = "llama3-8b"`, `tensor = 8`, ...); flags override it"""
    out: Text = None
    """directory for result.json and the figures, as PNG and SVG"""
    json: Switch = False
    """print one JSON object and nothing else"""
    degrees: PlanFlags = PlanFlags()  # pyright: ignore[reportInvalidTypeForm]


def ask(request: Request) -> Inputs:
    """What is evaluated, and with `--against` what stands beside it."""
    plan = {name: value for name, value in vars(request.degrees).items() if value is not None}
    inputs = resolve(given(request, "against", "degrees") | plan, request.config)
    return inputs if request.against is None else dataclasses.replace(inputs, against=_other(inputs, request.against))


def resolve(
    flags: Mapping[str, Any], config: str | None = None, model_table: Mapping[str, Any] | None = None
) -> Inputs:
    """Read, merge, check and complete. Raises `CommandError`, or `SpecError` for a wrong value."""
    given = merge(flags, config, _CHECKS | PLAN_CHECKS)
    if model_table is not None:
        given = dataclasses.replace(given, values={**given.values, TABLE: model_table})
    workload, machine = job(given, given.values.get("accelerators") or _product(given))
    margin = given.values.get("margin", AS_PREDICTED)
    failures = given.pick("failures", "repair_days")
    cluster, target = _failing(with_margin(machine, margin), failures), _target(given)
    if target["target_loss"] is not None:
        tokens_to(workload, target["target_loss"])  # raises where it is never reached
    asked, origin = given.pick(*PLAN_CHECKS), _plan_origin(given)
    fields = usual_formats(cluster, asked) | asked
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
        model_table=given.values.get(TABLE),
        software_named="software" in given.values,
        margin=margin,
        fixed=given.pick(*PLAN_CHECKS),
        failures=failures,
        **target,
    )


def _failing(cluster: Cluster, asked: Mapping[str, Any]) -> Cluster:
    """The cluster with the failures and the spares that were asked for."""
    days = asked.get("repair_days")
    repair_s = None if days is None else SECONDS_A_DAY * days
    return failing(cluster, asked.get("failures", "base"), repair_s) if asked else cluster


def _target(given: Given) -> dict[str, Any]:
    """Loss, tokens and deadline, as fields of `Inputs`."""
    asked, days = given.values, given.values.get("deadline_days")
    if "tokens" in asked and "target_loss" in asked:
        raise SpecError(f"{given.place('tokens')}: `tokens` is given beside `target_loss`; expected one of them")
    if days is not None and not asked.keys() & {"tokens", "target_loss"}:
        told = "`deadline_days` is given without `tokens` or `target_loss`; expected one of them"
        raise SpecError(f"{given.place('deadline_days')}: {told}")
    deadline_s = None if days is None else SECONDS_A_DAY * days
    return {**{name: asked.get(name) for name in ("target_loss", "tokens")}, "deadline_s": deadline_s}


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


def _other(inputs: Inputs, other: str) -> Inputs:
    """The same job and number of accelerators, with the plan or the cluster that `other` names."""
    if other in cluster_names() or _is_cluster_file(other):
        return _on_cluster(inputs, other)
    sizes = {"sequence": inputs.workload.sequence, "batch": inputs.workload.batch, "margin": inputs.margin}
    machine = {"cluster": inputs.cluster_from, "accelerators": inputs.cluster.accelerators}
    if inputs.software_named:
        machine["software"] = inputs.cluster.stack.software
    return resolve({"model": inputs.model, **machine, **sizes, "plan": other}, model_table=inputs.model_table)


def _is_cluster_file(other: str) -> bool:
    if not is_path(other):
        hint = nearest(other, cluster_names())
        raise SpecError(f"{COMMAND_LINE}: `against` is {show(other)}, which is neither a cluster nor a file; {hint}")
    if placed(COMMAND_LINE, "against", is_launch_file, other):
        return False
    content = placed(COMMAND_LINE, "against", read_mapping, other)
    return "plan" not in content and not content.keys().isdisjoint(("accelerator", "tiers", "cluster"))


def _on_cluster(inputs: Inputs, other: str) -> Inputs:
    """The same job there, with the same plan where that was given and is legal; else with one that is chosen there."""
    software = inputs.cluster.stack.software if inputs.software_named else None
    cluster = placed(COMMAND_LINE, "against", load_cluster, other, inputs.cluster.accelerators, software)
    cluster = _failing(with_margin(cluster, inputs.margin), inputs.failures)
    plan, chosen, usual = inputs.plan, "", usual_formats(cluster, inputs.fixed)
    if inputs.chosen or violations(plan, inputs.workload, cluster):
        kept = _legal_there(inputs.fixed, usual, inputs.workload, cluster)
        plan, chosen = choose_plan(usual | kept, inputs.workload, cluster)
        if dropped := [name for name in inputs.fixed if name not in kept]:
            told = ", ".join(f"{name}={inputs.fixed[name]}" for name in dropped)
            chosen += f"; without {told}, which no plan there has beside the rest"
    return dataclasses.replace(inputs, cluster=cluster, cluster_from=other, plan=plan, chosen=chosen)


def _legal_there(
    fixed: Mapping[str, Any], usual: Mapping[str, Any], workload: Workload, cluster: Cluster
) -> dict[str, Any]:
    """The fields that were given, without those that no plan there has beside the others, the first ones kept."""
    if _is_legal({**usual, **fixed}, workload, cluster):
        return dict(fixed)
    kept = dict[str, Any]()
    for name, value in fixed.items():
        if _is_legal({**usual, **kept, name: value}, workload, cluster):
            kept[name] = value
    return kept


def _is_legal(fixed: Mapping[str, Any], workload: Workload, cluster: Cluster) -> bool:
    """Whether some plan there has these fields."""
    try:
        choose_plan(fixed, workload, cluster)
    except CommandError as error:
        return error.status is not Status.bad_input
    return True


def run(inputs: Inputs) -> Explained:
    """Explain one, or both."""
    return explain_inputs(inputs), None if inputs.against is None else explain_inputs(inputs.against)


def as_json(inputs: Inputs, explained: Explained) -> dict[str, Any]:
    """The first answer, and under `against` the other one and the differences."""
    first, other = explained
    if other is None:
        return explanation_json(first)
    both = {"answer": explanation_json(other), "differences": differences_json(first, other)}
    return explanation_json(first) | {"against": both}


def show_screen(inputs: Inputs, explained: Explained) -> None:
    """The answer alone, or both side by side."""
    first, other = explained
    if other is None:
        report.show_explanation(first)
    else:
        report.show_comparison(first, other)


def draw(inputs: Inputs, explained: Explained) -> dict[str, bytes]:
    """The figures of the answer; with another one beside it first that of both."""
    first, other = explained
    return ({} if other is None else report.draw_comparison(first, other)) | report.draw_explanation(first)


EXPLAIN = Command(
    request=Request,
    about="What a training step costs under a plan, term by term, and why.",
    examples="""
examples:
  equipoise explain --model llama3-8b --cluster h100 --accelerators 64
  equipoise explain --model llama3-70b --cluster h100 --tensor 8 --pipeline 4 --data 16 --sequence-parallel
  equipoise explain --model gpt3-175b --cluster a100-80gb --plan plan.json --recompute full --json
  equipoise explain --model llama3-70b --cluster h100 --accelerators 256 --against b200
  equipoise explain --model llama3-8b --cluster h100 --accelerators 256 --tokens 1e12 --deadline-days 14 --repair-days 3
  equipoise explain --model llama2-7b --cluster h100 --accelerators 128 --software fsdp --zero-stage 3
  equipoise explain --config job.toml --out results/job""",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show_screen,
    files=draw,
)
