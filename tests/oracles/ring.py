"""Collectives played out message by message over enumerated ranks."""

import itertools
import math


def tier_between(a: int, b: int, sizes: list[int]) -> int:
    """Index of the innermost tier whose domain holds both ranks; rank r is in domain r // size."""
    return next(i for i, size in enumerate(sizes) if a // size == b // size)


def ring_all_gather_s(ranks: int, payload_bytes: float, latency_s: float, bytes_per_s: float) -> float:
    """Every rank passes on the piece that it received last, until all have all pieces."""
    held = [{rank} for rank in range(ranks)]
    newest = list(range(ranks))
    clock_s = 0.0
    while any(len(pieces) < ranks for pieces in held):
        newest = [newest[(rank - 1) % ranks] for rank in range(ranks)]
        for rank, piece in enumerate(newest):
            held[rank].add(piece)
        clock_s += latency_s + payload_bytes / ranks / bytes_per_s
    return clock_s


def tree_all_reduce_latency_s(ranks: int, latency_s: float) -> float:
    """A binary tree: pairs of partial sums merge until one is left, then the result goes down again."""
    levels, waiting = 0, ranks
    while waiting > 1:
        waiting = math.ceil(waiting / 2)
        levels += 1
    return 2 * levels * latency_s


def hierarchical_all_gather_bytes(members: list[int], sizes: list[int], payload_bytes: float) -> list[float]:
    """Bytes that one rank receives over each tier: pieces cross a tier once per set of peers inside it.

    Gathers from the outside in: on the outermost tier ranks with the same place inside their domains exchange pieces,
    then what they hold is spread inside.
    """
    received = [0.0] * len(sizes)
    held = {member: {member} for member in members}
    for tier in reversed(range(len(sizes))):
        before = {member: set(pieces) for member, pieces in held.items()}
        for member, peer in itertools.permutations(members, 2):
            if tier_between(member, peer, sizes) == tier and _same_place(member, peer, tier, members, sizes):
                held[member] |= before[peer]
        gained = {len(held[member]) - len(before[member]) for member in members}
        assert len(gained) == 1, "the group does not nest"
        received[tier] = gained.pop() * payload_bytes / len(members)
    assert all(len(pieces) == len(members) for pieces in held.values())
    return received


def flat_ring(members: list[int], sizes: list[int], payload_bytes: float) -> tuple[list[float], list[int]]:
    """Bytes that one rank sends over each tier, and hops of each tier until all have all, of rings in rank order.

    There are as many rings as ranks in the fullest crossing domain, each with its share of the payload, so that on the
    way into another domain each ring leaves from another rank.
    """
    last = len(members) - 1
    crossed = [tier_between(members[i], members[i + 1], sizes) for i in range(last)]
    sent = [0.0] * len(sizes)
    for tier in set(crossed) | ({tier_between(members[-1], members[0], sizes)} if last else set()):
        inner = sizes[tier - 1] if tier else 1
        exits = len([member for member in members if member // inner == members[0] // inner])
        # every ring forwards all pieces but one over its only link out of each domain; its exits share the rings
        sent[tier] = payload_bytes * last / len(members) / exits
    return sent, [crossed.count(tier) for tier in range(len(sizes))]


def switch_all_reduce_bytes(ranks: int, payload_bytes: float) -> float:
    """Bytes that one rank sends: each piece to the switch, which adds up, and then the sum of its own."""
    sent = [0.0] * ranks
    for owner in range(ranks):
        for rank in range(ranks):
            sent[rank] += payload_bytes / ranks  # read by the switch
        sent[owner] += payload_bytes / ranks  # the sum, which the switch copies to all
    return sent[0]


def _same_place(a: int, b: int, tier: int, members: list[int], sizes: list[int]) -> bool:
    """Whether two ranks hold the same position among the group's members of their domains below `tier`."""
    if tier == 0:
        return True
    inner = sizes[tier - 1]

    def place(rank: int) -> int:
        return [m for m in members if m // inner == rank // inner].index(rank)

    return place(a) == place(b)


def all_to_all_bytes(members: list[int], sizes: list[int], payload_bytes: float) -> list[float]:
    """Bytes that one rank sends over each tier when every pair exchanges a different piece."""
    sent = [0.0] * len(sizes)
    for peer in members[1:]:
        sent[tier_between(members[0], peer, sizes)] += payload_bytes / len(members)
    return sent
