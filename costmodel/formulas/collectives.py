r"""Collectives over nested tiers: seconds per byte of payload, and the latency of one call.

`ranks` are those of one group on each tier, from the inside out (placement.py), $g$ of them in all. With
$c_i = n_0 \cdots n_i$, an all-gather of $S$ bytes moves over tier $i$, per rank, $S (g - 1) / (g c_{i-1})$ bytes as
one ring through all ranks (none where $n_i = 1$), or $S (n_i - 1) / c_i$ nested, tier by tier; an all-reduce twice the
latter, or $S (n_i + 1) / c_i$ through switches that reduce; an all-to-all $S (n_i - 1) c_{i-1} / g$. Chunks are
pipelined over the tiers, so the time is near the maximum over the tiers; `Stack.chunk_fill` is the share in which they
do not overlap. On two machines of 8 B200, all-gathers reach 38 GB/s of a 50 GB/s adapter as a ring and would be at 20
if they were nested; all-reduces reach 48 nested: each machine must receive the tensor once, whatever reduces it.

Between the latency $a$ and the traffic $b$ of a call stands a ramp, $a + b + \rho\sqrt{ab}$ with
$\rho$ = `Stack.collective_ramp`: messages of middling size reach neither the one nor the other. It is what chunking
costs: c chunks over h hops take $(h + c)(\alpha + b/c)$, which the best c makes $a + b + 2\sqrt{ab}$ with
$a = h\alpha$ (Sanders, Speck and Träff 2009); protocols for small messages, slower per byte, ramp too.

Sources: Thakur et al. 2005 (ring and tree costs); Won et al. 2023 (hierarchical pipelining, LIBRA).
Everything vanishes by algebra for a group of one.
"""

from collections.abc import Callable

from costmodel.inputs import Stack, Tier
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total

Ranks = tuple[Scalar, ...]

# Roots are taken of no less than these, far below any real value: their slopes stay finite at zero, in float32 too.
_NO_TIME_S = 1e-18
_NO_SECONDS_PER_BYTE = 1e-24
_NO_BYTES = 1e-24
_NO_REDUCTION = 1e-9


@pytree
class Law:
    """Time of a collective: `seconds_per_byte * payload + latency_s + ramp * payload**0.5` for each call."""

    by_tier: tuple[Scalar, ...]  # seconds per byte of payload that each tier's links are busy
    seconds_per_byte: Scalar
    latency_s: Scalar
    ramp: Scalar  # seconds per square root of a byte


Algorithm = Callable[..., Law]
"""Of ranks by tier, tiers, stack and semantics, and for an all-to-all the `spread`: a log-convex law."""


def time_s(law: Law, payload_bytes: Scalar, sem: Semantics, calls: Scalar = 1.0) -> Scalar:
    """Seconds of `calls` collectives that move `payload_bytes` (the undivided tensors) together."""
    ramp_s = law.ramp * sem.sqrt(calls * payload_bytes + _NO_BYTES)
    return law.seconds_per_byte * payload_bytes + calls * law.latency_s + ramp_s


def all_gather(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    """All-gather, or its mirror image the reduce-scatter, by the algorithm that the stack names."""
    return COLLECTIVES["all_gather"][stack.all_gather](ranks, tiers, stack, sem)


def _ring_all_gather(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    r"""One ring through all ranks, domain after domain, as NCCL and RCCL lay it; as many rings as a domain has exits.

    Every rank forwards all pieces but one, $(g - 1)/g$ of the tensor; over tier i each ring does, and $c_{i-1}$ ranks
    share it. Of the $g - 1$ hops, $(n_i - 1)\prod_{j>i} n_j$ are of tier i. A ring that leaves the innermost domain
    takes `Stack.ring_step_s` more for each hop: every rank's step waits for one over the network, which a proxy on the
    host posts and completes. Source: NCCL, `src/graph/tuning.cc` ("inter-node rings still have to launch nsteps * net
    overhead").
    """
    group, inside, busy = _product(ranks), 1.0, []
    for n, link_s in zip(ranks, _link_s(tiers, stack, stack.network_ceiling), strict=True):
        busy.append(sem.minimum(1.0, n - 1) / inside * (group - 1) / group * link_s)
        inside = inside * n
    hops_s, domains = 0.0, 1.0
    for n, tier in zip(reversed(ranks), reversed(tiers), strict=True):
        hops_s = hops_s + domains * (n - 1) * tier.latency_s
        domains = domains * n
    leaves = sem.minimum(1.0, _product(ranks[1:]) - 1) if len(ranks) > 1 else 0.0
    hops_s = hops_s + leaves * (group - 1) * stack.ring_step_s
    return _law(ranks, tuple(busy), _start_s(ranks, stack, sem) + hops_s, stack, sem)


def _nested_all_gather(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    r"""Rings on each tier, the outermost first: latency $\alpha_0 + \sum_i (n_i - 1)\alpha_i$."""
    latency_s = _start_s(ranks, stack, sem) + _ring_hops_s(ranks, tiers)
    return _law(ranks, _busy(ranks, tiers, stack), latency_s, stack, sem)


def all_reduce(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    """All-reduce by the algorithm that the stack names."""
    return COLLECTIVES["all_reduce"][stack.all_reduce](ranks, tiers, stack, sem)


def _nested_all_reduce(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    r"""Two passes of the ring's traffic; where switches reduce at the share $\nu$ of the links' rate, the lesser of
    $2 (n_i - 1)$ and $(n_i + 1)/\nu$ pieces: every rank sends all its own to be reduced, and its result to all.

    Latency $\alpha_0 + 2\sum_i ((1-\theta)(n_i - 1) + \theta h_i \log_2 n_i)\alpha_i$ with $\theta$ the share of
    trees and $h_i$ what a level of a tree costs over one hop of the tier: `Stack.tree_hop` on the first,
    `Stack.network_hop` on the others. On nodes of 8 H100 each doubling of the nodes costs about 60 us beside what it
    adds to the ramp (arXiv 2411.13055, figure of the all-reduce, 4 to 512 nodes), far above the wire's 2.7 us.
    """
    busy, inside = [], 1.0
    for n, tier, link_s in zip(ranks, tiers, _link_s(tiers, stack, stack.network_ceiling), strict=True):
        inside = inside * n
        reduced = (n + 1) / sem.maximum(tier.in_network_reduction, _NO_REDUCTION)
        busy.append(sem.minimum(2.0 * (n - 1), reduced) / inside * link_s)
    costs = (stack.tree_hop, *[stack.network_hop] * (len(tiers) - 1))
    levels = zip(costs, ranks, tiers, strict=True)
    tree_s = total(cost * sem.log2(n) * tier.latency_s for cost, n, tier in levels)
    hops_s = (1 - stack.all_reduce_tree) * _ring_hops_s(ranks, tiers) + stack.all_reduce_tree * tree_s
    return _law(ranks, tuple(busy), _start_s(ranks, stack, sem) + 2 * hops_s, stack, sem)


def all_to_all(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics, spread: Scalar = 1.0) -> Law:
    """Every rank sends a different piece of its `payload` to every other, by the algorithm that the stack names.

    `spread` is the share of the bytes for other domains that is sent where copies for one domain go only once.
    """
    return COLLECTIVES["all_to_all"][stack.all_to_all](ranks, tiers, stack, sem, spread)


def _direct_all_to_all(
    ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics, spread: Scalar = 1.0
) -> Law:
    """Every piece goes straight to its rank."""
    inverse_group = 1.0 / _product(ranks)
    busy, inside, share = [], 1.0, 1.0
    for n, link_s in zip(ranks, _link_s(tiers, stack, stack.peer_ceiling), strict=True):
        busy.append(share * inside * (n - 1) * inverse_group * link_s)
        inside, share = inside * n, spread
    latency_s = _start_s(ranks, stack, sem) + _farthest_s(ranks, tiers, sem)
    return _law(ranks, tuple(busy), latency_s, stack, sem)


def neighbour(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    """A message to the next rank of the group, by the algorithm that the stack names."""
    return COLLECTIVES["neighbour"][stack.neighbour](ranks, tiers, stack, sem)


def _direct_neighbour(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack, sem: Semantics) -> Law:
    """All ranks send at once; the slowest link that any of them crosses sets the pace."""
    crossed = [sem.minimum(1.0, n - 1) for n in ranks]
    busy = tuple(x * link_s for x, link_s in zip(crossed, _link_s(tiers, stack, stack.peer_ceiling), strict=True))
    latency_s = _start_s(ranks, stack, sem) + _farthest_s(ranks, tiers, sem)
    return _ramped(ranks, busy, sem.maximum(*busy), latency_s, stack, sem)


COLLECTIVES: dict[str, dict[str, Algorithm]] = {
    "all_reduce": {"nested": _nested_all_reduce},
    "all_gather": {"ring": _ring_all_gather, "nested": _nested_all_gather},  # on tori nested: a ring for each axis
    "all_to_all": {"direct": _direct_all_to_all},
    "neighbour": {"direct": _direct_neighbour},
}
"""Algorithms of each kind by name: a `Stack` names one in its field of the kind. `costmodel.register_collective` checks
an algorithm and adds it."""


def blend(first: Law, second: Law, weight: Scalar) -> Law:
    """`(1 - weight) * first + weight * second`: a row of options chooses between two collectives."""

    def mix(a: Scalar, b: Scalar) -> Scalar:
        return (1 - weight) * a + weight * b

    return Law(
        by_tier=tuple(mix(a, b) for a, b in zip(first.by_tier, second.by_tier, strict=True)),
        seconds_per_byte=mix(first.seconds_per_byte, second.seconds_per_byte),
        latency_s=mix(first.latency_s, second.latency_s),
        ramp=mix(first.ramp, second.ramp),
    )


def repeat(law: Law, times: Scalar) -> Law:
    """The law of `times` calls of the same payload."""
    return Law(
        by_tier=tuple(times * busy for busy in law.by_tier),
        seconds_per_byte=times * law.seconds_per_byte,
        latency_s=times * law.latency_s,
        ramp=times * law.ramp,
    )


def parted(law: Law, share: Scalar, sem: Semantics) -> Law:
    """The law of a payload of which each call moves only a share."""
    return Law(
        by_tier=tuple(share * busy for busy in law.by_tier),
        seconds_per_byte=share * law.seconds_per_byte,
        latency_s=law.latency_s,
        ramp=sem.sqrt(share) * law.ramp,
    )


def in_turn(*laws: Law) -> Law:
    """The law of calls one after another, each of the same payload."""
    return Law(
        by_tier=tuple(map(total, zip(*(law.by_tier for law in laws), strict=True))),
        seconds_per_byte=total(law.seconds_per_byte for law in laws),
        latency_s=total(law.latency_s for law in laws),
        ramp=total(law.ramp for law in laws),
    )


def _law(ranks: Ranks, busy: tuple[Scalar, ...], latency_s: Scalar, stack: Stack, sem: Semantics) -> Law:
    paced = (1 - stack.chunk_fill) * sem.maximum(*busy) + stack.chunk_fill * total(busy)
    return _ramped(ranks, busy, paced, latency_s, stack, sem)


def _ramped(
    ranks: Ranks, busy: tuple[Scalar, ...], paced: Scalar, latency_s: Scalar, stack: Stack, sem: Semantics
) -> Law:
    roots = sem.sqrt(sem.maximum(latency_s, _NO_TIME_S)) * sem.sqrt(sem.maximum(paced, _NO_SECONDS_PER_BYTE))
    ramp = stack.collective_ramp * _talks(ranks, sem) * roots
    return Law(by_tier=busy, seconds_per_byte=paced, latency_s=latency_s, ramp=ramp)


def _busy(ranks: Ranks, tiers: tuple[Tier, ...], stack: Stack) -> tuple[Scalar, ...]:
    """Seconds of each tier's links per byte of an all-gathered tensor."""
    busy, inverse = [], 1.0
    for n, link_s in zip(ranks, _link_s(tiers, stack, stack.network_ceiling), strict=True):
        inverse = inverse / n
        busy.append((n - 1) * inverse * link_s)
    return tuple(busy)


def _link_s(tiers: tuple[Tier, ...], stack: Stack, outside: Scalar) -> tuple[Scalar, ...]:
    """Seconds that a byte takes over a link of each tier; `outside` is the ceiling of all tiers but the innermost."""
    ceilings = (stack.link_ceiling, *[outside] * (len(tiers) - 1))
    return tuple(
        tier.oversubscription / (ceiling * tier.bandwidth_bytes_per_s)
        for ceiling, tier in zip(ceilings, tiers, strict=True)
    )


def _ring_hops_s(ranks: Ranks, tiers: tuple[Tier, ...]) -> Scalar:
    return total((n - 1) * tier.latency_s for n, tier in zip(ranks, tiers, strict=True))


def _farthest_s(ranks: Ranks, tiers: tuple[Tier, ...], sem: Semantics) -> Scalar:
    return sem.maximum(*(sem.minimum(1.0, n - 1) * tier.latency_s for n, tier in zip(ranks, tiers, strict=True)))


def _start_s(ranks: Ranks, stack: Stack, sem: Semantics) -> Scalar:
    return stack.collective_s * _talks(ranks, sem)


def _talks(ranks: Ranks, sem: Semantics) -> Scalar:
    """One, and zero for a group of one."""
    return sem.minimum(1.0, _product(ranks) - 1)


def _product(ranks: Ranks) -> Scalar:
    product = ranks[0]
    for n in ranks[1:]:
        product = product * n
    return product
