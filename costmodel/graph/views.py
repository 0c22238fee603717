"""Logical tensors, the parts of them that operators see, and what waits for what: derived from the parts, never kept.

A view is a box of indices of a tensor of the undivided model, and, of a sum that several compute, one part of it. One
operator waits for another where a view that it reads meets one that the other writes.
Source: the masks of nnScaler (Lin et al. 2024).
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from costmodel.graph.layouts import Layout
from costmodel.inputs import Op

Index = Any
"""A place along a dimension: an integer, or a fraction where a plan divides what does not divide evenly."""


class Tensor(NamedTuple):
    """A tensor of the undivided model."""

    name: str
    shape: tuple[Index, ...]
    element_bytes: float = 0.0
    parameter: bool = False


class View(NamedTuple):
    """What an operator reads or writes of a tensor: first and last index, exclusive, of each dimension."""

    tensor: Tensor
    box: tuple[tuple[Index, Index], ...]
    part: tuple[int, int] = (0, 1)  # of a sum: which, of how many

    @property
    def elements(self) -> Index:
        """Elements in the box."""
        return math.prod(last - first for first, last in self.box)

    @property
    def size_bytes(self) -> float:
        """Bytes of them."""
        return self.elements * self.tensor.element_bytes


class Operator(NamedTuple):
    """A piece of work: its dimensions by name, as `m k+, k+ n -> m n`, and its views in that order.

    A plain dimension may be divided where every output has it; one with `+` is summed over: outputs without it become
    parts of a sum; one with `^` stays whole. What it keeps for a later pass follows behind a bar, `| m k`; of
    that, pieces may share a part.
    """

    name: str
    dimensions: str
    reads: tuple[View, ...]
    writes: tuple[View, ...]
    keeps: tuple[View, ...] = ()
    phase: str = "F"  # forward, B and W (gradients), R (forward again), T (between two memories)
    source: Op | None = None  # of the workload


Dependency = tuple[int, int, Index]
"""Producer and consumer, by their number, and how many elements the one writes that the other reads."""


def whole(tensor: Tensor) -> View:
    """All of a tensor."""
    return View(tensor, tuple((0, length) for length in tensor.shape))


def split(operator: Operator, dimension: str, pieces: int) -> tuple[Operator, ...]:
    """Operators that together do the same, each a piece of one dimension. Raises a `ValueError` of one line."""
    _check_count(operator, "split", pieces)
    reads, writes, keeps = named(operator)
    marks = {mark for names in (*reads, *writes) for name, mark in names if name == dimension}
    if not marks or "^" in marks:
        told = "which it does not have" if not marks else "which stays whole"
        raise ValueError(f"operator {operator.name} cannot be split by {dimension!r}, {told}: {operator.dimensions}")
    spared = [dimension not in dict(names) for names in writes]
    if "+" not in marks and any(spared):
        raise ValueError(f"operator {operator.name} cannot be split by {dimension!r}, which no output has")
    found = []
    groups = ((operator.reads, reads), (operator.writes, writes), (operator.keeps, keeps))
    for place in range(pieces):
        inputs, outputs, kept = (
            tuple(_piece(operator, *pair, dimension, place, pieces) for pair in zip(*group, strict=True))
            for group in groups
        )
        outputs = tuple(
            view._replace(part=_inside(view.part, place, pieces)) if sums else view
            for view, sums in zip(outputs, spared, strict=True)
        )
        name = f"{operator.name}.{place}"
        found.append(operator._replace(name=name, reads=inputs, writes=outputs, keeps=kept))
    return tuple(found)


def replicate(operator: Operator, copies: int) -> tuple[Operator, ...]:
    """The same work, so many times."""
    _check_count(operator, "copied", copies)
    return tuple(operator._replace(name=f"{operator.name}.{place}") for place in range(copies))


def _check_count(operator: Operator, what: str, count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise ValueError(f"operator {operator.name} cannot be {what} into {count!r}; expected an integer >= 1")


def dependencies(operators: Sequence[Operator]) -> Iterator[Dependency]:
    """What waits for what, from the views alone."""
    written = defaultdict(list)
    for i, producer in enumerate(operators):
        for view in (*producer.writes, *producer.keeps):
            written[view.tensor].append((i, view))
    for j, consumer in enumerate(operators):
        met: dict[int, Index] = defaultdict(int)
        for view in consumer.reads:
            for i, other in written.get(view.tensor, ()):
                met[i] += meet(other, view)
        yield from ((i, j, met[i]) for i in sorted(met) if i != j and met[i])


def layout_of(views: Sequence[View]) -> Layout:
    """How equal pieces of one tensor lie on devices, one view on each: replicas, parts of sums, splits by dimension."""
    if len({view.tensor for view in views}) != 1:
        names = ", ".join(view.tensor.name for view in views) or "none"
        raise ValueError(f"a layout is one of views of one tensor; got views of {names}")
    tensor, boxes = views[0].tensor, {view.box for view in views}
    splits = [len({view.box[place] for view in views}) for place in range(len(tensor.shape))]
    sums = views[0].part[1]
    replicas, rest = divmod(len(views), sums * math.prod(splits))
    even = {view.elements for view in views} == {math.prod(tensor.shape) // math.prod(splits)}
    alike = {sum(other[1:] == view[1:] for other in views) for view in views} == {replicas}
    if rest or not even or not alike or len(boxes) != math.prod(splits) or {v.part[1] for v in views} != {sums}:
        raise ValueError(
            f"the pieces of {tensor.name} form no layout; expected equal ones, each as often as the others"
        )
    return (replicas, sums, *splits)


def meet(written: View, read: View) -> int:
    """Elements that two views share; parts of the same sum meet where one lies in the other."""
    if written.tensor != read.tensor:
        return 0
    (few_at, few), (many_at, many) = sorted((written.part, read.part), key=lambda part: part[1])
    if many % few == 0 and many_at // (many // few) != few_at:
        return 0
    ends = ((max(a, c), min(b, d)) for (a, b), (c, d) in zip(written.box, read.box, strict=True))
    return math.prod(max(0, last - first) for first, last in ends)


Names = list[list[tuple[str, str]]]
"""Names and marks of the dimensions of each view."""


def named(operator: Operator) -> tuple[Names, Names, Names]:
    """The dimensions of what an operator reads, writes and keeps."""
    work, _, kept = operator.dimensions.partition("|")
    reads, _, writes = work.partition("->")
    sides = []
    for side in (reads, writes, kept):
        words = [view.split() for view in side.split(",")] if side.strip() else []
        sides.append([[(word.rstrip("+^"), word[len(word.rstrip("+^")) :]) for word in names] for names in words])
    views = operator.reads, operator.writes, operator.keeps
    if [[len(names) for names in side] for side in sides] != [[len(view.box) for view in side] for side in views]:
        told = f"operator {operator.name} has dimensions {operator.dimensions!r}"
        raise ValueError(f"{told}; expected a word for each dimension of each view that it reads, writes and keeps")
    return sides[0], sides[1], sides[2]


def _piece(
    operator: Operator, view: View, names: list[tuple[str, str]], dimension: str, place: int, pieces: int
) -> View:
    box = list(view.box)
    for at, (name, _) in enumerate(names):
        if name == dimension:
            first, last = box[at]
            step, rest = divmod(last - first, pieces)
            if rest or not step:
                raise ValueError(
                    f"operator {operator.name} cannot be split by {dimension!r} into {pieces}; expected a divisor of "
                    f"{last - first}, the length of it in {view.tensor.name}"
                )
            box[at] = (first + place * step, first + (place + 1) * step)
    return view._replace(box=tuple(box))


def _inside(part: tuple[int, int], place: int, pieces: int) -> tuple[int, int]:
    return part[0] * pieces + place, part[1] * pieces
