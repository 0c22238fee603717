r"""Lower bounds of one plan each over all hardware that the limits allow, from one gradient: thousands in one call.

For money and watts over a box of rates, which is what a design asks. Few plans, any limits and any variables, to any
tolerance: `cutting_planes`, a thousand times dearer for each plan. A search bounds all plans here, then the few that
are left there.

At a fixed plan the logarithm of every objective is convex in $y$, the logarithms of the rates, so it lies above its
tangent. Money and watts left for the rates, after HBM, are sums of power laws of one rate each. The least value of the
tangent over both limits and the box is bounded by its Lagrangian dual, which is a sum of four problems in one rate:

$$\min_y\; F_0 + g \cdot (y - y_0) \;\ge\; \sum_k \min_{y_k} \big[ g_k (y_k - y_{0k}) + \lambda_1 a_k e^{\alpha_k y_k}
+ \lambda_2 w_k e^{\omega_k y_k} \big] - \lambda_1 - \lambda_2 + F_0$$

with both limits scaled to 1. Every $\lambda \ge 0$ gives a bound, and each inner minimum is bounded by the tangent at
the place where the iteration stopped: nothing here needs to have converged to be true.

For given multipliers the Lagrangian is least where each rate's slope vanishes, $g_k + \sum_i \alpha_i S_{ik} = 0$ with
$S_{ik}$ what multiplier i makes of the rate's power law. The best multipliers use up each limit that has one,
$\log U_i = 0$, and Newton's method finds them by

$$U_i \lambda_i \frac{\partial \log U_i}{\partial \log \lambda_j} = -\sum_k
\frac{\alpha_i S_{ik}\, \alpha_j S_{jk}}{\sum_l \alpha_l^2 S_{lk}}$$

over the rates between their ends. A rate that reaches an end leaves this sum, which makes steps too long: some damping,
and steps that halve where a limit changes sides, make up for that.

What multiplies the seconds (dollars a second, watts) is not replaced by a tangent: the logarithm of the objective by
the tangents of both kinds of seconds (`Worth`) stands in the place of $F_0 + g \cdot (y - y_0)$. It is convex, so that
the same holds, with what the price rises added to what the limits make of each rate.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from optimize.question import Left, Money, Problem, Tangents, Valued, Worth, columns

ROUNDS = 8  # of the multipliers: of a 1T design bounds are then 5e-5 short in the mean, at most .01
DAMPING = 0.05  # of the derivatives of what limits use, as a part of that
LONGEST = 3.0  # step of the logarithm of a multiplier
LIMITED_ROUNDS, LESS_SPENT = 12, 0.3  # the same with a price, and with what part of them it begins
PRICED_ROUNDS = 10  # of the price
MIXED = 6  # steps of the golden section
_TINY, _NOTHING = 1e-300, 1e-12  # the latter of derivatives, where there is no limit
_Ends = tuple[np.ndarray, np.ndarray]


def dual_bound(
    problem: Problem,
    have: Left,
    at: Tangents,
    ends: _Ends | None = None,
    money: Money | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """What no hardware within the limits is below, for each plan (infinite where there is none), and where.

    Of the value for one accelerator: their number, where the objective has a price, is the caller's to multiply by.
    `ends`: logarithms of the least and the most of the rates, for each plan its own (default: the problem's). `money`:
    what multiplies the seconds (default: that of the objective); with a `share` of 0 nothing does.
    """
    ends = problem.ends if ends is None else ends
    money, (low, _) = problem.money if money is None else money, ends
    priced = money.priced and bool(np.any(at.share))
    possible = (money.usd(low) <= have.usd) & (money.watt(low) <= have.watt)
    best, where = _without_limits(at, ends)
    have = have._replace(usd=np.where(possible, have.usd, 1.0), watt=np.where(possible, have.watt, 1.0))
    limited = np.ones_like(possible)
    if priced:
        best, where = priced_bound(money, have, at, ends)
        best = best - at.log_value
        limited = possible & ((money.usd(where) > have.usd) | (money.watt(where) > have.watt))
    for y, value in _limited_rounds(money, have, (at, ends), limited, priced):
        better = value > best[limited]
        place = np.flatnonzero(limited)[better]
        best[place], where[place] = value[better], y[better]
    return np.where(possible, at.log_value + best, np.inf), where


def _without_limits(at: Tangents, ends: _Ends) -> tuple[np.ndarray, np.ndarray]:
    """The least of the tangents in the box, less their values, and where: the bound where the limits leave enough."""
    where = np.where(at.slopes < 0, ends[1], ends[0])
    return (at.slopes * (where - at.y)).sum(-1), where


def _limited_rounds(
    money: Money, have: Left, plans: tuple[Tangents, _Ends], limited: np.ndarray, priced: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and bounds of the plans that a limit holds, round by round."""
    at, ends = plans
    if not limited.any():
        return iter(())
    if limited.all():  # so is every plan without a price, where amounts of money may be arrays over the plans
        return _rounds(money, have, at, ends, priced)
    own, left = at.keep(limited), have.keep(limited)
    low, high = (end[limited] if np.ndim(end) > 1 else end for end in ends)
    return _rounds(money, left, own, (low, high), priced)


def priced_bound(
    money: Money, have: Left, at: Tangents, ends: _Ends, rounds: int = PRICED_ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    """The same where the objective has a price and the limits leave more than is worth it.

    The logarithm of the objective by the tangents of both kinds of seconds (`Worth`) is convex in $y$. Where it is
    nearly least, found by a Newton step of each rate for the others as they were, it lies above its own tangent, and
    that is least at a corner of the box.
    """
    worth, (low, high) = Worth(money, at, have), [columns(end) for end in ends]
    y = np.clip(columns(at.y), low, high)
    y = np.where(worth.free & (worth(y).slopes < 0), high, y)
    for _ in range(rounds):
        now = worth(y)
        ratio = np.log(np.maximum(-now.slopes, _TINY) / np.maximum(now.steep, _TINY))
        y = np.clip(y + ratio * now.steep / np.maximum(now.bend, _TINY), low, high)
    now = worth(y)
    slope = now.slopes + now.steep
    slack = np.minimum(slope * (low - y), slope * (high - y)).sum(0)
    return now.log_value + np.minimum(slack, 0.0), np.ascontiguousarray(y.T)


class _Laws(NamedTuple):
    """Power laws of the two limits (first axis) by the rates (second): amounts as parts of the limit."""

    amounts: np.ndarray
    exponents: np.ndarray
    ends: tuple[np.ndarray, np.ndarray]

    def terms(self, y: np.ndarray) -> np.ndarray:
        """What each rate takes of each limit."""
        return self.amounts * np.exp(self.exponents * y)

    def nearer(self, y: np.ndarray, now: Valued, spent: np.ndarray) -> np.ndarray:
        """Rates nearer to where the Lagrangian is least: Newton on log(growing) - log(falling), convex, increasing."""
        grows = self.exponents * spent
        both = np.maximum(now.steep + grows.sum(0), _TINY)
        missing = np.log(both) - np.log(np.maximum(-now.slopes, _TINY))
        bend = np.maximum(now.bend + (self.exponents * grows).sum(0), _TINY)
        return np.clip(y - missing * both / bend, *self.ends)

    def least(self, y: np.ndarray, now: Valued, spent: np.ndarray) -> np.ndarray:
        """A lower bound of the Lagrangian: it lies above its tangent, which is least at ends of the rates."""
        low, high = self.ends
        slope = now.slopes + now.steep + (self.exponents * spent).sum(0)
        slack = np.minimum(np.minimum(slope * (low - y), slope * (high - y)), 0.0)
        return now.log_value + slack.sum(0) + spent.sum((0, 1))

    def step(self, y: np.ndarray, now: Valued, spent: np.ndarray, missed: np.ndarray) -> np.ndarray:
        """Newton's step of the logarithms of both multipliers, from those of the limits' use."""
        used, grows, (low, high) = spent.sum(1), self.exponents * spent, self.ends
        moves = ((y > low) & (y < high)) / np.maximum(now.bend + (self.exponents * grows).sum(0), _TINY)
        first, second = (grows * grows * moves).sum(1) + DAMPING * used + _NOTHING
        both, (one, other) = (grows[0] * grows[1] * moves).sum(0), used * missed
        return np.stack([second * one - both * other, first * other - both * one]) / (first * second - both * both)


def _plain(at: Tangents) -> Callable[[np.ndarray], Valued]:
    """Tangents alone, less their values."""
    slopes, start, nothing = columns(at.slopes), columns(at.y), np.zeros(())
    return lambda y: Valued((slopes * (y - start)).sum(0), slopes, nothing, nothing)


def _priced(money: Money, have: Left, at: Tangents) -> Callable[[np.ndarray], Valued]:
    """The same with what the hardware costs."""
    worth = Worth(money, at, have)

    def less(y: np.ndarray) -> Valued:
        now = worth(y)
        return now._replace(log_value=now.log_value - at.log_value)

    return less


def _rounds(
    money: Money, have: Left, at: Tangents, ends: tuple[np.ndarray, np.ndarray], priced: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and bounds, less the tangents' values, of plans that a limit holds, round by round."""
    limits, of = np.stack([have.usd, have.watt]), (money.usd, money.watt)
    amounts = np.stack([columns(law.amounts) / limit for law, limit in zip(of, limits, strict=True)])
    exponents, (low, high) = np.stack([columns(law.exponents) for law in of]), (columns(end) for end in ends)
    laws, value = _Laws(amounts, exponents, (low, high)), _priced(money, have, at) if priced else _plain(at)
    start = (LESS_SPENT if priced else 1.0) * np.maximum(-columns(at.slopes), 1e-6).sum(0)
    multipliers = np.where(np.isfinite(limits), start, 0.0)
    y, longest, before = np.clip(columns(at.y), low, high), LONGEST, np.zeros(2)[:, None]
    now, terms = value(y), laws.terms(y)
    for turn in range(2 + (LIMITED_ROUNDS if priced else ROUNDS)):
        y = laws.nearer(y, now, multipliers[:, None] * terms)
        now, terms = value(y), laws.terms(y)
        if turn < 2:
            continue
        spent = multipliers[:, None] * terms
        yield y.T, laws.least(y, now, spent) - multipliers.sum(0)
        missed = np.log(np.maximum(terms.sum(1), _TINY))
        longest = np.where(missed * before < 0, 0.5 * longest, longest)
        multipliers = multipliers * np.exp(np.clip(laws.step(y, now, spent, missed), -longest, longest))
        before = missed


def aggregated(
    bound: Callable[[Tangents], tuple[np.ndarray, np.ndarray]], first: Tangents, second: Tangents
) -> tuple[Tangents, tuple[np.ndarray, np.ndarray]]:
    """The mean of two tangents of each plan whose bound is highest: a tangent too, and the way over kinks.

    The bound is concave in the share of the second: a golden section finds it, one new share a step.
    """

    def mean_of(share: np.ndarray, value: str, slopes: str) -> dict[str, np.ndarray]:
        """The mean of one kind of tangents; the second's value is taken at the first's place."""
        (one, steep), (two, falls) = ((getattr(each, value), getattr(each, slopes)) for each in (first, second))
        moved = two + (falls * (first.y - second.y)).sum(-1)
        return {value: one + share * (moved - one), slopes: steep + share[:, None] * (falls - steep)}

    def mixed(share: np.ndarray) -> Tangents:
        own = mean_of(share, "log_value", "slopes")
        if first.log_s is not None and second.log_s is not None:
            own |= mean_of(share, "log_s", "s_slopes")
        if first.log_drawn is not None and second.log_drawn is not None:
            own |= mean_of(share, "log_drawn", "drawn_slopes")
        return first._replace(share=first.share + share * (second.share - first.share), **own)

    low, high = np.zeros(len(first.log_value)), np.ones(len(first.log_value))
    lower, upper = low + 0.381966, low + 0.618034
    below, above = (bound(mixed(share))[0] for share in (lower, upper))
    for _ in range(MIXED):
        right = below < above
        low, high = np.where(right, lower, low), np.where(right, high, upper)
        share = np.where(right, low + 0.618034 * (high - low), low + 0.381966 * (high - low))
        value = bound(mixed(share))[0]
        lower, upper = np.where(right, upper, share), np.where(right, share, lower)
        below, above = np.where(right, above, value), np.where(right, value, below)
    mean = mixed(0.5 * (low + high))
    return mean, bound(mean)


def largest_alone(problem: Problem, usd: np.ndarray, watt: np.ndarray) -> np.ndarray:
    """The most of each rate where the limits pay for the least of the others: the best corner of the box."""
    low, high = problem.ends
    ends = np.broadcast_to(high, (len(usd), len(high))).copy()
    for limit, law in ((usd, problem.money.usd), (watt, problem.money.watt)):
        least, amount = law.terms(low), law.amounts
        spare = np.maximum(limit[:, None] - (least.sum() - least), 1e-300)
        with np.errstate(divide="ignore"):
            most = np.log(spare / np.maximum(amount, 1e-300)) / law.exponents
            ends = np.minimum(ends, np.where(amount > 0, most, np.inf))
    return np.maximum(ends, low)


def project(problem: Problem, have: Left, y: np.ndarray, fill: bool = True) -> np.ndarray:
    """The rates of each plan moved down together until the limits are met; with `fill` also up, until one is reached.

    (The least rates where even those are too much.)
    """
    money, (low, high) = problem.money, problem.ends
    bottom, top = np.full(len(y), -8.0), np.full(len(y), 8.0 if fill else 0.0)
    for _ in range(40):
        middle = 0.5 * (bottom + top)
        moved = np.clip(y + middle[:, None], low, high)
        fits = (money.usd(moved) <= have.usd) & (money.watt(moved) <= have.watt)
        bottom, top = np.where(fits, middle, bottom), np.where(fits, top, middle)
    return np.clip(y + bottom[:, None], low, high)
