"""The communication of a plan: which group of ranks talks over which tiers, by which law, and how much.

Groups lie from the inside out in the order tensor, context, data, pipeline (placement.py).
"""

import dataclasses

from costmodel.formulas import collectives
from costmodel.formulas.collectives import Law, time_s
from costmodel.formulas.counts import BlockCounts, OpCounts
from costmodel.formulas.placement import ranks_by_tier
from costmodel.inputs import Cluster, PlanPoint, Stack, Tier
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total


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
    experts: "ExpertLaws | None"  # where the model has experts


@pytree
class ExpertLaws:
    """Traffic on the second mesh: expert_tensor, expert, expert-data, from the inside out."""

    exchange: Law  # tokens to the ranks that hold their experts, and back
    gather: Law  # all-gather or reduce-scatter over the ranks that share an expert
    shard: Law  # as `Laws.shard`, over the ranks that share an expert's weights
    replica: Law


@pytree
class BlockTraffic:
    """Communication seconds of one block and microbatch, before any overlap."""

    sync_forward_s: Scalar
    sync_backward_s: Scalar
    ring_forward_s: Scalar
    ring_backward_s: Scalar
    exchange_s: Scalar  # in each direction
    expert_s: Scalar  # tokens to experts and back, in each direction of the pass
    gather_s: Scalar  # one all-gather of the block's weights
    reduce_s: Scalar  # one reduce-scatter of its gradients


def laws(counted: OpCounts, point: PlanPoint, cluster: Cluster, stack: Stack, sem: Semantics) -> Laws:
    """Place every group over the tiers and take its law."""
    tiers = tiers_in_training(cluster, point, stack, sem)

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
        experts=expert_laws(counted, point, tiers, stack, sem),
    )


def tiers_in_training(cluster: Cluster, point: PlanPoint, stack: Stack, sem: Semantics) -> tuple[Tier, ...]:
    r"""The tiers in a job of $n$ domains: $1/\eta_0$ times as long, beyond the first $(1 + c \log_2 n)/\eta$ times.

    Flows of more ranks collide on shared links and wait for more stragglers, so the slowdown is one of traffic and
    vanishes inside one domain. $c$ = `Stack.congestion`, $\eta_0$ = `scale_up_ceiling`, $\eta$ = `scale_out_ceiling`.
    """
    domains = sem.maximum(point.accelerators / point.domain, 1.0)
    slower = (1 + stack.congestion * sem.log2(domains)) / stack.scale_out_ceiling
    shared = (1.0 / stack.scale_up_ceiling, *(slower for _ in cluster.tiers[1:]))
    return tuple(
        dataclasses.replace(tier, oversubscription=factor * tier.oversubscription)
        for tier, factor in zip(cluster.tiers, shared, strict=True)
    )


def expert_laws(
    counted: OpCounts, point: PlanPoint, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics
) -> ExpertLaws | None:
    """The laws of the expert mesh; none for a model without experts."""
    if not has_experts(counted):
        return None
    spreads = [block.exchange_spread for block in counted.blocks if block.exchanges]
    mesh = point.expert * point.expert_tensor

    def ranks(group: Scalar, stride: Scalar) -> tuple[Scalar, ...]:
        return ranks_by_tier(group, stride, tiers, point.domain, sem)

    shard = expert_shard(point, sem)
    copies = point.accelerators / (point.pipeline * mesh * shard)
    exchanged = ranks(point.expert, point.expert_tensor)
    return ExpertLaws(
        exchange=collectives.all_to_all(exchanged, tiers, stack, sem, spreads[0]),
        gather=collectives.all_gather(ranks(point.expert_tensor, 1.0), tiers, stack, sem),
        shard=collectives.all_gather(ranks(shard, mesh), tiers, stack, sem),
        replica=collectives.all_reduce(ranks(copies, mesh * shard), tiers, stack, sem),
    )


def expert_shard(point: PlanPoint, sem: Semantics) -> Scalar:
    """Ranks that share an expert's weights: all that hold a copy, or `data_shard` of them where that is fewer."""
    holders = point.accelerators / (point.pipeline * point.expert * point.expert_tensor)
    return sem.minimum(holders, point.data_shard)


def share(divided: Scalar, ranks: Scalar) -> Scalar:
    """What one rank holds of something that is divided over `ranks` (1) or replicated (0)."""
    return (1 - divided) + divided / ranks


def has_experts(counted: OpCounts) -> bool:
    """Whether any block sends tokens to experts."""
    return any(block.exchanges for block in counted.blocks)


def block_traffic(block: BlockCounts, point: PlanPoint, law: Laws, stack: Stack) -> BlockTraffic:
    """Seconds of each kind of traffic of one block and microbatch."""
    backward = block.backward_sync_bytes, block.backward_syncs
    weight, gradient = point.precision.weight_bytes, point.gradient_bytes
    hops = point.context_ring * (point.context - 1)
    ring_s = hops * total(time_s(law.ring, count.ring_bytes) for count in block.attentions)
    exchanged = total(time_s(law.exchange, count.exchange_bytes, 4.0) for count in block.attentions)
    return BlockTraffic(
        sync_forward_s=time_s(law.sync, block.sync_bytes, block.syncs),
        sync_backward_s=time_s(law.sync, *backward) + stack.regather_exposed * time_s(law.regather, *backward),
        ring_forward_s=ring_s,
        ring_backward_s=2.0 * ring_s,  # gradients of keys and values travel with them
        exchange_s=(1 - point.context_ring) * exchanged,
        expert_s=_tokens_s(block, law.experts, stack),
        gather_s=_sharded_s(block, weight * block.parameters, weight * block.expert_parameters, law),
        reduce_s=_sharded_s(
            block, gradient * block.trained_parameters, gradient * block.trained_expert_parameters, law
        ),
    )


def _tokens_s(block: BlockCounts, law: ExpertLaws | None, stack: Stack) -> Scalar:
    """Tokens to their experts and back, and the host's work in between (it reads how many go where)."""
    if law is None or not block.exchanges:
        return 0.0
    gathered_s = time_s(law.gather, block.gather_bytes, block.gathers) if block.gathers else 0.0
    return time_s(law.exchange, block.exchange_bytes, block.exchanges) + gathered_s + stack.routing_s


def _sharded_s(block: BlockCounts, dense_bytes: Scalar, expert_bytes: Scalar, law: Laws) -> Scalar:
    """One all-gather or reduce-scatter of a block's elements over the ranks that share them."""
    dense_s = time_s(law.shard, dense_bytes)
    if law.experts is None or not block.exchanges:
        return dense_s
    return dense_s + time_s(law.experts.shard, expert_bytes)
