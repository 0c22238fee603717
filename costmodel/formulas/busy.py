"""How long the units of an accelerator are busy in a step: what its power goes by."""

from costmodel.formulas.cost import Work, step_time, work
from costmodel.formulas.counted import OpCounts
from costmodel.formulas.economics import Busy, drawn_s
from costmodel.formulas.roofs import operators_s
from costmodel.formulas.timing import BlockPasses, OpTimes, timing
from costmodel.inputs import Cluster, PlanPoint
from costmodel.semantics import Scalar, Semantics, total

Loads = tuple[Scalar, Scalar, Scalar, Scalar] | None
"""What busy units draw (`Prices.loads`), where an objective pays for it."""


def timed(counted: OpCounts, point: PlanPoint, cluster: Cluster, loads: Loads, sem: Semantics) -> tuple[Scalar, ...]:
    """Seconds of a step, as `step` has them; with loads also `drawn_s`, seconds at the usual power that take as much
    energy."""
    times = timing(counted, point, cluster, sem)
    todo = work(counted, times, point, cluster, sem)
    step_s = step_time(todo, counted, times, point, cluster.stack, sem).step_s
    if loads is None:
        return (step_s,)
    return step_s, drawn_s(loads, busy(counted, times, todo, point, cluster), step_s)


def busy(counted: OpCounts, times: OpTimes, todo: Work, point: PlanPoint, cluster: Cluster) -> Busy:
    """Seconds at the arithmetic units and of the HBM by the rooflines of all operators, in the mean over the stages;
    links are busy for as long as their messages take, hidden or not (those of two kinds at once count twice).

    Posynomials in the reciprocals of the rates, as a step is.
    """
    each = counted.microbatches / point.pipeline
    compute_s, hbm_s = operators_s(counted, times.rates, point, cluster.stack)
    return Busy(
        compute_s=each * compute_s + todo.orthogonal_s,
        hbm_s=each * hbm_s + todo.optimizer_s - todo.orthogonal_s,
        links_s=_messages_s(counted, times, todo, point),
    )


def _messages_s(counted: OpCounts, times: OpTimes, todo: Work, point: PlanPoint) -> Scalar:
    """Seconds of all messages of a stage, each alone: within layers, of gradients, from stage to stage both ways."""
    turns = point.virtual_stages - 1.0 / point.pipeline  # to other stages, of each microbatch and way
    hops_s = 2.0 * counted.microbatches * turns * todo.hops.ends_s
    return counted.microbatches / point.pipeline * sent_s(times) + hops_s + todo.gradient_traffic_s


def sent_s(times: OpTimes) -> Scalar:
    """Seconds of the messages of one microbatch within all layers, each alone."""
    return total(block.repeats * _of_layer_s(block) for block in times.layers)


def _of_layer_s(block: BlockPasses) -> Scalar:
    """Of one layer and microbatch: tensor, context, expert and sharded traffic."""
    forward, backward = block.forward, block.backward
    again = block.forwards + 1.0  # tokens are sent in the backward pass too
    inner_s = block.forwards * (forward.sync_s + forward.ring_s) + backward.sync_s + backward.ring_s
    sharded_s = block.forwards * forward.data_s + backward.data_s + block.weights.data_s
    return inner_s + again * (forward.exchange_s + forward.expert_s) + sharded_s
