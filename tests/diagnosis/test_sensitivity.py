"""Elasticities against automatic differentiation, homogeneity, terms that stand alone, and a kink made on purpose."""

import dataclasses
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.formulas.counts import counts
from costmodel.formulas.roofline import matmul_roofs, rates
from costmodel.inputs.plan import Plan
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.diagnosis.sensitivity import elasticities, largest, parameters, read_leaf, with_leaves
from tests.support.strategies import double

CASES = {
    "one accelerator": ("gpt-1.7b", "a100-80gb", Plan(), 16),
    "tensor and pipeline": (
        "llama3-70b",
        "h100",
        Plan(data=16, tensor=8, pipeline=4, sequence_parallel=True, overlap_tensor=True),
        None,
    ),
    "ZeRO 3, context, recompute": (
        "llama3-8b",
        "b200",
        Plan(data=16, context=4, zero_stage=3, recompute="full"),
        None,
    ),
    "interleaved": (
        "gpt3-175b",
        "a100-80gb",
        Plan(data=4, tensor=8, pipeline=8, virtual_stages=3, schedule="interleaved"),
        None,
    ),
    "float8, a domain of 64": ("llama3-70b", "gb200-nvl72", Plan(data=16, tensor=16, precision="fp8_tensor"), None),
}


def job(name: str):
    model, cluster, plan, batch = CASES[name]
    return load_workload(model, batch=batch), load_cluster(cluster, plan.accelerators), plan


@pytest.mark.parametrize("name", CASES)
def test_against_automatic_differentiation(name):
    workload, cluster, plan = job(name)
    found = elasticities(workload, cluster, plan)
    floats, hardware, point = prepare(workload, cluster, plan)
    with double():
        leaves = {p.path: jnp.float64(read_leaf(hardware, p.path)) for p in parameters(cluster, plan)}

        def log_step(leaves):
            return jnp.log(cost(floats, with_leaves(hardware, leaves), point, Exact(jnp)).step_s)

        gradient = jax.grad(log_step)(leaves)
        expected = {path: float(gradient[path] * leaves[path]) for path in leaves}
    for elasticity in found:
        assert isinstance(elasticity.value, float), f"{elasticity.parameter.key} has a kink at a generic point"
        assert elasticity.value == pytest.approx(expected[elasticity.parameter.path], abs=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_time_is_homogeneous_in_the_machine(name):
    """A machine with all rates halved and all times doubled takes twice as long (Euler's theorem).

    Among the rates is that of the units whose sizes of products the stack tells, which is nobody's to choose.
    """
    workload, cluster, plan = job(name)
    found = [e for e in elasticities(workload, cluster, plan) if e.parameter.hardware]
    slower = sum(-e.value if e.parameter.rate else e.value for e in found)
    told = [_sized_at(workload, cluster, plan, factor) for factor in (1 - 1e-5, 1 + 1e-5)]
    assert slower - np.log(told[1] / told[0]) / 2e-5 == pytest.approx(1.0, abs=1e-7)


def _sized_at(workload, cluster, plan, factor):
    stack = dataclasses.replace(cluster.stack, sized_at_flop_per_s=factor * cluster.stack.sized_at_flop_per_s)
    return evaluate(workload, dataclasses.replace(cluster, stack=stack), plan).step_s


@pytest.mark.parametrize("name", CASES)
def test_host_time_stands_alone(name):
    workload, cluster, plan = job(name)
    found = {e.parameter.key: e for e in elasticities(workload, cluster, plan)}
    share = cluster.stack.step_s / evaluate(workload, cluster, plan).step_s
    assert found["stack.step_s"].value == pytest.approx(share, rel=1e-6)
    assert found["stack.step_s"].tenth == pytest.approx(-0.1 * share, rel=1e-9)


def test_a_tenth_is_evaluated_not_extrapolated():
    workload, cluster, plan = job("tensor and pipeline")
    tier = dataclasses.replace(cluster.tiers[0], bandwidth_bytes_per_s=1.1 * cluster.tiers[0].bandwidth_bytes_per_s)
    better = dataclasses.replace(cluster, tiers=(tier, cluster.tiers[1]))
    change = evaluate(workload, better, plan).step_s / evaluate(workload, cluster, plan).step_s - 1
    found = {e.parameter.key: e for e in elasticities(workload, cluster, plan)}
    assert found["tiers.nvlink.bandwidth_bytes_per_s"].tenth == pytest.approx(change, rel=1e-9)


def test_what_is_not_used_is_zero():
    found = {e.parameter.key: e.value for e in elasticities(*job("one accelerator"))}
    assert {found[key] for key in found if key.startswith("tiers.")} == {0.0}
    assert found["stack.collective_s"] == 0.0


def test_both_sides_of_a_kink():
    """HBM bandwidth at which a product's two roofs are equal: less of it hurts, more of it helps less."""
    workload, cluster, plan = job("one accelerator")
    floats, hardware, point = prepare(workload, cluster, plan)
    speed = rates(hardware.accelerator, point, hardware.stack)
    count = counts(floats, point, Exact(np)).blocks[1].matmuls[2]
    roof, _ = matmul_roofs(count, point, speed, hardware.stack)
    bandwidth = hardware.accelerator.hbm_bytes_per_s * roof.memory_s / roof.compute_s
    chip = dataclasses.replace(cluster.accelerator, hbm_bytes_per_s=bandwidth)
    tied = dataclasses.replace(cluster, accelerator=chip)
    found = {e.parameter.key: e for e in elasticities(workload, tied, plan)}["accelerator.hbm_bytes_per_s"]
    left, right = found.value
    assert left < right - 1e-3
    assert right < 0


def test_largest_helps_most():
    found = elasticities(*job("tensor and pipeline"))
    top = largest(found, 3)
    assert len(top) == 3
    assert [e.tenth for e in top] == sorted(e.tenth for e in found if e.parameter.hardware)[:3]
    assert largest(found, 0) == ()


def test_takes_milliseconds():
    asked = job("tensor and pipeline")
    elasticities(*asked)
    start = time.process_time()
    for _ in range(10):
        found = elasticities(*asked)
    assert len(found) >= 20
    assert (time.process_time() - start) / 10 < 0.02  # measured: 0.0013
