"""All pairs of shape and batch together: bounds of rows against every plan, and the best pair against brute force."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.specs import anchored, load_cluster, load_curves, load_workload
from optimize.clusters import cells, families_of
from optimize.clusters.bounding import row_codes
from optimize.clusters.screening import tangents_of
from optimize.hardware import project, solve_hardware
from optimize.question import Job, Limits, Objective, design_problem
from optimize.targets import bound, joint, row_bounds

TEMPLATE = load_cluster("h100")
CURVES = anchored(load_curves(), TEMPLATE)
FIXED = {"schedule": "one_f_one_b", "context": 1, "sequence_parallel": True, "data_shard": None}


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Few plans: sooner without the program of large batches."""
    monkeypatch.setattr(row_bounds, "screen", lambda w, m, points, y: tangents_of(w, m, _doubles(points, len(y)), y))
    monkeypatch.setattr(joint, "warm_up", lambda problem: None)


def _doubles(points, length):
    from costmodel import map_leaves

    return map_leaves(lambda leaf: np.broadcast_to(np.asarray(leaf, float), (length,)), points)


def ask(objective=Objective.time, batch=16, tokens=1e9, fixed=None, **limits):
    job = Job(workload=load_workload("llama3-8b", sequence=2048, batch=batch), tokens=tokens)
    own = Limits(**({"budget_usd": 6e5} | limits))
    return design_problem(TEMPLATE, CURVES, jobs=(job,), limits=own, objective=objective, fixed=fixed or FIXED)


def somewhere(problem, count, peak, seed):
    """Rates within the limits for plans that need so many bytes."""
    low, high = problem.ends
    y = low + (high - low) * np.random.default_rng(seed).random((len(peak), 4))
    have = problem.money.left(problem.limits, np.full(len(peak), float(count)), peak)
    return have, project(problem, have, y, problem.fill)


@pytest.mark.parametrize("objective", [Objective.time, Objective.cost, Objective.carbon])
@pytest.mark.parametrize("fixed", [FIXED, {"schedule": {"interleaved", "zb_v"}, "tensor": 2, "microbatch": 1}])
def test_no_plan_is_below_the_bound_of_its_rows(objective, fixed):
    problem = ask(objective, fixed=fixed)
    every = cells(problem)
    place = 0.5 * (problem.ends[0] + problem.ends[1])
    found, dismissed, _ = row_bounds.open_cells(problem, every, place, math.inf)
    assert dismissed == math.inf
    bounds = {cell.accelerators: (least, cell) for least, cell in found}
    looked_at = 0
    for cell in every[::2]:
        families = families_of(cell)
        members, _ = families.members(families.first(0, len(families)))
        members = members[:: max(1, len(members) // 40)]
        if not len(members):
            continue
        least, own = bounds.get(cell.accelerators, (math.inf, dataclasses.replace(cell, rows=np.zeros(0))))
        points = families.lattice.points(members, np.float64)
        middle = np.broadcast_to(place, (len(members), 4))
        peak = tangents_of(problem.job.workload, problem.machine, points, middle).peak_bytes
        missing = ~np.isin(row_codes(families.lattice.columns(members)), own.rows)
        for seed in range(3):
            have, y = somewhere(problem, cell.accelerators, peak, seed)
            at = cell.tangents(tangents_of(problem.job.workload, problem.machine, points, y))
            built = (have.usd >= problem.money.usd(y)) & (peak <= problem.most_hbm_bytes)
            value = np.where(built, cell.log_value(have, at), np.inf)
            assert not (built & missing).any()  # what no row is listed for cannot be bought
            looked_at += int(built.sum())
            assert least <= value.min() + 1e-9
    assert looked_at > 100


def test_what_may_be_best_is_left_and_the_rest_is_dismissed_with_its_bound():
    problem = ask()
    every, place = cells(problem), 0.5 * (problem.ends[0] + problem.ends[1])
    whole, _, _ = row_bounds.open_cells(problem, every, place, math.inf)
    cut = whole[len(whole) // 2][0] + 1e-9
    found, dismissed, _ = row_bounds.open_cells(problem, every, place, cut)
    assert 0 < len(found) < len(whole)
    assert all(least < cut for least, _ in found)
    assert dismissed >= cut
    rows = {cell.accelerators: set(cell.rows) for _, cell in whole}
    assert all(set(cell.rows) <= rows[cell.accelerators] for _, cell in found)


def brute(problem):
    """The least value of all plans, each on its own best hardware, proved within a thousandth."""
    values = []
    for cell in cells(problem):
        families = families_of(cell)
        members, _ = families.members(families.first(0, len(families)))
        if len(members):
            solved = solve_hardware(
                problem, families.lattice.points(members, np.float64), cutoff=min([*values, np.inf])
            )
            values.append(float(solved.value.min()))
    return min(values)


NARROW = FIXED | {"zero_stage": {1, 3}, "tensor": 8, "recompute": {"none", "full"}, "recompute_share": 1.0}


@pytest.mark.parametrize("objective", [Objective.time, Objective.cost])
def test_the_best_pair_is_that_of_brute_force(objective):
    """The bound is below every pair's best plan on its best hardware, and the answer within the gap of it."""
    sizes = ((16, 1.3e9), (8, 1e9), (32, 1e10))
    problems = [ask(objective, batch, tokens, NARROW, budget_usd=4e5) for batch, tokens in sizes]
    best, known = joint.search_pairs(problems, [bound(p) for p in problems], 60.0)
    true = [brute(problem) for problem in problems]
    assert best is not None
    for one, value in zip(known, true, strict=True):
        assert math.exp(one.log_bound) <= value * (1 + 1e-9)
    answer = joint.over_all(known, best)
    assert answer.best is not None
    assert math.exp(answer.log_bound) <= min(true) * (1 + 1e-9)
    assert math.exp(answer.best.log_value) == pytest.approx(min(true), rel=2e-3)
    assert answer.best.log_value - answer.log_bound < 1e-3
    assert answer.over == "each of 3 pairs of shape and batch, "


def test_time_that_is_up_leaves_a_bound_that_is_true():
    problems = [dataclasses.replace(ask(batch=batch)) for batch in (8, 16)]
    products = [bound(problem) for problem in problems]
    best, known = joint.search_pairs(problems, products, 0.0)
    assert best is None
    assert [one.log_bound for one in known] == products
