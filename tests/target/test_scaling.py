"""Scaling laws: allocation by gradient against the closed form, inverses, published figures, samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from costmodel.target import (
    LAWS,
    best_parameters,
    critical_batch,
    floor_of,
    least_flop,
    loss,
    sampled,
    tokens_at_batch,
    tokens_for,
)

EACH = pytest.mark.parametrize("name", LAWS)


@EACH
@pytest.mark.parametrize("flop", [1e19, 5.76e23, 1e27])
def test_the_best_allocation_by_gradient_is_the_closed_form(name, flop):
    law = LAWS[name]

    def value(log_size):
        size = jnp.exp(log_size[0])
        return loss(law, size, flop / (6 * size))

    with jax.enable_x64(True):
        both = jax.jit(jax.value_and_grad(value))
        found = minimize(
            lambda x: [np.asarray(part, float) for part in jax.device_get(both(jnp.asarray(x)))],
            [np.log(flop / 6) / 2],
            jac=True,
            tol=1e-14,
        )
    assert np.exp(found.x[0]) == pytest.approx(best_parameters(law, flop), rel=5e-3)


@EACH
def test_what_a_loss_takes_gives_the_loss(name):
    law, target = LAWS[name], 2.05
    flop = least_flop(law, target)
    size = best_parameters(law, flop)
    assert loss(law, size, flop / (6 * size)) == pytest.approx(target, rel=1e-12)
    assert tokens_for(law, size, target) == pytest.approx(flop / (6 * size), rel=1e-9)
    assert 6 * 2 * size * tokens_for(law, 2 * size, target) > flop
    assert floor_of(law, size) < target


def test_published_consequences():
    """Besiroglu et al. 2024: a = .513; at Chinchilla's compute about 20 tokens a parameter, by the first fit more."""
    refit, first = LAWS["besiroglu-2024"], LAWS["hoffmann-2022"]
    assert refit["beta"] / (refit["alpha"] + refit["beta"]) == pytest.approx(0.513, abs=5e-4)
    ratios = [5.76e23 / 6 / best_parameters(law, 5.76e23) ** 2 for law in (refit, first)]
    assert ratios[0] == pytest.approx(20, rel=0.15)
    assert ratios[1] > 3 * ratios[0]


def test_steps_and_tokens_trade_at_the_critical_batch():
    target, batch = 2.0, critical_batch(2.0)
    assert batch == pytest.approx(2.1e8 / 2.0 ** (1 / 0.21), rel=1e-12)
    assert tokens_at_batch(1e12, batch, target) == pytest.approx(2e12)
    assert tokens_at_batch(1e12, 1e-3 * batch, target) == pytest.approx(1e12, rel=2e-3)


@EACH
def test_gradients_equal_finite_differences(name):
    law = LAWS[name]
    functions = {
        "loss": lambda n: loss(law, n, 1e12),
        "tokens": lambda n: tokens_for(law, n, 2.1),
        "best": lambda n: best_parameters(law, 1e13 * n),
        "least": lambda n: least_flop(law, 1.9 + 1e-11 * n),
        "at batch": lambda n: tokens_at_batch(n, 4e6, 2.0 + 1e-12 * n),
    }
    with jax.enable_x64(True):
        slopes = jax.device_get(jax.jit(jax.jacobian(lambda n: {k: f(n) for k, f in functions.items()}))(3e10))
    for key, function in functions.items():
        slope = (function(3e10 * (1 + 1e-6)) - function(3e10 * (1 - 1e-6))) / 6e4
        assert float(slopes[key]) == pytest.approx(slope, rel=1e-5), key


def test_samples_keep_the_terms_where_the_data_were():
    """Exponents scatter as published; the loss at the data scatters as its floor does, and away from them more."""
    laws = list(sampled("besiroglu-2024", 2000))
    assert np.std([law["alpha"] for law in laws]) == pytest.approx(0.02, rel=0.1)
    near, far = (np.std([loss(law, n, d) for law in laws]) for n, d in ((1e9, 2e10), (1e12, 2e13)))
    assert near == pytest.approx(0.03, rel=0.1)
    logs = np.log([[law["a"], law["b"]] for law in laws])
    assert np.corrcoef(logs[:, 0], [law["alpha"] for law in laws])[0, 1] > 0.99
    spread = np.std([np.log(law["b"] / 2e13 ** law["beta"]) for law in laws])
    assert spread == pytest.approx(0.02 * np.log(1e3), rel=0.1)
    assert far > 0
