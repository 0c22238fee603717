"""Pipeline schedules played out: an explicit order of operations on each device, evaluated as a longest path.

The second route to the schedule term: it shares nothing with the closed forms. Host side, milliseconds a plan.

A device runs its operations one after another, in its order, each as soon as its producers are done. A transfer
delays the consumer by `transfer_s` and occupies neither device (asynchronous copies over an idle link).
The makespan is the step with synchronised optimizer updates: from the first start to the last end anywhere.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from typing import NamedTuple

from costmodel.graph.longest_path import longest_path
from costmodel.inputs import SCHEDULES, Schedule, Turn

Seconds = float | Sequence[float]
"""Seconds of a device's whole stage for one microbatch, or of each model chunk in turn."""


class Task(NamedTuple):
    """One operation on one microbatch: F (forward), B (backward), or W (weight gradient, where it is split off).

    Model chunk c of stages * virtual_stages runs on `Schedule.device_of(c)`.
    """

    kind: str
    microbatch: int
    chunk: int


DeviceOrder = tuple[Task, ...]


@dataclass(frozen=True, kw_only=True)
class Played:
    """A schedule with its times. `starts_s` and `ends_s` are aligned with `order`: one tuple for each device.

    `in_flight` is the peak number of microbatches whose activations a device holds, from the start of F to the end
    of the last operation that reads them (W where it is split off, else B), in units of the device's whole stage: a
    chunk counts 1/virtual_stages. `in_flight_until_b` drops them at the end of B, whether or not W has run.
    """

    makespan_s: float
    order: tuple[DeviceOrder, ...]
    starts_s: tuple[tuple[float, ...], ...]
    ends_s: tuple[tuple[float, ...], ...]
    in_flight: tuple[float, ...]
    in_flight_until_b: tuple[float, ...]


def play(
    schedule: str,
    stages: int,
    microbatches: int,
    virtual_stages: int = 1,
    *,
    forward_s: Seconds,
    backward_s: Seconds,
    weight_s: Seconds = 0.0,
    transfer_s: float = 0.0,
    steady_transfer_s: float | None = None,
) -> Played:
    """Play one training step. B is the gradient of the input, W that of the weights.

    Zero-bubble schedules send the gradient after B and run W on its own; the others run B and W as one operation,
    and send after both. `steady_transfer_s` (default: the same) is what is felt of a transfer once others run beside
    it: of all but the first microbatch's activations and the last one's gradients, on whose way nothing else runs.
    Devices that hold chunks in rounds (`Schedule.interleaves`) are busy while they exchange, for what is felt of it.
    """
    orders, entry = order(schedule, stages, microbatches, virtual_stages), SCHEDULES[schedule]
    forward, backward, weight = (_by_chunk(s, stages, virtual_stages) for s in (forward_s, backward_s, weight_s))
    if not entry.splits:
        backward = tuple(b + w for b, w in zip(backward, weight, strict=True))
    where = tuple(entry.device_of(chunk, stages) for chunk in range(stages * virtual_stages))
    steady_s = transfer_s if steady_transfer_s is None else steady_transfer_s
    if entry.interleaves and stages > 1:
        forward, backward = (tuple(each + steady_s for each in side) for side in (forward, backward))
        transfer_s, steady_s = transfer_s - steady_s, 0.0
    seconds = {"F": forward, "B": backward, "W": weight}
    times = longest_path(orders, seconds, where, microbatches, transfer_s, steady_s)
    last_use = "W" if entry.splits else "B"
    return Played(
        makespan_s=max(ends_s[-1] for _, ends_s in times),
        order=orders,
        starts_s=tuple(tuple(starts_s) for starts_s, _ in times),
        ends_s=tuple(tuple(ends_s) for _, ends_s in times),
        in_flight=tuple(_peak(device, last_use) / virtual_stages for device in orders),
        in_flight_until_b=tuple(_peak(device, "B") / virtual_stages for device in orders),
    )


def order(schedule: str, stages: int, microbatches: int, virtual_stages: int = 1) -> tuple[DeviceOrder, ...]:
    """The order of operations on each device; it does not depend on their durations."""
    _check(schedule, stages, microbatches, virtual_stages)
    entry, shape = SCHEDULES[schedule], (stages, microbatches, virtual_stages)
    if entry.order is not None:
        return tuple(_numbered(entry.order(*shape, device), microbatches) for device in range(stages))
    return tuple(_alternating(entry, *shape, device) for device in range(stages))


def _check(schedule: str, stages: int, microbatches: int, virtual_stages: int) -> None:
    if schedule not in SCHEDULES:
        raise ValueError(f"`schedule` is {schedule!r}; expected one of {', '.join(SCHEDULES)}")
    if min(stages, microbatches, virtual_stages) < 1:
        raise ValueError(f"degrees are {(stages, microbatches, virtual_stages)}; expected each >= 1")
    entry = SCHEDULES[schedule]
    if entry.folds and virtual_stages != 2:
        raise ValueError(f"`virtual_stages` is {virtual_stages}; {schedule} expects 2")
    if virtual_stages > 1 and not (entry.interleaves or entry.folds):
        raise ValueError(f"`virtual_stages` is {virtual_stages}; expected 1 with schedule {schedule}")
    if entry.interleaves and microbatches % stages:
        raise ValueError(f"`microbatches` is {microbatches}; {schedule} expects a multiple of the {stages} stages")


def _numbered(turns: Iterable[Turn], microbatches: int) -> DeviceOrder:
    """Turns of a device as operations: each takes the next microbatch, and those beyond the last are left out."""
    done: Counter[Turn] = Counter()
    tasks = []
    for kind, chunk in turns:
        tasks.append(Task(kind=kind, microbatch=done[kind, chunk], chunk=chunk))
        done[kind, chunk] += 1
    return tuple(task for task in tasks if task.microbatch < microbatches)


def _alternating(schedule: Schedule, stages: int, microbatches: int, virtual_stages: int, device: int) -> DeviceOrder:
    """Warm-up forwards; then B, W and F in turn.

    W trails B by as many microbatches as the warm-up is shorter than on the first device (Qi et al. 2023): every
    device then holds what the first one holds, and the last ones run W while gradients travel to the first.
    """

    def tasks(kind: str) -> list[Task | None]:
        return list(_tasks(kind, stages, microbatches, virtual_stages, device))

    if schedule.warm_up is None:
        raise ValueError("a schedule has neither `warm_up` nor `order`; expected one of them")
    warm_up, longest = (schedule.warm_up(stages, microbatches, virtual_stages, d) for d in (device, 0))
    trailing = [None] * (longest - warm_up) + tasks("W") if schedule.splits else []
    turns = zip_longest(tasks("B"), trailing, tasks("F")[warm_up:])
    return tuple(task for task in (*tasks("F")[:warm_up], *chain.from_iterable(turns)) if task)


def _tasks(kind: str, stages: int, microbatches: int, virtual_stages: int, device: int) -> Iterator[Task]:
    """The operations of a kind on a device: groups of `stages` microbatches go through its chunks in turn.

    Backward visits the chunks in reverse. With one chunk it is simply one microbatch after another.
    """
    chunks = range(device, stages * virtual_stages, stages)
    for first in range(0, microbatches, stages):
        group = range(first, min(first + stages, microbatches))
        for chunk in chunks if kind == "F" else reversed(chunks):
            yield from (Task(kind, microbatch, chunk) for microbatch in group)


def _by_chunk(seconds: Seconds, stages: int, virtual_stages: int) -> tuple[float, ...]:
    chunks = stages * virtual_stages
    if not isinstance(seconds, Sequence):
        return (seconds / virtual_stages,) * chunks
    if len(seconds) != chunks:
        raise ValueError(f"{len(seconds)} durations are given; expected one for each of {chunks} chunks")
    return tuple(seconds)


def producers(task: Task, chunks: int) -> tuple[Task, ...]:
    """The operations whose results `task` reads: F the chunk before it, B its own F and the chunk after it, W its B."""

    def other(kind: str, chunk: int) -> Task:
        return Task(kind=kind, microbatch=task.microbatch, chunk=chunk)

    if task.kind == "F":
        return (other("F", task.chunk - 1),) if task.chunk else ()
    if task.kind == "W":
        return (other("B", task.chunk),)
    own = other("F", task.chunk)
    return (own, other("B", task.chunk + 1)) if task.chunk + 1 < chunks else (own,)


def _peak(device: DeviceOrder, last_use: str) -> int:
    """The most microbatches live at once; a device is serial, so its order alone decides."""
    return max(accumulate((task.kind == "F") - (task.kind == last_use) for task in device))
