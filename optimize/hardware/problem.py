"""The hardware problem in words of its user: what may be chosen within which limits, and what is best."""

import dataclasses
from collections.abc import Callable, Mapping

from costmodel import Scalar
from costmodel.formulas import Curves, Hardware, capital_usd, hardware_of, meter_w
from costmodel.inputs import Cluster, PlanPoint
from optimize.question import Job, Limits, Objective, Quantities

FREE = ("flop_per_s", "hbm_bytes", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
"""What is chosen unless a problem says otherwise. A second memory may be added by name."""

GROWTH = {
    "flop_per_s": 2.28,
    "hbm_bytes": 1.41,
    "hbm_bytes_per_s": 1.87,
    "scale_up_bytes_per_s": 1.67,
    "scale_out_bytes_per_s": 1.67,
    "second_memory_bytes": 4.0,
    "second_memory_bytes_per_s": 1.67,
}
"""Technology limits: what the next generation, two years after the template, may have at most, in units of the
template's. V100 (2017) to B200 (2024) per two years: 2.28 of FLOP/s, 1.87 of HBM bandwidth, 1.67 of scale-up bandwidth
(taken for scale-out, too); memory capacity doubles in 4.0 years (Epoch AI 2023). More DDR is a matter of money."""

SHRINK = 16.0
"""How many times less than the template's is still offered: an assumption, parts of long ago had less."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Equal:
    """The product of powers of variables has a value, such as one stack of HBM for each so many bytes/s."""

    powers: Mapping[str, float]
    value: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Design:
    """What a user's residual may read."""

    hardware: Hardware
    quantities: Quantities
    step_s: tuple[Scalar, ...]  # of each job


Residual = Callable[[Design], Scalar]
"""A generalized posynomial that must be at most 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardwareProblem:
    """What hardware of the template's structure would be best, at fixed plans.

    Sizes of tiers, latencies and the stack are the template's. `bounds` replace the technology limits by variable.
    """

    jobs: tuple[Job, ...]
    template: Cluster
    curves: Curves
    objective: Objective = Objective.time
    limits: Limits = dataclasses.field(default_factory=Limits)
    free: tuple[str, ...] = FREE
    bounds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    equal: tuple[Equal, ...] = ()
    residuals: Mapping[str, Residual] = dataclasses.field(default_factory=dict)

    def range_of(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value offered of one variable."""
        if name in self.bounds:
            return self.bounds[name]
        now = float(getattr(hardware_of(self.template), name))
        return now / SHRINK, now * GROWTH[name]


def design_quantities(problem: HardwareProblem, hardware: Hardware, train_s: Scalar, idle: Scalar = 0.0) -> Quantities:
    """What objectives and limits read. `hardware.accelerators` are those bought, `idle` of them do not train."""
    watts, bought_usd = meter_w(hardware, problem.curves, idle), capital_usd(hardware, problem.curves)
    usd_per_s: Scalar = 0.0
    if problem.template.prices is not None:
        prices = problem.template.prices.base
        written_off = bought_usd * (1.0 / (prices.service_life_s * prices.busy_share))
        usd_per_s = written_off + watts * prices.electricity_usd_per_j
    return Quantities(
        train_s=train_s,
        usd_per_s=usd_per_s,
        meter_w=watts,
        capital_usd=bought_usd,
        accelerators=hardware.accelerators,
    )


def bought(point: PlanPoint, template: Cluster) -> Scalar:
    """Accelerators that a plan pays for: all of every innermost domain that it touches."""
    return point.accelerators * template.tiers[0].size / point.domain
