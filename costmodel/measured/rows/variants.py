"""Blocks as other software has them: what it saves, computes and moves beside, or without, the fused kernels' own."""

import dataclasses

from costmodel.inputs import LOGITS, Block, Kind, Op, Role, Saved, Size
from costmodel.models import SPREAD, TOKENS


def in_parallel(block: Block) -> Block:
    """Attention and feed-forward beside each other: one norm, one residual and one pair of syncs less."""
    dropped = ("ffn norm", "attention sync", "attention residual")
    return dataclasses.replace(block, ops=tuple(op for op in block.ops if op.name not in dropped))


def gathered(block: Block) -> Block:
    """Inputs of column-parallel layers kept as they were gathered, and not gathered again.

    Source: nanotron, `tensor_parallel/functional.py`, without `recompute_allgather`. Its calibration rows hold
    runs with and without: without a pipeline most are so, with one most are not (the cause is unknown).
    """

    def whole(op: Op) -> Op:
        kept = (dataclasses.replace(saved, rows=tuple(map(own_tokens, saved.rows))) for saved in op.saved)
        return dataclasses.replace(op, saved=tuple(kept))

    def own_tokens(size: Size) -> Size:
        return dataclasses.replace(size, split=TOKENS) if size.split == SPREAD else size

    return dataclasses.replace(block, ops=tuple(whole(op) if op.kind == Kind.MATMUL else op for op in block.ops))


def narrow(block: Block) -> Block:
    """Inputs of linear layers saved in 8 bits. Source: NVIDIA Transformer Engine, `LayerNormLinear` and `Linear`."""

    def half(op: Op) -> Op:
        if op.kind != Kind.MATMUL or op.name == LOGITS:
            return op
        return dataclasses.replace(op, saved=tuple(dataclasses.replace(s, activations=0.5) for s in op.saved))

    return dataclasses.replace(block, ops=tuple(map(half, block.ops)))


def eager(block: Block) -> Block:
    """Autograd of unfused modules keeps the gate after its activation too."""

    def more(op: Op) -> Op:
        if op.kind != Kind.ACTIVATION or not op.saved:
            return op
        return dataclasses.replace(op, saved=(*op.saved, dataclasses.replace(op.saved[0], columns=op.columns)))

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def rotated(copies: float, block: Block) -> Block:
    """Queries and keys before and after their rotation, and the parts that are put together again."""

    def more(op: Op) -> Op:
        if op.kind != Kind.ATTENTION:
            return op
        kept = Saved(rows=op.saved[0].rows, columns=op.saved[0].columns[:1], activations=copies)
        return dataclasses.replace(op, saved=(*op.saved, kept))

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def norms_in_32_bits(copies_bytes: float, block: Block) -> Block:
    """Input and normalised input in 32 bits, and in 16 before the scale: 10 bytes per element of each norm.

    Forward a cast (2 bytes read, 4 written), a square (8), a mean (4), a product with the inverse root (8), a cast (6)
    and one with the weights (4): 36 bytes an element, 18 touches, of which `Stack.unfused_touches` counts two for each
    one here. Backward twice that.
    """

    def more(op: Op) -> Op:
        if op.kind != Kind.NORM or not op.saved:
            return op
        copies = dataclasses.replace(op.saved[0], activations=0.0, fixed_bytes=copies_bytes, role=Role.REST)
        return dataclasses.replace(op, saved=(*op.saved, copies), touches_forward=9.0, touches_backward=18.0)

    return dataclasses.replace(block, ops=tuple(map(more, block.ops)))


def fused_norms(block: Block) -> Block:
    """One kernel for each norm where `unfused_touches` counts the passes of all memory-bound operators twice."""

    def less(op: Op) -> Op:
        if op.kind != Kind.NORM:
            return op
        return dataclasses.replace(
            op, touches_forward=0.5 * op.touches_forward, touches_backward=0.5 * op.touches_backward
        )

    return dataclasses.replace(block, ops=tuple(map(less, block.ops)))


def rotation(block: Block) -> Block:
    """Two products, a turned copy and a sum on queries and keys: nine touches, half of them for `unfused_touches`."""

    def before(op: Op) -> tuple[Op, ...]:
        if op.kind != Kind.ATTENTION:
            return (op,)
        turned = Op(
            name="rotation",
            kind=Kind.MEMORY,
            rows=op.rows,
            columns=(*op.saved[0].columns[:1], *op.saved[0].columns[:1]),
            touches_forward=4.5,
            touches_backward=4.5,
        )
        return (turned, op)

    return dataclasses.replace(block, ops=tuple(op for one in block.ops for op in before(one)))


def loss_on_all_logits(block: Block) -> Block:
    """Logits are gathered before the loss, which every tensor rank computes on the whole vocabulary, in 32 bits.

    A gather carries half of what a sync of the same elements does. Passes: cast (6 bytes), logarithm of the softmax
    (12) and back (8), cast (6), half of them here for `unfused_touches`. Evidence V: reference/accuracy.md, section 6.
    """

    def whole(op: Op) -> tuple[Op, ...]:
        if op.kind != Kind.LOSS:
            return (op,)
        columns = tuple(dataclasses.replace(size, split=()) for size in op.columns)
        half = tuple(dataclasses.replace(size, value=0.5 * size.value) for size in columns)
        gather = Op(name="logits gather", kind=Kind.SYNC, rows=op.rows, columns=half, backward=False)
        return (gather, dataclasses.replace(op, columns=columns, touches_forward=4.5, touches_backward=3.5))

    return dataclasses.replace(block, ops=tuple(op for one in block.ops for op in whole(one)))


def softmax_in_32_bits(block: Block) -> Block:
    """Masked scores in 16 bits and their softmax in 32, beside the probabilities: 6 bytes more for each score."""

    def more(kept: Saved) -> Saved:
        return dataclasses.replace(kept, fixed_bytes=kept.fixed_bytes + 6.0) if kept.role == Role.CORE else kept

    ops = (dataclasses.replace(op, saved=tuple(map(more, op.saved))) for op in block.ops)
    return dataclasses.replace(block, ops=tuple(ops))


def without_inputs(block: Block) -> Block:
    """The block without the inputs that it would keep for its recomputation."""
    ops = (dataclasses.replace(op, saved=tuple(k for k in op.saved if k.role != Role.INPUT)) for op in block.ops)
    return dataclasses.replace(block, ops=tuple(ops))
