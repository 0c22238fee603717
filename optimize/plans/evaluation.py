"""Plans of a lattice evaluated by NumPy: in float32 for searches, in float64 for what is told."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel import Exact, as_floats, map_leaves
from costmodel.formulas import Cost, cost
from optimize.lattice import Chunk, Lattice

MARGIN = 1e-4
"""Relative. Errors of float32 on a step and on a peak are below a tenth of it (tests/plans/test_exhaustive.py)."""

_BLOCK = 8_192  # points of one NumPy evaluation: its intermediates stay in the cache
_EXACT = Exact(np)
_FIELDS = tuple(field.name for field in dataclasses.fields(Cost))  # pyright: ignore[reportArgumentType]

Evaluate = Callable[[Chunk], Cost]
"""The cost of the plans of a chunk."""


def in_numpy(lattice: Lattice) -> Evaluate:
    """Evaluation by NumPy, in float32."""
    return lambda chunk: _in_numpy(lattice, chunk.indices, np.float32)


def exactly(lattice: Lattice, indices: np.ndarray) -> Cost:
    """Cost of the plans with these numbers, in float64."""
    return _in_numpy(lattice, indices, np.float64)


def _in_numpy(lattice: Lattice, indices: np.ndarray, dtype: Any) -> Cost:
    workload = map_leaves(dtype, as_floats(lattice.workload))
    cluster = map_leaves(dtype, as_floats(dataclasses.replace(lattice.cluster, prices=None)))
    parts = []
    for start in range(0, len(indices), _BLOCK):
        points = lattice.points(indices[start : start + _BLOCK], dtype)
        with np.errstate(all="ignore"):  # of hardware beyond anything physical: told by `find_plan`
            parts.append(cost(workload, cluster, map_leaves(_as(dtype), points), _EXACT))
    whole = [[np.broadcast_to(getattr(part, name), np.shape(part.step_s)) for part in parts] for name in _FIELDS]
    return Cost(**dict(zip(_FIELDS, map(np.concatenate, whole), strict=True)))


def _as(dtype: Any) -> Callable[[Any], Any]:
    """Numbers as numbers of a type; arrays have it already."""
    return lambda leaf: leaf if np.ndim(leaf) else dtype(leaf)
