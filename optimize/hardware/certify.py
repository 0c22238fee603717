r"""Lower bounds that are never optimistic, from cheap to tight: the ladder of DESIGN section 6.

1. `corner`: the times of the best hardware that the limits allow by themselves, with the money of the cheapest.
2. `tangent`: in logarithms the objective lies above its tangent, $f_0 + g \cdot z$. Money and watts are sums of powers
   of one variable each, $\sum_i c_i e^{a_i z_i} + c_0 \le 1$. So the minimum of the first under the second over a box
   is separable: $\max_\lambda f_0 + \sum_i \min_{z_i} (g_i z_i + \lambda c_i e^{a_i z_i}) + \lambda (c_0 - 1)$, each
   minimum in closed form, the best $\lambda$ by bisection. Its minimiser is where the next tangent is taken.
3. cutting planes (`convex.py`), for what is left.

Each is valid wherever tangents are taken and whatever the multipliers, and is lowered by what float64 may round.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodel.inputs import PlanPoint
from optimize.hardware.cuts import ROUNDING
from optimize.hardware.model import HardwareModel
from optimize.hardware.problem import HardwareProblem

_HALVINGS = 40
STEPS = 3
"""Tangents, each half the way from the last point to where its bound was attained."""


class PowerSum(NamedTuple):
    """A limit as `sum(amounts * exp(exponents * z)) + constant <= 1`, with `z` the logarithms above the box's least."""

    amounts: np.ndarray  # variables x plans
    exponents: np.ndarray
    constant: np.ndarray  # plans


def lower_bounds(problem: HardwareProblem, *plans: PlanPoint, steps: int = STEPS) -> np.ndarray:
    """What no hardware offered is below, for each plan: of the minimised quantity; infinite where nothing is feasible.

    `plans` are one batch of points for each job. `steps` 0: corners only, a tenth of the time.
    """
    return np.exp(log_bounds(HardwareModel(problem, plans), steps))


def log_bounds(model: HardwareModel, steps: int = STEPS) -> np.ndarray:
    """The same in logarithms."""
    model = affordable(model)
    bounds = corner(model)
    point = onto_limits(model, model.high) if model.timeless and model.limits else (model.low + model.high) / 2
    limits = power_sums(model) if steps else []
    for _ in range(steps):
        found, least = tangent(model, point, limits)
        bounds, point = np.maximum(bounds, found), (point + least) / 2
    return bounds


def affordable(model: HardwareModel) -> HardwareModel:
    """The model in smaller boxes: no variable above what the limits allow with all others at their least.

    Only where limits are of money and power, which rise in all variables; otherwise as it is.
    """
    if not model.timeless or not model.limits:
        return model
    high = model.high.copy()
    for i in range(high.shape[1]):
        low, far = model.low[:, i].copy(), high[:, i].copy()
        point = model.low.copy()
        for _ in range(_HALVINGS):
            point[:, i] = (low + far) / 2
            met = (model.residual_logs(point.T) <= 0).all(axis=0)
            low, far = np.where(met, point[:, i], low), np.where(met, far, point[:, i])
        point[:, i] = high[:, i]
        high[:, i] = np.where((model.residual_logs(point.T) <= 0).all(axis=0), high[:, i], far + ROUNDING)
    return model.within(model.low, high)


def corner(model: HardwareModel) -> np.ndarray:
    """Objective at the box's best corner; infinite where the box is empty, or its cheapest corner misses a limit."""
    bounds = model.corner_log(model.low.T, model.high.T) - ROUNDING
    empty = ~model.offered
    if model.timeless and model.limits:
        empty = empty | (model.residual_logs(model.low.T) > ROUNDING).any(axis=0)
    return np.where(empty, np.inf, bounds)


def tangent(model: HardwareModel, at: np.ndarray, limits: Sequence[PowerSum]) -> tuple[np.ndarray, np.ndarray]:
    """The bound by the objective's tangents at these points (plans x variables), and where each is attained."""
    values, slopes = model.evaluate(at.T)
    width = np.maximum(model.high - model.low, 0.0).T
    offset = values[0] - (slopes[0] * (at - model.low).T).sum(axis=0)
    answers = [_dual(offset, slopes[0], limit, width) for limit in limits] or [_dual(offset, slopes[0], None, width)]
    best = np.argmax([bound for bound, _ in answers], axis=0)
    bounds = np.take_along_axis(np.stack([bound for bound, _ in answers]), best[None], axis=0)[0]
    points = np.take_along_axis(np.stack([point for _, point in answers]), best[None, None], axis=0)[0]
    return bounds, model.low + points.T


def power_sums(model: HardwareModel) -> list[PowerSum]:
    """The limits, read off their slopes at the cheapest corner and a unit above it: terms are powers of one variable.

    (The slope of `c e^{a z}`, `c a e^{a z}`, is e^a times as large one unit further.) None where they read times.
    """
    if not model.timeless:
        return []
    logs = np.stack([model.low.T, model.low.T + 1.0], axis=1)
    values, slopes = model.evaluate(logs)
    found = []
    for value, slope in zip(np.exp(values[1:]), slopes[1:], strict=True):
        steep = slope * value  # by the logarithm, of the limit itself
        exponents = np.log(np.where(steep[:, 0] > 0, steep[:, 1] / np.where(steep[:, 0] > 0, steep[:, 0], 1.0), np.e))
        amounts = steep[:, 0] / exponents
        found.append(PowerSum(amounts, exponents, value[0] - amounts.sum(axis=0)))
    return found


def _dual(
    offset: np.ndarray, slope: np.ndarray, limit: PowerSum | None, width: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The best bound over the multiplier of one limit, and its minimiser above the box's least."""
    none = np.zeros_like(offset)
    best, point = _lagrangian(offset, slope, limit, width, none)
    if limit is None:
        return best, point
    low, high = np.full_like(offset, -14.0), np.full_like(offset, 14.0)  # of the multiplier's logarithm
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        value, tried = _lagrangian(offset, slope, limit, width, np.exp(middle))
        spent = (limit.amounts * np.exp(limit.exponents * tried)).sum(axis=0) + limit.constant
        low, high = np.where(spent > 1, middle, low), np.where(spent > 1, high, middle)
        better = value > best
        best, point = np.where(better, value, best), np.where(better, tried, point)
    return best, point


def _lagrangian(
    offset: np.ndarray, slope: np.ndarray, limit: PowerSum | None, width: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Its minimum over the box, less rounding, and where."""
    if limit is None:
        point = np.where(slope < 0, width, 0.0)
        terms = [offset[None], slope * point]
    else:
        pull = weight * limit.amounts * limit.exponents
        free = np.log(np.maximum(-slope, 1e-300) / np.maximum(pull, 1e-300)) / limit.exponents
        point = np.clip(free, 0.0, width)
        grown = weight * limit.amounts * np.exp(limit.exponents * point)
        terms = [offset[None], slope * point, grown, (weight * (limit.constant - 1.0))[None]]
    all_terms = np.concatenate(terms)
    return all_terms.sum(axis=0) - ROUNDING * (1.0 + np.abs(all_terms).sum(axis=0)), point


def onto_limits(model: HardwareModel, point: np.ndarray) -> np.ndarray:
    """All variables by one factor, inside the box, so that the tightest limit is just met."""
    low, high = np.full(len(point), -30.0), np.full(len(point), 30.0)
    top = np.maximum(model.low, model.high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        met = (model.residual_logs(np.clip(point + middle[:, None], model.low, top).T) <= 0).all(axis=0)
        low, high = np.where(met, middle, low), np.where(met, high, middle)
    return np.clip(point + low[:, None], model.low, top)
