"""What no plan of some degrees takes less than, in memory and in time, whichever options it has.

Bytes of the leanest, seconds of every schedule: what the bounds of rows are made of, on one cluster (`plans`) and over
all hardware (`hardware`).
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from costmodel import Exact, Scalar, Semantics, total
from costmodel.formulas import OpCounts, counts, in_flight, memory
from costmodel.inputs import (
    SCHEDULES,
    Habits,
    PlanPoint,
    Position,
    RecomputeRow,
    Schedule,
    Stack,
    Workload,
    ZeroRow,
    options,
)
from optimize.lattice.axes import LARGEST_VIRTUAL

SAFE = 1.0 - 1e-9  # for the rounding of sums
EVEN = 2e-3  # what ends of a model differ in, as a part of the larger, by a norm: below what a microbatch more holds
_EXACT = Exact(np)


def cheapest(point: PlanPoint, parallel: float, ring: float) -> PlanPoint:
    """Rows of degrees under the options that take least time in a stage."""
    return dataclasses.replace(
        point,
        sequence_parallel=parallel,
        context_ring=ring,
        schedule=SCHEDULES["one_f_one_b"].row,
        zero=options.ZERO_STAGES[0],
        recompute=options.RECOMPUTES["none"],
        copies=1.0,
    )


def least_bytes(workload: Workload, stack: Stack, point: PlanPoint) -> np.ndarray:
    """Bytes below which no plan of each row of degrees needs, whatever its options: `point` as `cheapest` has it."""
    modes = tuple(stack.habits.recompute_rows().values())
    stages = (0, 2, 3) if np.any(point.update_copy_bytes) else (2, 3)  # which ZeRO keeps beside what it divides
    return lean_bytes(workload, stack, point, modes, [options.ZERO_STAGES[stage] for stage in stages])


def lean_bytes(
    workload: Workload,
    stack: Stack,
    point: PlanPoint,
    modes: Sequence[RecomputeRow],
    shards: Sequence[ZeroRow] | None = None,
) -> np.ndarray:
    """The same whatever their schedule and which of some modes of recompute they have, and of some ZeRO stages."""
    counted, least = counts(workload, point, _EXACT), np.array(np.inf)  # which neither of these changes
    counted = dataclasses.replace(counted, embeds_again=0.0)  # of which schedules that come back need no copy
    held = [*leanest(point, counted.microbatches, stack.habits), *_sharing_ends(point, counted)]
    every = itertools.product(held, modes, shards or (point.zero,))
    for own, recompute, zero in every:
        chosen = dataclasses.replace(own, recompute=recompute, zero=zero)
        least = np.minimum(least, memory(counted, chosen, stack, _EXACT).needed_bytes)
    return SAFE * least


def leanest(point: PlanPoint, microbatches: np.ndarray, habits: Habits) -> list[PlanPoint]:
    """Rows under 1F1B, and under each of the other schedules, as the software has them, that keeps fewer live anywhere:
    of those that ship V-Half and V-Min alone do.

    What an interleaved one keeps on a stage is linear in the reciprocal of its virtual stages, so least at one of the
    ends; without what it keeps for stages before the last, at the same end on all of them.
    """
    remaining = (point.pipeline, np.maximum(point.pipeline - 1, 1), np.ones_like(point.pipeline))
    usual, leaner = [in_flight(point, microbatches, left, _EXACT) for left in remaining], []
    for name, row in habits.schedule_rows().items():
        several = SCHEDULES[name].interleaves
        ends = [
            dataclasses.replace(point, schedule=row, virtual_stages=virtual)
            for virtual in ((2.0, float(LARGEST_VIRTUAL)) if several else (1.0,))
        ]
        held = [[in_flight(end, microbatches, left, _EXACT) for left in remaining] for end in ends]
        if any(np.any(a < b * SAFE) for own in held for a, b in zip(own, usual, strict=True)):
            least = dataclasses.replace(row, depth_in_flight=0.0) if several else row
            leaner += [dataclasses.replace(end, schedule=least) for end in ends]
    return [point, *leaner]


def _sharing_ends(point: PlanPoint, counted: OpCounts) -> list[PlanPoint]:
    """Rows under schedules that go both ways, where such are legal and one end of the model is larger than the other:
    both copies of a stage hold both ends, and ZeRO divides these by the ranks of both."""
    sizes = [
        total(block.parameters for block in counted.blocks if block.position == end)
        for end in (Position.FIRST, Position.LAST)
    ]
    if not np.any(np.abs(sizes[0] - sizes[1]) > EVEN * np.maximum(*sizes)):
        return []
    both, found = may_go_both_ways(list(SCHEDULES.values()), point.pipeline, counted.microbatches), []
    for row in {entry.row: None for entry in SCHEDULES.values() if entry.ways > 1} if both.any() else ():
        own = {f.name: getattr(row, f.name) for f in dataclasses.fields(row)}
        mixed = {name: both * value + (1 - both) * getattr(point.schedule, name) for name, value in own.items()}
        found.append(dataclasses.replace(point, schedule=dataclasses.replace(row, **mixed)))
    return found


def least_step_s(
    stages_s: tuple[Scalar, ...], pipeline: Scalar, microbatches: Scalar, both_ways: Scalar, sem: Semantics
) -> Scalar:
    """What no schedule ends before, but for the host: of the seconds of a microbatch on a plain stage, and on the
    first, a middle and the last stage beyond it."""
    (plain_s, first_s, middle_s, last_s), m, single = stages_s, microbatches, np.maximum(2.0 - pipeline, 0.0)
    beyond_s = sem.maximum(m * (first_s + single * last_s), m * last_s, (m - 1) * middle_s)
    return m * plain_s + (1 - both_ways) * beyond_s + both_ways * 0.5 * m * (first_s + last_s)


def least_way_s(
    stages_s: tuple[Scalar, ...], microbatches: Scalar, fill: Scalar, held_s: Scalar | None = None
) -> Scalar:
    """The same where every schedule fills and drains in so many turns of a plain stage (0: some do not, and nothing is
    known): the way of the first microbatch through all stages, and what holds up the others after it.

    `held_s`: that, if it is more than m - 1 turns on a middle stage. Stages at the ends may have fewer layers than a
    plain one, and few microbatches do not make up for it: their part of the way is never left out.
    """
    plain_s, first_s, middle_s, last_s = stages_s
    held_s = (microbatches - 1) * middle_s if held_s is None else held_s
    return np.greater(fill, 0) * ((microbatches + fill) * plain_s + first_s + last_s + held_s)


def under_any(schedules: Sequence[Schedule], point: PlanPoint, microbatches: Scalar) -> tuple[PlanPoint, np.ndarray]:
    """Points that hide of the traffic of experts what some of the schedules may, and whether microbatches may go both
    ways (1 or 0)."""
    both_ways = may_go_both_ways(schedules, point.pipeline, microbatches)
    expert = np.maximum(point.overlap.expert, both_ways)
    return dataclasses.replace(point, overlap=dataclasses.replace(point.overlap, expert=expert)), both_ways


def may_go_both_ways(schedules: Sequence[Schedule], pipeline: np.ndarray, microbatches: np.ndarray) -> np.ndarray:
    """1 where some of the schedules lets half of the microbatches go up the stages."""
    least = [entry.least_microbatches(pipeline) for entry in schedules if entry.ways > 1]
    even = (pipeline >= 2) & (pipeline % 2 == 0) & (microbatches % 2 == 0)
    return np.any([even & (microbatches >= fewest) for fewest in least] or [0 * even], axis=0).astype(float)
