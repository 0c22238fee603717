"""One job of several: its rows of degrees on every count at once, and sets of its plans, timed on many hardwares.

What a plan counts and how much memory it needs does not depend on the hardware: a set of plans is counted once, and
then timed wherever it is asked for, in NumPy, without compilation. Of a lattice of some hundred thousand plans those
are kept that may be best somewhere near some hardware: rows of degrees by what their stages take at least, then
families of the best rows, then the plans of the best families that are fastest or lean.
"""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from costmodel import Exact, Scalar, Semantics, as_floats, map_leaves
from costmodel.evaluators import SUBGRADIENT, dual
from costmodel.formulas import (
    OpCounts,
    counts,
    hardware_of,
    memory,
    step,
    timed,
    with_hardware,
)
from costmodel.inputs import RECOMPUTES, ZERO_STAGES, Cluster, Plan, PlanPoint, RecomputeRow, Workload
from optimize.hardware import tangents_of_rows
from optimize.lattice import Families, Lattice, cheapest, with_options
from optimize.plans import any_schedule_s
from optimize.question import RATES, Job, Problem, Tangents

CHUNK = 8_192  # plans that are counted at a time: what lies between two operations stays in the caches
FAMILIES = 6_000  # of one job at one count that are timed at most
LEAN = 0.995  # of the bytes of what is faster: a plan that needs more is not leaner
T = TypeVar("T")
_EXACT = Exact(np)


@dataclasses.dataclass(frozen=True)
class JobRows:
    """Every legal row of degrees of one job, with the count that it fills, in the order of the counts."""

    problem: Problem
    job: Job
    lattice: Lattice
    accelerators: np.ndarray

    @functools.cached_property
    def workload(self) -> Workload:
        """The job's workload as floats."""
        return as_floats(self.job.workload)

    def of(self, count: int) -> np.ndarray:
        """Numbers of the rows of one count."""
        return np.arange(*np.searchsorted(self.accelerators, [count, count + 1]))

    def columns(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Degrees of some rows, and their counts."""
        own = {name: column[rows] for name, column in self.lattice.rows.items()}
        return own | {"accelerators": self.accelerators[rows]}

    @functools.cached_property
    def alone(self) -> Problem:
        """The question with this job alone."""
        return dataclasses.replace(self.problem, jobs=(self.job,))

    def tangents(
        self, rows: np.ndarray, places: np.ndarray, place: np.ndarray, recompute: RecomputeRow | None = None
    ) -> Iterator[tuple[np.ndarray, Tangents]]:
        """Tangents below the weighted seconds of all plans of rows, at one of some places each, by switches; or under
        modes of recompute (the first axis, flattened)."""
        modes = {} if recompute is None else {"recompute": recompute}
        for _, chosen, at in tangents_of_rows(self.alone, self.columns(rows), places, place, **modes):
            yield chosen, of_steps(at, self.steps(rows[chosen]))

    def about_s(self, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Weighted seconds by which rows are ranked, each at its own rates: the geometric mean of 1F1B and of the same
        without a bubble, between which the better schedules lie."""
        lean = cheapest(self.lattice.points_of_rows(rows, np.float64), 1.0, 1.0)
        usual = dataclasses.replace(lean, accelerators=self._count(rows), zero=ZERO_STAGES[1])
        squares = [np.zeros(0)]
        for here in pieces(len(rows)):
            point, machine = _piece(usual, here), machine_at(self.problem, y[here])
            counted = counts(self.workload, point, _EXACT)
            without_s = any_schedule_s(self.lattice, counted, point, machine, _EXACT)
            squares.append(without_s * step(counted, point, machine, _EXACT).step_s)
        return self.steps(rows) * np.sqrt(np.concatenate(squares))

    def steps(self, rows: np.ndarray) -> np.ndarray:
        """What multiplies the seconds of a step."""
        return np.broadcast_to(self.job.weight * self.problem.steps_on(self.job, self._count(rows)), len(rows))

    def _count(self, rows: np.ndarray) -> np.ndarray:
        return self.accelerators[rows].astype(float)

    def part(self, rows: np.ndarray, fixed: Mapping[str, Any]) -> "JobRows":
        """Some of the rows, with the options that `fixed` leaves besides, those without any left out."""
        columns = self.columns(rows)
        own = {**fixed, **self.lattice.fixed}
        return JobRows(self.problem, self.job, *with_options(self.job.workload, self.problem.machine, own, columns))


def of_steps(at: Tangents, steps: np.ndarray) -> Tangents:
    """Tangents of all steps from those of one; steps of some rows, or of these under each of several modes."""
    more = np.log(np.tile(steps, len(at.y) // max(1, len(steps))))
    drawn = None if at.log_drawn is None else at.log_drawn + more
    return at._replace(log_value=at.log_value + more, log_drawn=drawn)


def pieces(n: int) -> list[slice]:
    """Slices of so many that fit into the caches."""
    return [slice(start, start + CHUNK) for start in range(0, n, CHUNK)]


def _piece(point: PlanPoint, here: slice) -> PlanPoint:
    return map_leaves(lambda leaf: leaf[here] if np.ndim(leaf) else leaf, point)


def machine_at(problem: Problem, y: np.ndarray) -> Cluster:
    """The template with rates (logarithms along the last axis)."""
    rates = dict(zip(RATES, np.moveaxis(np.exp(y), -1, 0), strict=True))
    return with_hardware(problem.machine, dataclasses.replace(hardware_of(problem.machine), **rates))


@dataclasses.dataclass(frozen=True)
class PlanSet:
    """Plans of one job, counted: seconds on any hardware follow.

    Each may stand for a family that differs in recompute: what its plans take and need at least.
    """

    rows: JobRows
    numbers: np.ndarray  # in its lattice
    points: PlanPoint
    counted: OpCounts
    peak_bytes: np.ndarray
    steps: np.ndarray

    def __len__(self) -> int:
        return len(self.numbers)

    def seconds(self, y: np.ndarray) -> np.ndarray:
        """Weighted seconds of every plan (last axis) at rates (..., 1 or plans, rates)."""
        return self.times(y)[0]

    def times(self, y: np.ndarray) -> tuple[np.ndarray, ...]:
        """The same, and where the objective has a price the seconds at the usual power that take as much energy."""
        each = self._step_s(dict(zip(RATES, np.moveaxis(np.exp(y), -1, 0), strict=True)), _EXACT)
        return tuple(self.steps * np.broadcast_to(seconds, (*y.shape[:-2], len(self))) for seconds in each)

    def worth(self, y: np.ndarray, times: tuple[np.ndarray, ...]) -> np.ndarray:
        """What the seconds are worth for one accelerator with the memory that each plan needs; or the seconds."""
        if len(times) == 1:
            return times[0]
        problem = self.rows.problem
        have = problem.money.left(problem.limits, np.ones(len(self)), self.peak_bytes)
        second, drawn = problem.money.seconds(y, have)
        return second * times[0] + drawn * times[1]

    def _step_s(self, rates: Mapping[str, Any], sem: Semantics) -> tuple[Scalar, ...]:
        problem, point, counted = self.rows.problem, self.points, self.counted
        template, loads = problem.machine, problem.loads
        machine = with_hardware(template, dataclasses.replace(hardware_of(template), **rates))
        if loads is None:
            return (step(counted, point, machine, sem).step_s,)
        return timed(counted, point, machine, loads, sem)

    def tangents(self, y: np.ndarray) -> Tangents:
        """Logarithms of the weighted seconds of each plan at its own rates, with slopes; where the objective has a
        price also of those at the usual power that take as much energy."""
        rates: dict[str, Any] = dict(zip(RATES, np.exp(y).T, strict=True))
        found = dual.log_gradients(lambda own: self._step_s(own, SUBGRADIENT), rates)
        pairs = [(log_s, np.stack([slopes[name] for name in RATES], axis=-1)) for log_s, slopes in found]
        at = Tangents(
            *pairs[0], y, self.peak_bytes, self.peak_bytes, *(column for pair in pairs[1:] for column in pair)
        )
        return of_steps(at, self.steps)

    def take(self, chosen: np.ndarray) -> "PlanSet":
        """Some of the plans."""

        def of(tree: T) -> T:
            return map_leaves(lambda leaf: leaf[chosen] if np.size(leaf) == len(self) > 1 else leaf, tree)

        own = (self.numbers[chosen], of(self.points), of(self.counted), self.peak_bytes[chosen], self.steps[chosen])
        return PlanSet(self.rows, *own)

    def plan(self, i: int) -> Plan:
        """Plan number `i` of the set."""
        return self.rows.lattice.plan(int(self.numbers[i]))


def plan_set(rows: JobRows, numbers: np.ndarray, families: bool = False) -> PlanSet:
    """Plans by number in the lattice of some rows; or the families of which these are the first."""
    of_row, _ = rows.lattice.select(numbers)
    points = dataclasses.replace(
        rows.lattice.points(numbers, np.float64), accelerators=rows.accelerators[of_row].astype(float)
    )
    modes = [RECOMPUTES["none"], RECOMPUTES["full"]] if families else [points.recompute]
    each = [dataclasses.replace(points, recompute=mode) for mode in modes]
    counted = counts(rows.workload, each[0], _EXACT)
    stack = rows.problem.machine.stack
    peak = functools.reduce(np.minimum, [memory(counted, point, stack, _EXACT).needed_bytes for point in each])
    return PlanSet(rows, numbers, each[0], counted, np.broadcast_to(peak, len(numbers)), rows.steps(of_row))


def near(rows: JobRows, count: int, y: np.ndarray, most_bytes: float, slack: float, keep: int) -> PlanSet | None:
    """Plans of one count that may be best near some rates (hardwares x rates): fast ones, and lean ones.

    `slack`: by what share of the fastest rows and families may be slower; `keep`: plans at each of these rates.
    """
    own = rows.of(count)
    about_s = rows.about_s(own, np.broadcast_to(y[0], (len(own), y.shape[1])))
    order = np.argsort(about_s, kind="stable")
    order = order[about_s[order] <= (1 + slack) * about_s.min(initial=np.inf)]
    part = rows.part(own[order], {})
    families = Families(part.lattice)
    first = families.first(0, min(len(families), FAMILIES))
    first = _kept(part, first, y, most_bytes, 6 * keep, families=True)
    if not len(first):
        return None
    numbers = _kept(part, families.members(first)[0], y, most_bytes, keep)
    return plan_set(part, numbers) if len(numbers) else None


def _kept(
    rows: JobRows,
    numbers: np.ndarray,
    y: np.ndarray,
    most_bytes: float,
    keep: int,
    families: bool = False,
) -> np.ndarray:
    """Numbers of the fastest plans that fit, and of those that need less than all that are faster, at each hardware."""
    sets = [plan_set(rows, numbers[here], families) for here in pieces(len(numbers))]
    if not sets:
        return numbers
    at = y[:, None, :]
    seconds = np.concatenate([each.worth(at, each.times(at)) for each in sets], axis=1)
    peak = np.concatenate([each.peak_bytes for each in sets])
    kept = []
    for own in np.where(peak <= most_bytes, seconds, np.inf):
        order = np.argsort(own, kind="stable")
        order = order[np.isfinite(own[order])]
        least = np.minimum.accumulate(np.concatenate([[np.inf], peak[order]]))[:-1]
        kept += [order[:keep], order[peak[order] < LEAN * least][: 2 * keep]]
    return numbers[np.unique(np.concatenate(kept))]
