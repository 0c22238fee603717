"""The composition: one step of a workload on a cluster under a plan.

`cost` is the lean objective that searches evaluate in millions, and that anyone may differentiate or put into a loss;
`evaluate.evaluate` is the host's entry, which explains everything. Both are the same formulas, in this order: `counts`,
`timing`, then what a step adds up over its blocks (`work`), and then the maxima of these sums (`finished`).
"""

from typing import NamedTuple

from costmodel.formulas.counted import OpCounts
from costmodel.formulas.counts import counts
from costmodel.formulas.memory import MemoryUse, memory
from costmodel.formulas.optimizer import host_update_s, optimizer_s, orthogonal_s, update_traffic_s
from costmodel.formulas.pipeline import Hops, Pipeline, pipeline_s, plain_s, streamed_s
from costmodel.formulas.timing import OpTimes, hops, stages, timing
from costmodel.formulas.traffic import busiest_links_s, gradient_traffic_s
from costmodel.inputs import Cluster, PlanPoint, Stack, Workload
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics


@pytree
class Cost:
    """What a search compares."""

    step_s: Scalar
    peak_bytes: Scalar  # of the fullest stage, with the stack's margin
    second_bytes: Scalar = 0.0  # of the second memory, on the stage that has most there


@pytree
class Work:
    """What one step adds up over its blocks, in seconds, before any of it runs beside other work or waits."""

    pipe: Pipeline
    hops: Hops
    gradient_traffic_s: Scalar
    optimizer_s: Scalar
    host_update_s: Scalar  # of the optimizer's, what the host's processors do
    orthogonal_s: Scalar  # of that on the accelerator, its matmuls
    update_traffic_s: Scalar  # with the second memory
    links_s: Scalar  # the busiest tier's links: no step is shorter


@pytree
class StepTime:
    """The parts of a step. Passes, reduction, the work's optimizer with its waits, and host add up to `step_s`, unless
    the links need longer."""

    work: Work
    passes_s: Scalar  # forward and backward of all microbatches
    reduction_s: Scalar  # what gradient traffic adds to them
    optimizer_waits_s: Scalar  # what traffic with the second memory adds to the optimizer
    host_s: Scalar
    step_s: Scalar


class Parts(NamedTuple):
    """Every intermediate result of one evaluation."""

    counts: OpCounts
    times: OpTimes
    step: StepTime
    memory: MemoryUse

    @property
    def cost(self) -> Cost:
        """What a search compares of it."""
        held = self.memory
        return Cost(step_s=self.step.step_s, peak_bytes=held.needed_bytes, second_bytes=held.second_bytes)


def cost(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Cost:
    """Seconds of a step and bytes at the peak: pure, differentiable in every leaf, element by element.

    Takes what `prepare` makes of a plan. Leaves are floats or arrays of one dtype (`as_floats`); shapes broadcast.
    """
    return parts(workload, cluster, point, sem).cost


def parts(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Parts:
    """The same evaluation with all that it computed on the way."""
    counted = counts(workload, point, sem)
    times = timing(counted, point, cluster, sem)
    return finished(counted, times, work(counted, times, point, cluster, sem), point, cluster, sem)


def step(counted: OpCounts, point: PlanPoint, cluster: Cluster, sem: Semantics) -> StepTime:
    """The time alone, of what is counted already: for one plan on many machines."""
    times = timing(counted, point, cluster, sem)
    return step_time(work(counted, times, point, cluster, sem), counted, times, point, cluster.stack, sem)


def finished(
    counted: OpCounts, times: OpTimes, todo: Work, point: PlanPoint, cluster: Cluster, sem: Semantics
) -> Parts:
    """An evaluation from its sums on."""
    step_of = step_time(todo, counted, times, point, cluster.stack, sem)
    return Parts(counts=counted, times=times, step=step_of, memory=memory(counted, point, cluster.stack, sem))


def work(counted: OpCounts, times: OpTimes, point: PlanPoint, cluster: Cluster, sem: Semantics) -> Work:
    """All sums over blocks that a step's time is made of."""
    return Work(
        pipe=stages(counted, times, point),
        hops=hops(counted, times, sem),
        gradient_traffic_s=gradient_traffic_s(counted, times.laws, point, sem),
        optimizer_s=optimizer_s(counted, point, cluster.accelerator, cluster.stack, times.rates, sem),
        host_update_s=host_update_s(counted, point, cluster.accelerator, cluster.stack, sem),
        orthogonal_s=orthogonal_s(counted, point, times.rates, sem),
        update_traffic_s=update_traffic_s(counted, times.streams, point, sem),
        links_s=busiest_links_s(counted, times.laws, point, sem),
    )


def step_time(
    todo: Work, counted: OpCounts, times: OpTimes, point: PlanPoint, stack: Stack, sem: Semantics
) -> StepTime:
    r"""The step of the slowest pipeline, all pipelines being alike.

    Gradient traffic of $c$ seconds hides behind the share $h$ of one microbatch on a plain stage, $w$ seconds, of the
    passes $T$: $(1-k)\max(T, T - h w + c) + k (T + c)$. A posynomial still: $T$ holds $w$ at least once.
    """
    return around(pipeline_s(todo.pipe, todo.hops, counted.microbatches, point, sem), todo, times, point, stack, sem)


def around(passes_s: Scalar, todo: Work, times: OpTimes, point: PlanPoint, stack: Stack, sem: Semantics) -> StepTime:
    """The step around passes of so many seconds, which grows with them."""
    k, traffic_s, update_s = times.contention, todo.gradient_traffic_s, todo.optimizer_s
    late_s = passes_s - times.hide.data * plain_s(todo.pipe, point, sem) + traffic_s
    kept_s, waited_s = sem.maximum(passes_s, late_s), update_s
    if times.streams is not None:
        waited_s = streamed_s(update_s, todo.update_traffic_s, times.streams, sem)
    host_s = stack.step_s + stack.jitter_s * sem.log2(point.accelerators)
    summed_s = (1 - k) * kept_s + k * (passes_s + traffic_s) + waited_s + host_s
    return StepTime(
        work=todo,
        passes_s=passes_s,
        reduction_s=(1 - k) * (kept_s - passes_s) + k * traffic_s,
        optimizer_waits_s=waited_s - update_s,
        host_s=host_s,
        step_s=sem.maximum(summed_s, todo.links_s),
    )
