"""The same model on clusters that are sold, by calibrated constants: comparison, best hardware at equal cost, DLRM."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

from costmodel import Plan, as_floats, evaluate, load_cluster, load_workload, violations
from costmodel.formulas import Breakdown, capital_usd, hardware_of
from costmodel.inputs import Cluster, Workload, embed
from costmodel.models import dlrm
from costmodel.specs import anchored, load_curves
from optimize.hardware import solve_hardware
from optimize.question import Job, Limits, Objective, Problem

ACCELERATORS, SEQUENCE = 1024, 2048
TOLERANCE = 1e-4
"""Gap of the certificate of each plan's hardware."""
KINDS = {"sweep": 1, "pipelines": ACCELERATORS}
"""Families of plans by the stages that they may have."""


def workload() -> Workload:
    """Megatron's 1T: 128 layers of 25,600, 160 heads, as many sequences as accelerators."""
    return load_workload("megatron-1t", sequence=SEQUENCE, batch=ACCELERATORS)


def plans(cluster: Cluster) -> Iterator[Plan]:
    """Tensor and data ranks under ZeRO 2 and 3 as in the sweep, and with a pipeline under ZeRO 1."""
    precision = "bf16" if "bf16" in cluster.accelerator.types else "fp16"
    common: dict[str, Any] = {"recompute": "full", "precision": precision, "gradient_dtype": precision}
    for tensor, microbatch, pipeline in itertools.product((1, 2, 4, 8, 16, 32), (1, 2, 4), (1, 4, 8, 16, 32)):
        data = ACCELERATORS // (tensor * pipeline)
        shape = {"data": data, "tensor": tensor, "pipeline": pipeline, "microbatch": microbatch}
        for stage in (2, 3) if pipeline == 1 else (1,):
            yield Plan(**shape, sequence_parallel=tensor > 1, zero_stage=stage, **common)


def ranked(cluster: Cluster, job: Workload) -> list[tuple[Plan, Breakdown]]:
    """All legal ones, fastest first."""
    legal = [plan for plan in plans(cluster) if not violations(plan, job, cluster)]
    found = [(plan, evaluate(job, cluster, plan)) for plan in legal]
    return sorted(found, key=lambda row: (float(row[1].step_s), str(row[0])))


def comparison(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The fastest plan that fits on each cluster, without and with pipelines; None where nothing fits."""
    job, found = workload(), []
    for name in names:
        rows = [row for row in ranked(load_cluster(name, accelerators=ACCELERATORS), job) if row[1].fits]
        told: dict[str, Any] = {"cluster": name}
        for words, most in KINDS.items():
            plan, score = next((row for row in rows if row[0].pipeline <= most), (None, None))
            told[f"{words}_s"] = None if score is None else float(score.step_s)
            told[f"{words}_plan"] = None if plan is None else str(plan)
        found.append(told)
    return found


def equal_cost(name: str, proved: int) -> dict[str, Any]:
    """The best hardware for the money of the named cluster, over the `proved` plans that are fastest on it, of the
    sweep and with pipelines too.

    Rates and HBM are free within the technology limits and priced by curves at the level of the template; the number of
    accelerators and the sizes of domains are the template's. Each plan's optimum is convex and carries its bound.
    """
    template, job = load_cluster(name, accelerators=ACCELERATORS), workload()
    curves = anchored(load_curves(), template).base
    machine = as_floats(template)
    budget_usd = float(capital_usd(hardware_of(machine), as_floats(curves)))
    limits = Limits(budget_usd=budget_usd, accelerators=ACCELERATORS)
    asked = Job(workload=job, tokens=float(ACCELERATORS * SEQUENCE))
    problem = Problem(jobs=(asked,), template=template, curves=curves, objective=Objective.step, limits=limits)
    rows = ranked(template, job)
    kinds = {words: [row for row in rows if row[0].pipeline <= most] for words, most in KINDS.items()}
    answers = {words: _optimum(problem, job, own, proved) for words, own in kinds.items()}
    return {"template": name, "budget_usd": budget_usd, **answers}


def _optimum(problem: Problem, job: Workload, rows: list[tuple[Plan, Breakdown]], proved: int) -> dict[str, Any]:
    """Of the plans that are fastest on the template and fit in the largest HBM on offer; the bound is about these."""
    template = problem.template
    plan, score = next((row for row in rows if row[1].fits), (None, None))
    domain, habits = float(template.tiers[0].usable_size), template.stack.habits
    chosen = [own for own, held in rows if held.memory.needed_bytes <= problem.most_hbm_bytes][:proved]
    solved = solve_hardware(problem, [embed(plan, job, domain, habits) for plan in chosen], tolerance=TOLERANCE)
    best = solved.best
    return {
        "now_s": None if score is None else float(score.step_s),
        "now_plan": None if plan is None else str(plan),
        "step_s": float(solved.value[best]),
        "lower_bound_s": float(solved.lower_bound.min()),
        "plan": str(chosen[best]),
        "plans": len(chosen),
        "hardware": dataclasses.asdict(solved.hardware(best)),
        "shadow_prices": {key: float(values[best]) for key, values in solved.shadow_prices.items()},
    }


def recommendation(name: str, memories: tuple[float, ...]) -> list[dict[str, Any]]:
    """The fewest accelerators that hold a recommendation model of 0.8 T parameters in 16 bits, by memory of each, and
    what it reaches there with 65,536 samples a step. Its sizes are ours: the paper's were not found."""
    tables, rows = (25_000_000,) * 256, []
    job = dlrm(
        tables=tables, hidden=128, dense_features=1024, bottom=(4096, 1024, 128), top=(4096, 4096, 1024, 1), batch=65536
    )
    for factor in memories:
        for n in (8, 16, 32, 64, 128, 256, 512, 1024):
            cluster = load_cluster(name, accelerators=n)
            chip = cluster.accelerator
            chip = dataclasses.replace(chip, hbm_bytes=factor * chip.hbm_bytes)
            plan = Plan(data=n, expert=n, microbatch=65536 // n, zero_stage=0, optimizer="sgd", gradient_dtype="bf16")
            found = evaluate(job, dataclasses.replace(cluster, accelerator=chip), plan)
            if found.fits:
                sent = sum(term.exposed_s for term in found.terms if term.sends) / found.step_s
                rate = 65536 / float(found.step_s)
                rows.append({"memory": factor, "accelerators": n, "samples_per_s": rate, "exposed": float(sent)})
                break
    return rows
