"""The fit: constants and regimes in turn, until the regimes stay."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from costmodel.fit.kernels import Kernel
from costmodel.fit.problem import Problem, Settings
from costmodel.fit.regimes import CLASS, Rule, fit_rule
from costmodel.fit.solve import Solution
from costmodel.rows import Case

_ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Trained:
    """A finished fit."""

    problem: Problem
    solution: Solution
    rule: Rule
    slow: np.ndarray  # regime of each case, by what was measured


def train(cases: Sequence[Case], found: Sequence[Kernel], settings: Settings = Settings()) -> Trained:
    """Constants, and the regime of each row: the one that predicts it better."""
    problem = Problem(cases, found, settings)
    maybe = np.array([case.stack == CLASS for case in cases])
    solution = problem.solve()
    for _ in range(_ROUNDS if maybe.any() else 0):
        slow = _slow(problem, solution.z, maybe)
        if np.array_equal(slow, problem.evaluator.slow):
            break
        problem.evaluator.slow = slow
        solution = problem.solve(solution.z)
    slow = problem.evaluator.slow
    return Trained(problem, solution, fit_rule(cases, slow), slow)


def _slow(problem: Problem, z: np.ndarray, maybe: np.ndarray) -> np.ndarray:
    """1 where the second regime's prediction is nearer to the measurement."""
    errors, before = [], problem.evaluator.slow
    for regime in (np.zeros(len(maybe)), maybe.astype(float)):
        problem.evaluator.slow = regime
        errors.append(np.abs(problem.residuals(z)[: len(maybe)]))
    problem.evaluator.slow = before
    return (maybe & (errors[1] < errors[0])).astype(float)
