"""Seconds of a step: the pipeline's passes, gradient traffic and what hides it, the update, and the links' bound."""

from collections.abc import Callable
from typing import Any

from costmodel.formulas import offload
from costmodel.formulas.collectives import Law, time_s
from costmodel.formulas.counts import BlockCounts, OpCounts
from costmodel.formulas.pipeline import Hops, Pipeline, Stage, pipeline_s, plain_s, single_stage
from costmodel.formulas.roofline import Rates
from costmodel.formulas.timing import OpTimes
from costmodel.formulas.traffic import expert_shard, has_experts, share
from costmodel.inputs import PlanPoint, Position, Stack
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total


@pytree
class StepTime:
    """The parts of a step. Passes, reduction, optimizer with its waits, and host add up to `step_s`, unless the links
    need longer."""

    passes_s: Scalar  # forward and backward of all microbatches
    reduction_s: Scalar  # what gradient traffic adds to them
    optimizer_s: Scalar
    orthogonal_s: Scalar  # of the optimizer's, its matmuls
    optimizer_waits_s: Scalar  # what traffic with the second memory adds to it
    host_s: Scalar
    links_s: Scalar  # the busiest tier's links: no step is shorter
    gradient_traffic_s: Scalar  # that traffic alone
    step_s: Scalar


def step_time(
    counted: OpCounts,
    times: OpTimes,
    point: PlanPoint,
    stack: Stack,
    speed: Rates,
    sem: Semantics,
    apart: Callable[[Any], Any] = lambda tree: tree,
) -> StepTime:
    r"""The step of the slowest pipeline, all pipelines being alike.

    Gradient traffic of $c$ seconds hides behind the share $h$ of one microbatch on a plain stage, $w$ seconds, of the
    passes $T$: $(1-k)\max(T, T - h w + c) + k (T + c)$. A posynomial still: $T$ holds $w$ at least once.

    `apart` marks the sums over blocks, for compilers (compiled_kinds.py); its result is its argument.
    """
    hide, pipe = times.hide, apart(stages(counted, times, point))
    traffic_s, update_s, links_s = apart((
        gradient_traffic_s(counted, times, point, sem),
        optimizer_s(counted, point, stack, speed, sem),
        busiest_links_s(counted, times, point, sem),
    ))  # fmt: skip
    passes_s = pipeline_s(pipe, hops(counted, times), counted.microbatches, point, sem)
    late_s = passes_s - hide.data * plain_s(pipe, point, sem) + traffic_s
    k, kept_s = hide.contention, sem.maximum(passes_s, late_s)
    waited_s = _streamed_update_s(update_s, counted, times, point, sem)
    host_s = stack.step_s + stack.jitter_s * sem.log2(point.accelerators)
    summed_s = (1 - k) * kept_s + k * (passes_s + traffic_s) + waited_s + host_s
    return StepTime(
        passes_s=passes_s,
        reduction_s=(1 - k) * (kept_s - passes_s) + k * traffic_s,
        optimizer_s=update_s,
        orthogonal_s=orthogonal_s(counted, point, speed, sem),
        optimizer_waits_s=waited_s - update_s,
        host_s=host_s,
        links_s=links_s,
        gradient_traffic_s=traffic_s,
        step_s=sem.maximum(summed_s, links_s),
    )


def stages(counted: OpCounts, times: OpTimes, point: PlanPoint) -> Pipeline:
    """A plain stage of the mean number of layers, and what embedding, head and uneven layers add to others.

    Host work of a microbatch (`Stack.microbatch_s`) is part of every stage, half in each direction.

    Layers of different sizes (of Swin, or of an encoder and a decoder) count as spread evenly: the sum is exact, a
    stage is the mean over stages, as after a division by time. The activations of a stage of large layers are more.
    """
    own, half_s = _stage(times, Position.LAYER).scaled(1.0 / point.pipeline), 0.5 * times.microbatch_s
    layer = own.scaled(point.pipeline / layer_count(counted))
    return Pipeline(
        plain=own + Stage(forward_s=half_s, backward_s=half_s, weights_s=0.0),
        first=_stage(times, Position.FIRST) + layer.scaled(point.extra_layers_first),
        middle=layer.scaled(point.extra_layers_middle),
        last=_stage(times, Position.LAST) + layer.scaled(point.extra_layers_last),
        streams=times.streams,
        layers=None if times.streams is None else own,
    )


def hops(counted: OpCounts, times: OpTimes) -> Hops:
    """One transfer of a microbatch's activations to the next stage; overlap hides a share of the steady ones."""
    hop_s = time_s(times.laws.boundary, counted.boundary_bytes)
    return Hops(ends_s=hop_s, steady_s=(1 - times.hide.pipeline) * hop_s)


def _stage(times: OpTimes, position: Position) -> Stage:
    blocks = [block for block in times.blocks if block.position == position]
    return Stage(
        forward_s=total(block.repeats * block.forward.seconds for block in blocks),
        backward_s=total(block.repeats * (block.backward.seconds + block.recompute_s) for block in blocks),
        weights_s=total(block.repeats * block.weights.seconds for block in blocks),
    )


def layer_count(counted: OpCounts) -> Scalar:
    """Repeated blocks of all kinds."""
    return total(block.repeats for block in counted.blocks if block.position == Position.LAYER)


def on_heaviest_stage(
    counted: OpCounts, quantity: Callable[[BlockCounts], Scalar], point: PlanPoint, sem: Semantics
) -> Scalar:
    """The sum of a count over the blocks of the heaviest stage (of the mean number of layers)."""

    def at(position: Position) -> Scalar:
        return total(b.repeats * quantity(b) for b in counted.blocks if b.position == position)

    first, last, single = at(Position.FIRST), at(Position.LAST), single_stage(point, sem)
    edges = (1 - single) * sem.maximum(first, last) + single * (first + last)
    return at(Position.LAYER) / point.pipeline + edges


def gradient_traffic_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    """Gradient reduction and weight gathering once a step, in one bucket for each layer."""
    laws = times.laws
    dense, trained = (
        on_heaviest_stage(counted, quantity, point, sem)
        for quantity in (lambda block: block.parameters, lambda block: block.trained_parameters)
    )
    dense_s = _reduced_s(dense, trained, laws.shard, laws.replica, point.data_shard, counted, point)
    if laws.experts is None:
        return dense_s
    own, trained = (
        on_heaviest_stage(counted, quantity, point, sem)
        for quantity in (lambda block: block.expert_parameters, lambda block: block.trained_expert_parameters)
    )
    own_s = _reduced_s(own, trained, laws.experts.shard, laws.experts.replica, expert_shard(point, sem), counted, point)
    return dense_s + own_s


def _reduced_s(
    elements: Scalar, trained: Scalar, shard: Law, replica: Law, ranks: Scalar, counted: OpCounts, point: PlanPoint
) -> Scalar:
    zero, buckets = point.zero, layer_count(counted) / point.pipeline
    gradients_bytes = point.gradient_bytes * trained
    once_bytes = zero.reduces_once * gradients_bytes + zero.gathers_once * point.precision.weight_bytes * elements
    calls = (zero.reduces_once + zero.gathers_once) * buckets
    return time_s(shard, once_bytes, calls) + time_s(replica, gradients_bytes / ranks, buckets)


def optimizer_s(counted: OpCounts, point: PlanPoint, stack: Stack, speed: Rates, sem: Semantics) -> Scalar:
    """The update streams through memory: states and master weights in and out, gradients in, weights out.

    An update in several kernels does so `Stack.update_passes` times.

    Where the optimizer makes matrices orthogonal, ranks that divide its states divide these products too, each whole
    matrix on one rank (its gradient is gathered with the traffic that is there already). Weights that products read in
    a format of fewer bits are cast after it, each rank all that it computes with.
    """
    row, (elements, edges) = point.optimizer, _updated(counted, point, sem)
    states_bytes = 2.0 * (row.states * point.state_bytes + point.precision.master_bytes + row.own_bytes)
    per_element = states_bytes + row.gradient_reads * point.gradient_bytes + point.precision.weight_bytes
    edges_bytes = 2.0 * row.edge_states * point.state_bytes * edges
    moved_s = speed.memory_s_per_byte * per_element * elements + speed.memory_s_per_byte * edges_bytes
    casts_bytes = (1 - point.zero.weights) * point.precision.weight_cast_bytes * _matrices(counted, point, sem)
    moved_s = moved_s + speed.memory_s_per_byte * casts_bytes
    return stack.update_passes * moved_s + orthogonal_s(counted, point, speed, sem)


def update_traffic_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds of the update's traffic with the second memory."""
    if times.streams is None:
        return 0.0
    row, (elements, edges) = point.optimizer, _updated(counted, point, sem)
    per_element = row.states * point.state_bytes + point.precision.master_bytes + row.own_bytes
    states_bytes = per_element * elements + row.edge_states * point.state_bytes * edges
    return offload.update_s(times.streams, states_bytes, point)


def _streamed_update_s(update_s: Scalar, counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    if times.streams is None:
        return update_s
    return offload.streamed_s(update_s, update_traffic_s(counted, times, point, sem), times.streams, sem)


def _updated(counted: OpCounts, point: PlanPoint, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Elements that one rank of the heaviest stage updates, and those of them in embedding and head."""
    divided, data_shard = point.zero.states, point.data_shard
    dense = on_heaviest_stage(counted, lambda block: block.trained_parameters, point, sem)
    elements = dense * share(divided, data_shard)
    if has_experts(counted):
        own = on_heaviest_stage(counted, lambda block: block.trained_expert_parameters, point, sem)
        elements = elements + own * share(divided, expert_shard(point, sem))
    return elements, on_heaviest_stage(counted, _edge_parameters, point, sem) * share(divided, data_shard)


def orthogonal_s(counted: OpCounts, point: PlanPoint, speed: Rates, sem: Semantics) -> Scalar:
    """Matmuls of the optimizer, a part of `optimizer_s`."""
    return speed.update_s_per_flop * point.optimizer.orthogonalisations * _orthogonal_flop(counted, point, sem)


def _edge_parameters(block: BlockCounts) -> Scalar:
    return 0.0 if block.position == Position.LAYER else block.trained_parameters


def _matrices(counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    return on_heaviest_stage(counted, lambda block: block.matrix_parameters + block.expert_parameters, point, sem)


def _orthogonal_flop(counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    """Of one iteration over the matrices of a plain stage's layers. Embedding and head are left out."""
    layers = [block for block in counted.blocks if block.position == Position.LAYER]
    divided, stages = point.zero.states, point.pipeline
    flop = total(b.repeats * b.orthogonal_flop for b in layers) * share(divided, point.data_shard) / stages
    if not has_experts(counted):
        return flop
    own = total(b.repeats * b.expert_orthogonal_flop for b in layers)
    return flop + own * share(divided, expert_shard(point, sem)) / stages


def busiest_links_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds that each tier's links are busy with all traffic of a step; the largest bounds the step."""
    return sem.maximum(*links_by_tier_s(counted, times, point, sem))


def links_by_tier_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> tuple[Scalar, ...]:
    """Seconds that the links of each tier are busy in a step, on the heaviest stage."""
    payloads = _step_payloads(counted, times, point, sem)
    tiers = range(len(times.laws.sync.by_tier))
    return tuple(total(law.by_tier[i] * payload for law, payload in payloads) for i in tiers)


def _step_payloads(
    counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics
) -> tuple[tuple[Law, Scalar], ...]:
    """Bytes that each law carries in one step on the heaviest stage."""
    laws, m, zero = times.laws, counted.microbatches, point.zero

    def of(quantity: Callable[[BlockCounts], Scalar]) -> Scalar:
        return on_heaviest_stage(counted, quantity, point, sem)

    hops, exchanges = point.context_ring * (point.context - 1), 1 - point.context_ring
    gathers = zero.gathers_once + m * zero.gathers_per_microbatch
    reduces = zero.reduces_once + m * zero.reduces_per_microbatch
    weights_bytes, gradients_bytes = gathers * point.precision.weight_bytes, reduces * point.gradient_bytes
    redone = 1.0 + point.recompute.redo_rest
    elements, trained = of(lambda b: b.parameters), of(lambda b: b.trained_parameters)
    dense = (
        (
            laws.sync,
            m * of(lambda b: (b.forwards + point.recompute.redo_rest) * b.sync_bytes + b.backward_sync_bytes),
        ),
        (laws.ring, hops * m * of(lambda b: (b.forwards + 2.0) * total(a.ring_bytes for a in b.attentions))),
        (
            laws.exchange,
            exchanges * m * of(lambda b: (b.forwards + 1.0) * total(a.exchange_bytes for a in b.attentions)),
        ),
        (laws.shard, weights_bytes * elements + gradients_bytes * trained),
        (laws.replica, point.gradient_bytes * trained / point.data_shard),
        (laws.boundary, 2.0 * (1 + point.schedule.folds) * m * counted.boundary_bytes),
    )
    if laws.experts is None:
        return dense
    own, trained = of(lambda b: b.expert_parameters), of(lambda b: b.trained_expert_parameters)
    return (
        *dense,
        (laws.experts.exchange, m * of(lambda b: (b.forwards + redone) * b.exchange_bytes)),
        (laws.experts.gather, m * of(lambda b: (b.forwards + redone) * b.gather_bytes)),
        (laws.experts.shard, weights_bytes * own + gradients_bytes * trained),
        (laws.experts.replica, point.gradient_bytes * trained / expert_shard(point, sem)),
    )
