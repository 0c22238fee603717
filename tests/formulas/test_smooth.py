r"""`Smooth`: its bracket, rate, homogeneity, convexity and corner; and the whole cost under it against the exact one.

Composed bound. A pairwise maximum adds at most the factor $1 + \sqrt\epsilon$, and sums and products of non-negative
terms with non-negative counts pass it on; k candidates are k - 1 pairs. A step nests: the three tiers of a law (2), the
overlap inside a block (1) and with gathered weights (1), the phases of GPipe (2), the 11 paths of a pipeline (10), the
bound of the links (1). The peak of memory nests activations against the update (1) and three stages (2).
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.formulas.cost import as_floats, cost
from costmodel.inputs import options
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.plan import Plan, PlanPoint, embed
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.workload import Workload
from costmodel.pytree import map_leaves
from costmodel.semantics import Exact, Smooth
from costmodel.specs.rules import violations
from tests.support.strategies import cluster_batch, point_batch, quantities, workload_batch

EPSILONS = (1e-6, 1e-4, 1e-2)
times = quantities((1e-9, 1e6))
epsilons = st.sampled_from(EPSILONS)
STEP_PAIRS, MEMORY_PAIRS = 17, 3


def smooth(epsilon: float) -> Smooth:
    return Smooth(np, epsilon)


@given(times, times, epsilons)
def test_bracket(a, b, epsilon):
    value, exact = smooth(epsilon).maximum(a, b), max(a, b)
    assert exact <= value <= (1 + math.sqrt(epsilon)) * exact * (1 + 1e-12)


@given(times, st.sampled_from([0.0, 1e-30, 1e-300]), epsilons)
def test_bracket_with_almost_nothing(a, b, epsilon):
    assert a <= smooth(epsilon).maximum(a, b) <= (1 + math.sqrt(epsilon)) * a


def test_rate_in_epsilon():
    """At a tie the excess is sqrt(eps) exactly; away from it, eps x / (1 - x) to first order: test the rate."""
    logs = np.log(EPSILONS)
    tie = [np.log(smooth(e).maximum(3.0, 3.0) / 3.0 - 1) for e in EPSILONS]
    apart = [np.log(smooth(e).maximum(3.0, 1.5) / 3.0 - 1) for e in EPSILONS]
    np.testing.assert_allclose(np.polyfit(logs, tie, 1), (0.5, 0.0), atol=1e-3)
    np.testing.assert_allclose(np.polyfit(logs, apart, 1)[0], 1.0, atol=0.01)
    np.testing.assert_allclose(smooth(1e-6).maximum(3.0, 1.5) / 3.0 - 1, 1e-6 * 0.5 / 0.5, rtol=1e-4)


@given(times, times, quantities((1e-3, 1e3)), epsilons)
def test_homogeneity_up_to_tiny(a, b, scale, epsilon):
    before, after = smooth(epsilon).maximum(a, b), smooth(epsilon).maximum(scale * a, scale * b)
    allowed = 1e-12 + 2e-15 / (min(1.0, scale) * max(a, b))
    assert math.isclose(after, scale * before, rel_tol=allowed)


def test_log_convexity():
    """In the logs of both arguments, 100,000 chords; ten orders above `tiny`."""
    rng = np.random.default_rng(0)
    first, second = rng.uniform(-5, 5, (2, 2, 100_000))
    weight = rng.uniform(0, 1, 100_000)
    for epsilon in EPSILONS:
        ends = [np.log(smooth(epsilon).maximum(*np.exp(x))) for x in (first, second)]
        between = np.log(smooth(epsilon).maximum(*np.exp((1 - weight) * first + weight * second)))
        assert np.max(between - (1 - weight) * ends[0] - weight * ends[1]) <= 1e-12


def test_zero_of_two_zeros():
    assert smooth(1e-3).maximum(0.0, 0.0) == 0.0
    assert smooth(1e-3).maximum(np.zeros(3), np.zeros(3), np.zeros(3)).tolist() == [0.0, 0.0, 0.0]


def test_counts_and_placement_stay_exact():
    assert smooth(1e-1).exact_maximum(2.0, 2.0, 1.0) == 2.0
    assert smooth(1e-1).minimum(2.0, 2.0, 3.0) == 2.0


def feasible_plans(workload: Workload, cluster: Cluster) -> list[Plan]:
    """Every legal plan of degrees that divide the accelerators, with the options that reach every maximum."""
    count = int(cluster.accelerators)
    divisors = [d for d in range(1, count + 1) if count % d == 0]
    degrees = [
        (t, c, p, count // (t * c * p)) for t, c, p in itertools.product(divisors, repeat=3) if count % (t * c * p) == 0
    ]
    choices = itertools.product(degrees, SCHEDULES, options.ZERO_STAGES, (1, 2))
    plans = [
        Plan(
            tensor=t,
            context=c,
            pipeline=p,
            data=d,
            schedule=schedule,
            virtual_stages=2 if SCHEDULES[schedule].interleaves else 1,
            zero_stage=zero,
            sequence_parallel=t > 1,
            microbatch=microbatch,
            overlap_tensor=True,
            overlap_pipeline=True,
        )
        for (t, c, p, d), schedule, zero, microbatch in choices
    ]
    return [plan for plan in plans if not violations(plan, workload, cluster)]


def points(plans: list[Plan], workload: Workload, domain: float) -> PlanPoint:
    """Plans as one point of arrays."""
    embedded = [embed(plan, workload, domain) for plan in plans]
    columns = iter(zip(*(_leaves(point) for point in embedded), strict=True))
    return map_leaves(lambda _: np.array(next(columns)), embedded[0])


def _leaves(point: PlanPoint) -> list[float]:
    leaves: list[float] = []
    map_leaves(lambda leaf: leaves.append(leaf) or leaf, point)
    return leaves


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_every_feasible_plan_of_a_small_cluster(small_decoder, two_tiers, epsilon):
    plans = feasible_plans(small_decoder, two_tiers)
    assert len(plans) > 500
    trees = as_floats(small_decoder), two_tiers, points(plans, small_decoder, 8.0)
    assert_composed_bound(trees, epsilon)


@pytest.mark.parametrize("mixed", [False, True])
def test_random_jobs(mixed):
    rng, n = np.random.default_rng(4), 5_000
    point, batch = point_batch(rng, n, mixed=mixed)
    trees = workload_batch(rng, n, batch, 3 * point.pipeline), cluster_batch(rng, n, 3), point
    assert_composed_bound(trees, 1e-4)


def assert_composed_bound(trees, epsilon: float) -> None:
    exact, rounded = cost(*trees, Exact(np)), cost(*trees, smooth(epsilon))
    for name, pairs in (("step_s", STEP_PAIRS), ("peak_bytes", MEMORY_PAIRS)):
        ratio = getattr(rounded, name) / getattr(exact, name)
        assert ratio.min() >= 1 - 1e-12, name
        assert ratio.max() <= (1 + math.sqrt(epsilon)) ** pairs, name
