"""Modules that are computed again alone, 8-bit gates, dispatchers, losses, masters: bytes and seconds by hand."""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest

import costmodel
from costmodel.evaluators import compiled, evaluate, memory_by_stage, prepare
from costmodel.evaluators.dual import SUBGRADIENT, Dual
from costmodel.exact import Exact
from costmodel.formulas import collectives, traffic
from costmodel.formulas.cost import cost, parts
from costmodel.formulas.held import kept_bytes
from costmodel.formulas.roofline import matmul_s, memory_s
from costmodel.inputs import MODULES, ModuleRow
from costmodel.inputs.plan import Plan
from costmodel.measured import fits_probability, with_margin
from costmodel.models.moe import Latent, moe_decoder
from costmodel.specs import violations
from tests.support import builders
from tests.support.builders import small_decoder, small_moe

SEM = Exact(math)
TOKENS, HIDDEN, FFN = 128, 256, 1024  # of the small decoder, gated


def run(plan, workload, **stack):
    job, where, point = prepare(workload, builders.cluster(plan.accelerators), plan)
    where = dataclasses.replace(where, stack=dataclasses.replace(where.stack, **stack))
    return where, point, parts(job, where, point, SEM)


def exchanged(done, tier):
    """Bytes of tokens that are sent to experts over a tier."""
    return done.counts.layers[0].exchange_bytes * done.times.laws.experts.exchange.by_tier[tier]


def latent_moe():
    latent = Latent(query_rank=96, key_value_rank=64, nope_size=32, rope_size=16, value_size=32)
    return moe_decoder(
        layers=4, hidden=256, heads=8, vocabulary=1000, sequence=128, batch=32, experts=8, top_k=2, expert_ffn=192,
        shared_experts=1, latent=latent,
    )  # fmt: skip


def layer_of(done, name=None):
    return next(b for b in done.counts.layers if name in (None, b.name))


@pytest.mark.parametrize(
    ("recompute", "dropped"),
    [
        ("norms", 2 * TOKENS * 2 * HIDDEN),  # inputs of the products after both norms, in 16 bits
        ("gates", 2 * TOKENS * FFN),  # input of the product down
        ("norms+gates", 2 * TOKENS * (2 * HIDDEN + FFN)),
        ("feed_forward", 2 * TOKENS * 2 * FFN),  # gates before their activation
        ("latent", 0.0),  # the model has none
    ],
)
def test_what_a_dense_layer_drops_by_hand(recompute, dropped):
    (_, kept, whole), (_, point, done) = (run(Plan(recompute=r), small_decoder()) for r in ("none", recompute))
    more = kept_bytes(layer_of(whole), kept) - kept_bytes(layer_of(done), point)
    assert more == pytest.approx(dropped, rel=1e-12)
    again = done.memory.first.working_bytes - whole.memory.first.working_bytes  # of the block in hand
    assert again == pytest.approx(dropped, rel=1e-12)


def test_what_an_expert_layer_drops_by_hand():
    """Queries, keys and values of 8 heads (48, 48, 32); norms before attention and shared expert; gates of both."""
    kept = {}
    for recompute in ("none", "latent", "norms", "gates", "feed_forward"):
        _, point, done = run(Plan(recompute=recompute), latent_moe())
        kept[recompute] = kept_bytes(layer_of(done, "expert layer"), point)
    arrived = 128 * 2
    expected = {
        "latent": 2 * 128 * 8 * (48 + 48 + 32),
        "norms": 2 * 128 * 2 * 256,
        "gates": 2 * 192 * (arrived + 128),
        "feed_forward": 2 * (arrived * 256 + 2 * 192 * (arrived + 128)),
    }
    for name, dropped in expected.items():
        assert kept["none"] - kept[name] == pytest.approx(dropped, rel=1e-12), name


@pytest.mark.parametrize("workload", [small_decoder(), latent_moe()], ids=["dense", "latent experts"])
def test_what_is_computed_again_by_hand(workload):
    """The norms' and the activations' own passes, the products up from the latents; experts with their traffic."""
    names = {
        "norms": ("attention norm", "ffn norm"),
        "gates": ("activation", "expert activation"),
        "latent": ("query up", "key value up"),
    }
    for module, operators in names.items():
        where, point, done = run(Plan(recompute=module, recompute_share=0.5), workload)
        for block, times in zip(done.counts.layers, done.times.layers, strict=True):
            common = (point, done.times.rates, where.stack)
            seconds = sum(memory_s(c, *common)[0] for c in block.memories if c.name in operators)
            seconds += sum(matmul_s(c, *common, SEM)[0] for c in block.matmuls if c.name in operators)
            assert times.recompute_s == pytest.approx(0.5 * seconds, rel=1e-12)
    _, _, done = run(
        Plan(recompute="feed_forward", data=4, expert=4), workload if workload.name == "moe" else latent_moe()
    )
    times = done.times.layers[-1]
    assert times.forward.expert_s < times.recompute_s < times.forward.seconds


@pytest.mark.parametrize("workload", [small_decoder(layers=8), latent_moe()], ids=["dense", "latent experts"])
def test_all_sets_of_modules_lie_between_nothing_and_everything(workload):
    sets = [c for n in range(1, 5) for c in itertools.combinations(MODULES, n)]
    where = builders.cluster(4)
    ends = [evaluate(workload, where, Plan(data=2, pipeline=2, recompute=r)) for r in ("none", "full")]
    found = {}
    for modules in sets:
        plan = Plan(data=2, pipeline=2, recompute="+".join(modules))
        assert not violations(plan, workload, where)
        found[modules] = evaluate(workload, where, plan)
        assert sum(t.exposed_s for t in found[modules].terms) == pytest.approx(found[modules].step_s, rel=1e-12)
        assert ends[0].step_s <= found[modules].step_s <= ends[1].step_s
        assert ends[0].hardware_flop <= found[modules].hardware_flop <= ends[1].hardware_flop * (1 + 1e-12)
        for fewer in itertools.combinations(modules, len(modules) - 1):
            if fewer:
                assert found[fewer].step_s <= found[modules].step_s
                assert found[fewer].memory.first.activations_bytes >= found[modules].memory.first.activations_bytes


@pytest.mark.parametrize("words", ["gates+gates", "norms+", "norm", "norms,gates", "+", "none+norms"])
def test_sets_that_are_none(words):
    (told,) = violations(Plan(recompute=words), small_decoder(), builders.cluster(1))
    assert "`recompute` is" in told
    assert "norms, gates, latent, feed_forward joined by +" in told


def test_the_same_on_floats_arrays_duals_and_jax():
    """Step and bytes, and their slopes in the shares, which are linear pieces: against differences."""
    import jax

    plan = Plan(data=2, pipeline=2, expert=2, recompute="norms+gates+latent+feed_forward", gates_in_8bit=True)
    job, where, point = prepare(latent_moe(), builders.cluster(4), plan)

    modules = point.modules
    assert modules is not None

    def both(sem, **shares):
        row = dataclasses.replace(modules, **shares)
        return cost(job, where, dataclasses.replace(point, modules=row), sem)

    for name in MODULES:
        plain, low = (both(SEM, **{name: share}) for share in (0.5, 0.4))
        on_arrays = both(Exact(np), **{name: np.array([0.5, 0.4])})
        np.testing.assert_allclose(on_arrays.step_s, [plain.step_s, low.step_s], rtol=1e-12)
        np.testing.assert_allclose(on_arrays.peak_bytes, [plain.peak_bytes, low.peak_bytes], rtol=1e-12)
        dual = both(SUBGRADIENT, **{name: Dual(np.asarray(0.5), {"share": np.asarray(1.0)})})
        slope = (plain.step_s - low.step_s) / 0.1
        np.testing.assert_allclose(dual.step_s.parts["share"], slope, rtol=1e-6)
        np.testing.assert_allclose(dual.peak_bytes.parts["share"], (plain.peak_bytes - low.peak_bytes) / 0.1, rtol=1e-6)
    traced = jax.grad(lambda share: both(compiled.in_jax(), gates=share).step_s)(0.5)
    low, high = both(SEM, gates=0.4).step_s, both(SEM, gates=0.6).step_s
    np.testing.assert_allclose(traced, (high - low) / 0.2, rtol=1e-4)


def test_stages_in_the_order_of_the_model_hold_what_the_formula_says():
    """With several kinds of layer: stages of their own kinds, whose sum over stages is that of the even spread."""
    workload, where = small_moe(layers=8, dense_layers=4), builders.cluster(8)
    for recompute in ("none", "norms+gates+latent", "feed_forward"):
        plan = Plan(data=2, pipeline=4, expert=2, recompute=recompute, schedule="gpipe")
        stages = memory_by_stage(workload, where, plan)
        even = evaluate(workload, where, plan).memory
        whole = sum(stage.activations_bytes for stage in stages)
        spread = even.first.activations_bytes + 2 * even.second.activations_bytes + even.last.activations_bytes
        assert whole == pytest.approx(spread, rel=1e-9), recompute


def test_plans_without_modules_have_no_leaves_for_them():
    *_, point = prepare(small_decoder(), builders.cluster(1), Plan(recompute="full"))
    assert point.modules is None
    *_, point = prepare(small_decoder(), builders.cluster(1), Plan(recompute="gates", recompute_share=0.25))
    assert point.modules == ModuleRow(gates=0.25)


# other bytes


def test_gates_in_8_bits_by_hand():
    """Inputs of activation functions alone: half of two gates of the feed-forward."""
    (_, kept, whole), (_, point, done) = (run(Plan(gates_in_8bit=narrow), small_decoder()) for narrow in (False, True))
    assert kept_bytes(layer_of(whole), kept) - kept_bytes(layer_of(done), point) == TOKENS * 2 * FFN


def test_losses_by_hand():
    """Eight bytes a logit as the stack has it, four in one kernel, six an element of the head's input in chunks."""
    names = ("usual", "fused", "chunked")
    held = {name: run(Plan(loss=name), small_decoder(), logit_bytes=8.0)[2].memory.first for name in names}
    expected = {"usual": 8 * TOKENS * 1000, "fused": 4 * TOKENS * 1000, "chunked": 6 * TOKENS * HIDDEN}
    assert {loss: stage.logits_bytes for loss, stage in held.items()} == pytest.approx(expected, rel=1e-12)


def test_training_in_16_bits_alone_by_hand():
    """Weights, gradients and two states of two bytes: eight an element, and no copy in 32 bits in the update."""
    plan = Plan(zero_stage=0, gradient_dtype="bf16", state_dtype="bf16", master_weights=False)
    (_, _, narrow), (_, _, wide) = (
        run(p, small_decoder()) for p in (plan, dataclasses.replace(plan, master_weights=True))
    )
    held = narrow.memory.first
    elements = held.weights_bytes / 2
    assert held.gradients_bytes + held.optimizer_bytes == pytest.approx(6 * elements, rel=1e-12)
    assert wide.memory.first.optimizer_bytes - held.optimizer_bytes == pytest.approx(4 * elements, rel=1e-12)
    assert wide.step.work.optimizer_s / narrow.step.work.optimizer_s == pytest.approx(20 / 12, rel=1e-9)


def test_dispatchers_send_what_they_say():
    """Eight experts a token on eight domains of eight: one copy to each reaches 8 (1 - (7/8)^8) = 5.25 of them."""
    work = moe_decoder(
        layers=2, hidden=64, heads=4, vocabulary=100, sequence=64, batch=64, experts=64, top_k=8, expert_ffn=32
    )
    plan = Plan(data=64, expert=64)
    outside = {}
    for name in ("all_to_all", "fused", "fused_8bit"):
        _, _, done = run(dataclasses.replace(plan, dispatcher=name), work)
        outside[name] = exchanged(done, tier=1)
    assert outside["fused"] / outside["all_to_all"] == pytest.approx(8 * (1 - (7 / 8) ** 8) / 8, rel=1e-9)
    assert outside["fused_8bit"] == pytest.approx(0.75 * outside["fused"], rel=1e-12)


def test_a_fused_dispatcher_sends_one_copy_to_each_accelerator():
    """Counted on tokens that choose their experts at random: distinct accelerators beside the own one, over copies."""
    ranks, copies, random = 8, 8, np.random.default_rng(0)
    chosen = random.integers(ranks, size=(20_000, copies))
    distinct = np.mean([len(set(places)) for places in chosen])
    work = moe_decoder(
        layers=2, hidden=64, heads=4, vocabulary=100, sequence=64, batch=64, experts=64, top_k=copies, expert_ffn=32
    )
    sent = {}
    for name in ("all_to_all", "fused"):
        _, _, done = run(Plan(data=ranks, expert=ranks, dispatcher=name), work)
        sent[name] = exchanged(done, tier=0)
    assert sent["fused"] / sent["all_to_all"] == pytest.approx(distinct / copies, rel=5e-3)


def test_a_gathering_dispatcher_brings_every_token_to_every_rank():
    """As one all-gather of the group's tokens there and one reduce-scatter back, whatever the copies."""
    sizes: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocabulary": 100}
    sizes |= {"sequence": 64, "batch": 16, "experts": 16}
    for top_k in (2, 8):
        plan = Plan(data=16, expert=16, dispatcher="all_gather")
        where, point, done = run(plan, moe_decoder(**sizes, top_k=top_k, expert_ffn=32))
        layer, laws = done.counts.layers[0], done.times.laws
        assert layer.exchange_bytes == pytest.approx(2 * 16 * 64 * 64 * 2, rel=1e-12)
        tiers = traffic.tiers_in_training(where, point, where.stack, SEM)
        gather = collectives.all_gather((8.0, 2.0), tiers, where.stack, SEM)
        expected = collectives.time_s(gather, layer.exchange_bytes, SEM, 2.0) + where.stack.routing_s
        assert traffic.tokens_s(layer, laws, where.stack, SEM) == pytest.approx(expected, rel=1e-12)


# experts shared by the tensor ranks


def test_experts_that_nothing_divides_are_shared_by_the_tensor_ranks():
    """Mixtral 8x7B with tensor 8 and expert 1 ran on 80 GB: an eighth of its weights a rank, not all of its experts."""
    from optimize.lattice import choose_plan

    workload, where = (
        costmodel.load_workload("mixtral-8x7b", batch=128),
        costmodel.load_cluster("h100", accelerators=64),
    )
    given = {"tensor": 8, "expert": 1, "pipeline": 1, "sequence_parallel": True, "recompute": "full", "microbatch": 1}
    plan, _ = choose_plan(given, workload, where)
    assert plan.expert_tensor == 8
    found = evaluate(workload, where, plan)
    assert found.memory.first.weights_bytes == pytest.approx(2 * 46.7e9 / 8, rel=0.01)
    assert found.memory.peak_bytes < 60e9
    assert choose_plan(given | {"expert": 8}, workload, where)[0].expert_tensor == 1
    assert choose_plan({"tensor": 8}, costmodel.load_workload("llama3-8b", batch=128), where)[0].expert_tensor == 1


# a published run


def test_deepseek_v3_fits_with_its_published_plan_and_goes_at_its_pace():
    """2,048 H800: PP16, EP64, ZeRO 1, 8 bits by blocks, moments in 16; norms, products up and gates are computed
    again, a token goes to 4 nodes, in 8 bits; 1,543 tokens a second each (19.9 s). 1F1B stands in for DualPipe. Source:
    DeepSeek-AI 2024 (V3), sections 3.2 to 3.4 and table 1 (2.664 M hours for 14.8 T tokens)."""
    workload = costmodel.load_workload("deepseek-v3", batch=15360)
    where = with_margin(costmodel.load_cluster("h800", accelerators=2048), 0.9)
    plan = Plan(
        data=128, pipeline=16, expert=64, stage_layers=(*[4] * 13, *[3] * 3), zero_stage=1, precision="fp8_block",
        state_dtype="bf16", recompute="norms+gates+latent", gates_in_8bit=True, dispatcher="fused_8bit",
        overlap_expert=True, overlap_pipeline=True,
    )  # fmt: skip
    assert not violations(plan, workload, where)
    found = evaluate(workload, where, plan)
    assert found.fits
    assert fits_probability(found.memory.peak_bytes, where) > 0.9
    assert found.tokens_per_s / 2048 == pytest.approx(1543, rel=0.15)
    assert not evaluate(workload, where, dataclasses.replace(plan, recompute="none", gates_in_8bit=False)).fits


def test_software_that_fuses_nothing_pays_for_what_has_several_kernels():
    """Layer norms, activations of one input, sums, fused losses are one kernel each; RMS norms and gates are more."""
    plain = small_decoder(layer_norm=True, gated=False)
    seconds = {}
    for name, workload in (("plain", plain), ("gated", small_decoder())):
        for fused in (True, False):
            where, point, done = run(Plan(fused_kernels=fused, loss="fused"), workload, unfused_touches=1.8)
            own = [
                (c.name, memory_s(c, point, done.times.rates, where.stack)[0] - where.stack.kernel_s)
                for block in done.counts.blocks
                for c in block.memories
                if c.name != "embedding"  # a gather, and a sum with positions
            ]
            seconds[name, fused] = dict(own)
    assert seconds["plain", False] == pytest.approx(seconds["plain", True], rel=1e-12)
    slower = {name: seconds["gated", False][name] / s for name, s in seconds["gated", True].items()}
    several = ("attention norm", "ffn norm", "activation", "final norm")
    assert slower == pytest.approx({name: 1.8 if name in several else 1.0 for name in slower}, rel=1e-12)
