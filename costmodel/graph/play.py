"""Pipeline schedules played out: an explicit order of operations on each device, evaluated as a longest path.

The second route to the schedule term: it shares nothing with the closed forms. Host side, milliseconds a plan.

A device runs its operations one after another, in its order, each as soon as its producers are done. A transfer
delays the consumer by `transfer_s` and occupies neither device (asynchronous copies over an idle link).
The makespan is the step with synchronised optimizer updates: from the first start to the last end anywhere.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, zip_longest
from typing import NamedTuple

from costmodel.graph.longest_path import Link, longest_path

WARM_UPS: dict[str, Callable[[int, int, int, int], int]] = {
    "gpipe": lambda stages, microbatches, virtual_stages, device: microbatches,
    "one_f_one_b": lambda stages, microbatches, virtual_stages, device: stages - device,
    "interleaved": lambda stages, microbatches, virtual_stages, device: (
        2 * (stages - device) - 1 + (virtual_stages - 1) * stages
    ),
    "zb_h1": lambda stages, microbatches, virtual_stages, device: stages - device,
    "zb_h2": lambda stages, microbatches, virtual_stages, device: 2 * (stages - device) - 1,
}
"""Forwards on a device before its first backward, in chunks: what tells one schedule's order from another's.

GPipe (Huang et al. 2019): all. 1F1B (Narayanan et al. 2019) and ZB-H1: one for each device from here to the
end. Interleaved: Narayanan et al. 2021, as in Megatron-LM. ZB-H2: Qi et al. 2023. Others may be added.
"""

SCHEDULES = (*WARM_UPS, "zb_v")
SPLITS_WEIGHT_GRADIENT = ("zb_h1", "zb_h2", "zb_v")

Seconds = float | Sequence[float]
"""Seconds of a device's whole stage for one microbatch, or of each model chunk in turn."""


class Task(NamedTuple):
    """One operation on one microbatch: F (forward), B (backward), or W (weight gradient, where it is split off).

    Model chunk c of stages * virtual_stages runs on `device_of(c)`.
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
    """
    orders = order(schedule, stages, microbatches, virtual_stages)
    forward, backward, weight = (_by_chunk(s, stages, virtual_stages) for s in (forward_s, backward_s, weight_s))
    if schedule not in SPLITS_WEIGHT_GRADIENT:
        backward = tuple(b + w for b, w in zip(backward, weight, strict=True))
    where = tuple(device_of(chunk, stages, schedule) for chunk in range(stages * virtual_stages))
    steady_s = transfer_s if steady_transfer_s is None else steady_transfer_s
    link = Link(microbatches=microbatches, lone_s=transfer_s, steady_s=steady_s)
    runs = longest_path(orders, {"F": forward, "B": backward, "W": weight}, where, link)
    last_use = "W" if schedule in SPLITS_WEIGHT_GRADIENT else "B"
    return Played(
        makespan_s=max(run.ends_s[-1] for run in runs),
        order=orders,
        starts_s=tuple(tuple(run.starts_s) for run in runs),
        ends_s=tuple(tuple(run.ends_s) for run in runs),
        in_flight=tuple(_peak(device, last_use) / virtual_stages for device in orders),
        in_flight_until_b=tuple(_peak(device, "B") / virtual_stages for device in orders),
    )


def order(schedule: str, stages: int, microbatches: int, virtual_stages: int = 1) -> tuple[DeviceOrder, ...]:
    """The order of operations on each device; it does not depend on their durations.

    Every schedule but `zb_v` is the same alternation with its own warm-up and its own delay of W.
    """
    _check(schedule, stages, microbatches, virtual_stages)
    if schedule == "zb_v":
        return tuple(_v_order(stages, microbatches, device) for device in range(stages))
    return tuple(_device_order(schedule, stages, microbatches, virtual_stages, device) for device in range(stages))


def device_of(chunk: int, stages: int, schedule: str) -> int:
    """The device of a model chunk: round and round, or (`zb_v`) down and back again."""
    back = schedule == "zb_v" and chunk >= stages
    return 2 * stages - 1 - chunk if back else chunk % stages


def _check(schedule: str, stages: int, microbatches: int, virtual_stages: int) -> None:
    if schedule not in (known := (*WARM_UPS, "zb_v")):
        raise ValueError(f"`schedule` is {schedule!r}; expected one of {', '.join(known)}")
    if min(stages, microbatches, virtual_stages) < 1:
        raise ValueError(f"degrees are {(stages, microbatches, virtual_stages)}; expected each >= 1")
    if schedule == "zb_v" and virtual_stages != 2:
        raise ValueError(f"`virtual_stages` is {virtual_stages}; zb_v expects 2")
    if virtual_stages > 1 and schedule not in ("interleaved", "zb_v"):
        raise ValueError(f"`virtual_stages` is {virtual_stages}; expected 1 with schedule {schedule}")
    if schedule == "interleaved" and microbatches % stages:
        raise ValueError(f"`microbatches` is {microbatches}; interleaved expects a multiple of the {stages} stages")


def _device_order(schedule: str, stages: int, microbatches: int, virtual_stages: int, device: int) -> DeviceOrder:
    """Warm-up forwards; then B, W and F in turn.

    W trails B by as many microbatches as the warm-up is shorter than on the first device (Qi et al. 2023): every
    device then holds what the first one holds, and the last ones run W while gradients travel to the first.
    """

    def tasks(kind: str) -> list[Task | None]:
        return list(_tasks(kind, stages, microbatches, virtual_stages, device))

    warm_up, longest = (WARM_UPS[schedule](stages, microbatches, virtual_stages, d) for d in (device, 0))
    trailing = [None] * (longest - warm_up) + tasks("W") if schedule in SPLITS_WEIGHT_GRADIENT else []
    turns = zip_longest(tasks("B"), trailing, tasks("F")[warm_up:])
    return tuple(task for task in (*tasks("F")[:warm_up], *chain.from_iterable(turns)) if task)


def _v_order(stages: int, microbatches: int, device: int) -> DeviceOrder:
    """ZB-V: forwards until the first microbatch is back, then F, B and W of both chunks in turn; late W fill the end.

    Source: Qi et al. 2024 (Pipeline parallelism with controllable memory), figure of V-ZB; the order is that of
    PyTorch's `ScheduleZBVZeroBubble`, which leaves out what lies beyond the last microbatch.
    """
    down, back, to_end = device, 2 * stages - 1 - device, stages - device
    least = max(microbatches, 2 * stages - 1)
    both = [("F", back), ("F", down)] * device
    turn = [("F", back), ("B", back), ("W", back)]
    warm_up = [("F", down)] * (2 * to_end - 1) + both + turn * to_end
    steady = [("F", down), ("B", down), ("W", down), *turn]
    rounds = [steady] * (least - (2 * to_end - 1 + device))
    ending = [[("B", down), ("W", down), *turn]] * (least - to_end - device - len(rounds))
    cool_down = [("B", down), ("B", back)] * device + [("B", down), ("W", down)] * to_end
    late = [("W", back)] * device + [("W", down)] * device
    kinds = [*warm_up, *chain.from_iterable(rounds), *chain.from_iterable(ending), *cool_down, *late]
    seen: Counter[tuple[str, int]] = Counter()
    tasks = []
    for kind, chunk in kinds:
        tasks.append(Task(kind=kind, microbatch=seen[kind, chunk], chunk=chunk))
        seen[kind, chunk] += 1
    return tuple(task for task in tasks if task.microbatch < microbatches)


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
