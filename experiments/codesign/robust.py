r"""How sure a choice is: the same question under other prices, and under other constants of the software.

A draw is a set of prices and a set of constants. Prices lie between the low, base and high curves: each place between
them, $t \in [-1, 1]$, is uniform; what an accelerator is made of shares one, networks, second memory and the factors of
servers and power have one each. Constants are drawn from the posterior of the shipped fit (`costmodel.measured`): what
no row ever saw has its prior.

All draws are one question whose prices and constants are arrays, a row for each plan under each draw: its rates go
half the way to where the tangent of its days is least, sixteen times, and each round proves a bound (`aggregated`).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, as_floats, embed, map_leaves
from costmodel.formulas import CurveRange, Curves, PowerLaw, counts, memory
from costmodel.inputs import Plan, PlanPoint, Stack
from costmodel.measured import drawn_stack
from optimize.clusters import DesignResult, evolved, tangents_of
from optimize.hardware import aggregated, dual_bound, project
from optimize.question import RATES, SECONDS_A_DAY, Left, Limits, Problem

EVOLVED, KEPT = 4, 14  # draws under which plans are searched too, and the best of each that take part
ROUNDS = 16  # of tangents, and of their means, which pass over kinks
SAME = 2e-3  # of the value: what is nearer than that to the best is as good
_CHIP = ("flop_usd", "hbm_usd", "hbm_rate_usd", "flop_w", "hbm_rate_w")
_PERCENTILES = {"median": 50, "p90": 90, "worst": 100}

Candidates = Sequence[tuple[int, Plan]]
"""Accelerators and a plan on them; the first is the choice that is judged."""


def drawn_curves(curves: CurveRange, draws: int, generator: np.random.Generator) -> Curves:
    """Sets between the three: arrays, one number for each draw."""
    places = {field.name: generator.uniform(-1.0, 1.0, draws) for field in dataclasses.fields(Curves)}
    chip = generator.uniform(-1.0, 1.0, draws)
    return Curves(**{name: between(curves, name, chip if name in _CHIP else own) for name, own in places.items()})


def between(curves: CurveRange, name: str, place: np.ndarray) -> Any:
    """A law or a factor at places between low (-1), base (0) and high (1), in proportion."""
    low, base, high = (getattr(of, name) for of in (curves.low, curves.base, curves.high))
    if not isinstance(base, PowerLaw):
        return _mixed(low, base, high, place)
    ends = [law.amount * (base.reference / law.reference) ** law.exponent for law in (low, high)]  # at one reference
    amount = _mixed(ends[0], base.amount, ends[1], place)
    exponent = _mixed(low.exponent, base.exponent, high.exponent, place)
    return PowerLaw(amount=amount, reference=base.reference, exponent=exponent)


def _mixed(low: float, base: float, high: float, place: np.ndarray) -> np.ndarray:
    end, share = np.where(place < 0, low, high), np.abs(place)
    if min(low, base, high) <= 0:
        return base + share * (end - base)
    return base * (end / base) ** share


def drawn_stacks(stack: Stack, accelerator: str, draws: int, generator: np.random.Generator) -> Stack:
    """The constants as arrays, one number for each draw."""
    each = [drawn_stack(stack, accelerator, generator) for _ in range(draws)]
    names = [field.name for field in dataclasses.fields(Stack) if isinstance(getattr(stack, field.name), float)]
    arrays = {name: np.array([getattr(one, name) for one in each]) for name in names}
    return dataclasses.replace(stack, **{name: own for name, own in arrays.items() if np.ptp(own) > 0})


def drawn(problem: Problem, curves: CurveRange, draws: int, generator: np.random.Generator) -> Problem:
    """The question under so many draws."""
    stack = drawn_stacks(problem.template.stack, problem.template.accelerator.name, draws, generator)
    template = dataclasses.replace(problem.template, stack=stack)
    return dataclasses.replace(problem, curves=drawn_curves(curves, draws, generator), template=template)


def repeated(problem: Problem, times: int) -> Problem:
    """Every draw so many times, one after the other."""

    def of(leaf: Any) -> Any:
        return np.repeat(leaf, times) if np.ndim(leaf) else leaf

    stack, limits = map_leaves(of, problem.template.stack), problem.limits
    limits = dataclasses.replace(limits, budget_usd=of(limits.budget_usd), power_w=of(limits.power_w))
    template = dataclasses.replace(problem.template, stack=stack)
    return dataclasses.replace(problem, curves=map_leaves(of, problem.curves), template=template, limits=limits)


def judged(problem: Problem, curves: CurveRange, result: DesignResult, draws: int) -> dict[str, Any] | None:
    """What so many draws say of the answer with rates of any size; None where there is none."""
    if result.continuous is None:
        return None
    candidates, generator = _candidates(problem, curves, result), np.random.default_rng(result.seed)
    found = compared(drawn(problem, curves, draws, generator), candidates, result.continuous.hardware, draws)
    wins = found["wins"]
    sizes = np.array([candidates[place][0] for place in wins])
    return {
        "draws": draws,
        "candidates": len(candidates),
        "unproved": found["unproved"],
        "same_plan": float((wins == 0).mean()),
        "same_count": float((sizes == candidates[0][0]).mean()),
        "loss_of_plan": _spread(found["loss_of_plan"]),
        "loss_of_cluster": _spread(found["loss_of_cluster"]),
        "days": {str(q): float(np.percentile(found["days"], q)) for q in (10, 50, 90)},
        "winners": _winners(wins, candidates),
        "losses": {name: found[name].tolist() for name in ("loss_of_plan", "loss_of_cluster")},
    }


def _candidates(problem: Problem, curves: CurveRange, result: DesignResult) -> Candidates:
    """The answer's plan; what was next to it, what the frontier chose, and what evolves under other draws."""
    assert result.continuous is not None
    own = result.continuous.jobs[0].plan
    points = [*result.runners_up, *(point for point in result.frontier if point["value"] is not None)]
    found = [(own.accelerators, own), *((int(point["accelerators"]), _plan(point["plan"])) for point in points)]
    many = drawn(problem, curves, EVOLVED, np.random.default_rng(result.seed + 1))
    for number in range(EVOLVED):
        best = evolved(_one(many, number), number)
        found += [(each.accelerators, each.plans[0]) for each in best[:KEPT]]
    return list(dict.fromkeys(found))


def _one(problem: Problem, number: int) -> Problem:
    """One of many draws."""

    def of(leaf: Any) -> Any:
        return float(leaf[number]) if np.ndim(leaf) else leaf

    template = dataclasses.replace(problem.template, stack=map_leaves(of, problem.template.stack))
    return dataclasses.replace(problem, curves=map_leaves(of, problem.curves), template=template)


def _plan(fields: Mapping[str, Any]) -> Plan:
    layers = fields["stage_layers"]
    return Plan(**{**fields, "stage_layers": None if layers is None else tuple(layers)})


def _spread(values: np.ndarray) -> dict[str, float]:
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


def compared(problem: Problem, candidates: Candidates, choice: Mapping[str, float], draws: int) -> dict[str, Any]:
    """Each draw: who wins, what the first candidate loses with rates of its own, and the cluster `choice` as it is."""
    y = np.log([choice[name] for name in RATES])
    value, bound = solved(problem, candidates, y, draws)
    wins, loss, gap = _lost(value[:, 0], value, bound)
    days, spent = _as_bought(problem, candidates[0], y, choice["hbm_bytes"], draws)
    value, bound = solved(dataclasses.replace(problem, limits=spent), candidates, y, draws)
    _, loss_as_bought, gap_as_bought = _lost(days, value, bound)
    return {
        "wins": wins,
        "loss_of_plan": loss,
        "loss_of_cluster": loss_as_bought,
        "days": days / SECONDS_A_DAY,
        "unproved": float(max(gap.max(), gap_as_bought.max())),
    }


def _lost(own: np.ndarray, value: np.ndarray, bound: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who is best (the first where nobody is better by `SAME`), what `own` loses, and what could be lost beside."""
    best = np.minimum(value.min(axis=1), own)
    wins = np.where(best >= own * (1 - SAME), 0, value.argmin(axis=1))
    loss = np.where(wins == 0, 0.0, own / best - 1.0)
    return wins, loss, best / np.minimum(bound.min(axis=1), best) - 1.0


def solved(problem: Problem, candidates: Candidates, y: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of training of each candidate under each draw (draws first), with the best rates found from `y` on, and
    what no rates are below."""
    many, n = repeated(problem, len(candidates)), len(candidates) * draws
    ranks = np.tile([float(count) for count, _ in candidates], draws)
    points = _points(problem, [plan for _, plan in candidates], draws)
    steps = many.steps_on(many.job, ranks)
    here, best, bound, mean = np.tile(y, (n, 1)), np.full(n, np.inf), np.full(n, -np.inf), None
    need = _peak_bytes(many, points, n)
    have = many.money.left(many.limits, ranks, need)
    for _ in range(ROUNDS):
        here = project(many, have, here)
        at = tangents_of(many.job.floats, many.machine, points, here, peak_bytes=need)
        at = at._replace(log_value=at.log_value + np.log(steps))
        best = np.minimum(best, np.where((have.usd > 0) & _within(many, have, here), at.log_value, np.inf))
        if mean is None:
            mean, (proved, there) = at, dual_bound(many, have, at)
        else:
            mean, (proved, there) = aggregated(functools.partial(dual_bound, many, have), mean, at)
        here = 0.5 * (here + there)  # where the tangent is least is a corner beyond
        bound = np.maximum(bound, proved)
    shape = draws, len(candidates)
    return np.exp(best).reshape(shape), np.exp(bound).reshape(shape)


def _peak_bytes(problem: Problem, points: PlanPoint, n: int) -> np.ndarray:
    """What each plan needs: the same under every draw."""
    exact = Exact(np)
    counted = counts(as_floats(problem.job.workload), points, exact)
    return np.broadcast_to(memory(counted, points, problem.machine.stack, exact).needed_bytes, n)


def _within(problem: Problem, have: Left, y: np.ndarray) -> np.ndarray:
    money = problem.money
    return (money.usd(y) <= have.usd * (1 + 1e-9)) & (money.watt(y) <= have.watt * (1 + 1e-9))


def _points(problem: Problem, plans: Sequence[Plan], draws: int) -> PlanPoint:
    """All plans for each draw, as arrays."""
    domain, habits = float(problem.domain), problem.template.stack.habits
    points, rows = [embed(plan, problem.job.workload, domain, habits) for plan in plans], []
    for point in points:
        row: list[float] = []
        map_leaves(row.append, point)
        rows.append(row)
    columns = iter(np.asarray(rows, float).T)
    return map_leaves(lambda _: np.tile(next(columns), draws), points[0])


def _as_bought(
    problem: Problem, chosen: tuple[int, Plan], y: np.ndarray, hbm_bytes: float, draws: int
) -> tuple[np.ndarray, Limits]:
    """Seconds of training on the cluster as it was chosen, and limits of what it costs and draws at these prices."""
    (count, plan), many, here = chosen, problem, np.tile(y, (draws, 1))
    at = tangents_of(many.job.workload, many.machine, _points(problem, [plan], draws), here)
    usd = count * (many.money.usd(here) + many.money.hbm(hbm_bytes))
    watt = None if many.limits.power_w is None else count * many.money.watt(here)
    spent = dataclasses.replace(many.limits, budget_usd=usd, power_w=watt)
    return np.exp(at.log_value) * many.steps_on(many.job, float(count)), spent
