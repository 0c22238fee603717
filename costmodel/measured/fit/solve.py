r"""Robust maximum a posteriori by Gauss-Newton steps with exact Jacobians.

Minimised is $\sum_i w_i \rho(r_i / \sigma) + \tfrac12 |z|^2$ with $\rho(u) = \tfrac{\nu+1}{2} \log(1 + u^2/\nu)$, the
log density of Student's t: rows that no constants explain lose their pull. Each step solves the normal equations of the
reweighted least squares with a damping that falls while steps succeed (Levenberg-Marquardt). Deterministic.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

Residuals = Callable[[np.ndarray], np.ndarray]
Linearised = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Loss:
    """Scale and degrees of freedom of the residuals' distribution."""

    scale: float = 0.08
    freedom: float = 4.0

    def value(self, residuals: np.ndarray) -> np.ndarray:
        """Minus the log density of each residual, up to a constant."""
        u = residuals / self.scale
        return 0.5 * (self.freedom + 1) * np.log1p(u * u / self.freedom)

    def weight(self, residuals: np.ndarray) -> np.ndarray:
        """Weight of each residual's square in the reweighted least squares."""
        u = residuals / self.scale
        return (self.freedom + 1) / (self.freedom + u * u) / self.scale**2


@dataclasses.dataclass(frozen=True)
class Solution:
    """The deviations, the curvature (Hessian) there, and how it was found."""

    z: np.ndarray
    curvature: np.ndarray
    objective: float
    steps: int


def solve(
    residuals: Residuals, linearised: Linearised, weights: np.ndarray, loss: Loss, start: np.ndarray,
    steps: int = 60, tolerance: float = 1e-7,
) -> Solution:  # fmt: skip
    """The minimum from `start`."""

    def objective(z: np.ndarray, r: np.ndarray) -> float:
        return float(weights @ loss.value(r) + 0.5 * z @ z)

    z, damping, identity, taken = start.copy(), 1e-2, np.eye(len(start)), 0
    r, jacobian = linearised(z)
    now = objective(z, r)
    curvature = _curvature(jacobian, r, weights, loss)
    while taken < steps:
        taken += 1
        gradient = jacobian.T @ (weights * loss.weight(r) * r) + z
        while True:
            move = -np.linalg.solve(curvature + damping * identity, gradient)
            tried = objective(z + move, residuals(z + move))
            if tried < now or damping > 1e6:
                break
            damping = 4.0 * damping
        if not tried < now:
            break
        done, z, damping = now - tried < tolerance * (1.0 + now), z + move, 0.3 * damping
        r, jacobian = linearised(z)
        now, curvature = tried, _curvature(jacobian, r, weights, loss)
        if done:
            break
    return Solution(z, curvature, now, taken)


def _curvature(jacobian: np.ndarray, r: np.ndarray, weights: np.ndarray, loss: Loss) -> np.ndarray:
    """Gauss-Newton approximation of the Hessian, the prior's identity included."""
    scaled = jacobian * (weights * loss.weight(r))[:, None]
    return scaled.T @ jacobian + np.eye(jacobian.shape[1])
