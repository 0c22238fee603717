"""Operators on devices in an order: the graph that `run` plays, with what travels between devices.

Transforming, placing and ordering are separate: `views.split` and `views.replicate` make operators, `devices` places
them (several on one device as well), `after` orders those that do not wait for each other anyway.
"""

import heapq
from collections.abc import Sequence

import numpy as np

from costmodel.graph.graph import Graph, graph_of
from costmodel.graph.views import Dependency, Operator, dependencies

Arranged = tuple[Graph, tuple[int, ...], tuple[Dependency, ...]]
"""A plan of operators: the graph, whose classes are operators, and its classes of lag messages; the operators as it
numbers them, device by device; the messages between devices."""


def arrange(operators: Sequence[Operator], devices: Sequence[int], after: Sequence[tuple[int, int]] = ()) -> Arranged:
    """Put operators on devices, each device's in the order that their dependencies and `after` leave, listed first.

    `after` are pairs of operators, the second behind the first, on the same device. Raises a `ValueError` that names
    the operators of a pair on two devices, or of a cycle.
    """
    if len(operators) != len(devices):
        raise ValueError(f"{len(devices)} devices are given; expected one for each of {len(operators)} operators")
    outside = [pair for pair in after if not 0 <= min(pair) <= max(pair) < len(operators)]
    if outside:
        raise ValueError(f"{outside[0]} are ordered; expected two of {len(operators)} operators, by number from 0 on")
    for first, second in after:
        if devices[first] != devices[second]:
            names = operators[first].name, operators[second].name
            raise ValueError(f"{names[0]} and {names[1]} are ordered; expected both on one device")
    met = tuple(dependencies(operators))
    pairs = [(producer, consumer) for producer, consumer, _ in met] + list(after)
    sequence = _sequence(len(operators), pairs, [operator.name for operator in operators])
    order = tuple(sorted(sequence, key=lambda i: devices[i]))  # stable: each device keeps the sequence
    place = {operator: number for number, operator in enumerate(order)}
    messages = tuple(each for each in met if devices[each[0]] != devices[each[1]])
    lag = {each: number + 1 for number, each in enumerate(messages)}
    rows = [(place[each[0]], place[each[1]], lag.get(each, 0)) for each in met]
    edges = np.array(rows, int).reshape(-1, 3).T
    own = np.array([devices[i] for i in order])
    graph = graph_of(own, np.array(order), edges, lambda i: operators[order[i]].name)
    return graph, order, messages


def _sequence(count: int, pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> list[int]:
    """An order of all operators behind what they wait for, those listed first coming first (Kahn)."""
    behind: list[list[int]] = [[] for _ in range(count)]
    waits = [0] * count
    for first, second in pairs:
        behind[first].append(second)
        waits[second] += 1
    ready = [i for i in range(count) if not waits[i]]
    found = []
    while ready:
        found.append(heapq.heappop(ready))
        for i in behind[found[-1]]:
            waits[i] -= 1
            if not waits[i]:
                heapq.heappush(ready, i)
    if len(found) < count:
        raise ValueError(f"the order of operators is a cycle: {_ring(set(range(count)) - set(found), pairs, names)}")
    return found


def _ring(left: set[int], pairs: Sequence[tuple[int, int]], names: Sequence[str]) -> str:
    """One cycle among the operators that are left: each of them waits for another one of them."""
    before = {second: first for first, second in pairs if first in left and second in left}
    here, seen = min(before), []
    while here not in seen:
        seen.append(here)
        here = before[here]
    ring = seen[seen.index(here) :]
    return ", ".join(f"{names[i]} waits for {names[before[i]]}" for i in ring)
