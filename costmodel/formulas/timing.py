r"""Seconds of one block and microbatch, forward (F), input gradient (B) and weight gradient (W), overlap included.

Overlap of communication $c$ with compute $t$, of which the share $h$ may hide it and the share $k$ of what overlaps
contends with it: $(1-h) t + (1-k)\max(h t, c) + k (h t + c)$. It is $t + c$ at $h = 0$, and a posynomial throughout.
"""

from costmodel.formulas import traffic
from costmodel.formulas.collectives import time_s
from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import sharding
from costmodel.formulas.modules import by_module
from costmodel.formulas.offload import streams
from costmodel.formulas.pipeline import Hops, Pipeline, Stage, Streams
from costmodel.formulas.roofline import Rates, block_times, module_times, rates
from costmodel.formulas.traffic import Laws
from costmodel.inputs import Cluster, OverlapRow, PlanPoint, Position, RecomputeRow, Stack, ZeroRow
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, Semantics, total


@pytree
class Pass:
    """Seconds of one pass over one block: work by kind of operator and traffic by kind, each alone, and together."""

    matmul_s: Scalar
    attention_s: Scalar
    memory_s: Scalar  # what only moves data
    sync_s: Scalar  # tensor traffic
    ring_s: Scalar  # context traffic: keys and values that travel beside the attention,
    exchange_s: Scalar  # and all-to-alls before and after it
    expert_s: Scalar  # 0.0 where a block sends no tokens to experts
    data_s: Scalar  # gathered weights, reduced gradients
    issue_s: Scalar  # in which the host issues the kernels
    products_s: Scalar  # matmuls and tensor traffic together
    core_s: Scalar  # attention and context traffic together
    inside_s: Scalar  # both, what only moves data and the expert traffic together
    busy_s: Scalar  # all of that and the data traffic together
    rest_s: Scalar  # what full recompute makes again beside the core, with the host that issues it
    seconds: Scalar  # the pass, with the host that issues it


@pytree
class BlockPasses:
    """The three passes over one block and microbatch, and the forward work that recompute repeats before B."""

    name: str = static()
    position: str = static()
    repeats: Scalar
    forwards: Scalar  # forward passes of a microbatch
    forward: Pass  # one of them
    backward: Pass
    weights: Pass
    recompute_s: Scalar

    @property
    def passes(self) -> tuple[tuple[Scalar, Pass], ...]:
        """Each pass and how often a microbatch makes it."""
        return (self.forwards, self.forward), (1.0, self.backward), (1.0, self.weights)

    @property
    def forward_s(self) -> Scalar:
        """Seconds of all forward passes."""
        return self.forwards * self.forward.seconds

    @property
    def backward_s(self) -> Scalar:
        """Seconds of the input gradient, with what it computes again."""
        return self.backward.seconds + self.recompute_s


@pytree
class OpTimes:
    """All blocks, the rates and laws behind them, the overlap that the plan allows, and what streams past them."""

    blocks: tuple[BlockPasses, ...]
    rates: Rates
    laws: Laws
    hide: OverlapRow  # shares of the compute beside it that may hide each kind of traffic under this plan
    contention: Scalar
    expert_contention: Scalar
    streams: Streams | None  # where the plan offloads
    microbatch_s: Scalar = 0.0  # host work of one microbatch on one stage

    @property
    def layers(self) -> tuple[BlockPasses, ...]:
        """The repeated blocks, of all kinds."""
        return tuple(block for block in self.blocks if block.position == Position.LAYER)


def timing(counted: OpCounts, point: PlanPoint, cluster: Cluster, sem: Semantics) -> OpTimes:
    """Rooflines and laws of traffic for every block, and their overlap."""
    stack, zero = cluster.stack, sharding(point, sem)
    speed, law = rates(cluster.accelerator, point, stack), traffic.laws(counted, point, cluster, stack, sem)
    hide = OverlapRow(
        tensor=point.overlap.tensor * stack.hide_tensor,
        context=point.overlap.context * stack.hide_context,
        expert=sem.maximum(point.overlap.expert, point.schedule.both_ways) * stack.hide_expert,
        data=point.overlap.data * stack.hide_data,
        pipeline=point.overlap.pipeline * stack.hide_pipeline,
    )
    return OpTimes(
        blocks=tuple(_passes(block, zero, point, speed, law, hide, stack, sem) for block in counted.blocks),
        rates=speed,
        laws=law,
        hide=hide,
        contention=stack.contention,
        expert_contention=stack.expert_contention,
        streams=streams(counted, point, cluster.accelerator, stack, sem),
        microbatch_s=stack.microbatch_s,
    )


def stages(counted: OpCounts, times: OpTimes, point: PlanPoint) -> Pipeline:
    """A plain stage of the mean number of layers, and what embedding, head and uneven layers add to others.

    Host work of a microbatch (`Stack.microbatch_s`) is part of every stage, half in each direction.

    Layers of different sizes (of Swin, or of an encoder and a decoder) count as spread evenly: the sum is exact, a
    stage is the mean over stages, as after a division by time. The activations of a stage of large layers are more.
    """
    own, half_s = _stage(times, Position.LAYER).scaled(1.0 / point.pipeline), 0.5 * times.microbatch_s
    layer = own.scaled(point.pipeline / counted.layer_count)
    return Pipeline(
        plain=own + Stage(forward_s=half_s, backward_s=half_s, weights_s=0.0),
        first=_stage(times, Position.FIRST) + layer.scaled(point.extra_layers_first),
        middle=layer.scaled(point.extra_layers_middle),
        between=layer.scaled(-(point.extra_layers_first + point.extra_layers_last)),
        last=_stage(times, Position.LAST) + layer.scaled(point.extra_layers_last),
        streams=times.streams,
        layers=None if times.streams is None else own,
    )


def hops(counted: OpCounts, times: OpTimes, sem: Semantics) -> Hops:
    """One transfer of a microbatch's activations to the next stage; overlap hides a share of the steady ones."""
    hop_s = time_s(times.laws.boundary, counted.boundary_bytes, sem)
    return Hops(ends_s=hop_s, steady_s=(1 - times.hide.pipeline) * hop_s)


def _stage(times: OpTimes, position: Position) -> Stage:
    blocks = [block for block in times.blocks if block.position == position]
    return Stage(
        forward_s=total(block.repeats * block.forward_s for block in blocks),
        backward_s=total(block.repeats * block.backward_s for block in blocks),
        weights_s=total(block.repeats * block.weights.seconds for block in blocks),
    )


def overlapped_s(compute_s: Scalar, traffic_s: Scalar, share: Scalar, contention: Scalar, sem: Semantics) -> Scalar:
    """Seconds of compute and communication together: the formula at the head of this file."""
    window_s = share * compute_s
    together_s = (1 - contention) * sem.maximum(window_s, traffic_s) + contention * (window_s + traffic_s)
    return (1 - share) * compute_s + together_s


def exposed_s(compute_s: Scalar, traffic_s: Scalar, share: Scalar, contention: Scalar, sem: Semantics) -> Scalar:
    """What `overlapped_s` adds to the compute. A difference: for reports.

    Nothing comes first, as compute does there: at a tie both give the derivative to the same side, and terms add up.
    """
    return (1 - contention) * sem.maximum(0.0, traffic_s - share * compute_s) + contention * traffic_s


def issue_s(
    block: BlockCounts, point: PlanPoint, law: Laws, stack: Stack, sem: Semantics
) -> tuple[Scalar, Scalar, Scalar]:
    """Seconds in which the host issues the kernels of the forward, the backward and the weight-gradient pass.

    One kernel for each operator, input or weight gradient, and one call for each collective, with its wait; one tensor
    rank makes no call at the edges of its region (Megatron-LM's `mappings.py` gives back its input).
    """
    products, moves = len(block.matmuls), len(block.attentions) + len(block.memories)
    casts, sent = point.precision.casts * products, block.exchanges + block.gathers
    each_s = stack.host_kernel_s * (products + moves + casts + sent)
    sync_s = sem.minimum(1.0, point.tensor - 1) * stack.host_kernel_s + law.sync_wait_s
    return (
        each_s + sync_s * block.syncs,
        each_s + sync_s * block.backward_syncs,
        stack.host_kernel_s * products,
    )


def _with_host_s(busy_s: Scalar, issue_s: Scalar, contention: Scalar, sem: Semantics) -> Scalar:
    """Seconds of kernels with the host that issues them ahead: the longer of the two, and a share of the shorter, since
    the device waits wherever the host is not ahead.

    C: a share of its own is fitted to .12 to .17 in all classes of software, which is what contends of traffic.
    """
    return overlapped_s(busy_s, issue_s, 1.0, contention, sem)


def _passes(
    block: BlockCounts,
    zero: ZeroRow,
    point: PlanPoint,
    speed: Rates,
    law: Laws,
    hide: OverlapRow,
    stack: Stack,
    sem: Semantics,
) -> BlockPasses:
    forward_work, backward_work, weights_s = block_times(block, point, speed, stack, sem)
    forward_issue_s, backward_issue_s, weights_issue_s = issue_s(block, point, law, stack, sem)
    sync_s, sync_back_s = traffic.sync_s(block, law, stack, sem)
    ring_s, exchange_s = traffic.context_s(block, point, law, sem)
    expert_s = traffic.tokens_s(block, law, stack, sem)
    one_gather_s, one_reduce_s = traffic.sharded_s(block, point, law, sem)
    gather_s = 0.5 * zero.gathers_per_microbatch * one_gather_s  # once forward, once backward
    reduce_s = zero.reduces_per_microbatch * one_reduce_s

    def over(work: tuple[Scalar, ...], sent: tuple[Scalar, ...], host_s: Scalar, experts: bool) -> Pass:
        return _pass(work, sent, host_s, experts, hide, stack, sem)

    experts = block.exchanges > 0
    forward = over(forward_work, (sync_s, ring_s, exchange_s, expert_s, gather_s), forward_issue_s, experts)
    half_s = 0.5 * (gather_s + reduce_s)  # both travel beside both halves of the backward pass
    back = sync_back_s, 2.0 * ring_s, exchange_s, expert_s, half_s
    return BlockPasses(
        name=block.name,
        position=block.position,
        repeats=block.repeats,
        forwards=block.forwards,
        forward=forward,
        backward=over(backward_work, back, backward_issue_s, experts),
        weights=over((weights_s, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0, half_s), weights_issue_s, False),
        recompute_s=_recompute_s(forward, block, point) + modules_s(forward, block, point, speed, stack, sem),
    )


def _pass(
    work: tuple[Scalar, ...],
    sent: tuple[Scalar, ...],
    issue_s: Scalar,
    experts: bool,
    hide: OverlapRow,
    stack: Stack,
    sem: Semantics,
) -> Pass:
    """Tensor traffic hides behind matmuls, the ring behind the attention, expert traffic behind both, and gathered
    weights behind everything. The host issues kernels ahead of all of it."""
    (matmul_s, attention_s, memory_s), (sync_s, ring_s, exchange_s, expert_s, data_s) = work, sent
    products_s = overlapped_s(matmul_s, sync_s, hide.tensor, stack.contention, sem)
    core_s = overlapped_s(attention_s, ring_s, hide.context, stack.contention, sem) + exchange_s
    inside_s = products_s + core_s
    if experts:
        inside_s = overlapped_s(inside_s, expert_s, hide.expert, stack.expert_contention, sem)
    inside_s = inside_s + memory_s
    busy_s = overlapped_s(inside_s, data_s, hide.data, stack.contention, sem)
    return Pass(
        matmul_s=matmul_s,
        attention_s=attention_s,
        memory_s=memory_s,
        sync_s=sync_s,
        ring_s=ring_s,
        exchange_s=exchange_s,
        expert_s=expert_s,
        data_s=data_s,
        issue_s=issue_s,
        products_s=products_s,
        core_s=core_s,
        inside_s=inside_s,
        busy_s=busy_s,
        rest_s=_with_host_s(products_s + memory_s + expert_s, issue_s, stack.contention, sem),
        seconds=_with_host_s(busy_s, issue_s, stack.contention, sem),
    )


def modules_s(
    forward: Pass, block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack, sem: Semantics
) -> Scalar:
    """Forward work of the modules that the plan computes again alone; experts with their traffic."""
    row = point.modules
    if row is None or block.position != Position.LAYER:
        return 0.0
    own_s = by_module(lambda redone, seconds: redone * seconds, row, module_times(block, point, speed, stack, sem))
    return own_s + row.feed_forward * forward.expert_s


def redone_s(forward: Pass, row: RecomputeRow) -> Scalar:
    """Forward work of one layer that is done again before the backward pass, with what it waits for."""
    return row.redo_core * forward.core_s + row.redo_rest * forward.rest_s


def _recompute_s(forward: Pass, block: BlockCounts, point: PlanPoint) -> Scalar:
    """The embedding and the head are never recomputed."""
    return redone_s(forward, point.recompute) if block.position == Position.LAYER else 0.0
