"""Vectors in the unit cube as plans and rates: the decoding that all vectorised baselines are given.

A gene for the count, one for each rate, and for each job one for each degree and one for each axis of options. Degrees
are decoded one after the other, each to the nearest of what is legal after the ones before it (in log2), so every
vector is a legal plan, and a gene keeps its meaning when another changes. Options are entries of the axes of the
lattice that are legal with the degrees. What is enumerated is what the solver enumerates: `bounding.families_of`.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel import map_leaves
from costmodel.inputs import Plan, PlanPoint, Workload
from optimize.clusters import cells
from optimize.lattice import Axis, Lattice, lattice
from optimize.question import RATES, Problem, sized

DECODED = ("tensor", "pipeline", "context", "expert", "expert_tensor", "microbatch")
_APART = 64.0  # between the children of two nodes: more than any log2 of a degree


Level = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The children of all nodes of one level, in order: the first and the last of each node, and their keys (number of the
parent times `_APART`, plus log2 of the degree)."""


def _nearest(level: Level, node: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The child of each node whose degree is nearest."""
    (first, last, keys), target = level, node * _APART + wanted
    above = np.clip(np.searchsorted(keys, target), first[node], last[node])
    below = np.maximum(above - 1, first[node])
    return np.where(np.abs(keys[below] - target) <= np.abs(keys[above] - target), below, above)


@dataclasses.dataclass(frozen=True)
class Plans:
    """All legal plans of one job on all counts: one lattice whose rows also have a count, sorted as a tree."""

    lattice: Lattice
    accelerators: np.ndarray
    levels: tuple[Level, ...]
    top: np.ndarray  # log2 of the largest degree of each level

    @property
    def genes(self) -> int:
        """Genes of one plan."""
        return len(DECODED) + len(self.lattice.axes)

    def decode(self, count: np.ndarray, genes: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The row of degrees and the entry of each axis, from the number of the count and genes in [0, 1]."""
        node = count
        for level, most, gene in zip(self.levels, self.top, genes.T, strict=False):
            node = _nearest(level, node, most * gene)
        options = genes[:, len(DECODED) :].T
        entries = [
            axis.offset[node] + np.minimum((gene * axis.count[node]).astype(int), axis.count[node] - 1)
            for axis, gene in zip(self.lattice.axes, options, strict=True)
        ]
        return node, entries

    def index(self, row: np.ndarray, entries: list[np.ndarray]) -> np.ndarray:
        """The number of a plan in the lattice."""
        place = np.zeros(len(row), np.int64)
        for axis, entry in zip(self.lattice.axes, entries, strict=True):
            place = place * axis.count[row] + entry - axis.offset[row]
        return self.lattice.ends[row] - self.sizes[row] + place

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Plans of each row."""
        return np.diff(self.lattice.ends, prepend=0)

    def points(self, index: np.ndarray, dtype: Any) -> PlanPoint:
        """What the cost model reads."""
        points = self.lattice.points(index, dtype)
        row = np.searchsorted(self.lattice.ends, index, side="right")
        return dataclasses.replace(points, accelerators=self.accelerators[row].astype(dtype))

    def plan(self, index: int) -> Plan:
        """The plan of one number."""
        return self.lattice.plan(index)


class Encoding:
    """Counts, rates and the plans of every job as genes."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        whole = _counts(problem)
        workloads = [job.workload for job in problem.jobs]
        lattices = [[_lattice(problem, workload, count) for count in whole] for workload in workloads]
        kept = [i for i in range(len(whole)) if all(len(of[i]) for of in lattices)]
        self.counts = np.array([whole[i] for i in kept])
        self.jobs = [_merged([of[i] for i in kept], self.counts) for of in lattices]
        self.low, self.high = problem.ends

    @property
    def genes(self) -> int:
        """Genes of one vector."""
        return 1 + len(RATES) + sum(job.genes for job in self.jobs)

    @property
    def points(self) -> list[Callable[[np.ndarray], PlanPoint]]:
        """What makes the points of each job's plans, in float64."""
        return [functools.partial(job.points, dtype=np.float64) for job in self.jobs]

    def decode(self, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Counts, logarithms of the rates and the number of each job's plan."""
        logs = np.log2(self.counts)
        wanted = logs[0] + genes[:, 0] * (logs[-1] - logs[0])
        above = np.clip(np.searchsorted(logs, wanted), 1, max(1, len(logs) - 1)) if len(logs) > 1 else 0 * wanted
        above = above.astype(int)
        below = np.maximum(above - 1, 0)
        count = np.where(wanted - logs[below] <= logs[above] - wanted, below, above)
        y = self.low + genes[:, 1 : 1 + len(RATES)] * (self.high - self.low)
        start, plans = 1 + len(RATES), []
        for job in self.jobs:
            plans.append(job.index(*job.decode(count, genes[:, start : start + job.genes])))
            start += job.genes
        return self.counts[count], y, plans


def _counts(problem: Problem) -> list[int]:
    """Every count, as the solver has them."""
    return [cell.accelerators for cell in cells(problem)]


def _lattice(problem: Problem, workload: Workload, count: int) -> Lattice:
    return lattice(
        workload, sized(problem.machine, count), {**problem.fixed, "domain": problem.domain}, every_shard=False
    )


def _merged(lattices: list[Lattice], counts: np.ndarray) -> Plans:
    """One lattice of all counts, its rows in the order of the tree."""
    names = lattices[0].rows
    rows = {name: np.concatenate([of.rows[name] for of in lattices]) for name in names}
    number = np.repeat(np.arange(len(lattices)), [len(of.ends) for of in lattices])
    axes = [_joined([of.axes[i] for of in lattices]) for i in range(len(lattices[0].axes))]
    order = np.lexsort([rows[name] for name in reversed(DECODED)] + [number])
    rows, number = {name: column[order] for name, column in rows.items()}, number[order]
    axes = tuple(axis.at(order) for axis in axes)
    sizes = functools.reduce(np.multiply, (axis.count for axis in axes))
    whole = dataclasses.replace(lattices[0], rows=rows, axes=axes, ends=np.cumsum(sizes))
    levels, top = _levels(number, rows)
    return Plans(whole, counts[number], levels, top)


def _joined(parts: list[Axis]) -> Axis:
    """One table after the other."""
    shifts = np.cumsum([0, *(len(next(iter(part.table.values()))) for part in parts[:-1])])
    embedded = {}
    for dtype in parts[0].embedded:
        own: dict[str, Any] = {}
        for name in parts[0].embedded[dtype]:
            columns = zip(*(_leaves(part.embedded[dtype][name]) for part in parts), strict=True)
            joined = iter([np.concatenate(column) for column in columns])
            own[name] = map_leaves(lambda _, joined=joined: next(joined), parts[0].embedded[dtype][name])
        embedded[dtype] = own
    return Axis(
        {name: np.concatenate([part.table[name] for part in parts]) for name in parts[0].table},
        np.concatenate([part.offset + shift for part, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([part.count for part in parts]),
        embedded,
    )


def _leaves(tree: Any) -> list[Any]:
    leaves: list[Any] = []
    map_leaves(leaves.append, tree)
    return leaves


def _levels(number: np.ndarray, rows: dict[str, np.ndarray]) -> tuple[tuple[Level, ...], np.ndarray]:
    """Rows are sorted; a node is a run of rows that agree in everything up to its level."""
    parent, levels, top = number, [], []
    for name in DECODED:
        column = rows[name]
        starts = np.flatnonzero(np.r_[True, (np.diff(parent) != 0) | (np.diff(column) != 0)])
        node = np.searchsorted(starts, np.arange(len(column)), side="right") - 1
        above = parent[starts]
        first = np.searchsorted(above, np.arange(above[-1] + 1))
        levels.append((first, np.r_[first[1:], len(starts)] - 1, above * _APART + np.log2(column[starts])))
        parent = node
        top.append(float(np.log2(column.max())))
    assert parent[-1] == len(number) - 1, "degrees that are not decoded"
    return tuple(levels), np.array(top)
