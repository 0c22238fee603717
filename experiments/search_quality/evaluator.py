"""The vectorised evaluator of all baselines: decoded vectors, rates moved onto the limits, the solver's own cost model.

In float64 by NumPy; memory is sized to the need and the rates are projected onto budget and power exactly as the solver
does (`hardware.project`). A vector without feasible hardware has a value above `INFEASIBLE`, by how much it misses.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from costmodel import Exact
from costmodel.formulas import as_floats, counts, hardware_of, memory, rates, step_time, timing, with_hardware
from costmodel.inputs import PlanPoint
from experiments.search_quality.encoding import Encoding
from optimize.hardware import project
from optimize.question import RATES, Objective

INFEASIBLE = 1e3  # of a logarithm: above every feasible one
_EXACT = Exact(np)


class Candidate(NamedTuple):
    """What a vector stands for; numbers that JSON can hold."""

    accelerators: int
    rates: list[float]
    hbm_bytes: float
    plans: list[int]  # numbers in the lattices of the encoding


class Evaluated(NamedTuple):
    """Of a batch of vectors: logarithms of the minimised quantity, and what they stand for."""

    log_value: np.ndarray
    accelerators: np.ndarray
    y: np.ndarray
    hbm_bytes: np.ndarray
    plans: list[np.ndarray]

    def candidate(self, i: int) -> Candidate:
        rates = [float(value) for value in np.exp(self.y[i])]
        return Candidate(int(self.accelerators[i]), rates, float(self.hbm_bytes[i]), [int(of[i]) for of in self.plans])


class Evaluator:
    """Values of vectors of genes in [0, 1]."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding, self.problem = encoding, encoding.problem
        self.workloads = [as_floats(job.workload) for job in self.problem.jobs]
        self.scales = [
            1.0 if self.problem.objective is Objective.step else job.weight * job.steps for job in self.problem.jobs
        ]

    def __call__(self, genes: np.ndarray) -> Evaluated:
        return self.at(*self.encoding.decode(genes))

    def at(self, count: np.ndarray, y: np.ndarray, plans: list[np.ndarray]) -> Evaluated:
        """Of decoded vectors: the rates are moved onto the limits first."""
        problem, money = self.problem, self.problem.money
        points = [job.points(index, np.float64) for job, index in zip(self.encoding.jobs, plans, strict=True)]
        counted = [counts(workload, point, _EXACT) for workload, point in zip(self.workloads, points, strict=True)]
        needs = [self._peak(own, point, len(count)) for own, point in zip(counted, points, strict=True)]
        hbm_bytes = np.max(needs, axis=0)
        have = money.left(problem.limits, count.astype(float), hbm_bytes)
        y = project(problem, have, y, problem.fill)
        train_s = np.zeros(len(count))
        machine = self._machine(y)
        for own, point, scale in zip(counted, points, self.scales, strict=True):
            train_s = train_s + scale * _step_s(own, point, machine)
        value = np.log(train_s) + np.log(money.price(y, have))
        value = value if problem.fill else value + np.log(count)
        missed = [np.log(hbm_bytes / problem.most_hbm_bytes)]
        for spent, spare in ((money.usd(y), have.usd), (money.watt(y), have.watt)):
            over = np.maximum(spent, 1e-300) / np.maximum(spare, 1e-3 * spent)
            missed.append(np.log(np.maximum(over, 1e-300)) - 1e-9)  # no limit: nothing is over
        worst = np.max(missed, axis=0)
        return Evaluated(np.where(worst > 0, INFEASIBLE + worst, value), count, y, hbm_bytes, plans)

    def _peak(self, counted: Any, point: PlanPoint, n: int) -> np.ndarray:
        found = memory(counted, point, self.problem.machine.stack, _EXACT).peak_bytes
        return np.broadcast_to(np.asarray(found, float), n)

    def _machine(self, y: np.ndarray) -> Any:
        template = self.problem.machine
        own = dict(zip(RATES, np.exp(y).T, strict=True))
        return with_hardware(template, dataclasses.replace(hardware_of(template), **own))


def _step_s(counted: Any, point: PlanPoint, machine: Any) -> np.ndarray:
    times = timing(counted, point, machine, machine.stack, _EXACT)
    speed = rates(machine.accelerator, point, machine.stack)
    return np.asarray(step_time(counted, times, point, machine.stack, speed, _EXACT).step_s)
