"""A repeating order with its warm-up and cool-down: all operations of so many microbatches, played by `run`."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from costmodel.exact import Exact
from costmodel.graph.graph import Graph, graph_of
from costmodel.graph.run import Costs, PlayedGraph, run
from costmodel.graph.search.bounds import least_makespan_s, work_s
from costmodel.graph.search.placements import Placement, check
from costmodel.graph.search.repeating import Repeat

Operation = tuple[int, int]
"""A microbatch and the number of its block."""


class Unrolled(NamedTuple):
    """Microbatches of a placement played in an order, each block as soon as it can."""

    order: tuple[tuple[Operation, ...], ...]  # of each device
    graph: Graph  # a block on several devices is an operation on each, behind one that waits for all of them
    played: PlayedGraph
    makespan_s: float
    least_makespan_s: float
    peak: tuple[float, ...]  # what each device holds
    idle: float  # share of the devices' seconds

    @property
    def gap(self) -> float:
        """How far the makespan can be from the best."""
        return self.makespan_s / self.least_makespan_s - 1


def unroll(placement: Placement, found: Repeat, microbatches: int, *, transfer_s: float = 0.0) -> Unrolled:
    """Play so many microbatches of a placement in the order that was found, on the seconds of its own blocks."""
    size = len(placement)
    turns = ((m, i, found.starts[m % found.copies * size + i]) for m in range(microbatches) for i in range(size))
    listed = sorted((start + found.period * (m // found.copies), m, i) for m, i, start in turns)
    return in_order(placement, [(m, i) for _, m, i in listed], transfer_s=transfer_s)


def in_order(placement: Placement, listed: Sequence[Operation], *, transfer_s: float = 0.0) -> Unrolled:
    """Play operations of a placement: each device runs those that are its own in the order in which they are listed."""
    check(placement, transfer_s)
    given = set(listed)
    if not listed or len(given) < len(listed) or not all(m >= 0 <= i < len(placement) for m, i in given):
        expected = f"each block once, as a microbatch from 0 on and one of {len(placement)} blocks"
        raise ValueError(f"{len(listed)} operations are listed, {len(given)} of them different; expected {expected}")
    own, microbatches = work_s(placement), 1 + max(m for m, _ in listed)
    for m, i in listed:
        for needed in placement[i].after:
            if (m, needed) not in given:
                names = f"{placement[i].name} of microbatch {m} waits for {placement[needed].name}"
                raise ValueError(f"{names}, which is not in the order; expected every block once")
    order = tuple(tuple((m, i) for m, i in listed if d in placement[i].devices) for d in own)
    graph, costs = _graph(placement, listed, list(own), transfer_s)
    played = run(graph, costs, Exact(np))
    devices, makespan_s = len(own), float(played.makespan_s)
    peaks = tuple(np.asarray(played.peak_bytes)[:devices].tolist())
    return Unrolled(
        order=order,
        graph=graph,
        played=played,
        makespan_s=makespan_s,
        least_makespan_s=least_makespan_s(placement, microbatches, transfer_s),
        peak=peaks,
        idle=1 - float(played.busy_s[:devices].sum()) / (devices * makespan_s),
    )


def _graph(placement: Placement, listed: Sequence[Operation], own: list[int], transfer_s: float) -> tuple[Graph, Costs]:
    """Operations device by device. Blocks on the same several devices wait on a device of their own, in no time."""
    groups = list(dict.fromkeys(block.devices for block in placement if len(block.devices) > 1))
    rows: list[list[Operation]] = [[o for o in listed if d in placement[o[1]].devices] for d in own]
    rows += [[o for o in listed if placement[o[1]].devices == group] for group in groups]
    place = {
        (row, operation): number
        for number, (row, operation) in enumerate((row, o) for row, each in enumerate(rows) for o in each)
    }
    rank: dict[Any, int] = {device: row for row, device in enumerate(own)} | {
        g: len(own) + n for n, g in enumerate(groups)
    }
    edges = [edge for each in listed for edge in _edges(placement, each, rows, place, rank, transfer_s > 0)]
    devices = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    kinds = np.array([o[1] if row < len(own) else len(placement) for row, each in enumerate(rows) for o in each])
    columns = np.array(edges, int).reshape(-1, 3).T
    names = {number: f"{placement[o[1]].name} of microbatch {o[0]}" for (_, o), number in place.items()}
    return graph_of(devices, kinds, columns, names.__getitem__), _costs(placement, transfer_s)


def _costs(placement: Placement, transfer_s: float) -> Costs:
    """Of each block, and of the meeting of several devices, which takes nothing."""
    held = np.array([block.held for block in placement] + [0.0])
    return Costs(
        seconds=np.array([block.seconds for block in placement] + [0.0]),
        lags_s=np.array([transfer_s]),
        taken_bytes=np.maximum(held, 0.0),
        freed_bytes=np.maximum(-held, 0.0),
    )


def _edges(
    placement: Placement,
    operation: Operation,
    rows: list[list[Operation]],
    place: dict[tuple[int, Operation], int],
    rank: dict[Any, int],
    sends: bool,
) -> Iterator[tuple[int, int, int]]:
    """What an operation waits for. On several devices: until all are done with what they ran before."""
    block = placement[operation[1]]
    gathers = len(block.devices) > 1
    home = place[rank[block.devices if gathers else block.devices[0]], operation]
    for producer in block.after:
        sender = placement[producer].devices
        away = sends and not set(sender) & set(block.devices)
        yield place[rank[sender[0]], (operation[0], producer)], home, int(away)
    for row in (rank[device] for device in block.devices if gathers):
        number = place[row, operation]
        if place[row, rows[row][0]] < number:
            yield number - 1, home, 0
        yield home, number, 0
