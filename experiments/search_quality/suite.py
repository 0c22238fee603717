"""The problems, drawn from a seed: kinds, models of 1B to 1T, 8 to 16,384 accelerators, objectives, limits, options.

A problem is plain data (`Case`), so it can be written down, hashed and given to another process; `problem_of` makes the
question that the solver is asked.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from costmodel import as_floats
from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import load_cluster, load_curves, load_workload
from optimize.lattice import CHUNK, lattice, thinned
from optimize.plans import in_numpy
from optimize.question import Job, Limits, Objective, Problem, design_problem, known_bounds, sized

KINDS = ("plan", "hardware", "joint", "mix", "layers")
MODELS = {
    "gpt-1.7b": 1.7e9,
    "gpt-7.5b": 7.5e9,
    "llama3-8b": 8.0e9,
    "gpt-18.4b": 18.4e9,
    "mixtral-8x7b": 46.7e9,
    "llama3-70b": 70.6e9,
    "mixtral-8x22b": 141e9,
    "gpt3-175b": 175e9,
    "qwen3-235b-a22b": 235e9,
    "llama3-405b": 405e9,
    "mt-nlg-530b": 530e9,
    "deepseek-v3": 671e9,
    "megatron-1t": 1.0e12,
}
"""Models with about so many parameters, by which the size of a cluster is drawn."""

EXPERTS = ("mixtral-8x7b", "mixtral-8x22b", "qwen3-235b-a22b", "deepseek-v3")
DEEP = ("llama3-70b", "gpt3-175b", "qwen3-235b-a22b", "llama3-405b", "mt-nlg-530b", "deepseek-v3", "megatron-1t")
TEMPLATES = ("h100", "h100", "b200", "a100-80gb")
USD_EACH = (15e3, 60e3)  # of an accelerator in a budget
WATTS_EACH = (600.0, 2000.0)
STATE_BYTES = 18.0  # for each parameter: a cluster holds that in 40 % of the most HBM


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """One problem as plain data."""

    name: str
    kind: str
    template: str
    objective: str  # a member of `Objective`
    jobs: tuple[dict[str, Any], ...]  # model, batch, sequence, tokens, weight
    limits: dict[str, Any]
    fixed: dict[str, Any]  # lists: any of their members
    accelerators: int = 0  # of the kinds that have a cluster
    plan: dict[str, Any] | None = None  # of the kind that has one
    seed: int = 0


def draw(seed: int, kinds: tuple[str, ...], each: int) -> list[Case]:
    """`each` problems of every kind; more of them leave the first ones as they are."""
    return [_draw(kind, number, seed) for kind in kinds for number in range(each)]


def _draw(kind: str, number: int, seed: int) -> Case:
    generator = np.random.default_rng([seed, KINDS.index(kind) if kind in KINDS else len(KINDS), number])
    names = list(generator.choice(list(MODELS), int(generator.integers(2, 5)) if kind == "mix" else 1, replace=False))
    if kind != "mix" and number % 3 == 2:  # every third is a mixture of experts
        names = [str(generator.choice(EXPERTS))]
    most = _count(max(MODELS[name] for name in names), generator)
    batch = int(2 ** np.clip(np.round(np.log2(most) - generator.integers(-1, 4)), 6, 12))
    objective = str(generator.choice(["time", "time", "cost", "energy"]))
    case = Case(
        name=f"{kind}-{number}",
        kind=kind,
        template=str(generator.choice(TEMPLATES)),
        objective="step" if kind == "plan" and objective == "time" else objective,
        jobs=tuple(_job(str(name), batch, generator) for name in names),
        limits=_limits(kind, most, generator),
        fixed=_fixed(names, generator),
        accelerators=most if kind in ("plan", "hardware") else 0,
        seed=int(generator.integers(2**31)),
    )
    if kind == "layers":
        return _deep(case, generator)
    return dataclasses.replace(case, plan=_some_plan(case)) if kind == "hardware" else case


def _count(parameters: float, generator: np.random.Generator) -> int:
    """A power of two from what holds the states to 16,384, from 8 on."""
    least = max(8.0, STATE_BYTES * parameters / (0.4 * known_bounds()["hbm_bytes"][1]))
    low = min(14, math.ceil(math.log2(least)))
    return int(2 ** generator.integers(low, min(14, low + 5) + 1))


def _job(name: str, batch: int, generator: np.random.Generator) -> dict[str, Any]:
    sequence = int(generator.choice([2048, 4096, 8192]))
    tokens = float(20 * MODELS[name] * generator.choice([1.0, 5.0]))
    return {"model": name, "batch": batch, "sequence": sequence, "tokens": tokens, "weight": 1.0}


def _limits(kind: str, most: int, generator: np.random.Generator) -> dict[str, Any]:
    """Limits of the cluster: money, power, accelerators, or two of them."""
    if kind == "plan":
        return {}
    usd = float(most * generator.uniform(*USD_EACH))
    watts = float(most * generator.uniform(*WATTS_EACH))
    sets = [{"budget_usd": usd}, {"budget_usd": usd, "power_w": watts}, {"power_w": watts}]
    chosen = dict(sets[int(generator.integers(len(sets)))])
    return chosen | {"accelerators": int(most)}


def _fixed(names: list[str], generator: np.random.Generator) -> dict[str, Any]:
    """What is not searched. Experts are not cut by tensor: a launcher's usual restriction, and a tenth of the plans."""
    experts: dict[str, Any] = {"expert_tensor": 1} if set(names) & set(EXPERTS) else {}
    kinds: list[dict[str, Any]] = [{}, {}, {"context": 1}, {"zero_stage": [0, 1]}]
    return experts | kinds[int(generator.integers(len(kinds)))]


def _some_plan(case: Case) -> dict[str, Any]:
    """The best of 2,000 random plans of the template, or the one that needs least memory."""
    workload, cluster = workloads(case)[0], sized(load_cluster(case.template), case.accelerators)
    whole = {"domain": int(cluster.tiers[0].usable_size)}  # no idle accelerators, as where a cluster is designed
    plans = lattice(workload, cluster, fixed_of(case) | whole, every_shard=False)
    generator = np.random.default_rng(case.seed)
    chosen = np.unique(generator.integers(len(plans), size=min(CHUNK, 2000)))
    costs = in_numpy(plans)(dataclasses.replace(plans.chunk(0, 0), indices=chosen))
    offered = costs.peak_bytes <= known_bounds()["hbm_bytes"][1]
    best = np.where(offered, costs.step_s, np.inf).argmin() if offered.any() else costs.peak_bytes.argmin()
    return dataclasses.asdict(plans.plan(int(chosen[best])))


def _deep(case: Case, generator: np.random.Generator) -> Case:
    """A deep pipeline of a model of 60 layers and more, with memory for a part of what could be kept."""
    model = str(generator.choice(DEEP))
    stages, data = int(generator.choice([8, 12, 16])), int(2 ** generator.integers(2, 6))
    expert = 8 if model in EXPERTS else 1
    plan = Plan(data=max(data, expert), tensor=8, pipeline=stages, expert=expert, sequence_parallel=True)
    batch = plan.data * int(generator.choice([16, 32, 64]))
    return dataclasses.replace(
        case,
        objective="step",
        jobs=(_job(model, batch, generator),),
        limits={},
        fixed={"hbm_share": float(generator.uniform(0.1, 0.7))},
        accelerators=plan.accelerators,
        plan=dataclasses.asdict(plan),
    )


def workloads(case: Case) -> list[Workload]:
    """What the jobs of a case train."""
    return [load_workload(job["model"], sequence=job["sequence"], batch=job["batch"]) for job in case.jobs]


def fixed_of(case: Case) -> dict[str, Any]:
    """Fields that are not searched, lists as sets."""
    return {name: frozenset(value) if isinstance(value, list) else value for name, value in case.fixed.items()}


def plan_of(case: Case) -> Plan:
    """The plan of a case that has one."""
    assert case.plan is not None
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in case.plan.items()
    }
    return Plan(**fields)


@dataclasses.dataclass(frozen=True)
class Question:
    """A case made ready: `problem` for the kinds that design, `cluster` for the kind that plans."""

    case: Case
    problem: Problem
    template: Cluster
    curves: CurveRange

    @property
    def cluster(self) -> Cluster:
        """The cluster of the kinds that have one."""
        return sized(self.template, self.case.accelerators)

    @property
    def workload(self) -> Workload:
        """What the first job trains."""
        return self.problem.job.workload


def problem_of(case: Case) -> Question:
    """The question of a case. Of very many plans, what `design` leaves out is left out for all methods (`thinned`)."""
    template, curves = load_cluster(case.template), load_curves()
    jobs = tuple(
        Job(workload=workload, tokens=job["tokens"], weight=job["weight"])
        for workload, job in zip(workloads(case), case.jobs, strict=True)
    )
    fixed = {} if case.kind == "layers" else fixed_of(case)
    objective, limits = Objective[case.objective], Limits(**case.limits)
    problem = design_problem(template, curves, jobs=jobs, limits=limits, objective=objective, fixed=fixed)
    if case.kind in ("joint", "mix"):
        fixed = thinned([job.workload for job in jobs], problem.machine, fixed)[0]
        problem = dataclasses.replace(problem, fixed=fixed)
    return Question(case, problem, as_floats(template), curves)
