"""Plans whose microbatches go both ways (DualPipe): a stage holds its own chunk and that of its mirror image."""

import dataclasses
import math

import pytest

from costmodel.evaluators import evaluate, memory_by_stage, prepare
from costmodel.exact import Exact
from costmodel.formulas import counts, gradient_traffic_s, peak, timing
from costmodel.inputs import Plan
from costmodel.specs import violations
from tests.support.builders import cluster, small_decoder, small_moe

SEM = Exact(math)
ONE_WAY = Plan(data=4, tensor=2, pipeline=4, sequence_parallel=True)
BOTH_WAYS = dataclasses.replace(ONE_WAY, schedule="dualpipe")
WORKLOADS = {"dense": small_decoder(layers=16, batch=64), "experts": small_moe(layers=16, batch=64)}


def changed(plan, workload, **fields):
    expert = 2 if any(op.name.startswith("expert") for block in workload.blocks for op in block.ops) else 1
    return dataclasses.replace(plan, expert=expert, **fields)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("zero", [0, 1, 3])
def test_a_stage_holds_two_chunks_whose_copies_share_their_shards(name, zero):
    """What is whole is the sum of a stage and its mirror image; what is divided has twice as many ranks."""
    workload = WORKLOADS[name]
    one, both = (
        memory_by_stage(workload, cluster(32), changed(plan, workload, zero_stage=zero))
        for plan in (ONE_WAY, BOTH_WAYS)
    )
    for stage, mirror, found in zip(one, one[::-1], both, strict=True):
        for term, from_stage in (("weights", 3), ("gradients", 2), ("optimizer", 1)):
            summed = getattr(stage, f"{term}_bytes") + getattr(mirror, f"{term}_bytes")
            expected = summed / 2 if zero >= from_stage else summed
            assert getattr(found, f"{term}_bytes") == pytest.approx(expected, rel=1e-12), term


@pytest.mark.parametrize("zero", [0, 1, 3])
def test_the_closed_form_sees_the_fullest_stage(zero):
    plan = dataclasses.replace(BOTH_WAYS, zero_stage=zero)
    stages = memory_by_stage(WORKLOADS["dense"], cluster(32), plan)
    highest = max(float(peak(stage, SEM)) for stage in stages)
    assert evaluate(WORKLOADS["dense"], cluster(32), plan).memory.peak_bytes == pytest.approx(highest, rel=1e-12)


def test_every_stage_holds_one_microbatch_more_than_there_are_stages():
    one, both = (memory_by_stage(WORKLOADS["dense"], cluster(32), plan) for plan in (ONE_WAY, BOTH_WAYS))
    middle = one[1].activations_bytes / 3  # of one microbatch: the second of four stages holds three
    assert [stage.activations_bytes for stage in both[1:3]] == pytest.approx([5 * middle] * 2)


def test_gradients_are_reduced_over_both_copies():
    """Also where there is no data parallelism: then the two stages of a copy reduce alone."""
    workload = small_decoder(layers=16, batch=16)
    seconds = {}
    for data in (1, 4):
        for schedule in ("zb_h1", "dualpipe"):
            plan = dataclasses.replace(ONE_WAY, data=data, schedule=schedule)
            parts = prepare(workload, cluster(8 * data), plan)
            counted = counts(parts[0], parts[2], SEM)
            laws = timing(counted, parts[2], parts[1], SEM).laws
            seconds[data, schedule] = gradient_traffic_s(counted, laws, parts[2], SEM)
    assert seconds[1, "zb_h1"] == 0.0
    assert seconds[1, "dualpipe"] > 0.0
    assert seconds[4, "dualpipe"] > 1.5 * seconds[4, "zb_h1"]


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"pipeline": 1, "data": 16}, "`pipeline` 1 and"),
        ({"microbatch": 2, "data": 2, "pipeline": 8}, None),
        ({"microbatch": 8}, "2 microbatches; expected at least 8"),
        ({"virtual_stages": 2}, "`virtual_stages` is 2 with dualpipe"),
        ({"stage_layers": (4, 4, 4, 4)}, "`stage_layers` is given with `schedule` dualpipe"),
    ],
)
def test_rules(fields, told):
    broken = violations(dataclasses.replace(BOTH_WAYS, **fields), WORKLOADS["dense"], cluster(32))
    assert (told is None and not broken) or any(str(told) in each for each in broken), broken


def test_expert_traffic_hides_behind_the_other_way():
    """As if the plan overlapped it: the same step with and without the switch."""
    workload = WORKLOADS["experts"]
    steps = [
        evaluate(workload, cluster(32), changed(BOTH_WAYS, workload, overlap_expert=switch)).step_s
        for switch in (False, True)
    ]
    assert steps[0] == steps[1]
