r"""The fourth semantics: dual numbers, whose arithmetic carries first derivatives along. NumPy, no compilation.

A value is $v + \sum_i v_i \epsilon_i$ with $\epsilon_i \epsilon_j = 0$: forward-mode differentiation by operator
overloading (Wengert 1964), exact to rounding, in float64, batched over whatever axes the values have. Derivatives
that are zero by structure are absent, so sub-terms that do not depend on the variables are plain NumPy. An XLA program
of the same gradients runs many times faster and compiles for tens of seconds first (`compiled.gradient`); what is asked
some hundred times, as in the search for hardware, is answered here before that.

At a kink, where two arguments of a maximum are equal, `gradient` gives the whole derivative to the first one: a
subgradient, so tangents of convex functions stay below them. `one_sided` gives the derivative to one side instead.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel.semantics import Scalar

Parts = dict[str, Any]  # derivative by variable, absent where it is zero


class Dual:
    """A value and its derivatives by named variables. Mixes with floats and arrays on either side."""

    __slots__ = ("parts", "value")
    __array_ufunc__ = None

    def __init__(self, value: Any, parts: Parts) -> None:
        self.value, self.parts = value, parts

    def __repr__(self) -> str:
        return f"Dual({self.value!r}, {self.parts!r})"

    def __add__(self, other: Any) -> "Dual":
        if not isinstance(other, Dual):
            return Dual(self.value + other, self.parts)
        return Dual(self.value + other.value, _added(self.parts, other.parts))

    __radd__ = __add__

    def __neg__(self) -> "Dual":
        return Dual(-self.value, {name: -part for name, part in self.parts.items()})

    def __sub__(self, other: Any) -> "Dual":
        return self + (-other)

    def __rsub__(self, other: Any) -> "Dual":
        return -self + other

    def __mul__(self, other: Any) -> "Dual":
        if not isinstance(other, Dual):
            return Dual(self.value * other, _scaled(self.parts, other))
        parts = _added(_scaled(self.parts, other.value), _scaled(other.parts, self.value))
        return Dual(self.value * other.value, parts)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> "Dual":
        if isinstance(other, Dual):
            return self * other.reciprocal()
        return self * (1.0 / other)

    def __rtruediv__(self, other: Any) -> "Dual":
        return self.reciprocal() * other

    def reciprocal(self) -> "Dual":
        """One over it."""
        inverse = 1.0 / self.value
        return Dual(inverse, _scaled(self.parts, -inverse * inverse))

    def __pow__(self, exponent: Any) -> "Dual":
        """Any power; its derivative at zero is that of NumPy, infinite below the first power."""
        if isinstance(exponent, Dual):
            return self**exponent.value + (self.value**exponent - self.value**exponent.value)
        slope = exponent * self.value ** (exponent - 1.0)
        return Dual(self.value**exponent, _scaled(self.parts, slope))

    def __rpow__(self, base: Any) -> "Dual":
        power = base**self.value
        return Dual(power, _scaled(self.parts, np.log(base) * power))


def _added(first: Parts, second: Parts) -> Parts:
    if not first or not second:
        return first or second
    parts = dict(first)
    for name, part in second.items():
        parts[name] = parts[name] + part if name in parts else part
    return parts


def _scaled(parts: Parts, factor: Any) -> Parts:
    return {name: part * factor for name, part in parts.items()}


def _value(number: Any) -> Any:
    return number.value if isinstance(number, Dual) else number


def _parts(number: Any) -> Parts:
    return number.parts if isinstance(number, Dual) else {}


class DualNumbers:
    """The operations of `semantics.Semantics` on dual numbers, floats and arrays; maxima and minima are exact.

    `directional`: equal arguments give the larger derivative to a maximum (the smaller to a minimum). Then each
    derivative is the one-sided one along its own direction, and all together are no subgradient.
    """

    def __init__(self, directional: bool = False) -> None:
        self.directional = directional

    def maximum(self, first: Scalar, *others: Scalar) -> Scalar:
        """The largest, with the derivatives of the argument that is."""
        for other in others:
            first = self._chosen(first, other, np.maximum, np.greater_equal)
        return first

    def minimum(self, first: Scalar, *others: Scalar) -> Scalar:
        """The smallest, with the derivatives of the argument that is."""
        for other in others:
            first = self._chosen(first, other, np.minimum, np.less_equal)
        return first

    def floor(self, value: Scalar) -> Scalar:
        """The largest integer not above `value`, without derivatives."""
        return np.floor(_value(value))

    def sqrt(self, value: Scalar) -> Scalar:
        """The square root of what is positive."""
        if not isinstance(value, Dual):
            return np.sqrt(value)
        root = np.sqrt(value.value)
        return Dual(root, _scaled(value.parts, 0.5 / root))

    def log2(self, value: Scalar) -> Scalar:
        """The logarithm to base two."""
        if not isinstance(value, Dual):
            return np.log2(value)
        return Dual(np.log2(value.value), _scaled(value.parts, 1.0 / (np.log(2.0) * value.value)))

    def _chosen(self, first: Scalar, second: Scalar, choose: Any, wins: Any) -> Scalar:
        if not isinstance(first, Dual) and not isinstance(second, Dual):
            return choose(first, second)
        a, b, ours, theirs = _value(first), _value(second), _parts(first), _parts(second)
        first_wins, tied = wins(a, b), np.equal(a, b) if self.directional else False
        parts = {}
        for name in {**ours, **theirs}:
            mine, other = ours.get(name, 0.0), theirs.get(name, 0.0)
            part = np.where(first_wins, mine, other)
            parts[name] = np.where(tied, choose(mine, other), part) if self.directional else part
        return Dual(choose(a, b), parts)


SUBGRADIENT = DualNumbers()
DIRECTIONAL = DualNumbers(directional=True)

Formula = Callable[[dict[str, Any]], Scalar]


def gradient(formula: Formula, at: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The value and the derivative by each variable. The formula must use the operations of `SUBGRADIENT`."""
    return _derivatives(formula(_seeded(at, dict.fromkeys(at, 1.0))), at)


def log_gradient(formula: Formula, at: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The logarithm of a positive formula and its derivative by the logarithm of each variable: elasticities."""
    return log_gradients(lambda seeded: (formula(seeded),), at)[0]


def log_gradients(
    formulas: Callable[[dict[str, Any]], tuple[Scalar, ...]], at: Mapping[str, Any]
) -> list[tuple[np.ndarray, dict[str, np.ndarray]]]:
    """The same of several formulas that share what they compute."""
    pairs = [_derivatives(result, at) for result in formulas(_seeded(at, at))]
    return [(np.log(value), {name: slope / value for name, slope in slopes.items()}) for value, slopes in pairs]


def one_sided(formula: Formula, at: Mapping[str, Any], side: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The value and the derivative to the right (`side` 1) or to the left (-1) of each variable.

    The formula must use the operations of `DIRECTIONAL`.
    """
    value, slopes = _derivatives(formula(_seeded(at, dict.fromkeys(at, float(side)))), at)
    return value, {name: side * slope for name, slope in slopes.items()}


def _seeded(at: Mapping[str, Any], units: Mapping[str, Any]) -> dict[str, Any]:
    return {name: Dual(np.asarray(value, float), {name: units[name]}) for name, value in at.items()}


def _derivatives(result: Scalar, at: Mapping[str, Any]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Arrays of the value's shape, zeros where a variable does not enter."""
    value, parts = np.asarray(_value(result), float), _parts(result)
    return value, {name: np.broadcast_to(np.asarray(parts.get(name, 0.0), float), value.shape) for name in at}
