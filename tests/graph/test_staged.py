"""Stages of their own layers: against the closed forms where these hold, against plays and sums by hand elsewhere."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.evaluators.stage_memory import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.formulas.memory import peak
from costmodel.formulas.pipeline import Hops
from costmodel.graph import staged
from costmodel.graph.play import play
from costmodel.graph.staged import MODES
from costmodel.inputs.plan import Plan
from optimize.layers.one_f_one_b import played_s
from optimize.layers.tables import tables
from tests.support.builders import cluster, small_decoder, small_moe

MATH, NUMPY = Exact(math), Exact(np)
PLAN = Plan(data=4, tensor=2, pipeline=4, microbatch=1, sequence_parallel=True, domain=8)


def random_pipelines(count: int):
    rng = np.random.default_rng(0)
    for _ in range(count):
        p, m = int(rng.integers(1, 9)), int(rng.integers(1, 30))
        forward = rng.uniform(1, rng.choice([1.2, 4.0]), p)
        hop_s = float(rng.choice([0.0, 0.05, 0.5]))
        yield p, m, forward, forward * rng.uniform(1.2, 3, p), Hops(ends_s=hop_s, steady_s=hop_s * rng.choice([0, 1]))


def test_a_batch_is_played_like_one_pipeline_and_no_chain_is_longer():
    """The chains are the longest path itself where stages differ little, whatever they do otherwise."""
    gaps = []
    for p, m, forward, backward, hop in random_pipelines(200):
        alone = play(
            "one_f_one_b", p, m, forward_s=list(forward), backward_s=list(backward),
            transfer_s=hop.ends_s, steady_transfer_s=hop.steady_s,
        ).makespan_s  # fmt: skip
        both = np.stack([forward, 2 * forward], axis=1), np.stack([backward, backward], axis=1)
        assert played_s(*both, hop, m)[0] == pytest.approx(alone, rel=1e-12)
        chain_s = staged.makespan_s(staged.paths(p, m), list(forward), list(backward), hop, MATH)
        assert chain_s <= alone * (1 + 1e-12)
        gaps.append(alone / chain_s - 1)
    assert np.median(gaps) < 1e-12
    assert max(gaps) < 0.08


@pytest.mark.parametrize("m", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("steady_s", [0.0, 0.7])
def test_the_longest_chain_of_equal_stages_is_the_play(m, steady_s):
    for p in (1, 2, 5):
        times = {"forward_s": [1.0] * p, "backward_s": [2.0] * p}
        alone = play("one_f_one_b", p, m, **times, transfer_s=0.7, steady_transfer_s=steady_s).makespan_s
        hop = Hops(ends_s=0.7, steady_s=steady_s)
        assert staged.makespan_s(staged.paths(p, m), *times.values(), hop, MATH) == pytest.approx(alone)


@pytest.mark.parametrize(("contention", "overlaps"), [(0.0, False), (0.4, False), (1.0, True)])
def test_what_ends_a_stage_is_what_a_step_adds_to_its_passes(contention, overlaps):
    """One stage: of gradients that may not hide, or that slow down as much as they hide, all are felt."""
    machine = cluster(32)
    machine = dataclasses.replace(machine, stack=dataclasses.replace(machine.stack, contention=contention))
    numbers, machine, point = prepare(
        small_decoder(layers=4, batch=64), machine, Plan(data=32, domain=8, overlap_data=overlaps)
    )
    given, done = staged.model(numbers, machine, point, MATH), parts(numbers, machine, point, MATH)
    stage = staged.seconds(given, [[4.0, 0.0, 0.0]], staged.where(1, 0), MATH)
    expected_s = done.step.work.gradient_traffic_s + done.step.work.optimizer_s
    assert done.step.reduction_s == pytest.approx(done.step.work.gradient_traffic_s)
    assert staged.ending_s(stage, given, MATH) == pytest.approx(expected_s, rel=1e-9)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("zero_stage", [1, 3])
def test_layers_all_alike_and_even_are_the_closed_forms(mode, zero_stage):
    workload, plan = (
        small_decoder(layers=12, batch=64),
        dataclasses.replace(PLAN, recompute=mode, zero_stage=zero_stage),
    )
    numbers, machine, point = prepare(workload, cluster(32), plan)
    given, done = staged.model(numbers, machine, point, MATH), parts(numbers, machine, point, MATH)
    held = [[3.0 * (name == mode) for name in MODES]]
    places = [staged.where(4, stage) for stage in range(4)]
    stages = [staged.seconds(given, held, at, MATH) for at in places]
    passes_s = staged.makespan_s(
        staged.paths(4, 16),
        [s.forward_s for s in stages],
        [s.backward_s for s in stages],
        staged.between(given, MATH),
        MATH,
    )
    assert passes_s == pytest.approx(done.step.passes_s, rel=1e-9)
    assert max(s.traffic_s for s in stages) == pytest.approx(done.step.work.gradient_traffic_s, rel=1e-9)
    assert max(s.update_s for s in stages) == pytest.approx(done.step.work.optimizer_s, rel=1e-9)
    for at, expected in zip(places, memory_by_stage(workload, cluster(32), plan), strict=True):
        assert peak(staged.memory_of_stages(given, held, at, MATH), MATH) == pytest.approx(peak(expected, MATH))


def test_half_of_the_layers_recomputed_is_a_share_of_one_half():
    plan = dataclasses.replace(PLAN, recompute="full", recompute_share=0.5)
    workload = small_decoder(layers=16, batch=64)
    given = staged.model(*prepare(workload, cluster(32), PLAN), MATH)
    for stage, expected in enumerate(memory_by_stage(workload, cluster(32), plan)):
        found = staged.memory_of_stages(given, [[2.0, 0.0, 2.0]], staged.where(4, stage), MATH)
        assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected), rel=1e-9)


@pytest.mark.parametrize("zero_stage", [1, 3])
def test_tables_are_the_formulas(zero_stage):
    """Every linear term at random numbers of layers of two kinds, and the peak with what is not linear."""
    plan = Plan(data=16, pipeline=2, expert=4, domain=8, zero_stage=zero_stage)
    table = tables(small_moe(), cluster(32), plan, 2)
    layers = np.random.default_rng(1).integers(0, 5, (20, 2, 2, 3)).astype(float)
    layers[..., 1, 0] += 1
    held = [[layers[..., kind, mode] for mode in range(3)] for kind in range(2)]
    times = staged.seconds(table.given, held, table.at, NUMPY)
    for name in ("forward_s", "backward_s", "update_s"):
        np.testing.assert_allclose(table.linear[name].of(layers), getattr(times, name), rtol=1e-9)
    np.testing.assert_allclose(table.links.of(layers), np.stack(times.links_s, axis=1), rtol=1e-9)
    memory = staged.memory_of_stages(table.given, held, table.at, NUMPY)
    np.testing.assert_allclose(table.peak_bytes(layers), peak(memory, NUMPY), rtol=1e-9)
    forward, backward = times.forward_s, times.backward_s
    np.testing.assert_allclose(
        table.ending_s(layers, forward, backward), staged.ending_s(times, table.given, NUMPY), rtol=1e-9
    )


IN_ORDER = [
    PLAN,
    dataclasses.replace(PLAN, stage_layers=(2, 4, 4, 2)),
    dataclasses.replace(PLAN, recompute="full", recompute_share=0.5),
    dataclasses.replace(PLAN, schedule="interleaved", virtual_stages=3),
    dataclasses.replace(PLAN, schedule="zb_h1", zero_stage=3),
]


@pytest.mark.parametrize("plan", IN_ORDER, ids=str)
def test_one_kind_of_layer_listed_as_two_needs_the_same_memory(plan):
    whole = small_decoder(layers=12, batch=64)
    first, layer, last = whole.blocks
    split = (dataclasses.replace(layer, name="early", repeats=5), dataclasses.replace(layer, name="late", repeats=7))
    parted = dataclasses.replace(whole, blocks=(first, *split, last))
    for one, two in zip(*(memory_by_stage(w, cluster(32), plan) for w in (whole, parted)), strict=True):
        assert dataclasses.astuple(two) == pytest.approx(dataclasses.astuple(one), rel=1e-9)


def test_stages_hold_their_own_kinds_of_layer():
    """Two dense layers on the first stage, three with experts on the second; together the same weights."""
    plan = Plan(data=16, pipeline=2, expert=4, stage_layers=(2, 3), domain=8)
    workload = small_moe(dense_layers=2)
    given = staged.model(*prepare(workload, cluster(32), plan), MATH)
    by_name = {block.name: block for block in given.counted.blocks}
    dense, expert = by_name["dense layer"], by_name["expert layer"]
    stages = memory_by_stage(workload, cluster(32), plan)
    assert stages[0].weights_bytes == pytest.approx(2.0 * (2 * dense.parameters + by_name["embedding"].parameters))
    own = 3 * (expert.parameters + expert.expert_parameters)
    assert stages[1].weights_bytes == pytest.approx(2.0 * (own + by_name["head"].parameters))
    kept = [
        2 * (dense.saved.input + dense.saved.core + dense.saved.rest),
        by_name["embedding"].saved.input + by_name["embedding"].saved.rest,
    ]
    assert stages[0].activations_bytes == pytest.approx(2.0 * sum(kept))
