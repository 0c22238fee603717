"""Transform, place and order: three independent decisions about a dataflow, in any turn.

Pieces of an operator stay on its device and in its order until they are placed or ordered anew; several may share a
device. What waits for what follows from the views alone, and is derived when the plan is played (`played`).
Source: nnScaler's op-trans, op-assign and op-order (Lin et al. 2024).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from costmodel.exact import Exact
from costmodel.graph.arranged import arrange
from costmodel.graph.dataflow import Dataflow
from costmodel.graph.run import Costs, PlayedGraph, run
from costmodel.graph.views import Operator, View, meet
from costmodel.inputs import Role

Where = Callable[[Operator], bool]
"""Which operators are meant."""


def transform(flow: Dataflow, where: Where, how: Callable[[Operator], Sequence[Operator]]) -> Dataflow:
    """Operators become pieces: `how` is `views.split` along a dimension, `views.replicate`, or one's own."""
    pieces = {i: how(operator) for i, operator in enumerate(flow.operators) if where(operator)}
    return _relisted(flow, pieces, {})


def place(flow: Dataflow, where: Where, device: int | Callable[[Operator], int]) -> Dataflow:
    """Operators go to a device: the same for all, or one for each."""
    chosen = device if callable(device) else (lambda _: device)
    pairs = zip(flow.operators, flow.devices, strict=True)
    devices = tuple(chosen(each) if where(each) else old for each, old in pairs)
    for operator, at in zip(flow.operators, devices, strict=True):
        if not isinstance(at, int | np.integer) or at < 0:
            raise ValueError(f"operator {operator.name} is placed on device {at!r}; expected an integer >= 0")
    return flow._replace(devices=devices)


def order_by(flow: Dataflow, rank: Callable[[Operator, int], Any]) -> Dataflow:
    """Operators of a device run in the order of their rank, which may depend on the device; None: where they can.

    Those of one rank run in the order in which they are listed.
    """
    found: dict[int, list[tuple[Any, int]]] = {}
    for i, (operator, device) in enumerate(zip(flow.operators, flow.devices, strict=True)):
        at = rank(operator, device)
        if at is not None:
            found.setdefault(device, []).append((at, i))
    for device, row in found.items():
        kinds = {type(at): i for at, i in row}
        if len(kinds) > 1 and not all(issubclass(kind, int | float) for kind in kinds):
            first, second = [flow.operators[i].name for i in kinds.values()][:2]
            raise ValueError(f"ranks of {first} and {second} on device {device} are of different types; expected one")
    rows = ([i for _, i in sorted(row)] for row in found.values())
    pairs = tuple(pair for row in rows for pair in zip(row, row[1:], strict=False))
    return flow._replace(after=(*flow.after, *pairs))


def before(flow: Dataflow, first: str, second: str) -> Dataflow:
    """One operator runs before another one, by their names."""
    names = [operator.name for operator in flow.operators]
    for name in (first, second):
        if name not in names:
            raise ValueError(f"there is no operator {name!r} to be ordered")
    return flow._replace(after=(*flow.after, (names.index(first), names.index(second))))


def recompute(flow: Dataflow, where: Where, dropped: Sequence[Role] = (Role.CORE, Role.REST)) -> Dataflow:
    """Forward operators run again before the first gradient that needs them, and no longer keep what they dropped.

    They are done again as one piece: of what they read from one another the second copy is read. What others keep as
    well (the input of several pieces) stays.
    """
    chosen = {i: each for i, each in enumerate(flow.operators) if each.phase == "F" and where(each)}
    others = {view for i, each in enumerate(flow.operators) if i not in chosen for view in each.keeps}
    lost = {
        i: tuple(view for view in each.keeps if _role(each, view) in dropped and view not in others)
        for i, each in chosen.items()
    }
    gone = [view for views in lost.values() for view in views]
    inside = gone + [view for each in chosen.values() for view in each.writes]
    first, changed, copies = None, {}, []
    for i, each in enumerate(flow.operators):
        if i in chosen:
            changed[i] = [_keeping(each, [view for view in each.keeps if view not in lost[i]])]
            copy = _keeping(each, lost[i])._replace(name=f"{each.name} again", phase="R")
            reads, writes, keeps = (_again(views, inside) for views in (copy.reads, copy.writes, copy.keeps))
            copies.append((copy._replace(reads=reads, writes=writes, keeps=keeps), flow.devices[i]))
        elif each.phase in ("B", "W") and where(each) and _again(each.reads, gone) != each.reads:
            first = i if first is None else first
            changed[i] = [each._replace(reads=_again(each.reads, gone))]
    return _relisted(flow, changed, {} if first is None else {first: copies})


def _again(views: Sequence[View], others: Sequence[View]) -> tuple[View, ...]:
    """Views, of the second copy where others have a part of them."""
    return tuple(_renamed(view, "again") if any(meet(other, view) for other in others) else view for view in views)


def offload(flow: Dataflow, where: Where) -> Dataflow:
    """What forward operators keep leaves after them and comes back before the first gradient that reads it.

    Both ways are operators of phase T, on the operator's device until they are placed elsewhere.
    """
    changed: dict[int, list[Operator]] = {}
    ahead: dict[int, list[tuple[Operator, int]]] = {}
    away = {}
    for i, each in enumerate(flow.operators):
        if each.phase == "F" and where(each) and each.keeps:
            words = each.dimensions.partition("|")[2].strip()
            there = tuple(_renamed(view, "away") for view in each.keeps)
            changed[i] = [each, Operator(f"{each.name} out", f"{words} -> {words}", each.keeps, there, phase="T")]
            back = tuple(_renamed(view, "back") for view in each.keeps)
            come = Operator(f"{each.name} back", f"{words} -> | {words}", there, (), back, phase="T")
            away |= {view.tensor.name: (come, flow.devices[i]) for view in each.keeps}
    for i, each in enumerate(flow.operators):
        named_here = [view.tensor.name for view in each.reads if view.tensor.name in away]
        if i in changed or not named_here:
            continue
        came = dict.fromkeys(away[name] for name in named_here)
        ahead[i] = [pair for pair in came if not any(pair in pairs for pairs in ahead.values())]
        reads = tuple(_renamed(view, "back") if view.tensor.name in away else view for view in each.reads)
        changed[i] = [each._replace(reads=reads)]
    return _relisted(flow, changed, ahead, alone=True)


def played(flow: Dataflow, seconds: Callable[[Operator], float], message_s: Callable[[float], float]) -> PlayedGraph:
    """Play a plan: seconds of operators, and of a message of so many bytes between two devices.

    Raises a `ValueError` that names the operators where they wait for one another, or are ordered on two devices.
    """
    graph, sequence, messages = arrange(flow.operators, flow.devices, flow.after)
    taken, freed = held(flow, sequence)
    sent_bytes = [_sent_bytes(flow.operators[i], flow.operators[j]) for i, j, _ in messages]
    costs = Costs(
        seconds=np.array([_checked_s(f"operator {each.name}", seconds(each)) for each in flow.operators]),
        lags_s=np.array([_checked_s(f"a message of {each:g} bytes", message_s(each)) for each in sent_bytes] or [0.0]),
        taken_bytes=taken,
        freed_bytes=freed,
    )
    return run(graph, costs, Exact(np))


def _sent_bytes(producer: Operator, consumer: Operator) -> float:
    """Bytes that one operator writes or keeps and the other reads."""
    made = (*producer.writes, *producer.keeps)
    return math.fsum(meet(one, other) * one.tensor.element_bytes for one in made for other in consumer.reads)


def _checked_s(what: str, taken_s: Any) -> float:
    seconds = float(taken_s) if isinstance(taken_s, Real) else math.nan
    if not 0 <= seconds < math.inf:
        raise ValueError(f"{what} takes {taken_s!r} s; expected a finite number >= 0")
    return seconds


def held(flow: Dataflow, sequence: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Bytes that each operator starts to hold, and that are let go at its end: after the last one that reads them.

    A part that several pieces keep is held once.
    """
    taken, freed = np.zeros((2, len(flow.operators)))
    turn = {operator: number for number, operator in enumerate(sequence)}
    readers: dict[str, list[tuple[int, View]]] = {}
    for i, operator in enumerate(flow.operators):
        for view in operator.reads:
            readers.setdefault(view.tensor.name, []).append((i, view))
    seen = set()
    for i in sequence:
        for view in flow.operators[i].keeps:
            if (view, flow.devices[i]) in seen:
                continue
            seen.add((view, flow.devices[i]))
            near = [j for j, other in readers.get(view.tensor.name, ()) if meet(view, other)]
            near = [j for j in near if flow.devices[j] == flow.devices[i]]
            taken[i] += view.size_bytes
            freed[max([i, *near], key=turn.__getitem__)] += view.size_bytes
    return taken, freed


def _relisted(
    flow: Dataflow,
    pieces: Mapping[int, Sequence[Operator]],
    ahead: Mapping[int, Sequence[tuple[Operator, int]]],
    alone: bool = False,
) -> Dataflow:
    """The list with pieces in the place of operators, and others put ahead of some. Orders are those of all pieces, or
    of the first one `alone`."""
    operators, devices, place_of = [], [], {}
    for i, operator in enumerate(flow.operators):
        for other, device in ahead.get(i, ()):
            operators.append(other)
            devices.append(device)
        own = pieces.get(i, (operator,))
        place_of[i] = range(len(operators), len(operators) + (1 if alone else len(own)))
        operators += own
        devices += [flow.devices[i]] * len(own)
    after = tuple((a, b) for i, j in flow.after for a in place_of[i] for b in place_of[j])
    return Dataflow(tuple(operators), tuple(devices), after)


def _renamed(view: View, word: str) -> View:
    return view._replace(tensor=view.tensor._replace(name=f"{view.tensor.name} {word}"))


def _keeping(operator: Operator, left: Sequence[View]) -> Operator:
    """The operator with some of what it keeps."""
    words = operator.dimensions.partition("|")
    pairs = zip((each.strip() for each in words[2].split(",")), operator.keeps, strict=True) if operator.keeps else ()
    kept = ", ".join(names for names, view in pairs if view in left)
    dimensions = words[0].strip() + (f" | {kept}" if kept else "")
    return operator._replace(dimensions=dimensions, keeps=tuple(left))


def _role(operator: Operator, view: View) -> Role:
    """Which recompute option drops something kept: the last word of its name counts what the workload lists."""
    assert operator.source is not None
    return operator.source.saved[int(view.tensor.name.rsplit(" ", 1)[1])].role
