"""Every feasible plan of a small cluster: plans as arrays cost what each costs alone, and in a compiled batch."""

import itertools
import math

import numpy as np

from costmodel.evaluators import batch_cost
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs import options
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan, PlanPoint
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.workload import Workload
from costmodel.pytree import as_floats, map_leaves
from costmodel.specs.rules import violations


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


def stacked(points: list[PlanPoint]) -> PlanPoint:
    """Plans as one point of arrays."""
    columns = iter(zip(*map(_leaves, points), strict=True))
    return map_leaves(lambda _: np.array(next(columns)), points[0])


def _leaves(point: PlanPoint) -> list[float]:
    leaves: list[float] = []
    map_leaves(lambda leaf: leaves.append(leaf) or leaf, point)
    return leaves


def test_floats_arrays_and_compiled_batches_agree(small_decoder, two_tiers):
    plans = feasible_plans(small_decoder, two_tiers)
    assert len(plans) > 500
    workload = as_floats(small_decoder)
    points = [embed(plan, small_decoder, 8.0) for plan in plans]
    together = cost(workload, two_tiers, stacked(points), Exact(np))
    alone = [cost(workload, two_tiers, point, Exact(math)) for point in points]
    compiled = batch_cost(workload, two_tiers, map_leaves(np.float32, stacked(points)))
    for name in ("step_s", "peak_bytes"):
        np.testing.assert_allclose(getattr(together, name), [getattr(each, name) for each in alone], rtol=1e-12)
        np.testing.assert_allclose(getattr(compiled, name), getattr(together, name), rtol=2e-5)
