"""`register_schedule`: a schedule whose row agrees with its operations, played out, in small cases."""

import dataclasses
import itertools
import math
import numbers
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np

from costmodel.exact import Exact
from costmodel.formulas import Hops, Pipeline, Stage, in_flight, pipeline_s
from costmodel.graph import Played, Task, order, play
from costmodel.inputs import OWN_SCHEDULES, SCHEDULES, Block, Plan, PlanPoint, Schedule, Workload, embed
from costmodel.register.tables import entered, identifier, number, refuse
from costmodel.specs import SpecError, called

TOLERANCE = 0.02
"""Largest error of a row's closed form, on plain stages. The shipped schedules err by 0.6 % in these cases."""

_STAGES, _TURNS, _VIRTUAL = (2, 4), (1.0, 1.5, 2.0, 4.0), (2, 3)
_PASSES = ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8), (1.0, 2.0, 1.0))  # seconds of F, B and W on a stage
_TRANSFERS_S = (0.0, 0.1)
_FLAGS = ("splits", "interleaves", "all_in_flight", "both_ways", "folds")
_EXACT = Exact(math)

Shape = tuple[int, int, int]
"""Stages, microbatches, and chunks of each stage."""


def register_schedule(name: str, schedule: Schedule, tolerance: float = TOLERANCE) -> ExitStack:
    """Add a pipeline schedule under a new name, which plans, searches, plays and reports then know.

    Where it is used as a context, the schedule is gone after it. Raises a `ValueError` of one line unless its
    operations are complete and end, on 2 and 4 plain stages, and its row gives the time that they take (within
    `tolerance`, with transfers of 0 and 0.1 of a forward pass) and exactly the microbatches that they hold.
    """
    where = f'schedule "{identifier("schedule", name)}"'
    if not isinstance(schedule, Schedule):
        refuse(where, "it", schedule, "a `Schedule`")
    with entered(SCHEDULES, "schedule", name, schedule) as added:
        _check_fields(where, schedule)
        for shape in _shapes(where, schedule):
            _check_shape(where, name, shape, tolerance)
        added.enter_context(entered(OWN_SCHEDULES, "schedule", name, schedule))
        return added.pop_all()


def _check_fields(where: str, schedule: Schedule) -> None:
    """Coefficients are numbers, flags are 0 or 1, and there is one order of operations."""
    for field in dataclasses.fields(schedule.row):  # pyright: ignore[reportArgumentType]
        value = getattr(schedule.row, field.name)
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            refuse(where, f"`{field.name}` of its row", value, "a finite number")
        if field.name in _FLAGS and value not in (0, 1):
            refuse(where, f"`{field.name}` of its row", value, "0 or 1")
    if (schedule.warm_up is None) == (schedule.order is None):
        raise SpecError(
            f"{where}: it has {'neither' if schedule.order is None else 'both'}; expected `warm_up` or `order`"
        )


def _shapes(where: str, schedule: Schedule) -> Iterator[Shape]:
    """The cases that are played: few and many microbatches, of the numbers that the schedule takes."""
    several = _VIRTUAL if schedule.interleaves else (schedule.chunks(1),)
    for stages, turns, chunks in itertools.product(_STAGES, _TURNS, several):
        least, microbatches = _least(where, schedule)[stages], int(turns * stages)
        if schedule.interleaves:
            least, microbatches = -(-least // stages) * stages, microbatches // stages * stages
        most = max(least, microbatches)
        yield stages, most + most % schedule.ways, chunks


def _least(where: str, schedule: Schedule) -> dict[int, int]:
    """The least microbatches by stages, which must be the same for arrays."""
    one_by_one = {p: called(f"{where}: `least_microbatches` of {p}", schedule.least_microbatches, p) for p in _STAGES}
    for stages, least in one_by_one.items():
        if not isinstance(least, numbers.Integral) or least < 1:
            refuse(where, f"`least_microbatches` of {stages}", least, "an integer >= 1")
    together = called(f"{where}: `least_microbatches` of an array", schedule.least_microbatches, np.array(_STAGES))
    if not np.all(np.asarray(together) == list(one_by_one.values())):
        told = f"{list(one_by_one.values())}, as of each"
        refuse(where, f"`least_microbatches` of the array {list(_STAGES)}", together, told)
    return one_by_one


def _check_shape(where: str, name: str, shape: Shape, tolerance: float) -> None:
    """The order, the microbatches in flight and the time of one case."""
    stages, microbatches, chunks = shape
    where = f"{where}, {stages} stages of {chunks} chunks, {microbatches} microbatches".replace(" of 1 chunks", "")
    _check_order(where, name, shape)
    for passes, transfer_s in itertools.product(_PASSES, _TRANSFERS_S):
        forward_s, backward_s, weight_s = passes
        seconds = {"forward_s": forward_s, "backward_s": backward_s, "weight_s": weight_s, "transfer_s": transfer_s}
        played = called(where, play, name, *shape, **seconds)
        closed_s = _closed_s(name, shape, passes, transfer_s)
        if abs(closed_s / played.makespan_s - 1) > tolerance:
            told = f"{number(played.makespan_s)} s as played out, within {100 * tolerance:g} %"
            case = f"F, B and W of {forward_s:g}, {backward_s:g} and {weight_s:g} s and transfers of {transfer_s:g} s"
            refuse(f"{where}, {case}", "the time by its row", f"{number(closed_s)} s", told)
    _check_in_flight(where, name, shape, play(name, *shape, forward_s=1.0, backward_s=1.0))


def _check_order(where: str, name: str, shape: Shape) -> None:
    """Every operation once, on the stage that holds its chunk."""
    (stages, microbatches, chunks), schedule = shape, SCHEDULES[name]
    kinds = "FBW" if schedule.splits else "FB"
    for device, tasks in enumerate(called(where, order, name, *shape)):
        ways, half = schedule.ways, microbatches // schedule.ways
        own = [chunk for chunk in range(stages * chunks * ways) if schedule.device_of(chunk, stages) == device]
        numbers = [(range(half * (c // (stages * chunks)), half * (c // (stages * chunks) + 1)), c) for c in own]
        due = Counter(Task(kind, m, c) for kind in kinds for each, c in numbers for m in each)
        wrong = next(iter((due - Counter(tasks)) or (Counter(tasks) - due)), None)
        if wrong is not None:
            kind, microbatch, chunk = wrong
            times = f"{tasks.count(wrong)} times; expected {'once' if wrong in due else 'never'}"
            case = f"{where}: stage {device} runs {kind} of microbatch {microbatch} on chunk {chunk}"
            raise SpecError(f"{case} {times}")


def _check_in_flight(where: str, name: str, shape: Shape, played: Played) -> None:
    stages, microbatches, _ = shape
    for device, held in enumerate(played.in_flight):
        by_row = in_flight(_point(name, shape), float(microbatches), float(stages - device), _EXACT)
        if abs(by_row - held) > 1e-9:
            told = f"{number(held)} as played out"
            refuse(where, f"microbatches in flight on stage {device} by its row", float(by_row), told)


def _point(name: str, shape: Shape) -> PlanPoint:
    (stages, _, chunks), folds = shape, SCHEDULES[name].folds
    plan = Plan(pipeline=stages, schedule=name, virtual_stages=1 if folds else chunks)
    layers = Block(name="layer", ops=(), repeats=stages * chunks)
    return embed(plan, Workload(name="plain", blocks=(layers,), sequence=1, batch=1, hidden=1), 8.0)


def _closed_s(name: str, shape: Shape, passes: tuple[float, float, float], transfer_s: float) -> Any:
    plain, nothing = (
        Stage(forward_s=share * passes[0], backward_s=share * passes[1], weights_s=share * passes[2])
        for share in (1.0, 0.0)
    )
    pipe = Pipeline(plain=plain, first=nothing, middle=nothing, last=nothing)
    hops = Hops(ends_s=transfer_s, steady_s=transfer_s)
    return pipeline_s(pipe, hops, float(shape[1]), _point(name, shape), _EXACT)
