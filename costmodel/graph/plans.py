"""Named plans as short functions over `transform`, `place` and `order_by`: data parallelism to interlaced pipelines.

They take the dataflow of a transformer on one device (`dataflow.build`). Pieces carry their number behind a dot.
"""

from collections.abc import Callable, Sequence
from functools import partial

from costmodel.graph.dataflow import Dataflow
from costmodel.graph.play import order
from costmodel.graph.primitives import Where, order_by, place, recompute, transform
from costmodel.graph.views import Operator, named, replicate, split
from costmodel.inputs import Kind


def everything(_: Operator) -> bool:
    """Every operator."""
    return True


def microbatches(flow: Dataflow, number: int) -> Dataflow:
    """Operators cut along their rows, except those that have none."""
    return transform(flow, lambda each: "m" in _names(each), partial(split, dimension="m", pieces=number))


def data_parallel(flow: Dataflow, ranks: int) -> Dataflow:
    """Rows on so many devices; weights are replicated, so that their gradients are sums of parts."""
    cut = microbatches(flow, ranks)
    return place(cut, everything, piece)


def tensor_parallel(flow: Dataflow, ranks: int) -> Dataflow:
    """Heads and hidden columns on so many devices, the table by rows; the rest is done by all. Source: Megatron-LM."""
    return place(_cut(flow, ranks, everything, replicated=True), everything, piece)


def co_shard(flow: Dataflow, pieces: int, where: Where) -> Dataflow:
    """Pieces of one attention or feed-forward on its own device, one after another, each computed again by itself.

    `where` means the operators of one of them; those that have no columns of heads or features to cut stay as they are.
    Source: nnScaler (Lin et al. 2024).
    """
    mine = {(each.source, each.name.split("/")[0]) for each in flow.operators if where(each) and cut_of(each)}

    def chosen(each: Operator) -> bool:
        return (each.source, each.name.split("/")[0]) in mine

    found = _cut(flow, pieces, chosen, replicated=False)
    for number in range(pieces):
        found = recompute(found, lambda each, number=number: chosen(each) and piece(each) == number)
    return order_by(found, lambda each, _: piece(each) if chosen(each) and each.phase != "F" else None)


def pipelined(flow: Dataflow, schedule: str, stages: int, number: int, stage_of: Callable[[Operator], int]) -> Dataflow:
    """Stages on devices, microbatches in the order of a schedule of `inputs.SCHEDULES` that has one chunk a stage."""
    found = _staged(flow, stages, number, stage_of)
    turns = [{task: n for n, task in enumerate(row)} for row in order(schedule, stages, number)]

    def rank(each: Operator, device: int) -> int:
        kind = {"R": "B", "W": "W" if ("W", 0, device) in turns[device] else "B"}.get(each.phase, each.phase)
        return turns[device][kind, piece(each), device]  # pyright: ignore[reportArgumentType]

    return order_by(found, rank)


def interlaced(flow: Dataflow, stages: int, number: int, stage_of: Callable[[Operator], int]) -> Dataflow:
    """1F1B of the body; every device has a part of the table and of the head, and runs it as a row between the others.

    On 1F1B's grid stage s of S runs F of microbatch m in row s + 2m and B in row 2m + 2S - 1 - s; what all devices
    share comes just before the first F or behind the last one, and for gradients the other way round. Source: the
    schedule of nnScaler for mBART and T5, with one embedding.
    """
    found = _staged(flow, stages, number, stage_of)
    found = transform(found, shared, lambda each: split(each, str(cut_of(each)), stages))
    found = place(found, shared, piece)

    def rank(each: Operator, device: int) -> tuple[int, int]:
        microbatch, backward = _piece(each, 0), each.phase in ("B", "W", "R")
        at_head = "head" in each.name.split("/")[0]
        if not shared(each):
            return 2 * microbatch + (2 * stages - 1 - device if backward else device), 0
        first, last = 2 * microbatch, 2 * microbatch + stages - 1
        row = (last if at_head else first) if not backward else (2 * stages - 1 + first - (stages - 1) * at_head)
        return row, (1 if at_head else -1) * (-1 if backward else 1)

    return order_by(found, rank)


def _staged(flow: Dataflow, stages: int, number: int, stage_of: Callable[[Operator], int]) -> Dataflow:
    """Microbatches on stages."""
    for each in flow.operators:
        if stage_of(each) not in range(stages):
            raise ValueError(f"operator {each.name} is on stage {stage_of(each)!r}; expected one of {stages} from 0 on")
    return place(microbatches(flow, number), everything, stage_of)


def shared(each: Operator) -> bool:
    """What an interlaced pipeline divides over all devices: the lookup in the table, the logits and the loss."""
    assert each.source is not None
    return each.source.kind in (Kind.LOOKUP, Kind.LOSS) or "head" in each.name and each.source.kind == Kind.MATMUL


def cut_of(each: Operator) -> str | None:
    """The dimension by which tensor ranks cut an operator: rows of a table, columns of products that open a branch,
    heads, and what products that close it sum over."""
    if each.source is None:
        return None
    kind, names = each.source.kind, each.name
    if kind == Kind.MATMUL:
        return "k" if any(word in names for word in _CLOSING) else "n"
    found = {Kind.ATTENTION: "h", Kind.ACTIVATION: "n", Kind.LOSS: "n", Kind.LOOKUP: "k"}
    return found.get(kind)


_CLOSING = ("attention out", "ffn down")


def piece(each: Operator) -> int:
    """The number of the last cut; 0 for none."""
    return _piece(each, -1)


def _piece(each: Operator, which: int) -> int:
    numbers = [
        int(word) for word in each.name.replace(" again", "").replace(",", ".").split(".")[1:] if word.strip().isdigit()
    ]
    return numbers[which] if numbers else 0


def _cut(flow: Dataflow, pieces: int, where: Where, replicated: bool) -> Dataflow:
    def how(each: Operator) -> Sequence[Operator]:
        dimension = cut_of(each)
        if dimension in _names(each):
            return split(each, str(dimension), pieces)
        return replicate(each, pieces) if replicated else (each,)

    return transform(flow, where, how)


def _names(each: Operator) -> set[str]:
    return {name for side in named(each) for words in side for name, mark in words if mark != "^"}
