r"""Lower bounds of runs of plans that differ in the schedule alone, over all hardware, by a tangent each.

Between rows of degrees (`rows`) and plans: with every option but the schedule known, so is what lies in HBM under the
leanest one, what is computed again, and the traffic of gradients and from stage to stage. Where hardware has a price,
all of that is bought: a bound that leaves it out has a memory and a network for nothing.
"""

import dataclasses
from typing import Any

import numpy as np

from costmodel import Exact, total
from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import (
    Pipeline,
    Stage,
    Work,
    around,
    busy,
    counts,
    drawn_s,
    hardware_of,
    redone_s,
    timing,
    with_hardware,
    work,
)
from costmodel.inputs import SCHEDULES, PlanPoint, RecomputeRow
from optimize.hardware.rows import logarithms
from optimize.lattice import Families, least_fill
from optimize.plans import lean_bytes, least_step_s, may_go_both_ways
from optimize.question import RATES, Problem, Tangents

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
    rates: dict[str, Any] = {name: Dual(rate, {name: rate}) for name, rate in zip(RATES, np.exp(y).T, strict=True)}
    machine = with_hardware(problem.machine, dataclasses.replace(hardware_of(problem.machine), **rates))
    both_ways = may_go_both_ways(list(SCHEDULES.values()), point.pipeline, m)
    expert = np.maximum(point.overlap.expert, both_ways)
    point = dataclasses.replace(point, overlap=dataclasses.replace(point.overlap, expert=expert))
    times = timing(counted, point, machine, sem)
    todo = work(counted, times, point, machine, sem)
    again_s = total(block.repeats * redone_s(block.forward, recompute, sem) for block in times.layers)
    layer_s, pipe = again_s * (1.0 / counted.layer_count), todo.pipe
    plain_s = pipe.plain.seconds + again_s * (1.0 / point.pipeline)
    stages_s = (
        plain_s,
        pipe.first.seconds + layer_s * point.extra_layers_first,
        pipe.middle.seconds + layer_s * point.extra_layers_middle,
        pipe.last.seconds + layer_s * point.extra_layers_last,
    )
    passes_s = least_step_s(stages_s, point.pipeline, m, both_ways, sem)
    passes_s = sem.maximum(passes_s, plain_s * (m + fill))
    own = _with_stage(todo, plain_s, 1.0 if times.streams is None else 0.0, both_ways)
    step_s = around(passes_s, own, counted, times, point, machine.stack, sem).step_s
    if loads is None:
        return (step_s,)
    units = busy(counted, times, own, dataclasses.replace(point, recompute=recompute), machine)
    return step_s, drawn_s(loads, units, step_s)


def _with_stage(todo: Work, plain_s: Any, seen: float, both_ways: Any) -> Work:
    """The same work on plain stages that take so long. Where microbatches may go both ways, or weights stream, traffic
    of gradients is taken to be hidden; where they go both ways, both copies of a stage share its update."""
    nothing = Stage(forward_s=0.0, backward_s=0.0, weights_s=0.0)
    even = dataclasses.replace(nothing, forward_s=plain_s)
    alone = 1.0 - 0.5 * both_ways
    return dataclasses.replace(
        todo,
        pipe=Pipeline(plain=even, first=nothing, middle=nothing, last=nothing),
        gradient_traffic_s=seen * (1.0 - both_ways) * todo.gradient_traffic_s,
        optimizer_s=alone * todo.optimizer_s,
        orthogonal_s=alone * todo.orthogonal_s,
    )
