"""Offload to the second memory: bytes by hand, time against streams played out, rules, and nothing where nothing is."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from costmodel.evaluators import compiled
from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.evaluators.stage_memory import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas.cost import cost, parts
from costmodel.formulas.held import kept_bytes
from costmodel.inputs import Position
from costmodel.inputs.plan import Offload, Plan
from costmodel.inputs.stack import Habits, Stack
from costmodel.models.decoder import decoder
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from tests.support import builders
from tests.support.builders import small_decoder, small_moe
from tests.support.strategies import point_batch
from tests.support.trees import with_offload

SEM = Exact(math)
ALL = {f"offload_{what}": 1.0 for what in ("weights", "optimizer", "activations", "gradients")}


def machine(accelerators: int = 64, bytes_per_s: float = 5e10, second_bytes: float = 5e11, **stack):
    """The round cluster with a second memory."""
    found = builders.cluster(accelerators, stack=Stack(**stack))
    chip = builders.accelerator(
        second_memory_bytes=second_bytes, second_memory_bytes_per_s=bytes_per_s, host_bytes_per_s=8e10
    )
    return dataclasses.replace(found, accelerator=chip)


ON_HOST = {"habits": Habits(updates_on_host=True)}


def run(plan, workload=None, **cluster):
    """Point, and all parts of one evaluation."""
    job, where, point = prepare(workload or small_decoder(), machine(plan.accelerators, **cluster), plan)
    return point, parts(job, where, point, SEM)


def layer_elements(hidden=256, heads=8, key_value_heads=4, ffn=1024):
    """Of one layer of the small decoder: attention, gated feed-forward and two norms."""
    width = hidden // heads
    attention = hidden * width * (heads + 2 * key_value_heads) + hidden * hidden
    return attention + 3 * hidden * ffn + 2 * hidden


# memory


@pytest.mark.parametrize(("stage", "shard"), [(0, 1), (1, 1), (2, 1), (3, 4)])
def test_weights_in_the_second_memory_by_hand(stage, shard):
    """Sixteen-bit weights of half the layers' share; HBM keeps the rest, two layers that stream, and the edges."""
    plan = Plan(data=4, pipeline=2, zero_stage=stage, offload_weights=0.75)
    whole = dataclasses.replace(plan, offload_weights=0.0)
    layers, each = 8, 2.0 * layer_elements() / shard
    moved, still = (run(each_plan, small_decoder(layers=2 * layers))[1].memory for each_plan in (plan, whole))
    for here, there in ((moved.first, still.first), (moved.last, still.last)):
        np.testing.assert_allclose(here.second_weights_bytes, 0.75 * layers * each, rtol=1e-12)
        left = there.weights_bytes - here.weights_bytes
        np.testing.assert_allclose(left, 0.75 * (layers - 2) * each, rtol=1e-9)
        assert here.second_bytes == here.second_weights_bytes


def test_experts_are_divided_over_their_own_mesh():
    """Under ZeRO 3 each expert's weights over the ranks that hold a copy of it."""
    plan = Plan(data=16, expert=4, zero_stage=3, offload_weights=1.0)
    workload = small_moe()
    _, done = run(plan, workload)
    layers = [b for b in done.counts.blocks if b.position == Position.LAYER]
    by_hand = sum(2 * b.repeats * (b.parameters / 16 + b.expert_parameters / (16 / 4)) for b in layers)
    assert any(b.expert_parameters for b in layers)
    np.testing.assert_allclose(done.memory.first.second_bytes, by_hand, rtol=1e-12)


@pytest.mark.parametrize(("stage", "shard"), [(0, 1), (1, 4)])
def test_states_in_the_second_memory_by_hand(stage, shard):
    """Adam: two float32 states and a float32 copy of the weights, embedding and head too; two layers in the update."""
    plan = Plan(data=4, zero_stage=stage, offload_optimizer=1.0)
    _, done = run(plan)
    elements = 4 * layer_elements() + 2 * 1000 * 256 + 256  # embedding, head, last norm
    held = done.memory.first
    np.testing.assert_allclose(held.second_bytes, 12 * elements / shard, rtol=1e-12)
    assert held.optimizer_bytes == 0
    np.testing.assert_allclose(held.update_bytes, 2 * 12 * layer_elements() / shard, rtol=1e-12)


@pytest.mark.parametrize(("stage", "shard"), [(0, 1), (1, 1), (2, 4), (3, 4)])
def test_gradients_in_the_second_memory_by_hand(stage, shard):
    """Float32 gradients of the layers, of which two stay in HBM; divided as ZeRO divides them."""
    plan = Plan(data=4, zero_stage=stage, offload_gradients=0.75)
    workload = small_decoder(layers=8)
    moved, still = (run(p, workload)[1].memory.first for p in (plan, dataclasses.replace(plan, offload_gradients=0.0)))
    each = 4.0 * layer_elements() / shard
    np.testing.assert_allclose(moved.second_bytes, 0.75 * 8 * each, rtol=1e-12)
    np.testing.assert_allclose(still.gradients_bytes - moved.gradients_bytes, 0.75 * (8 - 2) * each, rtol=1e-9)


def test_the_host_holds_the_gradients_of_what_it_updates():
    """Sixteen-bit gradients beside twelve bytes of states; HBM holds no layers of states that would stream."""
    plan = Plan(data=4, zero_stage=1, gradient_dtype="bf16", offload_optimizer=1.0)
    _, done = run(plan, **ON_HOST)
    elements = 4 * layer_elements() + 2 * 1000 * 256 + 256
    np.testing.assert_allclose(done.memory.first.second_bytes, (12 + 2) * elements / 4, rtol=1e-12)
    assert done.memory.first.update_bytes == 0


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_activations_in_the_second_memory_by_hand(recompute):
    """As many microbatches as 1F1B has in flight, of every stage's own layers; two layers of one stay in HBM."""
    plan = Plan(data=2, pipeline=4, recompute=recompute, offload_activations=0.5)
    workload = small_decoder(layers=16, batch=64)
    point, done = run(plan, workload)
    layer = kept_bytes(done.counts.blocks[1], point)
    if recompute == "full":
        assert layer == 128 * 256 * 2  # only its input: tokens x hidden in 16 bits
    stages = memory_by_stage(workload, machine(8), plan)
    whole = memory_by_stage(workload, machine(8), dataclasses.replace(plan, offload_activations=0.0))
    for index, (moved, still) in enumerate(zip(stages, whole, strict=True)):
        in_flight = 4 - index
        np.testing.assert_allclose(moved.second_bytes, 0.5 * in_flight * 4 * layer, rtol=1e-12)
        left = still.activations_bytes - moved.activations_bytes
        np.testing.assert_allclose(left, 0.5 * (4 * in_flight - 2) * layer, rtol=1e-9)


def test_a_single_layer_has_no_second_one_in_the_buffer():
    plan = Plan(pipeline=4, **ALL)
    moved, still = (run(p)[1].memory.second for p in (plan, Plan(pipeline=4)))
    np.testing.assert_allclose(moved.weights_bytes, still.weights_bytes, rtol=1e-12)


def test_a_second_memory_that_is_too_small_does_not_fit():
    plan = Plan(data=4, **ALL)
    roomy = evaluate(small_decoder(), machine(4), plan)
    needed = roomy.memory.second_bytes
    assert roomy.fits
    assert roomy.second_limit_bytes == 5e11
    assert evaluate(small_decoder(), machine(4, second_bytes=needed), plan).fits
    assert not evaluate(small_decoder(), machine(4, second_bytes=0.999 * needed), plan).fits


def test_without_a_second_memory_it_is_a_rule():
    plan, where = Plan(data=4, offload_optimizer=0.5, offload_weights=1.0), builders.cluster(4)
    told = violations(plan, small_decoder(), where)
    assert told == (
        "`offload_weights` is 1.0; expected 0, because round has no `second_memory_bytes`",
        "`offload_optimizer` is 0.5; expected 0, because round has no `second_memory_bytes`",
    )
    assert not violations(plan, small_decoder(), machine(4))
    assert not violations(Plan(data=4), small_decoder(), where)


@pytest.mark.parametrize("share", ["half", True])
def test_shares_are_numbers(share):
    with pytest.raises(ValueError, match="`offload_activations` is .*; expected a number"):
        Plan(data=4, offload_activations=share)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_shares_are_from_nothing_to_all(share):
    (told,) = violations(Plan(data=4, offload_activations=share), small_decoder(), machine(4))
    assert "`offload_activations`" in told
    assert "expected a number from 0 to 1" in told


# time


def play_streams(tasks: int, compute_s: float, in_s: float, out_s: float) -> float:
    """Makespan of `tasks` layers in turn, with two buffers each way: an independent two-link timeline.

    Task k starts once its data is in, the task before it is done and the results of k - 2 are out; the link brings
    k + 1 in once the buffer of k - 1 is free, one after another; results leave one after another.
    """
    done_s, arrived_s, left_s = [0.0], [0.0], [0.0]
    for k in range(1, tasks + 1):
        free_s = done_s[k - 2] if k >= 2 else 0.0
        arrived_s.append(max(arrived_s[-1], free_s) + in_s)
        out_free_s = left_s[k - 2] if k >= 2 else 0.0
        done_s.append(max(done_s[-1], arrived_s[-1], out_free_s) + compute_s)
        left_s.append(max(left_s[-1], done_s[-1]) + out_s)
    return max(done_s[-1], left_s[-1])


SHARES = [(1.0, 0.0), (0.0, 1.0), (1.0, 1.0), (0.3, 0.8), (0.05, 0.02)]


@pytest.mark.parametrize("bytes_per_s", [2e9, 1e10, 4e10, 1e12])
@pytest.mark.parametrize(("weights", "activations"), SHARES)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_passes_against_streams_played_out(weights, activations, recompute, bytes_per_s):
    """One stage, layer by layer: within the first and the last of the layers, which have nothing to hide behind."""
    workload = decoder(
        layers=24, hidden=1024, heads=16, ffn=4096, vocabulary=512, sequence=1024, batch=8, key_value_heads=16
    )
    plan = Plan(offload_weights=weights, offload_activations=activations, recompute=recompute, zero_stage=0)
    point, done = run(plan, workload, bytes_per_s=bytes_per_s, hide_offload=1.0)
    _, still = run(dataclasses.replace(plan, offload_weights=0.0, offload_activations=0.0), workload, hide_offload=1.0)
    layer, times = done.counts.blocks[1], done.times.blocks[1]
    w_s = weights * 2 * layer.parameters / bytes_per_s
    a_s = activations * kept_bytes(layer, point) / bytes_per_s
    forward_s = times.forward.seconds
    backward_s = times.backward.seconds + times.recompute_s + times.weights.seconds
    expected_s = 8 * (play_streams(24, forward_s, w_s, a_s) + play_streams(24, backward_s, w_s + a_s, 0.0))
    found_s = done.step.passes_s - still.step.passes_s + 8 * 24 * (forward_s + backward_s)
    fill_s = 8 * (2 * w_s + 2 * a_s + min(forward_s, max(w_s, a_s)) + min(backward_s, w_s + a_s))
    assert found_s <= expected_s * (1 + 1e-12)
    assert expected_s <= found_s + fill_s


def test_a_fast_link_hides_everything():
    """Then the step is that of the plan without offload, to the last bit but for the update, and memory is less."""
    plan = Plan(data=4, offload_weights=0.5, offload_activations=0.5)
    _, moved = run(plan, bytes_per_s=1e15)
    _, still = run(Plan(data=4))
    assert moved.step.step_s == still.step.step_s
    assert moved.memory.peak_bytes < still.memory.peak_bytes


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "interleaved", "zb_h1", "zb_h2"])
def test_a_slow_link_sets_the_pace_of_every_schedule(schedule):
    """At least what all traffic of a step takes, and the step without it plus all of it at most, bubbles included."""
    other = {"schedule": schedule, "virtual_stages": 2 if schedule == "interleaved" else 1}
    plan = Plan(data=2, pipeline=4, **ALL, **other)
    workload = small_decoder(layers=16, batch=64)
    _, moved = run(plan, workload, bytes_per_s=1e9)
    _, still = run(Plan(data=2, pipeline=4, **other), workload)
    link, m = moved.times.streams, 32
    each_s = max(link.reads_s, link.activations_s) + link.backward_s(SEM)
    assert m * each_s < moved.step.passes_s <= still.step.passes_s + (m + 3) * each_s * (1 + 1e-12)


def test_weight_gradients_that_run_apart_hide_nothing():
    """Traffic longer than an input gradient, and shorter than both: only a backward pass of both hides it."""
    workload = small_decoder(layers=16, batch=64)
    whole = Plan(data=2, pipeline=4, schedule="zb_h1", offload_activations=1.0)
    point, done = run(whole, workload)
    layer, times = done.counts.blocks[1], done.times.blocks[1]
    rate = kept_bytes(layer, point) / (times.backward.seconds + 0.5 * times.weights.seconds)
    for schedule, waits in (("one_f_one_b", False), ("zb_h1", True)):
        plan = dataclasses.replace(whole, schedule=schedule)
        _, moved = run(plan, workload, bytes_per_s=rate, hide_offload=1.0)
        _, still = run(dataclasses.replace(plan, offload_activations=0.0), workload)
        in_forward_s = max(moved.times.streams.activations_s - 4 * times.forward.seconds, 0.0)
        more_s = moved.step.passes_s - still.step.passes_s
        assert (more_s > 36 * in_forward_s) == waits


@pytest.mark.parametrize("hidden", [0.0, 0.6, 1.0])
def test_the_update_waits_for_its_states(hidden):
    """Twelve bytes an element out, beside the weights that were streamed; hidden behind the update at HBM's pace."""
    plan = Plan(data=4, zero_stage=1, offload_optimizer=0.8, offload_weights=0.5)
    _, done = run(plan, bytes_per_s=5e10, hide_offload=hidden)
    elements = (4 * layer_elements() + 1000 * 256) + 1000 * 256 + 256
    moved_s = (0.8 * 12 * elements / 4 + 0.5 * 2 * 4 * layer_elements()) / 5e10
    expected_s = max(done.step.work.optimizer_s, moved_s + (1 - hidden) * done.step.work.optimizer_s)
    np.testing.assert_allclose(done.step.work.optimizer_s + done.step.optimizer_waits_s, expected_s, rtol=1e-12)
    assert done.step.optimizer_waits_s > 0


@pytest.mark.parametrize(("share", "gradients"), [(1.0, 1.0), (0.25, 0.5), (1.0, 0.0)])
def test_the_host_updates_by_hand(share, gradients):
    """Twice twelve bytes of states, four of gradients and two of weights an element, at a quarter of its bandwidth;
    gradients that are not there leave, new weights come back; the rest is the accelerator's, after it."""
    plan = Plan(data=4, zero_stage=1, offload_optimizer=share, offload_gradients=gradients)
    _, done = run(plan, bytes_per_s=5e10, hide_offload=0.5, host_ceiling=0.25, **ON_HOST)
    _, still = run(Plan(data=4, zero_stage=1))
    elements = (4 * layer_elements() + 2 * 1000 * 256 + 256) / 4
    host_s = share * 30 * elements / (0.25 * 8e10)
    np.testing.assert_allclose(done.step.work.host_update_s, host_s, rtol=1e-12)
    update_s = host_s + (1 - share) * still.step.work.optimizer_s
    np.testing.assert_allclose(done.step.work.optimizer_s, update_s, rtol=1e-12)
    out_s, in_s = share * (1 - gradients) * 4 * elements, (share * 2 + (1 - share) * gradients * 4) * elements
    moved_s = max(out_s, in_s) / 5e10
    np.testing.assert_allclose(done.step.work.update_traffic_s, moved_s, rtol=1e-12)
    expected_s = max(update_s, moved_s + 0.5 * update_s)
    np.testing.assert_allclose(update_s + done.step.optimizer_waits_s, expected_s, rtol=1e-12)


def test_states_that_stream_are_not_the_hosts():
    """The same shares where no processor updates: nothing of the step depends on the host's memory."""
    plan = Plan(data=4, offload_optimizer=1.0)
    job, where, point = prepare(small_decoder(), machine(4), plan)
    faster = dataclasses.replace(where, accelerator=dataclasses.replace(where.accelerator, host_bytes_per_s=1e15))
    assert cost(job, where, point, SEM).step_s == cost(job, faster, point, SEM).step_s


@pytest.mark.parametrize("bytes_per_s", [2e9, 1e10, 4e10, 1e12])
@pytest.mark.parametrize("microbatches", [1, 8])
def test_gradients_against_streams_played_out(microbatches, bytes_per_s):
    """Backward passes alone, layer by layer: gradients leave, and from the second microbatch on their sums come in."""
    workload = decoder(
        layers=24,
        hidden=1024,
        heads=16,
        ffn=4096,
        vocabulary=512,
        sequence=1024,
        batch=microbatches,
        key_value_heads=16,
    )
    plan = Plan(offload_gradients=1.0, zero_stage=0)
    _, done = run(plan, workload, bytes_per_s=bytes_per_s, hide_offload=1.0)
    _, still = run(Plan(zero_stage=0), workload, hide_offload=1.0)
    layer, times = done.counts.blocks[1], done.times.blocks[1]
    out_s, backward_s = 4 * layer.parameters / bytes_per_s, times.backward.seconds + times.weights.seconds
    first_s, later_s = (play_streams(24, backward_s, in_s, out_s) for in_s in (0.0, out_s))
    expected_s = first_s + (microbatches - 1) * later_s
    found_s = done.step.passes_s - still.step.passes_s + microbatches * 24 * backward_s
    assert found_s <= expected_s * (1 + 1e-12)
    assert expected_s <= found_s + microbatches * (2 * out_s + min(backward_s, out_s))


def test_gradient_free_passes_read_the_weights_again():
    """Three forward passes of the Evoformer, of which one keeps activations."""
    workload = load_workload("alphafold2-512x256")
    _, done = run(Plan(data=1, offload_weights=1.0), dataclasses.replace(workload, batch=1))
    layers = [b for b in done.counts.blocks if b.position == Position.LAYER]
    assert max(b.forwards for b in layers) > 1
    read = sum(2 * b.repeats * b.forwards * b.parameters for b in layers)
    np.testing.assert_allclose(done.times.streams.reads_s, read / 5e10, rtol=1e-12)


# nothing where nothing is


def test_leaves_of_zero_are_no_offload():
    rng = np.random.default_rng(4)
    point, batch = point_batch(rng, 500, uneven=True)
    none = Offload(**{f.name: np.zeros(500) for f in dataclasses.fields(Offload)})
    workload, where = small_decoder(layers=48, batch=batch), machine()
    absent, zero = (
        cost(workload, where, dataclasses.replace(point, offload=offload), Exact(np)) for offload in (None, none)
    )
    np.testing.assert_allclose(absent.step_s, zero.step_s, rtol=1e-14)  # sums in another order
    np.testing.assert_array_equal(absent.peak_bytes, zero.peak_bytes)
    assert not np.any(zero.second_bytes)
    assert not np.any(absent.second_bytes)


def test_a_plan_without_shares_has_no_leaves_for_them():
    _, _, point = prepare(small_decoder(), machine(4), Plan(data=4))
    assert point.offload is None
    assert with_offload(point).offload == Offload()
    _, _, moved = prepare(small_decoder(), machine(4), Plan(data=4, offload_weights=1))
    assert moved.offload == Offload(weights=1.0)
    assert with_offload(moved) == moved


def test_terms_sum_to_the_step_and_say_what_is_hidden():
    for bytes_per_s, plan in itertools.product((1e9, 2e10, 1e13), (Plan(data=2, pipeline=4, **ALL), Plan(**ALL))):
        found = evaluate(small_decoder(layers=16), machine(plan.accelerators, bytes_per_s), plan)
        _, done = run(plan, small_decoder(layers=16), bytes_per_s=bytes_per_s)
        np.testing.assert_allclose(found.step_s, done.step.step_s, rtol=1e-12)
        (term,) = [term for term in found.terms if term.name == "offload"]
        assert term.exposed_s >= 0
        assert term.hidden_s >= 0
        assert term.limits[0] > 0
        assert (term.hidden_s > term.exposed_s) == (bytes_per_s == 1e13)


@pytest.mark.parametrize("share", ["weights", "optimizer", "activations", "gradients"])
def test_gradients_of_the_second_memory(share):
    """In the one-sided derivatives of `compiled`: stages hold as much as others, and each maximum has to pick one."""
    import jax

    where, plan = machine(8), Plan(data=2, pipeline=4, schedule="zb_h1", **ALL)
    job, where, point = prepare(small_decoder(layers=16), where, plan)

    def second_bytes(value):
        moved = dataclasses.replace(point.offload, **{share: value})
        return cost(job, where, dataclasses.replace(point, offload=moved), compiled.in_jax()).second_bytes

    held = max(
        getattr(stage, f"second_{share}_bytes") for stage in memory_by_stage(small_decoder(layers=16), machine(8), plan)
    )
    np.testing.assert_allclose(jax.grad(second_bytes)(0.5), held, rtol=1e-6)
