"""Real parts for several jobs: deadlines of each and of all, on parts of domains; against every pair of plans."""

import dataclasses
import itertools
import math

import pytest

from costmodel import evaluate
from optimize.clusters.real_parts import PartsProgress, search_parts, within_limits
from optimize.lattice.enumeration import lattice
from optimize.question.objective import Limits, Objective
from optimize.question.quantities import Job
from tests.support.builders import small_decoder

JOBS = (
    Job(workload=small_decoder(layers=4, batch=24), tokens=1e9),
    Job(workload=small_decoder(layers=2, batch=8, hidden=512), tokens=5e8, weight=2.0),
)
FEW = {"schedule": "one_f_one_b", "context": 1, "zero_stage": 1, "microbatch": 1, "tensor": {1, 2}, "data_shard": None}
FEW |= {"recompute": {"none", "full"}, "recompute_share": 1.0, "precision": "bf16"}
LIMITS = Limits(accelerators=2)


def every_pair():
    """Joules, and seconds of both jobs, of every pair of plans on every part that can be bought."""
    listing = PartsProgress(jobs=JOBS, limits=LIMITS, objective=Objective.energy, fixed=FEW)
    for part in within_limits(listing):
        each = []
        for job in JOBS:
            whole = lattice(job.workload, part.cluster, {**FEW, "domain": part.domain}, every_shard=False)
            costs = [evaluate(job.workload, part.cluster, whole.plan(i)).economics for i in range(len(whole))]
            steps = job.weight * job.steps
            each.append(
                [
                    (steps * (case.joule_per_step or math.inf), steps * case.step_s * case.elapsed)
                    for case in (found.base for found in costs if found is not None)
                ]
            )
        yield from ((a[0] + b[0], a[1], b[1]) for a, b in itertools.product(*each))


@pytest.fixture(scope="module")
def pairs():
    return list(every_pair())


def least(pairs, own_s=math.inf, all_s=math.inf):
    return min((p[0] for p in pairs if p[2] <= own_s and p[1] + p[2] <= all_s), default=math.inf)


@pytest.mark.parametrize("share", [0.95, 0.6, 0.3, 0.01])
def test_the_deadline_of_one_of_two_jobs_is_kept(pairs, share):
    best = min(pairs)
    own_s = share * best[2]
    jobs = (JOBS[0], dataclasses.replace(JOBS[1], deadline_s=own_s / JOBS[1].weight))
    found = search_parts(jobs, LIMITS, Objective.energy, 60.0, FEW)
    assert math.exp(found.log_value) == pytest.approx(least(pairs, own_s=own_s), rel=1e-9)
    assert found.log_bound == found.log_value


@pytest.mark.parametrize("share", [0.95, 0.6, 0.3, 0.01])
def test_the_deadline_of_two_jobs_together_is_kept(pairs, share):
    best = min(pairs)
    all_s = share * (best[1] + best[2])
    asked = dataclasses.replace(LIMITS, deadline_s=all_s)
    found = search_parts(JOBS, asked, Objective.energy, 60.0, FEW)
    expected = least(pairs, all_s=all_s)
    assert math.exp(found.log_value) == pytest.approx(expected, rel=1e-9)
    assert found.log_bound <= math.log(expected) + 1e-9 if math.isfinite(expected) else found.log_bound == math.inf


def test_accelerators_that_lie_idle_in_their_domain_count():
    """64 of 72 are usable: each that trains takes 1.125 that are bought."""
    for most in (1, 2, 64, 71, 72):
        limits = Limits(accelerators=most)
        listing = PartsProgress(jobs=JOBS[:1], limits=limits, objective=Objective.time, fixed=FEW)
        assert all(part.bought <= most for part in within_limits(listing))
