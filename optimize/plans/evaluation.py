"""Plans of a lattice evaluated by NumPy: in float32 for searches, in float64 for what is told."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel import Exact, as_floats, map_leaves
from costmodel.formulas import Cost, cost
from costmodel.inputs import PlanPoint
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
    return lambda chunk: cost_of(lattice, chunk.indices, lattice.points, np.float32)


def exactly(lattice: Lattice, indices: np.ndarray) -> Cost:
    """Cost of the plans with these numbers, in float64."""
    return cost_of(lattice, indices, lattice.points, np.float64)


def cost_of(
    lattice: Lattice, indices: np.ndarray, points_of: Callable[[np.ndarray, Any], PlanPoint], dtype: Any
) -> Cost:
    """Cost of the points that `points_of` gives for plans with these numbers."""
    workload = map_leaves(dtype, as_floats(lattice.workload))
    cluster = map_leaves(dtype, as_floats(dataclasses.replace(lattice.cluster, prices=None)))
    parts = []
    for start in range(0, len(indices), _BLOCK):
        points = points_of(indices[start : start + _BLOCK], dtype)
        with np.errstate(all="ignore"):  # of hardware beyond anything physical: told by `find_plan`
            parts.append(cost(workload, cluster, map_leaves(_as(dtype), points), _EXACT))
    if not parts:
        return Cost(step_s=np.empty(0), peak_bytes=np.empty(0), second_bytes=np.empty(0))
    whole = [[np.broadcast_to(getattr(part, name), np.shape(part.step_s)) for part in parts] for name in _FIELDS]
    return Cost(**dict(zip(_FIELDS, map(np.concatenate, whole), strict=True)))


def _as(dtype: Any) -> Callable[[Any], Any]:
    """Numbers as numbers of a type; arrays have it already."""
    return lambda leaf: leaf if np.ndim(leaf) else dtype(leaf)
