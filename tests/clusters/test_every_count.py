"""The bound of a design is about every count of accelerators that has a legal plan: none of them is forgotten."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.formulas.curves import Curves, PowerLaw
from costmodel.specs.loading import load_cluster, load_curves
from optimize.clusters import one_job
from optimize.clusters.descent import descend
from optimize.clusters.screening import tangents_of
from optimize.lattice.counts import legal_counts
from optimize.lattice.enumeration import lattice
from optimize.lattice.recompute_families import Families
from optimize.question.asked import design_problem
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from optimize.question.problem import Problem
from optimize.question.quantities import Job
from optimize.question.rates import RATES
from tests.support.builders import cluster, small_decoder, small_moe
from tests.support.small_workloads import small_dlrm

TEMPLATE = load_cluster("h100")
FIXED = {"schedule": "one_f_one_b", "context": 1, "zero_stage": 1, "data_shard": None, "recompute_share": 1.0}
OBJECTIVES = (Objective.time, Objective.cost, Objective.tokens_per_joule)
FIXED |= {"sequence_parallel": True}


@pytest.mark.parametrize(
    "workload",
    [small_decoder(layers=7, batch=36), small_moe(batch=12), small_dlrm()],
    ids=["dense", "experts", "tables"],
)
def test_no_count_with_a_plan_is_missing(workload):
    machine = cluster(8, domain=4)
    counts = legal_counts(workload, machine, {"domain": 4}, 60)
    for count in [1, 2, 3, *range(4, 61, 4)]:
        if len(lattice(workload, sized(machine, count), {"domain": 4})):
            assert count in counts, count
    assert counts.max() <= 60


def drawn(seed: int) -> Problem:
    """A small job; prices and bandwidths over four decades, by several objectives."""
    generator = np.random.default_rng(seed)
    curves = load_curves()
    laws = {f.name: getattr(curves.base, f.name) for f in dataclasses.fields(Curves)}
    dear = {
        name: dataclasses.replace(law, amount=law.amount * 10.0 ** generator.uniform(-2, 2))
        for name, law in laws.items()
        if isinstance(law, PowerLaw) and name.endswith("_usd")
    }
    curves = dataclasses.replace(curves, base=dataclasses.replace(curves.base, **dear))
    job = Job(workload=small_decoder(layers=int(generator.choice([6, 10, 15])), batch=60), tokens=1e9)
    asked = design_problem(TEMPLATE, curves, jobs=(job,), objective=OBJECTIVES[seed], fixed=FIXED)
    low, high = (dict(zip(RATES, ends, strict=True)) for ends in asked.rate_ends)
    for name in ("scale_up_bytes_per_s", "scale_out_bytes_per_s"):
        low[name] *= 10.0 ** generator.uniform(-4, 0)
    bounds = {name: (low[name], high[name]) for name in RATES} | {"hbm_bytes": asked.range_of("hbm_bytes")}
    middle = dataclasses.replace(asked, bounds=bounds)
    each = float(middle.money.usd(0.5 * (middle.ends[0] + middle.ends[1])))
    limits = Limits(budget_usd=each * generator.uniform(8, 60), accelerators=48)
    return dataclasses.replace(middle, limits=limits)


def best_on(problem: Problem, count: int, grid: np.ndarray) -> float:
    """The least value on one count: all plans at some hardware points within the limits."""
    families = Families(lattice(problem.job.workload, sized(problem.machine, count), {**FIXED, "domain": 8}, False))
    members, best = families.members(families.first(0, len(families)))[0], math.inf
    for member in members[:: max(1, len(members) // 10)]:
        points = families.lattice.points(np.array([member]), np.float64)
        found = tangents_of(problem.job.workload, problem.machine, points, grid)
        have = problem.money.left(problem.limits, np.full(len(grid), float(count)), found.peak_bytes)
        steps = 1.0 if problem.objective is Objective.step else problem.steps_on(problem.job, float(count))
        value = found.log_value + math.log(steps) + np.log(problem.money.price(grid, have))
        allowed = (problem.money.usd(grid) <= have.usd) & (found.peak_bytes <= problem.most_hbm_bytes)
        best = min(best, float(value[allowed].min(initial=math.inf)))
    return best + (0.0 if problem.fill else math.log(count))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_on_any_count_is_below_the_bound(seed, monkeypatch):
    problem = drawn(seed)
    monkeypatch.setattr(one_job, "descend", lambda problem, seed: descend(problem, seed, each=2, steps=4))
    monkeypatch.setattr(one_job, "warm_up", lambda problem: None)  # nothing here is large enough to be compiled
    found = one_job.search(problem, 600.0)
    assert found.others == ()
    axes = [np.linspace(a, b, 3) for a, b in zip(*problem.ends, strict=True)]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(RATES))
    assert found.best is not None
    best = min(best_on(problem, count, grid) for count in found.counts)
    assert found.log_bound <= min(best, found.best.log_value) + 1e-6
    assert found.best.log_value <= best + 1e-3
