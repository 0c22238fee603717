"""Rows of options by hand: what each optimizer holds, reads and computes, what casts to narrow formats move,
and what a causal mask leaves to each rank of a ring."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.formulas.counts import AttentionCount, MatmulCount, counts
from costmodel.formulas.roofline import attention_roofs, busiest, matmul_s, rates
from costmodel.inputs import Position
from costmodel.inputs.options import PRECISIONS
from costmodel.inputs.plan import Plan
from costmodel.inputs.stack import Stack
from tests.support.builders import cluster, small_decoder, small_moe

SEM = Exact(math)


def run(plan, workload=None):
    """Point, counts, step and memory of the first stage."""
    job, machine, point = prepare(workload or small_decoder(), cluster(), plan)
    done = parts(job, machine, point, SEM)
    return point, done.counts, done.step, done.memory.first, machine


def elements(counted, *positions):
    wanted = positions or ("first", "layer", "last")
    return sum(b.repeats * b.trained_parameters for b in counted.blocks if b.position in wanted)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adam_8bit", "adafactor", "muon"])
@pytest.mark.parametrize(("shards", "stage"), [(1, 0), (8, 1)])
def test_bytes_of_states(optimizer, shards, stage):
    """Float32 states beside a float32 copy of the weights (4 bytes)."""
    _, counted, _, held, _ = run(Plan(data=shards, zero_stage=stage, optimizer=optimizer))
    n, edges = elements(counted), elements(counted, "first", "last")
    expected = {
        "sgd": 8 * n,
        "adam": 12 * n,
        "adam_8bit": (4 + 2 + 2 * 4 / 2048) * n,
        "adafactor": (4 + 4 * (1 / 2048 + 1 / 2048)) * n,
        "muon": 8 * n + 4 * edges,
    }[optimizer]
    np.testing.assert_allclose(held.optimizer_bytes, expected / shards, rtol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam_8bit", "adafactor"])
def test_seconds_of_an_update_that_streams(optimizer):
    """States and master weights in and out, gradients (thrice under Adafactor), weights out, at 85 % of 2 TB/s."""
    _, counted, step, _, machine = run(Plan(zero_stage=0, optimizer=optimizer))
    per_element = {
        "adam_8bit": 2 * (4 + 2 + 8 / 2048) + 4 + 2,
        "adafactor": 2 * (4 + 8 / 2048) + 3 * 4 + 2,
    }[optimizer]
    bandwidth = machine.stack.hbm_ceiling * machine.accelerator.hbm_bytes_per_s
    np.testing.assert_allclose(step.work.optimizer_s, per_element * elements(counted) / bandwidth, rtol=1e-12)


def newton_schulz_flop(rows: int, columns: int) -> int:
    """One iteration as its products, each 2 m k n: X X^T, A A, B X."""
    a, b = sorted((rows, columns))
    products = [(a, b, a), (a, a, a), (a, a, b)]
    return sum(2 * m * k * n for m, k, n in products)


def test_flop_of_one_iteration_against_the_matrices():
    """Four layers: query-key-value (256 x 512 as three of 256 x 512/3), output, gate and up, down."""
    _, counted, _, _, _ = run(Plan())
    layer = counted.blocks[1]
    third = 512 / 3
    attention = 3 * (4 * third * third * 256 + 2 * third**3) + newton_schulz_flop(256, 256)
    feed_forward = 3 * newton_schulz_flop(256, 1024)
    np.testing.assert_allclose(layer.orthogonal_flop, attention + feed_forward, rtol=1e-12)


def test_muon_adds_the_products_and_divides_them_like_its_states():
    """Beside the same update without them; one rank of eight does an eighth, half a matrix costs less than half."""
    _, counted, step, _, machine = run(Plan(zero_stage=0, optimizer="muon"))
    n, edges = elements(counted), elements(counted, "first", "last")
    bandwidth = machine.stack.hbm_ceiling * machine.accelerator.hbm_bytes_per_s
    rate = machine.stack.matmul_ceiling * machine.accelerator.peak_16bit_flop_per_s
    flop = 5 * sum(b.repeats * b.orthogonal_flop for b in counted.blocks if b.position == Position.LAYER)
    streamed = (2 * 8 + 4 + 2) * n + 2 * 4 * edges
    np.testing.assert_allclose(step.work.optimizer_s, streamed / bandwidth + flop / rate, rtol=1e-12)
    sharded = run(Plan(data=8, zero_stage=1, optimizer="muon"))[2]
    np.testing.assert_allclose(sharded.work.optimizer_s, step.work.optimizer_s / 8, rtol=1e-12)


def test_every_expert_is_a_matrix_of_its_own():
    job, _, point = prepare(small_moe(), cluster(), Plan())
    block = counts(job, point, SEM).blocks[2]
    np.testing.assert_allclose(block.expert_orthogonal_flop, 16 * 3 * newton_schulz_flop(96, 128), rtol=1e-12)


WIDE = ("fp32", "fp16", "bf16")
SCALED = {"fp8_tensor": 1.0, "fp8_block": 1 + 4 / 128, "mxfp8": 1 + 1 / 32, "nvfp4": 0.5 + 1 / 16}  # bytes per element


@pytest.mark.parametrize("precision", WIDE)
def test_formats_that_are_not_cast_cost_nothing_more(precision):
    row = PRECISIONS[precision]
    assert (row.operand_share, row.cast_bytes, row.casts, row.copy_bytes, row.weight_cast_bytes) == (1, 0, 0, 0, 0)


@pytest.mark.parametrize("precision", SCALED)
def test_three_products_of_a_layer_by_hand(precision):
    """Bound by memory: a 512 x 256 matrix, 128 rows of input x, output y and their gradients; 2 TB/s, no launches.

    Casts: x and dy are read (twice where the tensor's maximum is needed first) and written in both directions.
    Products: (x, w -> y), (dy, w -> dx), (x, dy -> dw in float32, accumulated).
    """
    m, k, n, narrow, maximum = 128, 512, 256, SCALED[precision], precision == "nvfp4"
    count = MatmulCount(
        name="", flop=1.0, operand_bytes=2.0 * m * (k + n), weight_elements=k * n, reciprocal_sizes=1.0 / m
    )
    stack = Stack(hbm_ceiling=1.0, kernel_s=0.0)
    _, machine, point = prepare(small_decoder(), cluster(), Plan(precision=precision))
    product_s, weights_s = matmul_s(count, point, rates(machine.accelerator, point, stack), stack, SEM)
    casts = (2 + 2 * maximum + 2 * narrow) * m * (k + n)
    products = narrow * (m * k + k * n) + 2 * m * n + narrow * (m * n + k * n) + 2 * m * k
    np.testing.assert_allclose(2 * product_s, (casts + products) / 2e12, rtol=1e-12)
    np.testing.assert_allclose(weights_s, (narrow * m * (k + n) + 8 * k * n) / 2e12, rtol=1e-12)


@pytest.mark.parametrize("precision", SCALED)
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_cast_copies_of_the_weights(precision, stage):
    """Both directions of every matrix (not of the embedding); under ZeRO 3 only those of the gathered block."""
    _, counted, _, narrow, _ = run(Plan(data=8, zero_stage=stage, precision=precision))
    _, _, _, wide, _ = run(Plan(data=8, zero_stage=stage))
    matrices = sum(b.repeats * b.matrix_parameters for b in counted.blocks)
    per_element = 2 * (1 + 4 / 128**2) if precision == "fp8_block" else 2 * SCALED[precision]
    held = 0 if stage == 3 else per_element * matrices
    gathered = per_element * counted.blocks[1].matrix_parameters if stage == 3 else 0
    np.testing.assert_allclose(narrow.weights_bytes - wide.weights_bytes, held, rtol=1e-9, atol=1e-3)
    np.testing.assert_allclose(narrow.gathered_bytes - wide.gathered_bytes, gathered, rtol=1e-9, atol=1e-3)


def test_weights_are_cast_once_a_step_or_after_every_gather():
    """Read in 16 bits and written twice in 8."""
    _, counted, narrow, _, machine = run(Plan(data=8, zero_stage=2, precision="fp8_tensor"))
    wide = run(Plan(data=8, zero_stage=2))[2]
    matrices = sum(b.repeats * b.matrix_parameters for b in counted.blocks)
    bandwidth = machine.stack.hbm_ceiling * machine.accelerator.hbm_bytes_per_s
    np.testing.assert_allclose(narrow.work.optimizer_s - wide.work.optimizer_s, 4 * matrices / bandwidth, rtol=1e-9)
    sharded = run(Plan(data=8, zero_stage=3, precision="fp8_tensor"))[2]
    assert sharded.work.optimizer_s == run(Plan(data=8, zero_stage=3))[2].work.optimizer_s


@pytest.mark.parametrize("precision", WIDE)
def test_a_product_without_casts_to_the_last_bit(precision):
    """The roofline alone, in the order of its own operations."""
    count = MatmulCount(name="", flop=1e9, operand_bytes=1e7 / 3, weight_elements=7e5, reciprocal_sizes=0.01)
    stack = Stack()
    _, machine, point = prepare(small_decoder(), cluster(), Plan(precision=precision))
    speed = rates(machine.accelerator, point, stack)
    filling = stack.matmul_size0 * count.reciprocal_sizes * speed.matmul_fill_s_per_flop
    compute_s = count.flop * (speed.matmul_s_per_flop + filling)
    moved = count.operand_bytes + point.precision.weight_bytes * count.weight_elements
    accumulated = count.operand_bytes + 2.0 * point.gradient_bytes * count.weight_elements
    product_s, weights_s = matmul_s(count, point, speed, stack, SEM)
    assert product_s == max(compute_s, speed.memory_s_per_byte * moved) + stack.kernel_s
    assert weights_s == max(compute_s, speed.memory_s_per_byte * accumulated) + stack.kernel_s


CONTIGUOUS = Stack(context_imbalance=1.0)


def attention_of(density: float = 0.5, **plan) -> AttentionCount:
    job, _, point = prepare(small_decoder(causal_density=density), cluster(), Plan(**plan))
    return counts(job, point, SEM).blocks[1].attentions[0]


def busiest_of_rows(ranks: int, keys_of_row, sequence: int = 96 * 4) -> tuple[float, float]:
    """Density of the mask, and the busiest rank's keys over the mean: row by row, contiguous chunks."""
    rows = np.array([keys_of_row((i + 0.5) / sequence) for i in range(sequence)])
    chunks = rows.reshape(ranks, -1).sum(axis=1)
    return rows.mean(), chunks.max() / chunks.mean()


@pytest.mark.parametrize("context", [1, 2, 3, 4, 8, 16])
def test_contiguous_chunks_under_a_causal_mask(context):
    density, expected = busiest_of_rows(context, lambda x: x)
    assert density == pytest.approx(0.5, rel=1e-12)
    assert busiest(attention_of(context=context), CONTIGUOUS) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(2 - 1 / context)


@pytest.mark.parametrize("context", [2, 4, 8])
@pytest.mark.parametrize("seen", [0.01, 0.1, 0.3, 0.5, 0.9])
def test_windows_and_prefixes_do_at_most_that(context, seen):
    for mask in (lambda x: min(x, seen), lambda x: max(x, seen)):
        density, expected = busiest_of_rows(context, mask)
        bound = busiest(attention_of(density, context=context), CONTIGUOUS)
        assert expected * (1 - 1e-12) <= bound <= 2 - 1 / context + 1e-12


def test_what_is_balanced():
    """Paired chunks; a mask that hides nothing; whole sequences after an exchange of heads; one rank."""
    assert busiest(attention_of(context=4), Stack()) == 1
    assert busiest(attention_of(1.0, context=4), CONTIGUOUS) == 1
    assert busiest(attention_of(context=4, context_kind="all_to_all"), CONTIGUOUS) == 1
    assert busiest(attention_of(), CONTIGUOUS) == 1


def test_the_busiest_rank_delays_the_attention():
    """7/4 of the compute at four ranks, and of the score matrix; the same operands."""
    _, machine, point = prepare(small_decoder(), cluster(), Plan(context=4))
    speed = rates(machine.accelerator, point, Stack())
    even, late = (attention_roofs(attention_of(context=4), point, speed, stack)[0] for stack in (Stack(), CONTIGUOUS))
    assert late.compute_s == pytest.approx(1.75 * even.compute_s, rel=1e-12)
    assert late.memory_s == even.memory_s
    steps = [
        parts(*prepare(small_decoder(), dataclasses.replace(machine, stack=stack), Plan(context=4)), SEM).step.step_s
        for stack in (Stack(), CONTIGUOUS)
    ]
    assert steps[0] < steps[1] < 1.75 * steps[0]


@pytest.mark.parametrize(
    ("attention", "heads", "work"),
    [("unfused", 12, 1.0), ("unfused", 16, 10.0), ("flash", 12, 1.0), ("flash", 16, 64 / 60)],
)
def test_heads_that_are_no_multiple_of_8_cost_more(attention, heads, work):
    """Heads of 80 and of 60 elements: the FLOP are the same, the units take `work` times as long."""
    workload = small_decoder(hidden=960, heads=heads, key_value_heads=heads)
    workload, machine, point = prepare(workload, cluster(), Plan(data=16, attention=attention))
    assert point.attention.work == pytest.approx(work)
    counted = counts(workload, point, SEM)
    plain = dataclasses.replace(point, attention=dataclasses.replace(point.attention, work=1.0))
    speed, (count,) = rates(machine.accelerator, point, machine.stack), counted.blocks[1].attentions
    own, usual = (attention_roofs(count, each, speed, machine.stack)[0].compute_s for each in (point, plain))
    assert own == pytest.approx(work * usual)
    assert count.flop == counts(workload, plain, SEM).blocks[1].attentions[0].flop
