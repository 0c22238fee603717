"""What would make a runner-up win does, and a little less does not; the simplest plan is simple and near the best."""

import importlib

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.measured import FITS, with_margin
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.diagnosis.sensitivity import read_leaf, with_leaves
from optimize.lattice.enumeration import lattice
from optimize.plans import exhaustive
from optimize.plans.find_in_lattice import find_in_lattice

WORKLOAD, MACHINE = load_workload("llama3-70b", batch=256), with_margin(load_cluster("h100", 256), FITS)
FIXED = {"context": 1, "recompute": "none"}

runner_ups = importlib.import_module("optimize.plans.runner_ups")


@pytest.fixture(scope="module")
def found():
    return find_in_lattice(WORKLOAD, MACHINE, fixed=FIXED)


def _seconds(plan, parameter, factor):
    changed = with_leaves(MACHINE, {parameter.path: factor * read_leaf(MACHINE, parameter.path)})
    return evaluate(WORKLOAD, changed, plan).step_s


def test_a_change_that_makes_a_runner_up_win(found):
    changes = [(each.plan, each.wins_with) for each in found.runner_ups if each.wins_with is not None]
    assert changes
    for plan, (parameter, factor) in changes:
        there = [_seconds(each, parameter, factor) for each in (plan, found.plan)]
        step = np.log(runner_ups.RANGE) / runner_ups._STEPS  # of the grid of factors that was tried, in logarithms
        nearer = np.exp(np.log(factor) - np.sign(np.log(factor)) * step)
        before = [_seconds(each, parameter, nearer) for each in (plan, found.plan)]
        assert there[0] <= there[1]
        assert before[0] > before[1]


def test_runner_ups_are_the_best_of_their_shape(found):
    whole = lattice(WORKLOAD, MACHINE, FIXED)
    exact, chosen = exhaustive.exactly(whole, np.arange(len(whole))), whole.columns(np.arange(len(whole)))
    fits = whole.needed(exact.peak_bytes, exact.second_bytes) <= 1
    for each in found.runner_ups:
        shape = (chosen["tensor"] == each.plan.tensor) & (chosen["pipeline"] == each.plan.pipeline)
        assert each.value == pytest.approx(exact.step_s[fits & shape].min(), rel=1e-5)
        assert each.behind == pytest.approx(each.value / found.value - 1, rel=1e-6)
    behind = [each.behind for each in found.runner_ups]
    assert behind == sorted(behind)
    assert len(behind) == 3
    assert (found.plan.tensor, found.plan.pipeline) not in {(r.plan.tensor, r.plan.pipeline) for r in found.runner_ups}


def test_the_simplest_plan_within_one_percent(found):
    whole = lattice(WORKLOAD, MACHINE, FIXED)
    indices = np.arange(len(whole))
    exact = exhaustive.exactly(whole, indices)
    near = (whole.needed(exact.peak_bytes, exact.second_bytes) <= 1) & (exact.step_s <= 1.01 * found.value)
    levels = exhaustive.level_of(exhaustive.Chunk(whole, indices))
    simplest = found.simplest or found.plans[0]
    chosen = next(i for i in indices[near] if whole.plan(int(i)) == simplest.plan)
    assert levels[chosen] == levels[near].min()
    assert simplest.step_s <= 1.01 * found.value
