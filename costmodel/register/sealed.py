"""Arrays that know arithmetic only: what a function does to them, it can do to traced and to dual numbers as well."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from costmodel.exact import Exact
from costmodel.semantics import Semantics

_ARITHMETIC = (np.add, np.subtract, np.multiply, np.true_divide, np.negative, np.positive)
_OPERATIONS = [name for name in vars(Semantics) if not name.startswith("_")]


class Sealed(np.ndarray):
    """An array that refuses comparisons and every function of a library."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if ufunc not in _ARITHMETIC or method != "__call__" or keywords:
            raise TypeError(f"`{ufunc.__name__}` of a size; expected arithmetic and the operations of `sem`")
        return sealed(ufunc(*map(opened, inputs)))

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        raise TypeError(f"`{function.__name__}` of a size; expected arithmetic and the operations of `sem`")

    def __pow__(self, exponent: Any, modulo: Any = None) -> Any:
        return sealed(opened(self) ** opened(exponent))


def sealed(value: Any) -> Any:
    """Numbers that know arithmetic only."""
    return np.asarray(value, float).view(Sealed)


def opened(value: Any) -> Any:
    """The array inside, or what is none as it is."""
    return value.view(np.ndarray) if isinstance(value, Sealed) else value


def _through(operation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *values: sealed(operation(*map(opened, values)))


SEALED: Any = SimpleNamespace(**{name: _through(getattr(Exact(np), name)) for name in _OPERATIONS})
"""The operations of a formula on such arrays."""
