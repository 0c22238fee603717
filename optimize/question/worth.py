r"""What plans are worth by their tangents, with what the hardware costs as it is.

An objective with a price is $V = K_T\,T + K_L\,L$ (`rates`), sums of power laws times seconds. With tangents below the
logarithms of both seconds it is a sum of exponentials of what is linear in $y$: convex, below the objective, and bent
as the price is. (A tangent of the mean, `Money.paid`, takes the lesser of both for a straight line: where a rate is in
that alone, as the network's in energy, its least would lie at one end of the rate or the other.)
"""

from typing import NamedTuple

import numpy as np

from optimize.question.rates import Left, Money, Tangents


class Valued(NamedTuple):
    """Plans at some rates (the first axis): logarithm of the objective by their tangents; its slopes by how the seconds
    fall, and by how the price rises, with the derivatives of these."""

    log_value: np.ndarray
    slopes: np.ndarray
    steep: np.ndarray
    bend: np.ndarray


class Worth:
    """The objective for one accelerator by the tangents of `T` and `L`, each with its price: convex in the rates. Where
    these are not known, or one is a mean with another's, by that of both (`Money.paid`).

    Rates are the first axis here: what is done thousands of times is a third faster so.
    """

    def __init__(self, money: Money, at: Tangents, have: Left) -> None:
        self.start, self.fixed, self.share = columns(at.y), money.per_usd * have.hbm_usd, at.share
        self.usd = columns(money.per_usd * money.usd.amounts), columns(money.usd.exponents)
        self.watt = columns(money.watt.amounts), columns(money.watt.exponents)
        self.main, self.rest = columns(money.per_watt), columns(money.aside)
        self.free = (self.usd[0] <= 0) & (self.watt[0] * (self.main + self.rest) <= 0)
        self.log_value, self.slopes, self.beside = at.log_value, columns(at.slopes), None
        if at.log_s is None or at.s_slopes is None or at.log_drawn is None or at.drawn_slopes is None:
            return
        kinds = [(at.log_s, at.s_slopes), (at.log_drawn, at.drawn_slopes)]
        (self.log_value, slopes), (log_s, beside) = kinds[::-1] if money.of_drawn else kinds
        self.slopes, self.beside = columns(slopes), (log_s - self.log_value, columns(beside - slopes))

    def __call__(self, y: np.ndarray) -> Valued:
        usd, watt = (amounts * np.exp(exponents * y) for amounts, exponents in (self.usd, self.watt))
        moved, price = y - self.start, (usd + self.main * watt).sum(0) + self.fixed
        log_value = self.log_value + (self.slopes * moved).sum(0)
        if self.beside is None:
            each = self.share / price
            return Valued(
                log_value + self.share * np.log(price), self.slopes, *self._rises(each * usd, each * self.main * watt)
            )
        (more_s, more), aside = self.beside, (self.rest * watt).sum(0)
        ratio = aside / price * np.exp(more_s + (more * moved).sum(0))
        rest = ratio / (1.0 + ratio)
        each, own = (1.0 - rest) / price, rest / np.maximum(aside, 1e-300)
        rises = self._rises(each * usd, (each * self.main + own * self.rest) * watt)
        return Valued(log_value + np.log(price * (1.0 + ratio)), self.slopes + rest * more, *rises)

    def _rises(self, usd: np.ndarray, watt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """First and second derivatives of laws by their rates, from what they are: of the purchase, and of watts."""
        first, second = self.usd[1] * usd, self.watt[1] * watt
        return first + second, self.usd[1] * first + self.watt[1] * second


def columns(of: np.ndarray) -> np.ndarray:
    """With rates as the first axis; those of all plans broadcast."""
    return np.ascontiguousarray(of.T) if np.ndim(of) > 1 else np.asarray(of)[:, None]


def whole(money: Money, at: Tangents, have: Left) -> Tangents:
    """Tangents of the objective with its price, for one accelerator, from those of `T` and `L`."""
    now = Worth(money, at._replace(log_s=at.log_value, s_slopes=at.slopes), have)(columns(at.y))
    slopes = (now.slopes + now.steep).T
    return at._replace(log_value=now.log_value, slopes=slopes, log_drawn=None, drawn_slopes=None)
