"""Draws of prices and of constants, and what a choice loses under them (`codesign`): by parts, without a design."""

import dataclasses

import numpy as np
import pytest

from costmodel.formulas import Curves, PowerLaw
from costmodel.inputs import Plan
from costmodel.measured import drawn_stack
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


def _amounts(curves):
    """What one of each costs or draws where the base has its reference."""
    laws = {f.name: getattr(curves, f.name) for f in dataclasses.fields(Curves)}
    at = {name: getattr(CURVES.base, name) for name in laws}
    return {n: law(at[n].reference) if isinstance(law, PowerLaw) else law for n, law in laws.items()}


def test_drawn_prices_lie_between_the_ends_and_reach_towards_both():
    generator = np.random.default_rng(0)
    drawn = [_amounts(robust.drawn_curves(CURVES, generator)) for _ in range(100)]
    ends = [_amounts(getattr(CURVES, end)) for end in ("low", "base", "high")]
    for name in drawn[0]:
        own, known = [each[name] for each in drawn], [end[name] for end in ends]
        assert min(known) * (1 - 1e-9) <= min(own) <= max(own) <= max(known) * (1 + 1e-9), name
        if max(known) > 1.2 * min(known) > 0:
            assert max(own) > min(own) * (max(known) / min(known)) ** 0.5, name


def test_the_ends_are_the_ends():
    for place, end in ((-1.0, "low"), (0.0, "base"), (1.0, "high")):
        for name, value in _amounts(getattr(CURVES, end)).items():
            law = robust._between(CURVES, name, place)
            base = getattr(CURVES.base, name)
            assert (law(base.reference) if isinstance(law, PowerLaw) else law) == pytest.approx(value), name


def test_drawn_constants_scatter_around_the_fitted_ones():
    generator = np.random.default_rng(0)
    drawn = [drawn_stack(TEMPLATE.stack, TEMPLATE.accelerator.name, generator) for _ in range(200)]
    for name, allowed in (("matmul_ceiling", 0.1), ("hbm_ceiling", 0.15), ("kernel_s", 1.0)):
        values, fitted = np.array([getattr(each, name) for each in drawn]), getattr(TEMPLATE.stack, name)
        assert np.std(np.log(values)) > 1e-3
        assert abs(np.median(np.log(values / fitted))) < allowed * np.std(np.log(values)) + 0.05
        if name != "kernel_s":
            assert (values < 1).all()
    assert {each.software for each in drawn} == {TEMPLATE.stack.software}


def test_the_best_of_a_draw_is_that_of_solving_each(problem):
    generator = np.random.default_rng(1)
    for _ in range(3):
        other = robust.drawn(problem, CURVES, generator)
        alone = [float(solve_plans(other, (plan,)).value[0]) for _, plan in CANDIDATES]
        value, wins = robust._best(other, CANDIDATES, alone[0])
        assert value == pytest.approx(min(alone), rel=2 * robust.SAME)
        assert alone[wins] == pytest.approx(min(alone), rel=2 * robust.SAME)


def test_without_a_change_the_best_choice_loses_nothing(problem):
    alone = [float(solve_plans(problem, (plan,)).value[0]) for _, plan in CANDIDATES]
    order = np.argsort(alone)
    candidates = [CANDIDATES[place] for place in order]
    choice = solve_plans(problem, (candidates[0][1],)).hardware(0)
    row = robust._row(problem, candidates, choice)
    assert row["wins"] == 0
    assert row["loss_of_plan"] == 0
    assert row["loss_of_cluster"] == pytest.approx(0, abs=2e-3)
    assert row["usd"] <= 8e5 * (1 + 1e-6)
    worst = [candidates[-1], *candidates[:-1]]
    assert robust._row(problem, worst, solve_plans(problem, (worst[0][1],)).hardware(0))[
        "loss_of_plan"
    ] == pytest.approx(max(alone) / min(alone) - 1, abs=3e-3)
