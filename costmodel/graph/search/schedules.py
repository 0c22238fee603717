"""A pipeline whose order was found, as a `Schedule` that plans, bounds, searches and launch rules know by its name."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from costmodel.graph.search.bounds import peak
from costmodel.graph.search.placements import PlacedBlock, Placement
from costmodel.graph.search.repeating import Repeat
from costmodel.graph.search.search import search
from costmodel.inputs import Schedule, ScheduleRow, Turns

STAGES = (2, 3, 4)
"""Pipelines from which the coefficients of memory are read."""


def pipeline_placement(stages: int, *, splits: bool, seconds: Sequence[float] = (1.0, 1.0, 1.0)) -> Placement:
    """Forward down the stages and backward up again; weight gradients apart, or inside the backward passes."""
    forward_s, backward_s, weight_s = seconds
    backward_s = backward_s if splits else backward_s + weight_s
    blocks = [PlacedBlock(f"F{d}", (d,), forward_s, 1.0, (d - 1,) if d else ()) for d in range(stages)]
    for d in reversed(range(stages)):
        blocks.append(PlacedBlock(f"B{d}", (d,), backward_s, 0.0 if splits else -1.0, (len(blocks) - 1,)))
    for d in range(stages) if splits else ():
        blocks.append(PlacedBlock(f"W{d}", (d,), weight_s, -1.0, (2 * stages - 1 - d,)))
    return tuple(blocks)


def found_schedule(
    limit: Callable[[int], float],
    *,
    splits: bool = True,
    seconds: Sequence[float] = (1.0, 1.0, 1.0),
    deadline_s: float = 10.0,
) -> Schedule:
    """The repeating order of least period within `limit` live microbatches (of so many stages), as a schedule.

    `seconds` of F, B and W are those that the order is made for; it is searched once for each number of stages. What
    the order leaves of the memory shortens its ends (`with_all_memory`). Raises a `ValueError` where none is found or
    where what the stages hold has no coefficients. `register_schedule` checks it.
    """

    @functools.cache
    def order_of(stages: int) -> Repeat:
        placement = pipeline_placement(stages, splits=splits, seconds=seconds)
        found = search(placement, limit(stages), deadline_s=deadline_s)
        if found is None:
            raise ValueError(f"no order of {stages} stages holds at most {limit(stages):g} microbatches; expected more")
        return with_all_memory(found, limit(stages))

    def order(stages: int, microbatches: int, _: int, device: int) -> Iterator[Turns]:
        found = order_of(stages)
        own = [(i, block.name[0]) for i, block in enumerate(found.placement) if device in block.devices]
        turns = [(found.starts[i] + m * found.period, kind) for m in range(microbatches) for i, kind in own]
        yield from ((kind, device) for _, kind in sorted(turns))

    return Schedule(row=_row(order_of, splits), order=order, least_microbatches=lambda stages: 2 * stages)


def with_all_memory(found: Repeat, limit: float) -> Repeat:
    """The same steady state, whose forwards run whole periods earlier and weight gradients whole periods later.

    What moves by periods keeps its place among the others. Forwards of earlier microbatches fill the pipeline, the more
    of them the further a device stands from the last one; weight gradients fill it as it drains. ZB-H1 and ZB-H2 (Qi et
    al. 2023) are those of `stages` and `2 stages - 1` live microbatches.
    """
    stages, starts = len(found.peak), list(found.starts)
    spare = max(0, int(limit) - int(max(found.peak.values())))
    for d in range(stages):
        starts[d] -= found.period * round(spare * (stages - 1 - d) / max(1, stages - 1))
    weights = [i for i, block in enumerate(found.placement) if block.name[0] == "W"]
    held = peak(found.placement, starts, found.period)
    for i in weights:
        (device,) = found.placement[i].devices
        starts[i] += found.period * (int(limit) - int(held[device]))
    moved = tuple(start - min(starts) for start in starts)
    return found._replace(starts=moved, peak=peak(found.placement, moved, found.period))


def _row(order_of: Callable[[int], Repeat], splits: bool) -> ScheduleRow:
    """Coefficients of what every stage holds: by its distance from the end, by the stages, and beyond."""
    orders = {p: order_of(p) for p in STAGES}
    held = {(p, d): most for p, found in orders.items() for d, most in found.peak.items()}
    terms = np.array([(p - d, p, 1.0) for p, d in held])
    solved = np.linalg.lstsq(terms, np.array(list(held.values())), rcond=None)[0].round(9)
    if not np.allclose(terms @ solved, list(held.values()), atol=1e-6):
        told = "; ".join(f"{p} stages {[held[p, d] for d in range(p)]}" for p in STAGES)
        raise ValueError(f"what the stages hold is no linear count of stages: {told}; expected another limit")
    depth, stages, extra = (float(value) for value in solved)
    return ScheduleRow(
        splits=float(splits),
        steady_transfers=float(any(_waits(found) for found in orders.values())),
        depth_in_flight=depth,
        stages_in_flight=stages,
        extra_in_flight=extra,
    )


def _waits(found: Repeat) -> bool:
    """Whether a stage but the last has no forward to spare while a microbatch is on its way to the last and back."""
    stages = len(found.peak)
    starts = {block.name: start for block, start in zip(found.placement, found.starts, strict=True)}
    ahead = (math.ceil((starts[f"B{d}"] - starts[f"F{d}"]) / found.period) - (stages - d) for d in range(stages - 1))
    return min(ahead) < 1
