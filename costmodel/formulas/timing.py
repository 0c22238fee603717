r"""Seconds of one block and microbatch, forward (F), input gradient (B) and weight gradient (W), overlap included.

Overlap of communication $c$ with compute $t$, of which the share $h$ may hide it and the share $k$ of what overlaps
contends with it: $(1-h) t + (1-k)\max(h t, c) + k (h t + c)$. It is $t + c$ at $h = 0$, and a posynomial throughout.
"""

from typing import NamedTuple

from costmodel.formulas.counts import BlockCounts, OpCounts
from costmodel.formulas.offload import Streams, streams
from costmodel.formulas.roofline import BlockTimes, block_times, rates
from costmodel.formulas.traffic import BlockTraffic, Laws, block_traffic, laws
from costmodel.inputs import Cluster, PlanPoint, Position, Stack
from costmodel.pytree import map_leaves, pytree, static
from costmodel.semantics import Scalar, Semantics


@pytree
class Hide:
    """Shares of the compute beside it that may hide each kind of traffic under this plan."""

    tensor: Scalar
    context: Scalar
    expert: Scalar
    data: Scalar
    pipeline: Scalar
    contention: Scalar


@pytree
class Pass:
    """Seconds of one pass over one block, as they add up: the parts of `seconds`."""

    matmul_s: Scalar
    attention_s: Scalar
    memory_s: Scalar
    tensor_s: Scalar  # exposed communication, by kind
    context_s: Scalar
    expert_s: Scalar
    data_s: Scalar
    host_s: Scalar = 0.0  # what the host adds where it issues kernels more slowly than they run
    seconds: Scalar


@pytree
class BlockPasses:
    """The three passes over one block, and the forward work that recompute repeats inside B."""

    name: str = static()
    position: str = static()
    repeats: Scalar
    forwards: Scalar  # passes that `forward` holds
    forward: Pass
    backward: Pass
    weights: Pass
    recompute_s: Scalar  # included in `backward.seconds`, not in its parts
    compute: BlockTimes
    traffic: BlockTraffic


@pytree
class OpTimes:
    """All blocks, the laws of their traffic, the overlap that the plan allows, and what streams past them."""

    blocks: tuple[BlockPasses, ...]
    laws: Laws
    hide: Hide
    streams: Streams | None  # where the plan offloads
    microbatch_s: Scalar = 0.0  # host work of one microbatch on one stage


def timing(counted: OpCounts, point: PlanPoint, cluster: Cluster, stack: Stack, sem: Semantics) -> OpTimes:
    """Rooflines and laws of traffic for every block, and their overlap."""
    speed, law = rates(cluster.accelerator, point, stack), laws(counted, point, cluster, stack, sem)
    hide = Hide(
        tensor=point.overlap.tensor * stack.hide_tensor,
        context=point.overlap.context * stack.hide_context,
        expert=point.overlap.expert * stack.hide_expert,
        data=point.overlap.data * stack.hide_data,
        pipeline=point.overlap.pipeline * stack.hide_pipeline,
        contention=stack.contention,
    )
    blocks = []
    for block in counted.blocks:
        compute = block_times(block, point, speed, stack, sem)
        issue = issue_s(block, point, stack)
        blocks.append(_passes(block, point, compute, block_traffic(block, point, law, stack), hide, issue, sem))
    moved = streams(counted, point, cluster.accelerator, stack, sem)
    return OpTimes(blocks=tuple(blocks), laws=law, hide=hide, streams=moved, microbatch_s=stack.microbatch_s)


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


class Compute(NamedTuple):
    """Seconds at the accelerator's own units."""

    matmul_s: Scalar
    attention_s: Scalar
    memory_s: Scalar


class Issue(NamedTuple):
    """Seconds in which the host issues the kernels of one pass."""

    forward_s: Scalar
    backward_s: Scalar
    weights_s: Scalar


def issue_s(block: BlockCounts, point: PlanPoint, stack: Stack) -> Issue:
    """One kernel for each operator, input or weight gradient, and one call for each collective."""
    products, moves = len(block.matmuls), len(block.attentions) + len(block.memories)
    casts, sent = point.precision.casts * products, block.exchanges + block.gathers
    return Issue(
        forward_s=stack.host_kernel_s * (products + moves + casts + sent + block.syncs),
        backward_s=stack.host_kernel_s * (products + moves + casts + sent + block.backward_syncs),
        weights_s=stack.host_kernel_s * products,
    )


class Sent(NamedTuple):
    """Seconds of communication that runs beside them; the expert traffic is 0.0 where a block has none."""

    sync_s: Scalar = 0.0
    ring_s: Scalar = 0.0
    exchange_s: Scalar = 0.0
    expert_s: Scalar = 0.0
    data_s: Scalar = 0.0


def _pass(t: Compute, c: Sent, experts: bool, hide: Hide, issue_s: Scalar, sem: Semantics) -> Pass:
    """Tensor traffic hides behind matmuls, the ring behind the attention, expert traffic behind both, and gathered
    weights behind everything. The host issues kernels ahead of all of it: the longer of the two counts."""
    k = hide.contention
    region_s = overlapped_s(t.matmul_s, c.sync_s, hide.tensor, k, sem)
    core_s = overlapped_s(t.attention_s, c.ring_s, hide.context, k, sem) + c.exchange_s
    inside_s, expert_s = region_s + core_s + t.memory_s, 0.0
    if experts:
        window_s = region_s + core_s
        expert_s = exposed_s(window_s, c.expert_s, hide.expert, k, sem)
        inside_s = overlapped_s(window_s, c.expert_s, hide.expert, k, sem) + t.memory_s
    busy_s = overlapped_s(inside_s, c.data_s, hide.data, k, sem)
    return Pass(
        matmul_s=t.matmul_s,
        attention_s=t.attention_s,
        memory_s=t.memory_s,
        tensor_s=exposed_s(t.matmul_s, c.sync_s, hide.tensor, k, sem),
        context_s=exposed_s(t.attention_s, c.ring_s, hide.context, k, sem) + c.exchange_s,
        expert_s=expert_s,
        data_s=exposed_s(inside_s, c.data_s, hide.data, k, sem),
        host_s=sem.maximum(0.0, issue_s - busy_s),
        seconds=sem.maximum(busy_s, issue_s),
    )


def _passes(
    block: BlockCounts, point: PlanPoint, t: BlockTimes, c: BlockTraffic, hide: Hide, issue: Issue, sem: Semantics
) -> BlockPasses:
    gather_s = 0.5 * point.zero.gathers_per_microbatch * c.gather_s  # once forward, once backward
    reduce_s = point.zero.reduces_per_microbatch * c.reduce_s
    experts = block.exchanges > 0
    forward = _pass(
        Compute(t.matmul_forward_s, t.attention_forward_s, t.memory_forward_s),
        Sent(c.sync_forward_s, c.ring_forward_s, c.exchange_s, c.expert_s, gather_s),
        experts, hide, issue.forward_s, sem,
    )  # fmt: skip
    backward = _pass(
        Compute(t.matmul_backward_s, t.attention_backward_s, t.memory_backward_s),
        Sent(c.sync_backward_s, c.ring_backward_s, c.exchange_s, c.expert_s, gather_s),
        experts, hide, issue.backward_s, sem,
    )  # fmt: skip
    weights = _pass(Compute(t.weights_s, 0.0, 0.0), Sent(data_s=reduce_s), False, hide, issue.weights_s, sem)
    recompute_s = _recompute_s(block, point, t, c, hide, issue, sem)
    return BlockPasses(
        name=block.name,
        position=block.position,
        repeats=block.repeats,
        forwards=block.forwards,
        forward=map_leaves(lambda seconds: block.forwards * seconds, forward),
        backward=backward,
        weights=weights,
        recompute_s=recompute_s,
        compute=t,
        traffic=c,
    )


def _recompute_s(
    block: BlockCounts, point: PlanPoint, t: BlockTimes, c: BlockTraffic, hide: Hide, issue: Issue, sem: Semantics
) -> Scalar:
    """Forward work done again before the backward pass. The embedding and the head are never recomputed."""
    if block.position != Position.LAYER:
        return 0.0
    row, k = point.recompute, hide.contention
    core_s = overlapped_s(t.attention_forward_s, c.ring_forward_s, hide.context, k, sem) + c.exchange_s
    rest_s = overlapped_s(t.matmul_forward_s, c.sync_forward_s, hide.tensor, k, sem) + t.memory_forward_s
    return row.redo_core * core_s + row.redo_rest * sem.maximum(rest_s + c.expert_s, issue.forward_s)
