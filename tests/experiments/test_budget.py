"""The 125 million dollar experiment: its prices, its search against brute force, its shadow prices, a quick run."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs.plan import Plan
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from experiments import runner as _runner
from experiments.budget_125m import answers, prices, space
from experiments.budget_125m import experiment as budget_125m
from experiments.budget_125m.prices import COMBINATIONS, GIB, HBM_CURVE, SECOND_CURVE, listed_usd, unit_usd
from experiments.budget_125m.space import ALL_OR_NOTHING, FIXED
from optimize.lattice.enumeration import lattice


def template(second_gb_per_s=100.0):
    found = load_cluster("h100")
    chip = dataclasses.replace(found.accelerator, second_memory_bytes_per_s=second_gb_per_s * 1e9)
    return dataclasses.replace(found, accelerator=chip, prices=None)


def test_the_sixteen_combinations_cost_what_is_listed():
    assert len(set(COMBINATIONS)) == 16
    listed = {(20, 0): 22_250, (40, 0): 25_000, (80, 0): 30_000, (120, 0): 40_000, (20, 256): 24_750, (80, 512): 40_000}
    assert {pair: listed_usd(pair) for pair in listed} == listed


@pytest.mark.parametrize(("curve", "points"), [(HBM_CURVE, prices.HBM), (SECOND_CURVE, prices.SECOND)])
def test_prices_between_sizes_are_convex_and_nowhere_above_the_listed(curve, points):
    gib, usd = np.array(points, float).T
    at = curve(gib * GIB)
    np.testing.assert_allclose(at[[0, -1]], usd[[0, -1]], rtol=1e-12)
    assert (at <= usd * (1 + 1e-12)).all()
    logs = np.linspace(np.log(gib[0] / 4), np.log(gib[-1]), 300)
    if curve is HBM_CURVE:  # below its first size it is flat
        logs = logs[logs >= np.log(gib[0])]
    heights = np.log(curve(np.exp(logs) * GIB))
    assert (np.diff(heights, 2) >= -1e-9).all()
    assert curve(np.array(1.01 * gib[-1] * GIB)) == np.inf


def test_no_memory_costs_nothing_and_the_least_hbm_is_twenty():
    assert unit_usd(np.array(0.0), np.array(0.0)) == 22_250
    assert unit_usd(np.array(19 * GIB), np.array(128 * GIB)) == 22_250 + 1_250


def small():
    """One cluster of 64, a batch of 64."""
    workload = load_workload("llama3-8b", sequence=2048, batch=64)
    return workload, lattice(workload, space.cluster_of(template(), 64), FIXED, every_shard=False)


def test_a_batch_of_shares_equals_plan_by_plan():
    workload, plans = small()
    numbers = np.arange(0, len(plans), max(1, len(plans) // 10))
    job = space.in_float32(workload, template())
    found = space.evaluate(job, [space.batch_of(plans, part) for part in np.split(numbers, [3])], ALL_OR_NOTHING)
    assert len(found.step_s) == len(numbers) * 8
    for i in range(0, len(found.step_s), 7):
        plan = space.plan_of(workload, template(), found, i)
        machine = space.cluster_of(template(), 64)
        alone = cost(*prepare(workload, machine, plan), Exact(math))
        got = (found.step_s[i], found.hbm_bytes[i], found.second_bytes[i])
        np.testing.assert_allclose(got, (alone.step_s, alone.peak_bytes, alone.second_bytes), rtol=1e-4)


def test_the_search_finds_what_brute_force_finds():
    """Of all plans with all quarters of shares there is none faster that the budget buys."""
    workload, plans = small()
    whole = space.batch_of(plans, np.arange(len(plans)))
    everything = space.evaluate(space.in_float32(workload, template()), [whole], space.QUARTERS)
    for choice in ((1.5e6, None), (1.42e6, None), (1.6e6, (20, 256)), (2e6, (80, 0))):
        budget_usd, sizes = choice
        found, _ = space.search(workload, template(), [64], [choice], lambda _: None)
        best = answers.best(workload, template(), found, choice)
        bought = space.whole_usd(everything, sizes) <= budget_usd
        if not bought.any():
            assert best is None
            continue
        assert best is not None
        assert best["step_s"] <= everything.step_s[bought].min() * (1 + 1e-4)
        assert best["usd"] <= budget_usd
        if sizes:
            assert best["hbm_gib"] <= sizes[0]
            assert best["second_gib"] <= sizes[1]


def test_cluster_sizes_are_products_of_degrees():
    workload = load_workload("gpt3-175b", batch=2304)
    counts = space.cluster_sizes(workload, 125e6, 4096)
    assert counts[-1] <= 125e6 / 22_250 < counts[-1] + 256
    for count in counts:
        assert len(lattice(workload, space.cluster_of(template(), count), FIXED, every_shard=False)) > 0


def test_shadow_prices_agree_with_evaluating_again():
    """A per cent more accelerators (relaxed) and the money that they cost; a per cent more of each rate."""
    workload = load_workload("gpt3-175b", batch=2304)
    plan = Plan(data=72, tensor=8, pipeline=8, sequence_parallel=True, zero_stage=1, offload_activations=1.0)
    machine = space.cluster_of(template(), plan.accelerators)
    prices_found = answers.shadow_prices(workload, machine, plan)
    roomy, h = answers._roomy(machine), 1e-4
    job = prepare(workload, roomy, plan)

    def at(count):
        found = cost(job[0], job[1], dataclasses.replace(job[2], accelerators=float(count)), Exact(np))
        return found.step_s, count * unit_usd(np.asarray(found.peak_bytes), np.asarray(found.second_bytes))

    (more_s, more_usd), (less_s, less_usd) = at(plan.accelerators * (1 + h)), at(plan.accelerators * (1 - h))
    bought = -np.log(more_s / less_s) / np.log(more_usd / less_usd)
    np.testing.assert_allclose(prices_found["budget"], bought, rtol=0.02, atol=0.002)
    chip = dataclasses.replace(roomy.accelerator, hbm_bytes_per_s=roomy.accelerator.hbm_bytes_per_s * 1.01)
    faster = dataclasses.replace(roomy, accelerator=chip)
    now, then = (cost(*prepare(workload, each, plan), Exact(math)).step_s for each in (roomy, faster))
    np.testing.assert_allclose(prices_found["hbm_bytes_per_s"][1], math.log(now / then) / math.log(1.01), atol=0.002)


def test_enough_bandwidth_is_where_the_step_begins_to_wait():
    workload = load_workload("gpt3-175b", batch=2304)
    plan = Plan(data=72, tensor=8, pipeline=8, sequence_parallel=True, zero_stage=1, offload_activations=1.0)
    machine = space.cluster_of(template(), plan.accelerators)
    enough = answers.enough_bandwidth(workload, machine, plan)
    assert 0 < enough <= 100e9

    def seconds(rate):
        own = answers._roomy(space.cluster_of(template(rate / 1e9), plan.accelerators))
        return cost(*prepare(workload, own, plan), Exact(math)).step_s

    if enough < 100e9:
        np.testing.assert_allclose(seconds(enough), 1.001 * seconds(100e9), rtol=1e-6)
    assert answers.enough_bandwidth(workload, machine, dataclasses.replace(plan, offload_activations=0.0)) == 0.0


def test_a_quick_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = _runner.run("budget_125m", quick=True)
    model = result["results"]["models"]["gpt3-175b"]
    design, rows = model["design"], model["combinations"]
    assert len(rows) == 16
    assert design["usd"] <= 125e6
    assert all(row["best"] is None or row["best"]["samples_per_s"] <= design["samples_per_s"] * 1.0001 for row in rows)
    assert model["checks"]["violations"] == []
    assert abs(model["checks"]["pipeline_difference"]) < 0.05
    assert 0 < model["shadow_prices"]["budget"] < 1.5
    assert model["budget_less"]["samples_per_s"] <= design["samples_per_s"] <= model["budget_more"]["samples_per_s"]
    folder = tmp_path / "results" / "budget_125m"
    assert {path.name for path in folder.iterdir()} == {
        "result.json", "designs.csv", "designs.png", "designs.svg", "shadow_prices.png", "shadow_prices.svg",
    }  # fmt: skip
    with (folder / "designs.csv").open() as file:
        assert len(list(csv.reader(file))) == 1 + 17
    assert json.loads((folder / "result.json").read_text())["results"]["models"]["gpt3-175b"]["evaluated"] > 1e5
    assert len(budget_125m.answer(result["results"])) == 1
    assert len(list(budget_125m.tables(result["results"]))) == 2
