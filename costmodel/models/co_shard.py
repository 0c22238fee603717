"""Pieces of an operator one after another on one device (co-shard), as an ordinary workload.

Attention and feed-forward of a layer, cut by heads and by features into as many blocks as there are pieces, are each
computed again by itself under full recompute: then one piece's activations are there at a time. Nothing more is sent;
kernels are smaller. Source: nnScaler (Lin et al. 2024). `graph.co_shard` is the same on single operators.
"""

import dataclasses
import functools
import itertools
from collections.abc import Iterator

from costmodel.inputs import PIECES, Block, Kind, Op, Position, Role, Saved, Size, Sizes, Split, Workload
from costmodel.models.pieces import integral
from costmodel.semantics import Scalar

_INSIDE = (Kind.MATMUL, Kind.ATTENTION, Kind.ACTIVATION)


def co_sharded(workload: Workload, pieces: int, blocks: tuple[str, ...] | None = None) -> Workload:
    """The workload with attention and feed-forward of its layers (of the named blocks) in so many pieces.

    Raises a `ValueError` where heads or features do not divide. What all pieces of a branch read is kept once.
    """
    chosen = tuple(b.name for b in workload.blocks if b.position == Position.LAYER) if blocks is None else blocks
    found = _cut(workload.blocks, pieces, chosen)
    return dataclasses.replace(workload, name=f"{workload.name}, {pieces} pieces", blocks=found, pieces=pieces)


def in_pieces(workload: Workload, pieces: int) -> Workload:
    """The workload as a plan of so many pieces runs it, by its own name; unchanged where it is cut so already.

    Raises a `ValueError` where it is cut otherwise, or cannot be cut.
    """
    if pieces in (1, workload.pieces):
        return workload
    if workload.pieces > 1:
        raise ValueError(f"the workload is in {workload.pieces} already; expected that, or 1")
    return dataclasses.replace(co_sharded(workload, pieces), name=workload.name)


@functools.lru_cache(maxsize=64)
def _cut(blocks: tuple[Block, ...], pieces: int, chosen: tuple[str, ...]) -> tuple[Block, ...]:
    """One object for each model and number, which batches rely on."""
    return tuple(each for b in blocks for each in (_pieces(b, pieces) if b.name in chosen else (b,)))


def _pieces(block: Block, pieces: int) -> Iterator[Block]:
    """What is not cut stays in a block of its own, with what the pieces read; each branch is one block of pieces."""
    runs = [(inside, list(ops)) for inside, ops in itertools.groupby(block.ops, _is_cut)]
    rest: list[Op] = []
    branches: list[list[Op]] = []
    for inside, ops in runs:
        if pieces == 1 or not inside:
            rest += ops
            continue
        rest[-1] = _also_keeping(rest[-1], ops[0])
        branches.append([_piece(op, pieces, opening=op is ops[0]) for op in ops])
    yield dataclasses.replace(block, ops=tuple(rest))
    for number, ops in enumerate(branches):
        name = f"{block.name}{PIECES}{number} in {pieces}"
        yield dataclasses.replace(block, name=name, ops=tuple(ops), repeats=pieces * block.repeats)


def _is_cut(op: Op) -> bool:
    """Whether tensor ranks divide it; experts stay whole, and so does what is no work of its own."""
    return op.kind in _INSIDE and any(
        Split.TENSOR in size.split for sizes in (op.inner, op.columns, op.groups) for size in sizes
    )


def _also_keeping(op: Op, product: Op) -> Op:
    """The operator before a branch keeps its output, which all pieces read, through recompute."""
    shared = tuple(dataclasses.replace(kept, role=Role.INPUT) for kept in product.saved)
    return dataclasses.replace(op, saved=(*op.saved, *shared))


def _piece(op: Op, pieces: int, opening: bool) -> Op:
    """One of so many: dimensions that tensor ranks divide, and a share of each vector. What it reads is kept before."""

    def cut(sizes: Sizes) -> Sizes:
        return tuple(_shorter(op, size, pieces) if Split.TENSOR in size.split else size for size in sizes)

    def share(sizes: Sizes) -> Sizes:
        return tuple(dataclasses.replace(size, value=integral(size.value / pieces)) for size in sizes)

    def kept(saved: Saved) -> Saved:
        return dataclasses.replace(saved, columns=cut(saved.columns), groups=cut(saved.groups))

    cuts = {name: cut(getattr(op, name)) for name in ("inner", "columns", "groups", "key_values")}
    saved = () if opening else tuple(map(kept, op.saved))
    return dataclasses.replace(op, **cuts, parameters=share(op.parameters), saved=saved)


def _shorter(op: Op, size: Size, pieces: int) -> Size:
    """A dimension of one piece; key-value heads that are fewer than the pieces are not handled."""
    value, limit = integral(size.value / pieces), None if size.limit is None else integral(size.limit / pieces)
    for each in (value, 1 if limit is None else limit):
        if not _whole(each):
            raise ValueError(
                f"operator {op.name} cannot be cut into {pieces} pieces; expected a divisor of its heads and features"
            )
    return dataclasses.replace(size, value=value, limit=limit)


def _whole(value: Scalar) -> bool:
    return float(value).is_integer()
