"""Operators as other software has them: what each variant adds or leaves out, by hand for one small layer."""

import dataclasses

import jax
import pytest

from costmodel.inputs import Habits, Kind, Role, whole
from costmodel.models import run_by
from costmodel.models.layers import causal_density
from tests.support.builders import small_decoder

HIDDEN, HEADS, FFN, TOKENS = 256, 8, 1024, 128
PLAIN = small_decoder(layers=1, key_value_heads=HEADS)


def operators(**habits):
    """Operators of the layer and of the head, by name; the workload twice adapted is once adapted."""
    changed = run_by(PLAIN, dataclasses.replace(Habits(), **habits))
    assert run_by(changed, dataclasses.replace(Habits(), **habits)) is changed
    return {op.name: op for block in changed.blocks for op in block.ops}


def elements(sizes):
    return float(whole(sizes))


def test_nothing_changes_without_habits():
    assert run_by(PLAIN, Habits()) is PLAIN


def test_rotation_passes_touch_queries_and_keys():
    """Two products (read, read, written each), a turned copy and a sum: nine touches."""
    rotation = operators(rotation_passes=True)["rotation"]
    assert (elements(rotation.rows), elements(rotation.columns)) == (TOKENS, 2 * HIDDEN)
    assert (rotation.kind, rotation.touches_forward, rotation.touches_backward) == (Kind.MEMORY, 9, 9)


def test_eager_activations_keep_the_gate_after_it_too():
    saved = operators(eager=True)["activation"].saved
    assert [elements(each.columns) for each in saved] == [2 * FFN, FFN]


def test_norms_in_32_bits_keep_copies_and_pass_nine_times():
    norm = operators(norm_copies_bytes=10.0)["ffn norm"]
    assert (norm.saved[-1].activations, norm.saved[-1].fixed_bytes) == (0.0, 10.0)
    assert (norm.touches_forward, norm.touches_backward) == (18, 36)


def test_the_loss_of_gathered_logits():
    """Every rank computes on the whole vocabulary."""
    found = operators(gathered_loss=True)
    (loss,) = (op for op in found.values() if op.kind == Kind.LOSS)
    assert all(not size.split for size in loss.columns)
    gather = found["logits gather"]
    assert (2 * elements(gather.columns), gather.forward, gather.backward) == (elements(loss.columns), True, False)


def test_scores_in_32_bits_and_inputs_that_are_not_kept():
    core = [each for each in operators(softmax_in_32_bits=True)["attention"].saved if each.role == Role.CORE]
    plain = [each for op in PLAIN.blocks[1].ops for each in op.saved if each.role == Role.CORE]
    assert [each.fixed_bytes for each in core] == [each.fixed_bytes + 6 for each in plain]
    left = [each.role for op in operators(drops_inputs=True).values() for each in op.saved]
    assert Role.INPUT not in left
    assert Role.INPUT in [each.role for block in PLAIN.blocks for op in block.ops for each in op.saved]


@pytest.mark.parametrize("copies", [1.0, 3.0])
def test_rotated_copies_are_kept(copies):
    kept = operators(rotation_copies=copies)["attention"].saved[-1]
    assert (elements(kept.columns), kept.activations) == (HIDDEN, copies)


def test_windows_of_a_traced_sequence():
    """A window that holds the whole sequence masks nothing more; one that does not is that of plain numbers."""
    traced = jax.jit(lambda tokens: causal_density(4096, 0.75, tokens))
    for tokens in (512, 3000, 4096, 5000, 8192, 131_072):
        seen = min(1.0, 4096 / tokens)
        assert causal_density(4096, 0.75, tokens) == pytest.approx(0.5 - 0.75 * (1 - seen) ** 2 / 2, abs=1e-15)
        assert float(traced(float(tokens))) == pytest.approx(causal_density(4096, 0.75, tokens), rel=1e-6)
    assert causal_density(4096, 0.75, 3000) == 0.5
