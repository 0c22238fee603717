"""Placement against enumerated ranks: the formula, the rule of nesting, and the groups of a plan."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas.placement import nests, ranks_by_tier
from costmodel.inputs.hardware import Tier
from costmodel.inputs.plan import Plan
from costmodel.specs.loading import cluster_names, load_cluster
from costmodel.specs.rules import columns, groups

PLAIN = Exact(math)
LARGEST = 1536


def tier(size, usable=None):
    return Tier(name="t", size=size, usable_size=usable or size, bandwidth_bytes_per_s=1e9, latency_s=1e-6)


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


def enumerated_counts(group, stride, size, accelerators):
    """Ranks of each group in each domain that it touches, by listing all ranks: shares no code with the formula."""
    ranks = np.arange(accelerators)
    of_group = ranks // (group * stride) * stride + ranks % stride
    _, counts = np.unique(of_group * accelerators + ranks // size, return_counts=True)
    return counts


@pytest.mark.parametrize("domain", [8, 64, 72])
def test_every_group_of_every_cluster_against_enumerated_ranks(domain):
    """`nests` is true exactly where each group has the formula's number of ranks in each domain that it touches."""
    tiers = (tier(72, 64) if domain == 64 else tier(domain), tier(72 * LARGEST))
    seen = {True: 0, False: 0}
    small = divisors(domain) + [domain - 1]
    for accelerators in [*small, *range(domain, LARGEST + 1, domain)]:
        for group in divisors(accelerators):
            for stride in divisors(accelerators // group):
                inside, outside = ranks_by_tier(group, stride, tiers, domain, PLAIN)
                counts = enumerated_counts(group, stride, domain, accelerators)
                exact = bool(np.all(counts == inside))
                assert inside * outside == pytest.approx(group)
                assert nests(group, stride, domain, accelerators) == exact, (accelerators, group, stride)
                seen[exact] += 1
    assert seen[True] > 1000
    assert seen[False] > 0


@pytest.mark.parametrize(("domain", "pod"), [(8, 32), (8, 256), (4, 32), (64, 576), (72, 576)])
def test_three_tiers_against_enumerated_ranks(domain, pod):
    """The middle tier: inner parts of a group inside one pod, when fewer accelerators of each domain are used."""
    size = 72 if domain >= 64 else 8
    usable = 64 if domain == 64 else size
    tiers = (tier(size, usable), tier(pod, pod // size * usable), tier(pod * LARGEST))
    pod_ranks = pod // size * domain
    checked = 0
    for accelerators in range(pod_ranks, LARGEST + 1, domain * 4):
        for group in divisors(accelerators):
            for stride in divisors(accelerators // group):
                if not all(nests(group, stride, s, accelerators) for s in (domain, pod_ranks)):
                    continue
                inside, pods, outside = ranks_by_tier(group, stride, tiers, domain, PLAIN)
                assert np.all(enumerated_counts(group, stride, domain, accelerators) == inside)
                assert np.all(enumerated_counts(group, stride, pod_ranks, accelerators) == inside * pods)
                assert inside * pods * outside == pytest.approx(group)
                checked += 1
    assert checked > 100


def test_pods_that_are_not_full_are_named():
    """48 ranks on pods of 32: the group has 32 in one pod and 16 in the other, which no single number can say."""
    assert not nests(48, 1, 32, 48)
    assert list(enumerated_counts(48, 1, 32, 48)) == [32, 16]


def test_one_tier_holds_the_whole_group():
    assert ranks_by_tier(8, 1, (tier(8),), 8, PLAIN) == (8,)


@pytest.mark.parametrize("name", cluster_names())
def test_shipped_clusters_have_the_group_inside_first(name):
    cluster = load_cluster(name)
    inner, farther = cluster.tiers[0].usable_size, (1,) * (len(cluster.tiers) - 2)
    assert ranks_by_tier(inner, 1, cluster.tiers, inner, PLAIN) == (inner, 1, *farther)
    assert ranks_by_tier(4, inner, cluster.tiers, inner, PLAIN) == (1, 4, *farther)
    assert ranks_by_tier(4, inner / 2, cluster.tiers, inner, PLAIN) == (2, 2, *farther)


@pytest.mark.parametrize("library", [np, jnp])
def test_arrays_and_plain_floats_agree(library):
    tiers = (tier(8), tier(64), tier(4096))
    group = np.array([1.0, 2.0, 16.0, 512.0])[:, None]
    stride = np.array([1.0, 4.0, 8.0, 128.0])[None, :]
    arrays = ranks_by_tier(library.asarray(group), library.asarray(stride), tiers, 8.0, Exact(library))
    for i, g in enumerate(group[:, 0]):
        for j, s in enumerate(stride[0]):
            plain = ranks_by_tier(g, s, tiers, 8.0, PLAIN)
            np.testing.assert_allclose([np.broadcast_to(a, (4, 4))[i, j] for a in arrays], plain, rtol=1e-6)


@pytest.mark.parametrize("shard", [None, 2, 6, 12])
def test_groups_of_a_plan_are_the_axes_of_its_mesh(shard):
    """Sizes and strides against a mesh of rank numbers, laid out tensor, context, data, pipeline from the inside."""
    plan = Plan(tensor=2, context=3, data=4, pipeline=5, data_shard=shard)
    ranks = np.arange(plan.accelerators)
    size = shard or 12
    mesh = ranks.reshape(5, 4, 3, 2)
    split = ranks.reshape(5, 12 // size, size, 2)
    lines = {"tensor": mesh[0, 0, 0, :], "context": mesh[0, 0, :, 0], "data shard": split[0, 0, :, 0]}
    lines |= {"replica": split[0, :, 0, 0], "pipeline": mesh[:, 0, 0, 0]}
    lines |= dict.fromkeys(("expert tensor", "expert", "expert data shard", "expert replica"), np.zeros(1))
    named = groups(columns(plan))
    assert {name for name, _, _ in named} == set(lines)
    for name, group, stride in named:
        np.testing.assert_array_equal(lines[name], np.arange(group) * stride)


@pytest.mark.parametrize("shard", [None, 2, 4])
def test_groups_of_experts_are_the_axes_of_the_second_mesh(shard):
    """A mesh of the same ranks, laid out expert tensor, expert, expert data, pipeline from the inside."""
    plan = Plan(tensor=2, context=2, data=6, pipeline=2, expert=3, expert_tensor=2, data_shard=shard)
    mesh, size = np.arange(plan.accelerators).reshape(2, 4, 3, 2), shard or 4
    split = np.arange(plan.accelerators).reshape(2, 4 // size, size, 3, 2)
    lines = {"expert tensor": mesh[0, 0, 0, :], "expert": mesh[0, 0, :, 0]}
    lines |= {"expert data shard": split[0, 0, :, 0, 0], "expert replica": split[0, :, 0, 0, 0]}
    named = {name: np.arange(group) * stride for name, group, stride in groups(columns(plan))}
    for name, line in lines.items():
        np.testing.assert_array_equal(line, named[name], err_msg=name)
