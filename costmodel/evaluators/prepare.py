"""What people write made into what formulas read."""

import dataclasses

from costmodel.inputs import Cluster, Habits, Plan, PlanPoint, Stack, Workload, embed
from costmodel.models import in_pieces, run_by
from costmodel.pytree import as_floats, by_identity, register_pytrees
from costmodel.specs import SpecError, expecting, unsound_fields

_LAST = 16  # workloads and clusters: many plans are asked for of the same ones


@expecting(True)
def prepare(
    workload: Workload, cluster: Cluster, plan: Plan, stack: Stack | None = None
) -> tuple[Workload, Cluster, PlanPoint]:
    """The three arguments of `cost.cost` as floats; the point carries the cluster's usable domain.

    Operators and option rows are those that the software of the stack has, layers in the pieces of the plan. Prices
    stay behind: `cost` does not read them, and leaves that are not there cost nothing. Rules that tie the plan to the
    model and the cluster are not asked (`violations`): its degrees may be moved from here.
    """
    register_pytrees()
    machine = _machine(cluster, stack or cluster.stack)
    habits = machine.stack.habits
    try:
        point = embed(plan, workload, float(cluster.tiers[0].usable_size), habits)
    except (KeyError, ZeroDivisionError):
        if wrong := unsound_fields(plan):
            raise SpecError("plan: " + "; ".join(wrong.values())) from None
        raise
    return _numbers(workload, plan.pieces, habits), machine, point


@by_identity(_LAST)
def _numbers(workload: Workload, pieces: int, habits: Habits) -> Workload:
    return as_floats(run_by(in_pieces(workload, pieces), habits))


@by_identity(_LAST)
def _machine(cluster: Cluster, stack: Stack) -> Cluster:
    return as_floats(dataclasses.replace(cluster, stack=stack, prices=None))
