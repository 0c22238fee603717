"""Frozen weights, low-rank adapters and gradient-free passes: what they take away, and what they add."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel import evaluate
from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import model_flop, parameters, trained_parameters
from costmodel.models.adapters import freeze, low_rank, weighted
from costmodel.models.decoder import decoder
from costmodel.pytree import as_floats
from costmodel.specs.files import SpecError
from costmodel.specs.workloads import load_workload
from tests.oracles.decoder import forward, parameter_count, product_flop, weights
from tests.support.builders import cluster, small_decoder

SIZES = {
    "layers": 3, "hidden": 48, "heads": 6, "key_value_heads": 2, "head_size": 8, "ffn": 80, "vocabulary": 96,
}  # fmt: skip
TOKENS, RANK = 32, 4


def test_adapters_against_a_traced_decoder():
    """Factors beside queries, keys, values and the output projection, trained alone."""
    base = decoder(**SIZES, gated=True, sequence=TOKENS, batch=1, causal_density=1.0)
    built = low_rank(base, RANK, ("qkv", "attention out"))
    shapes = weights(**SIZES, gated=True)
    factors = [
        {f"{name}{end}": shape for name in ("q", "k", "v", "out") for end, shape in pair(shapes["layers"][0][name])}
        for _ in range(SIZES["layers"])
    ]
    assert trained_parameters(built) == parameter_count(factors)
    assert parameters(built) == parameter_count(shapes) + parameter_count(factors)
    # The first layer's inputs need no gradient, which the model counts: queries, keys, values and their first factors.
    unneeded = 2 * TOKENS * 48 * ((6 + 2 * 2) * 8 + 3 * RANK)
    assert model_flop(built) - unneeded == traced_flop(shapes, factors)


def pair(shape):
    return ("down", (shape[0], RANK)), ("up", (RANK, shape[1]))


class Adapted:
    """A matrix with its factors: `x @ w + (x @ down) @ up`."""

    def __init__(self, w, down, up):
        self.w, self.down, self.up = w, down, up

    def __rmatmul__(self, x):
        return jnp.matmul(x, self.w) + jnp.matmul(jnp.matmul(x, self.down), self.up)

    __jax_array__ = None


def traced_flop(shapes, factors):
    def loss(factors, w, tokens):
        layers = [
            layer | {n: Adapted(layer[n], f[f"{n}down"], f[f"{n}up"]) for n in ("q", "k", "v", "out")}
            for layer, f in zip(w["layers"], factors, strict=True)
        ]
        return jnp.sum(jax.nn.log_softmax(forward(w | {"layers": layers}, tokens, 6, 8)))

    given = jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32),
        (factors, shapes),
        is_leaf=lambda x: isinstance(x, tuple) and isinstance(x[0], int),
    )
    tokens = jax.ShapeDtypeStruct((TOKENS,), jnp.int32)
    return product_flop(jax.make_jaxpr(jax.value_and_grad(loss))(*given, tokens).jaxpr)


@pytest.mark.parametrize("tied", [False, True])
def test_frozen_weights_need_no_gradients_and_no_states(tied):
    whole = small_decoder(tied=tied)
    adapted = low_rank(whole, 8, ("qkv",))
    plan = Plan(data=8, tensor=2, microbatch=2, zero_stage=1)
    free, held = (evaluate(workload, cluster(16), plan) for workload in (whole, adapted))
    stage = held.memory.first
    np.testing.assert_allclose(stage.gradients_bytes, 4.0 * counted_trained(adapted, plan), rtol=1e-12)
    assert stage.optimizer_bytes < 0.05 * free.memory.first.optimizer_bytes
    assert stage.weights_bytes > free.memory.first.weights_bytes
    assert stage.activations_bytes < free.memory.first.activations_bytes
    assert held.model_flop < 0.75 * free.model_flop
    llama, eight = load_workload("llama3-8b", batch=8), cluster(8)  # small models are bound by the launch of kernels
    plan = Plan(tensor=8, sequence_parallel=True)
    slow, fast = (evaluate(workload, eight, plan).step_s for workload in (llama, low_rank(llama, 16, ("qkv",))))
    assert fast < 0.85 * slow


def counted_trained(workload, plan):
    counted = counts(as_floats(workload), embed(plan, workload, 8.0), Exact(math))
    return sum(block.repeats * block.trained_parameters for block in counted.blocks)


def test_freezing_nothing_changes_nothing_and_everything_leaves_nothing():
    whole = small_decoder()
    assert freeze(whole, ()) == whole
    assert trained_parameters(freeze(whole)) == 0
    assert parameters(freeze(whole)) == parameters(whole)
    assert weighted(whole) == ("qkv", "attention out", "ffn up", "ffn down", "logits")


def test_adapters_from_a_file(tmp_path):
    text = "layers = 2\nhidden = 64\nheads = 4\nffn = 256\nvocabulary = 100\nsequence = 32\nbatch = 8\n"
    path = tmp_path / "my.toml"
    path.write_text(text + 'adapter_rank = 4\nadapter_targets = ["qkv", "ffn up"]\n')
    assert trained_parameters(load_workload(path)) == 2 * 4 * (3 * 64 + 3 * 64 + 64 + 256)
    path.write_text(text + 'frozen = ["embedding", "logits"]\n')
    assert trained_parameters(load_workload(path)) == parameters(load_workload(path)) - 2 * 100 * 64
    for extra, words in (
        ('adapter_rank = 4\nadapter_targets = ["qvk"]', "did you mean qkv"),
        ("adapter_rank = 4", "`adapter_targets` is missing"),
        ('frozen = ["head"]', "`frozen` has 'head'"),
        ("frozen = []", "`frozen` is \\[\\]"),
    ):
        path.write_text(f"{text}{extra}\n")
        with pytest.raises(SpecError, match=words):
            load_workload(path)


def test_gradient_free_passes_cost_a_forward_each_and_no_memory():
    once = small_decoder()
    again = dataclasses.replace(once, blocks=tuple(dataclasses.replace(block, forwards=3) for block in once.blocks))
    plan, machine = Plan(data=4, tensor=2, pipeline=2, recompute="full"), cluster(16)
    first, third = evaluate(once, machine, plan), evaluate(again, machine, plan)
    assert third.memory == first.memory
    assert model_flop(again) * 3 == model_flop(once) * 5
    np.testing.assert_allclose(third.step_s, sum(term.exposed_s for term in third.terms))
    assert all(term.hidden_s >= 0 for term in third.terms)
    ratio = term_s(third, "matmuls") / term_s(first, "matmuls")
    assert 1.6 < ratio < 1.7  # 5 to 3, but for the weight gradient's accumulator


def term_s(answer, name):
    return next(term.exposed_s for term in answer.terms if term.name == name)
