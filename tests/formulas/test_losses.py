"""Cross entropies played out kernel by kernel, which must be right and move the bytes that the rows of losses say."""

import dataclasses
import math

import numpy as np
import pytest

from costmodel.evaluators import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.graph.amounts import amounts
from costmodel.graph.dataflow import build
from costmodel.inputs import SOFTWARE, Habits, Kind, Plan
from costmodel.inputs.options import LOSSES
from tests.support import builders
from tests.support.builders import small_decoder

TOKENS, WORDS = 5, 4_096
RNG = np.random.default_rng(11)
LOGITS, TARGETS = RNG.normal(size=(TOKENS, WORDS)), RNG.integers(WORDS, size=TOKENS)
SCALE = RNG.normal(size=(TOKENS, 1))  # the gradient of each token's loss
PICKED = (np.arange(TOKENS), TARGETS)


class Accelerator:
    """Bytes that kernels read and write of tensors with a number for each logit."""

    def __init__(self):
        self.moved = self.forward = 0.0

    def kernel(self, result, reads=(), writes=0):
        """`reads` and `writes` are bytes of a logit in each tensor that passes."""
        self.moved += (sum(reads) + writes) * LOGITS.size
        return result

    def turned(self):
        self.forward, self.moved = self.moved, 0.0


def framework(chip):
    wide = chip.kernel(LOGITS, [2], 4)
    logs = chip.kernel(wide - np.log(np.exp(wide).sum(1, keepdims=True)), [4, 4, 4], 4)  # maximum, sum, result
    loss = -logs[PICKED]
    chip.turned()
    gradient = chip.kernel(np.zeros_like(logs), (), 4)
    gradient[PICKED] = -SCALE[:, 0]
    total = chip.kernel(gradient.sum(1, keepdims=True), [4])
    return loss, chip.kernel(chip.kernel(gradient - np.exp(logs) * total, [4, 4], 4), [4], 2)


def vocab_parallel(chip):
    wide = chip.kernel(LOGITS.copy(), [2], 4)
    largest = chip.kernel(wide.max(1, keepdims=True), [4])
    wide = chip.kernel(wide - largest, [4], 4)
    picked = wide[PICKED]
    powers = chip.kernel(np.exp(wide), [4], 4)
    total = chip.kernel(powers.sum(1, keepdims=True), [4])
    softmax = chip.kernel(powers / total, [4], 4)
    chip.turned()
    softmax[PICKED] -= 1.0
    gradient = chip.kernel(softmax * SCALE, [4], 4)
    return np.log(total[:, 0]) - picked, chip.kernel(gradient, [4], 2)


def fused(chip):
    total = chip.kernel(np.exp(LOGITS).sum(1, keepdims=True), [2])
    gradient = chip.kernel(np.exp(LOGITS) / total, [2], 2)
    gradient[PICKED] -= 1.0
    chip.turned()
    return np.log(total[:, 0]) - LOGITS[PICKED], chip.kernel(gradient * SCALE, [2], 2)


def chunked(chip):
    loss, gradient = fused(chip)
    chip.moved = 0.0  # the product with the loss' gradient is of the input's gradient: no logits are left
    return loss, gradient


PLAYED = {"framework": framework, "vocab_parallel": vocab_parallel, "fused": fused, "chunked": chunked}


@pytest.mark.parametrize("name", PLAYED)
def test_losses_move_what_their_kernels_move(name):
    chip = Accelerator()
    loss, gradient = PLAYED[name](chip)
    softmax = np.exp(LOGITS) / np.exp(LOGITS).sum(1, keepdims=True)
    own = np.zeros_like(softmax)
    own[PICKED] = 1.0
    np.testing.assert_allclose(loss, -np.log(softmax[PICKED]), rtol=1e-12)
    np.testing.assert_allclose(gradient, (softmax - own) * SCALE, rtol=1e-9, atol=1e-15)
    passes = 0.5 * np.array([chip.forward, chip.moved]) / LOGITS.size
    assert (LOSSES[name].touches_forward, LOSSES[name].touches_backward) == tuple(passes)


@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("loss", ["usual", "fused", "chunked"])
def test_the_usual_loss_is_that_of_the_software(software, loss):
    """So many passes over 16-bit logits of 128 tokens and 1,000 words, for the formulas and as operators of a graph."""
    row = LOSSES[SOFTWARE[software].loss if loss == "usual" else loss]
    where = builders.cluster(1)
    where = dataclasses.replace(where, stack=dataclasses.replace(where.stack, habits=SOFTWARE[software]))
    job, where, point = prepare(small_decoder(), where, Plan(loss=loss))
    counted = parts(job, where, point, Exact(math)).counts
    (own,) = (count for block in counted.blocks for count in block.memories if count.name == "loss")
    expected = (2 * 128_000 * row.touches_forward, 2 * 128_000 * row.touches_backward)
    assert (own.forward_bytes, own.backward_bytes) == expected
    flow = [each for each in build(job, point).operators if each.source is not None and each.source.kind == Kind.LOSS]
    moved = {phase: sum(amounts(each, point)["moved_bytes"] for each in flow if each.phase == phase) for phase in "FB"}
    assert (moved["F"], moved["B"]) == expected


def test_bytes_of_logits_follow_the_loss():
    """A loss that is named has its own; the usual one those of the stack, whatever its passes."""
    for name, row in LOSSES.items():
        found = dataclasses.replace(Habits(), loss="framework").loss_row(name)
        if name == "usual":
            assert (found.own, found.logit_bytes, found.touches_forward) == (1.0, 0.0, 11.0)
        else:
            assert found == row
            assert row.own == 0.0
