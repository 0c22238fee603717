"""Rows of degrees of all counts at once: the same plans as count by count, and bounds below every one of them."""

import numpy as np
import pytest

from costmodel.pytree import as_floats
from costmodel.specs.loading import load_cluster, load_curves
from optimize.clusters import one_job
from optimize.clusters.counts import cells, rows_of
from optimize.clusters.progress import Progress
from optimize.clusters.rows import open_counts
from optimize.clusters.screening import tangents_of
from optimize.hardware.rows import bytes_of_modes, bytes_of_rows, tangents_of_rows
from optimize.hardware.runs import tangents_of_runs, tangents_of_schedules
from optimize.lattice.counts import with_microbatches
from optimize.lattice.enumeration import lattice
from optimize.lattice.recompute_families import Families
from optimize.question.asked import design_problem
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from optimize.question.problem import Problem
from optimize.question.quantities import Job
from tests.support.builders import small_decoder, small_moe

WORKLOADS = {"dense": small_decoder(layers=7, batch=24), "experts": small_moe(batch=16)}
WORKLOADS["few microbatches on uneven stages"] = small_decoder(layers=6, batch=2, vocabulary=64)  # 1, 2, 2 and 1 layers
FIXED = {"context": frozenset({1, 2}), "zero_stage": frozenset({1, 3}), "microbatch": 1, "recompute_share": 1.0}


def asked(name: str) -> Problem:
    job, limits = Job(workload=WORKLOADS[name], tokens=1e9), Limits(accelerators=32)
    known = {"jobs": (job,), "limits": limits, "objective": Objective.cost, "fixed": FIXED}
    return design_problem(load_cluster("h100"), load_curves(), **known)


@pytest.mark.parametrize("name", WORKLOADS)
def test_rows_hold_the_plans_of_every_count(name):
    problem, together = asked(name), {}
    progress, rows = Progress(problem), rows_of(problem)
    progress.unseen = one_job.by_count(cells(problem, rows))
    open_counts(progress, rows)
    for part in progress.open:
        plans = part.families.lattice
        for row, count in zip(part.indices, part.cell.accelerators, strict=True):
            start = int(plans.ends[row - 1]) if row else 0
            own = together.setdefault(int(count), set())
            own.update(str(plans.plan(number)) for number in range(start, int(plans.ends[row])))
    for count in (1, 4, 8, 24):
        whole = lattice(problem.job.workload, sized(problem.machine, count), {**FIXED, "domain": 8}, every_shard=False)
        expected = {str(whole.plan(number)) for number in range(len(whole))}
        assert together.get(count, set()) == expected, count


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("count", [8, 24])
def test_no_plan_is_below_the_tangent_of_its_row(name, count):
    problem, generator = asked(name), np.random.default_rng(count)
    workload = as_floats(problem.job.workload)
    low, high = problem.ends
    whole = lattice(workload, sized(problem.machine, count), {**FIXED, "domain": 8}, every_shard=False)
    rows = {key: column[rows_of(problem)["accelerators"] == count] for key, column in rows_of(problem).items()}
    rows = with_microbatches(rows, workload, FIXED)
    places = low + (high - low) * generator.random((3, 4))
    place = generator.integers(3, size=len(rows["tensor"]))
    chosen = generator.choice(len(whole), min(len(whole), 4000), replace=False)
    here = low + (high - low) * generator.random((len(chosen), 4))
    step = tangents_of(workload, problem.machine, whole.points(chosen, np.float64), here, problem.loads)
    keys = [tuple(row) for row in zip(*(rows[name] for name in whole.rows), strict=True)]
    number, of_plan = {key: i for i, key in enumerate(keys)}, whole.select(chosen)[0]
    row = np.array([number[tuple(column[i] for column in whole.rows.values())] for i in of_plan])
    assert step.log_drawn is not None
    least, least_drawn = np.full((2, len(chosen)), np.inf)
    for _, some, at in tangents_of_rows(problem, rows, places, place):
        where = np.full(len(rows["tensor"]), -1)
        where[some] = np.arange(len(some))
        has = where[row] >= 0
        own, moved = where[row][has], here[has] - at.y[where[row][has]]
        assert at.log_drawn is not None
        assert at.drawn_slopes is not None
        least[has] = np.minimum(least[has], at.log_value[own] + (at.slopes[own] * moved).sum(-1))
        drawn = at.log_drawn[own] + (at.drawn_slopes[own] * moved).sum(-1)
        least_drawn[has] = np.minimum(least_drawn[has], drawn)
    assert np.isfinite(least).all()
    assert np.all(step.log_value >= least - 1e-12)
    assert np.all(step.log_drawn >= least_drawn - 1e-12)
    assert np.all(step.peak_bytes >= bytes_of_rows(problem, rows)[row] * (1 - 1e-12))


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("count", [8, 24])
def test_no_plan_is_below_the_tangent_of_its_run(name, count):
    problem, generator = asked(name), np.random.default_rng(count)
    low, high = problem.ends
    whole = lattice(problem.job.floats, sized(problem.machine, count), {**FIXED, "domain": 8}, every_shard=False)
    families = Families(whole)
    first, _ = families.of_any_schedule(np.arange(len(whole.ends)))
    first = generator.choice(first, min(len(first), 250), replace=False)
    y = low + (high - low) * generator.random((len(first), 4))
    numbers, recompute = families.by_recompute(first)
    at = tangents_of_runs(problem, families, first, np.full(len(first), float(count)), y, recompute)
    runs = np.flatnonzero(numbers.ravel() >= 0)
    plans = families.of_every_schedule(numbers.ravel()[runs])
    run = np.repeat(runs, families.schedules(numbers.ravel()[runs]))
    assert len(plans) > len(runs)
    here = low + (high - low) * generator.random((len(plans), 4))
    step = tangents_of(problem.job.floats, problem.machine, whole.points(plans, np.float64), here, problem.loads)
    assert step.log_drawn is not None
    assert at.log_drawn is not None
    assert at.drawn_slopes is not None
    moved = here - at.y[run]
    assert np.all(step.log_value >= at.log_value[run] + (at.slopes[run] * moved).sum(-1) - 1e-12)
    assert np.all(step.log_drawn >= at.log_drawn[run] + (at.drawn_slopes[run] * moved).sum(-1) - 1e-12)
    assert np.all(step.peak_bytes >= at.peak_bytes[run] * (1 - 1e-12))
    there = tangents_of(problem.job.floats, problem.machine, whole.points(plans, np.float64), at.y[run], problem.loads)
    best = np.full(len(at.y), np.inf)
    np.minimum.at(best, run, there.log_value)
    assert np.median((best - at.log_value)[runs]) < 0.1  # and they say something


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_run_with_its_schedules_is_its_plans(name):
    problem, generator, count = asked(name), np.random.default_rng(7), 24
    low, high = problem.ends
    whole = lattice(problem.job.floats, sized(problem.machine, count), {**FIXED, "domain": 8}, every_shard=False)
    families = Families(whole)
    first, _ = families.of_any_schedule(np.arange(len(whole.ends)))
    numbers, _ = families.by_recompute(generator.choice(first, min(len(first), 200), replace=False))
    runs = numbers.ravel()[numbers.ravel() >= 0]
    y = low + (high - low) * generator.random((len(runs), 4))
    plans, place, at = tangents_of_schedules(problem, families, runs, np.full(len(runs), float(count)), y)
    points = whole.points(plans, np.float64)
    exact = tangents_of(problem.job.floats, problem.machine, points, y[place], problem.loads)
    assert len(plans) > len(runs)
    np.testing.assert_allclose(at.peak_bytes, exact.peak_bytes, rtol=1e-12)
    alone = name == "dense" and points.schedule.both_ways == 0  # else what schedules may hide is left out
    np.testing.assert_allclose(at.log_value[alone], exact.log_value[alone], rtol=1e-12)
    np.testing.assert_allclose(at.slopes[alone], exact.slopes[alone], rtol=1e-9, atol=1e-12)
    here = low + (high - low) * generator.random((len(plans), 4))
    step = tangents_of(problem.job.floats, problem.machine, points, here, problem.loads)
    assert step.log_drawn is not None
    assert at.log_drawn is not None
    assert at.drawn_slopes is not None
    assert np.all(step.log_value >= at.log_value + (at.slopes * (here - at.y)).sum(-1) - 1e-12)
    assert np.all(step.log_drawn >= at.log_drawn + (at.drawn_slopes * (here - at.y)).sum(-1) - 1e-12)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("count", [8, 24])
def test_no_plan_is_below_the_tangent_of_its_mode_of_recompute(name, count):
    problem, generator = asked(name), np.random.default_rng(4)
    low, high = problem.ends
    whole = lattice(problem.job.floats, sized(problem.machine, count), {**FIXED, "domain": 8}, every_shard=False)
    families, some = Families(whole), np.flatnonzero(np.diff(whole.ends, prepend=0) > 0)
    rows = {key: column[some] for key, column in whole.rows.items()} | {"accelerators": np.full(len(some), count)}
    numbers, recompute = families.by_recompute((whole.ends - families.sizes)[some])
    need = np.minimum(*(bytes_of_modes(problem, rows, stage, recompute) for stage in (2, 3)))
    places = low + (high - low) * generator.random((3, 4))
    places[0] = [low[0], *high[1:]]  # where products are what takes time
    plans = generator.choice(len(whole), min(len(whole), 3000), replace=False)
    row, entries = whole.select(plans)
    mode, row = entries[-1] - whole.axes[-1].offset[row], np.searchsorted(some, row)
    here = low + (high - low) * generator.random((len(plans), 4))
    points, place = whole.points(plans, np.float64), generator.integers(3, size=len(some))
    step, there = (
        tangents_of(problem.job.floats, problem.machine, points, y, problem.loads) for y in (here, places[place[row]])
    )
    assert step.log_drawn is not None
    assert there.log_drawn is not None
    least, least_drawn, at_place, without = np.full((4, len(plans)), np.inf)
    none = np.argmin(np.broadcast_to(recompute.redo_rest + recompute.redo_core, numbers.shape), axis=0)
    for _, chosen, at in tangents_of_rows(problem, rows, places, place, recompute):
        where = np.full(len(some), -1)
        where[chosen] = np.arange(len(chosen))
        has = where[row] >= 0
        own = mode[has] * len(chosen) + where[row[has]]
        least[has] = np.minimum(least[has], at.log_value[own] + (at.slopes[own] * (here[has] - at.y[own])).sum(-1))
        assert at.log_drawn is not None
        assert at.drawn_slopes is not None
        drawn = at.log_drawn[own] + (at.drawn_slopes[own] * (here[has] - at.y[own])).sum(-1)
        least_drawn[has] = np.minimum(least_drawn[has], drawn)
        nothing_again = at.log_drawn[none[row[has]] * len(chosen) + where[row[has]]]
        without[has] = np.minimum(without[has], nothing_again)
        at_place[has] = np.minimum(at_place[has], at.log_drawn[own])
    assert np.isfinite(least).all()
    assert np.all(step.log_value >= least - 1e-12)
    assert np.all(step.log_drawn >= least_drawn - 1e-12)
    again = np.broadcast_to(recompute.redo_rest, numbers.shape)[mode, row] > 0
    below, below_without = (np.median((there.log_drawn - at)[again & (place[row] == 0)]) for at in (at_place, without))
    assert below < (0.5 if count > 8 else 0.7) * below_without  # what is done again is drawn too
    assert np.all(step.peak_bytes >= need[mode, row] * (1 - 1e-12))
    assert numbers.min() < numbers.max()
