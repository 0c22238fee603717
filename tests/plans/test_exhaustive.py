"""The search finds what an independent loop over single plans finds, in any pieces; float32 stays within its margin."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators import compiled
from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs.plan import Plan
from costmodel.measured import FITS, with_margin
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.diagnosis.validate import validate
from optimize.lattice.enumeration import lattice
from optimize.lattice.lattice import CHUNK
from optimize.launch.framework import canonical
from optimize.plans import exhaustive, find_plan
from optimize.plans.exhaustive import MARGIN, Best, search
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.plan_values import plan_value
from optimize.plans.row_bounds import in_order_of_bounds
from optimize.status import CommandError, Status
from tests.oracles.plans import brute_force
from tests.support import often
from tests.support.builders import accelerator, cluster, small_decoder, small_moe
from tests.support.small_workloads import FAMILIES, small_adapters, small_encoder, small_evoformer

CASES = often(8, 300)
OTHERS = [FAMILIES[name] for name in ("encoder-decoder", "swin", "dlrm")]
OTHERS += [small_encoder(), small_evoformer(), small_adapters()]
OWN = load_cluster("h100").prices
assert OWN is not None
PRICES = dataclasses.replace(
    OWN, **{name: dataclasses.replace(getattr(OWN, name), tiers=None) for name in ("low", "base", "high")}
)


def _random_case(number: int):
    """A small problem in which memory matters, with some fields fixed."""
    rng = np.random.default_rng(number)
    batch = int(rng.choice([4, 6, 8, 12, 24]))
    sizes = {"batch": batch, "layers": int(rng.integers(2, 7)), "sequence": int(rng.choice([64, 128, 192]))}
    workload = small_decoder(**sizes) if rng.random() < 0.7 else small_moe(**sizes)
    if number % 4 == 3:
        workload = dataclasses.replace(OTHERS[number // 4 % len(OTHERS)], batch=batch)
    total = int(rng.choice([1, 2, 3, 4, 6, 8]))
    machine = cluster(total, domain=int(rng.choice([2, 4, 8])), tiers=int(rng.choice([2, 3])))
    chip = accelerator(hbm_bytes=float(rng.uniform(1.7e9, 3.2e9)), hbm_bytes_per_s=float(rng.uniform(5e11, 4e12)))
    choices = {
        "schedule": ["one_f_one_b", "interleaved", "zb_h1", "gpipe"],
        "zero_stage": [0, 1, 2, 3],
        "recompute": ["none", "selective", "full"],
        "microbatch": [1, 2],
        "context": [1, 2],
        "tensor": [1, 2, 4],
    }
    names = rng.choice(list(choices), 4, replace=False)
    fixed = {str(name): rng.choice(choices[name]).item() for name in names}
    objective = str(rng.choice(["step_s", "step_s", "time_s", "cost_usd", "energy_j", "tokens_per_usd"]))
    chip = dataclasses.replace(chip, power_w=700.0)
    machine = dataclasses.replace(machine, accelerator=chip, prices=PRICES)
    asked = {"objective": objective, "tokens": 1e9, "margin": float(rng.choice([0.5, 0.9, 0.99]))}
    return workload, machine, fixed, asked


def _loop(workload, machine, fixed, asked) -> tuple[int, list[tuple[float, Plan]]]:
    """How many plans are legal, and those that fit with their values, the best first."""
    legal, fitting, machine = 0, [], with_margin(machine, asked["margin"])
    domains = list(range(1, int(machine.tiers[0].size) + 1))
    value = plan_value(asked["objective"], workload, machine, domains, asked["tokens"])
    for plan in brute_force(workload, None, machine, fixed):
        found = cost(*prepare(workload, machine, plan), Exact(math))
        legal += 1
        if found.peak_bytes <= machine.accelerator.hbm_bytes:
            fitting.append((value.of_plan(workload, machine, plan), plan))
    return legal, sorted(fitting, key=lambda pair: pair[0])


@pytest.mark.slow
def test_random_problems():
    """The same best plan and value as a loop over single plans; the same refusal where there is none."""
    outcomes = []
    while outcomes.count(Status.ok) < CASES:
        workload, machine, fixed, asked = _random_case(len(outcomes))
        legal, fitting = _loop(workload, machine, fixed, asked)
        if fitting:
            found = find_in_lattice(workload, machine, fixed=fixed, top=5, **asked)
            outcomes.append(found.status)
            _compare(found, legal, fitting)
            continue
        with pytest.raises(CommandError) as refusal:
            find_in_lattice(workload, machine, fixed=fixed, top=5, **asked)
        outcomes.append(refusal.value.status)
        assert outcomes[-1] is (Status.infeasible if legal else Status.bad_input), (fixed, refusal)
    assert min(outcomes.count(status) for status in (Status.infeasible, Status.bad_input)) > CASES / 20


def _compare(found, legal, fitting):
    """Of the plans that fit by the mean of the stages, those that fit in every one; the others stay in the bound."""

    def least(value):
        return 1 / value if found.maximised else value

    assert (found.plans_in_lattice, found.fitting) == (legal, len(fitting))
    assert least(found.lower_bound) == pytest.approx(fitting[0][0], rel=1e-12)
    passing = {}
    for value, plan in fitting:
        if len(passing) < 5 and canonical(plan) not in passing and validate(found.workload, found.cluster, plan).passes:
            passing[canonical(plan)] = value
    np.testing.assert_allclose([least(ranked.value) for ranked in found.plans], list(passing.values()), rtol=1e-12)
    assert all(ranked.validation.passes for ranked in found.plans)


@pytest.mark.parametrize(
    ("model", "machine", "total", "batch", "fixed"),
    [
        ("llama3-8b", "h100", 8, 16, {"schedule": "one_f_one_b", "context": 1, "microbatch": 1}),
        ("llama2-70b", "a100-80gb", 32, 32, {"zero_stage": 1, "microbatch": 1, "context": 1, "tensor": 8}),
        ("mixtral-8x7b", "h200", 16, 32, {"microbatch": 1, "context": 1, "recompute": "none", "zero_stage": 1}),
    ],
)
def test_real_models_against_evaluate(model, machine, total, batch, fixed):
    workload, machine = load_workload(model, batch=batch), with_margin(load_cluster(machine, total), FITS)
    found = find_in_lattice(workload, machine, fixed=fixed)
    every = {plan: evaluate(workload, machine, plan) for plan in brute_force(workload, None, machine, fixed)}
    seconds = {plan: told.step_s for plan, told in every.items() if told.fits}
    assert (found.plans_in_lattice, found.fitting) == (len(every), len(seconds))
    assert found.plans[0].step_s == pytest.approx(min(seconds.values()), rel=1e-12)
    assert seconds[found.plan] == pytest.approx(min(seconds.values()), rel=1e-12)


@pytest.mark.parametrize(("model", "total"), [("gpt3-175b", 512), ("deepseek-v3", 512)])
def test_errors_of_float32_stay_far_within_the_margin(model, total):
    """In NumPy and compiled: a tenth of the margin, on a random sample of all plans."""
    whole = lattice(load_workload(model, batch=960), load_cluster("h100", total), {})
    indices = np.sort(np.random.default_rng(0).integers(len(whole), size=4000))
    truth = exhaustive.exactly(whole, indices)
    for evaluate_chunk in (exhaustive.in_numpy(whole), exhaustive.compiled_batches(whole)):
        found = evaluate_chunk(exhaustive.Chunk(whole, indices))
        for name in ("step_s", "peak_bytes"):
            error = np.abs(getattr(found, name) / getattr(truth, name) - 1)
            assert error.max() < MARGIN / 10, name


def test_any_pieces_in_any_order_give_the_same_answer(monkeypatch):
    """Chunks are merged by value and number: what was seen first does not matter."""
    monkeypatch.setattr(exhaustive, "CHUNK", 4096)
    machine = cluster(16)
    whole = lattice(small_decoder(layers=6, batch=48), machine, {})
    value = plan_value("step_s", whole.workload, machine, [8])
    at_once = search(whole, value, 7)
    numbers = np.random.default_rng(0).permutation(exhaustive.chunk_count(whole))
    assert len(numbers) > 4
    parts = [search(whole, value, 7, numbers=part.tolist()) for part in np.array_split(numbers, 3)]
    merged = Best()
    for part in parts[::-1]:
        merged = merged.merged(part, 7)
    assert merged == at_once
    assert merged.evaluated == len(whole)


def test_ties_are_ordered_by_the_plan():
    """Values that differ by the rounding of a sum are one value."""
    entries = [exhaustive.Entry(1.0 + 1e-14, 3), exhaustive.Entry(1.0, 7), exhaustive.Entry(1.0 - 1e-14, 5)]
    best = Best()
    for entry in entries:
        best = best.merged(Best(top=(entry,)), 2)
    assert [entry.index for entry in best.top] == [3, 5]


def test_chunks_are_whole_batches():
    assert CHUNK % compiled.VALUE_BATCH == 0


@pytest.mark.parametrize(("model", "total"), [("mixtral-8x7b", 64), ("llama3-8b", 16)])
def test_what_is_searched_is_what_is_printed(model, total):
    """The value of a plan in its lattice is that of the plan that is told: overlaps are on where they hide traffic."""
    workload, machine = load_workload(model), load_cluster("h100", total)
    whole = lattice(workload, machine, {})
    indices = np.random.default_rng(2).integers(len(whole), size=40)
    searched = exhaustive.exactly(whole, indices)
    told = [evaluate(workload, machine, whole.plan(int(index)), checked=False) for index in indices]
    np.testing.assert_allclose(searched.step_s, [each.step_s for each in told], rtol=1e-9)
    np.testing.assert_allclose(searched.peak_bytes, [each.memory.peak_bytes for each in told], rtol=1e-9)


def test_bounds_of_families_leave_the_same_answer(monkeypatch):
    """The best few and the simpler ones, of a fraction of the plans."""
    monkeypatch.setattr(exhaustive, "FEW", 0)
    few = {"context": 1, "microbatch": {1, 2}, "data": {2, 4}}
    for workload, fixed, objective in (
        (small_moe(batch=48), few, "step_s"),
        (small_decoder(layers=6, batch=48), few, "energy_j"),
    ):
        machine = load_cluster("h100", 16)
        whole = in_order_of_bounds(lattice(workload, machine, fixed))
        value = plan_value(objective, workload, machine, [8], 1e9)
        every, some = exhaustive.search(whole, value, 12), exhaustive.sparing(whole, value, 12)
        assert some.top == every.top
        assert some.evaluated < 0.5 * len(whole)
        within = every.top[0].value * (1 + exhaustive.SIMPLER_WITHIN)
        levels = [{k: e for k, e in best.levels.items() if e.value <= within} for best in (every, some)]
        assert levels[0] == levels[1]


def test_the_call_in_python_searches_as_the_command_does():
    """The same answer and certificate as of all plans in order, of a fraction of them."""
    job = load_workload("llama3-8b", batch=256), load_cluster("h100", 32)
    some, every = find_plan(*job), find_plan(*job, search=search)
    for name in ("plans", "value", "lower_bound", "gap", "simplest", "status", "elasticities", "not_searched"):
        assert getattr(some, name) == getattr(every, name), name
    assert some.evaluations < 0.6 * every.evaluations
