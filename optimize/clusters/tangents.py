r"""Lower bounds of one plan each over all hardware that the limits allow, from one gradient: thousands in one call.

At a fixed plan the logarithm of every objective is convex in $y$, the logarithms of the rates, so it lies above its
tangent. Money and watts left for the rates, after HBM, are sums of power laws of one rate each. The least value of the
tangent over both limits and the box is bounded by its Lagrangian dual, which is a sum of four problems in one rate:

$$\min_y\; F_0 + g \cdot (y - y_0) \;\ge\; \sum_k \min_{y_k} \big[ g_k (y_k - y_{0k}) + \lambda_1 a_k e^{\alpha_k y_k}
+ \lambda_2 w_k e^{\omega_k y_k} \big] - \lambda_1 - \lambda_2 + F_0$$

with both limits scaled to 1. Every $\lambda \ge 0$ gives a bound, and each inner minimum is bounded by the tangent at
the place where the iteration stopped: nothing here needs to have converged to be true.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from optimize.question import Limits, Objective, Space

ROUNDS = 16  # of the multipliers
_TINY = 1e-300


class Laws(NamedTuple):
    """Dollars and watts of one accelerator as sums of `amount * exp(exponent * y)`, y the logarithms of the rates."""

    usd: np.ndarray
    usd_exponent: np.ndarray
    watt: np.ndarray
    watt_exponent: np.ndarray

    def usd_of(self, y: np.ndarray) -> np.ndarray:
        """By rate, along the last axis."""
        return self.usd * np.exp(self.usd_exponent * y)

    def watt_of(self, y: np.ndarray) -> np.ndarray:
        return self.watt * np.exp(self.watt_exponent * y)


@dataclasses.dataclass(frozen=True)
class Money:
    """The laws of a space and what stands around them."""

    laws: Laws
    hbm_usd: float  # of one byte per accelerator, exponent below
    hbm_exponent: float
    usd_per_capital_s: float  # of a purchase: one over its busy life
    usd_per_joule: float

    other_usd: float  # of the template's second memory

    def hbm(self, hbm_bytes: Any) -> Any:
        """Dollars of one accelerator besides its rates: HBM bytes, and a second memory of the template's size."""
        return self.hbm_usd * hbm_bytes**self.hbm_exponent + self.other_usd


def money(space: Space, domain: float) -> Money:
    """Of each accelerator that is bought, where `domain` of every innermost domain train."""
    c, busy = space.curves, domain / space.template.tiers[0].size
    working = busy * c.training_draw + (1.0 - busy) * c.idle_draw
    busy_w = c.facility_factor * working * c.server_draw_factor
    flop, hbm, up, out = c.flop_usd, c.hbm_rate_usd, c.scale_up_usd, c.scale_out_usd
    usd_laws = ((c.server_factor, flop), (c.server_factor, hbm), (1.0, up), (1.0, out))
    watt_laws = ((busy_w, c.flop_w), (busy_w, c.hbm_rate_w), (0.0, up), (c.facility_factor, c.scale_out_w))
    columns = [
        np.array([scale * law.amount / law.reference**law.exponent for scale, law in usd_laws]),
        np.array([law.exponent for _, law in usd_laws]),
        np.array([scale * law.amount / law.reference**law.exponent for scale, law in watt_laws]),
        np.array([law.exponent for _, law in watt_laws]),
    ]
    memory, second = c.hbm_usd, float(space.template.accelerator.second_memory_bytes)
    return Money(
        laws=Laws(*columns),
        hbm_usd=c.server_factor * memory.amount / memory.reference**memory.exponent,
        hbm_exponent=memory.exponent,
        other_usd=float(c.second_memory_usd(second)) if second > 0 else 0.0,
        usd_per_capital_s=1.0 / (space.prices.service_life_s * space.prices.busy_share),
        usd_per_joule=space.prices.electricity_usd_per_j,
    )


class Left(NamedTuple):
    """What one accelerator may cost and draw for its rates, and what it costs besides. Infinite: no limit."""

    usd: np.ndarray
    watt: np.ndarray
    hbm_usd: np.ndarray


def left(priced: Money, limits: Limits, bought: np.ndarray, hbm_bytes: np.ndarray) -> Left:
    """Of limits over so many accelerators with so many bytes."""
    hbm_usd = priced.hbm(np.asarray(hbm_bytes, float))
    capital = limits.budget_usd if limits.budget_usd is not None and not limits.rent else np.inf
    watt = limits.power_w if limits.power_w is not None else np.inf
    return Left(capital / bought - hbm_usd, watt / bought + 0.0 * hbm_usd, hbm_usd)


class Tangents(NamedTuple):
    """Of the seconds, by plan: logarithm, derivatives by the logarithms of the rates, and where."""

    log_value: np.ndarray
    slopes: np.ndarray
    y: np.ndarray


class Rate(NamedTuple):
    """What multiplies the seconds, for one accelerator that is bought: `usd * dollars + watt * watts + fixed`.

    All zero where the objective is the seconds alone. Its logarithm is not replaced by a tangent: with
    $\\log K = \\min_u (K e^{-u} + u - 1)$ it is two more laws in the Lagrangian, jointly convex in rates and $u$.
    """

    usd: float
    watt: float
    fixed: np.ndarray
    active: bool

    def of(self, laws: Laws, y: np.ndarray) -> np.ndarray:
        if not self.active:
            return np.ones(y.shape[:-1])
        return self.usd * laws.usd_of(y).sum(-1) + self.watt * laws.watt_of(y).sum(-1) + self.fixed


def rate(objective: Objective, priced: Money, have: Left) -> Rate:
    """Dollars a second, watts, or nothing."""
    none = np.zeros(len(have.usd))
    if objective.usd_power:
        return Rate(priced.usd_per_capital_s, priced.usd_per_joule, priced.usd_per_capital_s * have.hbm_usd, True)
    return Rate(0.0, 1.0, none, True) if objective.watt_power else Rate(0.0, 0.0, none, False)


class Bound(NamedTuple):
    """The bound of each plan, where it is taken, and the multipliers: change of the logarithm for 1 % less of each."""

    log_value: np.ndarray
    y: np.ndarray
    usd_multiplier: np.ndarray
    watt_multiplier: np.ndarray


def dual_bound(space: Space, laws: Laws, have: Left, price: Rate, at: Tangents) -> Bound:
    """No hardware within the limits gives less, for each plan (infinite where there is none): value of one accelerator.

    (The number of accelerators, where the objective has a price, multiplies it: it is the caller's.)
    """
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    possible = (laws.usd_of(low).sum() <= have.usd) & (laws.watt_of(low).sum() <= have.watt)
    limits = [np.where(possible, limit, 1.0) for limit in (have.usd, have.watt)]
    search = (_priced_rounds if price.active else _plain_rounds)(laws, limits, price, at, (low, high))
    best = np.full(len(possible), -np.inf)
    where = np.broadcast_to(low, at.y.shape).copy()
    chosen = [np.zeros(len(best)), np.zeros(len(best))]
    for y, value, multipliers in search:
        better = value > best
        best = np.where(better, value, best)
        where[better] = y[better]
        chosen = [np.where(better, new, old) for new, old in zip(multipliers, chosen, strict=True)]
    return Bound(np.where(possible, at.log_value + best, np.inf), where, *chosen)


_Round = tuple[np.ndarray, np.ndarray, list[np.ndarray]]
_Ends = tuple[np.ndarray, np.ndarray]


def _plain_rounds(
    laws: Laws, limits: list[np.ndarray], price: Rate, at: Tangents, ends: _Ends, rounds: int = ROUNDS
) -> Iterator[_Round]:
    """Place, bound and multipliers; multipliers grow where their limit is missed."""
    assert not price.active
    start = np.maximum(-at.slopes, 1e-6).sum(-1)
    multipliers = [np.where(np.isfinite(limit), start, 0.0) for limit in limits]
    for _ in range(rounds):
        usd, watt = (m / limit for m, limit in zip(multipliers, limits, strict=True))
        y, value = _least(laws, at, usd, watt, *ends)
        yield y, value - multipliers[0] - multipliers[1], multipliers
        used = laws.usd_of(y).sum(-1) / limits[0], laws.watt_of(y).sum(-1) / limits[1]
        multipliers = [m * np.clip(part, 0.05, 20.0) ** 0.9 for m, part in zip(multipliers, used, strict=True)]


def _priced_rounds(
    laws: Laws, limits: list[np.ndarray], price: Rate, at: Tangents, ends: _Ends, outer: int = 5, inner: int = 7
) -> Iterator[_Round]:
    """The same with a price: for given multipliers, u is where its logarithm and the price's agree (Newton, bracketed).

    Multipliers begin at zero: a budget that is not worth spending has no price.
    """
    widest = [np.log(price.of(laws, np.broadcast_to(end, at.y.shape))) for end in ends]
    u = np.clip(np.log(price.of(laws, np.clip(at.y, *ends))), *widest)
    start, multipliers = np.maximum(-at.slopes, 1e-6).sum(-1), [np.zeros(len(u)), np.zeros(len(u))]
    y = at.y
    for _ in range(outer):
        bottom, top = (end.copy() for end in widest)
        for _ in range(inner):
            scale = np.exp(-u)
            first, second = (m / limit for m, limit in zip(multipliers, limits, strict=True))
            y, value = _least(laws, at, first + scale * price.usd, second + scale * price.watt, *ends)
            share = price.of(laws, y) * scale  # 1 where u is the logarithm of the price
            slack = np.minimum(np.minimum((1 - share) * (widest[0] - u), (1 - share) * (widest[1] - u)), 0.0)
            yield y, value - multipliers[0] - multipliers[1] + scale * price.fixed + u - 1.0 + slack, multipliers
            bottom, top = np.where(share > 1, u, bottom), np.where(share > 1, top, u)
            moves = (y > ends[0] + 1e-9) & (y < ends[1] - 1e-9)
            parts = price.usd * laws.usd_of(y) + price.watt * laws.watt_of(y)
            step = np.log(share) / np.maximum(1.0 - (moves * parts).sum(-1) * scale / share, 0.02)
            inside = (u + step > bottom) & (u + step < top)
            u = np.where(inside, u + step, 0.5 * (bottom + top))
        used = laws.usd_of(y).sum(-1) / limits[0], laws.watt_of(y).sum(-1) / limits[1]
        if not any((part > 1.0).any() for part in used):
            return
        multipliers = [
            np.where(m > 0, m * np.clip(part, 0.05, 20.0) ** 0.9, np.where(part > 1.0, 0.3 * start, 0.0))
            for m, part in zip(multipliers, used, strict=True)
        ]


def aggregated(
    space: Space, laws: Laws, have: Left, price: Rate, first: Tangents, second: Tangents
) -> tuple[Tangents, Bound]:
    """The mean of two tangents of each plan whose bound is highest: a tangent too, and the way over kinks.

    The bound is concave in the share of the second: a golden section finds it.
    """
    moved = second.log_value + (second.slopes * (first.y - second.y)).sum(-1)  # the second's value at the first's place

    def at(share: np.ndarray) -> tuple[Tangents, Bound]:
        slopes = first.slopes + share[:, None] * (second.slopes - first.slopes)
        mixed = Tangents(first.log_value + share * (moved - first.log_value), slopes, first.y)
        return mixed, dual_bound(space, laws, have, price, mixed)

    low, high = np.zeros(len(moved)), np.ones(len(moved))
    for _ in range(10):
        shares = low + 0.381966 * (high - low), low + 0.618034 * (high - low)
        below, above = (at(share)[1].log_value for share in shares)
        low, high = np.where(below < above, shares[0], low), np.where(below < above, high, shares[1])
    return at(0.5 * (low + high))


def _least(
    laws: Laws, at: Tangents, usd: np.ndarray, watt: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the Lagrangian of each rate is least in its range, and a lower bound of their sum."""
    first, second = usd[:, None], watt[:, None]
    grows = first * laws.usd_exponent * laws.usd, second * laws.watt_exponent * laws.watt
    falls = np.log(np.maximum(-at.slopes, _TINY))
    logs = [np.log(np.maximum(term, _TINY)) for term in grows]
    y = np.minimum(*((falls - log) / e for log, e in zip(logs, (laws.usd_exponent, laws.watt_exponent), strict=True)))
    y = np.clip(y, low, high)
    for _ in range(2):  # Newton on log(growing) - log(falling), convex and increasing
        terms = grows[0] * np.exp(laws.usd_exponent * y), grows[1] * np.exp(laws.watt_exponent * y)
        both = np.maximum(terms[0] + terms[1], _TINY)
        steep = (laws.usd_exponent * terms[0] + laws.watt_exponent * terms[1]) / both
        y = np.clip(y - (np.log(both) - falls) / np.maximum(steep, 1e-3), low, high)
    spent = first * laws.usd_of(y), second * laws.watt_of(y)
    slope = at.slopes + laws.usd_exponent * spent[0] + laws.watt_exponent * spent[1]
    slack = np.minimum(slope * (low - y), slope * (high - y))
    return y, (at.slopes * (y - at.y) + spent[0] + spent[1] + np.minimum(slack, 0.0)).sum(-1)


def project(space: Space, laws: Laws, have: Left, y: np.ndarray, fill: bool = True) -> np.ndarray:
    """The rates of each plan moved down together until the limits are met; with `fill` also up, until one is reached.

    (The least rates where even those are too much.)
    """
    low, high = np.log(space.ranges.low), np.log(space.ranges.high)
    bottom, top = np.full(len(y), -8.0), np.full(len(y), 8.0 if fill else 0.0)
    for _ in range(40):
        middle = 0.5 * (bottom + top)
        moved = np.clip(y + middle[:, None], low, high)
        fits = (laws.usd_of(moved).sum(-1) <= have.usd) & (laws.watt_of(moved).sum(-1) <= have.watt)
        bottom, top = np.where(fits, middle, bottom), np.where(fits, top, middle)
    return np.clip(y + bottom[:, None], low, high)
