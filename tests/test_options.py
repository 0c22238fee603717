"""Rows of options by hand: what each optimizer holds, reads and computes."""

import math

import numpy as np
import pytest

from costmodel.cost import parts
from costmodel.counts import counts
from costmodel.evaluate import prepare
from costmodel.plan import Plan
from costmodel.semantics import Exact
from tests.builders import cluster, small_decoder, small_moe

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
    np.testing.assert_allclose(step.optimizer_s, per_element * elements(counted) / bandwidth, rtol=1e-12)


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
    flop = 5 * sum(b.repeats * b.orthogonal_flop for b in counted.blocks if b.position == "layer")
    streamed = (2 * 8 + 4 + 2) * n + 2 * 4 * edges
    np.testing.assert_allclose(step.optimizer_s, streamed / bandwidth + flop / rate, rtol=1e-12)
    sharded = run(Plan(data=8, zero_stage=1, optimizer="muon"))[2]
    np.testing.assert_allclose(sharded.optimizer_s, step.optimizer_s / 8, rtol=1e-12)


def test_every_expert_is_a_matrix_of_its_own():
    job, _, point = prepare(small_moe(), cluster(), Plan())
    block = counts(job, point, SEM).blocks[2]
    np.testing.assert_allclose(block.expert_orthogonal_flop, 16 * 3 * newton_schulz_flop(96, 128), rtol=1e-12)
