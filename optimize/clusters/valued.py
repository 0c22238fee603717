"""Values of clusters with a plan for each job, thousands at once, in float64 by NumPy: nothing is compiled.

Memory is what the plans need and rates are moved onto the limits, so that every vector is a cluster that the limits
allow, unless even the least rates are too much: its value is then above `INFEASIBLE`, by how much it misses.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel import Exact
from costmodel.formulas import counts, memory, timed
from costmodel.inputs import PlanPoint
from optimize.hardware import project
from optimize.question import Left, Problem, at_rates

INFEASIBLE = 1e3  # of a logarithm: above every feasible one
_TINY = 1e-300
_EXACT = Exact(np)


class Valued(NamedTuple):
    """A batch: logarithms of the minimised quantity, and what they stand for."""

    log_value: np.ndarray
    accelerators: np.ndarray
    y: np.ndarray
    hbm_bytes: np.ndarray
    plans: list[np.ndarray]  # of each job, by number


def valued(
    problem: Problem, accelerators: np.ndarray, y: np.ndarray, points: Sequence[PlanPoint], plans: list[np.ndarray]
) -> Valued:
    """Counts with rates, which are moved onto the limits, and with points of every job's plans, each with a number."""
    count, floats = accelerators.astype(float), [job.floats for job in problem.jobs]
    counted = [counts(*job, _EXACT) for job in zip(floats, points, strict=True)]
    needs = [memory(*job, problem.machine.stack, _EXACT).needed_bytes for job in zip(counted, points, strict=True)]
    hbm_bytes = functools.reduce(np.maximum, needs, np.zeros(len(y)))
    have = problem.money.left(problem.limits, count, hbm_bytes)
    y = project(problem, have, y, problem.spends_all)
    machine = at_rates(problem.machine, np.moveaxis(np.exp(y), -1, 0))
    steps = [job.weight * problem.steps_on(job, count) for job in problem.jobs]
    times = [timed(*job, machine, problem.loads, _EXACT) for job in zip(counted, points, strict=True)]
    seconds = [sum(of * each for of, each in zip(steps, part, strict=True)) for part in zip(*times, strict=True)]
    value, missed = _worth(problem, count, y, have, seconds)
    missed.append(np.log(hbm_bytes / problem.most_hbm_bytes))
    for job, of, (step_s, *_) in zip(problem.jobs, steps, times, strict=True):
        missed += [] if job.deadline_s is None else [np.log(of * step_s / (job.weight * job.deadline_s))]
    worst = functools.reduce(np.maximum, missed)
    return Valued(np.where(worst > 0, INFEASIBLE + worst, value), accelerators, y, hbm_bytes, plans)


def _worth(
    problem: Problem, count: np.ndarray, y: np.ndarray, have: Left, seconds: Sequence[Any]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logarithm of the value of all seconds (and of those at the usual power, where something is paid for them), and by
    how much (a logarithm above 0) each limit is missed."""
    money, limits, total, drawn = problem.money, problem.limits, seconds[0], seconds[1] if len(seconds) > 1 else 0.0
    second, spent = money.seconds(y, have)
    value = np.log(second * total + spent * drawn) + problem.log_scale + (0.0 if problem.fill else np.log(count))
    missed = []
    for used, spare in ((money.usd(y), have.usd), (money.watt(y), have.watt)):
        missed.append(np.log(np.maximum(used / np.maximum(spare, 1e-3 * used), _TINY)) - 1e-9)  # no limit: nothing
    late_counts = len(problem.jobs) > 1 or not problem.fill  # the fastest of one job is told, late or not
    if limits.deadline_s is not None and late_counts:
        missed.append(np.log(total / limits.deadline_s))
    if problem.carbon is not None:
        second, spent = problem.carbon.seconds(y, have)
        missed.append(np.log(count * (second * total + spent * drawn)) + problem.log_scale - problem.log_carbon_g)
    return value, missed
