"""How good an order can be at all: from the work of devices, from chains, from what memory can hold meanwhile."""

import math
from collections.abc import Sequence

from costmodel.graph.search.placements import Placement, check


def work_s(placement: Placement) -> dict[int, float]:
    """Busy seconds of each device for one microbatch."""
    busy: dict[int, float] = {}
    for block in placement:
        for device in block.devices:
            busy[device] = busy.get(device, 0.0) + block.seconds
    return dict(sorted(busy.items()))


def distance_s(placement: Placement, producer: int, consumer: int, transfer_s: float) -> float:
    """Seconds from the start of a block to the least start of one that waits for it: transfers are between devices."""
    ends, starts = placement[producer], placement[consumer]
    return ends.seconds + transfer_s * (not set(ends.devices) & set(starts.devices))


def least_distances_s(placement: Placement, transfer_s: float) -> list[list[float]]:
    """Least seconds from the start of each block to that of each later one of its chain; -inf where none follows."""
    far = [[-math.inf] * len(placement) for _ in placement]
    for i in range(len(placement)):
        far[i][i] = 0.0
        for j in range(i + 1, len(placement)):
            steps = (far[i][p] + distance_s(placement, p, j, transfer_s) for p in placement[j].after)
            far[i][j] = max(steps, default=-math.inf)
    return far


def holders(placement: Placement) -> dict[int, list[tuple[int, int]]]:
    """The blocks of each device that take memory, each with the nearest that frees it, inside out."""
    before: list[set[int]] = []
    for block in placement:
        before.append(set(block.after).union(*(before[i] for i in block.after)))
    pairs = {}
    for device in work_s(placement):
        own = [i for i, block in enumerate(placement) if device in block.devices]
        freeing, pairs[device] = [i for i in own if placement[i].held < 0], []
        for i in reversed([i for i in own if placement[i].held > 0]):
            j = next((j for j in freeing if i in before[j]), None)
            if j is None:
                name = placement[i].name
                raise ValueError(f"what block {name} takes on device {device} no block frees; expected one behind it")
            freeing.remove(j)
            pairs[device].append((i, j))
    return pairs


def least_period_s(placement: Placement, limit: float = math.inf, transfer_s: float = 0.0) -> float:
    """No order takes less for each microbatch.

    A device must do its work; and what it holds in the mean (activations times the least time for which each is held,
    over the period) is not more than its limit.
    """
    check(placement, transfer_s)
    far, busy = least_distances_s(placement, transfer_s), max(work_s(placement).values())
    held = [sum(placement[i].held * far[i][j] for i, j in pairs) for pairs in holders(placement).values()]
    if limit > 0:
        return max(busy, max(held) / limit)
    return math.inf if any(held) else busy


def least_makespan_s(placement: Placement, microbatches: int, transfer_s: float = 0.0) -> float:
    """No order of so many microbatches takes less: some device's work, and the shortest ways to it and from it."""
    far = least_distances_s(placement, transfer_s)
    starts = [max(column) for column in zip(*far, strict=True)]
    ends = [max(far[i][j] + placement[j].seconds for j in range(len(placement))) for i in range(len(placement))]
    found = [max(starts[i] + ends[i] for i in range(len(placement)))]
    for device, busy_s in work_s(placement).items():
        own = [i for i, block in enumerate(placement) if device in block.devices]
        first_s = min(starts[i] for i in own)
        last_s = min(ends[i] - placement[i].seconds for i in own)
        found.append(first_s + microbatches * busy_s + last_s)
    return max(found)


def peak(placement: Placement, starts: Sequence[float], period: float) -> dict[int, float]:
    """What each device holds at most in the steady state, microbatch after microbatch started a period later."""
    found = {}
    for device, pairs in holders(placement).items():
        times = [(starts[i], starts[j], placement[i].held) for i, j in pairs]
        live = (
            sum(held * ((at - taken) // period - (at - freed) // period) for taken, freed, held in times)
            for at, _, _ in times
        )
        found[device] = max(live, default=0.0)
    return found
