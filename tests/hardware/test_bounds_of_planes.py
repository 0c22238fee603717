"""Lower bounds of cutting planes are never above the best hardware of a fine grid, because every tangent lies below."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from costmodel.formulas.curves import hardware_of, with_hardware
from costmodel.inputs.plan import Offload, Plan
from costmodel.specs.workloads import load_workload
from optimize.hardware.model import HardwareModel
from optimize.hardware.solving import HardwareStatus, solve_hardware
from optimize.lattice.enumeration import lattice
from optimize.question.objective import Limits, Objective
from optimize.question.problem import FREE
from tests.hardware.test_hardware import CASES, TEMPLATE, points_of, problem, solved
from tests.support.builders import small_decoder, small_moe
from tests.support.trees import with_offload


def random_problems(seed, count):
    """Small random problems over two variables, the rest fixed, with three plans each."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        workload = small_moe() if rng.random() < 0.3 else small_decoder()
        own, start = np.exp(rng.normal(0, 1.0, len(FREE))), hardware_of(TEMPLATE)
        changed = {name: getattr(start, name) * factor for name, factor in zip(FREE, own, strict=True)}
        template = with_hardware(TEMPLATE, dataclasses.replace(start, **changed))
        template = dataclasses.replace(template, prices=TEMPLATE.prices)
        free = tuple(rng.choice([name for name in FREE if name != "hbm_bytes"], 2, replace=False))
        objective = (Objective.time, Objective.cost, Objective.energy)[rng.choice(3)]
        bounds = {name: (changed[name] / 4, changed[name] * 4) for name in free}
        asked = problem(workload, template, free=free, objective=objective, bounds=bounds)
        point = points_of(workload, template, [_plan(rng) for _ in range(3)])
        unit = HardwareModel(dataclasses.replace(asked, limits=Limits(budget_usd=1.0, power_w=1.0)), (point,))
        worth = np.exp(unit.residual_logs((unit.low + unit.high).T / 2)).mean(axis=1)
        use = [float(x * np.exp(rng.uniform(-0.3, 0.5))) if rng.random() < 0.6 else None for x in worth]
        yield dataclasses.replace(asked, limits=Limits(budget_usd=use[0], power_w=use[1])), point


def _plan(rng):
    tensor, pipeline = int(rng.choice([1, 2, 4])), int(rng.choice([1, 2, 4]))
    switches: dict[str, Any] = {"sequence_parallel": bool(rng.integers(2)), "overlap_data": bool(rng.integers(2))}
    return Plan(data=16, tensor=tensor, pipeline=pipeline, zero_stage=int(rng.choice([0, 1, 2])), **switches)


def best_of_grid(model):
    """The least objective among hardware on a grid that meets all limits, by plan; infinite where none does."""
    axes = np.moveaxis(np.linspace(model.low, model.high, 31), 2, 0)  # variables x steps x plans
    logs = np.stack(np.broadcast_arrays(axes[0][:, None], axes[1][None])).reshape(2, -1, model.length)
    values, _ = model.evaluate(logs)
    inside = (values[1:] <= 0).all(axis=0)
    return np.where(inside, values[0], np.inf).min(axis=0)


def test_bounds_are_never_above_the_optimum_of_a_fine_grid():
    """Over 200 plans of random problems: the grid's best is feasible, so no valid bound may exceed it."""
    over, checked = [], 0
    for asked, point in random_problems(1, 70):
        model = HardwareModel(asked, (point,))
        best, found = best_of_grid(model), solve_hardware(asked, point)
        assert (found.lower_bound <= np.exp(best)).all(), (asked.limits, asked.free)
        done = np.array([status is HardwareStatus.solved for status in found.status])
        assert (found.gap[done] <= 1e-3).all()
        assert {found.status[i] for i in np.flatnonzero(~done)} <= {HardwareStatus.infeasible}
        assert np.isinf(best[~done]).all()
        over += list(best[done] - np.log(found.value[done]))
        checked += len(best)
    assert checked >= 200
    assert len(over) > 150
    assert min(over) >= -1e-3  # the grid is no better than the answer
    assert np.median(over) < 0.05  # and it is fine


@pytest.mark.parametrize("name", ["llama3-70b", "deepseek-v3", "swin-1.8b"])
@pytest.mark.parametrize("objective", [Objective.time, Objective.cost, Objective.energy])
def test_every_tangent_lies_below_its_function(name, objective):
    """What makes the bounds valid: over whole boxes, for the objective and each limit, at plans of real models."""
    rng, workload = np.random.default_rng(9), load_workload(name)
    space = lattice(workload, TEMPLATE, {})
    points = space.points(np.sort(rng.choice(len(space), 200, replace=False)), np.float64)
    points = dataclasses.replace(with_offload(points), offload=Offload(weights=0.5, optimizer=1.0, activations=0.5))
    free = (*FREE, "second_memory_bytes", "second_memory_bytes_per_s")
    asked = problem(
        workload, free=free, objective=objective, limits=Limits(budget_usd=3e6, power_w=1e5, rent=True, deadline_s=1e7)
    )
    model = HardwareModel(asked, (points,))
    for own, variable in zip(model.low.T, model.names, strict=True):
        assert np.all(np.exp(own) >= model.needs.get(variable, 0.0))  # what a plan needs is offered, to the last digit
    low, high = model.low.min(axis=0), model.high.max(axis=0)
    at, other = (np.moveaxis(rng.uniform(low, high, (12, 200, len(free))), 2, 0) for _ in range(2))
    values, slopes = model.evaluate(at)
    below = values + (slopes * (other - at)).sum(axis=1)
    excess = below - model.evaluate(other)[0]
    assert excess.max() <= 1e-11
    assert np.median(excess) < -1e-3  # they bend


def test_the_deadline_of_the_only_job_is_that_of_the_cluster():
    whole = CASES["cost within a deadline"]
    job = dataclasses.replace(whole.jobs[0], deadline_s=whole.limits.deadline_s)
    alone, free = (dataclasses.replace(whole, jobs=(own,), limits=Limits()) for own in (job, whole.jobs[0]))
    np.testing.assert_allclose(solved(alone).value, solved(whole).value, rtol=1e-6)
    assert (solved(alone).value > solved(free).value * 1.001).any()  # it is in the way
