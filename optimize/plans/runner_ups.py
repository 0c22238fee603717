"""The best plans of another shape, and the smallest change of the hardware that would make each of them win."""

import dataclasses
import itertools
import math

import numpy as np

from costmodel import Exact
from costmodel.evaluators import memory_by_stage, prepare
from costmodel.formulas import cost, limit_bytes, peak
from costmodel.inputs import Cluster, Plan, Workload
from optimize.diagnosis import Leaf, parameters, read_leaf, with_leaves
from optimize.lattice import Lattice
from optimize.plans.best import Best, Entry, cell_degrees

RANGE = 4.0  # factor either way within which changes are looked for
_STEPS = 160  # from 1 to it: 0.9 % each
_EXACT = Exact(np)


Change = tuple[Leaf, float]
"""One parameter of the machine, so many times what it is, with all else kept."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunnerUp:
    """The best plan with other tensor and pipeline degrees. `wins_with` is None where no one change suffices."""

    plan: Plan
    value: float
    behind: float  # relative to the best
    wins_with: Change | None


def runner_ups(whole: Lattice, best: Best, count: int = 3) -> tuple[RunnerUp, ...]:
    """Plans by value, each the best of its tensor and pipeline degree."""
    first = whole.plan(best.top[0].index)
    others = [e for cell, e in best.cells.items() if cell_degrees(cell) != (first.tensor, first.pipeline)]
    ordered = (entry for entry in sorted(others, key=lambda entry: entry.key) if _fits(whole, entry))
    return tuple(_runner_up(whole, first, best.top[0].value, entry) for entry in itertools.islice(ordered, count))


def _fits(whole: Lattice, entry: Entry) -> bool:
    return fits_by_stage(whole.workload, whole.cluster, whole.plan(entry.index))


def fits_by_stage(workload: Workload, cluster: Cluster, plan: Plan) -> bool:
    """Whether a plan fits in every stage, each with its own kinds of layer."""
    stages = memory_by_stage(workload, cluster, plan)
    return all(peak(stage, Exact(math)) <= limit_bytes(cluster) for stage in stages)


def _runner_up(whole: Lattice, first: Plan, value: float, entry: Entry) -> RunnerUp:
    plan = whole.plan(entry.index)
    change = winning_change(whole.workload, whole.cluster, first, plan)
    return RunnerUp(plan=plan, value=entry.value, behind=entry.value / value - 1, wins_with=change)


def winning_change(workload: Workload, cluster: Cluster, first: Plan, other: Plan) -> Change | None:
    """The change nearest to none, of one parameter up to `RANGE` either way, at which `other` is as fast as `first`."""
    logs = np.linspace(-1.0, 1.0, 2 * _STEPS + 1)
    factors, wanted = RANGE**logs, [p for p in parameters(cluster, first) if p.hardware]
    seconds = (_seconds(workload, cluster, plan, wanted, factors) for plan in (other, first))
    changes: list[Change] = []
    for parameter, ratio in zip(wanted, np.divide(*seconds), strict=True):
        wins = np.flatnonzero(ratio <= 1)
        if len(wins):
            nearest = wins[np.argmin(np.abs(logs[wins]))]
            changes.append((parameter, float(factors[nearest])))
    return min(changes, key=lambda change: abs(np.log(change[1])), default=None)


def _seconds(workload: Workload, cluster: Cluster, plan: Plan, wanted: list[Leaf], factors: np.ndarray) -> np.ndarray:
    """Of one step, by parameter and factor: one evaluation for all."""
    numbers, machine, point = prepare(workload, cluster, plan)
    leaves = {}
    for row, parameter in enumerate(wanted):
        changed = np.ones((len(wanted), len(factors)))
        changed[row] = factors
        leaves[parameter.path] = read_leaf(cluster, parameter.path) * changed.ravel()
    step_s = cost(numbers, with_leaves(machine, leaves), point, _EXACT).step_s
    return np.broadcast_to(step_s, len(wanted) * len(factors)).reshape(len(wanted), len(factors))
