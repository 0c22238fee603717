"""Plans checked before they are reported: rules, memory, and pipelines played out against sums made here."""

import dataclasses
import math

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.inputs import Position
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.stack import Stack
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from optimize.diagnosis import played
from optimize.diagnosis.validate import validate
from optimize.lattice.axis import even_layers
from tests.support.builders import accelerator, cluster, small_decoder, small_moe

EVEN = Plan(data=4, tensor=2, pipeline=4, microbatch=1, sequence_parallel=True, domain=8)
UNEVEN = dataclasses.replace(EVEN, stage_layers=(2, 5, 4, 1), schedule="gpipe")


def passes_by_hand(workload, plan, layer_of):
    """F and B + W of every stage: the sum of its layers, the embedding on the first, the head on the last."""
    done = parts(*prepare(workload, cluster(32), plan), Exact(math))
    blocks = {block.name: block for block in done.times.blocks}

    def seconds(block):
        return block.forward_s, block.backward_s + block.weights.seconds

    stages = []
    for stage, names in enumerate(layer_of):
        names = [*names, *(b.name for b in blocks.values() if b.position == (Position.FIRST if stage == 0 else ""))]
        names += [
            b.name for b in blocks.values() if b.position == (Position.LAST if stage == len(layer_of) - 1 else "")
        ]
        stages.append([sum(seconds(blocks[name])[i] for name in names) for i in (0, 1)])
    hop_s = done.times.laws.boundary.latency_s + done.counts.boundary_bytes * done.times.laws.boundary.seconds_per_byte
    return stages, hop_s


def gpipe_s(stages, hop_s, microbatches):
    """Two flow shops of equal jobs: the way of one, and the others at the pace of the slowest stage."""
    ways = [sum(column) + (microbatches - 1) * max(column) for column in zip(*stages, strict=True)]
    return sum(ways) + 2 * (len(stages) - 1) * hop_s


def test_uneven_stages_against_the_flow_shop_of_their_own_layers():
    workload = small_decoder(layers=12, batch=64)
    found = validate(workload, cluster(32), UNEVEN).pipeline
    stages, hop_s = passes_by_hand(workload, UNEVEN, [["layer"] * n for n in UNEVEN.stage_layers or ()])
    assert found is not None
    assert found.played_s == pytest.approx(gpipe_s(stages, hop_s, 16), rel=1e-9)
    assert found.ordered_s is None


def test_layers_of_two_kinds_in_the_order_of_the_model():
    """One dense layer, then four with experts: the first stage holds the dense one."""
    plan = Plan(data=16, pipeline=2, expert=4, schedule="gpipe", stage_layers=(2, 3), domain=8)
    found = validate(small_moe(), cluster(32), plan).pipeline
    stages, hop_s = passes_by_hand(small_moe(), plan, [["dense layer", "expert layer"], ["expert layer"] * 3])
    assert found is not None
    assert found.ordered_s is not None
    assert found.ordered_s == pytest.approx(gpipe_s(stages, hop_s, 16), rel=1e-9)
    assert found.played_s != found.ordered_s


def test_stages_in_order_end_with_the_module():
    """A module of multi-token prediction stands behind all layers, its head beside the model's."""
    plan = Plan(data=16, pipeline=2, expert=4, schedule="gpipe", stage_layers=(3, 3), domain=8)
    workload = small_moe(mtp_layers=1)
    found = validate(workload, cluster(32), plan).pipeline
    held = [["dense layer", "expert layer", "expert layer"], ["expert layer", "expert layer", "multi-token layer"]]
    stages, hop_s = passes_by_hand(workload, plan, held)
    assert found is not None
    assert found.ordered_s == pytest.approx(gpipe_s(stages, hop_s, 16), rel=1e-9)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_is_played(schedule):
    """The differences of the closed forms, with embedding and head: those that test_schedule.py states."""
    virtual = 2 if SCHEDULES[schedule].interleaves else EVEN.virtual_stages
    plan = dataclasses.replace(EVEN, schedule=schedule, virtual_stages=virtual)
    workload = small_decoder(layers=16, batch=64, vocabulary=4000)
    found = validate(workload, cluster(32), plan)
    assert found.passes, found.violations
    assert found.pipeline is not None
    assert found.breakdown is not None
    assert abs(found.pipeline.difference) <= {"zb_v": 0.01, "dualpipe": 0.005, "interleaved": 0.03, "zb_h1": 0.01}.get(
        schedule, 1e-9
    )
    assert found.pipeline.in_flight_difference == pytest.approx(0, abs=1e-9)
    longer_s = found.pipeline.played_s - found.pipeline.closed_s
    assert found.pipeline.step_s == pytest.approx(float(found.breakdown.step_s) + longer_s, rel=1e-9)


def test_the_score_is_that_of_evaluate():
    workload = small_decoder(layers=12, batch=64)
    found, expected = validate(workload, cluster(32), EVEN), evaluate(workload, cluster(32), EVEN)
    assert found.breakdown == expected
    assert found.peak_bytes == expected.memory.peak_bytes
    assert len(found.stage_bytes) == 4
    assert found.messages == ()


def test_a_broken_rule_is_an_answer():
    plan = dataclasses.replace(EVEN, tensor=3, microbatch=7)
    found = validate(small_decoder(layers=12), cluster(32), plan)
    assert found.violations == violations(plan, small_decoder(layers=12), cluster(32)) == found.messages
    assert len(found.violations) >= 3
    assert (found.breakdown, found.pipeline, found.passes) == (None, None, False)
    assert found.as_json()["step_s"] is None


def test_the_stages_that_do_not_fit_are_named():
    accelerators = cluster(32)
    small = dataclasses.replace(accelerators.accelerator, hbm_bytes=1.0 * 2**30)
    found = validate(small_decoder(layers=12), dataclasses.replace(accelerators, accelerator=small), EVEN)
    assert not found.fits
    assert not found.passes
    assert not found.violations
    assert found.messages[0].startswith("4 of 4 stages do not fit: stage ")
    assert found.messages[0].endswith("of 1.0")


def test_a_closed_form_that_is_off_gets_a_message():
    """Three layers in two chunks: one chunk holds two of them, the closed form one and a half in each."""
    plan = dataclasses.replace(EVEN, schedule="interleaved", virtual_stages=2, stage_layers=(3, 3, 3, 3))
    found = validate(small_decoder(layers=12, hidden=1024, sequence=1024), cluster(32), plan)
    assert found.pipeline is not None
    assert found.pipeline.difference > 0.01
    assert "against the closed form" in found.messages[-1]


def test_a_pipeline_too_large_to_play_is_said(monkeypatch):
    monkeypatch.setattr(played, "MOST_OPERATIONS", 100)
    found = validate(small_decoder(layers=12), cluster(32), EVEN)
    assert found.pipeline is None
    assert "too many operations" in found.messages[-1]
    assert found.passes


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("extra", ["host work", "second memory"])
def test_what_every_stage_waits_for_is_played_too(schedule, extra):
    """Host work of each microbatch, and traffic with the second memory that no compute hides."""
    virtual = 2 if SCHEDULES[schedule].interleaves else 1
    plan = dataclasses.replace(EVEN, schedule=schedule, virtual_stages=virtual)
    machine = cluster(32, stack=Stack(microbatch_s=2e-3))
    if extra == "second memory":
        plan = dataclasses.replace(plan, offload_weights=1.0, offload_optimizer=1.0, offload_activations=0.5)
        slow = accelerator(second_memory_bytes=2.0**40, second_memory_bytes_per_s=1e9)
        machine = dataclasses.replace(cluster(32), accelerator=slow)
    workload = small_decoder(layers=16, batch=64, vocabulary=4000)
    found, usual = validate(workload, machine, plan), validate(workload, cluster(32), EVEN)
    assert found.passes, found.violations
    assert found.pipeline is not None
    assert usual.pipeline is not None
    assert found.breakdown is not None
    assert found.pipeline.played_s > 1.2 * usual.pipeline.played_s
    assert abs(found.pipeline.difference) <= {"zb_v": 0.05, "dualpipe": 0.005, "interleaved": 0.03, "zb_h1": 0.01}.get(
        schedule, 1e-9
    )
    longer_s = found.pipeline.played_s - found.pipeline.closed_s
    assert found.pipeline.step_s == pytest.approx(float(found.breakdown.step_s) + longer_s, rel=1e-9)


@pytest.mark.parametrize("name", ["h100", "b200", "mi300x", "tpu-v5p"])
def test_on_shipped_clusters_the_closed_form_of_1f1b_is_the_play(name):
    """Whatever a fitted stack adds to a stage has to be added in both."""
    plan = Plan(data=4, tensor=8, pipeline=8, sequence_parallel=True)
    found = validate(load_workload("llama3-70b", batch=256), load_cluster(name, accelerators=256), plan)
    assert found.pipeline is not None, found.violations
    assert abs(found.pipeline.difference) < 1e-9


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b"])
@pytest.mark.parametrize(("layers", "stages"), [(94, 16), (6, 4), (9, 8), (11, 5), (25, 6)])
def test_a_few_microbatches_take_the_way_over_all_layers(schedule, layers, stages):
    """Both ends have a layer less than middle stages: one microbatch takes as long as all layers, and embedding and
    head; a few are at most 3.3 % too slow, where a warm-up hides a forward of the heavier stages, and 2 % too fast."""
    held, machine = even_layers(layers, stages), load_cluster("h100", accelerators=8 * stages)
    plan = Plan(tensor=8, pipeline=stages, schedule=schedule, stage_layers=held, overlap_pipeline=True)
    for microbatches in (1, 2, stages, 4 * stages):
        job = small_decoder(layers=layers, batch=microbatches, hidden=2048, sequence=1024)
        found = validate(job, machine, plan).pipeline
        assert found is not None
        low, high = (-1e-9, 1e-9) if microbatches == 1 else (-0.033, 0.02)
        assert low < found.difference < high
