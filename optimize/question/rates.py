r"""The question as the rates of the hardware see it: what they cost and draw, what limits leave them, how plans fall.

Four rates of one accelerator, in natural logarithms $y$. The dollars and the watts of one accelerator are sums of power
laws of one rate each, made once from the curves; a plan's seconds $T$ are known by their tangents, and so are those at
the usual power that take as much energy, $L$ (`costmodel.formulas.timed`). An objective with a price is

$$V = K_T\,T + K_L\,L \ge \prod_i \Big(\frac{K_i Q_i}{p_i}\Big)^{p_i},\quad p_T + p_L = 1$$

with $K_L$ for the watts of servers and $K_T$ for purchase and network; equal where $p$ are the shares of $V$. The
greater $K$ (of energy $K_L$, of money $K_T$) stays as it is, the other has a tangent like the seconds (`Money.paid`).
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodel import Scalar
from costmodel.formulas import Curves, PowerLaw, hardware_of, spare_share, with_hardware
from costmodel.inputs import Cluster
from optimize.question.objective import Limits, Objective

RATES = ("flop_per_s", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")


def at_rates(cluster: Cluster, rates: Iterable[Scalar]) -> Cluster:
    """The cluster with other rates, in the order of `RATES`: numbers, arrays or dual numbers; without its prices."""
    return with_hardware(cluster, dataclasses.replace(hardware_of(cluster), **dict(zip(RATES, rates, strict=True))))


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

    def keep(self, chosen: Any) -> "Left":
        """Those of the chosen plans."""
        return Left(*(column[chosen] for column in self))


class Tangents(NamedTuple):
    """Plans, each at hardware of its own: logarithm of the seconds, its slopes, where; and bytes of HBM.

    After `Money.paid` the value is of the whole objective, less `share` times the logarithm of `Money.price`; the last
    two are of the seconds.
    """

    log_value: np.ndarray
    slopes: np.ndarray  # by the logarithms of the rates
    y: np.ndarray
    peak_bytes: np.ndarray
    least_bytes: np.ndarray  # with everything recomputed, if that is less
    log_drawn: np.ndarray | None = None  # of `L`, where an objective reads it
    drawn_slopes: np.ndarray | None = None
    share: np.ndarray | float = 1.0
    log_s: np.ndarray | None = None
    s_slopes: np.ndarray | None = None

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Tangents":
        """The same with every column changed."""
        columns: Any = [change(column) if isinstance(column, np.ndarray) else column for column in self]
        return Tangents(*columns)

    def keep(self, chosen: np.ndarray) -> "Tangents":
        """Those of the chosen plans."""
        return self.each(lambda column: column[chosen])


@dataclasses.dataclass(frozen=True)
class Money:
    """Dollars and watts of one accelerator by its rates and its HBM, and what a second of it is worth.

    `per_usd`, `per_watt` and `aside` are of the objective, for each dollar of the purchase and each watt of what a rate
    needs; zero where more hardware is never worse. `aside` is what the tangent takes up.
    """

    usd: PowerSum
    watt: PowerSum
    hbm_usd: float  # of one byte, exponent below
    hbm_exponent: float
    other_usd: float  # of the template's second memory
    per_usd: float
    per_watt: np.ndarray
    aside: np.ndarray
    of_drawn: bool  # whether the price is one of `L`, and what is aside of `T`
    least_load: float  # of `L` for a second of products alone

    def hbm(self, hbm_bytes: Any) -> Any:
        """Dollars of one accelerator besides its rates: HBM bytes, and a second memory of the template's size."""
        return self.hbm_usd * hbm_bytes**self.hbm_exponent + self.other_usd

    @property
    def priced(self) -> bool:
        """Whether the objective pays for hardware."""
        return bool(self.per_usd or self.per_watt.any())

    def price(self, y: np.ndarray, have: Left) -> np.ndarray:
        """What multiplies the seconds (of one kind), for one accelerator: dollars a second, watts, or 1."""
        if not self.priced:
            return np.ones(y.shape[:-1])
        watts = (self.per_watt * self.watt.terms(y)).sum(-1)
        return self.per_usd * self.usd(y) + watts + self.per_usd * have.hbm_usd

    def seconds(self, y: np.ndarray, have: Left) -> tuple[np.ndarray, np.ndarray]:
        """What a second of a step is worth, $K_T$, and one of $L$, for one accelerator."""
        price, aside = self.price(y, have), (self.aside * self.watt.terms(y)).sum(-1)
        return (aside, price) if self.of_drawn else (price, aside)

    def least(self, y: np.ndarray, have: Left) -> np.ndarray:
        """What a second of products alone is worth at least."""
        second, drawn = self.seconds(y, have)
        return second + self.least_load * drawn

    def paid(self, at: Tangents, have: Left) -> Tangents:
        """Tangents of the objective from those of `T` and `L`."""
        if not self.priced or at.log_drawn is None or at.drawn_slopes is None:
            return at
        times, drawn = (at.log_value, at.slopes), (at.log_drawn, at.drawn_slopes)
        (log_s, slopes), (beside_s, beside) = (drawn, times) if self.of_drawn else (times, drawn)
        laws = self.aside * self.watt.terms(at.y)
        aside = np.maximum(laws.sum(-1), 1e-300)
        main, rest = np.log(self.price(at.y, have)) + log_s, np.log(aside) + beside_s
        share = 1.0 / (1.0 + np.exp(rest - main))
        left, moved = 1.0 - share, beside + self.watt.exponents * laws / aside[..., None]
        mixed = share * (log_s - np.log(share)) + left * (rest - np.log(np.maximum(left, 1e-300)))
        slopes = share[..., None] * slopes + left[..., None] * moved
        return at._replace(log_value=mixed, slopes=slopes, share=share, log_s=times[0], s_slopes=times[1])

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
    spares = spare_share(prices)  # bought and powered, idle
    idle, whole = spares * c.idle_draw / c.training_draw, 1.0 + spares
    busy_w = c.facility_factor * c.training_draw * c.server_draw_factor * (1.0 + idle)
    flop, hbm, up, out = c.flop_usd, c.hbm_rate_usd, c.scale_up_usd, c.scale_out_usd
    usd = ((whole * c.server_factor, flop), (whole * c.server_factor, hbm), (whole, up), (whole, out))
    watt = ((busy_w, c.flop_w), (busy_w, c.hbm_rate_w), (0.0, up), (whole * c.facility_factor, c.scale_out_w))
    memory, second = c.hbm_usd, float(template.accelerator.second_memory_bytes)
    per_usd = 1.0 / prices.service_life_s if objective.usd_power else 0.0
    per_joule = prices.electricity_usd_per_j if objective.usd_power else 1.0
    per_joule = prices.carbon_g_per_j if objective.emits else per_joule
    of_drawn = np.array([name != "scale_out_bytes_per_s" for name in RATES]) / np.asarray(1.0 + idle)[..., None]  # busy
    shares = (1.0 - of_drawn, of_drawn) if objective.usd_power else (of_drawn, 1.0 - of_drawn)
    main, rest = (float(objective.priced) * per_joule * share for share in shares)  # money is mostly the purchase
    return Money(
        usd=PowerSum(_last([_amount(*law) for law in usd]), _last([law.exponent for _, law in usd])),
        watt=PowerSum(_last([_amount(*law) for law in watt]), _last([law.exponent for _, law in watt])),
        hbm_usd=_amount(whole * c.server_factor, memory),
        hbm_exponent=memory.exponent,
        other_usd=whole * c.second_memory_usd(second) if second > 0 else 0.0,
        per_usd=per_usd,
        per_watt=main,
        aside=rest,
        of_drawn=bool(objective.watt_power),
        least_load=float(prices.idle_load + prices.compute_load),
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
