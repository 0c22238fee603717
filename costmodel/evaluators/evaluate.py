"""The host's entry: what one plan costs, with everything that explains it."""

import dataclasses
import math

from costmodel.exact import Exact
from costmodel.formulas import (
    Breakdown,
    StageKind,
    StageMemory,
    breakdown,
    counts,
    economics_range,
    parts,
    stage_memory,
)
from costmodel.graph import kinds_by_stage, staged
from costmodel.inputs import SCHEDULES, Cluster, Plan, PlanPoint, Position, Stack, Workload, embed, layers
from costmodel.models import run_by
from costmodel.pytree import as_floats, register_pytrees
from costmodel.specs import check_plan

_EXACT = Exact(math)


def evaluate(
    workload: Workload, cluster: Cluster, plan: Plan, stack: Stack | None = None, *, checked: bool = True
) -> Breakdown:
    """One step of `workload` on `cluster` under `plan`, exactly, in float64.

    `stack` replaces the cluster's own. Raises a `ValueError` that names every rule which the plan breaks (unless it is
    not to be `checked`: runs were measured whose layouts no rule foresees); a plan that does not fit in memory is an
    answer, not an error (`Breakdown.fits`).
    """
    if checked:
        check_plan(plan, workload, cluster)
    prices = as_floats(cluster.prices)
    workload, cluster, point = prepare(workload, cluster, plan, stack)
    found = breakdown(workload, cluster, point, parts(workload, cluster, point, _EXACT), _EXACT)
    if prices is None:
        return found
    asked = (point.accelerators, point.domain, found.step_s, found.tokens)
    return dataclasses.replace(found, economics=economics_range(cluster, prices, *asked))


def prepare(
    workload: Workload, cluster: Cluster, plan: Plan, stack: Stack | None = None
) -> tuple[Workload, Cluster, PlanPoint]:
    """The three arguments of `cost.cost` as floats; the point carries the cluster's usable domain.

    Operators and option rows are those that the software of the stack has. Prices stay behind: `cost` does not read
    them, and leaves that are not there cost nothing.
    """
    register_pytrees()
    cluster = dataclasses.replace(cluster, stack=stack or cluster.stack, prices=None)
    habits = cluster.stack.habits
    point = embed(plan, workload, float(cluster.tiers[0].usable_size), habits)
    return as_floats(run_by(workload, habits)), as_floats(cluster), point


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
    head = 0 if SCHEDULES[plan.schedule].folds else plan.pipeline - 1
    kinds = (
        StageKind(
            remaining=float(plan.pipeline - i), first=float(i == 0), last=float(i == head), extra_layers=held[i] - mean
        )
        for i in range(plan.pipeline)
    )
    return tuple(stage_memory(counted, point, kind, cluster.stack, _EXACT) for kind in kinds)


def _memory_in_order(workload: Workload, cluster: Cluster, plan: Plan, point: PlanPoint) -> tuple[StageMemory, ...]:
    """Stages with the layers that they hold when these follow one another; kinds that a stage lacks do not count."""
    given, share = staged.model(workload, cluster, point, _EXACT), plan.recompute_share
    shares = [share * (mode == plan.recompute) + (1 - share) * (mode == "none") for mode in staged.MODES]
    found = []
    for stage, numbers in enumerate(kinds_by_stage(plan, [kind.repeats for kind in given.kinds])):
        lacks = {id(kind) for kind, n in zip(given.kinds, numbers, strict=True) if n <= _NO_LAYER}
        blocks = tuple(block for block in given.counted.blocks if id(block) not in lacks)
        own = given._replace(counted=dataclasses.replace(given.counted, blocks=blocks))
        held = [[n * part if part > 0 else None for part in shares] for n in numbers if n > _NO_LAYER]
        found.append(staged.memory_of_stages(own, held, staged.where(plan.pipeline, stage), _EXACT))
    return tuple(found)


_NO_LAYER = 1e-9  # what rounding leaves of a kind at the boundary of a stage
