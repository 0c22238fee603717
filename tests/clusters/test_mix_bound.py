"""The bound of a mix on shared hardware: never above the best of all plans on a fine grid, whatever it starts from."""

import dataclasses

import numpy as np
import pytest

from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.workloads import load_workload
from optimize.clusters.screening import tangents_of
from optimize.clusters.several_jobs_bound import SharedBound, shared_bound
from optimize.lattice.enumeration import lattice
from optimize.lattice.recompute_families import Families
from optimize.question.asked import design_problem
from optimize.question.clusters import sized
from optimize.question.objective import Limits
from optimize.question.problem import Problem
from optimize.question.quantities import Job
from optimize.question.rates import RATES

COUNT, DOMAIN, INSTANCES = 16, 8, 44
WORKLOADS = (
    load_workload("llama3-8b", sequence=2048, batch=32),
    load_workload("llama3-8b", sequence=1024, batch=16),
)
FIXED = {
    "schedule": "one_f_one_b", "context": 1, "zero_stage": 3, "microbatch": 1, "virtual_stages": 1, "precision": "bf16",
    "tensor": 8, "gradient_dtype": "fp32", "sequence_parallel": True,
}  # fmt: skip
JOBS = tuple(Job(workload=workload, tokens=1e10) for workload in WORKLOADS)
ASKED = design_problem(load_cluster("h100"), load_curves(), jobs=JOBS, fixed=FIXED)


def every_plan(workload, grid: np.ndarray) -> tuple[Families, np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of all plans that can be built, their bytes, and logarithms of seconds on every point of the grid."""
    families = Families(lattice(workload, sized(ASKED.machine, COUNT), {**FIXED, "domain": DOMAIN}, every_shard=False))
    members, _ = families.members(families.first(0, len(families)))
    members = members[:: max(1, len(members) // 24)]
    points = [families.lattice.points(np.array([member]), np.float64) for member in members]
    found = [tangents_of(workload, ASKED.machine, point, grid) for point in points]
    need = np.array([one.peak_bytes[0] for one in found])
    built = need <= ASKED.most_hbm_bytes
    return families, members[built], need[built], np.stack([one.log_value for one in found])[built]


def true_best(asked: Problem, tables, grid: np.ndarray) -> float:
    """Logarithm of the least sum over the grid: what is left of the money there buys memory for every job's plan."""
    money = asked.money
    assert asked.limits.budget_usd is not None
    assert asked.limits.power_w is not None
    spare_usd = asked.limits.budget_usd / COUNT - money.usd(grid)
    powered = money.watt(grid) <= asked.limits.power_w / COUNT
    total = np.zeros(len(grid))
    for job, (_, _, need, log_step_s) in zip(asked.jobs, tables, strict=True):
        fits = (money.hbm(need)[:, None] <= spare_usd) & powered
        total += job.weight * asked.steps_on(job, float(COUNT)) * np.exp(np.where(fits, log_step_s, np.inf).min(axis=0))
    return float(np.log(total.min()))


def boxes(shared: SharedBound, splits: int):
    """The bound after every step: scanned, every job closed, and split again and again."""
    parts = [shared]
    yield shared.log_bound
    for _ in range(splits):
        worst = min(parts, key=lambda part: part.log_bound)
        while worst.close_one(np.inf):
            pass
        yield min(part.log_bound for part in parts)
        parts = [part for part in parts if part is not worst] + worst.split(np.inf)
        yield min(part.log_bound for part in parts)


@pytest.mark.slow
def test_it_is_never_above_the_best_of_a_fine_grid():
    ends = zip(*ASKED.ends, strict=True)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 5) for a, b in ends), indexing="ij"), -1).reshape(-1, len(RATES))
    tables, generator, tight, checked = [every_plan(w, grid) for w in WORKLOADS], np.random.default_rng(5), 0, 0
    assert all(len(members) >= 5 for _, members, _, _ in tables)
    for _ in range(INSTANCES):
        jobs = tuple(
            Job(workload=w, tokens=10 ** generator.uniform(9, 11), weight=generator.uniform(0.5, 2)) for w in WORKLOADS
        )
        limits = Limits(budget_usd=generator.uniform(6e5, 3e6), power_w=generator.uniform(1.5e4, 4e4))
        asked = dataclasses.replace(ASKED, jobs=jobs, limits=limits)
        best = true_best(asked, tables, grid)
        if not np.isfinite(best):
            continue
        plans = tuple(f.lattice.plan(int(generator.choice(members))) for f, members, _, _ in tables)
        rates = np.exp(grid[generator.integers(len(grid))])
        hardware = dataclasses.replace(ASKED.hardware(rates, generator.uniform(4e10, 2e11), float(COUNT)))
        shared = shared_bound(asked, COUNT, plans, hardware, np.inf, np.inf)
        bounds = list(boxes(shared, splits=1))
        assert all(bound <= best + 1e-9 for bound in bounds), (bounds, best)
        assert bounds == sorted(bounds)
        checked, tight = checked + 1, tight + int(best - bounds[-1] < 0.3)
    assert checked >= INSTANCES * 10 / 11
    assert tight >= INSTANCES / 9  # and it says something, even from a random start
