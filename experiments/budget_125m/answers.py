"""The best design of each choice, evaluated again in float64, and what a little more of everything would buy."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.evaluators import DIRECTIONAL, SUBGRADIENT, DualNumbers, evaluate, log_gradient, one_sided, prepare
from costmodel.formulas import Cost, cost
from costmodel.inputs import Cluster, Plan, PlanPoint, Workload
from costmodel.specs import violations
from experiments.budget_125m.prices import ACCELERATOR_USD, GIB, HBM_CURVE, SECOND_CURVE, Sizes, slope
from experiments.budget_125m.space import Choice, Plans, cluster_of, plan_of, whole_usd
from optimize.diagnosis import validate

_EXACT = Exact(math)
_RATES = ("second_memory_bytes_per_s", "hbm_bytes_per_s", "flop_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")


def best(workload: Workload, template: Cluster, plans: Plans, choice: Choice) -> dict[str, Any] | None:
    """The fastest plan that keeps all rules, fits and is within the budget, in float64; None where there is none."""
    budget_usd, sizes = choice
    affordable = np.flatnonzero(whole_usd(plans, sizes) <= budget_usd)
    for i in affordable[np.argsort(plans.step_s[affordable], kind="stable")]:
        plan = plan_of(workload, template, plans, int(i))
        machine = cluster_of(template, int(plans.accelerators[i]))
        if violations(plan, workload, _roomy(machine)):
            continue
        exact = cost(*prepare(workload, _roomy(machine), plan), _EXACT)
        if _usd(sizes, plan, exact) <= budget_usd:
            return _answer(workload, machine, plan, exact, sizes)
    return None


def _roomy(machine: Cluster) -> Cluster:
    """The cluster with more of both memories than is on sale: what is bought is compared with the need elsewhere."""
    chip = dataclasses.replace(machine.accelerator, hbm_bytes=2.0**50, second_memory_bytes=2.0**50)
    return dataclasses.replace(machine, accelerator=chip)


def _usd(sizes: Sizes | None, plan: Plan, exact: Cost) -> float:
    columns = (plan.accelerators, 0, 0.0, 0.0, 0.0, exact.step_s, exact.peak_bytes, exact.second_bytes)
    return float(whole_usd(Plans(*(np.asarray([column]) for column in columns)), sizes)[0])


def _answer(workload: Workload, machine: Cluster, plan: Plan, exact: Cost, sizes: Sizes | None) -> dict[str, Any]:
    told = evaluate(workload, _roomy(machine), plan)
    return {
        "batch": int(workload.batch),
        "accelerators": plan.accelerators,
        "hbm_gib": exact.peak_bytes / GIB,
        "second_gib": exact.second_bytes / GIB,
        "usd": _usd(sizes, plan, exact),
        "step_s": exact.step_s,
        "samples_per_s": workload.batch / exact.step_s,
        "mfu": told.mfu,
        "plan": str(plan),
        "fields": dataclasses.asdict(plan),
    }


def checked(workload: Workload, machine: Cluster, plan: Plan) -> dict[str, Any]:
    """Rules, memory of every stage and the schedule played out."""
    validation = validate(workload, _roomy(machine), plan)
    return {
        "violations": list(validation.violations),
        "fullest_stage_gib": validation.peak_bytes / GIB,
        "pipeline_difference": None if validation.pipeline is None else validation.pipeline.difference,
        "messages": list(validation.messages),
    }


def shadow_prices(workload: Workload, machine: Cluster, plan: Plan) -> dict[str, Any]:
    r"""What one per cent more buys, in per cent of the samples per second, at this plan.

    The number of accelerators is relaxed: more of them divide the same batch into more data-parallel ranks. With
    $\tau = d\log T / d\log N$ and the price of an accelerator falling by $\rho = d\log u / d\log N$ as each needs less
    memory, one per cent more budget buys $-\tau / (1 + \rho)$; memory is worth what its share of the price buys.
    """
    job = prepare(workload, _roomy(machine), plan)
    tau, hbm, second = (_by_accelerators(job, name) for name in ("step_s", "peak_bytes", "second_bytes"))
    need, need_2 = (float(x) for x in _needs(job))
    share, share_2 = _shares(need, need_2)
    budget = -tau / (1 + share * hbm + share_2 * second)
    return {
        "budget": budget,
        "hbm_bytes_needed": budget * share,
        "second_bytes_needed": budget * share_2,
        **{name: sides for name, sides in _by_rate(job).items()},
    }


def enough_bandwidth(workload: Workload, machine: Cluster, plan: Plan) -> float:
    """Bytes/s of the second memory, each way, below which a step takes a thousandth longer; 0 where it is not used."""
    job = prepare(workload, _roomy(machine), plan)
    step_s = _at_rates(job, SUBGRADIENT)
    now, low, high = step_s(dict.fromkeys(_RATES, 1.0)), 0.0, 1.0
    if step_s({**dict.fromkeys(_RATES, 1.0), "second_memory_bytes_per_s": 1e-9}) <= 1.001 * now:
        return 0.0
    for _ in range(40):
        middle = (low + high) / 2
        slow = step_s({**dict.fromkeys(_RATES, 1.0), "second_memory_bytes_per_s": middle}) > 1.001 * now
        low, high = (middle, high) if slow else (low, middle)
    return high * float(machine.accelerator.second_memory_bytes_per_s)


def _needs(job: tuple[Workload, Cluster, PlanPoint]) -> tuple[float, float]:
    exact = cost(*job, _EXACT)
    return exact.peak_bytes, exact.second_bytes


def _shares(need: float, need_2: float) -> tuple[float, float]:
    """Share of an accelerator's price, in per cent, for one per cent more of each memory."""
    hbm, second = float(HBM_CURVE(np.asarray(need))), float(SECOND_CURVE(np.asarray(need_2)))
    whole = ACCELERATOR_USD + hbm + second
    return hbm / whole * slope(HBM_CURVE, need), second / whole * slope(SECOND_CURVE, need_2)


def _by_accelerators(job: tuple[Workload, Cluster, PlanPoint], name: str) -> float:
    workload, machine, point = job

    def formula(at: dict[str, Any]) -> Any:
        moved = dataclasses.replace(point, accelerators=at["accelerators"])
        return 1e-300 + getattr(cost(workload, machine, moved, SUBGRADIENT), name)

    return float(log_gradient(formula, {"accelerators": point.accelerators})[1]["accelerators"])


def _by_rate(job: tuple[Workload, Cluster, PlanPoint]) -> dict[str, list[float]]:
    """Elasticities of samples per second to the left and to the right."""
    at = {name: 1.0 for name in _RATES}
    sides = {side: one_sided(_at_rates(job, DIRECTIONAL), at, side) for side in (-1, 1)}
    return {name: [_rounded(-sides[side][1][name] / sides[side][0]) for side in (-1, 1)] for name in _RATES}


def _rounded(elasticity: Any) -> float:
    """The elasticity without the rounding of what is zero."""
    return 0.0 if abs(elasticity) < 1e-9 else float(elasticity)


def _at_rates(job: tuple[Workload, Cluster, PlanPoint], sem: DualNumbers) -> Callable[[dict[str, Any]], Any]:
    """Seconds of a step by factors of the rates."""
    workload, machine, point = job

    def formula(factors: dict[str, Any]) -> Any:
        chip, (inner, *others, outer) = machine.accelerator, machine.tiers
        peaks = {f"peak_{width}_flop_per_s": factors["flop_per_s"] for width in ("32bit", "16bit", "8bit", "4bit")}
        scales = peaks | {name: factors[name] for name in ("second_memory_bytes_per_s", "hbm_bytes_per_s")}
        scaled = {name: factor * getattr(chip, name) for name, factor in scales.items()}
        wider = {0: factors["scale_up_bytes_per_s"], len(others) + 1: factors["scale_out_bytes_per_s"]}
        tiers = tuple(
            dataclasses.replace(tier, bandwidth_bytes_per_s=wider.get(i, 1.0) * tier.bandwidth_bytes_per_s)
            for i, tier in enumerate((inner, *others, outer))
        )
        there = dataclasses.replace(machine, accelerator=dataclasses.replace(chip, **scaled), tiers=tiers)
        return cost(workload, there, point, sem).step_s

    return formula
