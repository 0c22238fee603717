"""The question of a cluster: jobs within limits, what is best, and what may be bought and planned."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel import Scalar, as_floats, total
from costmodel.formulas import Curves, Hardware, capital_usd, hardware_of, meter_w, spare_share
from costmodel.inputs import Cluster
from optimize.question.objective import Limits, Objective
from optimize.question.quantities import Job, Quantities
from optimize.question.rates import RATES, Money, money

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

Residual = Callable[[Quantities], Scalar]
"""A generalized posynomial that must be at most 1."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Jobs, one after another on one cluster: which hardware of the template's structure is best, and which plans.

    Sizes of tiers, latencies and the stack are the template's. `bounds` replace the technology limits by variable.
    `equal` holds products of powers of variables that have a value, such as one stack of HBM for each so many bytes/s:
    `({"hbm_bytes_per_s": 1.0, "hbm_bytes": -1.0}, 39.2)`. A design (`design_problem`) reads neither these nor
    `residuals` nor `free`; hardware for plans that are given (`solve_hardware`) does not read `fixed`.
    """

    jobs: tuple[Job, ...]
    template: Cluster
    curves: Curves
    objective: Objective = Objective.time
    limits: Limits = dataclasses.field(default_factory=Limits)
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `Plan` that are not searched
    free: tuple[str, ...] = FREE
    bounds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    equal: tuple[tuple[Mapping[str, float], float], ...] = ()
    residuals: Mapping[str, Residual] = dataclasses.field(default_factory=dict)

    @property
    def job(self) -> Job:
        """The first job, and mostly the only one."""
        return self.jobs[0]

    @property
    def fill(self) -> bool:
        """Whether the objective pays for nothing, so that more hardware is never worse but for a limit of CO2."""
        return not self.objective.priced

    @property
    def spends_all(self) -> bool:
        """Whether rates are worth moving up onto the limits of money and power."""
        return self.fill and self.limits.carbon_g is None

    @property
    def rationed(self) -> bool:
        """Whether hardware that the objective does not pay for is held down by a limit of CO2."""
        return self.fill and not self.spends_all

    @property
    def log_scale(self) -> float:
        """Logarithm of the objective over the sum of weighted seconds and what multiplies it: a step is their mean."""
        if self.objective is not Objective.step:
            return 0.0
        return -float(np.log(sum(job.weight * job.steps for job in self.jobs)))

    def steps_on(self, job: Job, accelerators: Scalar) -> Scalar:
        """What a job's seconds of a step are multiplied with: no failures where a step alone is asked for."""
        alone = self.objective is Objective.step
        return job.steps if alone else job.steps_on(accelerators, self.template.prices)

    @functools.cached_property
    def machine(self) -> Cluster:
        """The template as floats, without prices: what the cost model reads."""
        return dataclasses.replace(as_floats(self.template), prices=None)

    @property
    def domain(self) -> int:
        """Accelerators of one innermost domain."""
        return int(self.template.tiers[0].usable_size)

    def range_of(self, name: str) -> tuple[float, float]:
        """The smallest and the largest value offered of one variable."""
        if name in self.bounds:
            return self.bounds[name]
        now = float(getattr(hardware_of(self.template), name))
        return now / SHRINK, now * GROWTH[name]

    @functools.cached_property
    def rate_ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the most of the rates, in the order of `RATES`."""
        low, high = zip(*(self.range_of(name) for name in RATES), strict=True)
        return np.array(low), np.array(high)

    @functools.cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the most of the rates, in logarithms."""
        low, high = self.rate_ends
        return np.log(low), np.log(high)

    @property
    def most_hbm_bytes(self) -> float:
        """The largest memory of one accelerator that is offered."""
        return self.range_of("hbm_bytes")[1]

    @functools.cached_property
    def loads(self) -> tuple[float, float, float, float] | None:
        """What busy units draw (`Prices.loads`), where the objective or a limit reads it."""
        prices, limits = self.template.prices, self.limits
        paid = self.objective.priced or limits.rent or limits.carbon_g is not None
        return as_floats(prices.base).loads if paid and prices is not None else None

    @functools.cached_property
    def money(self) -> Money:
        """What rates cost and draw, and what that is worth."""
        return money(self.template, self.curves, self.objective)

    @functools.cached_property
    def carbon(self) -> Money | None:
        """The same where CO2 is what is paid with; None where it is not limited."""
        return None if self.limits.carbon_g is None else money(self.template, self.curves, Objective.carbon)

    @property
    def log_carbon_g(self) -> float:
        """Logarithm of the CO2 that is allowed for the seconds that the objective counts: all, or those of a step."""
        assert self.limits.carbon_g is not None
        return float(np.log(self.limits.carbon_g)) + self.log_scale

    def hardware(self, rates: np.ndarray, hbm_bytes: Scalar, accelerators: Scalar) -> Hardware:
        """The template's hardware with rates along the last axis."""
        named = dict(zip(RATES, np.moveaxis(np.asarray(rates, float), -1, 0), strict=True))
        own = dataclasses.replace(hardware_of(self.machine), **named)
        return dataclasses.replace(own, hbm_bytes=hbm_bytes, accelerators=accelerators)

    def quantities(
        self,
        hardware: Hardware,
        step_s: tuple[Scalar, ...],
        idle: Scalar = 0.0,
        drawn_s: tuple[Scalar, ...] | None = None,
    ) -> Quantities:
        """What objectives and limits read, by the curves.

        `hardware.accelerators` are those bought but for spares, `idle` of them do not train; `step_s` is by job, and
        so is `drawn_s` (`costmodel.formulas.timed`; None: they draw what is usual).
        """
        training, prices = hardware.accelerators - idle, self.template.prices
        spares = 0.0 if prices is None else training * spare_share(prices.base)
        bought, idle = dataclasses.replace(hardware, accelerators=hardware.accelerators + spares), idle + spares
        steps = [job.weight * self.steps_on(job, training) for job in self.jobs]
        train_s = total(times * seconds for times, seconds in zip(steps, step_s, strict=True))
        usual_w, bought_usd = meter_w(bought, self.curves, idle), capital_usd(bought, self.curves)
        watts = usual_w
        if drawn_s is not None:
            load = total(times * seconds for times, seconds in zip(steps, drawn_s, strict=True)) / train_s
            watts = meter_w(bought, self.curves, idle, load)
        usd_per_s, carbon_g_per_j = 0.0, 0.0
        if prices is not None:
            carbon_g_per_j = prices.base.carbon_g_per_j
            written_off = bought_usd / prices.base.service_life_s
            usd_per_s = written_off + watts * prices.base.electricity_usd_per_j
        return Quantities(
            train_s=train_s,
            usd_per_s=usd_per_s,
            meter_w=watts,
            capital_usd=bought_usd,
            accelerators=hardware.accelerators,
            usual_w=usual_w,
            carbon_g_per_j=carbon_g_per_j,
            spares=spares,
            hardware=hardware,
            step_s=step_s,
        )
