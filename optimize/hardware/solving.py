r"""Best hardware for fixed plans, in one batch, with certificates and shadow prices.

At a fixed plan the logarithms of time, money and watts are convex in the logarithms of the hardware (DESIGN section
6), so the best hardware is a convex problem of a few variables: minimised by cutting planes, the bound valid by
construction. The multipliers of its limits are the shadow prices: one per cent more of a limit lowers the minimised
quantity by so many per cent.
"""

import dataclasses
import enum
from collections.abc import Sequence

import numpy as np

from costmodel import map_leaves
from costmodel.formulas import Hardware
from costmodel.inputs import Plan, PlanPoint, embed
from optimize.hardware import cutting_planes
from optimize.hardware.cutting_planes import Minima
from optimize.hardware.model import HardwareModel
from optimize.question import Problem

TOLERANCE = 1e-3
EXACTLY = 1e-6  # gap of the hardware of the plan that is reported
_STRICT = 1e-9  # a point that misses no limit by so little is one from which to start


class HardwareStatus(enum.Enum):
    """How the search for one plan's hardware ended."""

    solved = "certified within the tolerance"
    unproved = "the gap is above the tolerance"
    dominated = "its lower bound is above the cutoff"
    memory = "the plan needs more memory than is offered"
    accelerators = "the plan needs more accelerators than are allowed"
    infeasible = "no hardware that is offered meets all limits"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HardwareSolutions:
    """Answers for a batch of plans; every array is by plan first."""

    model: HardwareModel
    status: tuple[HardwareStatus, ...]
    logs: np.ndarray  # logarithms of the free variables
    value: np.ndarray  # the minimised quantity; infinite where nothing is known to be feasible
    lower_bound: np.ndarray
    shadow_prices: dict[str, np.ndarray]  # per cent of the value for one per cent more of a limit
    need_prices: dict[str, np.ndarray]  # by memory: per cent of the value for one per cent less that the plan needs
    excess: dict[str, np.ndarray]  # log(value / limit) of each limit at the answer, or where least is missed
    evaluations: int  # of values with all slopes

    @property
    def gap(self) -> np.ndarray:
        """Value over lower bound, minus one."""
        with np.errstate(invalid="ignore"):
            return self.value / self.lower_bound - 1

    @property
    def best(self) -> int:
        """The plan with the least value."""
        return int(np.argmin(self.value))

    def hardware(self, i: int) -> Hardware:
        """What plan `i` would buy."""
        fields = zip(self.model.names, np.exp(self.logs[i]), strict=True)
        whole = self.model.hardware({name: float(value) for name, value in fields})
        return dataclasses.replace(whole, accelerators=float(self.model.accelerators[i]))


def stack(points: Sequence[PlanPoint]) -> PlanPoint:
    """A batch of points: arrays in every field."""
    columns: list[list[float]] = []
    for point in points:
        row: list[float] = []
        map_leaves(row.append, point)
        columns.append(row)
    arrays = iter(np.asarray(columns, float).T)
    return map_leaves(lambda _: next(arrays), points[0])


def solve_hardware(
    problem: Problem,
    *plans: PlanPoint | Sequence[PlanPoint],
    tolerance: float = TOLERANCE,
    cutoff: float = np.inf,
) -> HardwareSolutions:
    """Best hardware for each plan: a batch of points (or a sequence of single ones) for each job of the problem.

    `cutoff`: a value that is known already; plans that cannot be below it are left as soon as that is proved.
    """
    points = tuple(plan if isinstance(plan, PlanPoint) else stack(plan) for plan in plans)
    model = HardwareModel(problem, tuple(map_leaves(_as_double, point) for point in points))
    offered, allowed = model.offered, _allowed(model)
    inside, missed, evaluations = _start(model, offered & allowed)
    startable = offered & allowed & (missed <= 0)
    minima = cutting_planes.nothing_known(inside, len(model.limits), np.inf)
    minima.evaluations = evaluations
    chosen = np.flatnonzero(startable)
    if len(chosen):
        narrow, cut = (1 - 1e-9) * np.log1p(tolerance), float(np.log(cutoff))
        minima.put(chosen, cutting_planes.minimise(model.take(chosen), inside[chosen], narrow, cut))
    return _solutions(model, minima, _causes(offered, allowed, startable), tolerance, cutoff)


def solve_plans(problem: Problem, plans: Sequence[Plan], tolerance: float = EXACTLY) -> HardwareSolutions:
    """The best hardware of one plan for each job."""
    domain, pairs = float(problem.template.tiers[0].usable_size), zip(problem.jobs, plans, strict=True)
    habits = problem.template.stack.habits
    points = [[embed(plan, job.workload, domain, habits)] for job, plan in pairs]
    return solve_hardware(problem, *points, tolerance=tolerance)


def _as_double(leaf: object) -> object:
    return np.asarray(leaf, float) if np.ndim(leaf) else float(leaf)  # pyright: ignore[reportArgumentType]


def _allowed(model: HardwareModel) -> np.ndarray:
    most = model.problem.limits.accelerators
    return np.full(model.length, True) if most is None else model.accelerators <= most


def _causes(offered: np.ndarray, allowed: np.ndarray, startable: np.ndarray) -> list[HardwareStatus | None]:
    """Why a plan has no answer; None where it has one."""
    names = np.full(len(offered), None, object)
    names[~startable] = HardwareStatus.infeasible
    names[~offered] = HardwareStatus.memory
    names[~allowed] = HardwareStatus.accelerators
    return list(names)


def _start(model: HardwareModel, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Points that meet all limits, by how much the others miss them at the least (in logarithms), and evaluations."""
    rows, _ = model.equalities()
    inside, missed = model.low.copy(), np.full(model.length, -np.inf)
    if model.limits:
        missed = model.residual_logs(inside.T).max(axis=0)
    if len(rows):
        missed = np.full(model.length, np.inf)
    search = np.flatnonzero(wanted & (missed > 0)) if len(rows) or not model.timeless else np.array([], int)
    if not len(search):  # money and watts are least at the cheapest corner
        return inside, missed, 0
    meeting = _Meeting(model.take(search))
    least = cutting_planes.minimise(meeting, inside[search], 1e-4, cutoff=0.0, enough=lambda value: value < -_STRICT)
    inside[search] = least.point
    missed[search] = np.where(least.value <= 0, least.value, np.maximum(least.bound, 1e-12))
    return inside, missed, least.evaluations


class _Meeting:
    """The problem of meeting all limits: the one that is missed most is minimised."""

    def __init__(self, model: HardwareModel) -> None:
        self.model, self.low, self.high = model, model.low, model.high

    def evaluate(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, slopes = self.model.evaluate(logs)
        if len(values) == 1:
            return np.full_like(values, -1.0), np.zeros_like(slopes)
        worst = np.argmax(values[1:], axis=0)
        steep = np.take_along_axis(slopes[1:], worst[None, None], axis=0)
        return np.take_along_axis(values[1:], worst[None], axis=0), steep

    def residual_logs(self, logs: np.ndarray) -> np.ndarray:
        return np.empty((0, *logs.shape[1:]))

    def equalities(self) -> tuple[np.ndarray, np.ndarray]:
        return self.model.equalities()

    def take(self, chosen: np.ndarray) -> "_Meeting":
        return _Meeting(self.model.take(chosen))


def _solutions(
    model: HardwareModel,
    minima: Minima,
    causes: list[HardwareStatus | None],
    tolerance: float,
    cutoff: float,
) -> HardwareSolutions:
    value, bound = np.exp(minima.value), np.exp(minima.bound)
    ends = (_ended(reached, proved, tolerance, cutoff) for reached, proved in zip(value, bound, strict=True))
    at_answer = model.residual_logs(minima.point.T)
    return HardwareSolutions(
        model=model,
        status=tuple(cause or end for cause, end in zip(causes, ends, strict=True)),
        logs=minima.point,
        value=value,
        lower_bound=bound,
        shadow_prices={name: minima.limit_weights[:, j] for j, name in enumerate(model.limits)},
        need_prices={name: _need_price(model, minima, name) for name in model.needs if name in model.names},
        excess={name: at_answer[j] for j, name in enumerate(model.limits)},
        evaluations=minima.evaluations,
    )


def _need_price(model: HardwareModel, minima: Minima, name: str) -> np.ndarray:
    """Zero where the least that is offered is more than the plan needs."""
    i = model.names.index(name)
    needed = model.low[:, i] > np.log(model.problem.range_of(name)[0])
    return needed * np.maximum(minima.slope[:, i], 0.0)


def _ended(value: float, bound: float, tolerance: float, cutoff: float) -> HardwareStatus:
    if value <= bound * (1 + tolerance):
        return HardwareStatus.solved
    return HardwareStatus.dominated if bound > cutoff else HardwareStatus.unproved
