"""Which numbers of accelerators a design looks at, and which of them cannot hold the best answer."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Plan, Workload, embed
from optimize.clusters.progress import Cell
from optimize.hardware import largest_alone, priced_bound
from optimize.lattice import legal_counts, rows_of_counts
from optimize.question import Job, Left, Limits, Objective, Problem, Tangents, products_s

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


def rows_of(problem: Problem) -> dict[str, np.ndarray]:
    """Every legal row of degrees of the first job, on every count that the limits can pay for."""
    fixed = {**problem.fixed, "domain": problem.domain}
    return rows_of_counts(problem.job.workload, problem.machine, fixed, most_accelerators(problem))


def cells(problem: Problem, rows: Mapping[str, np.ndarray] | None = None) -> list[Cell]:
    """The cells of a problem: every count that has a plan of every job and that the limits can pay for, in whole
    innermost domains. `rows`: those of its only job, if they are known."""
    most, fixed = most_accelerators(problem), {**problem.fixed, "domain": problem.domain}
    if rows is not None:
        legal = (rows["accelerators"],)
    else:
        legal = (legal_counts(job.workload, problem.machine, fixed, most) for job in problem.jobs)
    return [Cell(problem, count) for count in np.unique(functools.reduce(np.intersect1d, legal)).tolist()]


def cell_bounds(cells: Sequence[Cell]) -> np.ndarray:
    """Logarithm of the least value in each cell of one problem by the products alone (and, where the objective has a
    price, the least rates)."""
    problem, accelerators = cells[0].problem, np.array([cell.accelerators for cell in cells], float)
    steps = 1.0 if problem.objective is Objective.step else problem.steps_on(problem.job, accelerators)
    seconds = np.log(flop_bound_s(problem, problem.job, accelerators) * steps)
    if not problem.fill and problem.limits.deadline_s is not None:
        seconds = np.where(seconds > math.log(problem.limits.deadline_s), np.inf, seconds)
    money, (low, _), none = problem.money, problem.ends, np.zeros(())
    alone = priced_products(problem) + np.log(
        steps / (1.0 if problem.objective is Objective.step else problem.job.steps)
    )
    each = money.least(low, Left(none, none, none))
    if problem.carbon is not None:
        least_g = seconds + np.log(accelerators * problem.carbon.least(low, Left(none, none, none)))
        seconds = np.where(least_g > problem.log_carbon_g, np.inf, seconds)
    return np.maximum(seconds + (np.log(accelerators * each) if money.priced else 0.0), alone)


def priced_products(problem: Problem) -> float:
    """Logarithm of what the products alone cost at least, on any number of accelerators of any rates: they take
    $W/(nF)$ seconds of n accelerators, each of which costs more the faster it is. Nothing where none is paid for."""
    money, (low, high) = problem.money, problem.ends
    if not money.priced:
        return -math.inf
    steps = 1.0 if problem.objective is Objective.step else problem.job.steps
    peak = float(problem.machine.accelerator.peak_16bit_flop_per_s)
    log_work = math.log(least_products_s(problem.job.workload, problem.machine, problem.fixed) * peak * steps)
    y, slopes, none, best = 0.5 * (low + high)[None], -1.0 * np.eye(len(low))[:1], np.zeros(1), -math.inf
    have = money.left(Limits(), np.ones(1), none)
    for _ in range(4):
        log_s = log_work - y[:, 0]
        drawn = {"log_drawn": log_s + math.log(money.least_load), "drawn_slopes": slopes}
        at = money.paid(Tangents(log_s, slopes, y, none, none, **drawn), have)
        bound, y = priced_bound(money, have, at, problem.ends)
        best = max(best, float(bound[0]))
    return best


def least_products_s(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> float:
    """Seconds of the products of a step on one accelerator, in the narrowest precision that is searched."""
    precision = fixed.get("precision", "bf16")
    plan = Plan(precision=precision if isinstance(precision, str) else "nvfp4")
    return products_s(workload, cluster, embed(plan, workload, 1.0, cluster.stack.habits))


def flop_bound_s(problem: Problem, job: Job, accelerators: Any) -> Any:
    """Seconds below which no step on so many accelerators is: its products alone, on the fastest that limits allow."""
    count = np.atleast_1d(np.asarray(accelerators, float))
    have = problem.money.left(problem.limits, count, np.zeros(len(count)))
    fastest = np.exp(largest_alone(problem, have.usd, have.watt)[:, 0])
    slower = float(problem.machine.accelerator.peak_16bit_flop_per_s) / fastest
    least_s = least_products_s(job.workload, problem.machine, problem.fixed) * slower / count
    return least_s if np.ndim(accelerators) else float(least_s[0])
