"""Best hardware for fixed plans: against grids of hardware, re-solving, and problems solved by hand."""

import dataclasses

import numpy as np
import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.busy import timed
from costmodel.formulas.cost import cost
from costmodel.formulas.counts import counts
from costmodel.formulas.curves import hardware_of, with_hardware
from costmodel.inputs.plan import Plan
from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.workloads import load_workload
from optimize.hardware.model import HardwareModel, bought
from optimize.hardware.solving import HardwareStatus, solve_hardware, stack
from optimize.question.objective import Limits, Objective
from optimize.question.problem import FREE, Problem
from optimize.question.quantities import Job
from tests.support.builders import cluster, small_decoder

CURVES = load_curves().base
TEMPLATE = load_cluster("h100", 64)
PLANS = [
    Plan(data=8, tensor=4, pipeline=2, sequence_parallel=True, zero_stage=1),
    Plan(data=64, zero_stage=3),
    Plan(data=4, tensor=8, context=2, sequence_parallel=True),
    Plan(data=16, tensor=2, pipeline=2, microbatch=2, recompute="full"),
    Plan(data=32, tensor=1, pipeline=2, zero_stage=1, overlap_data=False),
]


def points_of(workload, template, plans):
    return stack([prepare(workload, template, plan)[2] for plan in plans])


def problem(workload=None, template=TEMPLATE, **other):
    job = Job(workload=workload or load_workload("llama3-8b", batch=256), tokens=1e12)
    return Problem(**({"jobs": (job,), "template": template, "curves": CURVES} | other))


def solved(asked, tolerance=1e-7, plans=PLANS):
    return solve_hardware(asked, points_of(asked.jobs[0].workload, asked.template, plans), tolerance=tolerance)


def least(objective):
    """The value of the plan that needs most, without limits: limits a little above it bind for one plan at least."""
    return float(solved(problem(objective=objective), 1e-3).value.max())


CASES = {
    "time within a budget": problem(limits=Limits(budget_usd=2.2e6)),
    "time within watts": problem(limits=Limits(power_w=60e3)),
    "time within both": problem(limits=Limits(budget_usd=2.5e6, power_w=70e3)),
    "cost": problem(objective=Objective.cost),
    "energy within a budget": problem(objective=Objective.energy, limits=Limits(budget_usd=2.2e6)),
    "cost within a deadline": problem(objective=Objective.cost, limits=Limits(deadline_s=1.04 * least(Objective.time))),
    "time for what may be spent": problem(limits=Limits(budget_usd=1.02 * least(Objective.cost), rent=True)),
    "tokens per dollar within watts": problem(objective=Objective.tokens_per_usd, limits=Limits(power_w=60e3)),
}


@pytest.mark.parametrize("name", CASES)
def test_certified_far_below_a_tenth_of_a_per_cent(name):
    found = solved(CASES[name])
    assert {status for status in found.status} == {HardwareStatus.solved}
    assert (found.lower_bound <= found.value).all()
    assert found.gap.max() <= 1e-6
    assert all((excess <= 0).all() for excess in found.excess.values())


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_the_cost_models_own(name):
    """The answer bought, and evaluated by the host's own entry to the cost."""
    asked, found = CASES[name], solved(CASES[name], 1e-4)
    for i, plan in enumerate(PLANS):
        bought_cluster = with_hardware(asked.template, found.hardware(i))
        workload, machine, point = prepare(asked.jobs[0].workload, bought_cluster, plan)
        answer = cost(workload, machine, point, Exact(np))
        loads, drawn_s = asked.loads, None
        if loads is not None:
            drawn_s = (timed(counts(workload, point, Exact(np)), point, machine, loads, Exact(np))[1],)
        quantities = found.model.quantities(found.hardware(i), (answer.step_s,), drawn_s)
        value = np.broadcast_to(found.model.objective(quantities), len(PLANS))[i]
        np.testing.assert_allclose(found.value[i], value, rtol=1e-9)
        assert answer.peak_bytes <= found.hardware(i).hbm_bytes * (1 + 1e-12)


STEP = 0.01


def moved(asked, name, factor):
    """The same problem with one limit times a factor."""
    limit = getattr(asked.limits, name) * factor
    return dataclasses.replace(asked, limits=dataclasses.replace(asked.limits, **{name: limit}))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, asked in CASES.items() if asked.limits != Limits()])
def test_shadow_prices_agree_with_solving_again(name):
    """After a change of 1 % each way: within 2 % or 0.002, or between the two sides where the best hardware turns."""
    asked, found = CASES[name], solved(CASES[name])
    for limit, price in found.shadow_prices.items():
        more, less = (np.log(solved(moved(asked, limit, factor)).value) for factor in (1 + STEP, 1 / (1 + STEP)))
        right, left = (np.log(found.value) - more) / np.log1p(STEP), (less - np.log(found.value)) / np.log1p(STEP)
        assert (right <= left + 1e-4).all()  # each per cent buys less than the one before
        between = np.maximum(np.maximum(right - price, price - left), 0.0)
        assert (between <= np.maximum(0.002, 0.02 * price)).all(), (limit, left, price, right)
    assert max(price.max() for price in found.shadow_prices.values()) > 0.01


def test_the_price_of_memory_agrees_with_solving_again():
    """Per cent of the value for one per cent more HBM needed, by a template whose context needs so much more."""
    asked = CASES["time within a budget"]
    found, need = (
        solved(asked),
        HardwareModel(asked, (points_of(asked.jobs[0].workload, TEMPLATE, PLANS),)).needs["hbm_bytes"],
    )
    assert (found.need_prices["hbm_bytes"] > 0.01).all()
    for i in range(len(PLANS)):
        stack_more = dataclasses.replace(
            TEMPLATE.stack, context_bytes=TEMPLATE.stack.context_bytes + STEP * float(need[i])
        )
        again = dataclasses.replace(asked, template=dataclasses.replace(TEMPLATE, stack=stack_more))
        change = np.log(solved(again).value[i] / found.value[i]) / np.log1p(STEP)
        np.testing.assert_allclose(change, found.need_prices["hbm_bytes"][i], rtol=0.02, atol=0.002)


def test_equal_variables():
    """HBM comes in stacks: so many bytes/s for each byte."""
    ratio = 3.35e12 / 85.5e9
    asked = problem(limits=Limits(budget_usd=2.4e6), equal=(({"hbm_bytes_per_s": 1.0, "hbm_bytes": -1.0}, ratio),))
    found, free = solved(asked, 1e-6), solved(problem(limits=Limits(budget_usd=2.4e6)), 1e-6)
    assert set(found.status) == {HardwareStatus.solved}
    for i in range(len(PLANS)):
        hardware = found.hardware(i)
        np.testing.assert_allclose(hardware.hbm_bytes_per_s / hardware.hbm_bytes, ratio, rtol=1e-6)
    assert (found.value >= free.lower_bound).all()


def test_a_residual_of_ones_own():
    """No more than 5 W of HBM and links a GB/s: any generalized posynomial that must be at most 1."""
    asked = problem(
        residuals={"scale_out share": lambda of: of.hardware.scale_out_bytes_per_s / 20e9},
        limits=Limits(budget_usd=2.4e6),
    )
    found = solved(asked, 1e-6)
    assert set(found.status) == {HardwareStatus.solved}
    assert all(found.hardware(i).scale_out_bytes_per_s <= 20e9 * (1 + 1e-9) for i in range(len(PLANS)))
    assert found.shadow_prices["scale_out share"].max() > 0.01


def test_two_jobs_on_one_cluster_are_one_problem():
    """The sum of their times; each job alone bounds its share."""
    dense, experts = load_workload("llama3-8b", batch=256), load_workload("mixtral-8x7b", batch=256)
    jobs = (Job(workload=dense, tokens=1e12), Job(workload=experts, tokens=5e11, weight=2.0))
    limits = Limits(budget_usd=2.6e6)
    plans = (PLANS[0], Plan(data=8, tensor=4, pipeline=2, expert=8, sequence_parallel=True, zero_stage=1))
    points = [points_of(job.workload, TEMPLATE, [plan]) for job, plan in zip(jobs, plans, strict=True)]
    both = solve_hardware(problem(jobs=jobs, limits=limits), *points, tolerance=1e-6)
    alone = [
        solve_hardware(problem(jobs=(job,), limits=limits), own, tolerance=1e-6)
        for job, own in zip(jobs, points, strict=True)
    ]
    assert both.status == (HardwareStatus.solved,)
    assert both.value[0] >= sum(found.lower_bound[0] for found in alone)
    pair = stack([prepare(dense, TEMPLATE, plan)[2] for plan in PLANS[:2]])
    twice = solve_hardware(problem(jobs=jobs, limits=limits), pair, points[1], tolerance=1e-6)  # one plan beside two
    np.testing.assert_allclose(twice.value[0], both.value[0], rtol=1e-5)
    assert both.hardware(0).hbm_bytes >= max(found.model.needs["hbm_bytes"][0] for found in alone)


def test_what_has_no_answer_says_why():
    point = points_of(load_workload("llama3-8b", batch=256), TEMPLATE, PLANS)
    poor = solve_hardware(problem(limits=Limits(budget_usd=1e4)), point)
    assert set(poor.status) == {HardwareStatus.infeasible}
    assert np.isinf(poor.value).all()
    times = np.exp(poor.excess["budget_usd"])  # the least change that makes it feasible
    enough = solve_hardware(problem(limits=Limits(budget_usd=1e4 * times.max() * 1.001)), point)
    assert set(enough.status) == {HardwareStatus.solved}
    small = solve_hardware(problem(bounds={"hbm_bytes": (1e9, 3e10)}), point)
    assert HardwareStatus.memory in small.status
    few = solve_hardware(problem(limits=Limits(accelerators=63)), point)
    assert set(few.status) == {HardwareStatus.accelerators}
    late = solve_hardware(problem(limits=Limits(deadline_s=1e5)), point)
    assert set(late.status) == {HardwareStatus.infeasible}
    assert (late.excess["deadline_s"] > 0).all()


def test_plans_above_the_cutoff_are_left():
    asked = CASES["time within a budget"]
    found = solved(asked)
    cut = float(np.sort(found.value)[1])
    again = solve_hardware(asked, found.model.points[0], cutoff=cut)
    kept = [status for status in again.status if status is not HardwareStatus.dominated]
    assert 1 <= len(kept) < len(PLANS)
    assert again.value.min() <= found.value.min() * 1.001
    many = solve_hardware(asked, found.model.points[0], cutoff=found.value.min() * 0.5)  # proved by the first bounds
    assert set(many.status) == {HardwareStatus.dominated}
    assert many.evaluations == 5 * len(PLANS)  # three tangents, and two at the solution of the first program
    for status, bound, value in zip(again.status, again.lower_bound, found.value, strict=True):
        assert bound <= value
        assert status is not HardwareStatus.dominated or bound > cut


def test_idle_accelerators_are_paid_for():
    """64 of each 72 are used, all are bought."""
    template = load_cluster("gb200-nvl72", 576)
    point = prepare(load_workload("llama3-8b", batch=512), template, Plan(data=512, domain=64, zero_stage=3))[2]
    assert bought(point, template) == 576.0


def test_free_variables_are_the_only_ones_that_move():
    asked = problem(free=("flop_per_s", "hbm_bytes"), limits=Limits(budget_usd=2.4e6))
    found = solved(asked, 1e-6)
    before, after = hardware_of(TEMPLATE), found.hardware(0)
    kept = ("hbm_bytes_per_s", "scale_up_bytes_per_s", "scale_out_bytes_per_s")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


def test_nothing_to_choose_from_is_the_template():
    asked = problem(bounds={name: (getattr(hardware_of(TEMPLATE), name),) * 2 for name in FREE})
    found = solved(asked)
    workload, machine, point = prepare(asked.jobs[0].workload, TEMPLATE, PLANS[0])
    step_s = cost(workload, machine, point, Exact(np)).step_s
    steps = asked.steps_on(asked.jobs[0], float(found.model.accelerators[0]))
    np.testing.assert_allclose(found.value[0], steps * step_s, rtol=1e-9)


def test_a_template_of_three_tiers():
    template = dataclasses.replace(cluster(64, tiers=3), prices=TEMPLATE.prices)
    found = solved(problem(small_decoder(), template, limits=Limits(budget_usd=1.5e6)), 1e-5, [Plan(data=16, tensor=4)])
    assert found.status == (HardwareStatus.solved,)


def test_a_second_memory_as_large_as_the_plan_needs():
    """Free in size and speed; the price of its bytes agrees with solving again."""
    template = load_cluster("h100", 64)
    plan = Plan(data=8, tensor=4, pipeline=2, sequence_parallel=True, zero_stage=1, offload_optimizer=1.0)
    free = (*FREE, "second_memory_bytes", "second_memory_bytes_per_s")
    asked = problem(free=free, limits=Limits(budget_usd=2.2e6), bounds={"second_memory_bytes": (1e6, 1e12)})
    found = solved(asked, 1e-8, [plan])
    held = cost(*prepare(asked.jobs[0].workload, template, plan), Exact(np))
    np.testing.assert_allclose(found.hardware(0).second_memory_bytes, held.second_bytes, rtol=1e-6)
    dearer = dataclasses.replace(
        CURVES,
        second_memory_usd=dataclasses.replace(CURVES.second_memory_usd, amount=1.01 * CURVES.second_memory_usd.amount),
    )
    again = solved(dataclasses.replace(asked, curves=dearer), 1e-8, [plan])
    change = np.log(again.value[0] / found.value[0]) / np.log(1.01)
    np.testing.assert_allclose(found.need_prices["second_memory_bytes"][0], change, rtol=0.02, atol=1e-5)
    assert set(found.status) == {HardwareStatus.solved}
    small = solved(dataclasses.replace(asked, bounds={"second_memory_bytes": (1e6, 1e9)}), 1e-3, [plan])
    assert small.status == (HardwareStatus.memory,)


def test_the_least_co2_is_that_of_the_least_energy():
    """The same hardware, and grams of the grid for each joule."""
    energy, carbon = (
        solved(problem(objective=each, limits=Limits(budget_usd=2.2e6)))
        for each in (Objective.energy, Objective.carbon)
    )
    grams = TEMPLATE.prices.base.carbon_g_per_j
    np.testing.assert_allclose(carbon.value[0], grams * energy.value[0], rtol=2e-3)
    assert carbon.lower_bound[0] <= carbon.value[0]
    assert grams == pytest.approx(481 / 3.6e6)
