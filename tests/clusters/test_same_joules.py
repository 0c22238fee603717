"""One physics of energy: what plans are compared by, what designs minimise and what `explain` tells are the same."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel import Exact, evaluate
from costmodel.formulas.curves import hardware_of
from costmodel.inputs.embedding import embed
from costmodel.specs.curves import priced
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster, load_curves
from optimize.clusters.real_parts import PartsProgress, search_parts, within_limits
from optimize.hardware.model import HardwareModel
from optimize.hardware.solving import stack
from optimize.lattice.enumeration import lattice
from optimize.lattice.lattice import Chunk
from optimize.lattice.recompute_families import Families
from optimize.plans import exhaustive
from optimize.plans.evaluation import _least_of_runs
from optimize.plans.plan_values import plan_value
from optimize.plans.row_bounds import flop_bound_s, in_order_of_bounds
from optimize.question.asked import design_problem
from optimize.question.clusters import failing, second_of, sized
from optimize.question.objective import Limits, Objective
from optimize.question.quantities import Job
from optimize.question.rates import RATES
from optimize.status import CommandError
from tests.support.builders import small_decoder, small_moe

MODEL = small_decoder(layers=4, batch=24)
H100, TOKENS = load_cluster("h100", accelerators=16), 1e9
KEYS = ("energy_j", "cost_usd", "carbon_g")
CASES = ("low", "base", "high")
FEW = {"schedule": "one_f_one_b", "context": 1, "zero_stage": 1, "microbatch": {1, 2}, "recompute": {"none", "full"}}
FEW |= {"recompute_share": 1.0, "tensor": {1, 2}, "data_shard": None}


def told(cluster, plan):
    """Of all tokens, by `explain`."""
    found = evaluate(MODEL, cluster, plan)
    assert found.economics is not None
    case = found.economics.base
    steps = TOKENS / (MODEL.batch * MODEL.sequence)
    each = {"energy_j": case.joule_per_step, "cost_usd": case.usd_per_step, "carbon_g": case.carbon_g}
    return {name: float(np.asarray(value, float)) * steps for name, value in each.items()}


@pytest.mark.parametrize("key", KEYS)
def test_plans_are_compared_by_what_explain_tells(key):
    whole = in_order_of_bounds(lattice(MODEL, H100, {"context": 1}))
    value = plan_value(key, MODEL, H100, [8], TOKENS)
    indices = np.arange(0, len(whole), max(1, len(whole) // 300))
    chunk = Chunk(whole, indices)
    cost = exhaustive.exactly(whole, indices)
    values = value(chunk, cost)
    for place in range(0, len(indices), 31):
        plan = whole.plan(int(indices[place]))
        np.testing.assert_allclose(values[place], told(H100, plan)[key], rtol=1e-9)
        np.testing.assert_allclose(value.of_plan(MODEL, H100, plan), values[place], rtol=1e-12)
    products_s = flop_bound_s(whole)
    least = np.array([value.least(float(step_s), products_s) for step_s in cost.step_s])
    assert (least <= values).all()
    assert (least / values).max() > 0.6
    row = np.searchsorted(whole.ends, indices, side="right")
    fits = whole.needed(cost.peak_bytes, cost.second_bytes) <= 1
    assert whole.floor_s is not None
    assert all(
        value.least(float(whole.floor_s[r]), products_s) <= v for r, v in zip(row[fits], values[fits], strict=True)
    )


@pytest.mark.parametrize("key", KEYS)
def test_no_plan_is_below_the_bound_of_its_family(key):
    """Whatever it recomputes and offloads."""
    whole = lattice(MODEL, H100, {"context": 1, "expert": 1})
    value, families = plan_value(key, MODEL, H100, [8], TOKENS), Families(whole)
    every = families.of_every_schedule(families.of_any_schedule(np.arange(len(whole.ends)))[0])
    first = every[:: max(1, len(every) // 150)]
    least = value.least_of_points(whole.workload, H100, families.points(first, np.float64))
    plans, family = families.members(first)
    values = value.of_points(whole.workload, H100, whole.points(plans, np.float64))
    assert (least[family] <= values * (1 + 1e-12)).all()
    assert (least[family] / values).max() > 0.98
    for place in range(0, len(first), 7):
        plan = whole.plan(int(first[place]))
        for changed in (
            {"recompute": "full", "recompute_share": 1.0},
            {"recompute": "norms", "recompute_share": 1.0},
            {"recompute": "none", "offload_optimizer": 1.0},
            {"recompute": "none", "offload_weights": 1.0, "offload_activations": 1.0, "zero_stage": plan.zero_stage},
        ):
            other = dataclasses.replace(plan, **changed)
            assert least[place] <= value.of_plan(MODEL, H100, other) * (1 + 1e-12), other


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("workload", [MODEL, small_moe(batch=32)], ids=["dense", "experts"])
def test_no_plan_is_below_the_bound_of_those_that_differ_in_the_schedule(key, workload):
    """Nor one that computes something again."""
    whole = lattice(workload, H100, {"zero_stage": frozenset({0, 1, 3}), "recompute_share": 1.0})
    value, families = plan_value(key, workload, H100, [8], TOKENS), Families(whole)
    runs = families.of_any_schedule(np.arange(len(whole.ends)))[0]
    runs = np.random.default_rng(0).choice(runs, min(len(runs), 400), replace=False)
    first = families.of_every_schedule(runs)
    plans, family = families.members(first)
    run = np.repeat(np.arange(len(runs)), families.schedules(runs))[family]
    least, values = _least_of_runs(whole, runs, value), value.of_points(workload, H100, whole.points(plans, np.float64))
    assert len(plans) > 3 * len(runs)
    assert (least[run] <= values * (1 + 1e-12)).all()
    best = np.full(len(runs), np.inf)
    np.minimum.at(best, run, values)
    assert np.median(least / best) > 0.9


def test_the_best_plan_by_energy_is_that_of_all():
    whole = lattice(MODEL, H100, {"context": 1, "microbatch": 1})
    value = plan_value("energy_j", MODEL, H100, [8], TOKENS)
    every = np.arange(len(whole))
    cost = exhaustive.exactly(whole, every)
    fits = whole.needed(cost.peak_bytes, cost.second_bytes) <= 1
    expected = value(Chunk(whole, every), cost)[fits].min()
    for searched in (whole, in_order_of_bounds(whole)):
        np.testing.assert_allclose(exhaustive.search(searched, value, 1).top[0].value, expected, rtol=1e-12)


def test_real_parts_within_a_limit_of_co2_are_those_of_brute_force():
    """Every plan on every part that the search lists, each with what `explain` says it emits."""
    job, limits, fixed = Job(workload=MODEL, tokens=TOKENS), Limits(accelerators=2), {**FEW, "precision": "bf16"}
    every = []
    listing = PartsProgress(jobs=(job,), limits=limits, objective=Objective.time, fixed=fixed)
    for part in within_limits(listing):
        whole = lattice(MODEL, part.cluster, {**fixed, "domain": part.domain}, every_shard=False)
        steps = job.steps_on(part.cluster.accelerators, part.cluster.prices)
        for i in range(len(whole)):
            found = evaluate(MODEL, part.cluster, whole.plan(i), checked=False)
            assert found.economics is not None
            grams = found.economics.base.carbon_g
            if grams is not None:  # all fit
                every.append((float(found.step_s) * steps, float(grams) * job.steps))
    fastest = min(every)
    for share in (1.0, 0.9, 0.7):
        most = fastest[1] * share
        expected = min((seconds for seconds, grams in every if grams <= most * (1 + 1e-12)), default=math.inf)
        asked = dataclasses.replace(limits, carbon_g=most * (1 + 1e-9))
        found = search_parts((job,), asked, Objective.time, 60.0, fixed)
        assert math.exp(found.log_value) == pytest.approx(expected, rel=1e-9)
        assert found.log_bound == found.log_value


@pytest.mark.parametrize("repair_s", [None, 3e5], ids=["shipped", "spares"])
@pytest.mark.parametrize("objective", [Objective.energy, Objective.cost, Objective.carbon])
def test_designs_minimise_what_explain_tells(objective, repair_s):
    """Values by the convex problem, by `explain`, and by the sums of power laws that bounds are made of."""
    template, curves = failing(load_cluster("h100"), "base", repair_s), load_curves()
    job = Job(workload=MODEL, tokens=TOKENS)
    asked = design_problem(template, curves, jobs=(job,), objective=objective)
    whole = lattice(MODEL, sized(asked.machine, 16), {"domain": 8, "context": 1})
    plans = [whole.plan(i) for i in (0, len(whole) // 3, len(whole) - 1)]
    habits = template.stack.habits
    model = HardwareModel(asked, (stack([embed(plan, MODEL, 8.0, habits) for plan in plans]),))
    hardware = dataclasses.replace(
        hardware_of(template), flop_per_s=7e14, scale_out_bytes_per_s=3e10, hbm_bytes=8e10, accelerators=16.0
    )
    bought = sized(priced(dataclasses.replace(asked.machine, prices=template.prices), hardware, curves), 16)
    logs = np.log([[getattr(hardware, name)] * len(plans) for name in model.names])
    values = np.exp(model.evaluate(logs)[0][0])
    for value, plan in zip(values, plans, strict=True):
        np.testing.assert_allclose(value, told(bought, plan)[objective.key], rtol=1e-9)
    y = np.log([getattr(hardware, name) for name in RATES])
    have = asked.money.left(Limits(budget_usd=1e9), np.array([16.0]), np.array([8e10]))
    second, drawn = asked.money.seconds(y[None], have)
    steps = 16 * asked.steps_on(job, 16.0)
    times = model.times(model.hardware(dict(zip(model.names, np.exp(logs), strict=True))), Exact(np))
    assert times[1] is not None
    np.testing.assert_allclose(steps * (second * times[0][0] + drawn * times[1][0]), values, rtol=1e-9)
    usual = asked.quantities(hardware, (1.0,))
    np.testing.assert_allclose(16 * asked.money.watt(y), usual.usual_w, rtol=1e-9)
    np.testing.assert_allclose(1e9 - 16 * (have.usd[0] - asked.money.usd(y)), usual.capital_usd, rtol=1e-9)
    own = second_of(bought, 8, 1.0)
    assert own.bill is not None
    np.testing.assert_allclose(own.bill.usd, usual.capital_usd, rtol=1e-9)


def test_grams_of_clean_electricity_are_no_objective_and_no_limit():
    assert H100.prices is not None
    cases = {name: dataclasses.replace(getattr(H100.prices, name), carbon_g_per_j=0.0) for name in CASES}
    clean = dataclasses.replace(H100, prices=dataclasses.replace(H100.prices, **cases))
    known = {"template": clean, "curves": load_curves(), "jobs": (Job(workload=MODEL, tokens=TOKENS),)}
    with pytest.raises(SpecError, match="emits CO2"):
        design_problem(**known, objective=Objective.carbon)
    with pytest.raises(SpecError, match="emits CO2"):
        design_problem(**known, limits=Limits(carbon_g=1.0))
    with pytest.raises(CommandError, match="emits CO2"):
        plan_value("carbon_g", MODEL, clean, [8], TOKENS)
    design_problem(**known, objective=Objective.energy)
    plan_value("energy_j", MODEL, clean, [8], TOKENS)
