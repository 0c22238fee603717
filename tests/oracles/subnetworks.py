"""The error of scaled subnetworks round by round: what their rates and their play are held against."""

from typing import Any

from costmodel.convergence.quadratics import Problem, optimum
from costmodel.convergence.subnetworks import scaled_covariance, scaled_mean
from costmodel.semantics import Scalar


def scaled_error(problem: Problem, start: Any, step: Scalar, rounds: Scalar) -> Scalar:
    r"""Exactly $E\|x_k - x^*\|^2$: the error of the mean, and the variance that has gathered by then."""
    gathered = step * (1 - (1 - step) ** (2 * rounds)) / (2 - step) * scaled_covariance(problem).trace()
    return ((scaled_mean(problem, start, step, rounds) - optimum(problem)) ** 2).sum(-1) + gathered
