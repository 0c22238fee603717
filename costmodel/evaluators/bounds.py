r"""The third semantics: what a formula can be over whole boxes of plans, as monomial x interval.

A value is $\prod_v (x_v / r_v)^{e_v} \cdot [l, u]$ with $r$ a reference point inside the box, so $[l, u]$ is the value
there; beside it stands a plain interval, and each narrows the other. Products and powers add exponents exactly. Sums,
maxima and minima are taken over one common monomial, whose exponents are real and differ from box to box:

- $A + B$: the exponents of the tangent in logarithms at the reference, $w e_A + (1 - w) e_B$ with $w = A / (A + B)$,
  so that a sum of positive monomials loses nothing at the reference (the arithmetic-geometric mean inequality);
- $\max$: the larger at the reference, again without loss there;
- $A - B$ and $\min$, which are concave: $w$ of the chord over the box, so that nothing is lost at its ends.

A side of a maximum or minimum that wins over a whole box is the result, exponents included.

With $q = x^{e_A - e_B}$ the interval is the exact range of $a q^{1 - w} + b q^{-w}$ (or of the larger, the smaller).
Keeping differences open through products was measured to buy under 0.01 where formulas are written as DESIGN 5 asks.

Rounding: plain intervals contain what `Exact` computes, because rounding is monotone. Sums of monomials are widened by
1e-12 of their terms, and monomials by 1e-12 where they narrow the plain interval, at boxes of positive width; at a
point both are what `Exact` computes.
"""

from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

Exponents = dict[str, Any]  # variable -> float, or an array over boxes; zero where absent
Interval = tuple[Any, Any]
Operation = Callable[..., Any]

_SLACK = 1e-12
_quiet = np.errstate(all="ignore")


class Box:
    """A batch of boxes of named positive variables; the ranges broadcast."""

    def __init__(self, **ranges: tuple[ArrayLike, ArrayLike]) -> None:
        self.ranges = {name: (np.asarray(low, float), np.asarray(high, float)) for name, (low, high) in ranges.items()}
        for name, (low, high) in self.ranges.items():
            if not np.all((low > 0) & (low <= high)):
                raise ValueError(f"box: `{name}` must have 0 < lower <= upper")
        self._set_reference(dict.fromkeys(ranges, 0.5))

    def _set_reference(self, shares: Mapping[str, Any]) -> None:
        self._shares, self.reference, self._logs = dict(shares), self.point(shares), {}
        for name, (low, high) in self.ranges.items():
            at = self.reference[name]
            self._logs[name] = (np.log(low / at), np.log(high / at))
        self.slack = np.where(sum(high - low for low, high in self.ranges.values()) > 0, _SLACK, 0.0)

    def variable(self, name: str) -> "Bounded":
        at = self.reference[name]
        return Bounded(self, {name: 1.0}, (at, at), self.ranges[name])

    def variables(self) -> dict[str, "Bounded"]:
        return {name: self.variable(name) for name in self.ranges}

    def point(self, shares: Mapping[str, Any]) -> dict[str, Any]:
        """The variables at a share of each range, in logarithms: plain arrays."""
        return {name: low * (high / low) ** shares[name] for name, (low, high) in self.ranges.items()}

    def at(self, shares: Mapping[str, Any]) -> "Box":
        """The same boxes with the reference there."""
        box = Box(**self.ranges)
        box._set_reference(shares)
        return box

    def focused(self, value: "Bounded") -> "Box":
        """The same boxes with the reference moved towards where `value` is least: bounds are tightest there."""
        shares = dict(self._shares)
        for name, exponent in value.exponents.items():
            shares[name] = np.clip(shares[name] - 0.4 * np.clip(4 * exponent, -1, 1), 0.1, 0.9)
        return self.at(shares)

    def log_range(self, exponents: Exponents) -> Interval:
        """Range of the logarithm of a monomial that is one at the reference."""
        low = high = np.float64(0.0)
        for name, exponent in exponents.items():
            ends = [exponent * log for log in self._logs[name]]
            low, high = low + np.minimum(*ends), high + np.maximum(*ends)
        return low, high


class Bounded:
    """One value over a batch of boxes. Mixes with floats and arrays on either side."""

    __array_ufunc__ = None

    @_quiet
    def __init__(self, box: Box, exponents: Exponents, factor: Interval, plain: Interval) -> None:
        self.box, self.exponents, self.factor, self.plain = box, exponents, factor, plain
        if factor is plain:
            return
        if not exponents:
            self.factor = self.plain = _intersect(_widened(factor, box.slack), plain)
            return
        low, high = map(np.exp, box.log_range(exponents))
        self.plain = _intersect(_widened(_times(factor, (low, high)), box.slack), plain)
        self.factor = _intersect(factor, _times(_widened(plain, box.slack), (1 / high, 1 / low)))

    @property
    def lower(self) -> np.ndarray:
        """Nothing in the box is below."""
        return self.plain[0]

    @property
    def upper(self) -> np.ndarray:
        """Nothing in the box is above."""
        return self.plain[1]

    def __add__(self, other: Any) -> "Bounded":
        return _joined(_SUM, self, other)

    def __neg__(self) -> "Bounded":
        return self * -1.0

    def __sub__(self, other: Any) -> "Bounded":
        return self + -_lift(other, self.box)

    def __rsub__(self, other: Any) -> "Bounded":
        return -self + other

    def __mul__(self, other: Any) -> "Bounded":
        return self._product(_lift(other, self.box), _times, 1.0)

    def __truediv__(self, other: Any) -> "Bounded":
        return self._product(_lift(other, self.box), _over, -1.0)

    def __rtruediv__(self, other: Any) -> "Bounded":
        return _lift(other, self.box) / self

    __radd__, __rmul__ = __add__, __mul__

    @_quiet
    def _product(self, other: "Bounded", operation: Operation, sign: float) -> "Bounded":
        exponents = _plus(self.exponents, other.exponents, sign)
        return Bounded(self.box, exponents, operation(self.factor, other.factor), operation(self.plain, other.plain))

    @_quiet
    def __pow__(self, power: float) -> "Bounded":
        if power < 0:
            return 1.0 / self**-power
        exponents = {name: power * exponent for name, exponent in self.exponents.items()}
        return Bounded(self.box, exponents, _raised(self.factor, power), _raised(self.plain, power))


class Bounds:
    """The operations of `Semantics` on boxes; plain numbers among themselves stay plain."""

    def maximum(self, first: Any, *others: Any) -> Any:
        return reduce(partial(_joined, _MAX), others, first)

    exact_maximum = maximum

    def minimum(self, first: Any, *others: Any) -> Any:
        return reduce(partial(_joined, _MIN), others, first)

    @_quiet
    def floor(self, value: Any) -> Any:
        r"""$x - 1 \le \lfloor x \rfloor \le x$ over the monomial of $x$, and the floors of its ends."""
        if not isinstance(value, Bounded):
            return np.floor(value)
        _, high = value.box.log_range({name: -exponent for name, exponent in value.exponents.items()})
        factor = (value.factor[0] - np.exp(high), value.factor[1])
        return Bounded(value.box, value.exponents, factor, (np.floor(value.lower), np.floor(value.upper)))

    @_quiet
    def log2(self, value: Any) -> Any:
        """Of the interval over the box; below zero counts as zero."""
        if not isinstance(value, Bounded):
            return np.log2(value)
        ends = (np.log2(np.maximum(value.lower, 0.0)), np.log2(np.maximum(value.upper, 0.0)))
        return Bounded(value.box, {}, ends, ends)


def tightest(formula: Callable[[dict[str, Any]], Any], box: Box, passes: int = 4) -> Interval:
    """Lower and upper bounds of `formula(variables)`: the best of `passes` with different references.

    First the centre; then the place where the formula is least of the 3^k corners and midpoints of the box, found by
    evaluating it there exactly (`Bounds` leaves plain arrays plain): a tangent there loses nothing where it matters.
    """
    best: Interval = (-np.inf, np.inf)
    for number in range(passes):
        value = formula(box.variables())
        best = _intersect(best, (value.lower, value.upper))
        box = box.focused(value) if number else box.at(_least(formula, box))
    return best


def _least(formula: Callable[[dict[str, Any]], Any], box: Box) -> dict[str, Any]:
    """Shares of each range, 0, 1/2 or 1, at which the formula is least."""
    names, places = list(box.ranges), list(product((0.0, 0.5, 1.0), repeat=len(box.ranges)))
    shape = np.broadcast_shapes(*(np.shape(low) for low, _ in box.ranges.values()))
    values = [np.broadcast_to(formula(box.point(dict(zip(names, place, strict=True)))), shape) for place in places]
    chosen = np.asarray(places)[np.argmin(np.nan_to_num(values, nan=np.inf), axis=0)]
    return {name: chosen[..., i] for i, name in enumerate(names)}


def _lift(value: Any, box: Box) -> Bounded:
    if isinstance(value, Bounded):
        return value
    number = np.asarray(value, float)
    constant = (number, number)
    return Bounded(box, {}, constant, constant)


def _plus(first: Exponents, second: Exponents, sign: Any) -> Exponents:
    """`first + sign * second`, without the names that cancel in all boxes."""
    result = dict(first)
    for name, exponent in second.items():
        result[name] = result.get(name, 0.0) + sign * exponent
    return {name: exponent for name, exponent in result.items() if np.any(exponent)}


def _intersect(first: Interval, second: Interval) -> Interval:
    return np.fmax(first[0], second[0]), np.fmin(first[1], second[1])


def _widened(interval: Interval, slack: Any) -> Interval:
    return interval[0] - slack * np.abs(interval[0]), interval[1] + slack * np.abs(interval[1])


def _hull(values: list[Any]) -> Interval:
    """Smallest interval of the end points; 0 * inf and 0 / 0 are 0 there."""
    values = [np.where(np.isnan(value), 0.0, value) for value in values]
    return reduce(np.minimum, values), reduce(np.maximum, values)


def _times(first: Interval, second: Interval) -> Interval:
    if second[0] is second[1]:
        return _hull([first[0] * second[0], first[1] * second[0]])
    return _hull([a * b for a in first for b in second])


def _over(first: Interval, second: Interval) -> Interval:
    """Unbounded on one side where the denominator touches zero, on both where it changes its sign or is zero."""
    ends = (np.where(second[0] == 0, 0.0, second[0]), np.where(second[1] == 0, -0.0, second[1]))
    low, high = _hull([a / b for a in first for b in ends])
    sign = np.sign(second[0]) + np.sign(second[1])
    return np.where(sign == 0, -np.inf, low), np.where(sign == 0, np.inf, high)


def _raised(interval: Interval, power: float) -> Interval:
    whole = float(power).is_integer()
    low, high = interval if whole else (np.maximum(interval[0], 0.0), np.maximum(interval[1], 0.0))
    ends = low**power, high**power
    if not whole or power % 2:
        return ends
    return np.where((low < 0) & (high > 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


class _Join(NamedTuple):
    """A sum, maximum or minimum of a q^(1-w) and b q^-w over a range of q."""

    apply: Operation  # (a, b, slack): the join, widened by `slack` of its terms
    weight: Operation  # (A, B, range of log q): w
    turn: Operation  # (a, b, w): the q at which it may turn


@_quiet
def _joined(join: _Join, first: Any, second: Any) -> Any:
    """The join over the common monomial of both: its extremes lie at the ends of q's range or where it turns."""
    boxes = [value.box for value in (first, second) if isinstance(value, Bounded)]
    if not boxes:
        return join.apply(first, second, 0.0)
    box, first, second = boxes[0], _lift(first, boxes[0]), _lift(second, boxes[0])
    ratio = _plus(first.exponents, second.exponents, -1.0)
    low, high = box.log_range(ratio)
    weight = join.weight(first.factor, second.factor, low, high)
    sides = []
    for side, choose, sign in ((0, np.minimum, -1.0), (1, np.maximum, 1.0)):
        a, b, slack = first.factor[side], second.factor[side], sign * box.slack
        turning = np.fmax(np.fmin(np.log(join.turn(a, b, weight)), high), low)
        logs = (low, high, turning) if ratio else (low,)
        values = [join.apply(a * np.exp((1 - weight) * log), b * np.exp(-weight * log), slack) for log in logs]
        ends = (reduce(choose, values), join.apply(first.plain[side], second.plain[side], 0.0))
        sides.append([np.where(np.isnan(end), sign * np.inf, end) for end in ends])
    factor, plain = zip(*sides, strict=True)
    return Bounded(box, _plus(second.exponents, ratio, weight), factor, plain)


def _sum_weight(first: Interval, second: Interval, low: Any, high: Any) -> Any:
    """Tangent at the reference for terms of one sign, chord over the box for differences, else the larger term."""
    a, b = first[0], second[0]
    larger = np.where(np.abs(a) > np.abs(b), 1.0, 0.0)
    chord = np.log((a * np.exp(high) + b) / (a * np.exp(low) + b)) / (high - low)
    weight = np.where(a * b < 0, np.clip(chord, -1.0, 2.0), a / (a + b))
    return np.where(np.isfinite(weight), weight, larger)


def _max_weight(first: Interval, second: Interval, low: Any, high: Any) -> Any:
    """The larger at the reference."""
    return _unless_decided(np.where(first[0] > second[0], 1.0, 0.0), first, second, low, high)


def _min_weight(first: Interval, second: Interval, low: Any, high: Any) -> Any:
    """Chord of min(log A, log B) over the box; the smaller at the reference where one is not positive."""
    a, b = first[0], second[0]
    chord = np.clip((np.log(a / b) + high) / (high - low), 0.0, 1.0)
    larger = np.where((a > 0) & (b > 0) & np.isfinite(chord), chord, np.where(a > b, 1.0, 0.0))
    return 1.0 - _unless_decided(larger, first, second, low, high)


def _unless_decided(weight: Any, first: Interval, second: Interval, low: Any, high: Any) -> Any:
    """1 where the first is the larger everywhere, 0 where the second is."""
    range_of_first = _times(first, (np.exp(low), np.exp(high)))
    return np.where(range_of_first[1] <= second[0], 0.0, np.where(range_of_first[0] >= second[1], 1.0, weight))


_SUM = _Join(
    apply=lambda a, b, slack: a + b + slack * (np.abs(a) + np.abs(b)),
    weight=_sum_weight,
    turn=lambda a, b, w: w * b / ((1 - w) * a),
)
_MAX = _Join(apply=lambda a, b, _: np.maximum(a, b), weight=_max_weight, turn=lambda a, b, _: b / a)
_MIN = _Join(apply=lambda a, b, _: np.minimum(a, b), weight=_min_weight, turn=lambda a, b, _: b / a)
