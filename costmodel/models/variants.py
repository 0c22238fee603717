"""Operators as other software has them: what it saves, computes and moves beside, or without, the fused kernels' own.

`run_by` applies the habits of a software to a workload. A variant makes one operator into those that stand in its place
(`map_operators`). One that needs a number is made by a function of it, which returns the same variant for the same
number.
"""

import dataclasses
import functools
from collections.abc import Callable

from costmodel.inputs import Block, Habits, Kind, Op, Position, Role, Saved, Workload, whole
from costmodel.models.adapters import map_operators
from costmodel.models.pieces import CLAMPED, EXPERT_BIAS

Variant = Callable[[Op], tuple[Op, ...]]


def run_by(workload: Workload, habits: Habits) -> Workload:
    """The workload with operators as a software has them; unchanged where that was done before."""
    chosen = _variants(habits, _rotates(workload), _biases_experts(workload))
    if workload.adapted or not chosen:
        return workload
    return dataclasses.replace(workload, blocks=_changed(workload.blocks, chosen), adapted=True)


def _rotates(workload: Workload) -> bool:
    """Whether positions enter by rotating queries and keys: the embedding has no table of them."""
    tables = [op for block in workload.blocks if block.position == Position.FIRST for op in block.ops]
    return any(op.kind == Kind.LOOKUP and not op.parameters for op in tables)


def _biases_experts(workload: Workload) -> bool:
    return any(op.name == EXPERT_BIAS for block in workload.blocks for op in block.ops)


def _variants(habits: Habits, rotates: bool, biases_experts: bool) -> tuple[Variant, ...]:
    """What a software does otherwise, in the order in which it is applied."""
    copies_bytes = habits.norm_copies_bytes
    applies: tuple[tuple[bool, Callable[[], Variant]], ...] = (
        (habits.eager, lambda: eager_activation),
        (copies_bytes is not None, lambda: norms_in_32_bits(copies_bytes or 0.0)),
        (habits.norms_alone_fused, lambda: fused_norms),
        (habits.rotation_passes and rotates, lambda: rotation_passes),
        (habits.gathered_loss, lambda: loss_on_all_logits),
        (habits.softmax_in_32_bits, lambda: softmax_in_32_bits),
        (habits.drops_inputs, lambda: without_inputs),
        (habits.eager_experts and biases_experts, lambda: eager_experts),
        (habits.rotation_copies > 0 and rotates, lambda: rotated(habits.rotation_copies)),
    )
    return tuple(make() for applied, make in applies if applied)


@functools.lru_cache(maxsize=1024)
def _changed(blocks: tuple[Block, ...], variants: tuple[Variant, ...]) -> tuple[Block, ...]:
    """One object for each model and software, which batches rely on."""
    for variant in variants:
        blocks = map_operators(blocks, variant)
    return blocks


def eager_activation(op: Op) -> tuple[Op, ...]:
    """Autograd of unfused modules keeps the gate after its activation too; without a gate there is nothing more."""
    if op.kind != Kind.ACTIVATION or not op.saved or op.saved[0].columns == op.columns:
        return (op,)
    return (dataclasses.replace(op, saved=(*op.saved, dataclasses.replace(op.saved[0], columns=op.columns))),)


@functools.cache
def rotated(copies: float) -> Variant:
    """Queries and keys before and after their rotation, and the parts that are put together again."""

    def change(op: Op) -> tuple[Op, ...]:
        if op.kind != Kind.ATTENTION:
            return (op,)
        turned = Saved(rows=op.saved[0].rows, columns=op.saved[0].columns[:1], activations=copies)
        return (dataclasses.replace(op, saved=(*op.saved, turned)),)

    return change


@functools.cache
def norms_in_32_bits(copies_bytes: float) -> Variant:
    """Input and normalised input in 32 bits, and in 16 before the scale: 10 bytes per element of each norm.

    Forward a cast (2 bytes read, 4 written), a square (8), a mean (4), a product with the inverse root (8), a cast (6)
    and one with the weights (4): 36 bytes an element, 18 touches, all of them counted here. Backward
    twice that. Layer norms, which have a shift too, are one kernel of the framework's own.
    """

    def change(op: Op) -> tuple[Op, ...]:
        if op.kind != Kind.NORM or not op.saved or whole(op.parameters) > whole(op.columns):
            return (op,)
        copies = dataclasses.replace(op.saved[0], activations=0.0, fixed_bytes=copies_bytes, role=Role.REST)
        counted = {"touches_forward": 18.0, "touches_backward": 36.0, "single": 1.0}
        return (dataclasses.replace(op, saved=(*op.saved, copies), **counted),)

    return change


def fused_norms(op: Op) -> tuple[Op, ...]:
    """One kernel for each norm, beside other operators that are not fused."""
    return (dataclasses.replace(op, single=1.0) if op.kind == Kind.NORM else op,)


def rotation_passes(op: Op) -> tuple[Op, ...]:
    """Two products, a turned copy and a sum on queries and keys: nine touches."""
    if op.kind != Kind.ATTENTION:
        return (op,)
    rotation = Op(
        name="rotation",
        kind=Kind.MEMORY,
        rows=op.rows,
        columns=(*op.saved[0].columns[:1], *op.saved[0].columns[:1]),
        touches_forward=9.0,
        touches_backward=9.0,
        single=1.0,
    )
    return (rotation, op)


def loss_on_all_logits(op: Op) -> tuple[Op, ...]:
    """Logits are gathered before the loss, which every tensor rank computes on the whole vocabulary.

    A gather carries half of what a sync of the same elements does. Evidence V: reference/accuracy.md, section 6.
    """
    if op.kind != Kind.LOSS:
        return (op,)
    columns = tuple(dataclasses.replace(size, split=()) for size in op.columns)
    half = tuple(dataclasses.replace(size, value=0.5 * size.value) for size in columns)
    gather = Op(name="logits gather", kind=Kind.SYNC, rows=op.rows, columns=half, backward=False)
    return (gather, dataclasses.replace(op, columns=columns))


def softmax_in_32_bits(op: Op) -> tuple[Op, ...]:
    """Masked scores in 16 bits and their softmax in 32, beside the probabilities: 6 bytes more for each score."""

    def more(saved: Saved) -> Saved:
        return dataclasses.replace(saved, fixed_bytes=saved.fixed_bytes + 6.0) if saved.role == Role.CORE else saved

    return (dataclasses.replace(op, saved=tuple(map(more, op.saved))),)


def without_inputs(op: Op) -> tuple[Op, ...]:
    """The operator without the block's inputs that it would keep for a recomputation."""
    return (dataclasses.replace(op, saved=tuple(each for each in op.saved if each.role != Role.INPUT)),)


def eager_experts(op: Op) -> tuple[Op, ...]:
    """Biases of experts as Megatron-Core adds them, and gates that it clamps, by PyTorch's own operators.

    The bias of the output, times the router's weight in 32 bits: a product (4 bytes written), a sum (6 read, 4
    written), the experts put together (4, 4) and a cast (4, 2) make 14 touches forward; backward a cast (2, 4), one of
    the sum's (4, 2), the experts' parts put together (2, 2), and for bias and weight a product (4, 4) and a sum (4)
    each make 20. Gates are clamped half by half and put together: 8 touches of the gated width forward, 10 backward.
    Source: Megatron-LM, `transformer/moe/experts.py` (`_apply_bias`), `fusions/fused_bias_geglu.py`.
    """
    if op.name == EXPERT_BIAS:
        return (dataclasses.replace(op, touches_forward=14.0, touches_backward=20.0, single=1.0),)
    if op.name == CLAMPED:
        forward, backward = op.touches_forward + 8.0, op.touches_backward + 10.0
        return (dataclasses.replace(op, touches_forward=forward, touches_backward=backward),)
    return (op,)
