"""Multipliers of money and power: every round is below all hardware within the limits, and few rounds are near it."""

import numpy as np
import pytest

from costmodel.specs.loading import load_cluster, load_curves
from optimize.hardware.tangents import _rounds, dual_bound, project
from optimize.question.asked import design_problem
from optimize.question.objective import Limits, Objective
from optimize.question.quantities import Job
from optimize.question.rates import Tangents
from optimize.question.worth import Worth, columns
from tests.support import often
from tests.support.builders import small_decoder

PLANS, PLACES = 400, 60


def drawn(limited: str, seed: int, objective: Objective = Objective.time):
    """A problem, what limits between the least and the most hardware leave, and tangents of any slopes."""
    generator = np.random.default_rng(seed)
    asked = {"jobs": (Job(workload=small_decoder(), tokens=1e9),), "limits": Limits(budget_usd=1e9)}
    problem = design_problem(load_cluster("h100"), load_curves(), objective=objective, **asked)
    (low, high), share = problem.ends, np.exp(generator.uniform(-4.0, 0.0, (2, PLANS)))
    left = [
        law(low) + share[i] * (law(high) - law(low)) for i, law in enumerate((problem.money.usd, problem.money.watt))
    ]
    usd, watt = (
        of if name in limited else np.full(PLANS, np.inf) for name, of in zip(("usd", "watt"), left, strict=True)
    )
    have = problem.money.left(problem.limits, np.ones(PLANS), np.zeros(PLANS))._replace(usd=usd, watt=watt)
    slopes = -generator.dirichlet(np.full(4, 0.3), PLANS) * (generator.random((PLANS, 4)) < 0.8)
    y, nothing = generator.uniform(low, high, (PLANS, 4)), np.zeros(PLANS)
    if not problem.money.priced:
        return problem, have, Tangents(nothing, slopes, y, nothing, nothing), generator
    busy = np.log(generator.uniform(0.3, 1.0, PLANS)), slopes * generator.uniform(0.0, 1.0, slopes.shape)
    return problem, have, problem.money.paid(Tangents(nothing, slopes, y, nothing, nothing, *busy), have), generator


@pytest.mark.parametrize("objective", [Objective.time, Objective.energy, Objective.cost])
@pytest.mark.parametrize("limited", ["usd", "watt", "usd and watt"])
@pytest.mark.parametrize("seed", range(often(1, 20)))
def test_no_hardware_within_the_limits_is_below_a_round(limited, seed, objective):
    problem, have, at, generator = drawn(limited, seed, objective)
    least, priced = np.full(PLANS, np.inf), problem.money.priced
    for _ in range(PLACES):
        y = project(problem, have, generator.uniform(*problem.ends, at.y.shape))
        value = Worth(problem.money, at, have)(columns(y)).log_value - at.log_value if priced else None
        least = np.minimum(least, (at.slopes * (y - at.y)).sum(-1) if value is None else value)
    for _, bound in _rounds(problem.money, have, at, problem.ends, priced):
        assert np.all(bound <= least + 1e-9)


@pytest.mark.parametrize("objective", [Objective.energy, Objective.cost])
@pytest.mark.parametrize("limited", ["usd", "watt", "usd and watt"])
def test_few_rounds_are_near_the_best_hardware_with_its_price(limited, objective):
    problem, have, at, _ = drawn(limited, 7, objective)
    bound, y = dual_bound(problem, have, at)
    met = Worth(problem.money, at, have)(columns(project(problem, have, y, fill=False))).log_value  # an answer
    assert np.all(bound <= met + 1e-9)
    assert np.median(met - bound) < 1e-3
    assert np.mean(met - bound < 0.02) > 0.9


@pytest.mark.parametrize("limited", ["usd", "watt", "usd and watt"])
def test_few_rounds_are_near_the_best_hardware(limited):
    problem, have, at, _ = drawn(limited, 7)
    bound, y = dual_bound(problem, have, at)
    met = (at.slopes * (project(problem, have, y) - at.y)).sum(-1)  # an answer
    assert np.all(bound <= met + 1e-9)
    assert np.median(met - bound) < 1e-4
    assert np.mean(met - bound < 0.01) > 0.95


def test_limits_that_leave_enough_for_all_hardware_have_no_price():
    problem, have, at, _ = drawn("usd and watt", 7)
    (_, high), plenty = problem.ends, np.full(PLANS, 1.01)
    bound, y = dual_bound(
        problem, have._replace(usd=plenty * problem.money.usd(high), watt=plenty * problem.money.watt(high)), at
    )
    np.testing.assert_allclose(bound, (at.slopes * (high - at.y)).sum(-1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(y[at.slopes < 0], np.broadcast_to(high, y.shape)[at.slopes < 0])
