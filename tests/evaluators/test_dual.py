"""Dual numbers: values are those of `Exact`, derivatives those of central differences and of JAX, in float64."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators.dual import DIRECTIONAL, SUBGRADIENT, Dual, gradient, log_gradient, one_sided
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs.plan import Plan
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from tests.support.builders import cluster, small_decoder, small_moe
from tests.support.registry import FAMILIES
from tests.support.strategies import double

NUMPY, STEP, BATCH = Exact(np), 2e-6, 64
RATES = ("peak_16bit_flop_per_s", "hbm_bytes_per_s")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_registered_cost_function(family):
    """By every argument at once, against central differences in logarithms, away from kinks."""
    call = FAMILIES[family].call
    args = FAMILIES[family].sample(np.random.default_rng(21), BATCH)
    units = {name: np.where(value == 0, 1.0, value) for name, value in args.items()}
    duals = {name: Dual(value, {name: units[name]}) for name, value in args.items()}
    found, exact = call(duals, SUBGRADIENT), call(args, NUMPY)
    moved = {name: np.repeat(value[None], 2 * len(args), axis=0) for name, value in args.items()}
    for i, name in enumerate(args):
        moved[name][2 * i] -= STEP * units[name]
        moved[name][2 * i + 1] += STEP * units[name]
    shape = (2 * len(args), BATCH)
    sides = {name: np.broadcast_to(value, shape) for name, value in call(moved, NUMPY).items()}
    for name, value in exact.items():
        dual = found[name] if isinstance(found[name], Dual) else Dual(found[name], {})
        np.testing.assert_allclose(dual.value, value, rtol=1e-12, err_msg=name)
        scale = np.where(value == 0, 1.0, np.abs(value))
        left, right = (value - sides[name][0::2]) / STEP / scale, (sides[name][1::2] - value) / STEP / scale
        ours = np.stack([np.broadcast_to(dual.parts.get(a, 0.0), BATCH) for a in args]) / scale
        smooth = np.abs(right - left) < 1e-5 * (1 + np.abs(right))
        excess = np.abs(ours - (left + right) / 2) - 1e-6 * (1 + np.abs(right)) - np.abs(right - left)
        assert np.mean(smooth) > 0.95, name
        assert (excess[smooth] <= 0).all(), name


def jobs():
    plan = Plan(data=4, tensor=4, pipeline=2, context=2, sequence_parallel=True, zero_stage=1)
    experts = Plan(data=8, tensor=2, pipeline=1, expert=8, zero_stage=3, recompute="full")
    return {
        "dense": (*prepare(small_decoder(), cluster(), plan),),
        "experts": (*prepare(small_moe(), cluster(), experts),),
    }


def step_of(job, sem, rates):
    """Seconds of a step at other rates."""
    workload, machine, point = job
    own = {name: value for name, value in rates.items() if name in RATES}
    tiers = tuple(
        dataclasses.replace(tier, bandwidth_bytes_per_s=rates[f"tier{i}_bytes_per_s"])
        for i, tier in enumerate(machine.tiers)
    )
    accelerator = dataclasses.replace(machine.accelerator, **own)
    return cost(workload, dataclasses.replace(machine, accelerator=accelerator, tiers=tiers), point, sem).step_s


def rates_of(job, factors):
    machine = job[1]
    rates = {name: getattr(machine.accelerator, name) * factors for name in RATES}
    return rates | {
        f"tier{i}_bytes_per_s": tier.bandwidth_bytes_per_s * factors**0.5 for i, tier in enumerate(machine.tiers)
    }


@pytest.mark.parametrize("name", ["dense", "experts"])
def test_equals_jax_in_float64(name):
    import jax
    from jax import numpy as jnp

    job, sem = jobs()[name], Exact(jnp)
    at = rates_of(job, np.exp(np.random.default_rng(1).normal(size=3)))
    value, slopes = log_gradient(lambda rates: step_of(job, SUBGRADIENT, rates), at)
    with double():
        given = {key: jnp.asarray(rate) for key, rate in at.items()}
        wanted, pull = jax.vjp(lambda rates: jnp.log(step_of(job, sem, rates)), given)
        (derivatives,) = pull(jnp.ones_like(wanted))
    np.testing.assert_allclose(value, np.asarray(wanted), rtol=1e-12)
    for key, rate in at.items():
        np.testing.assert_allclose(slopes[key], np.asarray(derivatives[key]) * rate, rtol=1e-9, atol=1e-12)


def test_leaves_the_cost_of_what_does_not_depend_on_the_variables_alone():
    """Memory does not depend on rates: no dual number, and one batch is the points one by one."""
    workload, machine, point = jobs()["dense"]
    found = cost(workload, machine, point, SUBGRADIENT)
    assert not isinstance(found.step_s, Dual)
    job = (workload, machine, point)
    at = rates_of(job, np.array([0.5, 1.0, 2.0]))
    together, slopes = gradient(lambda rates: step_of(job, SUBGRADIENT, rates), at)
    for i in range(3):
        alone, own = gradient(
            lambda rates: step_of(job, SUBGRADIENT, rates), {key: rate[i] for key, rate in at.items()}
        )
        assert together[i] == alone
        assert all(slopes[key][i] == own[key] for key in at)


def test_arithmetic_on_both_sides():
    def formula(v):
        x, y = v["x"], v["y"]
        ahead = 3.0 - x / y + 2.0 / x + np.array([1.0, 2.0]) * y
        return ahead * (1.0 - y) + (-x) ** 2 + x * y / 4.0 + (y - 1.0) * np.array([1.0, 3.0])

    x, y, h = np.array([1.5, 0.7]), np.array([0.4, 2.5]), 1e-6
    value, slopes = gradient(formula, {"x": x, "y": y})
    np.testing.assert_allclose(value, formula({"x": x, "y": y}), rtol=1e-15)
    by_x = (formula({"x": x + h, "y": y}) - formula({"x": x - h, "y": y})) / (2 * h)
    by_y = (formula({"x": x, "y": y + h}) - formula({"x": x, "y": y - h})) / (2 * h)
    np.testing.assert_allclose(slopes["x"], by_x, rtol=1e-7)
    np.testing.assert_allclose(slopes["y"], by_y, rtol=1e-7)


def test_operations_and_absent_variables():
    value, slopes = gradient(lambda v: SUBGRADIENT.log2(v["x"]) + SUBGRADIENT.floor(v["x"]), {"x": 5.0, "z": 1.0})
    assert value == math.log2(5.0) + 5.0
    assert slopes == {"x": pytest.approx(1 / (5 * math.log(2))), "z": 0.0}
    assert SUBGRADIENT.maximum(1.0, 2.0, 3.0) == 3.0
    assert SUBGRADIENT.minimum(np.array([1.0, 4.0]), 2.0).tolist() == [1.0, 2.0]
    assert SUBGRADIENT.log2(8.0) == 3.0
    assert gradient(lambda v: SUBGRADIENT.sqrt(4.0) * SUBGRADIENT.sqrt(v["x"]), {"x": 9.0}) == (6.0, {"x": 1 / 3})


@pytest.mark.parametrize("side", [-1, 1])
def test_one_sided_at_a_kink(side):
    """|x - 1| - max(2y, y + 1) + min(y, 1) at the kinks, and max(x, 3 - x) away from them."""

    def formula(sem):
        def value(v):
            x, y = v["x"], v["y"]
            return sem.maximum(x - 1.0, 1.0 - x) - sem.maximum(2.0 * y, y + 1.0) + sem.minimum(y, 1.0)

        return value

    at = {"x": 1.0, "y": 1.0}
    _, slopes = one_sided(formula(DIRECTIONAL), at, side)
    h = side * 2.0**-20
    for name in at:
        there = {**at, name: at[name] + h}
        assert slopes[name] == (formula(NUMPY)(there) - formula(NUMPY)(at)) / h, name
    _, first = gradient(formula(SUBGRADIENT), at)
    assert first == {"x": 1.0, "y": -1.0}  # of the first argument each: x - 1, -2 y, y


MODELS = {
    "deepseek-v3": Plan(data=32, tensor=2, expert=32, zero_stage=3, recompute="full", overlap_expert=True),
    "swin-1.8b": Plan(data=16, tensor=4, zero_stage=1),
    "t5-3.87b": Plan(data=8, tensor=4, pipeline=2),
    "alphafold2-128x256": Plan(data=32, tensor=2),
    "llama3-70b": Plan(data=2, tensor=8, pipeline=4, context=1, offload_optimizer=1.0, offload_activations=0.5),
}


@pytest.mark.parametrize("name", MODELS)
def test_real_models_against_central_differences(name):
    """Elasticities of the step by the rates of an H100, and of the bytes by nothing."""
    job = prepare(load_workload(name, batch=256), load_cluster("h100", 64), MODELS[name])
    at = rates_of(job, np.exp(np.random.default_rng(2).normal(size=5)))
    value, slopes = log_gradient(lambda rates: step_of(job, SUBGRADIENT, rates), at)
    np.testing.assert_allclose(np.exp(value), step_of(job, NUMPY, at), rtol=1e-12)
    for key, rate in at.items():
        right, left = (np.log(step_of(job, NUMPY, {**at, key: rate * np.exp(h)})) for h in (1e-6, -1e-6))
        np.testing.assert_allclose(slopes[key], (right - left) / 2e-6, atol=1e-7, err_msg=key)
    assert sum(slopes.values()).max() < 0
