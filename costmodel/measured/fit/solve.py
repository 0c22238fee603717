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

    z, damping, taken = start.copy(), 1e-2, 0
    r, jacobian = linearised(z)
    now = objective(z, r)
    while taken < steps:
        taken += 1
        row_weights = weights * loss.weight(r)
        gradient, solved = jacobian.T @ (row_weights * r) + z, _damped(jacobian, row_weights)
        while True:
            move = -solved(gradient, damping)
            tried = objective(z + move, residuals(z + move))
            if tried < now or damping > 1e6:
                break
            damping = 4.0 * damping
        if not tried < now:
            break
        done, z, damping = now - tried < tolerance * (1.0 + now), z + move, 0.3 * damping
        r, jacobian = linearised(z)
        now = tried
        if done:
            break
    return Solution(z, _curvature(jacobian, weights * loss.weight(r)), now, taken)


def _curvature(jacobian: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
    """Gauss-Newton approximation of the Hessian, the prior's identity included."""
    return (jacobian * row_weights[:, None]).T @ jacobian + np.eye(jacobian.shape[1])


def _damped(jacobian: np.ndarray, row_weights: np.ndarray) -> Callable[[np.ndarray, float], np.ndarray]:
    """What solves the damped curvature for a gradient: among the unknowns, or among the rows where those are fewer.

    With A = sqrt(W) J and a = 1 + damping: (a I + A'A)^-1 g = (g - A' (a I + A A')^-1 A g) / a (Woodbury).
    """
    scaled = (jacobian * np.sqrt(row_weights)[:, None])[row_weights > 0]
    if len(scaled) >= scaled.shape[1]:
        curvature, identity = scaled.T @ scaled, np.eye(scaled.shape[1])
        return lambda gradient, damping: np.linalg.solve(curvature + (1.0 + damping) * identity, gradient)
    square, identity = scaled @ scaled.T, np.eye(len(scaled))

    def solved(gradient: np.ndarray, damping: float) -> np.ndarray:
        of_rows = np.linalg.solve(square + (1.0 + damping) * identity, scaled @ gradient)
        return (gradient - scaled.T @ of_rows) / (1.0 + damping)

    return solved
