r"""How sure a choice is: the same question under other prices, and under other constants of the software.

A draw is a set of prices and a set of constants. Prices lie between the low, base and high curves: each place between
them, $t \in [-1, 1]$, is uniform; what an accelerator is made of shares one, networks, second memory and the factors of
servers and power have one each. Constants are drawn from the posterior of the shipped fit (`costmodel.measured`): what
no row ever saw has its prior. Under each draw every candidate's hardware is solved anew, to a tenth of a per cent.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, as_floats, cost, embed
from costmodel.formulas import CurveRange, Curves, Hardware, PowerLaw, with_hardware
from costmodel.inputs import Plan
from costmodel.measured import drawn_stack
from optimize.clusters import DesignResult, evolve
from optimize.hardware import HardwareSolutions, solve_hardware
from optimize.question import RATES, SECONDS_A_DAY, Problem, Quantities

EVOLVED, KEPT = 8, 6  # draws under which plans are searched too, and the best of each that take part
SAME = 1e-3  # of the value: what is nearer than that to the best is as good
_CHIP = ("flop_usd", "hbm_usd", "hbm_rate_usd", "flop_w", "hbm_rate_w")
_PERCENTILES = {"median": 50, "p90": 90, "worst": 100}

Candidates = Sequence[tuple[int, Plan]]
"""Accelerators and a plan on them; the first is the choice that is judged."""


def drawn_curves(curves: CurveRange, generator: np.random.Generator) -> Curves:
    """One set between the three."""
    fields = {field.name: generator.uniform(-1.0, 1.0) for field in dataclasses.fields(Curves)}
    chip = generator.uniform(-1.0, 1.0)
    places = {name: chip if name in _CHIP else place for name, place in fields.items()}
    return Curves(**{name: _between(curves, name, place) for name, place in places.items()})


def _between(curves: CurveRange, name: str, place: float) -> Any:
    """A law or a factor at a place between low (-1), base (0) and high (1), in proportion."""
    base, end = (getattr(of, name) for of in (curves.base, curves.low if place < 0 else curves.high))

    def mixed(first: float, last: float) -> float:
        share = abs(place)
        return float(first * (last / first) ** share if min(first, last) > 0 else first + share * (last - first))

    if not isinstance(base, PowerLaw):
        return mixed(base, end)
    # laws have references of their own: the amount is taken where the base has its own
    at_base = end.amount * (base.reference / end.reference) ** end.exponent
    return PowerLaw(
        amount=mixed(base.amount, at_base), reference=base.reference, exponent=mixed(base.exponent, end.exponent)
    )


def drawn(problem: Problem, curves: CurveRange, generator: np.random.Generator) -> Problem:
    """The question under one draw."""
    stack = drawn_stack(problem.template.stack, problem.template.accelerator.name, generator)
    template = dataclasses.replace(problem.template, stack=stack)
    return dataclasses.replace(problem, curves=drawn_curves(curves, generator), template=template)


def judged(problem: Problem, curves: CurveRange, result: DesignResult, draws: int) -> dict[str, Any] | None:
    """What so many draws say of the answer with rates of any size; None where there is none."""
    if result.continuous is None:
        return None
    sizes = result.continuous.hardware
    rates = np.array([sizes[name] for name in RATES])
    choice = problem.hardware(rates, sizes["hbm_bytes"], sizes["accelerators"])
    candidates, generator = _candidates(problem, curves, result), np.random.default_rng(result.seed)
    rows = [_row(drawn(problem, curves, generator), candidates, choice) for _ in range(draws)]
    plans = np.array([row["wins"] for row in rows])
    counts = np.array([candidates[place][0] for place in plans])
    return {
        "draws": draws,
        "candidates": len(candidates),
        "same_plan": float((plans == 0).mean()),
        "same_count": float((counts == candidates[0][0]).mean()),
        "loss_of_plan": _spread([row["loss_of_plan"] for row in rows]),
        "loss_of_cluster": _spread([row["loss_of_cluster"] for row in rows]),
        "days": {str(q): float(np.percentile([row["days"] for row in rows], q)) for q in (10, 50, 90)},
        "winners": _winners(plans, candidates),
        "rows": rows,
    }


def _candidates(problem: Problem, curves: CurveRange, result: DesignResult) -> Candidates:
    """The answer's plan; what was next to it, what the frontier chose, and what evolves under other draws."""
    assert result.continuous is not None
    own = result.continuous.jobs[0].plan
    points = [*result.runners_up, *(point for point in result.frontier if point["value"] is not None)]
    found = [(own.accelerators, own), *((int(point["accelerators"]), _plan(point["plan"])) for point in points)]
    generator = np.random.default_rng(result.seed + 1)
    for seed in range(EVOLVED):
        *_, (best, _) = evolve(drawn(problem, curves, generator), seed)
        found += [(each.accelerators, each.plan) for each in best[:KEPT]]
    return list(dict.fromkeys(found))


def _plan(fields: Mapping[str, Any]) -> Plan:
    layers = fields["stage_layers"]
    return Plan(**{**fields, "stage_layers": None if layers is None else tuple(layers)})


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {name: float(np.percentile(values, q)) for name, q in _PERCENTILES.items()}


def _winners(plans: np.ndarray, candidates: Candidates) -> list[dict[str, Any]]:
    """Who wins how often, most often first."""
    places, times = np.unique(plans, return_counts=True)
    order = np.argsort(-times, kind="stable")
    return [
        {
            "accelerators": candidates[place][0],
            "plan": dataclasses.asdict(candidates[place][1]),
            "share": float(share),
            "chosen": bool(place == 0),
        }
        for place, share in zip(places[order].tolist(), (times[order] / len(plans)).tolist(), strict=True)
    ]


def _row(problem: Problem, candidates: Candidates, choice: Hardware) -> dict[str, Any]:
    """One draw: who wins, and what the choice loses, of the plan with rates of its own, and of the cluster as it is."""
    own = _solved(problem, candidates[:1], np.inf)
    value = float(own.value[0])
    best, wins = _best(problem, candidates, value)
    bought = _as_bought(problem, candidates[0], choice)
    limits = problem.limits
    power_w = None if limits.power_w is None else float(bought.meter_w)
    spent = dataclasses.replace(limits, budget_usd=float(bought.capital_usd), power_w=power_w)
    best_for_it, _ = _best(dataclasses.replace(problem, limits=spent), candidates, float(bought.train_s))
    return {
        "wins": wins,
        "loss_of_plan": value / best - 1.0,
        "loss_of_cluster": float(bought.train_s) / best_for_it - 1.0,
        "days": float(bought.train_s) / SECONDS_A_DAY,
        "usd": spent.budget_usd,
        "power_w": power_w,
    }


def _best(problem: Problem, candidates: Candidates, known: float) -> tuple[float, int]:
    """The least value, and whose it is: the first candidate's, where none is better by more than `SAME`."""
    value = _solved(problem, candidates[1:], known * (1 - SAME)).value
    if not np.isfinite(value).any() or value.min() >= known * (1 - SAME):
        return known, 0
    return float(value.min()), int(value.argmin()) + 1


def _solved(problem: Problem, candidates: Candidates, cutoff: float) -> HardwareSolutions:
    workload, domain, habits = problem.job.workload, float(problem.domain), problem.template.stack.habits
    points = [embed(plan, workload, domain, habits) for _, plan in candidates]
    return solve_hardware(problem, points, tolerance=SAME, cutoff=cutoff)


def _as_bought(problem: Problem, chosen: tuple[int, Plan], choice: Hardware) -> Quantities:
    """Seconds of training on the cluster as it was chosen, and what it costs and draws at these prices."""
    workload, machine = as_floats(problem.job.workload), with_hardware(problem.machine, choice)
    point = embed(chosen[1], workload, float(problem.domain), problem.template.stack.habits)
    return problem.quantities(choice, (cost(workload, machine, point, Exact(np)).step_s,))
