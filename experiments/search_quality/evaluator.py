"""The vectorised evaluator of all baselines: decoded vectors, rates moved onto the limits, the solver's own cost model.

In float64 by NumPy; memory is sized to the need and the rates are projected onto budget and power exactly as the solver
does (`hardware.project`). A vector without feasible hardware has a value above `INFEASIBLE`, by how much it misses.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel import Exact, as_floats
from costmodel.formulas import counts, hardware_of, memory, step, timed, with_hardware
from costmodel.inputs import PlanPoint
from optimize.hardware import project
from optimize.question import RATES, Objective, Problem

INFEASIBLE = 1e3  # of a logarithm: above every feasible one
_EXACT = Exact(np)


Points = Callable[[np.ndarray], PlanPoint]
"""What makes the points of a job's plans of their numbers."""


class Evaluated(NamedTuple):
    """A batch of decoded vectors: logarithms of the minimised quantity, and what they stand for."""

    log_value: np.ndarray
    accelerators: np.ndarray
    y: np.ndarray
    hbm_bytes: np.ndarray
    plans: list[np.ndarray]

    def candidate(self, i: int) -> dict[str, Any]:
        """What one vector stands for, as JSON holds it; `plans` are numbers in the lattices of the encoding."""
        return {
            "accelerators": int(self.accelerators[i]),
            "rates": [float(value) for value in np.exp(self.y[i])],
            "hbm_bytes": float(self.hbm_bytes[i]),
            "plans": [int(of[i]) for of in self.plans],
        }


class Evaluator:
    """Values of counts, logarithms of rates and plans, whatever vectors they were decoded from."""

    def __init__(self, problem: Problem, points: Sequence[Points]) -> None:
        self.problem, self.points = problem, points
        self.workloads = [as_floats(job.workload) for job in self.problem.jobs]

    def __call__(self, count: np.ndarray, y: np.ndarray, plans: list[np.ndarray]) -> Evaluated:
        """Evaluate a batch; the rates are moved onto the limits first."""
        problem, money = self.problem, self.problem.money
        points = [of(index) for of, index in zip(self.points, plans, strict=True)]
        counted = [counts(workload, point, _EXACT) for workload, point in zip(self.workloads, points, strict=True)]
        needs = [self._peak(own, point, len(count)) for own, point in zip(counted, points, strict=True)]
        hbm_bytes = np.max(needs, axis=0)
        have = money.left(problem.limits, count.astype(float), hbm_bytes)
        y = project(problem, have, y, problem.fill)
        worth, (second, drawn) = np.zeros(len(count)), money.seconds(y, have)
        machine, loads = self._machine(y), problem.loads
        for own, point, job in zip(counted, points, problem.jobs, strict=True):
            alone = problem.objective is Objective.step
            scale = 1.0 if alone else job.weight * problem.steps_on(job, count.astype(float))
            if loads is None:
                worth = worth + scale * second * np.asarray(step(own, point, machine, _EXACT).step_s)
                continue
            step_s, drawn_s = timed(own, point, machine, loads, _EXACT)
            worth = worth + scale * (second * np.asarray(step_s) + drawn * np.asarray(drawn_s))
        value = np.log(worth)
        value = value if problem.fill else value + np.log(count)
        missed = [np.log(hbm_bytes / problem.most_hbm_bytes)]
        for spent, spare in ((money.usd(y), have.usd), (money.watt(y), have.watt)):
            over = np.maximum(spent, 1e-300) / np.maximum(spare, 1e-3 * spent)
            missed.append(np.log(np.maximum(over, 1e-300)) - 1e-9)  # no limit: nothing is over
        worst = np.max(missed, axis=0)
        return Evaluated(np.where(worst > 0, INFEASIBLE + worst, value), count, y, hbm_bytes, plans)

    def _peak(self, counted: Any, point: PlanPoint, n: int) -> np.ndarray:
        peak_bytes = memory(counted, point, self.problem.machine.stack, _EXACT).needed_bytes
        return np.broadcast_to(np.asarray(peak_bytes, float), n)

    def _machine(self, y: np.ndarray) -> Any:
        template = self.problem.machine
        own = dict(zip(RATES, np.exp(y).T, strict=True))
        return with_hardware(template, dataclasses.replace(hardware_of(template), **own))
