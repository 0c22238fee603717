"""The fit: constants and regimes in turn, until the regimes stay; and the same fit without each source."""

import dataclasses
from collections.abc import Callable, Mapping

import numpy as np

from costmodel.measured.fit.fitted import Fitted, narrowed
from costmodel.measured.fit.newcomers import with_newcomers
from costmodel.measured.fit.parameters import TWO_REGIMES, Weights
from costmodel.measured.fit.problem import Problem
from costmodel.measured.fit.regimes import fit_weights, likely_slow
from costmodel.measured.fit.solve import Solution
from costmodel.measured.rows import Case

_ROUNDS = 6


@dataclasses.dataclass(frozen=True)
class Trained:
    """A problem and its solution; its evaluator has each case in the regime that the measurement says."""

    problem: Problem
    solution: Solution
    regime_weights: Weights

    def errors(self) -> np.ndarray:
        """Log predicted over measured of each case, in the regime that its columns name."""
        return _errors(self.problem, self.solution.z, self.regime_weights)


def train(problem: Problem) -> Trained:
    """The constants, and the regime of each row: the one that predicts it better."""
    maybe = np.array([case.stack == TWO_REGIMES for case in problem.cases])
    solution = problem.solve()
    for _ in range(_ROUNDS if maybe.any() else 0):
        slow = _slow(problem, solution.z, maybe)
        if np.array_equal(slow, problem.evaluator.slow):
            break
        problem.evaluator.slow = slow
        solution = problem.solve(solution.z)
    return Trained(problem, solution, fit_weights(problem.cases, problem.evaluator.slow))


def of_source(case: Case) -> str:
    """What is left out to judge: all rows of one table."""
    return case.source


def of_software(case: Case) -> str:
    """What is left out to judge harder: all rows of one class of software, whatever their source."""
    return case.stack


def without_each(trained: Trained, member_of: Callable[[Case], str] = of_source) -> dict[str, Trained]:
    """The fit without the rows of each source or class in turn, from that of all.

    The rule of the regimes has seen its rows: one source alone has two regimes.
    """
    members = [member_of(case) for case in trained.problem.cases]
    solutions = trained.problem.solve_without(trained.solution.z, members)
    return {name: dataclasses.replace(trained, solution=found) for name, found in solutions.items()}


def left_out_errors(without: Mapping[str, Trained], member_of: Callable[[Case], str] = of_source) -> np.ndarray:
    """Log predicted over measured of each case, by constants that saw no row of its source or class."""
    cases = next(iter(without.values())).problem.cases
    members, errors = np.array([member_of(case) for case in cases]), np.zeros(len(cases))
    for name, own in without.items():
        errors[members == name] = own.errors()[members == name]
    return errors


def as_fitted(trained: Trained, scatter: Mapping[str, float], memory: Mapping[str, float]) -> Fitted:
    """What is kept of a fit: deviations, their covariance by Laplace's approximation, and the scatter of time and
    memory."""
    size = trained.problem.size
    covariance = np.linalg.inv(trained.solution.curvature)[:size, :size]
    keys, z, factor = narrowed(trained.problem.keys, trained.solution.z[:size], covariance)
    fitted = Fitted(
        keys=keys, z=z, factor=factor, regime_weights=trained.regime_weights, scatter=scatter, memory=memory
    )
    return with_newcomers(fitted, {case.stack for case in trained.problem.cases})


def _errors(problem: Problem, z: np.ndarray, weights: Weights) -> np.ndarray:
    own, before = z.copy(), problem.evaluator.slow
    own[problem.size :] = 0.0
    problem.evaluator.slow = likely_slow(weights, problem.cases)
    errors = problem.residuals(own)[: len(problem.cases)]
    problem.evaluator.slow = before
    return errors


def _slow(problem: Problem, z: np.ndarray, maybe: np.ndarray) -> np.ndarray:
    """1 where the second regime's prediction is nearer to the measurement."""
    errors, before = [], problem.evaluator.slow
    for regime in (np.zeros(len(maybe)), maybe.astype(float)):
        problem.evaluator.slow = regime
        errors.append(np.abs(problem.residuals(z)[: len(maybe)]))
    problem.evaluator.slow = before
    return (maybe & (errors[1] < errors[0])).astype(float)
