"""Vectors of the unit cube as clusters with a plan for each job: what evolution, and every black box, varies.

A gene for the count, one for each rate, and for each job one for each degree and one for each axis of options. Degrees
are decoded one after the other, each to the nearest of what is legal after the ones before it (in log2), so every
vector is a legal plan, and a gene keeps its meaning when another changes. Options are entries of the axes of the
lattice that are legal with the degrees. All legal plans on all counts take part.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from costmodel.inputs import Plan, PlanPoint
from optimize.clusters.counts import cells
from optimize.clusters.valued import Valued, valued
from optimize.lattice import SORTED as DECODED
from optimize.lattice import Lattice, lattice_of_counts, with_options
from optimize.question import RATES, Job, Problem

_SIZES = np.array([0.003, 0.01, 0.03, 0.1, 0.3])  # of a gene's step
ANEW = 0.2  # of children
_APART = 64.0  # between the children of two nodes: more than any log2 of a degree

Level = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The children of all nodes of one level, in order: the first and the last of each node, and their keys (number of the
parent times `_APART`, plus log2 of the degree)."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """All legal plans of one job on some counts: one lattice whose rows also have a count, sorted as a tree."""

    lattice: Lattice
    accelerators: np.ndarray
    levels: tuple[Level, ...]
    top: np.ndarray  # log2 of the largest degree of each level

    @property
    def genes(self) -> int:
        """Genes of one plan."""
        return len(DECODED) + len(self.lattice.axes)

    def decode(self, count: np.ndarray, genes: np.ndarray) -> np.ndarray:
        """Numbers of plans in the lattice, from those of the counts and genes in [0, 1]."""
        row = count
        for level, most, gene in zip(self.levels, self.top, genes.T, strict=False):
            row = _nearest(level, row, most * gene)
        place = np.zeros(len(row), np.int64)
        for axis, gene in zip(self.lattice.axes, genes[:, len(DECODED) :].T, strict=True):
            size = axis.count[row]
            place = place * size + np.minimum((gene * size).astype(int), size - 1)
        return self.lattice.ends[row] - self.sizes[row] + place

    @functools.cached_property
    def sizes(self) -> np.ndarray:
        """Plans of each row."""
        return np.diff(self.lattice.ends, prepend=0)

    def points(self, numbers: np.ndarray) -> PlanPoint:
        """What the cost model reads."""
        row = np.searchsorted(self.lattice.ends, numbers, side="right")
        accelerators = self.accelerators[row].astype(float)
        return dataclasses.replace(self.lattice.points(numbers, np.float64), accelerators=accelerators)

    def plan(self, number: int) -> Plan:
        """The plan of one number."""
        return self.lattice.plan(int(number))


class Genes:
    """Counts, rates and the plans of every job as genes. `rows`: degrees of the only job and their `accelerators`,
    where not all take part."""

    def __init__(self, problem: Problem, rows: Mapping[str, np.ndarray] | None = None) -> None:
        self.problem, (self.low, self.high) = problem, problem.ends
        if rows is None:
            every = np.array([cell.accelerators for cell in cells(problem)], int)
            found = [_plans_of(problem, job, every) for job in problem.jobs]
        else:
            every, found = np.unique(rows["accelerators"]), [_plans_of_rows(problem, rows)]
        self.counts = functools.reduce(np.intersect1d, (accelerators for _, accelerators in found), every)
        self.jobs = [_tree(whole, accelerators, self.counts) for whole, accelerators in found]

    def __len__(self) -> int:
        return 1 + len(RATES) + sum(job.genes for job in self.jobs)

    @property
    def degrees(self) -> list[slice]:
        """The genes of the degrees of each job."""
        ends = np.cumsum([1 + len(RATES), *(job.genes for job in self.jobs)])[:-1].tolist()
        return [slice(start, start + len(DECODED)) for start in ends]

    def counts_of(self, genes: np.ndarray) -> np.ndarray:
        """The number of each vector's count, the nearest one in log2."""
        logs = np.log2(self.counts)
        return np.searchsorted(0.5 * (logs[1:] + logs[:-1]), logs[0] + genes[:, 0] * (logs[-1] - logs[0]))

    def decode(self, genes: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Counts, logarithms of the rates and the number of each job's plan."""
        count = self.counts_of(genes)
        start, plans = 1 + len(RATES), []
        y = self.low + genes[:, 1:start] * (self.high - self.low)
        for job in self.jobs:
            plans.append(job.decode(count, genes[:, start : start + job.genes]))
            start += job.genes
        return self.counts[count], y, plans


class Found(NamedTuple):
    """One cluster with a plan for each job, and the logarithm of the minimised value there."""

    log_value: float
    accelerators: int
    plans: tuple[Plan, ...]
    y: np.ndarray
    hbm_bytes: float


class Values:
    """The value of every vector of some genes."""

    def __init__(self, genes: Genes) -> None:
        self.genes, self.evaluations = genes, 0

    def __call__(self, vectors: np.ndarray) -> Valued:
        """Decode and evaluate a batch."""
        self.evaluations += len(vectors)
        accelerators, y, plans = self.genes.decode(vectors)
        points = [tree.points(numbers) for tree, numbers in zip(self.genes.jobs, plans, strict=True)]
        return valued(self.genes.problem, accelerators, y, points, plans)

    def found(self, of: Valued, place: int) -> Found:
        """What one vector of a batch stands for."""
        plans = tuple(tree.plan(numbers[place]) for tree, numbers in zip(self.genes.jobs, of.plans, strict=True))
        value, count, hbm_bytes = of.log_value[place], of.accelerators[place], of.hbm_bytes[place]
        return Found(float(value), int(count), plans, of.y[place], float(hbm_bytes))


def children(
    first: np.ndarray, second: np.ndarray, generator: np.random.Generator, degrees: Sequence[slice] = ()
) -> np.ndarray:
    """One of each pair of parents: some genes of the second, a few moved; or the first with all `degrees` of one job
    anew, since what is as good as its degrees may differ from them in several at once."""
    n, shape = len(first), first.shape
    crossed = (generator.random((n, 1)) < 0.4) & (generator.random(shape) < 0.5)
    born = np.where(crossed, second, first)
    moved = generator.random(shape) < generator.choice([1.0, 2.0, 4.0], (n, 1)) / shape[1]
    moved[np.arange(n), generator.integers(shape[1], size=n)] = True
    stepped = reflected(born + generator.choice(_SIZES, (n, 1)) * generator.standard_normal(shape))
    anew = generator.random(shape) < 0.15
    born = np.where(moved, np.where(anew, generator.random(shape), stepped), born)
    if degrees:
        some = np.flatnonzero(generator.random(n) < ANEW)
        own = degrees[int(generator.integers(len(degrees)))]
        born[some] = first[some]
        born[some, own] = generator.random((len(some), own.stop - own.start))
    return born


def reflected(x: np.ndarray) -> np.ndarray:
    """Folded back into [0, 1] at its ends."""
    folded = np.abs(x) % 2.0
    return np.where(folded > 1.0, 2.0 - folded, folded)


def _plans_of(problem: Problem, job: Job, counts: np.ndarray) -> tuple[Lattice, np.ndarray]:
    return lattice_of_counts(job.workload, problem.machine, {**problem.fixed, "domain": problem.domain}, counts)


def _plans_of_rows(problem: Problem, rows: Mapping[str, np.ndarray]) -> tuple[Lattice, np.ndarray]:
    order = np.lexsort([rows[name] for name in (*DECODED[::-1], "accelerators")])
    own = {name: column[order] for name, column in rows.items()}
    return with_options(problem.job.workload, problem.machine, {**problem.fixed, "domain": problem.domain}, own)


def _nearest(level: Level, node: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The child of each node whose degree is nearest."""
    (first, last, keys), target = level, node * _APART + wanted
    above = np.clip(np.searchsorted(keys, target), first[node], last[node])
    below = np.maximum(above - 1, first[node])
    return np.where(np.abs(keys[below] - target) <= np.abs(keys[above] - target), below, above)


def _tree(whole: Lattice, accelerators: np.ndarray, counts: np.ndarray) -> Tree:
    """The rows of some counts; they are in the order of the tree."""
    if len(counts) < len(np.unique(accelerators)):
        own = np.flatnonzero(np.isin(accelerators, counts))
        whole, accelerators = whole.with_rows(own), accelerators[own]
    number = np.searchsorted(counts, accelerators)
    parent, levels, top = number, [], []
    for name in DECODED:
        column = whole.rows[name]
        starts = np.flatnonzero(np.diff(parent, prepend=-1) | np.diff(column, prepend=-1))
        above = parent[starts]
        first = np.searchsorted(above, np.arange(above[-1] + 1)) if len(above) else starts
        levels.append((first, np.r_[first[1:], len(starts)] - 1, above * _APART + np.log2(column[starts])))
        parent = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(column)))
        top.append(float(np.log2(column.max(initial=1))))
    return Tree(whole, accelerators, tuple(levels), np.array(top))
