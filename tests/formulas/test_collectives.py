"""Collectives against rings, trees and exchanges played out rank by rank."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas import collectives
from costmodel.formulas.counts import counts
from costmodel.formulas.placement import ranks_by_tier
from costmodel.formulas.traffic import laws
from costmodel.inputs.hardware import Tier
from costmodel.inputs.plan import Plan
from costmodel.inputs.stack import Habits, Stack
from tests.oracles import ring
from tests.support import NIGHTLY
from tests.support.builders import cluster, small_decoder

SEM = Exact(math)
CEILINGS = dict.fromkeys(("link_ceiling", "network_ceiling", "peer_ceiling"), 1.0)
RING = Stack(**CEILINGS, collective_s=0.0, chunk_fill=0.0, all_reduce_tree=0.0)
IDEAL = dataclasses.replace(RING, all_gather="nested")


def tier(size=8, bandwidth=1e11, latency=1e-6, **other):
    return Tier(name="tier", size=size, usable_size=size, bandwidth_bytes_per_s=bandwidth, latency_s=latency, **other)


def law(kind, ranks, tiers, stack=IDEAL):
    return getattr(collectives, kind)(tuple(map(float, ranks)), tuple(tiers), stack, SEM)


@given(
    ranks=st.integers(1, 64),
    payload=st.floats(1.0, 1e10),
    latency=st.floats(1e-7, 1e-3),
    bandwidth=st.floats(1e8, 1e12),
)
def test_ring_all_gather_and_all_reduce_against_played_out_rings(ranks, payload, latency, bandwidth):
    played_s = ring.ring_all_gather_s(ranks, payload, latency, bandwidth)
    tiers = [tier(bandwidth=bandwidth, latency=latency)]
    gather_s = collectives.time_s(law("all_gather", [ranks], tiers), payload, SEM)
    reduce_s = collectives.time_s(law("all_reduce", [ranks], tiers), payload, SEM)
    np.testing.assert_allclose(gather_s, played_s, rtol=1e-12)
    np.testing.assert_allclose(reduce_s, 2 * played_s, rtol=1e-12)  # a reduce-scatter, then an all-gather


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64, 1024])
def test_tree_latency_against_a_played_out_tree(ranks):
    stack = Stack(collective_s=0.0, all_reduce_tree=1.0)
    found = law("all_reduce", [ranks], [tier(latency=3e-6)], stack).latency_s
    np.testing.assert_allclose(found, ring.tree_all_reduce_latency_s(ranks, 3e-6), rtol=1e-12)


SIZES = [8, 64, 512]
GROUPS = [(2, 1), (8, 1), (16, 1), (64, 1), (4, 2), (16, 8), (8, 8), (64, 8), (4, 64), (32, 4), (128, 4)]
GROUPS += [(512, 1)] if NIGHTLY else []


@pytest.mark.parametrize(("group", "stride"), GROUPS)
def test_bytes_on_each_tier_against_enumerated_ranks(group, stride):
    tiers = tuple(tier(size=size, bandwidth=1.0) for size in SIZES)
    members = [i * stride for i in range(group)]
    ranks = ranks_by_tier(float(group), float(stride), tiers, 8.0, SEM)
    gathered = law("all_gather", ranks, tiers).by_tier
    exchanged = law("all_to_all", ranks, tiers).by_tier
    np.testing.assert_allclose(gathered, ring.hierarchical_all_gather_bytes(members, SIZES, 1.0), atol=1e-15)
    np.testing.assert_allclose(exchanged, ring.all_to_all_bytes(members, SIZES, 1.0), atol=1e-15)


@pytest.mark.parametrize(("group", "stride"), GROUPS)
def test_neighbour_goes_at_the_pace_of_the_slowest_link_that_it_crosses(group, stride):
    seconds_per_byte = [1.0, 10.0, 100.0]
    tiers = tuple(tier(size=s, bandwidth=1 / x, latency=x) for s, x in zip(SIZES, seconds_per_byte, strict=True))
    crossed = {ring.tier_between(i * stride, (i + 1) * stride, SIZES) for i in range(group - 1)}
    found = law("neighbour", ranks_by_tier(float(group), float(stride), tiers, 8.0, SEM), tiers)
    assert found.seconds_per_byte == max(seconds_per_byte[i] for i in crossed)
    assert found.latency_s == max(seconds_per_byte[i] for i in crossed)


@pytest.mark.parametrize("kind", ["all_gather", "all_reduce", "all_to_all", "neighbour"])
def test_a_group_of_one_costs_nothing(kind):
    found = law(kind, [1, 1], [tier(), tier()], Stack())
    assert collectives.time_s(found, 1e9, SEM) == 0.0


@pytest.mark.parametrize(("group", "stride"), [case for case in GROUPS if case[0] * case[1] in (*SIZES, 1024, 2)])
def test_one_ring_through_all_ranks_against_enumerated_ones(group, stride):
    tiers = tuple(tier(size=size, bandwidth=1.0, latency=10.0**-i) for i, size in enumerate(SIZES))
    members = [i * stride for i in range(group)]
    ranks = ranks_by_tier(float(group), float(stride), tiers, 8.0, SEM)
    found = law("all_gather", ranks, tiers, RING)
    played_bytes, hops = ring.flat_ring(members, SIZES, 1.0)
    np.testing.assert_allclose(found.by_tier, played_bytes, atol=1e-15)
    np.testing.assert_allclose(found.latency_s, sum(10.0**-i * n for i, n in enumerate(hops)), rtol=1e-12)
    leaves = len({member // 8 for member in members}) > 1  # then each step waits for one over the network
    stepped = law("all_gather", ranks, tiers, dataclasses.replace(RING, ring_step_s=3.0))
    np.testing.assert_allclose(stepped.latency_s, found.latency_s + 3.0 * sum(hops) * leaves, rtol=1e-12)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 8, 64])
@pytest.mark.parametrize("rate", [0.0, 0.5, 0.8, 1.0])
def test_switches_that_reduce_are_used_where_they_send_less(ranks, rate):
    plain, reducing = [tier(bandwidth=1.0)], [tier(bandwidth=1.0, in_network_reduction=rate)]
    by_links, by_switches = 2 * (ranks - 1) / ranks, ring.switch_all_reduce_bytes(ranks, 1.0)
    best = by_links if rate == 0 else min(by_links, by_switches / rate)
    np.testing.assert_allclose(law("all_reduce", [ranks], reducing).by_tier[0], best, rtol=1e-12)
    assert law("all_gather", [ranks], reducing).by_tier == law("all_gather", [ranks], plain).by_tier


def test_oversubscription_divides_the_bandwidth_of_its_tier():
    tiers = [tier(bandwidth=4e11), tier(size=64, oversubscription=4.0)]
    slower = [tier(bandwidth=4e11), tier(size=64, bandwidth=2.5e10)]
    assert law("all_gather", [8, 8], tiers) == law("all_gather", [8, 8], slower)


@pytest.mark.parametrize(
    ("megabytes", "ranks", "published_us"),
    [(6144, (16, 8), 75_018.305), (9, (1, 8), 1_231.553), (1920, (16, 8), 23_453.8), (22.5, (1, 8), 3_087.7)],
)
def test_golden_runs_of_the_cluster_design_papers_simulator(megabytes, ranks, published_us):
    """All-reduces of astra-sim-roofline's own outputs: 16 x 64 ranks, 6 x 25 and 12.5 GiB/s, latencies of 1 ns."""
    tiers = [tier(16, 150 * 2**30, 1e-9), tier(1024, 12.5 * 2**30, 1e-9)]
    seconds = collectives.time_s(law("all_reduce", ranks, tiers), megabytes * 2**20, SEM)
    np.testing.assert_allclose(seconds * 1e6, published_us, rtol=5e-3)


@pytest.mark.parametrize(
    ("tensor", "pipeline", "data", "waits"), [(4, 4, 1, 1), (2, 4, 2, 1), (4, 2, 1, 0), (1, 8, 2, 0), (4, 1, 4, 0)]
)
def test_the_host_waits_for_tensor_ranks_in_pipelines_over_several_domains_alone(tensor, pipeline, data, waits):
    """Domains of 8. Each edge of a tensor-parallel region waits for all its ranks."""
    plan = Plan(data=data, tensor=tensor, pipeline=pipeline)
    machine = cluster(tensor * pipeline * data, stack=Stack(sync_rank_s=1e-4, habits=Habits(waits_for_ranks=1.0)))
    workload, machine, point = prepare(small_decoder(layers=8, batch=16), machine, plan)
    found = laws(counts(workload, point, SEM), point, machine, machine.stack, SEM)
    np.testing.assert_allclose(found.sync_wait_s, waits * tensor * 1e-4, rtol=1e-12)


@pytest.mark.parametrize("schedule", ["one_f_one_b", "zb_v"])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_stage_sends_its_activation_in_parts_and_gathers_what_it_needs_whole(parallel, schedule):
    """Domains of 8 = 4 tensor ranks x 2 data ranks, 2 stages: a quarter over the network, three quarters of a gather
    inside the domain, which sequence parallelism does not need; under any schedule, also one that folds."""
    plan = Plan(data=2, tensor=4, pipeline=2, sequence_parallel=parallel, microbatch=2, schedule=schedule)
    stack = dataclasses.replace(RING, collective_s=1e-5)
    workload, machine, point = prepare(small_decoder(), cluster(16, stack=stack), plan)
    counted = counts(workload, point, SEM)
    found = collectives.time_s(laws(counted, point, machine, machine.stack, SEM).boundary, counted.boundary_bytes, SEM)
    whole_bytes, (inner, outer, *_) = 2 * 128 * 256 * 2, machine.tiers
    sent_s = 1e-5 + outer.latency_s + whole_bytes / 4 / outer.bandwidth_bytes_per_s
    gathered_s = 1e-5 + 3 * (inner.latency_s + whole_bytes / 4 / inner.bandwidth_bytes_per_s)
    np.testing.assert_allclose(found, sent_s if parallel else sent_s + gathered_s, rtol=1e-12)
