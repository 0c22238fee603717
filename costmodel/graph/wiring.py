"""Who reads what: the producers of each operator of a workload, which lists its operators in turn.

A workload does not say it. What it says is followed: a norm opens a branch of the stream, a residual closes it and is
the stream from then on; a product reads what has its size (the norm's output where it keeps that, or where an earlier
product keeps its input); attention, products of activations and the loss gather what nobody has read. The encoder's
output goes to the decoder's cross attention, behind its final norm, which workloads list in the head. Tensors are known
by rows and columns of the undivided model; what has no rows only counts parameters.
"""

import math
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from costmodel.inputs import Block, Kind, Module, Op, Role, Workload, whole
from costmodel.semantics import Scalar

Shape = tuple[Scalar, Scalar]
"""Rows and columns for one sequence."""

Made = tuple[str, Shape]
"""An activation by the name of its operator."""

_GATHERING = (Kind.ATTENTION, Kind.PRODUCT, Kind.LOSS)
_BOTH = 3.0  # touches of an element by a sum of two tensors
_ASIDE = "decoder embedding"  # the stream that waits for the decoder
_CROSS = "cross attention key value"  # what reads the encoder's output
_ENCODED = "encoder final norm"


class Wired(NamedTuple):
    """An operator of one layer in one forward pass: `layer` names its weights, `name` itself."""

    name: str
    layer: str
    block: Block
    op: Op
    reads: tuple[Made, ...]
    trained: bool  # the last forward pass, which keeps activations


class _Known(NamedTuple):
    """What has been written so far. Newest come last."""

    unread: dict[str, Made]
    attended: dict[str, Made]  # of these, what attention has written
    newest: dict[Shape, Made]  # of this layer
    norms: dict[Shape, Made]
    openings: dict[Shape, Made]  # norms at the head of the branches that no residual has closed
    streams: dict[Shape, list[Made]]  # parts that add up to each
    aside: dict[str, Made]
    encoded: list[Made]  # what the encoder ends with


def steps(workload: Workload) -> Iterator[Wired]:
    """Every forward operator of one microbatch, in the order of the model, with what it reads."""
    known = _Known({}, {}, {}, {}, {}, {}, {}, [])
    passes = max(int(block.forwards) for block in workload.blocks)
    for number in range(passes):
        for block in workload.blocks:
            if number < passes - int(block.forwards):
                continue
            before, trained = f"pass {number}, " if number < passes - 1 else "", number == passes - 1
            if known.aside and any(op.name == _CROSS for op in block.ops):
                yield from _encoder_end(workload, before, known, trained)
            for repeat in range(int(block.repeats)):
                layer = f"{block.name} {repeat}"
                yield from _layer(f"{before}{layer}", layer, block, known, trained)


def _encoder_end(workload: Workload, before: str, known: _Known, trained: bool) -> Iterator[Wired]:
    """The encoder's final norm, and from then on the decoder's stream."""
    known.encoded[:] = list(known.streams.values())[-1]
    for block in workload.blocks:
        for op in (op for op in block.ops if op.name == _ENCODED):
            layer = f"{block.name} 0"
            yield Wired(f"{before}{layer}/{op.name}", layer, block, op, tuple(known.encoded), trained)
            known.encoded[:] = [(f"{before}{layer}/{op.name}", shape_of(op))]
    known.streams.update((made[1], [made]) for made in known.aside.values())
    known.aside.clear()


def _layer(name: str, layer: str, block: Block, known: _Known, trained: bool) -> Iterator[Wired]:
    known.newest.clear()
    for op in block.ops:
        if op.name == _ENCODED:
            continue
        inside, reads = bool(known.openings and known.unread) and not _heads(op), _reads(op, known)
        written = (f"{name}/{op.name}", shape_of(op))
        yield Wired(written[0], layer, block, op, tuple(dict.fromkeys(reads)), trained)
        for each in reads:
            known.unread.pop(each[0], None)
            known.attended.pop(each[0], None)
        _note(written, op, reads, known)
        if op.kind == Kind.NORM and not inside and written[1][0]:
            known.openings[written[1]] = written


def shape_of(op: Op) -> Shape:
    """Rows and columns of what an operator writes."""
    groups = whole(op.groups)
    if op.kind == Kind.ATTENTION:
        return whole(op.rows), groups * whole(op.inner)
    return whole(op.rows) * (groups if op.kind in (Kind.MATMUL, Kind.PRODUCT) else 1), whole(op.columns)


def _note(written: Made, op: Op, reads: list[Made], known: _Known) -> None:
    name, shape = written
    if not shape[0]:
        return
    known.newest[shape] = written
    if op.kind == Kind.NORM or op.kind == Kind.SYNC and reads[0] in known.norms.values():
        known.norms.pop(shape, None)
        known.norms[shape] = written
    if op.name.startswith(_ASIDE):
        known.aside.clear()
        known.aside[name] = written
    elif _closes(op):
        known.streams.pop(shape, None)
        known.streams[shape] = [written]
        known.openings.clear()
    else:
        known.unread[name] = written
        if op.kind == Kind.ATTENTION:
            known.attended[name] = written


def _heads(op: Op) -> bool:
    """Whether a norm keeps the input of a whole layer."""
    return any(kept.role == Role.INPUT for kept in op.saved)


def _closes(op: Op) -> bool:
    """Whether an operator is a residual: the sum of a branch and the stream."""
    return op.kind == Kind.MEMORY and op.touches_forward == _BOTH


def _reads(op: Op, known: _Known) -> list[Made]:
    shape, waiting = shape_of(op), list(known.unread.values())
    if op.name.startswith((_ASIDE, _CROSS)):
        return list(known.aside.values() if op.name.startswith(_ASIDE) else known.encoded) or [_outside(op, shape)]
    if not shape[0]:
        return [_outside(op, shape)]
    if op.kind == Kind.MATMUL:
        return [_product_input(op, known)]
    if op.kind == Kind.LOOKUP:
        return [_outside(op, (whole(op.rows), 1))]
    if op.kind == Kind.NORM:
        return _opening(op, shape, known)
    if op.kind in _GATHERING or _closes(op):
        return waiting + (known.streams.get(shape, []) if _closes(op) else [])
    return _alone(op, shape, waiting, known)


def _alone(op: Op, shape: Shape, waiting: list[Made], known: _Known) -> list[Made]:
    """What neither opens a branch nor closes it reads what waits with its size, or else all that waits.

    A gate reads attention of fewer rows as well: one query for a whole column of them (AlphaFold2's extra sequences).
    """
    if op.kind == Kind.MEMORY and op.parameters:
        return [_outside(op, shape)]
    gates = op.kind == Kind.ACTIVATION
    rows = [made for made in waiting if gates and (made[1][0] == shape[0] or made[0] in known.attended)]
    if rows or op.kind == Kind.SYNC and shape in known.newest:
        return rows or [known.newest[shape]]
    alike = [made for made in waiting if made[1] == shape]
    alike = alike or [made for made in waiting if math.prod(made[1]) == math.prod(shape)]
    return alike[-1:] or waiting + list(known.norms.values())[-1:] or [_outside(op, shape)]


def _product_input(op: Op, known: _Known) -> Made:
    """What has its size: a norm's output where that is what it keeps, the branch's head where it keeps nothing.

    What keeps another input reads attention that waits: that of latent attention has a mean of keys' and values' size.
    """
    shape = (whole(op.rows) * whole(op.groups), whole(op.inner))
    if known.attended and op.saved and op.saved[0].module == Module.NONE:
        return next(iter(known.attended.values()))
    tables = [known.newest]
    if not op.saved or op.saved[0].module == Module.NORMS:
        tables = [known.norms, *tables] if op.saved else [known.openings, known.norms, *tables]
    for table in tables:
        if shape in table:
            return table[shape]
    if shape in known.streams:
        return known.streams[shape][0]
    wide = [made for made in reversed(known.norms.values()) if made[1][1] >= shape[1]]
    return [*wide, *reversed(known.unread.values()), _outside(op, shape)][0]


def _opening(op: Op, shape: Shape, known: _Known) -> list[Made]:
    """A norm behind what nobody has read of its layer reads that; others the stream, with what was added to it since.

    At the head of a layer what it reads is the stream from then on.
    """
    waiting = list(known.unread.values())
    own = [made for made in waiting if made in known.newest.values()]
    if own and not _heads(op):
        return own[-1:]
    found = list(known.streams.get(shape, []))
    found += [made for made in waiting if made[1] == shape]
    if not found:
        merged = [made for made in chain(waiting, *known.streams.values()) if _merges(made[1], shape)]
        found = merged[-1:] or [_outside(op, shape)]
    if _heads(op):
        known.streams[shape] = found
    return found


def _merges(before: Shape, after: Shape) -> bool:
    """Whether four patches of an image, two by two, become one with all their elements (Swin)."""
    return before == (4 * after[0], after[1] / 4)


def _outside(op: Op, shape: Shape) -> Made:
    """What comes from the data set, or is only counted by one of its readers."""
    return f"input of {op.name}", shape
