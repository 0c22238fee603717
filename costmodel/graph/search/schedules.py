"""A pipeline whose order was found, as a `Schedule` that plans, bounds, searches and launch rules know by its name."""

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from costmodel.graph.search.placements import Block, Placement
from costmodel.graph.search.repeating import Repeat
from costmodel.graph.search.search import search
from costmodel.inputs import Schedule, ScheduleRow, Turns

STAGES = (2, 3, 4)
"""Pipelines from which the coefficients of memory are read."""


def pipeline_placement(stages: int, *, splits: bool, seconds: Sequence[float] = (1.0, 1.0, 1.0)) -> Placement:
    """Forward down the stages and backward up again; weight gradients apart, or inside the backward passes."""
    forward_s, backward_s, weight_s = seconds
    backward_s = backward_s if splits else backward_s + weight_s
    blocks = [Block(f"F{d}", (d,), forward_s, 1.0, (d - 1,) if d else ()) for d in range(stages)]
    for d in reversed(range(stages)):
        blocks.append(Block(f"B{d}", (d,), backward_s, 0.0 if splits else -1.0, (len(blocks) - 1,)))
    for d in range(stages) if splits else ():
        blocks.append(Block(f"W{d}", (d,), weight_s, -1.0, (2 * stages - 1 - d,)))
    return tuple(blocks)


def found_schedule(
    limit: Callable[[int], float],
    *,
    splits: bool = True,
    seconds: Sequence[float] = (1.0, 1.0, 1.0),
    deadline_s: float = 10.0,
) -> Schedule:
    """The repeating order of least period within `limit` live microbatches (of so many stages), as a schedule.

    `seconds` of F, B and W are those that the order is made for; it is searched once for each number of stages. Raises
    a `ValueError` where none is found or where what the stages hold has no coefficients. `register_schedule` checks it.
    """

    @functools.cache
    def order_of(stages: int) -> Repeat:
        placement = pipeline_placement(stages, splits=splits, seconds=seconds)
        found = search(placement, limit(stages), deadline_s=deadline_s)
        if found is None:
            raise ValueError(f"no order of {stages} stages holds at most {limit(stages):g} microbatches; expected more")
        return found.order

    def order(stages: int, microbatches: int, _: int, device: int) -> Iterator[Turns]:
        found = order_of(stages)
        own = [(i, block.name[0]) for i, block in enumerate(found.placement) if device in block.devices]
        turns = [(found.starts[i] + m * found.period, kind) for m in range(microbatches) for i, kind in own]
        yield from ((kind, device) for _, kind in sorted(turns))

    return Schedule(row=_row(order_of, splits), order=order, least_microbatches=lambda stages: 2 * stages)


def _row(order_of: Callable[[int], Repeat], splits: bool) -> ScheduleRow:
    """Coefficients of what every stage holds: by its distance from the end, by the stages, and beyond."""
    held = {(p, d): peak for p in STAGES for d, peak in order_of(p).peak.items()}
    terms = np.array([(p - d, p, 1.0) for p, d in held])
    solved = np.linalg.lstsq(terms, np.array(list(held.values())), rcond=None)[0].round(9)
    if not np.allclose(terms @ solved, list(held.values()), atol=1e-6):
        told = "; ".join(f"{p} stages {[held[p, d] for d in range(p)]}" for p in STAGES)
        raise ValueError(f"what the stages hold is no linear count of stages: {told}; expected another limit")
    depth, stages, extra = (float(value) for value in solved)
    return ScheduleRow(
        splits=float(splits),
        steady_transfers=1.0,
        depth_in_flight=depth,
        stages_in_flight=stages,
        extra_in_flight=extra,
    )
