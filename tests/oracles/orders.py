"""Orders of operations played one operation at a time, by names: what `costmodel.graph.run` must give."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

Wait = tuple[Hashable, float]
"""What an operation waits for, and the seconds from its end on."""


def played(
    orders: Sequence[Sequence[Any]], seconds: Callable[[Any], float], waits: Callable[[Any], Sequence[Wait]]
) -> Mapping[Any, tuple[float, float]]:
    """Start and end of every operation; raises where nothing can go on."""
    times: dict[Any, tuple[float, float]] = {}
    at, left = [0] * len(orders), sum(map(len, orders))
    while left:
        before = left
        for device, order in enumerate(orders):
            while at[device] < len(order) and all(name in times for name, _ in waits(order[at[device]])):
                task = order[at[device]]
                free_s = times[order[at[device] - 1]][1] if at[device] else 0.0
                start_s = max([free_s, *(times[name][1] + lag_s for name, lag_s in waits(task))])
                times[task] = (start_s, start_s + seconds(task))
                at[device] += 1
                left -= 1
        if left == before:
            raise RuntimeError("nothing can go on")
    return times


def live(order: Sequence[Any], taken: Callable[[Any], float], freed: Callable[[Any], float]) -> list[float]:
    """What a device holds while it runs each of its operations."""
    held, found = 0.0, []
    for task in order:
        held += taken(task)
        found.append(held)
        held -= freed(task)
    return found


def producers(task: Any, chunks: int, ways: int = 1) -> tuple[Any, ...]:
    """What a pipeline's `task` reads: F the chunk before it, B its own F and the chunk after it, W its B.

    Chunks of a second way follow those of the first, which do not depend on them.
    """
    way, inside = divmod(task.chunk, chunks // ways)
    if task.kind == "F":
        return (task._replace(chunk=task.chunk - 1),) if inside else ()
    own = task._replace(kind={"B": "F", "W": "B"}[task.kind])
    last = task.kind == "W" or inside == chunks // ways - 1
    return (own,) if last else (own, task._replace(chunk=task.chunk + 1))
