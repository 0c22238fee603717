"""Interlaced pipelines: table and head divided over all devices of a pipeline, which run them as rows between 1F1B's.

After nnScaler's plan for T5: the stages hold layers alone, each of all devices its part of the embedding and of the
head, in both passes of every microbatch. The body has the plan's tensor ranks, what is shared all ranks of a pipeline.
"""

import dataclasses
import functools
from typing import Any

import numpy as np

from costmodel import Exact, Plan
from costmodel.evaluators import prepare
from costmodel.formulas import StageKind, peak
from costmodel.graph import Costs, Graph, chain, in_order, kinds_by_stage, makespan_s, staged, with_shared_blocks
from costmodel.inputs import Cluster, Position, Workload

_SEM = Exact(np)
Pair = tuple[Any, Any]


def interlaced(job: Workload, cluster: Cluster, plan: Plan) -> Pair:
    """Seconds of a step and bytes of the fullest device, of a 1F1B plan with everything but its layers shared.

    Rates of the cluster may be arrays: one value for each.
    """
    numbers, machine, point = prepare(job, cluster, plan)
    wide = dataclasses.replace(point, tensor=point.tensor * point.pipeline, pipeline=1.0)
    body, edges = (staged.model(numbers, machine, each, _SEM) for each in (point, wide))
    mode = staged.MODES.index(plan.recompute)
    layers = [block for block in numbers.blocks if block.position == Position.LAYER]
    stages = []
    for at, kinds in enumerate(kinds_by_stage(plan, layers)):
        held = [[n if each == mode else 0.0 for each in range(len(staged.MODES))] for n in kinds]
        stages.append((held, StageKind(remaining=float(plan.pipeline - at), first=0.0, last=0.0)))
    seconds = [staged.seconds(body, held, at, _SEM) for held, at in stages]
    memory = _largest([peak(staged.memory_of_stages(body, held, at, _SEM), _SEM) for held, at in stages])
    more_s, more_bytes = _shared_once(edges, stages[0][0])
    (first, first_back), (last, last_back) = _rows_s(edges)
    forward, backward = ([getattr(each, name) for each in seconds] for name in ("forward_s", "backward_s"))
    blocks = [first, *forward, last, last_back, *reversed(backward), first_back, 0.0]
    count = int(numbers.batch / (plan.data * plan.microbatch))
    passes_s = _passes_s(blocks, staged.between(body, _SEM).ends_s, plan.pipeline, count)
    ending_s = _largest([staged.ending_s(each, body, _SEM) for each in seconds])
    return passes_s + ending_s + more_s + staged.host_s(body, _SEM), memory + more_bytes


def _largest(values: list[Any]) -> Any:
    return functools.reduce(np.maximum, values)


def _rows_s(edges: staged.StagedModel) -> tuple[Pair, Pair]:
    """Forward and backward seconds of one microbatch of what stands before the layers, and behind them."""
    found = []
    for position in (Position.FIRST, Position.LAST):
        blocks = [block for block in edges.times[0].blocks if block.position == position]
        forward_s = sum(b.repeats * b.forward_s for b in blocks)
        found.append((forward_s, sum(b.repeats * (b.backward_s + b.weights.seconds) for b in blocks)))
    return found[0], found[1]


def _shared_once(edges: staged.StagedModel, held: staged.Held) -> Pair:
    """Seconds once a step and bytes that a device has of what is shared: with it less without it."""
    found = []
    for there in (1.0, 0.0):
        at = StageKind(remaining=1.0, first=there, last=there)
        seconds = staged.seconds(edges, held, at, _SEM)
        memory = peak(staged.memory_of_stages(edges, held, at, _SEM), _SEM)
        found.append((staged.ending_s(seconds, edges, _SEM), memory))
    return np.maximum(0.0, found[0][0] - found[1][0]), found[0][1] - found[1][1]


@functools.cache
def _rows(stages: int, microbatches: int) -> Graph:
    """The order, which does not depend on durations. Classes are blocks; the last one is the meeting of all devices."""
    everyone = range(stages)
    placement = chain(
        [("E", everyone, 1.0, 0.0)]
        + [(f"F{s}", [s], 1.0, 1.0) for s in everyone]
        + [("H", everyone, 1.0, 0.0), ("H'", everyone, 1.0, 0.0)]
        + [(f"B{s}", [s], 1.0, -1.0) for s in reversed(everyone)]
        + [("E'", everyone, 1.0, 0.0)]
    )
    return in_order(placement, with_shared_blocks(placement, microbatches), transfer_s=1.0).graph


def _passes_s(blocks: list[Any], hop_s: Any, stages: int, count: int) -> Any:
    """The rows in their order, played out; what many microbatches take follows from the period of fewer."""
    seconds = np.stack(np.broadcast_arrays(*blocks))
    costs = Costs(seconds=seconds, lags_s=np.broadcast_to(hop_s, seconds[:1].shape))
    few, many = 2 * stages, 3 * stages
    if count <= many:
        return makespan_s(_rows(stages, count), costs, _SEM)
    short_s, long_s = (makespan_s(_rows(stages, n), costs, _SEM) for n in (few, many))
    return long_s + (count - many) * (long_s - short_s) / (many - few)
