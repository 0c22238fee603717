"""First answers for one job, without compilation: evolution over counts, degrees, options and rates in NumPy.

An individual is a vector of the unit cube: six degrees, the microbatch, one number for each axis of options, the rates.
Its row of degrees is the nearest legal one of any count (in log2), its options are those that are legal there, its
memory is what the plan needs and its rates are moved onto the limits: every individual is a legal plan on hardware that
the limits allow, unless even the least rates are too much. Children of two parents move a few genes by steps of several
sizes, the best are kept (mu + lambda). What comes out is polished by the convex step (`bounding.polish`).
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from costmodel import Exact, as_floats
from costmodel.formulas import OpCounts, counts, hardware_of, memory, step, timed, with_hardware
from costmodel.inputs import Cluster, Plan, PlanPoint
from optimize.clusters.counts import most_accelerators
from optimize.hardware import project
from optimize.lattice import Lattice, lattice_of_rows, rows_of_counts, with_microbatch
from optimize.question import RATES, Left, Objective, Problem

LIVES, YOUNG, GENERATIONS = 3, 12, 16  # populations that start anew, their generations, and those of all together
CHILDREN, PARENTS = 224, 14
_DEGREES = ("tensor", "context", "pipeline", "data", "expert", "expert_tensor")
_SIZES = np.array([0.003, 0.01, 0.03, 0.1, 0.3])  # of a gene's step
_INFEASIBLE = 1e3  # of a logarithm: above every feasible one
_EXACT = Exact(np)


class Evolved(NamedTuple):
    """A plan on a count with hardware near its best, and the logarithm of the minimised value there."""

    log_value: float
    accelerators: int
    plan: Plan
    y: np.ndarray


class _Born(NamedTuple):
    """Decoded individuals that have an option: their plans by number in a lattice of their rows, and their count."""

    lattice: Lattice
    numbers: np.ndarray
    accelerators: np.ndarray
    places: np.ndarray  # of them among all

    @property
    def points(self) -> PlanPoint:
        points = self.lattice.points(self.numbers, np.float64)
        return dataclasses.replace(points, accelerators=self.accelerators.astype(float))


def evolve(problem: Problem, seed: int) -> Iterator[tuple[list[Evolved], int]]:
    """The best different plans, best first, and how many were evaluated since: early ones, and then the last."""
    decoder, generator = _Decoder(problem), np.random.default_rng(seed)
    if not len(decoder.rows["tensor"]):
        return
    lives = []
    for life in range(LIVES):
        lives.append(_live(decoder, generator.random((2 * CHILDREN, decoder.genes)), generator, YOUNG))
        if life == 0:
            yield decoder.found(lives[0]), decoder.counted()
    yield decoder.found(_live(decoder, np.concatenate(lives), generator, GENERATIONS)), decoder.counted()


def _live(decoder: "_Decoder", population: np.ndarray, generator: np.random.Generator, generations: int) -> np.ndarray:
    """The best of a population after some generations, best first."""
    scores = decoder.values(population)[0]
    for _ in range(generations):
        first = np.unique(scores, return_index=True)[1][:PARENTS]  # of equal values one: the same plan
        born = _children(population[first], generator)
        population = np.concatenate([population[first], born])
        scores = np.concatenate([scores[first], decoder.values(born)[0]])
    return population[np.unique(scores, return_index=True)[1][:PARENTS]]


def _children(parents: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    shape = (CHILDREN, parents.shape[1])
    one, other = generator.integers(len(parents), size=(2, CHILDREN))
    crossed = (generator.random((CHILDREN, 1)) < 0.4) & (generator.random(shape) < 0.5)
    born = np.where(crossed, parents[other], parents[one])
    moved = generator.random(shape) < generator.choice([1.0, 2.0, 4.0], (CHILDREN, 1)) / shape[1]
    moved[np.arange(CHILDREN), generator.integers(shape[1], size=CHILDREN)] = True
    stepped = np.abs(born + generator.choice(_SIZES, (CHILDREN, 1)) * generator.standard_normal(shape)) % 2.0
    stepped = np.where(stepped > 1.0, 2.0 - stepped, stepped)  # folded back at the ends
    anew = generator.random(shape) < 0.15
    return np.where(moved, np.where(anew, generator.random(shape), stepped), born)


class _Decoder:
    """From vectors to plans and their values."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.evaluations = problem, 0
        self.fixed = {**problem.fixed, "domain": problem.domain}
        job = problem.job
        self.rows = rows_of_counts(job.workload, problem.machine, self.fixed, most_accelerators(problem))
        self.logs = np.log2(np.stack([self.rows[name] for name in _DEGREES], -1).astype(float))
        self.spans = self.logs.max(axis=0, initial=0.0)
        self.workload = as_floats(job.workload)

    @property
    def genes(self) -> int:
        """Of one individual: degrees, microbatch, four axes of options, rates."""
        return len(_DEGREES) + 1 + 4 + len(RATES)

    def counted(self) -> int:
        """Evaluations since this was last asked."""
        found, self.evaluations = self.evaluations, 0
        return found

    @functools.cached_property
    def _tree(self):
        from scipy.spatial import KDTree

        return KDTree(self.logs)

    def decode(self, genes: np.ndarray) -> tuple[_Born, np.ndarray]:
        """Plans and logarithms of rates; of those without an option nothing is left."""
        k, (low, high) = len(_DEGREES), self.problem.ends
        _, nearest = self._tree.query(genes[:, :k] * self.spans)
        rows = {name: column[nearest] for name, column in self.rows.items()}
        rows = with_microbatch(rows, self.problem.job.workload, genes[:, k], self.fixed)
        accelerators = rows.pop("accelerators")
        whole = lattice_of_rows(self.problem.job.workload, self.problem.machine, self.fixed, rows)
        kept = np.flatnonzero(functools.reduce(np.multiply, (axis.count for axis in whole.axes)) > 0)
        place = np.zeros(len(kept), np.int64)
        for axis, gene in zip(whole.axes, genes[kept, k + 1 : k + 5].T, strict=True):
            count = axis.count[kept]
            place = place * count + np.minimum((gene * count).astype(int), count - 1)
        index = whole.ends[kept] - np.diff(whole.ends, prepend=0)[kept] + place
        y = low + (high - low) * genes[kept, k + 5 :]
        return _Born(whole, index, accelerators[kept], kept), y

    def values(self, genes: np.ndarray) -> tuple[np.ndarray, _Born, np.ndarray]:
        """Logarithms of the minimised value of each, and plans and rates of those that have an option."""
        born, y = self.decode(genes)
        scores = np.full(len(genes), 2 * _INFEASIBLE)
        scores[born.places], y = self._evaluate(born, y)
        self.evaluations += len(genes)
        return scores, born, y

    def _evaluate(self, born: _Born, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        problem, money, points = self.problem, self.problem.money, born.points
        counted, n = counts(self.workload, points, _EXACT), len(y)
        need = np.broadcast_to(memory(counted, points, problem.machine.stack, _EXACT).needed_bytes, n)
        have = money.left(problem.limits, born.accelerators.astype(float), need)
        y = project(problem, have, y, problem.spends_all)
        own = dataclasses.replace(hardware_of(problem.machine), **dict(zip(RATES, np.exp(y).T, strict=True)))
        machine = with_hardware(problem.machine, own)
        log_s, value, log_carbon_g = self._values(counted, points, machine, y, have)
        if problem.objective is not Objective.step:
            more = np.log(problem.steps_on(problem.job, born.accelerators.astype(float)))
            log_s, value, log_carbon_g = log_s + more, value + more, log_carbon_g + more
        value = value + (0.0 if problem.fill else np.log(born.accelerators))
        missed = [np.log(need / problem.most_hbm_bytes)]
        for spent, spare in ((money.usd(y), have.usd), (money.watt(y), have.watt)):
            missed.append(np.log(np.maximum(spent / np.maximum(spare, 1e-3 * spent), 1e-300)) - 1e-9)
        if problem.limits.deadline_s is not None and not problem.fill:  # the fastest is told, late or not
            missed.append(log_s - np.log(problem.limits.deadline_s))
        if problem.limits.carbon_g is not None:
            missed.append(log_carbon_g + np.log(born.accelerators) - problem.log_carbon_g)
        worst = np.max(missed, axis=0)
        return np.where(worst > 0, _INFEASIBLE + worst, value), y

    def _values(
        self, counted: OpCounts, points: PlanPoint, machine: Cluster, y: np.ndarray, have: Left
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logarithms of the seconds of a step, and for one accelerator of what it is worth and of its CO2, where that
        is limited."""
        problem, shape = self.problem, len(y)
        if problem.loads is None:
            log_s = np.log(np.broadcast_to(step(counted, points, machine, _EXACT).step_s, shape))
            return log_s, log_s + np.log(problem.money.price(y, have)), np.zeros(shape)
        step_s, drawn_s = timed(counted, points, machine, problem.loads, _EXACT)
        pairs = [(1.0, 0.0), *(money.seconds(y, have) for money in (problem.money, problem.carbon or problem.money))]
        log_s, value, carbon_g = (
            np.log(np.broadcast_to(second * step_s + drawn * drawn_s, shape)) for second, drawn in pairs
        )
        return log_s, value, carbon_g

    def found(self, genes: np.ndarray) -> list[Evolved]:
        """Feasible ones as plans, each once."""
        scores, born, y = self.values(genes)
        found: dict[tuple[int, Plan], Evolved] = {}
        for place, i in enumerate(born.places):
            key = int(born.accelerators[place]), born.lattice.plan(int(born.numbers[place]))
            if scores[i] < _INFEASIBLE:
                found.setdefault(key, Evolved(float(scores[i]), *key, y[place]))
        return sorted(found.values(), key=lambda each: each.log_value)
