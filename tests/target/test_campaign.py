"""Campaigns and methods: rows by hand, what wins where, gradients, and floors that nothing gets below."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel import Exact, Plan, cost, load_cluster, prepare
from costmodel.convergence import RATES, rounds
from costmodel.evaluators import SUBGRADIENT
from costmodel.evaluators.dual import gradient
from costmodel.formulas import STATE_BYTES, elapsed
from costmodel.inputs import MethodRow, model_flop, parameters
from costmodel.target import (
    LAWS,
    METHODS,
    applied,
    campaign,
    compressed,
    instance,
    language_model,
    local,
    narrowed,
    phases,
    plain,
    quadratic,
    step_of,
    subnetworks,
    tokens_at_batch,
    tokens_for,
    winners,
)
from tests.support.builders import cluster, small_decoder

MODEL = small_decoder(layers=4, batch=64, sequence=128, hidden=1024, heads=16, key_value_heads=16, ffn=4096)
MACHINES = cluster(16, domain=8)
EXACT = Exact(math)
PROBLEM = instance(8, 64)


def _steps(method, machine=MACHINES):
    workload, ready, point = prepare(MODEL, machine, Plan(data=int(machine.accelerators), zero_stage=0))
    return cost(*_at(method, workload, ready, point), EXACT)


def _at(method, workload, machine, point):
    narrow, point = applied(method, workload, point)
    return narrow, machine, point


def test_the_row_of_plain_training_changes_nothing():
    workload, machine, point = prepare(MODEL, MACHINES, Plan(data=16, zero_stage=0))
    assert _steps(plain()) == cost(workload, machine, point, EXACT)


def test_what_methods_send_by_hand():
    """Of 16 ranks: an eighth of unlike places is gathered, 8 times an eighth of what a sum takes."""
    assert MethodRow(payload=1 / 8, unlike=1.0).gradient_share(16) == pytest.approx(1.0)
    assert MethodRow(payload=1 / 8).gradient_share(16) == pytest.approx(1 / 8)
    assert compressed(1 / 8)["numbers"]["omega"] == pytest.approx(7.0)
    slow = dataclasses.replace(
        MACHINES, tiers=tuple(dataclasses.replace(t, bandwidth_bytes_per_s=1e5, latency_s=0.0) for t in MACHINES.tiers)
    )
    whole = _steps(plain(), slow).step_s
    assert _steps(local(4.0), slow).step_s == pytest.approx(whole / 4, rel=1e-3)
    assert _steps(compressed(1 / 8, unlike=0.0), slow).step_s == pytest.approx(whole / 8, rel=1e-3)
    assert _steps(compressed(1 / 8), slow).step_s == pytest.approx(whole, rel=1e-3)


def test_what_methods_keep():
    kept = _steps(compressed(1 / 8, "diana")).peak_bytes - _steps(compressed(1 / 8)).peak_bytes
    assert kept == pytest.approx(4.0 * parameters(MODEL), rel=0.1)
    assert _steps(subnetworks()).peak_bytes < _steps(plain()).peak_bytes


def test_a_worker_has_its_part_of_every_layer():
    """Matrices between stream and hidden neurons by 1/n; embedding, head and norms whole."""
    ends = parameters(dataclasses.replace(MODEL, blocks=tuple(b for b in MODEL.blocks if b.name != "layer")))
    inside = parameters(MODEL) - ends
    part = parameters(narrowed(MODEL, 8.0)) - ends
    assert part == pytest.approx(inside / 8, rel=0.01)
    assert narrowed(MODEL, 1.0) == narrowed(narrowed(MODEL, 2.0), 0.5)
    assert model_flop(narrowed(MODEL, 8.0)) < 0.5 * model_flop(MODEL)


def test_a_campaign_multiplies():
    prices = load_cluster("h100").prices
    assert prices is not None
    step, law = _steps(plain()), quadratic(PROBLEM, 1e-6, EXACT)
    bare = campaign(step, plain(), law)
    assert bare["steps"] == pytest.approx(rounds(RATES["gradient_descent"](**PROBLEM), 1e-6, EXACT))
    assert bare["train_s"] == pytest.approx(bare["steps"] * step.step_s)
    state_bytes = STATE_BYTES * parameters(MODEL)
    asked = {"accelerators": 16.0, "state_bytes": state_bytes, "usd_per_s": 0.02, "meter_w": 2e4}
    paid = campaign(step, plain(), law, prices=prices.base, **asked)
    slower = elapsed(prices.base, 16.0, state_bytes)
    assert paid["train_s"] == pytest.approx(slower * bare["train_s"])
    assert paid["usd"] == pytest.approx(0.02 * paid["train_s"])
    assert paid["carbon_g"] == pytest.approx(paid["joule"] / 3.6e6 * 481)


def test_the_law_of_a_language_model():
    law, size, batch = LAWS["besiroglu-2024"], 8e9, 4e6
    steps = language_model(law, size, batch, 2.1, quadratic(PROBLEM, 1e-3, EXACT))
    tokens = tokens_at_batch(tokens_for(law, size, 2.1), batch, 2.1)
    assert steps(plain()) == pytest.approx(tokens / batch)
    ratio = quadratic(PROBLEM, 1e-3, EXACT)
    slower = compressed(1 / 8, "diana")
    assert steps(slower) / steps(plain()) == pytest.approx(ratio(slower) / ratio(plain()))


BANDWIDTHS, TARGETS = np.logspace(6, 12, 13), np.logspace(-1, -7, 13)


@pytest.mark.parametrize("workers", [4, 8, 16])
def test_what_wins_where(workers):
    """Subnetworks win loose targets, below a bandwidth; never below their bias; then the methods that arrive."""
    problem = instance(workers, 64)
    found = phases(MODEL, cluster(workers, domain=8), BANDWIDTHS, TARGETS, problem)
    best = winners(found)
    loose, tight = best[TARGETS > 30 * problem["bias"]], best[TARGETS < problem["bias"]]
    assert "subnetworks" in loose[0]
    assert "subnetworks" not in tight
    assert np.isinf(found["subnetworks"][TARGETS < problem["bias"]]).all()
    assert set(np.unique(tight)) <= {"plain", "dcgd 1/8", "diana 1/8", "ef21 1/8", "diana 1/8 by server"}
    assert all(np.isfinite(found[name]).all() for name in ("plain", "diana 1/8", "ef21 1/8"))
    faster = np.diff(found["plain"], axis=1)
    assert (faster <= 1e-12 * found["plain"][:, 1:]).all()


def test_there_is_a_bandwidth_below_which_subnetworks_win():
    """At a target of 1e-3: above it data parallelism is sooner, below it subnetworks, and it is where they meet."""
    problem = instance(8, 64)
    found = phases(MODEL, cluster(8), np.logspace(6, 12, 200), np.array([1e-3]), problem, ("plain", "subnetworks"))
    ahead = found["plain"][0] > found["subnetworks"][0]
    assert ahead[0]
    assert not ahead[-1]
    assert (np.diff(ahead.astype(int)) == -1).sum() == 1


def _seconds(method, sem, bandwidth, spread, target, accelerators):
    """Through step, failures and rounds at once; arguments over their usual values."""
    prices = load_cluster("h100").prices
    assert prices is not None
    workload, machine, point = prepare(MODEL, MACHINES, Plan(data=16, zero_stage=0))
    narrow, point = applied(method, workload, point)
    tiers = tuple(
        dataclasses.replace(t, bandwidth_bytes_per_s=t.bandwidth_bytes_per_s * bandwidth) for t in machine.tiers
    )
    step = cost(narrow, dataclasses.replace(machine, tiers=tiers), point, sem)
    problem = PROBLEM | {"spread": 1e-4 * spread, "bias": 1e-6, "noise": 1e-3}
    law, job = quadratic(problem, 0.05 * target, sem), {"accelerators": 16.0 * accelerators, "state_bytes": 1e11}
    return campaign(step, method, law, prices=prices.base, **job)["train_s"]


ONES = {"bandwidth": 1.0, "spread": 1.0, "target": 1.0, "accelerators": 1.0}


@pytest.mark.parametrize("name", METHODS)
def test_gradients_equal_finite_differences(name):
    method = METHODS[name]()
    value, slopes = gradient(lambda x: _seconds(method, SUBGRADIENT, **x), ONES)
    for key, slope in slopes.items():
        low, high = (_seconds(method, EXACT, **ONES | {key: 1.0 + h}) for h in (-1e-6, 1e-6))
        assert float(slope) == pytest.approx((high - low) / 2e-6, rel=1e-5, abs=1e-7 * float(value)), key


def test_jax_gives_the_same_gradients():
    method = METHODS["diana 1/8"]()
    with jax.enable_x64(True):
        slopes = jax.device_get(jax.jit(jax.grad(lambda x: _seconds(method, Exact(jnp), **x)))(ONES))
    for key, slope in gradient(lambda x: _seconds(method, SUBGRADIENT, **x), ONES)[1].items():
        assert float(slopes[key]) == pytest.approx(float(slope), rel=1e-9, abs=1e-15)


def test_a_step_of_arrays_is_that_of_numbers():
    many = step_of(plain(), MODEL, MACHINES, np.array([1e9, 2e9])).step_s
    each = [step_of(plain(), MODEL, MACHINES, np.array(b)).step_s for b in (1e9, 2e9)]
    assert np.allclose(many, each, rtol=1e-12)
