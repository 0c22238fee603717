"""The tests of form for every family of models: gradients, convexity, traces, terms (DESIGN sections 5 and 6).

The same checks as for the decoder in test_gradients.py and test_convexity.py, on small workloads.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.evaluators import compiled, compiled_kinds
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.breakdown import breakdown
from costmodel.formulas.cost import cost, parts
from costmodel.inputs.plan import Plan
from costmodel.models.dlrm import dlrm
from costmodel.models.encoder import encoder
from costmodel.models.encoder_decoder import encoder_decoder
from costmodel.models.evoformer import evoformer
from costmodel.models.swin import swin
from costmodel.pytree import as_floats
from tests.formulas.test_convexity import TOLERANCE, gaps, log_step
from tests.formulas.test_gradients import KINK, QUICK, STEP, units
from tests.support.builders import cluster, small_decoder, small_moe
from tests.support.interpreted import interpreted
from tests.support.strategies import cluster_batch, double, point_batch
from tests.support.trees import flatten, unflatten

FAMILIES = {
    "decoder": small_decoder(),
    "moe": small_moe(),
    "encoder": encoder(layers=4, hidden=64, heads=4, vocabulary=1000, ffn=256, sequence=64, positions=64, batch=256),
    "encoder-decoder": encoder_decoder(
        layers=4, decoder_layers=3, hidden=64, heads=4, vocabulary=1000, ffn=256, sequence=64, decoder_sequence=48,
        batch=256, bias=True, layer_norm=True, embedding_norm=True, learned_positions=True,
    ),
    "swin": swin(depths=(2, 3), hidden=24, heads=(2, 4), image=64, window=(4, 4), classes=10, batch=256),
    "evoformer": evoformer(
        layers=3, sequences=8, residues=16, batch=256, hidden=32, pair_hidden=16, heads=4, pair_heads=2, outer_size=6,
        extra_layers=2, extra_sequences=20, extra_hidden=8, recycles=1,
    ),
    "dlrm": dlrm(tables=(500, 200, 70), hidden=16, dense_features=5, bottom=(24, 16), top=(32, 8, 1), batch=4096),
}  # fmt: skip
WITH_EXPERTS = ("moe", "dlrm")  # or tables, which lie on the same mesh
SCALAR, NUMPY = Exact(math), Exact(np)
BATCH, CHORDS = 48, 2_000
families = pytest.mark.parametrize("family", FAMILIES)


def jobs(family, n, seed, **kind):
    """`n` random option rows on random clusters; degrees of experts where the family has them."""
    rng = np.random.default_rng(seed)
    point, batch = point_batch(rng, n, mixed=True, relaxed=True, **kind)
    if family in WITH_EXPERTS:
        ranks = point.accelerators / point.pipeline
        point = dataclasses.replace(point, expert=ranks**0.45, expert_tensor=ranks**0.25)
    workload = dataclasses.replace(as_floats(FAMILIES[family]), batch=batch)
    return workload, cluster_batch(rng, n, 3), point


def alone(n):
    """Random option rows on one accelerator, eight microbatches."""
    point, _ = point_batch(np.random.default_rng(5), n)
    degrees = ("accelerators", "tensor", "context", "pipeline", "virtual_stages", "copies")
    return dataclasses.replace(point, **dict.fromkeys(degrees, np.ones(n)))


def slopes():
    """The gradient of the logs of step and peak, with weights of their own, by everything but the workload.

    Traced by JAX and run by NumPy: compiling all families would take two minutes.
    """

    def logs(args, job, weights):
        _, machine, point = job
        at = cost(job[0], unflatten(machine, args, "cluster"), unflatten(point, args, "point"), Exact(jnp))
        return jnp.sum(weights[0] * jnp.log(at.step_s) + weights[1] * jnp.log(at.peak_bytes))

    return interpreted(jax.grad(logs))


def leaves(job):
    return {**flatten(job[1], "cluster"), **flatten(job[2], "point")}


def logs_of(job, args):
    found = cost(job[0], unflatten(job[1], args, "cluster"), unflatten(job[2], args, "point"), NUMPY)
    return np.log(np.stack(np.broadcast_arrays(found.step_s, found.peak_bytes)))


@families
def test_gradients_equal_central_differences(family):
    job = jobs(family, BATCH, seed=11)
    args = {name: np.broadcast_to(value, BATCH).astype(float) for name, value in leaves(job).items()}
    with double():
        pulled = slopes()
        found = [pulled(args, job, row) for row in np.eye(2)]
    automatic = np.stack([[np.asarray(by[name]) * units(args)[name] for name in args] for by in found])
    middle, sides = logs_of(job, args), []
    for sign in (-1, 1):
        moved = {name: np.tile(value, (len(args), 1)) for name, value in args.items()}
        for i, name in enumerate(args):
            moved[name][i] += sign * STEP * units(args)[name]
        sides.append(sign * (logs_of(job, moved) - middle[:, None]) / STEP)
    gap, central = np.abs(sides[1] - sides[0]), (sides[0] + sides[1]) / 2
    smooth = gap < KINK * (1 + np.abs(central))
    assert np.mean(smooth) > 0.96
    excess = np.where(smooth, np.abs(automatic - central) - 2e-6 * (1 + np.abs(central)) - gap, -1.0)
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    assert excess[worst] <= 0, (list(args)[worst[1]], automatic[worst], central[worst])


@families
def test_float32_gradients_are_finite_at_every_degree_1(family):
    """Traced by JAX and run by NumPy, which keep to 32 bits."""
    point, machine = alone(BATCH), cluster_batch(np.random.default_rng(6), BATCH, 3)
    workload = dataclasses.replace(as_floats(FAMILIES[family]), batch=8 * point.microbatch)
    job = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), (workload, machine, point))

    def total_s(workload, machine, point):
        found = cost(workload, machine, point, Exact(jnp))
        return jnp.sum(jnp.log(found.step_s) + jnp.log(found.peak_bytes))

    found = interpreted(jax.grad(total_s, argnums=(1, 2)))(*job)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))
    by_bandwidth = np.asarray(found[0].accelerator.hbm_bytes_per_s)
    assert (by_bandwidth <= 0).all()
    assert np.mean(by_bandwidth < 0) > 0.95  # a host that is slower than its accelerator leaves nothing to gain


@families
@pytest.mark.parametrize("tiers", [2, 3])
def test_log_step_is_convex_in_the_hardware(family, tiers):
    workload, _, point = jobs(family, CHORDS, seed=3)
    rng = np.random.default_rng(tiers)
    gap = gaps(log_step(workload, point), cluster_batch(rng, CHORDS, tiers), rng, CHORDS)
    assert np.isfinite(gap).all()
    assert gap.max() <= TOLERANCE
    assert np.mean(gap < -TOLERANCE) > 0.9


PLANS = {
    "plain": Plan(data=64, zero_stage=1),
    "context": Plan(data=32, context=2, zero_stage=3, recompute="full", overlap_data=True, sequence_parallel=True),
    "unfused": Plan(data=64, zero_stage=2, attention="unfused", schedule="gpipe", overlap_tensor=True),
}


@families
def test_one_trace_serves_all_plans_and_sizes(family):
    traces = []

    @jax.jit
    def value(workload, machine, point):
        traces.append(1)
        return cost(workload, machine, point, Exact(jnp))

    for seed, uneven in enumerate((False, True, True)):
        workload, machine, point = jobs(family, 16, seed, uneven=uneven)
        doubled = jax.tree.map(lambda leaf, seed=seed: np.asarray(leaf * (1 + seed), np.float32), workload)
        machine, point = jax.tree.map(np.float32, (compiled.anonymous(machine), with_extra_layers(point)))
        value.trace(doubled, machine, point)
    assert len(traces) == 1


def with_extra_layers(point):
    """The three fields of uneven layers as arrays, whether the point has them or not."""
    names = ("extra_layers_first", "extra_layers_middle", "extra_layers_last")
    return dataclasses.replace(point, **{name: getattr(point, name) * np.ones(16) for name in names})


@families
@pytest.mark.parametrize("plan", PLANS)
def test_terms_sum_to_the_step(family, plan):
    workload, machine, point = prepare(FAMILIES[family], cluster(), PLANS[plan])
    answer = breakdown(workload, machine, point, parts(workload, machine, point, SCALAR), SCALAR)
    step_s = cost(workload, machine, point, SCALAR).step_s
    assert sum(term.exposed_s for term in answer.terms) == pytest.approx(step_s, rel=1e-12)


FOUR = swin(depths=(1, 2, 2, 2), hidden=24, heads=(2, 4, 8, 8), image=64, window=(4, 4, 4, 2), classes=10, batch=64)


@pytest.mark.parametrize(
    ("workload", "most_together"),
    [
        pytest.param(FAMILIES["encoder-decoder"], 1, id="as if two were many"),
        pytest.param(FOUR, compiled_kinds.KINDS_TOGETHER, id="four stages"),
    ],
)
def test_many_kinds_of_layer_are_evaluated_apart(workload, most_together, monkeypatch):
    """`compiled` ends fusion between kinds, and pulls gradients back through programs of their own."""
    monkeypatch.setattr(compiled_kinds, "KINDS_TOGETHER", most_together)
    monkeypatch.setattr(compiled, "COMPILER_OPTIONS", {"gradient": QUICK})
    compiled._gradient.cache_clear()
    assert compiled_kinds.many_kinds(workload)
    workload, (_, machine, point) = as_floats(workload), jobs("swin", 8, seed=2)
    single = jax.tree.map(np.float32, (compiled.anonymous(workload), compiled.anonymous(machine), point))
    values, expected = compiled.value_program()(*single), cost(workload, machine, point, NUMPY)
    np.testing.assert_allclose(values.step_s, expected.step_s, rtol=2e-5)
    np.testing.assert_allclose(values.peak_bytes, expected.peak_bytes, rtol=2e-5)
    slopes = compiled.gradient(("tensor", "microbatch"))(*single)
    np.testing.assert_allclose(slopes.value, expected.step_s, rtol=2e-5)
    for name, slope in slopes.plan.items():
        x = getattr(point, name)
        moved = [dataclasses.replace(point, **{name: x * (1 + h)}) for h in (1e-6, -1e-6)]
        up, down = (cost(workload, machine, at, NUMPY).step_s for at in moved)
        np.testing.assert_allclose(slope * x, (up - down) / 2e-6, rtol=2e-3, atol=1e-4 * up.max(), err_msg=name)
