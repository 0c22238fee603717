"""The communication of a plan: which group of ranks talks over which tiers, by which law, and how much.

Groups lie from the inside out in the order tensor, context, data, pipeline (placement.py).
"""

import dataclasses
from collections.abc import Callable

from costmodel.formulas import collectives
from costmodel.formulas.collectives import Law, time_s
from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import expert_shard, held_on_heaviest_stage, on_heaviest_stage, sharding
from costmodel.formulas.placement import ranks_by_tier, reached
from costmodel.inputs import Cluster, PlanPoint, Stack, Tier, ZeroRow
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total

_ROUTER = 5.0  # experts whose host work is that of the router
_USUAL = 11.0  # experts on a rank for which `Stack.routing_s` stands


@pytree
class Laws:
    """The law of each kind of traffic."""

    sync: Law  # edge of a tensor-parallel region: an all-reduce, or reduce-scatter and all-gather
    regather: Law  # under sequence parallelism, inputs are gathered again for the weight gradients
    ring: Law  # one hop of the context ring
    exchange: Law  # all-to-all over the context group
    shard: Law  # all-gather or reduce-scatter over the ranks that share weights
    replica: Law  # all-reduce of what is sharded over the groups that hold copies
    boundary: Law  # activation to the next pipeline stage, by the whole of it
    sync_wait_s: Scalar  # of the host, at each edge of a tensor-parallel region
    experts: "ExpertLaws | None"  # where the model has experts


@pytree
class ExpertLaws:
    """Traffic on the second mesh: expert_tensor, expert, expert-data, from the inside out."""

    exchange: Law  # tokens to the ranks that hold their experts, and back
    gather: Law  # all-gather or reduce-scatter over the ranks that share an expert
    shard: Law  # as `Laws.shard`, over the ranks that share an expert's weights
    replica: Law


def laws(counted: OpCounts, point: PlanPoint, cluster: Cluster, stack: Stack, sem: Semantics) -> Laws:
    """Place every group over the tiers and take its law.

    Each tensor rank sends its share of an activation to the next stage, which gathers it where it needs the whole
    (scatter/gather: Narayanan et al. 2021, section 4.1; under sequence parallelism each rank needs its share only).
    """
    tiers = tiers_in_training(cluster, point, stack, sem)

    def ranks(group: Scalar, stride: Scalar) -> tuple[Scalar, ...]:
        return ranks_by_tier(group, stride, tiers, point.domain, sem)

    trees = _without_steps(stack)
    stage = point.accelerators / point.pipeline
    tensor, context = ranks(point.tensor, 1.0), ranks(point.context, point.tensor)
    replicas = stage / (point.tensor * point.data_shard)
    gather = collectives.all_gather(tensor, tiers, stack, sem)
    reduce = collectives.all_reduce(tensor, tiers, stack, sem)
    hop = collectives.neighbour(ranks(point.pipeline, stage), tiers, stack, sem)
    return Laws(
        sync=collectives.blend(reduce, collectives.repeat(gather, 2.0), point.sequence_parallel),
        regather=collectives.repeat(gather, point.sequence_parallel),
        ring=collectives.neighbour(context, tiers, stack, sem),
        exchange=collectives.all_to_all(context, tiers, stack, sem),
        shard=collectives.all_gather(ranks(point.data_shard, point.tensor), tiers, trees, sem),
        replica=collectives.all_reduce(ranks(replicas, point.tensor * point.data_shard), tiers, stack, sem),
        boundary=collectives.in_turn(
            collectives.parted(hop, 1.0 / point.tensor, sem),
            collectives.repeat(gather, (1 - point.sequence_parallel) * sem.minimum(1.0, point.pipeline - 1)),
        ),
        sync_wait_s=_sync_wait_s(point, stack, sem),
        experts=expert_laws(counted, point, tiers, stack, sem),
    )


def _without_steps(stack: Stack) -> Stack:
    """For gathers over data ranks, which NCCL runs as trees of few steps where they are wide (PAT, since 2.23).

    Measured steps of 128 to 5,120 accelerators (MLPerf 5.1) leave no room for those of rings.
    """
    return dataclasses.replace(stack, ring_step_s=0.0)


def _sync_wait_s(point: PlanPoint, stack: Stack, sem: Semantics) -> Scalar:
    """Host's wait for all tensor ranks at one edge of their region, in a pipeline over several domains; 0 elsewhere.

    nanotron's rows, the only ones that have it, take the same time at microbatches of 1 to 8: 1B and 8B on H100 with
    EFA 10, 16, 26 and 55 ms a layer at 2, 4, 8 and 16 tensor ranks, where they take 4.5 ms (8 ms at 16 ranks) without a
    pipeline or inside one node. What makes them wait is not known.
    """
    divided = sem.minimum(1.0, point.tensor - 1) * sem.minimum(1.0, point.pipeline - 1)
    leaves = sem.minimum(1.0, sem.maximum(point.accelerators / point.domain, 1.0) - 1)
    return stack.sync_rank_s * stack.habits.waits_for_ranks * point.tensor * divided * leaves


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
    if not counted.has_experts:
        return None
    sending = next(block for block in counted.blocks if block.exchanges)
    mesh = point.expert * point.expert_tensor

    def ranks(group: Scalar, stride: Scalar) -> tuple[Scalar, ...]:
        return ranks_by_tier(group, stride, tiers, point.domain, sem)

    shard = expert_shard(point, sem)
    copies = point.accelerators / (point.pipeline * mesh * shard)
    exchanged = ranks(point.expert, point.expert_tensor)
    tokens = collectives.all_to_all(exchanged, tiers, stack, sem, spread(sending, point, stack, sem))
    return ExpertLaws(
        exchange=collectives.blend(
            tokens, collectives.all_gather(exchanged, tiers, stack, sem), point.dispatcher.gathering
        ),
        gather=collectives.all_gather(ranks(point.expert_tensor, 1.0), tiers, stack, sem),
        shard=collectives.all_gather(ranks(shard, mesh), tiers, _without_steps(stack), sem),
        replica=collectives.all_reduce(ranks(copies, mesh * shard), tiers, stack, sem),
    )


def spread(sending: BlockCounts, point: PlanPoint, stack: Stack, sem: Semantics) -> Scalar:
    r"""Share of the payload for other domains that leaves the domain, where copies for one domain are sent once.

    A token whose $k$ experts lie anywhere in $D$ domains reaches $D (1 - (1 - 1/D)^k)$ of them in the mean. Source:
    DeepEP, HybridEP, DeepSeek-AI 2024 (V3). Routing that is limited to some domains sends no more than that. A fused
    dispatcher's payload has one copy for each accelerator already.
    """
    domains, copies = sem.maximum(point.expert * point.expert_tensor / point.domain, 1.0), sending.exchange_copies
    row = point.dispatcher
    share = row.own * stack.sent_once + row.once
    leaving = sem.minimum(sending.exchange_spread, 1 - share * (1 - reached(domains, copies)))
    return sem.minimum(1.0, leaving / (1 - row.once * (1 - reached(point.expert, copies))))


def sync_s(block: BlockCounts, law: Laws, stack: Stack, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Seconds at the edges of tensor-parallel regions, of one block and microbatch: forward and backward."""
    back_bytes, backs = block.backward_sync_bytes, block.backward_syncs
    again_s = stack.regather_exposed * time_s(law.regather, back_bytes, sem, backs)
    forward_s = time_s(law.sync, block.sync_bytes, sem, block.syncs)
    return forward_s, time_s(law.sync, back_bytes, sem, backs) + again_s


def context_s(block: BlockCounts, point: PlanPoint, law: Laws, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Seconds of the context ring in a forward pass, and of the all-to-alls over heads in each direction.

    Backward the ring takes twice as long: gradients of keys and values travel with them.
    """
    hops = point.context_ring * (point.context - 1)
    ring_s = hops * total(time_s(law.ring, count.ring_bytes, sem) for count in block.attentions)
    exchanged_s = total(time_s(law.exchange, count.exchange_bytes, sem, 4.0) for count in block.attentions)
    return ring_s, (1 - point.context_ring) * exchanged_s


def sharded_s(block: BlockCounts, point: PlanPoint, law: Laws, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Seconds of one all-gather of the block's weights, and of one reduce-scatter of its gradients."""
    weight, gradient = point.precision.weight_bytes, point.gradient_bytes
    return (
        _sharded_s(block, weight * block.parameters, weight * block.expert_parameters, law, sem),
        _sharded_s(block, gradient * block.trained_parameters, gradient * block.trained_expert_parameters, law, sem),
    )


def tokens_s(block: BlockCounts, law: Laws, stack: Stack, sem: Semantics) -> Scalar:
    """Seconds of tokens to their experts and back, in each direction of the pass, and of the host's work in between.

    The host reads how many tokens go where, and then starts the products of one expert after another, so its work
    grows with the experts of a rank; the rest of it is that of `_ROUTER` experts. C: on 51 rows of four chips without
    captured iterations 0.47 ms a pass and 0.096 ms for each expert explain the times better (median error .135) than
    1.64 ms a pass (.173); rows that drop tokens do not differ.
    """
    experts = law.experts
    if experts is None or not block.exchanges:
        return 0.0
    gathered_s = time_s(experts.gather, block.gather_bytes, sem, block.gathers) if block.gathers else 0.0
    host_s = stack.routing_s * (_ROUTER + block.experts) / (_ROUTER + _USUAL)
    return time_s(experts.exchange, block.exchange_bytes, sem, block.exchanges) + gathered_s + host_s


def _sharded_s(block: BlockCounts, dense_bytes: Scalar, expert_bytes: Scalar, law: Laws, sem: Semantics) -> Scalar:
    """One all-gather or reduce-scatter of a block's elements over the ranks that share them."""
    dense_s = time_s(law.shard, dense_bytes, sem)
    if law.experts is None or not block.exchanges:
        return dense_s
    return dense_s + time_s(law.experts.shard, expert_bytes, sem)


def gradient_traffic_s(counted: OpCounts, laws: Laws, point: PlanPoint, sem: Semantics) -> Scalar:
    """Gradient reduction and weight gathering once a step, in one bucket for each layer."""
    dense, trained = (
        held_on_heaviest_stage(counted, quantity, point, sem)
        for quantity in (lambda block: block.parameters, lambda block: block.trained_parameters)
    )
    zero = sharding(point, sem)
    dense_s = _reduced_s(dense, trained, laws.shard, laws.replica, point.data_shard, zero, counted, point, sem)
    dense_s = dense_s + _between_copies_s(trained, point.data_shard, laws, point, sem)
    if laws.experts is None:
        return dense_s
    own, trained = (
        held_on_heaviest_stage(counted, quantity, point, sem)
        for quantity in (lambda block: block.expert_parameters, lambda block: block.trained_expert_parameters)
    )
    ranks = expert_shard(point, sem)
    own_s = _reduced_s(own, trained, laws.experts.shard, laws.experts.replica, ranks, zero, counted, point, sem)
    return dense_s + own_s + _between_copies_s(trained, ranks, laws, point, sem)


def _between_copies_s(trained: Scalar, ranks: Scalar, laws: Laws, point: PlanPoint, sem: Semantics) -> Scalar:
    """Two stages that hold the same chunks reduce the shards of their gradients, half each, and share the result."""
    return point.schedule.both_ways * time_s(laws.boundary, point.gradient_bytes * trained / ranks, sem)


def _reduced_s(
    elements: Scalar,
    trained: Scalar,
    shard: Law,
    replica: Law,
    ranks: Scalar,
    zero: ZeroRow,
    counted: OpCounts,
    point: PlanPoint,
    sem: Semantics,
) -> Scalar:
    buckets = counted.layer_count / point.pipeline
    gradients_bytes = point.gradient_bytes * trained
    once_bytes = zero.reduces_once * gradients_bytes + zero.gathers_once * point.precision.weight_bytes * elements
    calls = (zero.reduces_once + zero.gathers_once) * buckets
    share, exchanges = _of_method(point)
    between_s = time_s(replica, share * gradients_bytes / ranks, sem, buckets)
    return time_s(shard, once_bytes, sem, calls) + exchanges * between_s


def _of_method(point: PlanPoint) -> tuple[Scalar, Scalar]:
    """The share of the gradients that copies exchange, and how often in a step."""
    row = point.method
    return (1.0, 1.0) if row is None else (row.gradient_share(point.data), row.per_step)


def busiest_links_s(counted: OpCounts, laws: Laws, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds that each tier's links are busy with all traffic of a step; the largest bounds the step."""
    return sem.maximum(*links_by_tier_s(counted, laws, point, sem))


def links_by_tier_s(counted: OpCounts, laws: Laws, point: PlanPoint, sem: Semantics) -> tuple[Scalar, ...]:
    """Seconds that the links of each tier are busy in a step, on the heaviest stage."""
    payloads = _step_payloads(counted, laws, point, sem)
    tiers = range(len(laws.sync.by_tier))
    return tuple(total(law.by_tier[i] * payload for law, payload in payloads) for i in tiers)


def _step_payloads(counted: OpCounts, laws: Laws, point: PlanPoint, sem: Semantics) -> tuple[tuple[Law, Scalar], ...]:
    """Bytes that each law carries in one step on the heaviest stage."""
    m, zero = counted.microbatches, sharding(point, sem)

    def of(quantity: Callable[[BlockCounts], Scalar]) -> Scalar:
        return on_heaviest_stage(counted, quantity, point, sem)

    def held(quantity: Callable[[BlockCounts], Scalar]) -> Scalar:
        return held_on_heaviest_stage(counted, quantity, point, sem)

    hops, exchanges = point.context_ring * (point.context - 1), 1 - point.context_ring
    gathers = zero.gathers_once + m * zero.gathers_per_microbatch
    reduces = zero.reduces_once + m * zero.reduces_per_microbatch
    weights_bytes, gradients_bytes = gathers * point.precision.weight_bytes, reduces * point.gradient_bytes
    alone = point.modules
    share, exchanged = _of_method(point)
    copied_bytes = share * exchanged * point.gradient_bytes
    redone = 1.0 + point.recompute.redo_rest + (0.0 if alone is None else alone.feed_forward)
    elements, trained = held(lambda b: b.parameters), held(lambda b: b.trained_parameters)
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
        (laws.replica, copied_bytes * trained / point.data_shard),
        (laws.boundary, 2.0 * (1 + point.schedule.folds) * m * counted.boundary_bytes),
    )
    if laws.experts is None:
        return dense
    own, trained = held(lambda b: b.expert_parameters), held(lambda b: b.trained_expert_parameters)
    return (
        *dense,
        (laws.experts.exchange, m * of(lambda b: (b.forwards + redone) * b.exchange_bytes)),
        (laws.experts.gather, m * of(lambda b: (b.forwards + redone) * b.gather_bytes)),
        (laws.experts.shard, weights_bytes * own + gradients_bytes * trained),
        (laws.experts.replica, copied_bytes * trained / expert_shard(point, sem)),
    )
