r"""The question as the rates of the hardware see it: what they cost and draw, what limits leave them, how plans fall.

Four rates of one accelerator, in natural logarithms $y$. The dollars and the watts of one accelerator are sums of power
laws of one rate each, made once from the curves; a plan's seconds are known by their tangents.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodel.formulas import Curves, PowerLaw
from costmodel.inputs import Cluster
from optimize.question.objective import Limits, Objective

RATES = ("flop_per_s", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")


class PowerSum(NamedTuple):
    """A sum of power laws of one rate each: `amounts * exp(exponents * y)`, along the last axis."""

    amounts: np.ndarray
    exponents: np.ndarray

    def terms(self, y: np.ndarray) -> np.ndarray:
        """What each rate adds."""
        return self.amounts * np.exp(self.exponents * y)

    def __call__(self, y: np.ndarray) -> np.ndarray:
        return self.terms(y).sum(-1)


class Left(NamedTuple):
    """What one accelerator may cost and draw for its rates, and what it costs besides. Infinite: no limit."""

    usd: np.ndarray
    watt: np.ndarray
    hbm_usd: np.ndarray


class Tangents(NamedTuple):
    """Plans, each at hardware of its own: logarithm of the seconds, its slopes, where; and bytes of HBM."""

    log_value: np.ndarray
    slopes: np.ndarray  # by the logarithms of the rates
    y: np.ndarray
    peak_bytes: np.ndarray
    least_bytes: np.ndarray  # with everything recomputed, if that is less


@dataclasses.dataclass(frozen=True)
class Money:
    """Dollars and watts of one accelerator by its rates and its HBM, and what a second of it is worth.

    `per_usd` and `per_watt` are of the objective, for each dollar of the purchase and each watt; zero where more
    hardware is never worse.
    """

    usd: PowerSum
    watt: PowerSum
    hbm_usd: float  # of one byte, exponent below
    hbm_exponent: float
    other_usd: float  # of the template's second memory
    per_usd: float
    per_watt: float

    def hbm(self, hbm_bytes: Any) -> Any:
        """Dollars of one accelerator besides its rates: HBM bytes, and a second memory of the template's size."""
        return self.hbm_usd * hbm_bytes**self.hbm_exponent + self.other_usd

    @property
    def priced(self) -> bool:
        """Whether the objective pays for hardware."""
        return bool(self.per_usd or self.per_watt)

    def price(self, y: np.ndarray, have: Left) -> np.ndarray:
        """What multiplies the seconds, for one accelerator: dollars a second, watts, or 1."""
        if not self.priced:
            return np.ones(y.shape[:-1])
        return self.per_usd * self.usd(y) + self.per_watt * self.watt(y) + self.per_usd * have.hbm_usd

    def left(self, limits: Limits, accelerators: np.ndarray, hbm_bytes: np.ndarray) -> Left:
        """What limits leave over so many accelerators with so many bytes."""
        hbm_usd = self.hbm(np.asarray(hbm_bytes, float))
        capital = limits.budget_usd if limits.budget_usd is not None and not limits.rent else np.inf
        watt = limits.power_w if limits.power_w is not None else np.inf
        return Left(capital / accelerators - hbm_usd, watt / accelerators + 0.0 * hbm_usd, hbm_usd)


def money(template: Cluster, curves: Curves, objective: Objective) -> Money:
    """The laws of the rates of a template without idle accelerators, whose prices are known."""
    assert template.prices is not None
    c, prices = curves, template.prices.base
    busy_w = c.facility_factor * c.training_draw * c.server_draw_factor
    flop, hbm, up, out = c.flop_usd, c.hbm_rate_usd, c.scale_up_usd, c.scale_out_usd
    usd = ((c.server_factor, flop), (c.server_factor, hbm), (1.0, up), (1.0, out))
    watt = ((busy_w, c.flop_w), (busy_w, c.hbm_rate_w), (0.0, up), (c.facility_factor, c.scale_out_w))
    memory, second = c.hbm_usd, float(template.accelerator.second_memory_bytes)
    per_usd = 1.0 / prices.service_life_s if objective.usd_power else 0.0
    per_joule = prices.electricity_usd_per_j if objective.usd_power else 1.0
    per_joule = prices.carbon_g_per_j if objective.emits else per_joule
    return Money(
        usd=PowerSum(_last([_amount(*law) for law in usd]), _last([law.exponent for _, law in usd])),
        watt=PowerSum(_last([_amount(*law) for law in watt]), _last([law.exponent for _, law in watt])),
        hbm_usd=_amount(c.server_factor, memory),
        hbm_exponent=memory.exponent,
        other_usd=c.second_memory_usd(second) if second > 0 else 0.0,
        per_usd=per_usd,
        per_watt=per_joule if objective.priced else 0.0,
    )


def _last(values: list[Any]) -> np.ndarray:
    """Along the last axis; curves may be arrays."""
    return np.stack(np.broadcast_arrays(*values), -1)


def _amount(scale: Any, law: PowerLaw) -> Any:
    """Of `scale` times a power law, for a quantity of one."""
    return scale * law.amount / law.reference**law.exponent


def as_table(rates: np.ndarray) -> Mapping[str, Any]:
    """Rates by name."""
    return {name: float(value) for name, value in zip(RATES, rates, strict=True)}
