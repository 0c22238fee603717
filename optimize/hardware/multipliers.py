r"""Multipliers of the limits of money and power, by Newton's method on the dual of `tangents`, thousands at once.

For given multipliers the Lagrangian is least where each rate's own slope vanishes, $g_k + \sum_i \alpha_i S_{ik} = 0$
with $S_{ik}$ what the multiplier of limit i makes of the rate's power law. The best multipliers use up each limit that
has one, $\log U_i = 0$; by their logarithms this has the derivatives

$$U_i \lambda_i \frac{\partial \log U_i}{\partial \log \lambda_j} = -\sum_k
\frac{\alpha_i S_{ik}\, \alpha_j S_{jk}}{\sum_l \alpha_l^2 S_{lk}}$$

over the rates that are between their ends. A rate that reaches an end leaves this sum, so that steps may be too long:
some damping, and steps that halve where a limit changes sides, make up for that. Every round gives a bound.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from optimize.question import Left, Money, Tangents, columns

ROUNDS = 8  # of the multipliers: the bounds of a trillion-parameter design are then 5e-5 short in the mean, at most .01
DAMPING = 0.05  # of the derivatives, as a part of what a limit uses
LONGEST = 3.0  # step of the logarithm of a multiplier
_TINY, _NOTHING = 1e-300, 1e-12  # the latter of derivatives, where there is no limit


class _Laws(NamedTuple):
    """Power laws of the two limits (first axis) by the rates (second): amounts as parts of the limit."""

    amounts: np.ndarray
    exponents: np.ndarray
    slopes: np.ndarray  # of the tangents, by rate
    ends: tuple[np.ndarray, np.ndarray]

    def terms(self, y: np.ndarray) -> np.ndarray:
        """What each rate takes of each limit."""
        return self.amounts * np.exp(self.exponents * y)

    def nearer(self, y: np.ndarray, spent: np.ndarray) -> np.ndarray:
        """Rates nearer to where the Lagrangian is least: Newton on log(growing) - log(falling), convex, increasing."""
        grows = self.exponents * spent
        both = np.maximum(grows.sum(0), _TINY)
        missing = np.log(both) - np.log(np.maximum(-self.slopes, _TINY))
        return np.clip(y - missing * both / np.maximum((self.exponents * grows).sum(0), _TINY), *self.ends)

    def least(self, y: np.ndarray, start: np.ndarray, spent: np.ndarray) -> np.ndarray:
        """A lower bound of the Lagrangian: it lies above its tangent, which is least at ends of the rates."""
        low, high = self.ends
        slope = self.slopes + (self.exponents * spent).sum(0)
        slack = np.minimum(np.minimum(slope * (low - y), slope * (high - y)), 0.0)
        return (self.slopes * (y - start) + slack).sum(0) + spent.sum((0, 1))

    def step(self, y: np.ndarray, spent: np.ndarray, missed: np.ndarray) -> np.ndarray:
        """Newton's step of the logarithms of both multipliers, from those of the limits' use."""
        used, grows, (low, high) = spent.sum(1), self.exponents * spent, self.ends
        moves = ((y > low) & (y < high)) / np.maximum((self.exponents * grows).sum(0), _TINY)
        first, second = (grows * grows * moves).sum(1) + DAMPING * used + _NOTHING
        both, (one, other) = (grows[0] * grows[1] * moves).sum(0), used * missed
        return np.stack([second * one - both * other, first * other - both * one]) / (first * second - both * both)


def plain_rounds(
    money: Money, have: Left, at: Tangents, ends: tuple[np.ndarray, np.ndarray]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Places and bounds, less the tangents' values, of plans whose objective has no price, round by round."""
    limits, of = np.stack([have.usd, have.watt]), (money.usd, money.watt)
    amounts = np.stack([columns(law.amounts) / limit for law, limit in zip(of, limits, strict=True)])
    exponents, (low, high) = np.stack([columns(law.exponents) for law in of]), (columns(end) for end in ends)
    laws, start = _Laws(amounts, exponents, columns(at.slopes), (low, high)), columns(at.y)
    multipliers = np.where(np.isfinite(limits), np.maximum(-laws.slopes, 1e-6).sum(0), 0.0)
    y, longest, before = np.clip(start, low, high), LONGEST, np.zeros(2)[:, None]
    for _ in range(2):
        y = laws.nearer(y, multipliers[:, None] * laws.terms(y))
    terms = laws.terms(y)
    for _ in range(ROUNDS):
        y = laws.nearer(y, multipliers[:, None] * terms)
        terms = laws.terms(y)
        spent = multipliers[:, None] * terms
        yield y.T, laws.least(y, start, spent) - multipliers.sum(0)
        missed = np.log(np.maximum(terms.sum(1), _TINY))
        longest = np.where(missed * before < 0, 0.5 * longest, longest)
        multipliers = multipliers * np.exp(np.clip(laws.step(y, spent, missed), -longest, longest))
        before = missed
