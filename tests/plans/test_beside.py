"""Modules computed again alone and optimizers in the second memory: the best of them by brute force."""

import contextlib
import dataclasses
import functools

import pytest

from costmodel import evaluate
from costmodel.measured import with_margin
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules.violations import violations
from costmodel.specs.workloads import load_workload
from optimize.lattice.default_plan import plan_precision
from optimize.lattice.enumeration import lattice
from optimize.launch import FRAMEWORKS
from optimize.plans.best_beside import find_any
from optimize.plans.launchable import find_for, find_launchable, names_on
from optimize.plans.over_counts import Question, best_over
from optimize.plans.plan_values import plan_value
from optimize.plans.restricted import beside, narrowed
from optimize.plans.runner_ups import fits_by_stage
from optimize.question.clusters import sized
from optimize.status import CommandError
from tests.support.builders import small_decoder, small_moe

FIXED = {
    "schedule": "one_f_one_b",
    "context": 1,
    "microbatch": 4,
    "zero_stage": 1,
    "expert_tensor": 1,
    "tensor": {2, 4},
}


@functools.cache
def machine(hbm_bytes):
    own = load_cluster("h100", accelerators=4)
    return dataclasses.replace(own, accelerator=dataclasses.replace(own.accelerator, hbm_bytes=hbm_bytes))


def brute(workload, cluster, objective, fixed, names=None):
    """Every plan that some framework can be told: of its lattices, and with each other option."""
    cluster, fixed = with_margin(cluster, 0.5), plan_precision(cluster) | fixed
    value, plans = plan_value(objective, workload, cluster, [8, 4, 2, 1], 1e9), set()
    for name in names or names_on(cluster):
        for fields in narrowed(FRAMEWORKS[name], fixed, plan_precision(cluster), workload):
            whole, groups = (
                lattice(workload, cluster, fields),
                beside(FRAMEWORKS[name], fields, fixed, workload, cluster),
            )
            own = [whole.plan(i) for i in range(len(whole))]
            other = [dataclasses.replace(plan, recompute_share=1.0, **v) for g in groups for v in g for plan in own]
            plans |= {plan for plan in own + other if FRAMEWORKS[name].can(plan, workload, cluster)}
    legal = [plan for plan in plans if not violations(plan, workload, cluster)]
    ordered = sorted((value.of_plan(workload, cluster, plan), str(plan), plan) for plan in legal)
    return next(
        (worth, plan)
        for worth, _, plan in ordered
        if evaluate(workload, cluster, plan).fits and fits_by_stage(workload, cluster, plan)
    )


def brute_of_all(workload, cluster, objective, fixed):
    """Every legal plan of the whole lattice, and each with every other option of any framework."""
    cluster, fixed = with_margin(cluster, 0.5), plan_precision(cluster) | fixed
    value, whole = plan_value(objective, workload, cluster, [8, 4, 2, 1], 1e9), lattice(workload, cluster, fixed)
    own = [whole.plan(i) for i in range(len(whole))]
    others = [
        variant
        for framework in FRAMEWORKS.values()
        for fields in narrowed(framework, fixed, plan_precision(cluster), workload)
        for group in beside(framework, fields, fixed, workload, cluster)
        for variant in group
    ]
    plans = {*own} | {dataclasses.replace(plan, recompute_share=1.0, **v) for v in others for plan in own}
    ordered = sorted(
        (value.of_plan(workload, cluster, p), str(p), p) for p in plans if not violations(p, workload, cluster)
    )
    return next(
        (worth, plan)
        for worth, _, plan in ordered
        if evaluate(workload, cluster, plan).fits and fits_by_stage(workload, cluster, plan)
    )


DENSE, EXPERTS = small_decoder(layers=4, batch=32), small_moe(batch=32)
CASES = {
    "dense": (DENSE, 1.59e9, "step_s"),
    "dense, less": (DENSE, 1.575e9, "step_s"),
    "experts": (EXPERTS, 1.83e9, "step_s"),
    "energy": (EXPERTS, 1.82e9, "energy_j"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_best_is_that_of_brute_force(name):
    workload, hbm_bytes, objective = CASES[name]
    fixed = FIXED | ({"expert": 4, "microbatch": 2, "tensor": {1, 4}} if workload is EXPERTS else {})
    worth, plan = brute(workload, machine(hbm_bytes), objective, fixed)
    found, _ = find_launchable(workload, machine(hbm_bytes), fixed=fixed, objective=objective, tokens=1e9, margin=0.5)
    assert found.value == pytest.approx(worth, rel=1e-9), (found.plans[0].plan, plan)
    every = find_any(workload, machine(hbm_bytes), fixed=fixed, objective=objective, tokens=1e9, margin=0.5)
    least, of_all = brute_of_all(workload, machine(hbm_bytes), objective, fixed)
    assert every.value == pytest.approx(least, rel=1e-9), (every.plans[0].plan, of_all)
    assert every.value <= found.value * (1 + 1e-9)  # as what no framework can launch is searched too


@pytest.mark.parametrize("hbm_bytes", [40e9, 46e9, 64e9])
def test_what_deepspeed_keeps_in_the_second_memory(hbm_bytes):
    """The best of `--only deepspeed` by brute force; at 40 GB nothing fits without the host's memory."""
    workload, fixed = load_workload("llama3-8b", batch=8), FIXED | {"tensor": {1, 2}, "microbatch": 1}
    fixed |= {"zero_stage": {1, 2, 3}}
    worth, plan = brute(workload, machine(hbm_bytes), "step_s", fixed, ("deepspeed",))
    found, _ = find_for("deepspeed", workload, machine(hbm_bytes), fixed=fixed, margin=0.5)
    assert found.value == pytest.approx(worth, rel=1e-9), (found.plan, plan)
    assert found.plan.offload_weights + found.plan.offload_optimizer > 0


def test_counts_are_compared_with_what_lies_in_the_second_memory():
    """On 2 and on 4 accelerators nothing fits without it; the best of both is that of `--only deepspeed`."""
    workload, fixed = load_workload("llama3-8b", batch=8), FIXED | {"tensor": {1, 2}, "microbatch": 1}
    own, fixed = machine(46e9), fixed | {"zero_stage": {1, 2, 3}}
    asked = {"workload": workload, "machine": lambda count: with_margin(sized(own, count), 0.5), "most": 4}
    question = Question(**asked, fixed=fixed, names=("deepspeed",))
    alone = {}
    for count in (2, 4):
        on = {"fixed": question.fixed_on(count), "margin": 0.5, "top": 1}
        with contextlib.suppress(CommandError):
            alone[count] = find_for("deepspeed", workload, sized(own, count), **on)[0].value
    assert alone
    best = best_over(question, (2, 4), (8,))["best"]
    assert best["value"] == pytest.approx(min(alone.values()), rel=1e-9)
    assert best["plan"].offload_weights + best["plan"].offload_optimizer > 0
