"""The composition: one step of a workload on a cluster under a plan.

`cost` is the lean objective that searches evaluate in millions, and that anyone may differentiate or put into a loss;
`evaluate.evaluate` is the host's entry, which explains everything. Both are the same formulas.
"""

from typing import NamedTuple, TypeVar

from costmodel.formulas.counts import OpCounts, counts
from costmodel.formulas.memory import MemoryUse, memory
from costmodel.formulas.roofline import rates
from costmodel.formulas.schedule import StepTime, step_time
from costmodel.formulas.timing import OpTimes, timing
from costmodel.inputs import Cluster, PlanPoint, Workload
from costmodel.pytree import as_float, map_leaves, pytree
from costmodel.semantics import Scalar, Semantics

T = TypeVar("T")


@pytree
class Cost:
    """What a search compares."""

    step_s: Scalar
    peak_bytes: Scalar  # of the fullest stage
    second_bytes: Scalar = 0.0  # of the second memory, on the stage that has most there


class Parts(NamedTuple):
    """Every intermediate result of one evaluation."""

    counts: OpCounts
    times: OpTimes
    step: StepTime
    memory: MemoryUse


def cost(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Cost:
    """Seconds of a step and bytes at the peak: pure, differentiable in every leaf, element by element.

    Leaves must be floats or arrays of one dtype (`as_floats`); shapes broadcast.
    """
    result = parts(workload, cluster, point, sem)
    held = result.memory
    return Cost(step_s=result.step.step_s, peak_bytes=held.peak_bytes, second_bytes=held.second_bytes)


def parts(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Parts:
    """The same evaluation with all that it computed on the way."""
    stack = cluster.stack
    counted = counts(workload, point, sem)
    times = timing(counted, point, cluster, stack, sem)
    speed = rates(cluster.accelerator, point, stack)
    step = step_time(counted, times, point, stack, speed, sem)
    return Parts(counts=counted, times=times, step=step, memory=memory(counted, point, stack, sem))


def as_floats(tree: T) -> T:
    """Every number among the leaves as a Python float: files give integers, and integers overflow where floats do not.

    Arrays and traced values pass unchanged.
    """
    return map_leaves(as_float, tree)
