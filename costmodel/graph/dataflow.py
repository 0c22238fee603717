"""A workload as a dataflow: operators that read and write tensors, with the ways in which each may be divided.

`build` gives one microbatch, forward and backward, as the first rank of every group runs it under a point: views have
the plan's shares. What operators do together is what `formulas.counts` counts, by another way (`amounts`).
"""

import math
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from costmodel.exact import Exact
from costmodel.formulas import saved_bytes, split_shares
from costmodel.graph.views import Operator, Tensor, View, named
from costmodel.graph.wiring import Made, Wired, steps
from costmodel.inputs import Kind, PlanPoint, Sizes, Split, Workload, whole
from costmodel.semantics import Scalar

KEYS_AND_VALUES = " keys and values"
"""End of the name of what tells how many elements of keys and values an attention reads for each row."""

_SEM = Exact(math)


class Dataflow(NamedTuple):
    """Operators, the device of each, and what comes behind what on a device besides (pairs of their numbers)."""

    operators: tuple[Operator, ...]
    devices: tuple[int, ...]
    after: tuple[tuple[int, int], ...] = ()


class Length(NamedTuple):
    """A dimension: of the undivided microbatch, what is left on a rank, and how many ranks hold other parts of it."""

    whole: Scalar
    own: Scalar
    ranks: int = 1


Named = tuple[str, View]
"""A view with the names of its dimensions."""


def build(workload: Workload, point: PlanPoint) -> Dataflow:
    """One microbatch of a workload on the first rank of every group, all layers on one device.

    Repeats and forward passes are whole numbers. A forward operator `F` keeps what the backward ones read; `B` gives
    the gradient of what it read, in as many parts as there are readers, `W` that of its weight matrix. Annotations
    are those of nnScaler (Lin et al. 2024); `wiring` says who reads what.
    """
    forward = list(steps(workload))
    readers = Counter(made[0] for step in forward if step.trained for made in step.reads)
    written: dict[str, View] = {}
    passed, back, turn = [], [], Counter[str]()
    for step in forward:
        lengths = _lengths(step, workload, point)
        inputs = [_input(made, step, lengths, written, point) for made in step.reads]
        passed.append(_forward(step, inputs, lengths, workload, point))
        written[step.name] = passed[-1].writes[0]
        if step.trained:
            ranks = lengths["n"].ranks if step.op.kind == Kind.MATMUL else 1
            gradients = [_gradient(each, ranks, readers, turn) for each in inputs if each[1].tensor.name in written]
            back.append(list(_backward(step, passed[-1], gradients, lengths)))
    operators = (*passed, *(each for pair in reversed(back) for each in pair))
    return Dataflow(operators, (0,) * len(operators))


def _lengths(step: Wired, workload: Workload, point: PlanPoint) -> dict[str, Length]:
    op = step.op
    rows = _length(op.rows, point)
    uneven = workload.expert_imbalance if any(Split.ROUTED in size.split for size in op.rows) else 1.0
    own = _even(point.microbatch * rows.own * uneven)
    found = {"m": Length(_even(point.microbatch * rows.whole), own, rows.ranks)}
    columns, inner, groups = (_length(sizes, point) for sizes in (op.columns, op.inner, op.groups))
    if op.kind == Kind.ATTENTION:
        heads = Length(groups.whole * inner.whole, _even(groups.own * inner.own), groups.ranks)
        return found | {"h": heads, "j": columns}
    if op.inner:
        found["k"] = inner
    if op.groups:
        found["g"] = groups
    return found | {"n": columns}


def _length(sizes: Sizes, point: PlanPoint) -> Length:
    """Parts side by side along one dimension; 1 for none."""
    shares, own, ranks = split_shares(point), 0.0 if sizes else 1.0, 1
    for size in sizes:
        share = math.prod(
            max(shares[name], 1.0 / size.limit) if name == Split.TENSOR and size.limit is not None else shares[name]
            for name in size.split
        )
        own, ranks = own + size.value * share, max(ranks, math.prod(_degree(name, point) for name in size.split))
    return Length(whole(sizes), _even(own), ranks)


def _degree(name: Split, point: PlanPoint) -> int:
    """Ranks among which a split divides; routed rows lie on as many as there are."""
    if name in (Split.ROUTED, Split.SEQUENCE):
        return int(point.tensor) if name == Split.SEQUENCE and point.sequence_parallel else 1
    return int(getattr(point, name))


def _even(value: Scalar) -> Scalar:
    return int(value) if float(value).is_integer() else value


def _view(
    name: str, dimensions: str, lengths: dict[str, Length], element_bytes: float, parameter: bool = False
) -> View:
    own = [lengths[each.rstrip("+^")] for each in dimensions.split()]
    tensor = Tensor(name, tuple(each.whole for each in own), element_bytes, parameter)
    return View(tensor, tuple((0, each.own) for each in own))


def _input(made: Made, step: Wired, lengths: dict[str, Length], written: dict[str, View], point: PlanPoint) -> Named:
    """What an operator reads of another's output: its own part where sizes agree, else all that this rank has."""
    op, (name, (rows, columns)) = step.op, made
    size_bytes = point.precision.activation_bytes
    view = written.get(name)
    if view is None:
        outside = Length(_even(rows * point.microbatch), lengths["m"].own if rows == whole(op.rows) else rows)
        at = {"m": outside, "y": Length(columns, columns)}
        view = _view(f"{step.name} from outside", "m y", at, size_bytes)
    sides = list(view.box)
    if len(sides) > 2 or rows != whole(op.rows) or op.groups and op.kind != Kind.ATTENTION:
        return " ".join(f"x{place}^" for place in range(len(sides))), view._replace(part=(0, 1))
    inner = {Kind.MATMUL: "k+", Kind.ATTENTION: "h", Kind.LOOKUP: "y^", Kind.PRODUCT: "y^"}
    second = inner.get(op.kind, "n^" if op.kind == Kind.NORM else "n")
    length = lengths.get(second.rstrip("+^"))
    if second == "k+" and columns != whole(op.inner):
        second = "y^"
    box = (0, length.own) if length is not None and length.whole == columns else sides[-1]
    return f"m {second}", View(view.tensor, ((0, lengths["m"].own), box))


def _forward(
    step: Wired, inputs: list[Named], lengths: dict[str, Length], workload: Workload, point: PlanPoint
) -> Operator:
    op = step.op
    out = "m h" if op.kind == Kind.ATTENTION else "m n^" if op.kind == Kind.NORM else "m n"
    if op.groups and op.kind != Kind.ATTENTION:
        out = f"g {out}"
    summed = lengths["k"].ranks if op.kind in (Kind.MATMUL, Kind.LOOKUP) else 1
    written = _view(step.name, out, lengths, point.precision.activation_bytes)._replace(part=(0, summed))
    reads = [*inputs, *_weights(step, lengths, point), *_extents(step, lengths, point)]
    kept = [_kept(step, number, workload, point) for number in range(len(op.saved))] if step.trained else []
    return Operator(
        name=step.name,
        dimensions=_dimensions(reads, [(out, written)], [each for each in kept if each[1].size_bytes]),
        reads=tuple(view for _, view in reads),
        writes=(written,),
        keeps=tuple(view for _, view in kept if view.size_bytes),
        source=op,
    )


def _weights(step: Wired, lengths: dict[str, Length], point: PlanPoint) -> Iterator[Named]:
    """The weight matrix, and the vectors beside it. Forward passes of one layer share them."""
    op, size_bytes = step.op, point.precision.weight_bytes
    name = f"{step.layer}/{op.name}"
    if op.kind in (Kind.MATMUL, Kind.LOOKUP):
        dimensions = "g k+ n" if op.groups else "k+ n"
        yield dimensions, _view(f"{name} weight", dimensions, lengths, size_bytes, True)
    for number, size in enumerate(op.parameters):
        at = {"v": _length((size,), point)}
        yield "v^", _view(f"{name} vector {number}", "v^", at, size_bytes, True)


def _extents(step: Wired, lengths: dict[str, Length], point: PlanPoint) -> Iterator[Named]:
    """Dimensions that no tensor of an operator has: what rows of queries look at, what a product sums over."""
    op = step.op
    if op.kind == Kind.ATTENTION:
        yield "j^", _view(f"{step.name} keys", "j", lengths, 0.0)
        name = step.name + KEYS_AND_VALUES
        yield "h", _view(name, "h", {"h": _length(op.key_values, point)}, 0.0)
    if op.kind == Kind.PRODUCT:
        yield "k^", _view(f"{step.name} inner", "k", lengths, 0.0)


def _kept(step: Wired, number: int, workload: Workload, point: PlanPoint) -> Named:
    """One tensor that waits for the backward pass, with the bytes of each element of it."""
    op, saved = step.op, step.op.saved[number]
    rows = "m" if whole(saved.rows) == whole(op.rows) else "s^"
    column = {Kind.MATMUL: "k", Kind.ATTENTION: "h", Kind.PRODUCT: "y^"}.get(
        op.kind, "n^" if op.kind == Kind.NORM else "n"
    )
    dimensions = f"{rows} j^ h" if saved.groups and op.kind == Kind.ATTENTION else f"{rows} {column}"
    sizes = (saved.columns, saved.groups) if saved.groups else (saved.columns,)
    names = [word.rstrip("^") for word in dimensions.split()]
    first = _length(saved.rows, point)
    first = Length(_even(point.microbatch * first.whole), _even(point.microbatch * first.own), first.ranks)
    at = dict(zip(names, (first, *(_length(each, point) for each in sizes)), strict=False))
    view = _view(f"{step.name} keeps {number}", dimensions, at, 1.0)
    element_bytes = saved_bytes(op, saved, workload, point, _SEM) / view.elements
    return dimensions, view._replace(tensor=view.tensor._replace(element_bytes=element_bytes))


def _gradient(read: Named, ranks: int, readers: Counter[str], turn: Counter[str]) -> Named:
    """The gradient of an input: a part of it for each reader, and of those for each rank that cuts the columns."""
    dimensions, view = read
    name = view.tensor.name
    part = turn[name] * ranks, readers[name] * ranks
    turn[name] += 1
    return dimensions.replace("+", ""), view._replace(tensor=_of(view.tensor), part=part)


def _of(tensor: Tensor) -> Tensor:
    """The gradient of a tensor."""
    return tensor._replace(name=f"{tensor.name}'")


def _backward(step: Wired, forward: Operator, gradients: list[Named], lengths: dict[str, Length]) -> Iterator[Operator]:
    """B, and W where a trained matrix has a gradient of its own."""
    op, (reads, writes, keeps) = step.op, named(forward)
    names = [
        [" ".join(name + mark.replace("+", "") for name, mark in words) for words in side]
        for side in (reads, writes, keeps)
    ]
    inputs = list(zip(names[0], forward.reads, strict=True))
    arriving = [(names[1][0], forward.writes[0]._replace(tensor=_of(forward.writes[0].tensor), part=(0, 1)))]
    kept = list(zip(names[2], forward.keeps, strict=True))
    own = [each for each in inputs if each[1].tensor.parameter]
    extents = [each for each in inputs if not each[1].tensor.element_bytes]
    matrix = [each for each in own if "k" in each[0].split()]
    apart = op.kind == Kind.MATMUL and bool(op.trained)
    sums = lengths["m"].ranks
    updated = [(words, view._replace(tensor=_of(view.tensor), part=(0, sums))) for words, view in own if op.trained]
    yield _pass(
        forward, "B", arriving + ([] if apart else kept) + matrix + extents, gradients + ([] if apart else updated)
    )
    if apart:
        yield _pass(forward, "W", arriving + kept, updated)


def _pass(forward: Operator, phase: str, reads: list[Named], writes: list[Named]) -> Operator:
    """What is read of a dimension that some of what is written has not is summed over there."""
    sides = [{word.rstrip("^") for word in words.split()} for words, _ in writes]
    left = set.intersection(*sides) if sides else {word for words, _ in reads for word in words.split()}
    marked = [
        (" ".join(word if word[-1] == "^" or word in left else f"{word}+" for word in words.split()), view)
        for words, view in reads
    ]
    return forward._replace(
        name=f"{forward.name}, {phase}",
        dimensions=_dimensions(marked, writes, []),
        reads=tuple(view for _, view in reads),
        writes=tuple(view for _, view in writes),
        keeps=(),
        phase=phase,
    )


def _dimensions(reads: list[Named], writes: list[Named], keeps: list[Named]) -> str:
    read, written, kept = (", ".join(words for words, _ in side) for side in (reads, writes, keeps))
    return f"{read} -> {written}" + (f" | {kept}" if kept else "")
