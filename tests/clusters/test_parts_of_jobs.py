"""Real parts for several jobs: deadlines of each and of all, on parts of domains; against every pair of plans."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from costmodel import as_floats, evaluate
from optimize.clusters import real_parts
from optimize.clusters.best_plan import values_of, worth_of
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
    found = search_parts(JOBS, asked, Objective.energy, 300.0, FEW)  # it ends by its proof: 17 s of a quiet core for .6
    expected = least(pairs, all_s=all_s)
    assert math.exp(found.log_value) == pytest.approx(expected, rel=1e-9)
    assert found.log_bound <= math.log(expected) + 1e-9 if math.isfinite(expected) else found.log_bound == math.inf


def test_accelerators_that_lie_idle_in_their_domain_count():
    """64 of 72 are usable: each that trains takes 1.125 that are bought."""
    for most in (1, 2, 64, 71, 72):
        limits = Limits(accelerators=most)
        listing = PartsProgress(jobs=JOBS[:1], limits=limits, objective=Objective.time, fixed=FEW)
        assert all(part.bought <= most for part in within_limits(listing))


UNLIKE = {"pipeline": 1, "context": 1, "precision": "bf16", "recompute": "none", "recompute_share": 1.0}
UNLIKE |= {"zero_stage": 2, "data_shard": None, "microbatch": {8, 16, 32, 64}}
TWO = (
    Job(workload=small_decoder(layers=8, batch=64, hidden=4096), tokens=1e9),
    Job(workload=small_decoder(layers=8, batch=32, hidden=4096), tokens=5e8, weight=2.0),
)


def every_step(whole, loads=None):
    """Seconds of every plan of a lattice that fits, and those at the usual power."""
    machine = as_floats(dataclasses.replace(whole.cluster, prices=None))
    points = whole.points(np.arange(len(whole)), np.float64)
    at = values_of(as_floats(whole.workload), machine, points, len(whole), loads)
    seconds = np.where(at.peak_bytes <= machine.accelerator.hbm_bytes, np.exp(at.log_value), np.inf)
    return seconds, seconds if at.log_drawn is None else np.exp(at.log_drawn)


def tight(whole, below=math.inf):
    """The best bounds of rows that there are: what the fastest plan of each takes."""
    return np.minimum.reduceat(every_step(whole)[0], np.r_[0, whole.ends[:-1]]) * (1 - 1e-9)


@pytest.mark.parametrize("above", [1e-8, 5e-5, 2e-4, 6e-4, 1.5e-3])
def test_the_plan_of_least_energy_of_one_job_does_not_take_the_time_of_the_other(monkeypatch, above):
    """It is slower than others of its own, as near to the deadline as bounds may be."""
    monkeypatch.setattr(real_parts, "row_bounds_s", tight)
    limits = Limits(accelerators=4)
    listing = PartsProgress(jobs=TWO, limits=limits, objective=Objective.energy, fixed=UNLIKE)
    part = next(part for part in within_limits(listing) if part.bought == 4 and part.cluster.name == "h100")
    each = []
    for job in TWO:
        whole = lattice(job.workload, part.cluster, {**UNLIKE, "domain": part.domain}, every_shard=False)
        steps_s = [job.weight * job.steps_on(4, part.cluster.prices) * s for s in every_step(whole, part.worth[2])]
        each.append((steps_s[0], worth_of(part.worth, tuple(steps_s))))
    seconds, joules = (one[:, None] + other for one, other in zip(*each, strict=True))
    deadline_s = float(seconds.min()) * (1 + above)
    assert seconds.flat[joules.argmin()] > seconds.min() * (1 + 1e-3)
    asked = dataclasses.replace(limits, deadline_s=deadline_s)
    found = PartsProgress(jobs=TWO, limits=asked, objective=Objective.energy, fixed=UNLIKE)
    real_parts._look(found, part)
    least = math.log(joules[seconds <= deadline_s].min())
    assert found.log_value >= least - 1e-9 >= min(found.log_value, found.log_bound) - 2e-9
