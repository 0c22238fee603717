r"""Lower bounds of rows of degrees over all hardware, by a tangent each: millions of plans at a time.

No schedule ends before every stage has passed all microbatches (`lattice.least_step_s`), and what a layer takes for one
depends on few of the degrees: tensor, context, microbatch and the two of experts. So the seconds of layers and of both
ends are found once for each of those with their slopes by the rates, in dual numbers, at a few places; every row of
every count is a sum of them. Traffic beyond an innermost domain grows with the count: it is taken as on the least
of each octave.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from costmodel import Exact, map_leaves, total
from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import OpCounts, OpTimes, again_s, counts, operators_s, redone_s, sent_s, stages, timing
from costmodel.inputs import RECOMPUTES, SCHEDULES, ZERO_STAGES, Cluster, PlanPoint, RecomputeRow, layers
from optimize.lattice import (
    cheapest,
    distinct,
    fill_of_rows,
    lean_bytes,
    least_bytes,
    least_step_s,
    least_way_s,
    may_go_both_ways,
    points_of_rows,
    switches_of_rows,
)
from optimize.question import RATES, Problem, Tangents, at_rates

Rows = Mapping[str, np.ndarray]
"""Degrees of rows of any counts, and their `accelerators`."""
_KEYS = ("tensor", "context", "expert", "expert_tensor", "microbatch")
_EXACT = Exact(np)
_NONE: RecomputeRow = RECOMPUTES["none"]
_AGAIN = (RecomputeRow(redo_core=1.0), RecomputeRow(redo_rest=1.0))


def bytes_of_rows(problem: Problem, rows: Rows) -> np.ndarray:
    """Bytes of HBM below which no plan of a row needs."""
    workload, machine = problem.job.workload, problem.machine
    point = points_of_rows(workload, machine, problem.fixed, rows)
    return np.broadcast_to(
        least_bytes(problem.job.floats, machine.stack, cheapest(point, 1.0, 1.0)), len(rows["tensor"])
    )


def bytes_of_modes(problem: Problem, rows: Rows, zero_stage: int, recompute: RecomputeRow) -> np.ndarray:
    """The same of plans under one ZeRO stage and several modes of recompute (the first axis of those rows)."""
    workload, machine = problem.job.workload, problem.machine
    point = cheapest(points_of_rows(workload, machine, problem.fixed, rows), 1.0, 1.0)
    point = dataclasses.replace(point, zero=ZERO_STAGES[zero_stage])
    return lean_bytes(problem.job.floats, machine.stack, point, (recompute,))


def tangents_of_rows(
    problem: Problem,
    rows: Rows,
    places: np.ndarray,
    place: np.ndarray,
    recompute: RecomputeRow = _NONE,
) -> Iterator[tuple[tuple[float, float], np.ndarray, Tangents]]:
    """Each pair of switches, the rows that may have it, and tangents below a step of any of their plans.

    `places` are logarithms of rates, `place` says at which of them a row's tangent is taken. `recompute`: what is
    computed again at least, for each row or for several modes of each (a first axis; the tangents are flattened).
    """
    workload, machine = problem.job.workload, problem.machine
    octave = np.log2(rows["accelerators"]).astype(int)
    first, which = distinct([*(rows[name] for name in _KEYS), octave, place])
    own = {name: rows[name][first] for name in rows} | {"accelerators": 2 ** octave[first]}
    ones = np.ones(len(first), int)
    point = points_of_rows(workload, machine, problem.fixed, {**own, "pipeline": ones, "data": ones})
    y, extra = places[place[first]], points_of_rows(workload, machine, problem.fixed, rows)
    fill = fill_of_rows(workload, machine, problem.fixed, rows)
    for parallel, ring, kept in switches_of_rows(workload, machine, problem.fixed, rows):
        if kept.any():
            chosen = np.flatnonzero(kept)
            parts = _stages(problem, cheapest(point, parallel, ring), y)
            again = _NONE if recompute is _NONE else map_leaves(lambda leaf, of=chosen: leaf[..., of], recompute)
            of = _Chosen(chosen, which[chosen], fill[chosen], places[place[chosen]], again)
            yield (parallel, ring), chosen, _tangents(problem, parts, extra, of)


class _Chosen(NamedTuple):
    chosen: np.ndarray
    which: np.ndarray  # of the keys each has
    fill: np.ndarray
    y: np.ndarray
    recompute: RecomputeRow


def _stages(problem: Problem, point: PlanPoint, y: np.ndarray) -> list[Any]:
    """Seconds of one microbatch in all layers, and what the first and the last stage have beyond them; of the
    attention's core and of the rest where they are computed again; where the objective is paid for busy units, also
    what all layers draw, and what the core and the rest do again."""
    machine = machine_at(problem, y)
    point = dataclasses.replace(point, overlap=dataclasses.replace(point.overlap, expert=1.0))  # as it may be both ways
    counted = counts(problem.job.floats, point, _EXACT)
    times = timing(counted, point, machine, SUBGRADIENT)
    pipe = stages(counted, times, point)
    parts = [pipe.plain.seconds - machine.stack.microbatch_s, pipe.first.seconds, pipe.last.seconds]
    parts += [total(block.repeats * redone_s(block.forward, row) for block in times.layers) for row in _AGAIN]
    return parts if problem.loads is None else parts + _drawn(problem, counted, times, point)


def _drawn(problem: Problem, counted: OpCounts, times: OpTimes, point: PlanPoint) -> list[Any]:
    """What the busy units of all layers draw for a microbatch without recompute, and for what is computed again."""
    assert problem.loads is not None
    (_, compute, hbm, links), stack = problem.loads, problem.machine.stack
    again = [again_s(counted, times.rates, dataclasses.replace(point, recompute=row), stack) for row in _AGAIN]
    first, *redone = (
        compute * compute_s + hbm * hbm_s
        for compute_s, hbm_s in [operators_s(counted, times.rates, point, stack), *again]
    )
    return [first + links * sent_s(times), *redone]


def machine_at(problem: Problem, y: np.ndarray) -> Cluster:
    """The machine at rates of its own for each plan, as dual numbers in their logarithms."""
    rates = zip(RATES, np.exp(y).T, strict=True)
    return at_rates(problem.machine, [Dual(rate, {name: rate}) for name, rate in rates])


def _tangents(problem: Problem, parts: list[Any], point: PlanPoint, rows: "_Chosen") -> Tangents:
    """Of some rows of `point`, from the parts of their keys."""

    def of(column: Any) -> Any:
        return np.broadcast_to(column, len(np.atleast_1d(point.tensor)))[rows.chosen]

    workload, stack, p = problem.job.workload, problem.machine.stack, of(point.pipeline)

    def again(first: Any, core: Any, rest: Any) -> Any:
        """With what is computed again."""
        if rows.recompute is _NONE:
            return of_each(first, rows.which)
        first, core, rest = (of_each(part, rows.which) for part in (first, core, rest))
        return first + rows.recompute.redo_core * core + rows.recompute.redo_rest * rest

    layers_s = again(parts[0], *parts[3:5])
    first_s, last_s = (of_each(part, rows.which) for part in parts[1:3])
    layer_s = layers_s * (1.0 / layers(workload))
    m = workload.batch / (of(point.data) * of(point.microbatch))
    stages_s = (
        layers_s * (1.0 / p) + stack.microbatch_s,
        first_s + layer_s * of(point.extra_layers_first),
        layer_s * of(point.extra_layers_middle),
        last_s + layer_s * of(point.extra_layers_last),
    )
    both_ways = may_go_both_ways(list(SCHEDULES.values()), p, m)
    step_s = least_step_s(stages_s, p, m, both_ways, SUBGRADIENT)
    step_s = SUBGRADIENT.maximum(step_s, least_way_s(stages_s, m, rows.fill)) + stack.step_s
    shape = np.shape(step_s.value)
    y = np.broadcast_to(rows.y, (*shape, rows.y.shape[-1])).reshape(-1, rows.y.shape[-1])
    nothing = np.zeros(len(y))
    at = Tangents(*logarithms(step_s, shape), y, nothing, nothing)
    if problem.loads is None:
        return at
    log_drawn, drawn_slopes = logarithms(problem.loads[0] * step_s + (m / p) * again(*parts[5:]), shape)
    return at._replace(log_drawn=log_drawn, drawn_slopes=drawn_slopes)


def logarithms(seconds: Dual, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of seconds, with their slopes by those of the rates, flattened from `shape`."""
    slopes = [np.broadcast_to(seconds.parts.get(name, 0.0) / seconds.value, shape).ravel() for name in RATES]
    return np.log(np.broadcast_to(seconds.value, shape)).ravel(), np.stack(slopes, -1)


def of_each(leaf: Any, which: np.ndarray) -> Any:
    """A number of each key as one of each row, with its slopes. (What is the same for all is a plain number.)"""
    if isinstance(leaf, Dual):
        return Dual(of_each(leaf.value, which), {name: of_each(part, which) for name, part in leaf.parts.items()})
    return leaf[which] if np.ndim(leaf) else leaf
