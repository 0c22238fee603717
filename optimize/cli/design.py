"""`equipoise design`: from the words to the answer, and the answer as plain data with the keys programs rely on."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.inputs import Cluster
from costmodel.measured import FITS
from costmodel.specs import (
    COUNT,
    FLAG,
    PROBABILITY,
    TEXT,
    Check,
    SpecError,
    anchored,
    load_curves,
    load_workload,
    one_of,
)
from costmodel.target import LAW, LAWS
from optimize import report
from optimize.cli.command import AMOUNT, COMMAND_LINE, Command, Count, Number, Software, Switch, Text, given, placed
from optimize.cli.inputs import Given, fixed_fields, merge, named_cluster, read_jobs
from optimize.clusters import SWEPT, Answer, DesignInputs, DesignResult, design
from optimize.progress import clock
from optimize.question import FAILURES, RENTALS, SECONDS_A_DAY, Job, Limits, Objective
from optimize.status import Status
from optimize.targets import design_for, jobs_of, scatter, shapes
from optimize.versions import SCHEMA

TEMPLATE = "gb200-nvl72"
SECONDS = 30.0
LEAST_SHARE = 0.5  # of the time that is given, for the search, whatever reading has taken
_OBJECTIVES = {objective.key: objective for objective in (Objective.time, *Objective)}  # the default one first
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("model", "cluster", "curves"), Check("a name or a file", lambda value: isinstance(value, str))),
    "jobs": Check("a file", lambda value: isinstance(value, str)),
    **dict.fromkeys(("fix", "out", "software"), TEXT),
    **dict.fromkeys(("accelerators", "sequence", "batch"), COUNT),
    **dict.fromkeys(
        ("tokens", "budget_usd", "power_mw", "deadline_days", "carbon_t", "repair_days", "seconds"), AMOUNT
    ),
    "seed": Check(
        "an integer >= 0", lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0
    ),
    "rent": FLAG,
    "margin": PROBABILITY,
    "rental": one_of(RENTALS),
    "sweep": one_of(SWEPT),
    "failures": one_of(("none", *FAILURES)),
    "target_loss": AMOUNT,
    "confidence": PROBABILITY,
    "law": one_of(LAWS),
    "objective": one_of(_OBJECTIVES),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `equipoise design`."""

    model: Text = None
    """name of a model (`equipoise models`), or a TOML or JSON file of its dimensions"""
    tokens: Number = None
    """tokens to train"""
    target_loss: Number = None
    """loss to reach, in nats a token; the tokens follow from it, and without a model the shape is chosen too"""
    confidence: Number = None
    """the probability with which it is reached in the time that is told; default: 0.9"""
    law: Text = None
    """scaling law of the loss: besiroglu-2024 (default) or hoffmann-2022"""
    jobs: Text = None
    """TOML or JSON file of several jobs instead: `[[jobs]]` with model, tokens, batch, weight, deadline_days"""
    budget_usd: Number = None
    """what the cluster may cost: its purchase, or with --rent what is spent while training"""
    rent: Switch = False
    """dollars are rent: of the budget, and of cost_usd and tokens_per_usd; for clusters whose rental price is known"""
    rental: Text = None
    """with --rent: reserved (for a year or more) or on_demand prices; default: the usual ones between them"""
    power_mw: Number = None
    """what it may draw at the facility's meter, cooling and losses included"""
    accelerators: Count = None
    """how many it may have at most"""
    deadline_days: Number = None
    """how long training may take"""
    carbon_t: Number = None
    """tonnes of CO2 of the electricity at most, at carbon_g_per_kwh of `prices` (481: the world's grid in 2023)"""
    objective: Text = None
    """time_s (default), step_s, cost_usd, energy_j, carbon_g, tokens_per_usd or tokens_per_j"""
    sequence: Count = None
    """tokens of one sequence; default: the model's"""
    batch: Count = None
    """sequences of one step, over all accelerators; default: the model's"""
    cluster: Text = None
    """cluster whose domains, latencies and software the designed one has; default: gb200-nvl72"""
    software: Software = None
    curves: Text = None
    """file of what rates and sizes cost and draw; default: prices of early 2026"""
    fix: Text = None
    """fields of the plan that are not searched, such as `tensor=8,schedule=one_f_one_b`"""
    margin: Number = None
    """the probability that every plan must fit in memory with; default: 0.9"""
    failures: Text = None
    """how often parts fail and how long it takes to go on: none, low, base (default) or high, of `prices`"""
    repair_days: Number = None
    """days until a server that failed is back: spares for them are bought, and powered idle; default: none are"""
    sweep: Text = None
    """limit that the frontier sweeps: budget_usd, power_w, accelerators or carbon_g; default: the first given"""
    seconds: Number = None
    """when to stop, with the gap that is reached by then; default: 30"""
    seed: Count = None
    """of the starts of the descent; default: 0"""
    config: Text = None
    """TOML file of these same fields (`model = "megatron-1t"`, `budget_usd = 500e6`, ...); flags override it"""
    out: Text = None
    """directory for result.json and the figures, as PNG and SVG"""
    json: Switch = False
    """print one JSON object and nothing else"""


def ask(request: Request) -> DesignInputs:
    """What is searched, and within which limits."""
    return resolve_design(given(request), request.config)


def resolve_design(flags: Mapping[str, Any], config: str | None = None) -> DesignInputs:
    """Read, merge and check. Raises `SpecError` for a wrong value."""
    given = merge(flags, config, _CHECKS)
    target = _target(given)
    cheapest = target is not None and not given.values.keys() & {"budget_usd", "power_mw"}
    objective = _OBJECTIVES[given.values.get("objective", (Objective.cost if cheapest else Objective.time).key)]
    _check_limits(given, objective)
    days, megawatt, tonnes = (given.values.get(name) for name in ("deadline_days", "power_mw", "carbon_t"))
    repair_days = given.values.get("repair_days")
    limits = Limits(
        budget_usd=given.values.get("budget_usd"),
        rent=given.values.get("rent", False),
        rental=RENTALS.get(given.values.get("rental", ""), "base"),
        power_w=None if megawatt is None else 1e6 * megawatt,
        accelerators=given.values.get("accelerators"),
        deadline_s=None if days is None else SECONDS_A_DAY * days,
        carbon_g=None if tonnes is None else 1e6 * tonnes,
    )
    template = named_cluster(given, given.values.get("cluster", TEMPLATE))
    if target is None:
        pairs, (models, jobs) = [], _jobs(given)
    else:
        pairs = _pairs(given, target, template)
        models, jobs = (pairs[0].workload.name,), (pairs[0],)
    curves = placed(given.place("curves"), "curves", load_curves, *given.pick("curves").values())
    return DesignInputs(
        jobs=jobs,
        models=models,
        limits=limits,
        objective=objective,
        template=template,
        curves=curves if "curves" in given.values else anchored(curves, template),
        fixed=fixed_fields(given),
        seconds=given.values.get("seconds", SECONDS),
        seed=given.values.get("seed", 0),
        sweep=given.values.get("sweep"),
        margin=given.values.get("margin", FITS),
        failures=given.values.get("failures", "base"),
        repair_s=None if repair_days is None else SECONDS_A_DAY * repair_days,
        target=target,
        pairs=tuple(pairs),
        out=Path(given.values["out"]) if "out" in given.values else None,
    )


def _target(given: Given) -> dict[str, Any] | None:
    """The loss that is asked for, its law, and how sure it must be; None: tokens are given."""
    if "target_loss" not in given.values:
        for name in ("confidence", "law"):
            if name in given.values:
                raise SpecError(f"{given.place(name)}: `{name}` is given without `target_loss`; expected both")
        return None
    for name in ("tokens", "jobs"):
        if name in given.values:
            raise SpecError(f"{given.place(name)}: `{name}` is given beside `target_loss`; expected one of them")
    asked = given.values
    return {
        "loss": asked["target_loss"],
        "law": asked.get("law", LAW),
        "confidence": asked.get("confidence", FITS),
    }


def _pairs(given: Given, target: Mapping[str, Any], template: Cluster) -> list[Job]:
    """Shapes and batches that reach the loss: of the model that is given, or of all."""
    sizes = given.pick("sequence", "batch")
    if "model" in given.values:
        shapes_of = [placed(given.place("model"), "model", load_workload, given.values["model"], **sizes)]
    else:
        shapes_of = list(shapes(target, **given.pick("sequence")))
    return jobs_of(target, shapes_of, given.values.get("batch"), scatter(template))


def _check_limits(given: Given, objective: Objective) -> None:
    """Raise where nothing says how large a cluster may be, or dollars are rent that nobody counts."""
    limited = given.values.keys() & {"budget_usd", "power_mw"}
    if not limited and not objective.priced:
        raise SpecError(f"{COMMAND_LINE}: `budget_usd` is missing; expected it, or `power_mw`, or both")
    rented = given.values.get("rent", False)
    if rented and "budget_usd" not in given.values and not objective.usd_power:
        told = "`rent` is given without `budget_usd`; expected the rent to spend, or the objective cost_usd"
        raise SpecError(f"{given.place('rent')}: {told}")
    if given.values.get("sweep") == "carbon_g" and "carbon_t" not in given.values:
        raise SpecError(f"{given.place('sweep')}: `sweep` is carbon_g without `carbon_t`; expected both")
    if "rental" in given.values and not rented:
        raise SpecError(f"{given.place('rental')}: `rental` is given without `rent`; expected both")


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


def left(inputs: DesignInputs, taken_s: float) -> DesignInputs:
    """With the time that is left."""
    return dataclasses.replace(inputs, seconds=max(LEAST_SHARE * inputs.seconds, inputs.seconds - taken_s))


def run(inputs: DesignInputs) -> DesignResult:
    """Both answers; on a terminal it is said where the search is."""
    with clock("design", inputs.seconds) as told:
        if inputs.target is not None:
            return design_for(inputs.target, inputs.pairs, inputs.limits, **inputs.settings(), progress=told)
        return design(inputs.jobs, inputs.limits, **inputs.settings(), progress=told)


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
        "counts_not_searched": list(result.others),
        "notes": list(result.notes),
        "target": None if result.target is None else dict(result.target),
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
            "carbon_g": _number(q.carbon_g),
            "spares": _number(q.spares),
        },
        "jobs": [
            {
                "model": job.job.workload.name,
                "tokens": job.job.tokens,
                "plan": dataclasses.asdict(job.plan),
                "step_s": job.step_s,
                "train_s": job.train_s,
                "goodput": job.goodput,
                "mfu": job.mfu,
                "peak_bytes": job.validation.peak_bytes,
                "fits_probability": job.validation.fits_probability,
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


DESIGN = Command(
    request=Request,
    about="The best cluster for a job and its plan, of any rates and of real parts, within what it may cost and draw.",
    examples="""
examples:
  equipoise design --model megatron-1t --budget-usd 500e6 --power-mw 50 --tokens 20e12
  equipoise design --model llama3-405b --power-mw 30 --tokens 15e12 --objective energy_j --out results/design
  equipoise design --model deepseek-v3 --budget-usd 100e6 --tokens 14.8e12 --objective cost_usd --json
  equipoise design --model llama3-8b --tokens 1e12 --rent --rental on_demand --objective cost_usd --deadline-days 30
  equipoise design --target-loss 2.1 --deadline-days 60 --confidence 0.9
  equipoise design --model llama3-8b --tokens 1e12 --budget-usd 20e6 --carbon-t 150 --repair-days 3
  equipoise design --jobs jobs.toml --budget-usd 300e6""",
    ask=ask,
    left=left,
    run=run,
    as_json=as_json,
    show=lambda inputs, result: report.show_design(inputs, result),
    files=lambda inputs, result: {} if result.status is Status.incomplete else report.draw_design(result),
)
