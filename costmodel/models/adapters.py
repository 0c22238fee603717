"""Frozen weights and low-rank adapters (Hu et al. 2021), on any workload."""

import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterable

from costmodel.inputs import Block, Kind, Op, Saved, Size, Workload
from costmodel.semantics import Scalar


def freeze(workload: Workload, names: Collection[str] | None = None) -> Workload:
    """Operators called `names` (all of them for None) without weight gradients, gradient memory and optimizer states.

    A frozen product keeps no input for its backward pass. Gradients still pass through to the first block.
    """
    return _changed(workload, lambda op: (_frozen(op),) if names is None or op.name in names else (op,))


def low_rank(workload: Workload, rank: Scalar, targets: Collection[str]) -> Workload:
    """All weights frozen, and two trained factors of `rank` beside each matrix of the products called `targets`.

    Matrices that lie side by side in one product (queries, keys and values) have factors of their own. A first factor
    is divided as its product's input, a second one as its output.
    """
    return _changed(workload, lambda op: (_frozen(op), *_factors(op, rank)) if op.name in targets else (_frozen(op),))


def weighted(workload: Workload) -> tuple[str, ...]:
    """Names of the products with weights, in order: what may be a target."""
    return tuple(dict.fromkeys(op.name for block in workload.blocks for op in block.ops if op.kind == Kind.MATMUL))


def map_operators(blocks: Iterable[Block], change: Callable[[Op], Iterable[Op]]) -> tuple[Block, ...]:
    """The blocks with each operator replaced by those that `change` makes of it."""
    return tuple(
        dataclasses.replace(block, ops=tuple(itertools.chain.from_iterable(map(change, block.ops)))) for block in blocks
    )


def _changed(workload: Workload, change: Callable[[Op], Iterable[Op]]) -> Workload:
    return dataclasses.replace(workload, blocks=map_operators(workload.blocks, change))


def _frozen(op: Op) -> Op:
    if op.kind == Kind.MATMUL:
        return dataclasses.replace(op, trained=0, saved=())
    return dataclasses.replace(op, trained=0) if op.parameters or op.kind == Kind.LOOKUP else op


def _factors(op: Op, rank: Scalar) -> tuple[Op, Op]:
    """Down to the rank from the product's input, which they keep, and up to its output."""
    middle = (Size(value=op.matrices * rank),)
    down = Op(name=f"{op.name} down", kind=Kind.MATMUL, rows=op.rows, inner=op.inner, columns=middle, saved=op.saved)
    up = Op(
        name=f"{op.name} up",
        kind=Kind.MATMUL,
        rows=op.rows,
        inner=(Size(value=rank),),
        columns=op.columns,
        saved=(Saved(rows=op.rows, columns=middle),),
    )
    return down, up
