"""Which numbers of accelerators a design looks at, and which of them cannot hold the best answer."""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Plan, Workload, embed
from optimize.clusters.progress import Cell
from optimize.hardware import largest_alone
from optimize.lattice import legal_counts
from optimize.question import Job, Left, Limits, Objective, Problem, products_s

MOST = 2**22  # accelerators
STEPS = (4, 5, 6, 7)  # of an octave: counts of a domain times 2**i times a quarter of these


def grid(limits: Limits, domain: int, least_usd: float, least_w: float) -> list[int]:
    """Counts of accelerators: multiples of the domain, four for each octave, as many as the limits can pay for."""
    most = limits.accelerators or math.inf
    if limits.budget_usd is not None and not limits.rent:
        most = min(most, limits.budget_usd / least_usd)
    if limits.power_w is not None:
        most = min(most, limits.power_w / least_w)
    counts = {part for part in (1, 2, 4) if part < domain and domain % part == 0}
    octaves = range(-2, max(0, math.ceil(math.log2(max(1.0, min(most, MOST) / domain)))) + 1)
    counts |= {domain * step * 2**i // 4 for i in octaves if i >= 0 for step in STEPS}
    counts |= {domain * part for part in (1, 2, 3)}
    return sorted(count for count in counts if count <= most)


def most_accelerators(problem: Problem) -> int:
    """The largest count that the limits can pay for, of the least parts; no more than any plan can use."""
    (least_usd, least_w), limits, most = _least(problem), problem.limits, MOST
    if limits.accelerators is not None:
        most = min(most, limits.accelerators)
    if limits.budget_usd is not None and not limits.rent:
        most = min(most, limits.budget_usd / least_usd)
    if limits.power_w is not None:
        most = min(most, limits.power_w / least_w)
    return int(most)


def _least(problem: Problem) -> tuple[float, float]:
    """Dollars and watts of one accelerator of the least rates."""
    money, (low, _) = problem.money, problem.ends
    return float(money.usd(low)), max(1e-9, float(money.watt(low)))


def cells(problem: Problem) -> list[Cell]:
    """The cells of a problem: every count that has a plan of every job and that the limits can pay for, in whole
    innermost domains."""
    most, fixed = most_accelerators(problem), {**problem.fixed, "domain": problem.domain}
    legal = (legal_counts(job.workload, problem.machine, fixed, most) for job in problem.jobs)
    return [Cell(problem, count) for count in functools.reduce(np.intersect1d, legal).tolist()]


def near_grid(problem: Problem) -> tuple[list[int], tuple[int, ...]]:
    """The legal counts nearest to those of the grid, and the other legal ones."""
    every = [cell.accelerators for cell in cells(problem)]
    logs = np.log(every)
    near = {int(np.abs(logs - math.log(count)).argmin()) for count in counts_of_grid(problem)} if every else set()
    kept = [count for place, count in enumerate(every) if place in near]
    return kept, tuple(count for place, count in enumerate(every) if place not in near)


def counts_of_grid(problem: Problem) -> list[int]:
    """Four for each octave, as many as the limits can pay for, legal or not."""
    return grid(problem.limits, problem.domain, *_least(problem))


def cell_bounds(cells: list[Cell]) -> np.ndarray:
    """Logarithm of the least value by the products alone (of seconds; other objectives: no bound but of rates)."""
    return np.array([_cell_bound(cell.problem, cell.accelerators) for cell in cells])


def _cell_bound(p: Problem, accelerators: int) -> float:
    steps = 1.0 if p.objective is Objective.step else p.steps_on(p.job, float(accelerators))
    seconds = math.log(flop_bound_s(p, p.job, float(accelerators)) * steps)
    if not p.fill and p.limits.deadline_s is not None and seconds > math.log(p.limits.deadline_s):
        seconds = math.inf
    return seconds + _cheapest_log(p, accelerators)


def _cheapest_log(problem: Problem, accelerators: int) -> float:
    """Logarithm of the dollars a second or watts of the least rates without HBM; 0 where the objective has no price."""
    money, (low, _), none = problem.money, problem.ends, np.zeros(())
    return float(np.log(accelerators * money.least(low, Left(none, none, none)))) if money.priced else 0.0


def least_products_s(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> float:
    """Seconds of the products of a step on one accelerator, in the narrowest precision that is searched."""
    precision = fixed.get("precision", "bf16")
    plan = Plan(precision=precision if isinstance(precision, str) else "nvfp4")
    return products_s(workload, cluster, embed(plan, workload, 1.0, cluster.stack.habits))


def flop_bound_s(problem: Problem, job: Job, accelerators: float) -> float:
    """Seconds below which no step on so many accelerators is: its products alone, on the fastest that limits allow."""
    have = problem.money.left(problem.limits, np.array([accelerators]), np.zeros(1))
    fastest = np.exp(largest_alone(problem, have.usd, have.watt)[0, 0])
    slower = float(problem.machine.accelerator.peak_16bit_flop_per_s) / fastest
    return least_products_s(job.workload, problem.machine, problem.fixed) * slower / accelerators
