"""Tokens in the order of their experts, and biases of experts: passes counted on tokens and kernels that are played."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from costmodel.evaluators import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import parts
from costmodel.formulas.timing import overlapped_s
from costmodel.inputs import SOFTWARE
from costmodel.inputs.plan import Plan
from costmodel.models.moe import moe_decoder
from tests.support import builders

SEM = Exact(math)
TOKENS, HIDDEN, RANKS, COPIES = 4096, 64, 8, 4
MODEL: dict[str, Any] = {"layers": 2, "hidden": HIDDEN, "heads": 4, "vocabulary": 100, "sequence": TOKENS, "batch": 8}
MODEL |= {"experts": 32, "top_k": COPIES, "expert_ffn": 96}


def run(software=None, stack=None, expert_bias=False, **choices):
    plan = Plan(data=RANKS, expert=RANKS, **choices)
    where = builders.cluster(RANKS)
    habits = SOFTWARE[software] if software else where.stack.habits
    own = dataclasses.replace(where.stack, habits=habits, **(stack or {}))
    work = moe_decoder(**MODEL, expert_bias=expert_bias)
    job, where, point = prepare(work, dataclasses.replace(where, stack=own), plan)
    return parts(job, where, point, SEM)


def moved(done, name):
    """Bytes forward and backward of an operator, in elements of 16 bits of one row."""
    (count,) = (each for each in done.counts.layers[0].memories if each.name == name)
    return count.forward_bytes / (2 * HIDDEN), count.backward_bytes / (2 * HIDDEN)


def rows_moved(dispatcher, narrow):
    """Rows that the kernels of one rank read and write on the way to the experts, where every rank sends as much.

    Around an all-to-all: into the order of ranks, into that of a rank's experts, and padded. Behind one that sends a
    copy to each accelerator: from what has arrived into the order of experts.
    """
    copies = TOKENS * COPIES
    if dispatcher == "all_to_all":
        read, written = [TOKENS, copies], [copies, copies]
        return sum(read + written) + (2 * copies if narrow else 0)
    chosen = np.random.default_rng(0).integers(RANKS, size=(TOKENS, COPIES))
    arrived = sum(len(set(places)) for places in chosen)
    return arrived + copies


@pytest.mark.parametrize("precision", ["bf16", "fp8_tensor", "nvfp4"])
@pytest.mark.parametrize("dispatcher", ["all_to_all", "fused"])
def test_passes_that_put_tokens_in_order(dispatcher, precision):
    """There and back, forward and backward: the same rows."""
    done = run(dispatcher=dispatcher, precision=precision)
    expected = rows_moved(dispatcher, precision != "bf16")
    assert (*moved(done, "permute"), *moved(done, "unpermute")) == pytest.approx((expected,) * 4, rel=5e-3)


def bytes_of_bias():
    """Kernels of `output + bias * weight` for each expert, their parts put together and cast, and of its gradients."""
    half, single = np.zeros((2, 1), np.float16), np.zeros((2, 1), np.float32)
    wide, narrow = (half * single).dtype.itemsize, half.dtype.itemsize  # a type holds both: 32 bits
    forward = [wide, narrow + wide + wide, wide + wide, wide + narrow]  # product, sum, parts together, cast
    both_factors = 2 * [wide + wide, wide]  # of bias and weight: a product with the other one, and its sum
    backward = [narrow + wide, wide + narrow, narrow + narrow, *both_factors]
    return sum(forward), sum(backward)


def test_biases_of_experts_by_the_frameworks_own_operators():
    copies, (forward, backward) = TOKENS * COPIES, bytes_of_bias()
    done = run("megatron-core", expert_bias=True, dispatcher="all_to_all")
    assert moved(done, "expert bias") == pytest.approx((copies * forward / 2, copies * backward / 2), rel=1e-12)
    fused = run("xla", expert_bias=True, dispatcher="all_to_all")
    assert moved(fused, "expert bias") == pytest.approx((2 * copies, 2 * copies), rel=1e-12)
    clamped, plain = (moved(each, "clamped expert activation") for each in (done, fused))
    gated = copies * MODEL["expert_ffn"] / HIDDEN
    # two halves: cut off and put together; backward both gradients with their masks, and put together
    added = (gated * (1 + 1 + 1 + 1 + 2 + 2), gated * (3 + 3 + 2 + 2))
    assert (clamped[0] - plain[0], clamped[1] - plain[1]) == pytest.approx(added, rel=1e-12)


def test_kernels_of_dispatchers_take_units_from_the_compute_beside_them():
    """A share of what runs side by side counts twice; of all other traffic the share is another."""
    for share in (0.0, 0.2, 0.5):
        done = run(stack={"expert_contention": share}, dispatcher="fused", overlap_expert=True)
        each = done.times.layers[0].forward
        compute_s = each.products_s + each.core_s
        beside_s = overlapped_s(compute_s, each.expert_s, done.times.hide.expert, share, SEM)
        assert each.inside_s == pytest.approx(beside_s + each.memory_s, rel=1e-12)
        hidden_s = compute_s + each.expert_s + each.memory_s - each.inside_s
        window_s = min(done.times.hide.expert * compute_s, each.expert_s)
        assert hidden_s == pytest.approx((1 - share) * window_s, rel=1e-9)
