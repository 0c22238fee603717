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
from optimize.lattice import degrees
from optimize.lattice.default_plan import usual_formats
from optimize.lattice.enumeration import lattice
from optimize.launch import FRAMEWORKS, names_on
from optimize.plans.best_beside import find_plan
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.launchable import find_for, find_launchable
from optimize.plans.over_counts import Question, best_over
from optimize.plans.plan_values import plan_value
from optimize.plans.restricted import OFFLOADS, beside, narrowed
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
    cluster, fixed = with_margin(cluster, 0.5), usual_formats(cluster, fixed) | fixed
    value, plans = plan_value(objective, workload, cluster, [8, 4, 2, 1], 1e9), set()
    for name in names or names_on(cluster):
        for fields in narrowed(FRAMEWORKS[name], fixed, usual_formats(cluster, fixed), workload):
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


def brute_of_all(workload, cluster, objective, fixed, own=None):
    """Every legal plan of the whole lattice, each with every other option of any framework, and the lattice of `own`:
    what an answer has, of which it takes other shares of the layers too."""
    cluster, fixed = with_margin(cluster, 0.5), usual_formats(cluster, fixed) | fixed
    value, whole = plan_value(objective, workload, cluster, [8, 4, 2, 1], 1e9), lattice(workload, cluster, fixed)
    every = [whole.plan(i) for i in range(len(whole))]
    others = [
        variant
        for framework in FRAMEWORKS.values()
        for fields in narrowed(framework, fixed, usual_formats(cluster, fixed), workload)
        for group in beside(framework, fields, fixed, workload, cluster)
        for variant in group
    ]
    plans = {*every} | {dataclasses.replace(plan, recompute_share=1.0, **v) for v in others for plan in every}
    if own is not None:
        of_own = lattice(workload, cluster, fixed | own)
        plans |= {of_own.plan(i) for i in range(len(of_own))}
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
    every = find_plan(workload, machine(hbm_bytes), fixed=fixed, objective=objective, tokens=1e9, margin=0.5)
    least, of_all = brute_of_all(workload, machine(hbm_bytes), objective, fixed)
    assert every.value == pytest.approx(least, rel=1e-9), (every.plans[0].plan, of_all)
    assert every.value <= found.value * (1 + 1e-9)  # as what no framework can launch is searched too


@pytest.mark.parametrize("hbm_bytes", [30e9, 46e9])
def test_nothing_fits_without_the_second_memory(hbm_bytes):
    """The answer for all plans is that of brute force; that for none, by a function or in a lattice, is a refusal."""
    workload, fixed = load_workload("llama3-8b", batch=8), FIXED | {"tensor": {1, 2}, "microbatch": 1}
    asked = {"fixed": fixed, "margin": 0.5, "top": 2}
    found = find_plan(workload, machine(hbm_bytes), **asked)
    own = {name: getattr(found.plan, name) for name in ("recompute", *OFFLOADS)}
    worth, plan = brute_of_all(workload, machine(hbm_bytes), "step_s", fixed, own)
    assert found.value == pytest.approx(worth, rel=1e-9), (found.plan, plan)
    assert found.gap == pytest.approx(0, abs=1e-9)
    assert found.fixed == fixed
    if hbm_bytes < 46e9:
        with pytest.raises(CommandError, match="does not fit"):
            find_in_lattice(workload, machine(hbm_bytes), **asked)
        with pytest.raises(CommandError, match="does not fit"):
            find_plan(workload, machine(hbm_bytes), **asked, objective=lambda told: told.step_s)


@pytest.mark.parametrize(("hbm_bytes", "stages", "layers"), [(1.6613e9, 4, 6), (1.6532e9, 2, 4)])
def test_plans_that_fit_evenly_alone(hbm_bytes, stages, layers):
    """The fastest plan fits with every kind of layer spread evenly, not in order; with modules recomputed in both."""
    sizes = {4: {"ffn": 64}, 2: {"ffn": 2048}}[stages]
    workload = small_moe(batch=8, layers=layers, dense_layers=1, expert_ffn=400, **sizes)
    fixed = {"schedule": "one_f_one_b", "context": 1}
    fixed |= {"pipeline": stages, "zero_stage": 0, "microbatch": {4: 2, 2: 1}[stages]}
    where = sized(machine(hbm_bytes), stages)
    found = find_plan(workload, where, fixed=fixed, margin=0.5)
    worth, plan = brute_of_all(workload, where, "step_s", fixed)
    assert found.value == pytest.approx(worth, rel=1e-9), (found.plan, plan)
    assert found.plan.recompute not in ("none", "selective", "full") or found.plan.offload_optimizer > 0


@pytest.mark.parametrize("hbm_bytes", [40e9, 43e9, 64e9])
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
    own, fixed = machine(40e9), fixed | {"zero_stage": {1, 2, 3}}
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


@pytest.mark.parametrize("find", [find_in_lattice, find_plan])
def test_what_is_too_large_without_what_is_fixed_has_an_answer(find, monkeypatch):
    """The refusal of more than 20 million rows asks for fixed fields; what they cost is not known then."""
    job, fixed = (small_decoder(batch=64), load_cluster("h100", 16)), {"microbatch": 1}
    monkeypatch.setattr(degrees, "MOST_ROWS", 60)
    with pytest.raises(CommandError, match="expected some fixed"):
        find(*job)
    found = find(*job, fixed=fixed, unrestricted=True, top=1)
    assert (found.restriction, found.gap) == (None, 0)
    assert find_launchable(*job, fixed=fixed, top=1)[0].restriction is None
