"""Which layers lie on which stage of a pipeline when they follow one another in the order of the model."""

from collections.abc import Sequence
from itertools import accumulate, pairwise

from costmodel.inputs import SCHEDULES, Plan


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


def kinds_by_chunk(plan: Plan, repeats: Sequence[float]) -> list[list[float]]:
    """Layers of each kind on each chunk: kinds follow one another, each so many times."""
    cuts = list(accumulate(repeats, initial=0.0))
    edges = accumulate(layers_by_chunk(plan, cuts[-1]), initial=0.0)
    return [[max(0.0, min(end, b) - max(start, a)) for a, b in pairwise(cuts)] for start, end in pairwise(edges)]


def kinds_by_stage(plan: Plan, repeats: Sequence[float]) -> list[list[float]]:
    """Layers of each kind on each stage, with all its chunks; where it holds two copies, in the mean of them."""
    held = [[0.0] * len(repeats) for _ in range(plan.pipeline)]
    for chunk, kinds in enumerate(kinds_by_chunk(plan, repeats)):
        stage = SCHEDULES[plan.schedule].device_of(chunk, plan.pipeline)
        held[stage] = [a + b for a, b in zip(held[stage], kinds, strict=True)]
    if SCHEDULES[plan.schedule].ways > 1:  # a copy of each of two chunks
        return [[0.5 * (a + b) for a, b in zip(*both, strict=True)] for both in zip(held, held[::-1], strict=True)]
    return held
