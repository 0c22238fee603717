"""Draws of prices and of constants, and what a choice loses under them (`codesign`): by parts, without a design."""

import dataclasses

import numpy as np
import pytest

from costmodel.formulas import Curves, PowerLaw
from costmodel.inputs import Plan
from costmodel.specs import anchored, load_cluster, load_curves
from experiments.codesign import robust
from optimize.hardware import solve_plans
from optimize.question import Job, Limits, design_problem
from tests.support.builders import small_decoder

TEMPLATE = load_cluster("h100")
CURVES = anchored(load_curves(), TEMPLATE)
PLANS = [Plan(data=8, tensor=2, sequence_parallel=True), Plan(data=16), Plan(data=4, tensor=4, sequence_parallel=True)]
CANDIDATES = [(16, plan) for plan in PLANS]


@pytest.fixture(scope="module")
def problem():
    job = Job(workload=small_decoder(batch=64), tokens=1e10)
    return design_problem(TEMPLATE, CURVES, jobs=(job,), limits=Limits(budget_usd=8e5, power_w=4e4))


RATES = ("flop_per_s", "hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")


def _amounts(curves):
    """What one of each costs or draws where the base has its reference."""
    laws = {f.name: getattr(curves, f.name) for f in dataclasses.fields(Curves)}
    at = {name: getattr(CURVES.base, name) for name in laws}
    return {n: law(at[n].reference) if isinstance(law, PowerLaw) else law for n, law in laws.items()}


def _bought(solution):
    """Sizes of the hardware that was solved for one plan."""
    return {name: float(getattr(solution.hardware(0), name)) for name in (*RATES, "hbm_bytes", "accelerators")}


def test_drawn_prices_lie_between_the_ends_and_reach_towards_both():
    drawn = _amounts(robust.drawn_curves(CURVES, 100, np.random.default_rng(0)))
    ends = [_amounts(getattr(CURVES, end)) for end in ("low", "base", "high")]
    for name, own in drawn.items():
        least, most = min(end[name] for end in ends), max(end[name] for end in ends)
        assert least * (1 - 1e-9) <= own.min() <= own.max() <= most * (1 + 1e-9), name
        if most > 1.2 * least > 0:
            assert own.max() > own.min() * (most / least) ** 0.5, name


def test_the_ends_are_the_ends():
    for name in _amounts(CURVES.base):
        law, base = robust.between(CURVES, name, np.array([-1.0, 0.0, 1.0])), getattr(CURVES.base, name)
        values = law(base.reference) if isinstance(law, PowerLaw) else law
        expected = [_amounts(getattr(CURVES, end))[name] for end in ("low", "base", "high")]
        np.testing.assert_allclose(values, expected, rtol=1e-12, err_msg=name)


def test_drawn_constants_scatter_around_the_fitted_ones():
    drawn = robust.drawn_stacks(TEMPLATE.stack, TEMPLATE.accelerator.name, 200, np.random.default_rng(0))
    for name in ("matmul_ceiling", "hbm_ceiling", "kernel_s"):
        moved = np.log(getattr(drawn, name) / getattr(TEMPLATE.stack, name))
        assert 1e-3 < moved.std() < 2
        assert abs(np.median(moved)) < 0.25 * moved.std()
    assert (drawn.matmul_ceiling < 1).all()
    assert drawn.software == TEMPLATE.stack.software


def test_all_draws_at_once_are_each_solved_alone(problem):
    """To any tolerance by cutting planes, which know nothing of arrays."""
    draws = 4
    many = robust.drawn(problem, CURVES, draws, np.random.default_rng(1))
    start = solve_plans(problem, (PLANS[0],))
    value, bound = robust.solved(many, CANDIDATES, start.logs[0][[0, 2, 3, 4]], draws)
    for number in range(draws):
        one = robust._one(many, number)
        alone = np.array([float(solve_plans(one, (plan,)).value[0]) for plan in PLANS])
        np.testing.assert_allclose(value[number], alone, rtol=robust.SAME)
        assert (bound[number] <= alone * (1 + 1e-9)).all()


def test_without_a_change_the_best_choice_loses_nothing(problem):
    alone = [float(solve_plans(problem, (plan,)).value[0]) for plan in PLANS]
    order = np.argsort(alone)
    candidates = [CANDIDATES[place] for place in order]
    unmoved = dataclasses.replace(CURVES, low=CURVES.base, high=CURVES.base)
    curves = robust.drawn_curves(unmoved, 2, np.random.default_rng(0))
    twice = dataclasses.replace(problem, curves=curves)
    found = robust.compared(twice, candidates, _bought(solve_plans(problem, (candidates[0][1],))), 2)
    assert found["wins"].tolist() == [0, 0]
    assert found["loss_of_plan"].tolist() == [0, 0]
    assert found["loss_of_cluster"].tolist() == [0, 0]
    assert found["unproved"] < robust.SAME
    np.testing.assert_allclose(found["days"] * 86400, min(alone), rtol=1e-4)
    worst = [candidates[-1], *candidates[:-1]]
    found = robust.compared(twice, worst, _bought(solve_plans(problem, (worst[0][1],))), 2)
    np.testing.assert_allclose(found["loss_of_plan"], max(alone) / min(alone) - 1, atol=2 * robust.SAME)
    assert (found["wins"] == 1).all()
