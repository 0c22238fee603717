"""Orders of operations: named schedules played out, orders that were searched, resharding as shortest paths."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.graph import (
    CHIMERA,
    LIMITS,
    Placement,
    Unrolled,
    cheapest,
    cheapest_across,
    in_order,
    n_forwards_one_backward,
    placements,
    play,
    recycled,
    repeat,
    unroll,
    with_shared_blocks,
)

ELEMENTS = (1024, 1024)  # of the tensor that is laid out anew
RESHARDING: Mapping[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "value splits to replicas": ((1, 4, 1, 1), (4, 1, 1, 1), 1_572_865),
    "splits to replicas": ((1, 1, 4, 1), (4, 1, 1, 1), 786_433),
    "value splits to splits": ((1, 4, 1, 1), (1, 1, 4, 1), 786_433),
    "splits of one dimension to those of another": ((1, 1, 4, 1), (1, 1, 1, 4), 196_609),
    "replicas to splits": ((4, 1, 1, 1), (1, 1, 4, 1), 1),
    "both kinds of split to replicas": ((1, 2, 2, 1), (4, 1, 1, 1), 1_048_578),
    "splits of two dimensions to those of one": ((1, 1, 2, 2), (1, 1, 4, 1), 131_073),
    "replicas and splits to splits of the other": ((2, 1, 2, 1), (1, 1, 1, 4), 131_074),
}
"""From, to, and what is moved as nnScaler counts it: elements of each device, and one for each step."""
CROSSING = 3 + 2**20 + 3 * 2**18
"""Four replicas to four others over a slow link: a chunk, a move and an all-gather."""

SCHEDULES: Sequence[tuple[str, int, int, int, float, float]] = (
    ("gpipe", 4, 8, 1, 22, 3 / 11), ("gpipe", 4, 8, 3, 44, 3 / 11), ("one_f_one_b", 4, 8, 1, 22, 3 / 11),
    ("one_f_one_b", 4, 8, 2, 33, 3 / 11), ("one_f_one_b", 4, 8, 3, 44, 3 / 11), ("one_f_one_b", 4, 16, 2, 57, 3 / 19),
    ("one_f_one_b", 8, 32, 2, 117, 7 / 39), ("chimera", 4, 4, 2, 16, 0.25),
)  # fmt: skip
"""Schedule, stages, microbatches, backward over forward, published makespan and bubble."""
PERIODS = {"V": 4, "X": 8, "M": 6, "NN": 8, "NN eager": 8, "mllm": 8, "K": 6, "alphafold": 4}
"""Of the best orders that Tessel finds, on four devices with backward passes of 3; for alphafold, whose search was
stopped at 5, the work of a device."""
SHARED = (("M", 8, 4 / 3), ("NN", 10, 5 / 4))
"""Placements with blocks on all devices: period of 1F1B around them, and its period over that of the best order."""


def schedules() -> list[dict[str, Any]]:
    """Makespan, bubble and live microbatches of each named schedule."""
    rows = []
    for name, stages, microbatches, backward, makespan, bubble in SCHEDULES:
        schedule = CHIMERA if name == "chimera" else name
        played = play(schedule, stages, microbatches, forward_s=1, backward_s=backward)
        busy_s = sum(map(sum, played.ends_s)) - sum(map(sum, played.starts_s))
        idle = 1 - busy_s / (stages * played.makespan_s)
        what = {"name": name, "stages": stages, "microbatches": microbatches, "backward": backward}
        found = {"makespan": played.makespan_s, "bubble": idle, "in_flight": list(played.in_flight)}
        rows.append(what | found | {"published_makespan": makespan, "published_bubble": bubble})
    return rows


def resharding() -> dict[str, tuple[float, float]]:
    """Published and our elements of each way."""
    ways = {name: (float(moved), cheapest(start, end, ELEMENTS)[1]) for name, (start, end, moved) in RESHARDING.items()}
    own = cheapest_across((4, 1, 1, 1), (4, 1, 1, 1), ELEMENTS)[1]
    return ways | {"replicas to those of another group": (float(CROSSING), own)}


def found_orders(names: Sequence[str], deadline_s: float) -> dict[str, dict[str, Any]]:
    """Period, bound and live microbatches of the best order of each placement within the memory that was published."""
    rows = {}
    for name in names:
        best = repeat(placements()[name], LIMITS[name], shortest=False, deadline_s=deadline_s)
        if best is None:
            continue
        held = [best.peak[d] for d in sorted(best.peak)]
        rows[name] = {"period": best.period_s, "least": best.least_period_s, "published": PERIODS[name], "held": held}
    return rows


def shared_blocks() -> list[dict[str, Any]]:
    """1F1B with blocks on all devices, and how many times longer its period is than the best order's."""
    rows = []
    for name, published, gain in SHARED:
        placement = placements()[name]
        short, long = (in_order(placement, with_shared_blocks(placement, m)).makespan_s for m in (40, 80))
        period = (long - short) / 40
        rows.append(
            {"name": name, "period": period, "published": published, "gain": period / PERIODS[name], "most": gain}
        )
    return rows


def recycling(stages: int = 4) -> list[dict[str, float]]:
    """3F1B: period for backwards of 1, 2 and 3, and activations of the first stage."""
    rows = []
    for backward in (1, 2, 3):
        placement = recycled(stages, 1.0, backward)
        short, long = (in_order(placement, n_forwards_one_backward(stages, m)) for m in (40, 80))
        period = (long.makespan_s - short.makespan_s) / 40
        rows.append({"backward": backward, "period": period, "held": short.peak[0]})
    return rows


def timelines(microbatches: int = 8) -> dict[str, list[list[tuple[str, int, float, float]]]]:
    """Spans of each device (block, microbatch, start, end) of two orders of the placement M, to be drawn."""
    placement = placements()["M"]
    best = repeat(placement, LIMITS["M"], shortest=False)
    listed = with_shared_blocks(placement, microbatches)
    pair = {"1F1B around shared blocks": in_order(placement, listed)}
    if best is not None:
        pair["the order that was found"] = unroll(placement, best, microbatches)
    return {name: _spans(placement, each) for name, each in pair.items()}


def _spans(placement: Placement, played: Unrolled) -> list[list[tuple[str, int, float, float]]]:
    starts, rows, place = played.played.starts_s, [], 0
    for device in played.order:
        row = []
        for microbatch, number in device:
            start = float(starts[place])
            row.append((placement[number].name, microbatch, start, start + placement[number].seconds))
            place += 1
        rows.append(row)
    return rows
