"""The communication of a plan: which group of ranks talks over which tiers, by which law, and how much.

Groups lie from the inside out in the order tensor, context, data, pipeline (placement.py).
"""

from costmodel import collectives
from costmodel._pytree import pytree
from costmodel.cluster import Cluster
from costmodel.collectives import Law, time_s
from costmodel.counts import BlockCounts
from costmodel.placement import ranks_by_tier
from costmodel.plan import PlanPoint
from costmodel.semantics import Scalar, Semantics, total
from costmodel.stack import Stack


@pytree
class Laws:
    """The law of each kind of traffic."""

    sync: Law  # edge of a tensor-parallel region: an all-reduce, or reduce-scatter and all-gather
    regather: Law  # under sequence parallelism, inputs are gathered again for the weight gradients
    ring: Law  # one hop of the context ring
    exchange: Law  # all-to-all over the context group
    shard: Law  # all-gather or reduce-scatter over the ranks that share weights
    replica: Law  # all-reduce of what is sharded over the groups that hold copies
    boundary: Law  # activation to the next pipeline stage


@pytree
class BlockTraffic:
    """Communication seconds of one block and microbatch, before any overlap."""

    sync_forward_s: Scalar
    sync_backward_s: Scalar
    ring_forward_s: Scalar
    ring_backward_s: Scalar
    exchange_s: Scalar  # in each direction
    gather_s: Scalar  # one all-gather of the block's weights
    reduce_s: Scalar  # one reduce-scatter of its gradients


def laws(point: PlanPoint, cluster: Cluster, stack: Stack, sem: Semantics) -> Laws:
    """Place every group over the tiers and take its law."""
    tiers = cluster.tiers

    def ranks(group: Scalar, stride: Scalar) -> tuple[Scalar, ...]:
        return ranks_by_tier(group, stride, tiers, point.domain, sem)

    stage = point.accelerators / point.pipeline
    tensor, context = ranks(point.tensor, 1.0), ranks(point.context, point.tensor)
    replicas = stage / (point.tensor * point.data_shard)
    gather = collectives.all_gather(tensor, tiers, stack, sem)
    reduce = collectives.all_reduce(tensor, tiers, stack, sem)
    return Laws(
        sync=collectives.blend(reduce, collectives.repeat(gather, 2.0), point.sequence_parallel),
        regather=collectives.repeat(gather, point.sequence_parallel),
        ring=collectives.neighbour(context, tiers, stack, sem),
        exchange=collectives.all_to_all(context, tiers, stack, sem),
        shard=collectives.all_gather(ranks(point.data_shard, point.tensor), tiers, stack, sem),
        replica=collectives.all_reduce(ranks(replicas, point.tensor * point.data_shard), tiers, stack, sem),
        boundary=collectives.neighbour(ranks(point.pipeline, stage), tiers, stack, sem),
    )


def block_traffic(block: BlockCounts, point: PlanPoint, law: Laws, stack: Stack) -> BlockTraffic:
    """Seconds of each kind of traffic of one block and microbatch."""
    backward = block.backward_sync_bytes, block.backward_syncs
    hops = point.context_ring * (point.context - 1)
    ring_s = hops * total(time_s(law.ring, count.ring_bytes) for count in block.attentions)
    exchanged = total(time_s(law.exchange, count.exchange_bytes, 4.0) for count in block.attentions)
    return BlockTraffic(
        sync_forward_s=time_s(law.sync, block.sync_bytes, block.syncs),
        sync_backward_s=time_s(law.sync, *backward) + stack.regather_exposed * time_s(law.regather, *backward),
        ring_forward_s=ring_s,
        ring_backward_s=2.0 * ring_s,  # gradients of keys and values travel with them
        exchange_s=(1 - point.context_ring) * exchanged,
        gather_s=time_s(law.shard, weight_bytes(block, point)),
        reduce_s=time_s(law.shard, gradient_bytes(block, point)),
    )


def weight_bytes(block: BlockCounts, point: PlanPoint) -> Scalar:
    """Bytes of one block's weights on a rank, unsharded."""
    return block.parameters * point.precision.weight_bytes


def gradient_bytes(block: BlockCounts, point: PlanPoint) -> Scalar:
    """Bytes of one block's gradients on a rank, unsharded."""
    return block.parameters * point.gradient_bytes
