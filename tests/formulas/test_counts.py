"""Counts against a decoder that is traced, against hand-derived totals, and against the scaling paper's exponents."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.inputs import Position
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import model_flop, parameters
from costmodel.models.decoder import decoder
from costmodel.pytree import as_floats
from costmodel.semantics import total
from tests.oracles import decoder as oracle

SMALL = {
    "layers": 3, "hidden": 48, "heads": 6, "key_value_heads": 2, "head_size": 8, "ffn": 80, "vocabulary": 96,
}  # fmt: skip


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("key_value_heads", [1, 2, 6])
def test_parameters_and_flop_against_a_traced_decoder(gated, key_value_heads):
    sizes = SMALL | {"key_value_heads": key_value_heads}
    shapes = oracle.weights(**sizes, gated=gated)
    built = decoder(**sizes, gated=gated, sequence=32, batch=1, causal_density=1.0)
    assert parameters(built) == oracle.parameter_count(shapes)
    assert model_flop(built) == oracle.training_flop(shapes, 32, sizes["heads"], sizes["head_size"])


def test_flop_per_token_is_six_n_plus_attention_by_hand():
    """Llama-3 8B: N = 32 (2 x 4096^2 + 2 x 4096 x 1024 + 3 x 4096 x 14336) + 4096 x 128256 = 7,504,658,432."""
    llama = decoder(
        layers=32, hidden=4096, heads=32, key_value_heads=8, ffn=14336, gated=True, vocabulary=128256,
        sequence=8192, batch=1,
    )  # fmt: skip
    attention = 32 * 6 * 8192 * 4096  # causal: half of 12 L s h
    assert model_flop(llama) / 8192 == 6 * 7_504_658_432 + attention
    assert parameters(llama) == 8_030_261_248


def test_flop_of_gpt3_by_hand():
    """6 N with N = 96 x 12 x 12288^2 + 12288 x 50257, and 6 L s h for causal attention."""
    gpt = decoder(
        layers=96, hidden=12288, heads=96, ffn=49152, vocabulary=50257, sequence=2048, batch=1,
        bias=True, layer_norm=True, learned_positions=True, tied=True,
    )  # fmt: skip
    n = 96 * 12 * 12288**2 + 12288 * 50257
    assert model_flop(gpt) / 2048 == 6 * n + 6 * 96 * 2048 * 12288


@pytest.mark.parametrize(
    "plan",
    [
        Plan(tensor=2),
        Plan(tensor=2, sequence_parallel=True, data=4),
        Plan(context=4, microbatch=2),
        Plan(tensor=2, context=2, pipeline=3, microbatch=2),
        Plan(tensor=2, context=2, context_kind="all_to_all"),
    ],
)
def test_every_rank_does_its_share_of_the_flop(plan):
    """All ranks together do the whole model's FLOP: nothing is lost and nothing is done twice."""
    built = decoder(**SMALL, gated=True, sequence=32, batch=48)
    counted = counts(as_floats(built), embed(plan, built, 8.0), Exact(math))
    forward = total(b.repeats * total(op.flop for op in b.matmuls + b.attentions) for b in counted.blocks)
    per_step = 3 * forward * counted.microbatches * plan.tensor * plan.context * plan.data
    np.testing.assert_allclose(per_step, built.batch * model_flop(built), rtol=1e-12)


def test_key_value_heads_are_replicated_beyond_their_number():
    """6 ranks share 2 key-value heads: each computes one of them whole."""
    built = as_floats(decoder(**SMALL, sequence=32, batch=1))
    counted = counts(built, embed(Plan(tensor=6), built, 8.0), Exact(math))
    qkv = next(m for b in counted.blocks for m in b.matmuls if m.name == "qkv")
    assert qkv.weight_elements == 48 * (8 + 2 * 8)


def edge_and_slack(hidden, sequence, batch, tensor):
    """FLOP per byte of tensor traffic, and backward FLOP per byte of gradients, as the scaling paper counts them.

    Layers only (no norm, no head), attention not halved, two bytes per element (papers_scaling_and_clusters 3.2).
    """
    built = decoder(
        layers=1, hidden=hidden, heads=128.0, ffn=4 * hidden, vocabulary=1.0, sequence=sequence, batch=batch,
        causal_density=1.0,
    )  # fmt: skip
    start = embed(Plan(microbatch=1, gradient_dtype="bf16"), decoder(**SMALL, sequence=32, batch=1), 8.0)
    point = jax.tree.map(lambda leaf: leaf, start)
    point = type(point)(**(vars(point) | {"tensor": tensor, "accelerators": tensor, "microbatch": batch}))
    layer = next(b for b in counts(built, point, Exact(jnp)).blocks if b.position == Position.LAYER)
    matmuls = total(m.flop for m in layer.matmuls)
    forward = matmuls + total(a.flop for a in layer.attentions)
    edge = 3 * forward / (2 * layer.sync_bytes)  # two all-reduces forward, two backward
    slack = 2 * matmuls / (layer.matrix_parameters * point.gradient_bytes)
    return jnp.stack([edge, slack])


@pytest.mark.parametrize(
    ("hidden", "sequence", "batch", "tensor"), [(4096.0, 1024.0, 1.0, 16.0), (16384.0, 4096.0, 4.0, 64.0)]
)
def test_edge_and_slack_and_their_elasticities(hidden, sequence, batch, tensor):
    """Edge 3 (6 H + SL) / (d TP) and slack 2 SL B; elasticities 6H/(6H+SL), SL/(6H+SL), 0, -1 and 0, 1, 1, 0."""
    point = jnp.array([hidden, sequence, batch, tensor])
    value = edge_and_slack(*point)
    expected = [3 * (6 * hidden + sequence) / (2 * tensor), 2 * sequence * batch]
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    elasticity = jax.jacobian(lambda logs: jnp.log(edge_and_slack(*jnp.exp(logs))))(jnp.log(point))
    share = 6 * hidden / (6 * hidden + sequence)
    np.testing.assert_allclose(elasticity, [[share, 1 - share, 0, -1], [0, 1, 1, 0]], atol=0.02)


def test_traced_sizes_pass_through_as_floats():
    """A workload of traced sizes is prepared like any other (notebook loss_in_your_code)."""

    def flop(hidden):
        built = as_floats(decoder(**(SMALL | {"hidden": hidden}), sequence=32, batch=1))
        assert isinstance(built.sequence, float)
        return model_flop(built)

    slope = jax.grad(flop)(48.0)
    np.testing.assert_allclose(slope, (flop(49.0) - flop(47.0)) / 2, rtol=1e-5)
