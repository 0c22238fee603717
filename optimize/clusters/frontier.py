"""Frontiers: one limit swept, the best answer at each of its values, every point certified.

Time against money, money against power, accelerators against days: the objective of the problem over one of its limits.
The points share what does not depend on limits (the screened batches of plans, the relaxed points to start from), so
each costs a fraction of the first.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.evaluators import memory_by_stage
from costmodel.formulas import Hardware, peak
from costmodel.inputs import Plan, embed
from optimize.clusters.progress import Best, Progress
from optimize.clusters.screening import tangents_of
from optimize.hardware import project
from optimize.question import RATES, Problem, as_table, sized

Search = Callable[..., Progress]  # `one_job.search`
SWEPT = ("budget_usd", "power_w", "accelerators", "carbon_g")
CLOSED = 0.009  # of a logarithm: the gap within which a point is left, below one per cent
FACTORS = (2.0, 0.5, 1.4, 0.7)  # of the limit that is asked for, in this order as long as there is time


def point_of(limit: str, problem: Problem, search: Progress) -> Mapping[str, Any]:
    """One point as plain data. Without a plan the value is None: nothing meets that limit."""
    own = {limit: getattr(problem.limits, limit)}
    if own[limit] is None and search.best is not None:
        own = {limit: used_of(limit, problem, search.best)}
    if search.best is None:
        return {**own, "value": None, "lower_bound": None, "gap": None}
    best, tokens = _held(problem, search.best), problem.job.tokens
    bound = min(search.log_bound, best.log_value)
    return {
        **own,
        "value": problem.objective.reported(math.exp(best.log_value), tokens),
        "lower_bound": problem.objective.reported(math.exp(bound), tokens),
        "gap": math.expm1(best.log_value - bound),
        "accelerators": best.cell.accelerators,
        "hardware": {**as_table(np.exp(best.y)), "hbm_bytes": best.hbm_bytes},
        "plan": dataclasses.asdict(best.plan),
    }


def holding(problem: Problem, plans: Sequence[Plan], hardware: Hardware) -> Hardware:
    """Hardware with the memory of the fullest stage of any plan, and what the limits leave for the rates beside it.

    The search spreads every kind of layer evenly over the stages; where they follow one another (leading dense layers)
    a stage may need more.
    """
    count = int(hardware.accelerators)
    stages = (
        memory_by_stage(job.workload, sized(problem.machine, count), plan)
        for job, plan in zip(problem.jobs, plans, strict=True)
    )
    peak_bytes = max(float(peak(stage, Exact(np))) for each in stages for stage in each)
    need = np.array([problem.machine.stack.memory_margin * peak_bytes * (1 + 1e-12)])
    have = problem.money.left(problem.limits, np.array([float(count)]), need)
    if need[0] <= hardware.hbm_bytes or have.usd[0] <= 0:
        return hardware
    y = project(problem, have, np.log([[getattr(hardware, name) for name in RATES]]), fill=False)
    return problem.hardware(np.exp(y[0]), float(need[0]), float(count))


def _held(problem: Problem, best: Best) -> Best:
    """An answer on hardware that holds its fullest stage."""
    count, job = float(best.cell.accelerators), problem.job
    first = problem.hardware(np.exp(best.y), best.hbm_bytes, count)
    hardware = holding(problem, (best.plan,), first)
    if hardware is first:
        return best
    y = np.log([[float(getattr(hardware, name)) for name in RATES]])
    point = embed(best.plan, job.floats, float(problem.domain), problem.machine.stack.habits)
    have = best.cell.left(np.array([float(hardware.hbm_bytes)]))
    at = best.cell.tangents(tangents_of(job.floats, problem.machine, point, y, problem.loads), have)
    log_value = float(best.cell.log_value(have, at)[0])
    return dataclasses.replace(best, log_value=log_value, y=y[0], hbm_bytes=float(hardware.hbm_bytes))


def frontier(
    search: Search,
    problem: Problem,
    limit: str,
    values: Iterable[float],
    seconds: float,
    after: Progress | None = None,
    seed: int = 0,
    work: float = math.inf,
) -> list[Mapping[str, Any]]:
    """Points in the order of `values`, as many as the time allows. Each goes on from the search with the nearest value:
    `after` at first; `work`: evaluations of each."""
    if limit not in SWEPT:
        raise ValueError(f"`limit` is {limit!r}; expected one of {', '.join(SWEPT)}")
    end, points, cost_s = time.monotonic() + seconds, [], 0.0
    known: dict[float, Progress] = {}
    if after is not None and after.best is not None:
        known[getattr(after.problem.limits, limit) or used_of(limit, after.problem, after.best)] = after
    for value in values:
        start = time.monotonic()
        if start + cost_s > end:
            break
        own = int(value) if limit == "accelerators" else float(value)
        asked = dataclasses.replace(problem, limits=dataclasses.replace(problem.limits, **{limit: own}))
        nearest = sorted(known, key=lambda other, here=value: abs(math.log(other / here)))[:1]
        near = known[nearest[0]] if nearest else None
        last = search(asked, end - start, seed, after=near, tolerance=CLOSED, work=work)
        known |= {value: last} if last.best is not None else {}
        if last.interrupted:
            break
        if not last.unseen:  # all counts were bounded: else time was up, and the point would say little
            points.append(point_of(limit, asked, last))
        cost_s = time.monotonic() - start
    return points


def runners_up(problem: Problem, search: Progress, most: int = 5) -> tuple[Mapping[str, Any], ...]:
    """The next best plans that were solved, each with its own hardware, and by how much they are worse."""
    best = search.best
    others = sorted((other for other in search.runners_up.values() if other is not best), key=lambda o: o.log_value)
    if best is None:
        return ()
    tokens = sum(job.tokens for job in problem.jobs)
    return tuple(
        {
            "accelerators": other.cell.accelerators,
            "plan": dataclasses.asdict(other.plan),
            "hardware": {**as_table(np.exp(other.y)), "hbm_bytes": other.hbm_bytes},
            "value": problem.objective.reported(math.exp(other.log_value), tokens),
            "worse_by": math.expm1(other.log_value - best.log_value),
        }
        for other in [o for o in others if o.plan != best.plan or o.cell is not best.cell][:most]
    )


def used_of(limit: str, problem: Problem, best: Best) -> float:
    """What an answer takes of a limit that was not set."""
    count, money = best.cell.accelerators, problem.money
    if limit == "accelerators":
        return count
    if limit == "carbon_g":
        raise ValueError("`limit` is 'carbon_g', which the problem does not have; expected it in its limits")
    if limit == "power_w":
        return count * float(money.watt(best.y))
    return count * float(money.usd(best.y) + money.hbm(best.hbm_bytes))


def swept_limit(problem: Problem) -> str | None:
    """The limit that a design sweeps by default: money, else power, else accelerators."""
    return next((name for name in SWEPT if getattr(problem.limits, name) is not None), None)


def monotone(points: list[Mapping[str, Any]], limit: str, maximised: bool) -> list[Mapping[str, Any]]:
    """Points in the order of the limit, none worse than one with less of it, whose answer it takes (it is allowed)."""
    kept: list[Mapping[str, Any]] = []
    for point in sorted(points, key=lambda point: point[limit]):
        if kept and kept[-1]["value"] is not None and point["lower_bound"] is None:
            continue  # time was up before anything was known of it
        if kept and _better(kept[-1], point, maximised):
            inherited = {**kept[-1], limit: point[limit], "lower_bound": point["lower_bound"]}
            bound = inherited["lower_bound"]
            inherited["gap"] = (bound / inherited["value"] if maximised else inherited["value"] / bound) - 1
            kept.append(inherited)
        else:
            kept.append(point)
    return kept


def _better(first: Mapping[str, Any], second: Mapping[str, Any], maximised: bool) -> bool:
    if first["value"] is None or second["value"] is None:
        return first["value"] is not None
    return first["value"] > second["value"] if maximised else first["value"] < second["value"]
