r"""The probability that one plan is faster than another: what both share cancels.

The difference of the logarithms of two steps has the variance $|(J_1 - J_2) L|^2$ of the constants, whose posterior
has the covariance $L L^T$; constants on which both steps depend alike drop out. What a formula misses beside them, a
scatter $s$ within one software, is common to both as far as their time goes to the same terms: $2 s^2 (1 - c)$ with
$c$ the cosine between their exposed seconds by term (an assumption; equal plans have no difference at all).
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.evaluators import SUBGRADIENT, Dual, evaluate, prepare
from costmodel.formulas import Breakdown, cost
from costmodel.inputs import Cluster, Plan, Workload, is_expert
from costmodel.measured.fit import EXPERTS, LEVELS, PARAMETERS, SHARED, Fitted, shipped
from costmodel.measured.posterior import scatter_of
from costmodel.specs import constant_group

Job = tuple[Workload, Cluster, Plan]
Key = tuple[str, str, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Comparison:
    """Log of the second step over the first, its standard deviation, and the probability that the first is faster.

    `whole_log_sd` and `probability_apart` are those where nothing cancels: all of the model's error in either step.
    """

    log_ratio: float
    log_sd: float
    probability_faster: float
    whole_log_sd: float
    probability_apart: float


def compare(first: Job, second: Job, fitted: Fitted | None = None) -> Comparison:
    """Two plans, or one plan on two clusters. Constants are those of each cluster's stack."""
    fitted = fitted or shipped()
    slopes = [_slopes(job) for job in (first, second)]
    apart = {key: slopes[0].get(key, 0.0) - slopes[1].get(key, 0.0) for key in {**slopes[0], **slopes[1]}}
    steps = [evaluate(*job) for job in (first, second)]
    scatter = fitted.scatter["within"] * math.sqrt(2.0 * (1.0 - _likeness(*steps)))
    log_ratio = math.log(steps[1].step_s / steps[0].step_s)
    log_sd = math.hypot(_constants_sd(apart, fitted), scatter)
    probability = 0.5 if log_sd < 1e-12 and log_ratio == 0 else _normal(log_ratio / max(log_sd, 1e-12))
    own = [_whole_sd(job, slope, fitted) for job, slope in zip((first, second), slopes, strict=True)]
    whole = max(log_sd, math.hypot(*own))
    apart = _normal(log_ratio / max(whole, 1e-12))
    return Comparison(
        log_ratio=log_ratio,
        log_sd=log_sd,
        probability_faster=probability,
        whole_log_sd=whole,
        probability_apart=apart,
    )


def step_log_sd(job: Job, fitted: Fitted | None = None) -> float:
    r"""Standard deviation of the logarithm of a plan's step: $\sqrt{|J L|^2 + s^2}$ (posterior.py).

    The constants' posterior, and the scatter between releases and sites of its software. Source: rows left out of the
    fit (`fit.scatter`). Hardware and software of no calibration row are as far off as the priors say.
    """
    fitted = fitted or shipped()
    return _whole_sd(job, _slopes(job), fitted)


def _whole_sd(job: Job, slopes: Mapping[Key, float], fitted: Fitted) -> float:
    workload, cluster, _ = job
    experts = any(is_expert(op) for block in workload.blocks for op in block.ops)
    member = f"{cluster.stack.software}{EXPERTS if experts else ''}"
    family = constant_group(cluster.accelerator.name, cluster.stack.software)["family"]
    return math.hypot(_constants_sd(slopes, fitted), scatter_of(fitted.scatter, member, family))


def _slopes(job: Job) -> dict[Key, float]:
    """Derivative of the log step by every deviation that it depends on, measured or not."""
    workload, cluster, point = prepare(*job)
    group, leaves = constant_group(cluster.accelerator.name, cluster.stack.software), {}
    for p in PARAMETERS:
        value = getattr(cluster.stack, p.name, None)
        if value is not None and (not p.share or value < 1.0):
            leaves[p.name] = Dual(np.asarray(value, float), {p.name: np.asarray(p.slope(value), float)})
    stack = dataclasses.replace(cluster.stack, **leaves)
    with np.errstate(all="ignore"):
        step_s = cost(workload, dataclasses.replace(cluster, stack=stack), point, SUBGRADIENT).step_s
    slopes: dict[Key, float] = {}
    for p in PARAMETERS:
        slope = float(step_s.parts.get(p.name, 0.0) / step_s.value)
        slopes[p.name, SHARED, ""] = slope * p.shared
        slopes |= {(p.name, level, group[level]): slope * getattr(p, level) for level in LEVELS}
    return {key: slope for key, slope in slopes.items() if slope}


def _constants_sd(slopes: Mapping[Key, float], fitted: Fitted) -> float:
    """Standard deviation by the posterior; deviations that were never measured have their prior's, one."""
    known = np.array([slopes.get(key, 0.0) for key in fitted.keys])
    others = sum(slope**2 for key, slope in slopes.items() if key not in set(fitted.keys))
    return float(np.sqrt(((known @ fitted.factor) ** 2).sum() + others))


def _likeness(first: Breakdown, second: Breakdown) -> float:
    """Cosine between the exposed seconds of two steps, term by term."""
    seconds: list[dict[str, Any]] = [{t.name: float(t.exposed_s) for t in each.terms} for each in (first, second)]
    names = sorted({**seconds[0], **seconds[1]})
    a, b = (np.array([each.get(name, 0.0) for name in names]) for each in seconds)
    return min(1.0, float(a @ b / math.sqrt((a @ a) * (b @ b))))


def _normal(x: float) -> float:
    """The cumulative standard normal distribution."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))
