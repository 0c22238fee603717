"""Pipeline schedules played out: an explicit order of operations on each device, evaluated as a longest path.

The second route to the schedule term: it shares nothing with the closed forms. Host side, milliseconds a plan.

A device runs its operations one after another, in its order, each as soon as its producers are done. A transfer
delays the consumer by `transfer_s` and occupies neither device (asynchronous copies over an idle link).
The makespan is the step with synchronised optimizer updates: from the first start to the last end anywhere.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from costmodel.exact import Exact
from costmodel.graph.graph import Graph
from costmodel.graph.pipelines import KINDS, Orders, orders, pipeline_of
from costmodel.graph.run import Costs, run
from costmodel.inputs import SCHEDULES, Schedule

_NUMPY = Exact(np)

Seconds = float | Sequence[float]
"""Seconds of a device's whole stage for one microbatch, or of each model chunk in turn."""


class Task(NamedTuple):
    """One operation on one microbatch: F (forward), B (backward), or W (weight gradient, where it is split off).

    Model chunk c of stages * virtual_stages runs on `Schedule.device_of(c)`. Where microbatches go both ways, chunks
    of the way up follow those of the way down.
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
    schedule: str | Schedule,
    stages: int,
    microbatches: int,
    virtual_stages: int = 1,
    *,
    forward_s: Seconds,
    backward_s: Seconds,
    weight_s: Seconds = 0.0,
    transfer_s: float = 0.0,
    steady_transfer_s: float | None = None,
    hidden_s: Seconds = 0.0,
) -> Played:
    """Play one training step. B is the gradient of the input, W that of the weights.

    Zero-bubble schedules send the gradient after B and run W on its own; the others run B and W as one operation,
    and send after both. `steady_transfer_s` (default: the same) is what is felt of a transfer once others run beside
    it: of all but the first microbatch's activations and the last one's gradients, on whose way nothing else runs.
    Devices that hold chunks in rounds (`Schedule.interleaves`) are busy while they exchange, for what is felt of it.
    `hidden_s` is what a forward pass and a backward pass of a stage that run as one operation take less than alone.
    """
    laid = _laid_out(schedule, stages, microbatches, virtual_stages)
    forward, backward, weight, hidden = (
        _by_chunk(seconds, stages, virtual_stages) * laid.entry.ways
        for seconds in (forward_s, backward_s, weight_s, hidden_s)
    )
    if not laid.entry.splits:
        backward = tuple(b + w for b, w in zip(backward, weight, strict=True))
    steady_s = transfer_s if steady_transfer_s is None else steady_transfer_s
    if laid.entry.interleaves and stages > 1:
        forward, backward = (tuple(each + steady_s for each in side) for side in (forward, backward))
        transfer_s, steady_s = transfer_s - steady_s, 0.0
    costs = Costs(
        seconds=_together([*forward, *backward, *weight], hidden, laid.parts),
        lags_s=np.array([transfer_s, steady_s], float),
        taken_bytes=laid.taken,
        freed_bytes=laid.freed,
    )
    done = run(laid.graph, costs, _NUMPY)
    return Played(
        makespan_s=float(done.makespan_s),
        order=laid.order,
        starts_s=_by_device(done.starts_s, laid),
        ends_s=_by_device(done.ends_s, laid),
        in_flight=tuple(done.peak_bytes[:, 0].tolist()),
        in_flight_until_b=tuple(done.peak_bytes[:, 1].tolist()),
    )


def order(schedule: str | Schedule, stages: int, microbatches: int, virtual_stages: int = 1) -> tuple[DeviceOrder, ...]:
    """The order of operations on each device; it does not depend on their durations."""
    return _tasks(orders(schedule, stages, microbatches, virtual_stages))


class _Laid(NamedTuple):
    """All of a play that durations do not change."""

    entry: Schedule
    graph: Graph
    parts: np.ndarray  # of each class of operation
    operations: np.ndarray  # of each part
    cuts: np.ndarray  # the first part of each device but the first
    order: tuple[DeviceOrder, ...]
    taken: np.ndarray  # microbatches of a stage, by class
    freed: np.ndarray  # at its last use, and with B


def _laid_out(schedule: str | Schedule, stages: int, microbatches: int, virtual_stages: int) -> _Laid:
    """Laid out once for many durations where that is small to keep, or for the next ones where it is not large."""
    entry = schedule if isinstance(schedule, Schedule) else SCHEDULES.get(schedule)
    size = stages * microbatches * virtual_stages
    make = _MANY_KEPT if size <= _SMALL else _FEW_KEPT if size <= _LARGE else _make
    return make(schedule, entry, stages, microbatches, virtual_stages)


_SMALL, _LARGE = 2_000, 20_000  # microbatches on chunks: about one and ten megabytes


def _make(
    schedule: str | Schedule, entry: Schedule | None, stages: int, microbatches: int, virtual_stages: int
) -> _Laid:
    """An entry of the table by its name now: another one may have the name later."""
    given = orders(schedule, stages, microbatches, virtual_stages)
    assert entry is not None
    graph, parts = pipeline_of(given, entry, stages, virtual_stages)
    taken, freed = _activations(entry, stages, virtual_stages)
    cuts = np.flatnonzero(np.diff(given.devices)) + 1
    held = _summed(taken, parts), _summed(freed, parts)
    return _Laid(entry, graph, parts, given.operations, cuts, _tasks(given), *held)


_MANY_KEPT, _FEW_KEPT = functools.lru_cache(maxsize=32)(_make), functools.lru_cache(maxsize=4)(_make)


def _activations(entry: Schedule, stages: int, virtual_stages: int) -> tuple[np.ndarray, np.ndarray]:
    """What each part takes and frees, in microbatches of a stage: till the last use, and till B."""
    each = np.repeat(np.eye(len(KINDS)), stages * virtual_stages * entry.ways, axis=1) / virtual_stages
    forward, backward, weight = each[..., None]
    return forward, np.concatenate([weight if entry.splits else backward, backward], axis=1)


def _summed(by_part: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Sums over the parts of each class of operation."""
    return np.concatenate([by_part, np.zeros_like(by_part[:1])])[parts].sum(axis=1)


def _together(seconds: Sequence[float], hidden_s: Sequence[float], parts: np.ndarray) -> np.ndarray:
    """What each class of operation takes: a forward and a backward pass that run together hide some of each other."""
    passes, chunks = parts // len(hidden_s), parts % len(hidden_s)
    both = (passes == 0).any(axis=1) & (passes == 1).any(axis=1)
    half_s = 0.5 * np.array(hidden_s, float)[chunks] * ((passes == 0) | (passes == 1))
    return _summed(np.array(seconds, float), parts) - both * half_s.sum(axis=1)


def _by_device(by_operation: np.ndarray, laid: _Laid) -> tuple[tuple[float, ...], ...]:
    values, cuts = by_operation[laid.operations].tolist(), [0, *laid.cuts.tolist(), len(laid.operations)]
    return tuple(tuple(values[first:last]) for first, last in pairwise(cuts))


def _tasks(given: Orders) -> tuple[DeviceOrder, ...]:
    kinds = [KINDS[kind] for kind in given.kinds.tolist()]
    tasks = list(map(Task, kinds, given.microbatches.tolist(), given.chunks.tolist()))
    cuts = [0, *(np.flatnonzero(np.diff(given.devices)) + 1).tolist(), len(tasks)]
    return tuple(tuple(tasks[first:last]) for first, last in pairwise(cuts))


def _by_chunk(seconds: Seconds, stages: int, virtual_stages: int) -> tuple[float, ...]:
    chunks = stages * virtual_stages
    by_chunk = tuple(seconds) if isinstance(seconds, Sequence) else (seconds / virtual_stages,) * chunks
    if len(by_chunk) != chunks:
        raise ValueError(f"{len(by_chunk)} durations are given; expected one for each of {chunks} chunks")
    if not all(math.isfinite(each) for each in by_chunk):
        raise ValueError(f"a pass takes {seconds!r} s; expected finite numbers")
    return by_chunk
