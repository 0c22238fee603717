"""The orders of pipeline schedules as arrays, and the graphs that `run` plays: built from their pattern.

Kinds are places in `KINDS`. F follows the chunk before it, B its own F and the chunk after it, W its own B.
"""

from collections.abc import Callable
from itertools import repeat
from typing import NamedTuple

import numpy as np

from costmodel.graph.graph import Graph, Integers, graph_of
from costmodel.inputs import SCHEDULES, Schedule, Turn

KINDS = "FBW"
"""Forward, backward, and weight gradient where it runs apart."""

LONE, STEADY = 1, 2
"""Classes of lag: a message while nothing else runs (the first one down, the last one back), and any other."""


class Orders(NamedTuple):
    """The parts of all operations of a pipeline, device by device in order; most operations are one part.

    Chunks of a second way follow those of the first.
    """

    devices: Integers
    kinds: Integers
    microbatches: Integers
    chunks: Integers
    joined: Integers  # 1 where the part runs together with the one before it, as one operation

    @property
    def operations(self) -> Integers:
        """The number of the operation of each part."""
        return np.cumsum(1 - self.joined) - 1


def orders(schedule: str | Schedule, stages: int, microbatches: int, virtual_stages: int = 1) -> Orders:
    """The order of operations on each device; it does not depend on their durations."""
    if schedule not in SCHEDULES and not isinstance(schedule, Schedule):
        raise ValueError(f"`schedule` is {schedule!r}; expected one of {', '.join(SCHEDULES)}")
    entry, shape = entry_of(schedule), (stages, microbatches, virtual_stages)
    _check(entry, str(entry.short if isinstance(schedule, Schedule) else schedule), *shape)
    one = _given if entry.order is not None else _alternating
    found = [one(entry, *shape, device) for device in range(stages)]
    devices = np.repeat(np.arange(stages), [len(kinds) for kinds, *_ in found])
    return Orders(devices, *(np.concatenate(column) for column in zip(*found, strict=True)))


def entry_of(schedule: str | Schedule) -> Schedule:
    """A schedule by its name in the table, or one that stands in none."""
    return schedule if isinstance(schedule, Schedule) else SCHEDULES[schedule]


def pipeline(
    schedule: str | Schedule, stages: int, microbatches: int, virtual_stages: int = 1
) -> tuple[Graph, Integers]:
    """A schedule as a graph, and its classes: the parts of each as rows of places, kind by kind and chunk by chunk."""
    given = orders(schedule, stages, microbatches, virtual_stages)
    return pipeline_of(given, entry_of(schedule), stages, virtual_stages)


def pipeline_of(given: Orders, entry: Schedule, stages: int, virtual_stages: int) -> tuple[Graph, Integers]:
    """The same, of orders that are there already."""
    ways = entry.ways
    chunks = stages * virtual_stages * ways
    where = np.array([entry.device_of(chunk, stages) for chunk in range(chunks)])
    heads, (kinds, parts) = given.joined == 0, _classes(given, chunks)
    first = np.flatnonzero(heads)
    name = name_of(given)
    built = graph_of(given.devices[heads], kinds, edges(given, where, ways), lambda i: name(int(first[i])))
    return built, parts


def _classes(given: Orders, chunks: int) -> tuple[Integers, Integers]:
    """The class of each operation, and each class's parts; -1 beyond its last."""
    codes = given.kinds * chunks + given.chunks
    if not given.joined.any():
        return codes, np.arange(len(KINDS) * chunks)[:, None]
    operations = given.operations
    rank = np.arange(len(codes)) - np.flatnonzero(given.joined == 0)[operations]
    base, most = len(KINDS) * chunks + 1, int(rank.max()) + 1
    keys = np.bincount(operations, (codes + 1) * float(base) ** rank).astype(np.int64)
    found, kinds = np.unique(keys, return_inverse=True)
    return kinds, found[:, None] // base ** np.arange(most) % base - 1


def edges(given: Orders, where: Integers, ways: int = 1) -> Integers:
    """What waits for what, as `graph_of` reads it, given the device of each chunk."""
    count, numbers = int(given.microbatches.max()) + 1, given.operations
    place = np.full((len(KINDS), len(where), count), -1)
    place[given.kinds, given.chunks, given.microbatches] = numbers
    way, inside = np.divmod(given.chunks, len(where) // ways)
    step = np.array([-1, 1, 0])[given.kinds]
    moved = (step != 0) & (inside + step >= 0) & (inside + step < len(where) // ways)
    far = (given.chunks + step)[moved]
    producers = place[given.kinds[moved], far, given.microbatches[moved]]
    alone = np.where(given.kinds == 0, 0, count // ways - 1) + way * (count // ways) == given.microbatches
    lags = np.where(where[far] == where[given.chunks[moved]], 0, np.where(alone[moved], LONE, STEADY))
    later = given.kinds > 0
    own = place[given.kinds[later] - 1, given.chunks[later], given.microbatches[later]]
    columns = (producers, own), (numbers[moved], numbers[later]), (lags, np.zeros(len(own), int))
    found = np.stack([np.concatenate(column) for column in columns])
    missing = np.flatnonzero(found[0] < 0)
    if len(missing):
        reader = np.flatnonzero(numbers == found[1, missing[0]])[0]
        raise ValueError(f"{name_of(given)(int(reader))} waits for an operation that no device runs")
    return found[:, found[0] != found[1]]


def name_of(given: Orders) -> Callable[[int], str]:
    """Names of parts for messages: `B3.1` is the backward pass of microbatch 3 on chunk 1."""
    return lambda i: f"{KINDS[given.kinds[i]]}{given.microbatches[i]}.{given.chunks[i]}"


def _check(entry: Schedule, schedule: str, stages: int, microbatches: int, virtual_stages: int) -> None:
    degrees = stages, microbatches, virtual_stages
    if not all(isinstance(degree, int | np.integer) for degree in degrees) or min(degrees) < 1:
        raise ValueError(f"degrees are {degrees}; expected integers >= 1")
    if entry.folds and virtual_stages != 2:
        raise ValueError(f"`virtual_stages` is {virtual_stages}; {schedule} expects 2")
    if virtual_stages > 1 and not (entry.interleaves or entry.folds):
        raise ValueError(f"`virtual_stages` is {virtual_stages}; expected 1 with schedule {schedule}")
    if entry.ways > 1 and (stages % 2 or microbatches % 2):
        raise ValueError(f"there are {stages} stages and {microbatches} microbatches; {schedule} expects even numbers")
    if entry.interleaves and microbatches % stages:
        raise ValueError(f"`microbatches` is {microbatches}; {schedule} expects a multiple of the {stages} stages")


def _check_turns(turns: set[Turn], chunks: set[int], device: int) -> None:
    """Raise a `ValueError` that names an operation which is none of the device's."""
    wrong = [turn for turn in sorted(turns) if turn[0] not in tuple(KINDS) or turn[1] not in chunks]
    if wrong or not turns:
        told = f"expected F, B or W on chunk {' or '.join(map(str, sorted(chunks)))}"
        raise ValueError(f"an order runs {wrong[0] if wrong else 'nothing'} on device {device}; {told}")


Columns = tuple[Integers, Integers, Integers, Integers]
"""Kinds, microbatches, chunks and what is joined, of one device's operations in order."""


def _given(entry: Schedule, stages: int, microbatches: int, virtual_stages: int, device: int) -> Columns:
    """Turns of a device as operations: each takes the next microbatch, and those beyond the last are left out."""
    assert entry.order is not None
    turns: list[Turn] = []
    joined: list[int] = []
    for given in entry.order(stages, microbatches, virtual_stages, device):
        parts = (given,) if isinstance(given[0], str) else given
        turns += parts  # pyright: ignore[reportOperatorIssue]
        joined += [0, *repeat(1, len(parts) - 1)]
    chunks = stages * virtual_stages * entry.ways
    _check_turns(set(turns), {c for c in range(chunks) if entry.device_of(c, stages) == device}, device)
    codes = {turn: KINDS.index(turn[0]) * chunks + turn[1] for turn in set(turns)}
    taken = np.fromiter((codes[turn] for turn in turns), int, len(turns))
    by_turn = np.argsort(taken, kind="stable")
    starts = np.flatnonzero(np.diff(taken[by_turn], prepend=-1))
    counts = np.diff(starts, append=len(taken))
    numbers = np.empty(len(taken), int)
    numbers[by_turn] = np.arange(len(taken)) - np.repeat(starts, counts)
    kept = numbers < microbatches // entry.ways
    (kinds, places), numbers = np.divmod(taken[kept], chunks), numbers[kept]
    way = places // (stages * virtual_stages)
    return kinds, numbers + (entry.ways > 1) * way * (microbatches // entry.ways), places, np.array(joined)[kept]


def _alternating(entry: Schedule, stages: int, microbatches: int, virtual_stages: int, device: int) -> Columns:
    """Warm-up forwards; then B, W and F in turn.

    W trails B by as many microbatches as the warm-up is shorter than on the first device (Qi et al. 2023): every
    device then holds what the first one holds, and the last ones run W while gradients travel to the first.
    Groups of `stages` microbatches go through the device's chunks in turn, backward in reverse.
    """
    if entry.warm_up is None:
        raise ValueError("a schedule has neither `warm_up` nor `order`; expected one of them")
    warm_up, longest = (entry.warm_up(stages, microbatches, virtual_stages, d) for d in (device, 0))
    numbers = np.arange(microbatches * virtual_stages)
    group, place = np.divmod(numbers, stages * virtual_stages)
    turn, inside = np.divmod(place, np.minimum(stages, microbatches - group * stages))
    tasks = group * stages + inside
    down, up = (device + stages * t for t in (turn, virtual_stages - 1 - turn))
    forward = np.where(numbers < warm_up, numbers - len(KINDS) * len(numbers), len(KINDS) * (numbers - warm_up) + 2)
    columns = [(forward, 0, down), (len(KINDS) * numbers, 1, up)]
    if entry.splits:
        columns.append((len(KINDS) * (numbers + max(0, longest - warm_up)) + 1, 2, up))
    order = np.argsort(np.concatenate([key for key, _, _ in columns]), kind="stable")
    kinds = np.repeat([kind for _, kind, _ in columns], len(numbers))
    return (
        kinds[order],
        np.tile(tasks, len(columns))[order],
        np.concatenate([c for _, _, c in columns])[order],
        0 * kinds,
    )
