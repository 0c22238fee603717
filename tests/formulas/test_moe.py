"""Mixtures of experts: totals, a traced model, ranks that share the work, traffic, memory, and the tests of form."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.breakdown import breakdown
from costmodel.formulas.cost import cost, parts
from costmodel.formulas.counts import counts
from costmodel.formulas.traffic import laws, tokens_s
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import model_flop
from costmodel.models.moe import Latent
from costmodel.pytree import map_leaves
from costmodel.semantics import total
from costmodel.specs.rules import violations
from tests.oracles import moe as oracle
from tests.support.builders import cluster, small_moe
from tests.support.interpreted import interpreted

SEM, NUMPY = Exact(math), Exact(np)
PLANS = [
    Plan(data=64),
    Plan(data=64, expert=8),
    Plan(data=32, tensor=2, sequence_parallel=True, expert=16),
    Plan(data=16, tensor=2, context=2, sequence_parallel=True, expert=4, expert_tensor=2),
    Plan(data=16, pipeline=4, expert=16, expert_tensor=1, zero_stage=3, stage_layers=(1, 2, 1, 1)),
]


def test_flop_against_a_traced_model():
    sizes = {"hidden": 128, "heads": 8, "sequence": 128, "experts": 16, "top_k": 4, "vocabulary": 1000}
    latent = Latent(query_rank=48, key_value_rank=32, nope_size=16, rope_size=8, value_size=16)
    traced = oracle.training_flop(
        **sizes, latent=latent, ffn=96, shared=96, dense_ffn=512, layers=("dense", *("experts",) * 4)
    )
    assert model_flop(small_moe(causal_density=1.0)) == traced


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_all_ranks_together_do_the_whole_models_work(plan):
    """But for what is replicated over tensor ranks: projections down to latent ranks, and the router without SP."""
    workload, machine, point = prepare(small_moe(), cluster(), plan)
    counted = counts(workload, point, SEM)
    ranks = plan.tensor * plan.context * plan.data
    flop = total(
        b.repeats * total(op.flop * (1 if op.name in ONCE and plan.tensor > 1 else plan.tensor) for op in b.matmuls)
        + b.repeats * plan.tensor * total(a.flop for a in b.attentions)
        for b in counted.blocks
    )
    whole = 3 * flop * counted.microbatches * ranks / plan.tensor
    np.testing.assert_allclose(whole, workload.batch * model_flop(workload), rtol=1e-12)


ONCE = ("latent down",)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_all_weights_are_held_once_on_each_mesh(plan):
    """Experts over expert x expert_tensor ranks, the rest over tensor ranks (latent ranks and norms replicated)."""
    workload, _, point = prepare(small_moe(), cluster(), plan)
    layer = counts(workload, point, SEM).blocks[2]
    experts = 16 * 3 * 128 * 96
    assert layer.expert_parameters * plan.expert * plan.expert_tensor == experts


def test_tokens_sent_to_experts_by_hand():
    """16 x 128 tokens of 128 elements of 2 bytes, each to 4 experts: payload of dispatch and return of one rank."""
    plan = Plan(data=8, tensor=2, context=2, sequence_parallel=True, expert=8, microbatch=16)
    workload, _, point = prepare(small_moe(), cluster(32), plan)
    layer = counts(workload, point, SEM).blocks[2]
    assert layer.exchange_bytes == 2 * (16 * 128 / 4) * 4 * 128 * 2


def test_the_hosts_work_grows_with_the_experts_of_a_rank():
    """16 experts over 8 and over 4 ranks: 2 and 4 products of each kind to start, the rest as for 5 experts."""
    stack = dataclasses.replace(cluster().stack, routing_s=16e-3)
    added_s = []
    for degree, here in ((8, 2), (4, 4)):
        workload, machine, point = prepare(small_moe(), cluster(), Plan(data=64, expert=degree))
        counted = counts(workload, point, SEM)
        layer, law = counted.blocks[2], laws(counted, point, machine, machine.stack, SEM)
        assert layer.experts == here
        times = [tokens_s(layer, law, each, SEM) for each in (stack, dataclasses.replace(stack, routing_s=0.0))]
        added_s.append(times[0] - times[1])
    np.testing.assert_allclose(added_s, [7e-3, 9e-3], rtol=1e-9)


def test_copies_for_one_domain_are_sent_once():
    """With at most 2 domains for 4 experts, half of the bytes that leave the innermost domain remain; where routing is
    free, the 2 domains that 16 ranks fill are reached by 2 (1 - (1/2)^4) of the 4 copies."""
    plan = Plan(data=64, expert=16)

    def by_tier(groups, sent_once):
        workload, machine, point = prepare(small_moe(expert_groups=groups), cluster(), plan)
        stack = dataclasses.replace(machine.stack, sent_once=sent_once)
        return laws(counts(workload, point, SEM), point, machine, stack, SEM).experts.exchange.by_tier

    every, limited, once = by_tier(None, 0.0), by_tier(2, 0.0), by_tier(None, 1.0)
    assert limited[0] == once[0] == every[0]
    assert limited[1] == every[1] / 2
    assert once[1] == pytest.approx(every[1] * 2 * (1 - 0.5**4) / 4)


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_terms_sum_to_the_step_and_expert_traffic_is_shown(plan):
    if plan.stage_layers is None:
        answer = evaluate(small_moe(), cluster(), plan)
    else:
        workload, machine, point = prepare(small_moe(), cluster(), plan)
        answer = breakdown(workload, machine, point, parts(workload, machine, point, SEM), SEM)
    workload, machine, point = prepare(small_moe(), cluster(), plan)
    np.testing.assert_allclose(answer.step_s, cost(workload, machine, point, SEM).step_s, rtol=1e-12)
    sent = next(term for term in answer.terms if term.name == "expert traffic")
    assert (sent.exposed_s > 0) == (plan.expert > 1)


def test_overlap_hides_expert_traffic_and_imbalance_slows_experts():
    plan = Plan(data=64, expert=16)
    plain = evaluate(small_moe(), cluster(), plan)
    hidden = evaluate(small_moe(), cluster(), dataclasses.replace(plan, overlap_expert=True))
    slower = evaluate(small_moe(imbalance=1.5), cluster(), plan)
    assert hidden.step_s < plain.step_s < slower.step_s
    assert slower.model_flop == plain.model_flop


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"expert": 3}, ["`expert` is 3", "16 experts"]),
        ({"expert": 32, "data": 64}, ["`expert` is 32", "16 experts"]),
        ({"expert": 16, "expert_tensor": 5}, ["divisor of `tensor` x `context` x `data`"]),
        ({"tensor": 2, "data": 32}, ["sequence_parallel"]),
    ],
)
def test_broken_rules_of_experts_are_named(changes, words):
    said = " | ".join(violations(Plan(**({"data": 64} | changes)), small_moe(), cluster()))
    assert all(word in said for word in words), said


def test_a_dense_model_has_no_experts():
    from tests.support.builders import small_decoder

    assert "has no experts" in " | ".join(violations(Plan(data=64, expert=2), small_decoder(), cluster()))


GRADIENT = interpreted(jax.grad(lambda w, c, p: jnp.log(cost(w, c, p, Exact(jnp)).step_s), argnums=(1, 2)))
DEGREES = ("expert", "expert_tensor", "tensor", "context", "pipeline", "microbatch")


def test_gradients_equal_finite_differences_and_float32_equals_float64():
    workload, machine, point = prepare(small_moe(), cluster(), PLANS[3])
    factors = zip(DEGREES, (1.1, 1.2, 1.3, 1.1, 1.2, 1.3), strict=True)
    moved = {name: getattr(point, name) * factor for name, factor in factors}
    point = dataclasses.replace(point, accelerators=64.0 * 7, **moved)
    with jax.enable_x64(True):
        by_cluster, by_plan = GRADIENT(workload, machine, point)
    for name in DEGREES:
        at = getattr(point, name)
        up, down = (
            math.log(cost(workload, machine, dataclasses.replace(point, **{name: at * (1 + h)}), SEM).step_s)
            for h in (1e-6, -1e-6)
        )
        np.testing.assert_allclose(float(getattr(by_plan, name)) * at, (up - down) / 2e-6, rtol=1e-5, atol=1e-7)
    narrow, _ = GRADIENT(*map_leaves(np.float32, (workload, machine, point)))
    for at, a, b in zip(*map(jax.tree.leaves, (machine, narrow, by_cluster)), strict=True):
        np.testing.assert_allclose(float(a) * at, float(b) * at, rtol=2e-3, atol=1e-6)


def test_every_degree_one_has_finite_gradients():
    workload, machine, point = prepare(small_moe(batch=1), cluster(1), Plan())
    pulled = GRADIENT(*map_leaves(np.float32, (workload, machine, point)))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(pulled))


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_the_step_is_log_convex_in_the_hardware(plan):
    workload, machine, point = prepare(small_moe(), cluster(tiers=3), plan)
    point = dataclasses.replace(point, overlap=dataclasses.replace(point.overlap, expert=1.0))
    rng, n = np.random.default_rng(3), 2000
    ends = [_scaled(machine, rng, n) for _ in range(2)]
    middle = _between(*ends)
    logs = [np.log(cost(workload, c, point, NUMPY).step_s) for c in (*ends, middle)]
    assert (logs[2] <= (logs[0] + logs[1]) / 2 + 1e-9).all()


RATES = ("bandwidth_bytes_per_s", "latency_s")


def _scaled(machine, rng, n):
    def tier(t):
        return dataclasses.replace(t, **{name: getattr(t, name) * np.exp(rng.uniform(-1.5, 1.5, n)) for name in RATES})

    chip = dataclasses.replace(
        machine.accelerator,
        peak_16bit_flop_per_s=machine.accelerator.peak_16bit_flop_per_s * np.exp(rng.uniform(-1.5, 1.5, n)),
        hbm_bytes_per_s=machine.accelerator.hbm_bytes_per_s * np.exp(rng.uniform(-1.5, 1.5, n)),
    )
    return dataclasses.replace(machine, accelerator=chip, tiers=tuple(map(tier, machine.tiers)))


def _between(a, b):
    return jax.tree.map(lambda x, y: np.sqrt(np.asarray(x) * np.asarray(y)), a, b)
