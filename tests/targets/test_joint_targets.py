"""All pairs of shape and batch together: the best pair and the bound over all of them against brute force."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.specs import anchored, load_cluster, load_curves, load_workload
from optimize.clusters import cells
from optimize.clusters.bounding import families_of
from optimize.hardware import solve_hardware
from optimize.question import Job, Limits, Objective, design_problem
from optimize.targets import bound, joint

TEMPLATE = load_cluster("h100")
CURVES = anchored(load_curves(), TEMPLATE)
FIXED = {"schedule": "one_f_one_b", "context": 1, "sequence_parallel": True, "data_shard": None}


def ask(objective=Objective.time, batch=16, tokens=1e9, fixed=None, **limits):
    job = Job(workload=load_workload("llama3-8b", sequence=2048, batch=batch), tokens=tokens)
    own = Limits(**({"budget_usd": 6e5} | limits))
    return design_problem(TEMPLATE, CURVES, jobs=(job,), limits=own, objective=objective, fixed=fixed or FIXED)


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
