"""Memory of every pipeline stage of one plan, each with its own layers."""

import dataclasses
import math

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas import StageKind, StageMemory, counts, stage_memory
from costmodel.graph import kinds_by_stage, staged
from costmodel.inputs import SCHEDULES, Cluster, Plan, PlanPoint, Position, Workload, layers

_EXACT = Exact(math)


def memory_by_stage(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[StageMemory, ...]:
    """Every pipeline stage, where `Breakdown.memory` holds the first, the second and the last.

    Where the model has several kinds of layer, each stage has its own, in the order of the model: `Breakdown` spreads
    every kind evenly over the stages.
    """
    workload, cluster, point = prepare(workload, cluster, plan)
    if plan.pipeline > 1 and sum(block.position == Position.LAYER for block in workload.blocks) > 1:
        return _memory_in_order(workload, cluster, plan, point)
    counted, mean = counts(workload, point, _EXACT), layers(workload) / plan.pipeline
    held = plan.stage_layers or (mean,) * plan.pipeline
    kinds = (_kind(plan, i, held[i] - mean) for i in range(plan.pipeline))
    return tuple(stage_memory(counted, point, kind, cluster.stack, _EXACT) for kind in kinds)


def _kind(plan: Plan, stage: int, extra_layers: float = 0.0) -> StageKind:
    """What a stage holds beside layers: both ends of the model where it folds, or where two copies go both ways."""
    entry, end = SCHEDULES[plan.schedule], plan.pipeline - 1
    embeddings, heads = ({0, end}, {0, end}) if entry.ways > 1 else ({0}, {0 if entry.folds else end})
    remaining = float(plan.pipeline - stage)
    first, last = float(stage in embeddings), float(stage in heads)
    return StageKind(remaining=remaining, first=first, last=last, extra_layers=extra_layers)


def _memory_in_order(workload: Workload, cluster: Cluster, plan: Plan, point: PlanPoint) -> tuple[StageMemory, ...]:
    """Stages with the layers that they hold when these follow one another; kinds that a stage lacks do not count."""
    given, share = staged.model(workload, cluster, point, _EXACT), plan.recompute_share
    chosen = plan.recompute if plan.recompute in staged.MODES else "none"  # beside modules, everything is kept
    shares = [share * (mode == chosen) + (1 - share) * (mode == "none") for mode in staged.MODES]
    found = []
    for stage, numbers in enumerate(kinds_by_stage(plan, given.kinds)):
        lacks = {id(kind) for kind, n in zip(given.kinds, numbers, strict=True) if n <= _NO_LAYER}
        blocks = tuple(block for block in given.counted.blocks if id(block) not in lacks)
        own = given._replace(counted=dataclasses.replace(given.counted, blocks=blocks))
        held = [[n * part if part > 0 else None for part in shares] for n in numbers if n > _NO_LAYER]
        found.append(staged.memory_of_stages(own, held, _kind(plan, stage), _EXACT))
    return tuple(found)


_NO_LAYER = 1e-9  # what rounding leaves of a kind at the boundary of a stage
