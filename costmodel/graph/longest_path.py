"""The longest path through the operations of a pipeline: when each starts and ends. Plain floats in flat lists: quick.

`play.py` gives the orders and says what is played; a test there checks every start against `play.producers`.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

Task = tuple[str, int, int]
"""Kind (F, B or W), microbatch and chunk: `play.Task` without its names."""


class _Inputs(NamedTuple):
    """What one kind of operation on one chunk waits for: places in one flat list of ends, before the microbatch's."""

    place: int
    own: int  # where its own earlier operation ends, on the same device
    far: int  # where its neighbour's ends
    seconds: float
    delay_s: float
    lone: int  # the microbatch whose message travels while nothing else runs,
    lone_delay_s: float  # and what it takes


Times = tuple[list[float], list[float]]
"""When each operation that a device has done began, and when it ended."""


def longest_path(
    orders: Sequence[Sequence[Task]],
    seconds: dict[str, tuple[float, ...]],
    where: tuple[int, ...],
    microbatches: int,
    lone_s: float,
    steady_s: float,
) -> list[Times]:
    """Start and end of every operation: sweep over the devices; each runs until an input is missing.

    A message between devices takes `lone_s` where it is the first one down or the last one back, others `steady_s`.
    """
    table = _inputs(seconds, where, microbatches, lone_s, steady_s)
    missing, nothing = -1.0, [0.0] * microbatches
    ends_s = [missing] * (3 * len(where) * microbatches) + nothing
    waiting: list[list[Task]] = [list(reversed(tasks)) for tasks in orders]
    times: list[Times] = [([], []) for _ in orders]
    left = sum(map(len, orders))
    while left:
        before = left
        for tasks, own in zip(waiting, times, strict=True):
            left -= _advance(tasks, own, table, ends_s)
        if left == before:
            raise RuntimeError("the order of operations deadlocks")
    return times


def _advance(waiting: list[Task], times: Times, table: dict[tuple[str, int], _Inputs], ends_s: list[float]) -> int:
    """Run one device (its last operation stands first) until an input is missing; how many operations that were.

    The inner loop of a play.
    """
    starts_s, done_s = times
    before, free_s = len(waiting), done_s[-1] if done_s else 0.0
    while waiting:
        kind, microbatch, chunk = waiting[-1]
        place, own, far, seconds, delay_s, lone, lone_delay_s = table[kind, chunk]
        far_s = ends_s[far + microbatch]
        if far_s < 0 or ends_s[own + microbatch] < 0:
            break
        ready_s = far_s + (lone_delay_s if microbatch == lone else delay_s)
        start_s = ready_s if ready_s > free_s else free_s
        free_s = ends_s[place + microbatch] = start_s + seconds
        waiting.pop()
        starts_s.append(start_s)
        done_s.append(free_s)
    return before - len(waiting)


def _inputs(
    seconds: dict[str, tuple[float, ...]], where: tuple[int, ...], microbatches: int, lone_s: float, steady_s: float
) -> dict[tuple[str, int], _Inputs]:
    """`producers` as places: F follows the chunk before it, B its own F and the chunk after it, W its own B."""
    chunks, lone = len(where), {"F": 0, "B": microbatches - 1, "W": -1}
    bases = {kind: i * chunks * microbatches for i, kind in enumerate("FBW")}
    nothing, table = len("FBW") * chunks * microbatches, {}
    for kind, chunk in product("FBW", range(chunks)):
        own = {"F": nothing, "B": bases["F"], "W": bases["B"]}[kind]
        near = chunk + {"F": -1, "B": 1, "W": 0}[kind]
        alone = kind == "W" or not 0 <= near < chunks
        moves = not alone and where[near] != where[chunk]
        table[kind, chunk] = _Inputs(
            place=bases[kind] + chunk * microbatches,
            own=own + (own < nothing) * chunk * microbatches,
            far=nothing if alone else bases[kind] + near * microbatches,
            seconds=seconds[kind][chunk],
            delay_s=moves * steady_s,
            lone=lone[kind],
            lone_delay_s=moves * lone_s,
        )
    return table
