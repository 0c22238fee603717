"""Which layers lie on which stage of a pipeline when they follow one another in the order of the model."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

from costmodel.inputs import SCHEDULES, Plan, are_pieces


def chunk_count(plan: Plan) -> int:
    """Model chunks of the whole pipeline."""
    return plan.pipeline * SCHEDULES[plan.schedule].chunks(plan.virtual_stages)


def layers_by_chunk(plan: Plan, layers: float) -> tuple[float, ...]:
    """Layers of each model chunk in turn: of stages of unlike length, the earlier chunks have the odd layers."""
    chunks = chunk_count(plan)
    if plan.stage_layers is None:
        return (layers / chunks,) * chunks
    turns = chunks // plan.pipeline
    return tuple(held // turns + (turn < held % turns) for turn in range(turns) for held in plan.stage_layers)


class Kind(Protocol):
    """A kind of layer, or the pieces of the kind before it."""

    @property
    def name(self) -> str:
        """The block's."""
        ...

    @property
    def repeats(self) -> Any:
        """How many there are in the whole model."""
        ...


def kinds_by_chunk(plan: Plan, kinds: Sequence[Kind]) -> list[list[float]]:
    """Layers of each kind on each chunk: kinds follow one another; pieces lie where the layers lie that they are of."""
    cuts = list(accumulate((0.0 if are_pieces(kind.name) else kind.repeats for kind in kinds), initial=0.0))
    edges = accumulate(layers_by_chunk(plan, cuts[-1]), initial=0.0)
    chunks = [[max(0.0, min(end, b) - max(start, a)) for a, b in pairwise(cuts)] for start, end in pairwise(edges)]
    for i, kind in enumerate(kinds):
        if are_pieces(kind.name):
            share = kind.repeats / kinds[i - 1].repeats
            for held in chunks:
                held[i] = share * held[i - 1]
    return chunks


def kinds_by_stage(plan: Plan, kinds: Sequence[Kind]) -> list[list[float]]:
    """Layers of each kind on each stage, with all its chunks; where it holds two copies, in the mean of them."""
    held = [[0.0] * len(kinds) for _ in range(plan.pipeline)]
    for chunk, numbers in enumerate(kinds_by_chunk(plan, kinds)):
        stage = SCHEDULES[plan.schedule].device_of(chunk, plan.pipeline)
        held[stage] = [a + b for a, b in zip(held[stage], numbers, strict=True)]
    if SCHEDULES[plan.schedule].ways > 1:  # a copy of each of two chunks
        return [[0.5 * (a + b) for a, b in zip(*both, strict=True)] for both in zip(held, held[::-1], strict=True)]
    return held
