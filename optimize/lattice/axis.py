"""What an axis of a lattice is, and the words that its makers share."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import map_leaves
from costmodel.inputs import options

Fixed = Mapping[str, Any]
Keeps = Callable[..., Any]
"""Which plans keep the rules that read only these columns (and one that is `new`): `specs.kept` of one question."""
DEGREES = ("domain", "tensor", "context", "pipeline", "data", "expert", "expert_tensor", "microbatch")

_DENSE = 4  # integers a row up to which they are counted rather than sorted


@dataclasses.dataclass(frozen=True)
class Axis:
    """Options of all rows one after another; those of row i start at `offset[i]`."""

    table: Mapping[str, np.ndarray]  # one entry for each option, by column
    offset: np.ndarray
    count: np.ndarray
    embedded: Mapping[Any, Mapping[str, Any]]  # by dtype: fields of a `PlanPoint`, one entry for each option

    def at(self, kept: np.ndarray) -> "Axis":
        """The axis of some of the rows."""
        return dataclasses.replace(self, offset=self.offset[kept], count=self.count[kept])

    def fields(self, entry: np.ndarray, dtype: Any) -> dict[str, Any]:
        """Fields of a `PlanPoint` at these entries."""
        return {name: map_leaves(lambda leaf: leaf[entry], tree) for name, tree in self.embedded[dtype].items()}


def wanted(fixed: Fixed, name: str, values: Any) -> Any:
    """Whether values are those that a field is fixed to: any where it is free or None."""
    allowed = fixed.get(name)
    if allowed is None:
        return np.ones(np.shape(values), bool)
    return np.isin(values, list(allowed) if isinstance(allowed, set | frozenset) else [allowed])


def even_layers(count: int, pipeline: int) -> tuple[int, ...] | None:
    """None where the layers divide; otherwise the odd ones go to late middle stages, then to the ends."""
    share, odd = divmod(count, pipeline)
    if odd == 0 or share == 0:
        return None
    order = [*range(pipeline - 2, 0, -1), pipeline - 1, 0]
    heavier = set(order[:odd])
    return tuple(share + (stage in heavier) for stage in range(pipeline))


def recompute_names(fixed: Fixed) -> list[str]:
    """The modes that the column `recompute` numbers: all, or the modules that it is fixed to."""
    given = fixed.get("recompute")
    return [given] if isinstance(given, str) and options.modules_of(given) else list(options.RECOMPUTES)


def divisors(value: int) -> list[int]:
    """All divisors of a value, in order."""
    return list(_divisors(value))


@functools.cache
def _divisors(value: int) -> list[int]:
    small = [d for d in range(1, math.isqrt(value) + 1) if value % d == 0]
    return small + [value // d for d in reversed(small) if d * d != value]


def distinct(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The first place of each distinct row of columns, in ascending order, and which of them each row is."""
    code, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        number, values = _numbered(column)
        code, size = code * values + number, size * values
        if size > _DENSE * len(code):  # so that the next product is small, too
            code, size = _numbered(code)
    which, count = _numbered(code)
    first = np.zeros(count, np.int64)
    first[which[::-1]] = np.arange(len(which) - 1, -1, -1)  # the last that is written is the first row
    return first, which


def _numbered(column: np.ndarray) -> tuple[np.ndarray, int]:
    """The place of each value among those that occur, in ascending order, and how many there are."""
    least, span = (int(column.min()), int(np.ptp(column)) + 1) if len(column) else (0, 0)
    if span > _DENSE * len(column) or column.dtype.kind != "i":
        values, number = np.unique(column, return_inverse=True)
        return number.ravel(), len(values)
    occurs = np.zeros(span, bool)
    occurs[column - least] = True
    return (np.cumsum(occurs) - 1)[column - least], int(np.count_nonzero(occurs))
