"""The longest path through the operations of a pipeline: when each starts and ends. Plain floats in flat lists: quick.

`play.py` gives the orders and says what is played; a test there checks every start against `play.producers`.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

Task = tuple[str, int, int]
"""Kind (F, B or W), microbatch and chunk: `play.Task` without its names."""


class Link(NamedTuple):
    """Seconds of a message between devices: of the first one down and the last one back, and of the others."""

    microbatches: int
    lone_s: float
    steady_s: float


class _Inputs(NamedTuple):
    """What one kind of operation on one chunk waits for: places in one flat list of ends, before the microbatch's."""

    place: int
    own: int  # where its own earlier operation ends, on the same device
    far: int  # where its neighbour's ends
    seconds: float
    delay_s: float
    lone: int  # the microbatch whose message travels while nothing else runs,
    lone_delay_s: float  # and what it takes


class Run(NamedTuple):
    """One device: what it still has to do (last operation first), and when what it has done began and ended."""

    waiting: list[Task]
    starts_s: list[float]
    ends_s: list[float]


def longest_path(
    orders: Sequence[Sequence[Task]], seconds: dict[str, tuple[float, ...]], where: tuple[int, ...], link: Link
) -> list[Run]:
    """Start and end of every operation: sweep over the devices; each runs until an input is missing."""
    table = _inputs(seconds, where, link)
    missing, nothing = -1.0, [0.0] * link.microbatches
    ends_s = [missing] * (3 * len(where) * link.microbatches) + nothing
    runs = [Run(waiting=list(reversed(tasks)), starts_s=[], ends_s=[]) for tasks in orders]
    left = sum(map(len, orders))
    while left:
        before = left
        for run in runs:
            left -= _advance(run, table, ends_s)
        if left == before:
            raise RuntimeError("the order of operations deadlocks")
    return runs


def _advance(run: Run, table: dict[tuple[str, int], _Inputs], ends_s: list[float]) -> int:
    """Run one device until an input is missing; how many operations that were. (The inner loop of a play.)"""
    waiting, starts_s, done_s = run
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
    seconds: dict[str, tuple[float, ...]], where: tuple[int, ...], link: Link
) -> dict[tuple[str, int], _Inputs]:
    """`producers` as places: F follows the chunk before it, B its own F and the chunk after it, W its own B."""
    chunks, lone = len(where), {"F": 0, "B": link.microbatches - 1, "W": -1}
    bases = {kind: i * chunks * link.microbatches for i, kind in enumerate("FBW")}
    nothing, table = len("FBW") * chunks * link.microbatches, {}
    for kind, chunk in product("FBW", range(chunks)):
        own = {"F": nothing, "B": bases["F"], "W": bases["B"]}[kind]
        near = chunk + {"F": -1, "B": 1, "W": 0}[kind]
        alone = kind == "W" or not 0 <= near < chunks
        moves = not alone and where[near] != where[chunk]
        table[kind, chunk] = _Inputs(
            place=bases[kind] + chunk * link.microbatches,
            own=own + (own < nothing) * chunk * link.microbatches,
            far=nothing if alone else bases[kind] + near * link.microbatches,
            seconds=seconds[kind][chunk],
            delay_s=moves * link.steady_s,
            lone=lone[kind],
            lone_delay_s=moves * link.lone_s,
        )
    return table
