"""Goodput: the best interval against a numerical optimum, the formula against failures at random, published counts."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from costmodel import load_cluster
from costmodel.formulas import STATE_BYTES, checkpoint_s, elapsed, failures_per_s, interval_s, lost_share

HOUR, DAY = 3600.0, 86400.0
STATE = 405e9 * STATE_BYTES


def _shipped(case="base"):
    prices = load_cluster("h100").prices
    assert prices is not None
    return getattr(prices, case)


def _daly(failures, checkpoint, restart, interval):
    """Seconds of the clock for one of training when failures are random: Daly 2006, equation 13."""
    return math.exp(failures * restart) * math.expm1(failures * (interval + checkpoint)) / (failures * interval)


@pytest.mark.parametrize("mean_hours", [0.5, 3.0, 50.0])
@pytest.mark.parametrize("checkpoint", [0.5, 10.0, 60.0])
def test_the_best_interval_is_the_numerical_optimum(mean_hours, checkpoint):
    failures, restart = 1 / (mean_hours * HOUR), 300.0
    best = interval_s(failures, checkpoint)
    found = minimize_scalar(
        lambda log: lost_share(failures, checkpoint, restart, math.exp(log)), (math.log(best / 9), math.log(best * 4))
    )
    assert best == pytest.approx(math.exp(found.x), rel=1e-6)
    exact = minimize_scalar(
        lambda log: _daly(failures, checkpoint, restart, math.exp(log)), (math.log(best / 9), math.log(best * 4))
    )
    share = lost_share(failures, checkpoint, restart, best)
    assert best == pytest.approx(math.exp(exact.x), rel=math.sqrt(failures * checkpoint))
    if share < 0.3:  # at most a tenth of what is lost
        assert math.exp(share) - 1 == pytest.approx(exact.fun - 1, rel=0.1)
        assert (1 + share / 16) ** 16 - 1 == pytest.approx(exact.fun - 1, rel=0.1)


def test_random_failures_played_out_take_as_long():
    """10,000 hours of training with exponential times to failure, work since the last checkpoint lost."""
    failures, checkpoint, restart = 1 / (3 * HOUR), 30.0, 600.0
    interval, rng, clock = interval_s(failures, checkpoint), np.random.default_rng(0), 0.0
    pieces = int(10_000 * HOUR / interval)
    for _ in range(pieces):
        while (fails := rng.exponential(1 / failures)) < interval + checkpoint:
            clock += fails + restart + _again(rng, failures, restart)
        clock += interval + checkpoint
    share = lost_share(failures, checkpoint, restart, interval)
    assert clock / (pieces * interval) == pytest.approx((1 + share / 16) ** 16, rel=0.01)


def _again(rng, failures, restart):
    """Seconds lost where a restart fails too."""
    lost = 0.0
    while (fails := rng.exponential(1 / failures)) < restart:
        lost += fails
    return lost


PUBLISHED = {  # interruptions: accelerators, days, count; or the mean hours between them
    "Llama 3 405B": (16384, 54, 419),
    "OPT-175B": (992, 60, 105),
    "Meta RSC-1, 1,024": (1024, 7.9 / 24, 1),
    "Meta RSC-1, 16,384": (16384, 1.8 / 24, 1),
    "Meta RSC-1, 131,072": (131072, 0.23 / 24, 1),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_interruptions_lie_in_the_range(name):
    accelerators, days, count = PUBLISHED[name]
    low, base, high = (failures_per_s(_shipped(c), accelerators) * days * DAY for c in ("low", "base", "high"))
    assert low < count < high
    if name in ("Llama 3 405B", "OPT-175B"):
        assert base == pytest.approx(count, rel=0.1)


def test_llama_3_trains_more_than_nine_tenths_of_the_time():
    assert 0.9 < 1 / elapsed(_shipped(), 16384.0, STATE) < 0.97


def test_llama_3_writes_a_checkpoint_in_seconds():
    """405 billion parameters at 14 bytes over 2 TB/s."""
    assert checkpoint_s(_shipped(), 16384.0, STATE) == pytest.approx(STATE / 2e12, rel=0.05)


def test_a_larger_cluster_is_not_free():
    """Lost seconds grow faster than the accelerators; gradients are those of differences."""
    import jax

    prices = dataclasses.replace(_shipped(), tiers=None)

    def lost(n):
        return elapsed(prices, n, STATE)

    assert lost(131072.0) - 1 > 4 * (lost(16384.0) - 1)
    slope = (lost(16384.0 * 1.001) - lost(16384.0 * 0.999)) / (16384 * 0.002)
    assert float(jax.jit(jax.grad(lost))(16384.0)) == pytest.approx(slope, rel=1e-3)
