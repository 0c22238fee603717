"""`equipoise plan`: the best plan; `--only` of those that a framework can be told, `--launch` as its file."""

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from costmodel.measured import FITS, with_margin
from costmodel.specs import COUNT, PROBABILITY, TEXT, Check, SpecError, fail, one_of, show
from optimize import report, units
from optimize.cli.command import AMOUNT, Command, Count, Number, Switch, Text, given
from optimize.cli.inputs import Given, fixed_fields, job, merge
from optimize.launch import FRAMEWORKS, launch
from optimize.layers import ImprovedLayers, improve_layers
from optimize.plans import (
    WAIT_S,
    PlanInputs,
    PlanResult,
    PlanTable,
    Ranked,
    RunnerUp,
    Sharding,
    check_checkpoint,
    connect,
    find_plan,
    find_plan_for,
    restriction_cost,
    search_shared,
)
from optimize.question import Objective
from optimize.versions import SCHEMA

MOST_PLANS = 1_000  # plans: each is scored exactly and validated
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster"), Check("a name or a file", lambda value: isinstance(value, str))),
    **dict.fromkeys(("fix", "out", "checkpoint", "software"), TEXT),
    **dict.fromkeys(("accelerators", "sequence", "batch", "top", "processes", "process"), COUNT),
    **dict.fromkeys(("tokens", "wait"), AMOUNT),
    "margin": PROBABILITY,
    "layers": Check("true or false", lambda value: isinstance(value, bool)),
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
    software: Text = None
    """training software, whose habits and constants count: megatron-core, megatron-2022, fsdp, deepspeed, nanotron,
    xla, or a framework's name; default: by the accelerator, and said"""
    accelerators: Count = None
    """how many are used, all of them; default: the cluster's own number"""
    sequence: Count = None
    """tokens of one sequence; default: the model's"""
    batch: Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    objective: Text = None
    """step_s (default), time_s, cost_usd, energy_j, carbon_g, tokens_per_usd or tokens_per_j"""
    tokens: Number = None
    """tokens to train, for time_s, cost_usd, energy_j and carbon_g"""
    fix: Text = None
    """fields of the plan that are not searched, such as `tensor=8,schedule=one_f_one_b`"""
    only: Text = None
    """only plans that a launcher can run: megatron, megatron-bridge, torchtitan, maxtext or deepspeed"""
    launch: Text = None
    """print the best plan as the flags or the file of one of them; the table goes to standard error"""
    margin: Number = None
    """the probability that a plan must fit in memory with; default: 0.9"""
    top: Count = None
    """how many of the best plans are told; default: 10"""
    layers: Switch = False
    """also place the layers of the best plans one by one: layers of each stage, recompute of each layer, microbatch"""
    processes: Count = None
    """how many processes share the search, each started with the same command and its own --process"""
    process: Count = None
    """which of them this one is, from 1"""
    coordinator: Text = None
    """host:port of process 1, which the others reach it at"""
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


class Answer(NamedTuple):
    """The best plans, and what the options add."""

    result: PlanResult
    best_of_all: PlanResult | None  # with `--only`: of all plans, where the search was not stopped before it
    layers: ImprovedLayers | None  # with `--layers`
    table: PlanTable | None  # with `--out`: every plan that was looked at


def ask(request: Request) -> PlanInputs:
    """What is searched, and by which of the processes."""
    return resolve(given(request), request.config)


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return host != "" and port.isdecimal() and 0 < int(port) < 65536


def resolve(flags: Mapping[str, Any], config: str | None = None) -> PlanInputs:
    """Read, merge and check. Raises `SpecError` for a wrong value."""
    given = merge(flags, config, _CHECKS)
    if given.values.get("top", 1) > MOST_PLANS:
        raise SpecError(f"{given.place('top')}: `top` is {show(given.values['top'])}; expected at most {MOST_PLANS:,}")
    framework = given.values.get("only", given.values.get("launch"))
    workload, cluster = job(given, given.values.get("accelerators"), framework)
    margin = given.values.get("margin", FITS)
    return PlanInputs(
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
        layers=given.values.get("layers", False),
    )


def _sharding(given: Given) -> Sharding:
    """Which part of the search this process does."""
    among = given.pick("processes", "process", "coordinator")
    processes, process = among.get("processes", 1), among.get("process", 1)
    if processes > 1 and len(among) < 3:
        missing = next(name for name in ("process", "coordinator") if name not in among)
        example = "--process 1" if missing == "process" else "--coordinator 127.0.0.1:12345"
        raise SpecError(f"{given.place('processes')}: `{missing}` is missing with `processes`; expected {example}")
    if process > processes:
        fail(given.place("process"), "process", process, f"an integer from 1 to `processes` ({processes})")
    return Sharding(
        processes=processes,
        process=process - 1,
        coordinator=among.get("coordinator"),
        checkpoint=Path(given.values["checkpoint"]) if "checkpoint" in given.values else None,
        wait_s=given.values.get("wait", WAIT_S),
    )


def run(inputs: PlanInputs) -> Answer:
    """Search, with the other processes where there are some."""
    check_checkpoint(inputs.sharding.checkpoint)
    if inputs.sharding.processes > 1:
        connect(inputs.sharding)
    table = PlanTable() if inputs.out is not None and inputs.sharding.process == 0 else None
    search = functools.partial(search_shared, sharding=inputs.sharding, looked=None if table is None else table.add)
    question: dict[str, Any] = {"fixed": inputs.fixed, "objective": inputs.objective, "tokens": inputs.tokens}
    question |= {"top": inputs.top, "search": search, "margin": inputs.margin}
    if inputs.only is None:
        result, best_of_all = find_plan(inputs.workload, inputs.cluster, **question, unrestricted=True), None
    else:
        result, best_of_all = find_plan_for(inputs.only, inputs.workload, inputs.cluster, **question)
    layers = improve_layers(inputs.workload, inputs.cluster, result) if inputs.layers else None
    return Answer(result, best_of_all, layers, table)


def as_json(inputs: PlanInputs, answer: Answer) -> dict[str, Any]:
    """The answer of DESIGN section 9, without the keys that every command adds."""
    result, table, best = answer.result, answer.table, answer.result.plans[0]
    content = {
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
    if inputs.only is not None:
        content |= {"only": _only_json(inputs.only, answer)}
    if inputs.launch is not None:
        framework = FRAMEWORKS[inputs.launch]
        content |= {
            "launch": _launch_text(inputs, result),
            "launch_cannot": list(framework.cannot(result.plan, inputs.workload)),
            "launch_elsewhere": list(framework.elsewhere(result.plan)),
        }
    return content if answer.layers is None else content | {"layers": answer.layers.as_json()}


def _ranked(ranked: Ranked) -> dict[str, Any]:
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


def _runner_up(each: RunnerUp) -> dict[str, Any]:
    change = each.wins_with
    return {
        "plan": dataclasses.asdict(each.plan),
        "behind": each.behind,
        "wins_with": None if change is None else {"parameter": change.parameter.key, "factor": change.factor},
    }


def _only_json(framework: str, answer: Answer) -> dict[str, Any]:
    best = answer.best_of_all
    return {
        "framework": framework,
        "cost": restriction_cost(answer.result, best),
        "best_of_all": None if best is None else {"plan": dataclasses.asdict(best.plan), "value": best.value},
    }


def _launch_text(inputs: PlanInputs, result: PlanResult) -> str:
    """The best plan as the launch file that was asked for."""
    return launch(str(inputs.launch), result.plan, inputs.workload, inputs.cluster)


def files(inputs: PlanInputs, answer: Answer) -> dict[str, bytes] | None:
    """Figures, every plan that was looked at, and the launch file. The first of several processes writes them."""
    if inputs.sharding.process > 0:
        return None
    own = report.draw_plans(inputs, answer.result)
    if inputs.launch is not None:
        own[FRAMEWORKS[inputs.launch].file] = _launch_text(inputs, answer.result).encode()
    return own if answer.table is None else own | {"plans.csv.gz": answer.table.content()}


def show_screen(inputs: PlanInputs, answer: Answer) -> None:
    """The table; with `--launch` that text alone on standard output, so that it can be sent to a file."""
    with contextlib.redirect_stdout(sys.stdout if inputs.launch is None else sys.stderr):
        report.show_plans(inputs, answer.result)
        for line in _notes(inputs, answer):
            print(line)
    if inputs.launch is not None:
        print(_launch_text(inputs, answer.result), end="")


def _notes(inputs: PlanInputs, answer: Answer) -> list[str]:
    """Lines below the table: what `--layers`, `--only` and `--launch` add."""
    plan, lines = answer.result.plan, [] if answer.layers is None else [answer.layers.message]
    if inputs.only is not None:
        worse = _worse(restriction_cost(answer.result, answer.best_of_all), answer.result.objective)
        lines.append(f"only what {FRAMEWORKS[inputs.only].title} can be told: {worse}")
    if inputs.launch is not None:
        cannot = FRAMEWORKS[inputs.launch].cannot(plan, inputs.workload)
        lines += [f"not in the launch file: {what}" for what in cannot]
        lines += [f"set outside it: {what}" for what in FRAMEWORKS[inputs.launch].elsewhere(plan)]
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
