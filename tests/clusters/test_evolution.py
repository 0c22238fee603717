"""Evolution: what it finds is legal, worth what it says, and the same for the same seed."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from costmodel.inputs.embedding import embed
from costmodel.specs.rules import violations
from experiments.search_quality.suite import draw, problem_of
from optimize.clusters import evolution, one_job, rows
from optimize.clusters.bounding import families_of
from optimize.clusters.counts import cells, rows_of
from optimize.clusters.evolution import FirstAnswers
from optimize.clusters.genes import ANEW, Genes, children
from optimize.clusters.progress import Cell, Progress
from optimize.clusters.rows import open_counts
from optimize.clusters.screening import tangents_of
from optimize.lattice.lattice import number_of
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from optimize.question.worth import whole
from tests.clusters.test_joint import JOB, MODEL, TEMPLATE, problem

TAKEN = ("tensor", "context", "pipeline", "data", "expert", "expert_tensor", "microbatch")


def evolved(asked):
    """Some generations, the best plans of them, and what was told on the way."""
    told = []
    first = FirstAnswers(asked, 0, told.append)
    first.run(2000)
    first.run(3000)
    return first, [first.values.found(found, place) for found, place in first.kept()], told


@pytest.mark.parametrize("objective", [Objective.time, Objective.cost])
def test_what_evolves_is_legal_and_worth_what_it_says(objective):
    limits = Limits(budget_usd=1.5e6, accelerators=32, deadline_s=None if objective is Objective.time else 5e6)
    asked = problem(objective=objective, limits=limits)
    first, found, told = evolved(asked)
    assert first.values.evaluations > 4000
    assert len(found) > 4
    assert found[0].log_value == told[-1].log_value == min(each.log_value for each in found)
    for each in found[:4]:
        assert violations(each.plans[0], MODEL, sized(TEMPLATE, each.accelerators)) == ()
        points = embed(each.plans[0], MODEL, 8.0, asked.machine.stack.habits)
        at = tangents_of(MODEL, asked.machine, points, each.y[None], asked.loads)
        have = asked.money.left(limits, np.array([float(each.accelerators)]), at.peak_bytes)
        count = 0.0 if asked.fill else math.log(each.accelerators)
        steps = asked.steps_on(JOB, float(each.accelerators))
        own = at if at.log_drawn is None else whole(asked.money, at, have)
        value = own.log_value + math.log(steps) + count
        assert each.log_value == pytest.approx(float(value[0]), rel=1e-9)
        assert asked.money.usd(each.y) <= have.usd[0] * (1 + 1e-9)
        if limits.deadline_s is not None:
            assert math.exp(at.log_value[0]) * steps <= limits.deadline_s * (1 + 1e-9)
    _, again, _ = evolved(asked)
    assert [(each.log_value, each.plans) for each in again] == [(each.log_value, each.plans) for each in found]


def test_only_rows_that_take_part_are_found():
    every = rows_of(problem())
    chosen = np.arange(len(every["tensor"]))[::7]
    rows = {name: column[chosen] for name, column in every.items()}
    own = set(zip(*(rows[name].tolist() for name in ("accelerators", *TAKEN)), strict=True))
    first = FirstAnswers(problem(), 0, lambda _: None, rows)
    first.run(3000)
    found = [first.values.found(found, place) for found, place in first.kept()]
    assert len(found) > 1
    for each in found:
        (plan,) = each.plans
        assert (each.accelerators, *(getattr(plan, name) for name in TAKEN)) in own
        assert violations(plan, MODEL, sized(TEMPLATE, each.accelerators)) == ()


def test_some_children_have_all_degrees_of_one_job_anew():
    genes, draw = Genes(problem()), np.random.default_rng(0)
    (own,) = genes.degrees
    parents = np.full((4000, len(genes)), 0.5)
    born = children(parents, parents, draw, genes.degrees)
    anew = np.all(born[:, own] != 0.5, axis=1) & np.all(np.delete(born, np.r_[own], axis=1) == 0.5, axis=1)
    assert np.mean(anew) == pytest.approx(ANEW, abs=0.03)
    _, y, plans = genes.decode(born[anew])
    assert np.ptp(y, axis=0).max() == 0
    assert len(np.unique(plans[0])) > 4


def test_evolution_goes_on_over_what_is_open(monkeypatch):
    """Once after the rows are bounded, and again only where the answer has become better by more than the tolerance."""
    offer, runs = one_job.offer_evolved, []

    def watched(progress, seed, evaluations, rows=None, after=None):
        runs.append((seed, rows, math.inf if progress.best is None else progress.best.log_value))
        offer(progress, seed, evaluations, rows, after)

    monkeypatch.setattr(one_job, "EVOLVED", 1000)
    monkeypatch.setattr(one_job, "offer_evolved", watched)
    found = one_job.search(problem(), 60.0)
    assert found.best is not None
    (_, every, _), *later = runs
    assert every is None
    assert later
    assert all(len(rows["tensor"]) for _, rows, _ in later)
    assert len({seed for seed, _, _ in runs}) == len(runs)
    values = [value for _, _, value in later]
    assert all(after < before - found.tolerance for before, after in itertools.pairwise(values))


def test_where_memory_dismisses_all_rows_nothing_is_open(monkeypatch):
    """And nothing evolves over it: every row is bounded first without the memory of its modes, then with it."""
    monkeypatch.setattr(rows, "_with_memory", lambda _, part, __: iter([part.keep(np.zeros(0, int))]))
    asked = problem(objective=Objective.energy, limits=Limits(accelerators=16))
    progress = Progress(asked, tolerance=1e-9)
    progress.unseen = one_job.by_count(cells(asked))
    one_job.offer_evolved(progress, 0, 500)
    open_counts(progress, rows_of(asked))
    assert progress.open == []
    assert one_job.search(asked, 60.0).open == []


def test_the_search_starts_from_it():
    """On the count where evolution first stops, the same plan has a number in the lattice, and is offered."""
    _, found, _ = evolved(problem())
    whole, (plan,) = families_of(Cell(problem(), found[0].accelerators)).lattice, found[0].plans
    number = number_of(whole, plan)
    assert number is not None
    assert whole.plan(number) == plan
    assert number_of(whole, dataclasses.replace(plan, microbatch=7)) is None
    progress = Progress(problem())
    one_job.offer_evolved(progress, 0, 5000)
    assert progress.best is not None
    assert progress.best.log_value <= found[0].log_value + 1e-6


def test_where_bounds_near_their_own_rates_dismiss_all_rows_nothing_is_open(monkeypatch):
    monkeypatch.setattr(one_job, "EVOLVED", 3000)
    found = one_job.search(problem_of(draw(0, ("joint",), 3)[2]).problem, 600.0, tolerance=0.4)
    assert found.finished
    assert found.best is not None
    assert found.best.log_value - 0.4 - 1e-9 <= found.log_bound <= found.best.log_value


def test_what_is_kept_stays_though_little_is_remembered(monkeypatch):
    """A long evolution forgets plans that the best are beyond."""
    asked = problem(objective=Objective.time, limits=Limits(budget_usd=1.5e6, accelerators=32))
    _, every, _ = evolved(asked)
    monkeypatch.setattr(evolution, "KEPT", 5)
    monkeypatch.setattr(evolution, "REMEMBERED", 9)
    first, found, _ = evolved(asked)
    assert [each.log_value for each in found] == [each.log_value for each in every[:5]]
    assert len(first.known) <= 9
