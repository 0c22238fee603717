"""Evolution: what it finds is legal, worth what it says, and the same for the same seed."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.inputs.embedding import embed
from costmodel.specs.rules import violations
from optimize.clusters import one_job
from optimize.clusters.bounding import families_of
from optimize.clusters.evolution import evolve
from optimize.clusters.progress import Cell, Progress
from optimize.clusters.screening import tangents_of
from optimize.lattice.lattice import number_of
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from tests.clusters.test_joint import JOB, MODEL, TEMPLATE, problem


@pytest.mark.parametrize("objective", [Objective.time, Objective.cost])
def test_what_evolves_is_legal_and_worth_what_it_says(objective):
    limits = Limits(budget_usd=1.5e6, accelerators=32, deadline_s=None if objective is Objective.time else 5e6)
    asked = problem(objective=objective, limits=limits)
    (early, first), (found, evaluations) = evolve(asked, 0)
    assert first > 1000
    assert found[0].log_value <= early[0].log_value
    assert evaluations > 1000
    assert found
    for each in found[:4]:
        assert violations(each.plan, MODEL, sized(TEMPLATE, each.accelerators)) == ()
        points = embed(each.plan, MODEL, 8.0, asked.machine.stack.habits)
        at = tangents_of(MODEL, asked.machine, points, each.y[None], asked.loads)
        have = asked.money.left(limits, np.array([float(each.accelerators)]), at.peak_bytes)
        count = 0.0 if asked.fill else math.log(each.accelerators)
        steps = asked.steps_on(JOB, float(each.accelerators))
        whole = at if at.log_drawn is None else asked.money.whole(at, have)
        value = whole.log_value + math.log(steps) + count
        assert each.log_value == pytest.approx(float(value[0]), rel=1e-9)
        assert asked.money.usd(each.y) <= have.usd[0] * (1 + 1e-9)
        if limits.deadline_s is not None:
            assert math.exp(at.log_value[0]) * steps <= limits.deadline_s * (1 + 1e-9)
    *_, (again, _) = evolve(asked, 0)
    assert [(each.log_value, each.plan) for each in again] == [(each.log_value, each.plan) for each in found]


def test_the_search_starts_from_it():
    """On the count where evolution first stops, the same plan has a number in the lattice, and is offered."""
    (found, _), *_ = evolve(problem(), 0)
    whole = families_of(Cell(problem(), found[0].accelerators)).lattice
    number = number_of(whole, found[0].plan)
    assert number is not None
    assert whole.plan(number) == found[0].plan
    assert number_of(whole, dataclasses.replace(found[0].plan, microbatch=7)) is None
    progress = Progress(problem())
    one_job.offer_evolved(progress, one_job.cells(problem()), 0)
    assert progress.best is not None
    assert progress.best.log_value <= found[0].log_value + 1e-6
