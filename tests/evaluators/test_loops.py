"""Programs in loops that we cut: the numbers of JAX, whatever differs by the point and however they are cut."""

import dataclasses

import jax
import numpy as np
import pytest
from jax import numpy as jnp

from costmodel.evaluators import compiled, loops, machine_code
from costmodel.evaluators.dual import SUBGRADIENT, gradient
from costmodel.formulas import cost
from experiments.speed.subject import Pool, cast, subject


def run(program, trees):
    """The results of the program in loops."""
    shapes = [machine_code.packed(tree)[2] or () for tree in trees]
    arrays = [machine_code.packed(tree)[0] for tree in trees]
    cut = jax.jit(loops.in_loops(program, trees, shapes)).lower(*arrays).compile(compiler_options={**loops.OPTIONS})
    return cut(*arrays)


def every_operation(numbers, points):
    a, b, c = *points, numbers["own"]
    chosen = jnp.where((a > b) & ~(a < 0.5) | (a == c) | (b <= 0.2), jnp.maximum(a, b) - c, jnp.minimum(a, -b))
    roots = jnp.sqrt(a) + jax.lax.rsqrt(b) + a**0.5 * b**-0.5 + a**3 / 4.0 - 2.0 / b
    rest = jnp.exp(-a) + jnp.log(b) + jnp.log1p(a) + jnp.floor(3 * b) + jnp.abs(a - b) * jnp.sign(a - c) + a**1.7
    edges = {"own": 2 * c, "one": jax.lax.integer_pow(a, 0) * b, "signed": 1 / jnp.where(a > b, 0.0, -0.0)}
    return {"chosen": chosen, "all": (chosen + roots, rest), "twice": chosen, "number": c + 0 * a, "input": b} | edges


@pytest.mark.parametrize("points", [(), (1,), (7,), (512,), (768,), (771,)])
@pytest.mark.parametrize("group", [1, 5, 1000])
def test_every_operation_is_that_of_jax(points, group, monkeypatch):
    if group == 1 and points not in ((7,), (512,)):
        pytest.skip("the same cuts")
    monkeypatch.setattr(loops, "GROUP", group)
    random = np.random.default_rng(len(points))
    drawn = tuple(random.uniform(0.1, 2.0, points).astype(np.float32)[()] for _ in range(2))
    trees = {"own": np.float32(0.7)}, drawn
    found, expected = run(every_operation, trees), jax.jit(every_operation)(*trees)
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (own.shape, own.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(own, other, 2e-6, 1e-6)


def test_what_is_not_element_by_element_is_refused():
    """Nor conversions that round."""
    x = np.ones(8, np.float32)
    rounded = (lambda x, kind=kind: {"y": 1.0 * x.astype(kind)} for kind in ("int32", "bool", "bfloat16"))
    for program in (lambda x: {"y": jnp.cumsum(x)}, lambda x: {"y": jnp.sin(x)}, *rounded):
        with pytest.raises(ValueError, match=r"costmodel/evaluators/loops.py"):
            run(program, (x,))


def test_points_are_cut_in_equal_parts():
    for points, chunk in ((0, 0), (1, 1), (256, 256), (512, 256), (1000, 250), (8192, 256), (8191, 8191)):
        assert loops._chunk(points) == chunk


def test_gradients_are_those_of_dual_numbers():
    """By every degree, beside float64, away from kinks: errors beside the slope, or beside an elasticity of 1 %."""
    workload, cluster = subject()
    points, random = Pool(96, seed=3).batch(256, np.float64), np.random.default_rng(3)
    at = {name: getattr(points, name) * random.uniform(1.003, 1.2, 256) for name in compiled.DEGREES}
    at = {name: degree.astype(np.float32).astype(float) for name, degree in at.items()}

    def step_s(moved):
        return cost(workload, cluster, dataclasses.replace(points, **moved), SUBGRADIENT).step_s

    value, slopes = gradient(step_s, at)
    there = dataclasses.replace(points, **at)
    found = run(compiled.gradient_program(), tuple(cast(compiled.anonymous(tree)) for tree in (*subject(), there)))
    np.testing.assert_allclose(found.value, value, 2e-6)
    for name, slope in slopes.items():
        error = np.abs(found.plan[name] - slope) / np.maximum(np.abs(slope), 0.01 * value / at[name])
        assert np.median(error) < 1e-6, name
        assert error.max() < 1e-3, name
