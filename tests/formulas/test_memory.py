"""Memory against published activations, against every stage, and against states counted by hand."""

import dataclasses
import math
import tomllib

import numpy as np
import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.evaluators.stage_memory import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.formulas.counts import counts
from costmodel.formulas.memory import in_flight, memory, peak
from costmodel.formulas.optimizer import update_bytes
from costmodel.inputs import SOFTWARE, Position, whole
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.stack import Stack
from costmodel.models.decoder import decoder
from costmodel.pytree import as_floats
from tests.support import GOLDEN
from tests.support.builders import cluster, small_decoder, small_moe

SEM = Exact(math)
TABLE = tomllib.loads((GOLDEN / "korthikanti_2022.toml").read_text())
MODES = {
    "none": {},
    "sequence": {"sequence_parallel": True},
    "selective": {"recompute": "selective"},
    "selective_sequence": {"sequence_parallel": True, "recompute": "selective"},
    "full": {"recompute": "full"},
}


def gpt(hidden, heads, layers, batch, **_):
    return decoder(
        layers=layers, hidden=hidden, heads=heads, ffn=4 * hidden, vocabulary=51200, sequence=2048, batch=batch,
        bias=True, layer_norm=True, learned_positions=True, dropout=True, tied=True,
    )  # fmt: skip


def first_stage(size: str, mode: str):
    """The first stage, without the head that it also holds where there is no pipeline: the paper counts layers."""
    layout = TABLE["layouts"][size]
    schedule = "interleaved" if layout["virtual_stages"] > 1 else "one_f_one_b"
    degrees = {name: layout[name] for name in ("microbatch", "pipeline", "virtual_stages")}
    plan = Plan(
        tensor=8, schedule=schedule, attention="unfused", precision="fp16", zero_stage=0, **degrees, **MODES[mode]
    )
    workload, machine, point = prepare(gpt(**layout), cluster(), plan)
    use = parts(workload, machine, point, SEM).memory
    return use.first if plan.pipeline > 1 else use.second


@pytest.mark.parametrize("size", TABLE["layouts"])
@pytest.mark.parametrize("mode", TABLE["activations_gib"])
def test_activations_of_korthikanti(size, mode):
    found = first_stage(size, mode).activations_bytes / 2**30
    np.testing.assert_allclose(found, TABLE["activations_gib"][mode][size], rtol=TABLE["tolerance"])


@pytest.mark.parametrize("size", TABLE["layouts"])
@pytest.mark.parametrize("mode", TABLE["relative_percent"])
def test_relative_activations_of_korthikanti(size, mode):
    baseline, found = (first_stage(size, m).activations_bytes for m in ("none", mode))
    np.testing.assert_allclose(100 * found / baseline, TABLE["relative_percent"][mode][size], rtol=TABLE["tolerance"])


@pytest.mark.parametrize("size", TABLE["layouts"])
def test_weights_gradients_and_states_of_korthikanti(size):
    """Published for the layers alone, so on a stage in the middle; the 22B model is a single stage with embeddings."""
    layout = TABLE["layouts"][size]
    counted = 18 * 12 * layout["layers"] * layout["hidden"] ** 2 / 8 / layout["pipeline"] / 2**30
    np.testing.assert_allclose(counted, TABLE["weights_and_states_gib"]["all"][size], rtol=2e-3)
    if layout["pipeline"] > 1:
        schedule = "interleaved" if layout["virtual_stages"] > 1 else "one_f_one_b"
        degrees = {name: layout[name] for name in ("microbatch", "pipeline", "virtual_stages")}
        plan = Plan(tensor=8, schedule=schedule, zero_stage=0, **degrees)
        workload, machine, point = prepare(gpt(**layout), cluster(), plan)
        stage = parts(workload, machine, point, SEM).memory.second
        held = stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes
        np.testing.assert_allclose(held / 2**30, TABLE["weights_and_states_gib"]["all"][size], rtol=TABLE["tolerance"])


PLANS = [
    Plan(tensor=2, pipeline=p, data=2, schedule=schedule, microbatch=1, **other)
    for p in (1, 2, 3, 4, 6)
    for schedule, other in [
        ("gpipe", {}),
        ("one_f_one_b", {"zero_stage": 3}),
        ("one_f_one_b", {"recompute": "full"}),
        ("zb_h1", {}),
        ("zb_h2", {"sequence_parallel": True}),
    ]
] + [
    Plan(pipeline=p, data=2, schedule="interleaved", virtual_stages=v)
    for p, v in [(2, 2), (2, 3), (3, 2), (3, 4), (4, 3)]
]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_first_second_and_last_stage_are_enough(plan):
    """With uniform layers the peak over all stages is that of the three which the traced model evaluates."""
    workload, machine, point = prepare(small_decoder(layers=24, batch=96), cluster(), plan)
    traced = parts(workload, machine, point, SEM).memory.peak_bytes
    every = [peak(stage, SEM) for stage in memory_by_stage(workload, machine, plan)]
    assert len(every) == plan.pipeline
    np.testing.assert_allclose(traced, max(every), rtol=1e-12)


def test_uneven_stages_hold_their_own_layers():
    plan = Plan(pipeline=4, stage_layers=(5, 7, 7, 5))
    workload, machine, point = prepare(small_decoder(layers=24, batch=96), cluster(), plan)
    stages = memory_by_stage(workload, machine, plan)
    assert stages[1].weights_bytes == stages[2].weights_bytes
    layer = next(b for b in counts(workload, point, SEM).blocks if b.position == Position.LAYER)
    np.testing.assert_allclose(stages[1].weights_bytes, 7 * 2 * layer.parameters, rtol=1e-12)
    traced = memory(counts(workload, point, SEM), point, machine.stack, SEM).peak_bytes
    np.testing.assert_allclose(traced, max(peak(stage, SEM) for stage in stages), rtol=1e-12)


@pytest.mark.parametrize(("stage", "per_parameter"), [(0, 16.0), (1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_bytes_per_parameter_of_each_zero_stage(stage, per_parameter):
    """Mixed precision Adam with 16-bit gradients: 2 + 2 + 12 bytes, divided over 8 ranks (Rajbhandari et al. 2020)."""
    plan = Plan(data=8, zero_stage=stage, gradient_dtype="bf16")
    workload, machine, point = prepare(small_decoder(batch=16), cluster(), plan)
    use = parts(workload, machine, point, SEM).memory.first
    elements = point_parameters(workload, point)
    held = use.weights_bytes + use.gradients_bytes + use.optimizer_bytes
    np.testing.assert_allclose(held, per_parameter * elements, rtol=1e-12)


@pytest.mark.parametrize("software", ["megatron-2022", "megatron-core"])
@pytest.mark.parametrize(
    ("numbers", "stage", "per_parameter"),
    [
        ({"gradient_dtype": "fp16"}, 0, 20.0), ({"gradient_dtype": "fp16"}, 1, 4 + 16 / 8),
        ({"gradient_dtype": "fp32"}, 0, 18.0), ({"gradient_dtype": "fp32"}, 1, 6 + 12 / 8),
        ({"gradient_dtype": "fp16", "state_dtype": "bf16"}, 0, 2 + 2 + 8.0),
    ],
)  # fmt: skip
def test_bytes_per_parameter_as_megatron_documents_them(software, numbers, stage, per_parameter):
    """At the update, with the 32-bit copies of 16-bit gradients that its optimizers make there; its optimizer of narrow
    states makes none. Source: docs.nvidia.com/megatron-core, Distributed Optimizer (of fp16 and fp32 gradients)."""
    stack = Stack(habits=SOFTWARE[software])
    plan = Plan(data=8, zero_stage=stage, precision="fp16", **numbers)
    workload, machine, point = prepare(small_decoder(batch=16), cluster(stack=stack), plan)
    use = parts(workload, machine, point, SEM).memory.first
    at_update = use.weights_bytes + use.gradients_bytes + use.optimizer_bytes + use.update_bytes
    np.testing.assert_allclose(at_update, per_parameter * point_parameters(workload, point), rtol=1e-12)


def test_the_update_writes_copies_of_gradients_and_reads_them():
    """24 bytes of states in and out and 2 of weights; 2 of gradients in, of copies in 32 bits 4 out and 4 in."""

    def per_parameter(habits):
        plan = Plan(data=8, zero_stage=0, precision="fp16", gradient_dtype="fp16")
        workload, _, point = prepare(small_decoder(batch=16), cluster(stack=Stack(habits=habits)), plan)
        return update_bytes(counts(workload, point, SEM), point, SEM) / point_parameters(workload, point)

    np.testing.assert_allclose(per_parameter(SOFTWARE["megatron-2022"]), 24 + 2 + 2 + 4 + 4, rtol=1e-12)
    np.testing.assert_allclose(per_parameter(Stack().habits), 24 + 2 + 2, rtol=1e-12)


def point_parameters(workload, point):
    return sum(b.repeats * b.parameters for b in counts(workload, point, SEM).blocks)


def test_a_tied_head_has_weights_of_its_own_only_under_a_pipeline():
    tied = as_floats(small_decoder(layers=4, batch=8, tied=True))
    loose = as_floats(small_decoder(layers=4, batch=8))
    (head,) = (op for op in tied.blocks[-1].ops if op.name == "logits")
    head_bytes = 2 * head.inner[0].value * head.columns[0].value

    def weights(workload, **plan):
        use = memory(counts(workload, embed(Plan(zero_stage=0, **plan), workload, 8.0), SEM),
                     embed(Plan(zero_stage=0, **plan), workload, 8.0), Stack(), SEM)  # fmt: skip
        return use.last.weights_bytes

    np.testing.assert_allclose(weights(loose) - weights(tied), head_bytes, rtol=1e-9)
    assert weights(loose, pipeline=2) == weights(tied, pipeline=2)


@pytest.mark.parametrize(("schedule", "copies"), [("one_f_one_b", 1), ("interleaved", 1), ("zb_v", 0), ("dualpipe", 0)])
def test_modules_of_further_tokens_need_the_embedding_on_the_last_stage(schedule, copies):
    """A copy where that stage holds the head and not the embedding, in all bytes of a parameter; none otherwise."""
    given = as_floats(small_moe(layers=7, mtp_layers=1, batch=16))
    plain = dataclasses.replace(given, embeds_again=0.0)
    table = given.blocks[0].ops[0]
    table_bytes = 2 * whole(table.inner) * whole(table.columns)

    def fullest(workload, **plan):
        point = embed(Plan(zero_stage=0, **plan), workload, 8.0)
        return memory(counts(workload, point, SEM), point, Stack(), SEM)

    pipeline = {"pipeline": 2, "schedule": schedule, "virtual_stages": 2 if schedule == "interleaved" else 1}
    one, other = (fullest(workload, **pipeline) for workload in (given, plain))
    assert one.last.weights_bytes - other.last.weights_bytes == pytest.approx(copies * table_bytes, rel=1e-6)
    assert one.last.optimizer_bytes - other.last.optimizer_bytes == pytest.approx(copies * 6 * table_bytes, rel=1e-6)
    assert (one.first, one.second) == (other.first, other.second)
    assert fullest(given).first == fullest(plain).first


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_no_more_microbatches_in_flight_than_there_are(schedule):
    plan = Plan(pipeline=4, schedule=schedule, virtual_stages=2 if SCHEDULES[schedule].interleaves else 1)
    point = embed(plan, small_decoder(layers=24, batch=96), 8.0)
    for microbatches in (1.0, 2.0, 8.0):
        assert 0 < in_flight(point, microbatches, 4.0, SEM) <= microbatches
