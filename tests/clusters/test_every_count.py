"""The bound of a design is about every count of accelerators that has a legal plan: none of them is forgotten."""

import dataclasses
import functools
import math

import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas.busy import timed
from costmodel.formulas.cost import cost
from costmodel.formulas.counts import counts
from costmodel.formulas.curves import Curves, PowerLaw, hardware_of, with_hardware
from costmodel.pytree import as_floats
from costmodel.specs.loading import load_cluster, load_curves
from optimize.clusters import bounding, one_job, rows
from optimize.clusters.counts import cells, rows_of
from optimize.clusters.descent import descend
from optimize.hardware.tangents import project
from optimize.lattice.counts import legal_counts
from optimize.lattice.enumeration import lattice
from optimize.lattice.lattice import Lattice
from optimize.question.asked import design_problem
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from optimize.question.problem import Problem
from optimize.question.quantities import Job
from optimize.question.rates import RATES, money
from tests.support import often
from tests.support.builders import cluster, small_decoder, small_moe
from tests.support.small_workloads import small_dlrm, small_encoder_decoder, small_swin

TEMPLATE = load_cluster("h100")
FIXED = {"schedule": "one_f_one_b", "context": 1, "zero_stage": 1, "data_shard": None, "recompute_share": 1.0}
MORE = (
    {},
    {"zero_stage": {0, 1}, "schedule": {"one_f_one_b", "zb_h1"}, "recompute_share": None, "microbatch": 1},
    {"zero_stage": {1, 3}, "context": {1, 2}, "microbatch": 1},
    {"zero_stage": {2, 3}, "schedule": {"one_f_one_b", "interleaved", "dualpipe", "zb_v"}, "microbatch": {1, 2}},
)
"""What else is searched, by seed."""
MOST = 32  # accelerators
JOBS = (
    lambda batch: small_decoder(layers=10, batch=batch),
    lambda batch: small_moe(batch=batch),
    lambda batch: small_decoder(layers=7, batch=3 * batch),
    lambda batch: dataclasses.replace(small_encoder_decoder(), batch=batch),
    lambda batch: dataclasses.replace(small_swin(), batch=batch),
)
NUMPY = Exact(np)


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
    """A small job of some family; prices and bandwidths over four decades, by every objective, any limits."""
    generator = np.random.default_rng(seed)
    curves = load_curves()
    laws = {f.name: getattr(curves.base, f.name) for f in dataclasses.fields(Curves)}
    dear = {
        name: dataclasses.replace(law, amount=law.amount * 10.0 ** generator.uniform(-2, 2))
        for name, law in laws.items()
        if isinstance(law, PowerLaw) and name.endswith("_usd")
    }
    curves = dataclasses.replace(curves, base=dataclasses.replace(curves.base, **dear))
    small = JOBS[seed // len(Objective) % len(JOBS)](int(generator.choice([12, 16, 24])))
    objective, jobs = list(Objective)[seed % len(Objective)], (Job(workload=small, tokens=1e9),)
    fixed = {name: own for name, own in {**FIXED, **MORE[seed % len(MORE)]}.items() if own is not None}
    asked = design_problem(TEMPLATE, curves, jobs=jobs, objective=objective, fixed=fixed)
    low, high = (dict(zip(RATES, ends, strict=True)) for ends in asked.rate_ends)
    for name in ("scale_up_bytes_per_s", "scale_out_bytes_per_s"):
        low[name] *= 10.0 ** generator.uniform(-4, 0)
    bounds = {name: (low[name], high[name]) for name in RATES} | {"hbm_bytes": asked.range_of("hbm_bytes")}
    middle = dataclasses.replace(asked, bounds=bounds)
    each = float(middle.money.usd(0.5 * (middle.ends[0] + middle.ends[1])))
    budget_usd = each * generator.uniform(8, 60) if asked.fill or generator.random() < 0.7 else None
    limits = Limits(budget_usd=budget_usd, accelerators=MOST)
    return dataclasses.replace(middle, limits=limits)


def best_on(problem: Problem, count: int, generator: np.random.Generator) -> float:
    """The least value that is met on one count: many plans on some hardware, the best of them on more."""
    whole = lattice(problem.job.workload, sized(problem.machine, count), {**problem.fixed, "domain": 8}, False)
    if not len(whole):
        return math.inf
    best, chosen = math.inf, generator.choice(len(whole), min(len(whole), 200), replace=False)
    for places in (6, 150):
        values, grams = _values(problem, whole, np.repeat(chosen, places), generator)
        most = math.inf if problem.limits.carbon_g is None else problem.limits.carbon_g
        values = np.where(grams <= most, values, np.inf).reshape(len(chosen), places).min(1)
        best = min(best, float(values.min(initial=math.inf)))
        chosen = chosen[np.argsort(values)[:8]]
    return best


def limited(problem: Problem, generator: np.random.Generator) -> Problem:
    """The same within the CO2 of a good answer, or somewhat less or more."""
    whole = lattice(problem.job.workload, sized(problem.machine, 16), {**problem.fixed, "domain": 8}, False)
    values, grams = _values(problem, whole, generator.choice(len(whole), 3000), generator)
    carbon_g = float(grams[values.argmin()] * generator.uniform(0.8, 1.1))
    return dataclasses.replace(problem, limits=dataclasses.replace(problem.limits, carbon_g=carbon_g))


def _values(
    problem: Problem, whole: Lattice, plans: np.ndarray, generator: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of the minimised value of each plan on random hardware within the limits, infinite beyond them, and
    grams of CO2 of all steps."""
    points, (low, high), accelerators = whole.points(plans, np.float64), problem.ends, whole.cluster.accelerators
    workload, y = as_floats(problem.job.workload), generator.uniform(low, high, (len(plans), len(RATES)))
    y = np.where(generator.random(y.shape) < 0.15, low, y)
    peak = np.broadcast_to(cost(workload, problem.machine, points, NUMPY).peak_bytes, len(plans))
    have = problem.money.left(problem.limits, np.full(len(plans), float(accelerators)), peak)
    y = project(problem, have, y, fill=problem.spends_all)
    rates = dict(zip(RATES, np.exp(y).T, strict=True))
    machine = with_hardware(problem.machine, dataclasses.replace(hardware_of(problem.machine), **rates))
    steps = 1.0 if problem.objective is Objective.step else problem.steps_on(problem.job, float(accelerators))
    second, drawn = problem.money.seconds(y, have)
    assert problem.template.prices is not None
    loads = as_floats(problem.template.prices.base).loads
    emitted = money(problem.template, problem.curves, Objective.carbon).seconds(y, have)
    step_s, drawn_s = timed(counts(workload, points, NUMPY), points, machine, loads, NUMPY)
    value = np.log(steps * (second * step_s + drawn * drawn_s))
    allowed = (problem.money.usd(y) <= have.usd) & (problem.money.watt(y) <= have.watt)
    value = value + (0.0 if problem.fill else math.log(accelerators))
    grams = accelerators * problem.steps_on(problem.job, float(accelerators))
    grams = grams * (emitted[0] * step_s + emitted[1] * drawn_s)
    return np.where(allowed & (peak <= problem.most_hbm_bytes), value, np.inf), grams


@pytest.mark.parametrize("seed", range(often(3, 500)))
def test_nothing_on_any_count_is_below_the_bound(seed, monkeypatch):
    _check(drawn(seed), np.random.default_rng(seed), monkeypatch)


@pytest.mark.parametrize("seed", range(often(2, 70)))
def test_nor_within_a_limit_of_co2(seed, monkeypatch):
    generator = np.random.default_rng(seed)
    _check(limited(drawn(seed), generator), generator, monkeypatch)


def _little_is_known_before(monkeypatch):
    monkeypatch.setattr(one_job, "descend", lambda problem, seed: descend(problem, seed, each=2, steps=4))
    monkeypatch.setattr(one_job, "EVOLVED", 1500)


def _check(problem, generator, monkeypatch):
    _little_is_known_before(monkeypatch)
    found = one_job.search(problem, 600.0)
    assert found.others == ()
    best = min(best_on(problem, count, generator) for count in (1, 2, 4, *range(8, MOST + 1, 8)))
    assert found.log_bound <= best + 1e-6
    if found.best is None:
        assert math.isinf(best)
    else:
        assert found.log_bound <= found.best.log_value <= best + 1e-3


@pytest.mark.parametrize("nothing", [np.nan, -np.inf])
def test_a_bound_that_says_nothing_dismisses_nothing(nothing, monkeypatch):
    """Of every second row, run and plan: the answer is that of all of them, and nothing is below the bound."""
    asked = drawn(2)
    problem = dataclasses.replace(asked, limits=dataclasses.replace(asked.limits, accelerators=8))
    _little_is_known_before(monkeypatch)
    usual = one_job.search(problem, 600.0)
    assert usual.best is not None

    def some(cell, have, at, *cut):
        value, y = rows_bound(cell, have, at, *cut)
        value[::2] = nothing
        return value, y

    rows_bound = rows.bound_of
    for module in (rows, bounding):
        monkeypatch.setattr(module, "bound_of", some)
    monkeypatch.setattr(one_job, "EVOLVED", 0)
    found = one_job.search(problem, 600.0)
    assert found.best is not None
    assert found.best.log_value == pytest.approx(usual.best.log_value, abs=1e-3)
    assert found.log_bound <= usual.best.log_value


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_nor_do_bounds_of_modes_that_say_nothing(seed, monkeypatch):
    """As many runs of rows are left as where the bound of each is minus infinity."""
    progress, left = one_job.Progress(drawn(seed)), []
    progress.unseen = one_job.by_count(cells(progress.problem))
    rows.open_counts(progress, rows_of(progress.problem))
    with_needs = {name: getattr(rows, name) for name in ("bound_of", "priced_bound")}
    for nothing in (-np.inf, np.nan):

        def says(bound, *asked, of=nothing, **more):
            value, y = bound(*asked, **more)
            return np.full_like(value, of), y

        for name, bound in with_needs.items():
            monkeypatch.setattr(rows, name, functools.partial(says, bound))
        left.append([len(rows.runs_of(progress, part).indices) for part in progress.open])
    assert left[0] == left[1]
    assert sum(left[0]) > 100
