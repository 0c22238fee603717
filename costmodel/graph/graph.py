"""Operations on devices in an explicit order, laid out for `run`: built once on the host, played for any durations.

A device runs its operations one after another. Cells are levels by devices: an operation stands in a later level than
everything that it waits for, a device has at most one in a level, so what a device did last is one vector and only
what comes from other devices is looked up. An idle cell takes no time.
"""

from collections.abc import Callable, Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from costmodel.pytree import pytree, static

Integers = np.ndarray
"""An array of integers."""


@pytree
class Graph:
    """An order of operations as cells. Classes are places in the tables of costs, counted from 1; 0: none."""

    kinds: Any  # class of the operation in each cell: (levels, devices)
    sources: Any  # cells on other devices that each waits for: (levels, inputs, devices)
    lags: Any  # class of the way from each, one more: the same shape; 0 where nothing is waited for
    cells: Any  # of each operation, device by device in its order
    reach: int = static()  # levels between an operation and the furthest that it waits for, up to a power of two

    @property
    def shape(self) -> tuple[int, int]:
        """Levels and devices."""
        return self.kinds.shape


def graph_of(devices: Integers, kinds: Integers, edges: Integers, name: Callable[[int], str] = str) -> Graph:
    """Lay operations out. They are listed device by device, each device's in its order; `kinds` counts from 0.

    `edges` has three rows: operations by number, those that wait for them, and the class of the lag between, counted
    from 1 (0: no lag). Those inside a device only check its order. Raises a `ValueError` that names the operations of
    a cycle, or that says what is no list of operations.
    """
    _check(devices, kinds, edges)
    firsts = np.flatnonzero(np.diff(devices, prepend=-1))
    bounds = list(zip(firsts.tolist(), [*firsts.tolist()[1:], len(devices)], strict=True))
    inputs, lags = _inputs(devices, edges, name)
    levels = _levels(bounds, inputs, name)
    count, width = int(levels.max(initial=-1)) + 1, int(devices.max(initial=-1)) + 1
    cells = levels * width + devices
    table = np.zeros((count, width), np.int32)
    table.reshape(-1)[cells] = kinds + 1
    sources, ways = np.zeros((2, count, inputs.shape[1], width), np.int32)
    at = (levels, slice(None), devices)
    there = inputs >= 0
    sources[at] = np.where(there, cells[inputs], cells[:, None])
    ways[at] = np.where(there, lags, 0)
    back = int((levels[:, None] - levels[inputs])[there].max(initial=1))
    return Graph(
        kinds=table, sources=sources, lags=ways, cells=cells.astype(np.int32), reach=1 << (back - 1).bit_length()
    )


def _check(devices: Integers, kinds: Integers, edges: Integers) -> None:
    """Raise a `ValueError` of one line for operations that are not listed device by device, or edges between others."""
    count, runs = len(devices), 1 + np.count_nonzero(np.diff(devices))
    if not count or devices.dtype.kind not in "iu" or devices.min() < 0 or runs != len(np.unique(devices)):
        raise ValueError(f"operations are on devices {_told(devices)}; expected integers >= 0, device by device")
    if len(kinds) != count or kinds.min() < 0:
        raise ValueError(f"the kinds of {count} operations are {_told(kinds)}; expected as many integers >= 0")
    if edges.ndim != 2 or len(edges) != len(("from", "to", "lag")) or edges.min(initial=0) < 0:
        raise ValueError(
            f"edges are an array of {edges.shape}; expected three rows: from, to, and class of lag, each >= 0"
        )
    if edges[:2].max(initial=-1) >= count:
        raise ValueError(f"an edge names operation {edges[:2].max()}; expected one of {count} from 0 on")


def _told(numbers: Integers) -> str:
    return f"[{', '.join(map(str, numbers[:8].tolist()))}{', ...' if len(numbers) > 8 else ''}]"


def _inputs(devices: Integers, edges: Integers, name: Callable[[int], str]) -> tuple[Integers, Integers]:
    """Producers on other devices and the lags from them, one row for each operation; -1 where there is none."""
    own = devices[edges[0]] == devices[edges[1]]
    late = np.flatnonzero(own & (edges[0] >= edges[1]))
    if len(late):
        producer, consumer = edges[:2, late[0]].tolist()
        raise ValueError(
            f"device {devices[consumer]} runs {name(consumer)} before {name(producer)}, whose result it reads"
        )
    producers, consumers, lags = edges[:, ~own]
    if (np.diff(consumers) < 0).any():
        by = np.argsort(consumers, kind="stable")
        producers, consumers, lags = producers[by], consumers[by], lags[by]
    counts = np.bincount(consumers, minlength=len(devices))
    rank = np.arange(len(consumers)) - np.repeat(np.cumsum(counts) - counts, counts)
    inputs, ways = np.full((2, len(devices), max(1, counts.max(initial=0))), -1)
    inputs[consumers, rank], ways[consumers, rank] = producers, lags + 1
    return inputs, ways


_UNKNOWN = 1 << 60


def _levels(bounds: Sequence[tuple[int, int]], inputs: Integers, name: Callable[[int], str]) -> Integers:
    """The level of each operation: one above all that it waits for and what its device runs before it."""
    levels, at = (_level_by_level if len(bounds) >= _WIDE else _device_by_device)(bounds, inputs)
    if any(head < last for head, (_, last) in zip(at, bounds, strict=True)):
        raise ValueError(_cycle(at, bounds, inputs, levels, name))
    return np.array(levels[:-1], dtype=np.int64)


_WIDE = 16
"""Devices from which on it is quicker to look at all of them at once."""

Levels = tuple[Sequence[int], Sequence[int]]
"""Levels of the operations, and one of no input; and the operation at which each device stopped."""


def _level_by_level(bounds: Sequence[tuple[int, int]], inputs: Integers) -> Levels:
    """All devices whose next operation has all its inputs run it."""
    count = len(inputs)
    levels = np.full(count + 2, _UNKNOWN)
    levels[count] = -1  # of no input; the last one is that of a device that is done
    waits = np.vstack([np.where(inputs < 0, count, inputs), np.full((1, inputs.shape[1]), count + 1)])
    following = np.arange(1, count + 2)
    following[[last - 1 for _, last in bounds]] = count
    at, level = np.array([first for first, _ in bounds]), 0
    while True:
        ready = (levels[waits[at]] < level).all(axis=1)
        run = at[ready]
        if not len(run):
            lasts = [last for _, last in bounds]
            return levels[:-1].tolist(), [last if head == count else head for head, last in zip(at, lasts, strict=True)]
        levels[run] = level
        at[ready] = following[run]
        level += 1


def _device_by_device(bounds: Sequence[tuple[int, int]], inputs: Integers) -> Levels:
    """Sweep over the devices; each goes on until an input has no level yet."""
    levels = [*repeat(_UNKNOWN, len(inputs)), -1]  # the last one: of no input
    needed = inputs[:, 0].tolist()
    more = {i: inputs[i, 1:].tolist() for i in np.flatnonzero((inputs[:, 1:] >= 0).any(axis=1)).tolist()}
    at, above, left = [first for first, _ in bounds], [-1] * len(bounds), len(inputs)
    there_and_back = [*range(len(bounds)), *reversed(range(len(bounds)))]
    while left:
        before = left
        for device in there_and_back:
            first, last = at[device], bounds[device][1]
            at[device] = _advance(range(first, last), above, device, needed, more, levels)
            left -= at[device] - first
        if left == before:
            break
    return levels, at


def _advance(
    here: range, above: list[int], device: int, needed: list[int], more: dict[int, list[int]], levels: list[int]
) -> int:
    """Give one device's next operations their levels; the first that has none yet. The inner loop."""
    level = above[device]
    for at in here:
        ready = levels[needed[at]]
        if at in more:
            ready = max(ready, *(levels[each] for each in more[at]))
        if ready > level:
            if ready == _UNKNOWN:
                break
            level = ready
        level += 1
        levels[at] = level
    else:
        at = here.stop
    above[device] = level
    return at


def _cycle(
    at: Sequence[int],
    bounds: Sequence[tuple[int, int]],
    inputs: Integers,
    levels: Sequence[int],
    name: Callable[[int], str],
) -> str:
    """From a device that is stuck to the operation that it waits for, and on from that one's, round and round."""
    heads = {i: head for head, (_, last) in zip(at, bounds, strict=True) for i in range(head, last)}
    here, seen = next(iter(heads.values())), []
    while here not in seen:
        seen.append(here)
        here = heads[next(each for each in inputs[here].tolist() if levels[each] == _UNKNOWN)]
    waits = [
        (head, next(i for i in inputs[head].tolist() if levels[i] == _UNKNOWN)) for head in seen[seen.index(here) :]
    ]
    told = chain.from_iterable(
        (f"{name(head)} waits for {name(other)}", f"which its device runs after {name(heads[other])}")
        if heads[other] != other
        else (f"{name(head)} waits for {name(other)}",)
        for head, other in waits
    )
    return f"the order of operations is a cycle: {', '.join(told)}"
