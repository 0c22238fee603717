"""The hardware problem as functions of the logarithms of the hardware, batched over plans, with exact gradients.

Values and slopes come from the one formula source through dual numbers (`costmodel.evaluators.dual`), in float64. All
functions are logarithms of generalized posynomials, and so convex: an objective, and residuals that are at most 0
where met.
"""

import copy
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from costmodel import Exact, Scalar, Semantics, as_floats, map_leaves, total
from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import Hardware, OpCounts, counts, hardware_of, memory, timed, with_hardware
from costmodel.inputs import Cluster, PlanPoint, Workload
from costmodel.models import run_by
from optimize.question import Problem, Quantities

T = TypeVar("T")
_EXACT = Exact(np)
_ROUNDED = 1e-13  # the exponential of the logarithm must not be less than what is needed


class _Counted(NamedTuple):
    """One job under a batch of plans: all that does not depend on the hardware."""

    workload: Workload
    point: PlanPoint
    counted: OpCounts
    need_bytes: Scalar
    second_bytes: Scalar


def _count(workload: Workload, point: PlanPoint, template: Cluster) -> _Counted:
    workload = run_by(workload, template.stack.habits)
    counted = counts(workload, point, _EXACT)
    need = memory(counted, point, template.stack, _EXACT)
    return _Counted(workload, point, counted, need.needed_bytes, need.second_bytes)


class HardwareModel:
    """Objective and residuals of `n` plans (each a plan for every job) over the logarithms of the free variables."""

    def __init__(self, problem: Problem, points: tuple[PlanPoint, ...]) -> None:
        self.problem, self.points, self.names = problem, points, problem.free
        self.template = problem.machine
        self.length = max(_length(point) for point in points)
        jobs = zip(problem.jobs, points, strict=True)
        self.jobs = [_count(as_floats(job.workload), point, self.template) for job, point in jobs]
        paid = [bought(point, self.template) for point in points]
        self.accelerators = self._whole(functools.reduce(np.maximum, paid))
        self.idle = self.accelerators - self._whole(functools.reduce(np.maximum, [p.accelerators for p in points]))
        self.needs = {
            "hbm_bytes": self._whole(functools.reduce(np.maximum, [job.need_bytes for job in self.jobs])),
            "second_memory_bytes": self._whole(functools.reduce(np.maximum, [job.second_bytes for job in self.jobs])),
        }
        self.low, self.high = self._box()

    @property
    def training(self) -> np.ndarray:
        """Accelerators that train, and whose failures stop the job."""
        return self.accelerators - self.idle

    def _whole(self, value: Scalar) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, float), (self.length,))

    def _box(self) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the ranges, plans x variables. Less memory than the plan needs is not offered."""
        ranges = np.log([self.problem.range_of(name) for name in self.names])
        low, high = (np.tile(side, (self.length, 1)) for side in ranges.T)
        for i, name in enumerate(self.names):
            if name in self.needs:
                low[:, i] = np.maximum(low[:, i], np.log(np.maximum(self.needs[name], 1.0)) + _ROUNDED)
        return low, high

    @functools.cached_property
    def offered(self) -> np.ndarray:
        """Plans whose memory is within what is offered."""
        kept = np.all(self.low <= self.high, axis=1)
        for name, need_bytes in self.needs.items():
            if name not in self.names:
                kept = kept & (need_bytes <= getattr(self.template.accelerator, name))
        return kept

    def take(self, chosen: np.ndarray) -> "HardwareModel":
        """The model of some of the plans."""

        def of(tree: T) -> T:
            return map_leaves(lambda leaf: leaf[chosen] if np.size(leaf) == self.length > 1 else leaf, tree)

        part = copy.copy(self)
        part.__dict__.pop("offered", None)
        part.low, part.high = self.low[chosen], self.high[chosen]
        part.length, part.points = len(chosen), of(self.points)
        part.jobs = [
            job._replace(
                point=of(job.point),
                counted=of(job.counted),
                need_bytes=of(job.need_bytes),
                second_bytes=of(job.second_bytes),
            )
            for job in self.jobs
        ]
        part.accelerators, part.idle = self.accelerators[chosen], self.idle[chosen]
        part.needs = {name: need[chosen] for name, need in self.needs.items()}
        return part

    def hardware(self, values: Mapping[str, Any]) -> Hardware:
        """The template's hardware with these values."""
        return dataclasses.replace(hardware_of(self.template), **values, accelerators=self.accelerators)

    def times(self, hardware: Hardware, sem: Semantics) -> tuple[tuple[Scalar, ...], tuple[Scalar, ...] | None]:
        """Seconds of a step of each job; and at the usual power, where the objective has a price."""
        machine, loads = with_hardware(self.template, hardware), self.problem.loads
        each = [timed(job.counted, job.point, machine, loads, sem) for job in self.jobs]
        step_s, *drawn_s = zip(*each, strict=True)
        return step_s, drawn_s[0] if drawn_s else None

    def quantities(
        self, hardware: Hardware, step_s: tuple[Scalar, ...], drawn_s: tuple[Scalar, ...] | None = None
    ) -> Quantities:
        """What objective and residuals read, from the hardware and the seconds of a step of each job."""
        return self.problem.quantities(hardware, step_s, self.idle, drawn_s)

    def objective(self, of: Quantities) -> Scalar:
        """The positive quantity that is minimised."""
        steps = total(job.weight * job.steps for job in self.problem.jobs)
        return of.minimised(self.problem.objective, steps)

    def residuals(self, of: Quantities) -> dict[str, Scalar]:
        """Positive quantities that must be at most 1, by name."""
        limits = self.problem.limits
        spent_usd = of.usd_per_s * of.train_s if limits.rent else of.capital_usd
        pairs = [
            ("budget_usd", spent_usd, limits.budget_usd),
            ("power_w", of.usual_w, limits.power_w),
            ("deadline_s", of.train_s, limits.deadline_s),
            ("carbon_g", of.carbon_g, limits.carbon_g),
        ]
        pairs += [
            (f"deadline_s of {job.workload.name}", self.problem.steps_on(job, self.training) * seconds, job.deadline_s)
            for job, seconds in zip(self.problem.jobs, of.step_s, strict=True)
        ]
        own = {name: value / limit for name, value, limit in pairs if limit is not None}
        return own | {name: residual(of) for name, residual in self.problem.residuals.items()}

    @functools.cached_property
    def limits(self) -> tuple[str, ...]:
        """Names of the residuals, in order."""
        hardware = self.hardware({})
        return tuple(self.residuals(self.quantities(hardware, tuple(1.0 for _ in self.jobs))))

    @functools.cached_property
    def timeless(self) -> bool:
        """Whether no residual reads the times: capital and power are a thousandth of the work."""
        problem = self.problem
        timed = [problem.limits.deadline_s, problem.limits.carbon_g, *(job.deadline_s for job in problem.jobs)]
        return not problem.residuals and not problem.limits.rent and timed.count(None) == len(timed)

    def residual_logs(self, logs: np.ndarray) -> np.ndarray:
        """Logarithms of the residuals alone (limits first): at most 0 where all are met."""
        hardware = self.hardware(dict(zip(self.names, np.exp(logs), strict=True)))
        times = (tuple(1.0 for _ in self.jobs), None) if self.timeless else self.times(hardware, _EXACT)
        ratios = self.residuals(self.quantities(hardware, *times)).values()
        shape = (len(self.limits), *logs.shape[1:])
        return np.log(np.stack([np.broadcast_to(x, logs.shape[1:]) for x in ratios])) if ratios else np.empty(shape)

    def equalities(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows of coefficients of the logarithms, and what they sum to."""
        rows = [[powers.get(name, 0.0) for name in self.names] for powers, _ in self.problem.equal]
        return np.reshape(rows, (len(rows), len(self.names))), np.log([value for _, value in self.problem.equal])

    def evaluate(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of objective and residuals (1 + limits first), and their slopes (then variables).

        `logs` are variables first, plans last, and any axes between them.
        """
        values = np.exp(logs)
        seeded = {name: Dual(value, {name: value}) for name, value in zip(self.names, values, strict=True)}
        hardware = self.hardware(seeded)
        of = self.quantities(hardware, *self.times(hardware, SUBGRADIENT))
        results = [self.objective(of), *self.residuals(of).values()]
        return _logarithms(results, self.names, logs.shape[1:])


def _logarithms(results: list[Scalar], names: tuple[str, ...], shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    values, slopes = np.empty((len(results), *shape)), np.zeros((len(results), len(names), *shape))
    for i, result in enumerate(results):
        value, parts = (result.value, result.parts) if isinstance(result, Dual) else (result, {})
        values[i] = np.log(value)
        for j, name in enumerate(names):
            if name in parts:
                slopes[i, j] = parts[name] / value
    return values, slopes


def bought(point: PlanPoint, template: Cluster) -> Scalar:
    """Accelerators that a plan pays for: all of every innermost domain that it touches."""
    return point.accelerators * template.tiers[0].size / point.domain


def _length(point: PlanPoint) -> int:
    lengths = {1}
    map_leaves(lambda leaf: lengths.add(np.size(leaf)), point)
    return max(lengths)
