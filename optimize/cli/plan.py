"""`equipoise plan`: the best plan; `--only` of those that a framework can be told, `--launch` as its file."""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.inputs import Plan
from costmodel.measured import FITS, with_margin
from costmodel.specs import COUNT, COUNT_FROM_0, FLAG, PROBABILITY, TEXT, Check, SpecError, fail, one_of, show
from optimize import report, units
from optimize.cli.command import AMOUNT, Command, Count, Number, Software, Switch, Text, given, placed
from optimize.cli.inputs import Given, fixed_fields, job, merge
from optimize.cli.launching import chosen_framework, launch_text, launched
from optimize.cli.plan_json import Answer, as_json, time_of_best
from optimize.cli.plan_ranges import RANGE, ranges, search_ranges, with_best, with_machine
from optimize.lattice import count, usual_formats
from optimize.launch import FRAMEWORKS, beside_launch, framework_at, outside
from optimize.layers import improve_layers
from optimize.others import WAIT_S, Others, Sharding, connect
from optimize.plans import (
    PlanInputs,
    PlanResult,
    PlanTable,
    asked_of,
    check_checkpoint,
    find_for,
    find_launchable,
    find_plan,
    nearby,
    nothing_legal,
    restriction_cost,
    search_shared,
)
from optimize.question import SECONDS_A_DAY, Objective
from optimize.status import CommandError, Status
from optimize.time_limit import or_else

MOST_PLANS = 1_000  # plans: each is scored exactly and validated
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster"), Check("a name or a file", lambda value: isinstance(value, str))),
    **dict.fromkeys(("fix", "out", "checkpoint", "software", "framework_version"), TEXT),
    **dict.fromkeys(("at_most", "sequence", "top", "processes"), COUNT),
    "process": COUNT_FROM_0,
    **dict.fromkeys(("accelerators", "batch"), RANGE),
    **dict.fromkeys(("tokens", "wait", "deadline_days"), AMOUNT),
    "margin": PROBABILITY,
    **dict.fromkeys(("layers", "fewest", "any"), FLAG),
    "coordinator": Check("host:port", lambda value: isinstance(value, str) and _is_address(value)),
    **dict.fromkeys(("only", "launch"), one_of(FRAMEWORKS)),
    "objective": one_of([objective.key for objective in Objective]),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise plan`."""

    model: Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    cluster: Text = None
    """name of a cluster (`equipoise clusters`), or a TOML or JSON file"""
    software: Software = None
    accelerators: Text = None
    """how many are used, all of them, or a range such as 400:512; default: the cluster's own number"""
    at_most: Count = None
    """how many there are: all counts up to it are searched"""
    fewest: Switch = False
    """the least accelerators that the model fits on, with --deadline-days those that train --tokens in time"""
    deadline_days: Number = None
    """with --tokens: how likely they are trained by then; with --fewest too: on the least accelerators that do it"""
    sequence: Count = None
    """tokens of one sequence; default: the model's"""
    batch: Text = None
    """sequences of one step, over all accelerators, or a range such as 480:544; default: the model's"""
    objective: Text = None
    """step_s (default), time_s, cost_usd, energy_j, carbon_g, tokens_per_usd or tokens_per_j"""
    tokens: Number = None
    """tokens to train, for time_s, cost_usd, energy_j and carbon_g"""
    fix: Text = None
    """fields of the plan that are not searched, such as `tensor=8,schedule=one_f_one_b`"""
    only: Text = None
    """only plans that a launcher can run: megatron, megatron-bridge, torchtitan, maxtext or deepspeed"""
    any: Switch = False
    """search plans that no framework can launch, too; default: what at least one of them can"""
    launch: Text = None
    """print the best plan as the flags or the file of one of them; the table goes to standard error"""
    framework_version: Text = None
    """version of that framework: main for torchtitan's names after its release; default: the one the file names"""
    margin: Number = None
    """the probability that a plan must fit in memory with; default: 0.9"""
    top: Count = None
    """how many of the best plans are told; default: 10"""
    layers: Switch = False
    """also place the layers of the best plans one by one: layers of each stage, recompute of each layer, microbatch"""
    processes: Count = None
    """how many processes share the search, each started with the same command and its own --process"""
    process: Count = None
    """which of them this one is, from 0"""
    coordinator: Text = None
    """host:port of process 0, which the others reach it at"""
    wait: Number = None
    """seconds to wait for the others before giving up; default: 60"""
    checkpoint: Text = None
    """directory for what is finished: the same command again goes on from there"""
    config: Text = None
    """TOML file of these same fields (`model = "llama3-8b"`, `top = 5`, ...); flags override it"""
    out: Text = None
    """directory for result.json, plans.csv.gz and the figures, as PNG and SVG"""
    json: Switch = False
    """print one JSON object and nothing else"""


def ask(request: Request) -> PlanInputs:
    """What is searched, and by which of the processes."""
    return resolve(given(request), request.config)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return host != "" and port.isdecimal() and 0 < int(port) < 65536


def resolve(flags: Mapping[str, Any], config: str | None = None) -> PlanInputs:
    """Read, merge and check. Raises `SpecError` for a wrong value."""
    given, asked = ranges(merge(flags, config, _CHECKS))
    if given.values.get("top", 1) > MOST_PLANS:
        raise SpecError(f"{given.place('top')}: `top` is {show(given.values['top'])}; expected at most {MOST_PLANS:,}")
    framework = given.values.get("only", given.values.get("launch"))
    workload, cluster = job(given, given.values.get("accelerators"), framework)
    margin = given.values.get("margin", FITS)
    inputs = PlanInputs(
        model=str(given.values["model"]),
        workload=workload,
        cluster=with_margin(cluster, margin),
        margin=margin,
        fixed=fixed_fields(given),
        objective=given.values.get("objective", "step_s"),
        tokens=given.values.get("tokens"),
        top=given.values.get("top", 10),
        out=Path(given.values["out"]) if "out" in given.values else None,
        sharding=_sharding(given),
        only=given.values.get("only"),
        launch=given.values.get("launch"),
        framework_version=_framework_version(given, framework),
        layers=given.values.get("layers", False),
        every=given.values.get("any", False),
        **asked,
    )
    return with_machine(inputs, given, framework)


def _framework_version(given: Given, framework: str | None) -> str | None:
    """A version of the framework that was asked for."""
    version = given.values.get("framework_version")
    if version is not None and framework is None:
        raise SpecError(f"{given.place('framework_version')}: `framework_version` is given without --launch or --only")
    if framework is not None:
        placed(given.place("framework_version"), "framework_version", framework_at, framework, version)
    return version


def _sharding(given: Given) -> Sharding:
    """Which part of the search this process does."""
    among = given.pick("processes", "process", "coordinator")
    processes, process = among.get("processes", 1), among.get("process", 0)
    if processes > 1 and len(among) < 3:
        missing = next(name for name in ("process", "coordinator") if name not in among)
        example = "--process 0" if missing == "process" else "--coordinator 127.0.0.1:12345"
        raise SpecError(f"{given.place('processes')}: `{missing}` is missing with `processes`; expected {example}")
    if process >= processes:
        fail(given.place("process"), "process", process, f"an integer from 0 to {processes - 1}, below `processes`")
    return Sharding(
        processes=processes,
        process=process,
        coordinator=among.get("coordinator"),
        checkpoint=Path(given.values["checkpoint"]) if "checkpoint" in given.values else None,
        wait_s=given.values.get("wait", WAIT_S),
    )


def run(inputs: PlanInputs) -> Answer:
    """Search, with the other processes where there are some."""
    check_checkpoint(inputs.sharding.checkpoint)
    others = connect(inputs.sharding) if inputs.sharding.processes > 1 else None
    if inputs.machine is not None:
        own, found = search_ranges(inputs)
        answer = _search(own, found["fixed"])
        answer = answer._replace(found=with_best(own, found, answer.result), job=own)
        return answer if found["complete"] else _interrupted(answer)
    try:
        answer = _search(inputs, inputs.fixed, others)
    except CommandError:
        if count(inputs.workload, inputs.cluster, usual_formats(inputs.cluster, inputs.fixed) | dict(inputs.fixed)):
            raise
        raise _no_plan(inputs) from None
    priced = {objective.key: objective.priced for objective in Objective}[inputs.objective]
    alone = inputs.sharding.processes == 1 and answer.result.status is Status.ok
    if not alone:
        return answer
    heard, job = list[bool](), (inputs.workload, inputs.cluster, inputs.fixed)
    near = or_else(lambda: nearby(*job, answer.result.plan, priced, asked_of(inputs)), (None, None), heard)
    answer = answer._replace(near=near)
    return _interrupted(answer) if heard else answer


def _interrupted(answer: Answer) -> Answer:
    status = Status.incomplete
    return answer._replace(result=dataclasses.replace(answer.result, status=status, message=status.value))


def _search(inputs: PlanInputs, fixed: Mapping[str, Any], others: Others | None = None) -> Answer:
    """The best plans on one number of accelerators with one batch."""
    table = PlanTable() if inputs.out is not None and inputs.sharding.process == 0 else None
    looked = None if table is None else table.add
    search = functools.partial(search_shared, sharding=inputs.sharding, others=others, looked=looked)
    question: dict[str, Any] = {"fixed": fixed, "objective": inputs.objective, "tokens": inputs.tokens}
    question |= {"top": inputs.top, "search": search, "margin": inputs.margin}
    job, every = (inputs.workload, inputs.cluster), inputs.every or inputs.sharding != Sharding()
    best_of_all: PlanResult | None = None
    each: Mapping[str, tuple[float, Plan]] = {}
    if inputs.only is not None:
        result, best_of_all = find_for(inputs.only, *job, **question, version=inputs.framework_version)
    elif every:
        result = find_plan(*job, **question, unrestricted=inputs.machine is None)
    else:
        result, each = find_launchable(*job, **question)
    if inputs.machine is not None and not inputs.fixed:  # of a range, whose domains are fixed
        result = dataclasses.replace(result, restriction=None)
    heard = list[bool]()
    layers = or_else(lambda: improve_layers(*job, result), None, heard) if inputs.layers else None
    answer = Answer(result, best_of_all, layers, table, each)
    return _interrupted(answer) if heard else answer


def _no_plan(inputs: PlanInputs) -> CommandError:
    """Why nothing is legal on all of the accelerators, and what is on fewer of them or with another batch."""
    error = nothing_legal(inputs.workload, inputs.cluster, inputs.fixed)
    near = nearby(inputs.workload, inputs.cluster, inputs.fixed, frameworks=asked_of(inputs))
    return CommandError(error.status, "; ".join((error.message, *report.near_words(inputs, near))))


def files(inputs: PlanInputs, answer: Answer) -> dict[str, bytes] | None:
    """Figures, every plan that was looked at, and the launch file. The first of several processes writes them.

    Whoever interrupts does not wait for figures.
    """
    if inputs.sharding.process > 0:
        return None
    inputs = answer.job or inputs
    own: dict[str, bytes] = {}
    if answer.result.status is not Status.incomplete:
        own = report.draw_plans(inputs, answer.result, None if answer.table is None else answer.table.points())
        own |= {} if answer.found is None else report.draw_counts(inputs, answer.found)
    if inputs.launch is not None:
        own[FRAMEWORKS[inputs.launch].file] = launch_text(inputs, answer.result, answer.layers).encode()
        plan = launched(inputs, answer.result, answer.layers)
        own |= {name: text.encode() for name, text in beside_launch(inputs.launch, plan, inputs.workload).items()}
    return own if answer.table is None else own | {"plans.csv.gz": answer.table.content()}


def show_screen(inputs: PlanInputs, answer: Answer) -> None:
    """The table; with `--launch` that text alone on standard output, so that it can be sent to a file."""
    inputs = answer.job or inputs
    with contextlib.redirect_stdout(sys.stdout if inputs.launch is None else sys.stderr):
        if answer.found is not None:
            report.show_counts(inputs, answer.found)
        report.show_plans(inputs, answer.result)
        report.show_launchers(inputs, answer.result, answer.each)
        report.show_notes((*_notes(inputs, answer), *report.near_words(inputs, answer.near, answer.result)))
    if inputs.launch is not None:
        print(launch_text(inputs, answer.result, answer.layers), end="")


def _notes(inputs: PlanInputs, answer: Answer) -> list[str]:
    """Lines below the table: what `--layers`, `--only` and `--launch` add."""
    lines = [] if answer.layers is None else [answer.layers.message]
    told = time_of_best(inputs, answer.result.plans[0])
    if told is not None and told["deadline_probability"] is not None:
        days, odds = told["train_s"] / SECONDS_A_DAY, units.probability(told["deadline_probability"])
        late = f"{told['deadline_s'] / SECONDS_A_DAY:g} days with a probability of {odds}"
        lines.append(f"with failures the best plan trains in {units.significant(days)} days, within {late}")
    if inputs.only is not None:
        worse = _worse(restriction_cost(answer.result, answer.best_of_all), answer.result.objective)
        lines.append(f"only what {FRAMEWORKS[inputs.only].title} can be told: {worse}")
    if inputs.launch is not None:
        framework, plan = chosen_framework(inputs), launched(inputs, answer.result, answer.layers)
        cannot = framework.cannot(plan, inputs.workload, inputs.cluster)
        lines += [f"not in the launch file: {what}" for what in cannot]
        lines += [f"set outside it: {what}" for what in outside(framework, plan, inputs.workload, inputs.cluster)]
        if cannot and inputs.only != inputs.launch:
            lines.append(f"--only {inputs.launch} searches the plans that it can be told")
    return lines


def _worse(cost: float | None, objective: str) -> str:
    if cost is None:
        return "what that costs is not known, the search was stopped"
    return f"{units.percent(cost)} worse in {objective} than the best of all plans" if cost > 1e-9 else "costs nothing"


PLAN = Command(
    request=Request,
    about="The best plan of a model on a cluster: all searched that can be best, the best validated and explained.",
    examples="""
examples:
  equipoise plan --model llama3-405b --cluster h100 --accelerators 16384 --batch 2048
  equipoise plan --model gpt3-175b --cluster a100-80gb --accelerators 4096 --fix tensor=8,schedule=one_f_one_b
  equipoise plan --model mixtral-8x7b --cluster h100 --accelerators 256 --objective cost_usd --tokens 1e12 --json
  equipoise plan --config job.toml --out results/plan
  equipoise plan --model llama3-70b --cluster h100 --accelerators 512 --only megatron --launch megatron > flags.sh""",
    ask=ask,
    run=run,
    as_json=as_json,
    show=show_screen,
    files=files,
)
