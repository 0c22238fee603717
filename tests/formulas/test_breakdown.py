"""What a term says of its resources, against the rooflines that made its seconds."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators import prepare
from costmodel.exact import Exact
from costmodel.formulas import breakdown, parts
from costmodel.formulas.roofline import attention_s, matmul_s, memory_s
from costmodel.formulas.timing import issue_s
from costmodel.inputs import Plan, Position
from costmodel.models import freeze
from costmodel.specs import load_cluster, load_workload
from optimize.diagnosis.explain import limiting

SEM = Exact(math)
FAMILIES = (
    "llama3-8b", "mixtral-8x7b", "deepseek-v3", "bert-base", "mbart-large", "t5-11.6b", "swin-1.8b",
    "alphafold2-128x256", "dlrm-criteo", "llama3-8b, frozen",
)  # fmt: skip
PLANS = {
    "fused": {"recompute": "full"},
    "unfused": {"attention": "unfused", "recompute": "selective"},
    "narrow": {"precision": "fp8_block", "zero_stage": 3},
}


def evaluated(name, plan, **stack):
    """Breakdown and parts of one of the families on H100, with other constants of the software."""
    workload = load_workload(name.removesuffix(", frozen"), batch=32)
    workload = freeze(workload) if name.endswith("frozen") else workload
    machine = load_cluster("h100", accelerators=8)
    machine = dataclasses.replace(machine, stack=dataclasses.replace(machine.stack, **stack))
    given = prepare(workload, machine, Plan(data=8, **plan))
    done = parts(*given, SEM)
    return {term.name: term for term in breakdown(*given, done, SEM).terms}, done, given


def by_operator(done, given):
    """Of each kind: seconds of all its operators in all passes of a step, at the arithmetic units, at the memory and in
    launches, written down anew: every operator alone, on a machine with one resource."""
    _, machine, point = given
    free = dataclasses.replace(machine.stack, kernel_s=0.0)
    speed = done.times.rates
    idle = dataclasses.replace(speed, matmul_s_per_flop=0.0, matmul_fill_s_per_flop=0.0, attention_s_per_flop=0.0)
    only = {
        "compute": (dataclasses.replace(speed, memory_s_per_byte=0.0), free),
        "memory": (idle, free),
        "launch": (dataclasses.replace(idle, memory_s_per_byte=0.0), machine.stack),
    }
    row, m = point.recompute, done.counts.microbatches / point.pipeline
    found = {kind: [] for kind in ("matmuls", "attention", "norms, activations", "recompute")}
    for rate, stack in only.values():
        sums = dict.fromkeys(found, 0.0)
        for b in done.counts.blocks:
            if b.position != Position.LAYER:
                continue
            for count in b.matmuls:
                product_s, weights_s = matmul_s(count, point, rate, stack, SEM)
                sums["matmuls"] += m * b.repeats * ((b.forwards + 1) * product_s + weights_s)
                sums["recompute"] += m * b.repeats * row.redo_rest * product_s
            for count in b.attentions:
                forward_s, backward_s = attention_s(count, point, rate, stack, SEM)
                sums["attention"] += m * b.repeats * (b.forwards * forward_s + backward_s)
                sums["recompute"] += m * b.repeats * row.redo_core * forward_s
            for count in b.memories:
                forward_s, backward_s = memory_s(count, point, rate, stack)
                sums["norms, activations"] += m * b.repeats * (b.forwards * forward_s + backward_s)
                sums["recompute"] += m * b.repeats * row.redo_rest * forward_s
        for kind, seconds in sums.items():
            found[kind].append(seconds)
    return found


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", FAMILIES)
def test_sides_of_a_term_are_those_of_its_operators(name, plan):
    terms, done, given = evaluated(name, plan)
    for kind, sides in by_operator(done, given).items():
        limits = dict(zip(terms[kind].limit_names, terms[kind].limits, strict=True))
        expected = dict(zip(("FLOP/s", "HBM bandwidth", "kernel launch"), sides, strict=True))
        for side in expected.keys() & limits.keys():
            np.testing.assert_allclose(limits[side], expected[side], rtol=1e-12, atol=1e-15, err_msg=f"{kind}: {side}")
        assert max(sides) <= terms[kind].exposed_s * (1 + 1e-12) + 1e-15
        if kind != "recompute":
            assert terms[kind].exposed_s <= sum(sides) * (1 + 1e-12)


@pytest.mark.parametrize("hbm_ceiling", [1e-6, 1e6])
@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", FAMILIES)
def test_where_all_operators_are_limited_by_one_side_it_is_the_time(name, plan, hbm_ceiling):
    """A memory a million times slower or faster than it is, without launches."""
    terms, _, _ = evaluated(name, plan, hbm_ceiling=hbm_ceiling, kernel_s=0.0)
    slow = hbm_ceiling < 1
    for kind in ("matmuls", "attention"):
        term = terms[kind]
        np.testing.assert_allclose(max(term.limits), term.exposed_s, rtol=1e-3 if not slow else 1e-12, atol=1e-15)
        if term.exposed_s:
            assert limiting(term) == ("HBM bandwidth" if slow else "FLOP/s")
    assert terms["norms, activations"].limits[0] == pytest.approx(terms["norms, activations"].exposed_s, rel=1e-12)


def test_fused_attention_moves_its_operands_three_times():
    """Once forward, twice backward."""
    terms, done, _ = evaluated("llama3-8b", {})
    layer, m = done.counts.layers[0], done.counts.microbatches
    moved_bytes = 3 * layer.repeats * m * sum(count.operand_bytes for count in layer.attentions)
    np.testing.assert_allclose(
        terms["attention"].limits[1], moved_bytes * done.times.rates.memory_s_per_byte, rtol=1e-12
    )


@pytest.mark.parametrize("host_kernel_s", [1e-6, 1e-2])
def test_the_device_waits_for_the_host_where_it_is_not_ahead(host_kernel_s):
    """A pass takes the longer of the two and a share of the shorter; what is computed again does too."""
    _, done, given = evaluated("llama3-8b", {"recompute": "full"}, host_kernel_s=host_kernel_s, contention=0.2)
    (layer,) = done.times.layers
    for _, each in layer.passes:
        longer_s, shorter_s = max(each.busy_s, each.issue_s), min(each.busy_s, each.issue_s)
        assert each.seconds == pytest.approx(longer_s + 0.2 * shorter_s, rel=1e-12)
    forward = layer.forward
    rest_s = forward.products_s + forward.memory_s
    again_s = max(rest_s, forward.issue_s) + 0.2 * min(rest_s, forward.issue_s)
    assert layer.recompute_s == pytest.approx(forward.core_s + again_s, rel=1e-12)


def test_one_tensor_rank_issues_no_collectives():
    """Between ranks the host calls each of them once; beside nothing else that it issues."""
    job = load_workload("llama3-8b", batch=32), load_cluster("h100", accelerators=8)
    point = prepare(*job, Plan(data=4, tensor=2))[2]
    _, done, given = evaluated("llama3-8b", {}, host_kernel_s=1e-5)
    (layer,), stack = done.counts.layers, given[1].stack
    alone, divided = (issue_s(layer, each, done.times.laws, stack, SEM) for each in (given[2], point))
    assert [b - a for a, b in zip(alone, divided, strict=True)] == pytest.approx(
        [1e-5 * layer.syncs, 1e-5 * layer.backward_syncs, 0.0], abs=1e-15
    )
    assert layer.syncs > 0
