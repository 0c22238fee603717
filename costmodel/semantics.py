"""What a formula may do beyond arithmetic: one closed list of operations, with more than one meaning.

A cost function computes with `+ - * /`, `**` with a Python constant, and the operations of a `Semantics`
object. It imports no array library and branches on no value, so one source serves exact and relaxed plans,
NumPy, JAX and plain floats (`exact.py`), and dual numbers (`evaluators/dual.py`).
"""

from collections.abc import Iterable
from typing import Any, Protocol

Scalar = Any
"""A Python float, a NumPy or JAX array (element by element), or a dual number."""

Verdict = Any
"""Whether something holds: a truth value, or an array of them. The only functions that compare values return it."""


class Semantics(Protocol):
    """The operations of a formula. `maximum` and `minimum` take two arguments or more."""

    def maximum(self, first: Scalar, *others: Scalar) -> Scalar:
        """The largest."""
        ...

    def minimum(self, first: Scalar, *others: Scalar) -> Scalar:
        """The smallest. Minima stand in counts and placement only (DESIGN 6)."""
        ...

    def floor(self, value: Scalar) -> Scalar:
        """The largest integer not above `value`; its derivative is zero."""
        ...

    def sqrt(self, value: Scalar) -> Scalar:
        """The square root of what is positive: the derivative of `value ** 0.5` is a general power to compilers."""
        ...

    def log2(self, value: Scalar) -> Scalar:
        """The logarithm to base two."""
        ...


def total(values: Iterable[Scalar]) -> Scalar:
    """The sum over a static sequence, without the leading `0 +` of `sum`."""
    result: Scalar = None
    for value in values:
        result = value if result is None else result + value
    return 0.0 if result is None else result
