r"""Lower bounds of runs of plans that differ in the schedule alone, over all hardware, by a tangent each.

Between rows of degrees (`rows`) and plans: with every option but the schedule known, so is what lies in HBM under the
leanest one, what is computed again, and the traffic of gradients and from stage to stage. Where hardware has a price,
all of that is bought: a bound that leaves it out has a memory and a network for nothing.

Then of the plans of such runs (`tangents_of_schedules`): what a run takes is found once, and each schedule adds its own
bubble and its own activations in flight.
"""

import dataclasses
from typing import Any, TypeVar

import numpy as np

from costmodel import Exact, map_leaves, total
from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import (
    OpCounts,
    Pipeline,
    Stage,
    Work,
    around,
    busy,
    counts,
    drawn_s,
    memory,
    pipeline_s,
    redone_s,
    timing,
    work,
)
from costmodel.inputs import SCHEDULES, PlanPoint, RecomputeRow
from optimize.hardware.rows import logarithms, machine_at, of_each
from optimize.lattice import Families, lean_bytes, least_fill, least_step_s, least_way_s, under_any
from optimize.question import Problem, Tangents

T = TypeVar("T")
_EXACT = Exact(np)


def tangents_of_runs(
    problem: Problem,
    families: Families,
    first: np.ndarray,
    accelerators: np.ndarray,
    y: np.ndarray,
    recompute: RecomputeRow,
) -> Tangents:
    """Tangents below a step of any plan of each run under each mode of recompute (the first axis, where there are two;
    flattened). `first`: a plan of each run, on so many accelerators, at rates of its own."""
    lattice, row = families.lattice, np.searchsorted(families.lattice.ends, first, side="right")
    fill = least_fill(lattice.axes[0].at(row), lattice.rows["pipeline"][row])
    point = families.points(first, np.float64)
    plain = SCHEDULES["one_f_one_b"].row
    point = dataclasses.replace(point, accelerators=accelerators, schedule=plain, virtual_stages=1.0)
    counted = counts(problem.job.floats, point, _EXACT)
    shape = np.broadcast_shapes(np.shape(recompute.redo_core), y.shape[:1])
    need = lean_bytes(problem.job.floats, problem.machine.stack, point, (recompute,))
    seconds = _seconds(problem, counted, point, recompute, y, fill)
    pairs = [column for each in seconds for column in logarithms(each, shape)]
    need = np.broadcast_to(need, shape).ravel()
    where = np.broadcast_to(y, (*shape, y.shape[-1])).reshape(-1, y.shape[-1])
    return Tangents(pairs[0], pairs[1], where, need, need, *pairs[2:])


def _seconds(
    problem: Problem, counted: Any, point: PlanPoint, recompute: RecomputeRow, y: np.ndarray, fill: np.ndarray
) -> tuple[Dual, ...]:
    """Of a step under any schedule; where the objective is paid for busy units, also those at the usual power."""
    sem, m, loads = SUBGRADIENT, counted.microbatches, problem.loads
    machine, (point, both_ways) = machine_at(problem, y), under_any(list(SCHEDULES.values()), point, m)
    times = timing(counted, point, machine, sem)
    todo = work(counted, times, point, machine, sem)
    again_s = total(block.repeats * redone_s(block.forward, recompute) for block in times.layers)
    layer_s, pipe = again_s * (1.0 / counted.layer_count), todo.pipe
    plain_s = pipe.plain.seconds + again_s * (1.0 / point.pipeline)
    stages_s = (
        plain_s,
        pipe.first.seconds + layer_s * point.extra_layers_first,
        pipe.middle.seconds + layer_s * point.extra_layers_middle,
        pipe.last.seconds + layer_s * point.extra_layers_last,
    )
    passes_s = least_step_s(stages_s, point.pipeline, m, both_ways, sem)
    passes_s = sem.maximum(passes_s, least_way_s(stages_s, m, fill))
    own = _with_stage(todo, plain_s, 1.0 if times.streams is None else 0.0, both_ways)
    step_s = around(passes_s, own, times, point, machine.stack, sem).step_s
    if loads is None:
        return (step_s,)
    units = busy(counted, times, own, dataclasses.replace(point, recompute=recompute), machine)
    return step_s, drawn_s(loads, units, step_s)


def tangents_of_schedules(
    problem: Problem, families: Families, first: np.ndarray, accelerators: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray, Tangents]:
    """Plans that differ from those of `first` in the schedule alone, the place there of each one's run, and tangents
    below their steps, at the rates of the run."""
    place = np.repeat(np.arange(len(first)), families.schedules(first))
    plans = families.of_every_schedule(first)
    base, plain = families.lattice.points(first, np.float64), SCHEDULES["one_f_one_b"].row
    base = dataclasses.replace(base, accelerators=accelerators, schedule=plain, virtual_stages=1.0)
    point = dataclasses.replace(families.lattice.points(plans, np.float64), accelerators=accelerators[place])
    counted = counts(problem.job.floats, base, _EXACT)
    each = map_leaves(lambda leaf: of_each(leaf, place), counted)
    need = np.broadcast_to(memory(each, point, problem.machine.stack, _EXACT).needed_bytes, plans.shape)
    seconds = _seconds_of_schedules(problem, counted, base, y, (place, point))
    pairs = [column for own in seconds for column in logarithms(own, plans.shape)]
    return plans, place, Tangents(pairs[0], pairs[1], y[place], need, need, *pairs[2:])


def _seconds_of_schedules(
    problem: Problem, counted: OpCounts, base: PlanPoint, y: np.ndarray, plans: tuple[np.ndarray, PlanPoint]
) -> tuple[Dual, ...]:
    """Of a step of plans, each of a run; where the objective is paid for busy units, also those at the usual power."""
    sem, loads, (place, point), machine = SUBGRADIENT, problem.loads, plans, machine_at(problem, y)
    base, may_go = under_any(list(SCHEDULES.values()), base, counted.microbatches)
    times = timing(counted, base, machine, sem)
    todo = work(counted, times, base, machine, sem)

    def each(tree: T) -> T:
        return map_leaves(lambda leaf: of_each(leaf, place), tree)

    own, m, both_ways = each(todo), of_each(counted.microbatches, place), point.schedule.both_ways
    passes_s = (1.0 - both_ways) * pipeline_s(own.pipe, own.hops, m, point, sem)
    passes_s = sem.maximum(passes_s, m * own.pipe.plain.seconds)  # both ways: all of them pass a plain stage
    beside = dataclasses.replace(times, blocks=(), hide=each(times.hide), streams=each(times.streams))
    own = _with_copies(own, both_ways)
    step_s = around(passes_s, own, beside, point, machine.stack, sem).step_s
    if loads is None:
        return (step_s,)
    units = busy(counted, times, _with_copies(todo, may_go), base, machine)
    return step_s, drawn_s(loads, each(units), step_s)


def _with_stage(todo: Work, plain_s: Any, seen: float, both_ways: Any) -> Work:
    """The same work on plain stages that take so long; where weights stream, traffic of gradients is taken to be
    hidden."""
    nothing = Stage(forward_s=0.0, backward_s=0.0, weights_s=0.0)
    even = dataclasses.replace(nothing, forward_s=plain_s)
    pipe = Pipeline(plain=even, first=nothing, middle=nothing, last=nothing)
    own = dataclasses.replace(todo, pipe=pipe, gradient_traffic_s=seen * todo.gradient_traffic_s)
    return _with_copies(own, both_ways)


def _with_copies(todo: Work, both_ways: Any) -> Work:
    """Where microbatches go both ways, traffic of gradients is taken to be hidden, and both copies of a stage share its
    update."""
    alone = 1.0 - 0.5 * both_ways
    return dataclasses.replace(
        todo,
        gradient_traffic_s=(1.0 - both_ways) * todo.gradient_traffic_s,
        optimizer_s=alone * todo.optimizer_s,
        orthogonal_s=alone * todo.orthogonal_s,
    )
