"""Sums over the modules of a layer that a plan may compute again alone."""

from collections.abc import Callable

from costmodel.inputs import MODULES, ModuleRow
from costmodel.semantics import Scalar, total


def by_module(of: Callable[[Scalar, Scalar], Scalar], *rows: ModuleRow | None) -> Scalar:
    """The sum over modules of a function of each one's numbers; nothing where a row is absent."""
    if any(row is None for row in rows):
        return 0.0
    return total(of(*(getattr(row, name) for row in rows)) for name in MODULES)
