"""What people write made into what formulas read."""

import dataclasses

from costmodel.inputs import Cluster, Plan, PlanPoint, Stack, Workload, embed
from costmodel.models import in_pieces, run_by
from costmodel.pytree import as_floats, register_pytrees
from costmodel.specs import expecting


@expecting(True)
def prepare(
    workload: Workload, cluster: Cluster, plan: Plan, stack: Stack | None = None
) -> tuple[Workload, Cluster, PlanPoint]:
    """The three arguments of `cost.cost` as floats; the point carries the cluster's usable domain.

    Operators and option rows are those that the software of the stack has, layers in the pieces of the plan. Prices
    stay behind: `cost` does not read them, and leaves that are not there cost nothing.
    """
    register_pytrees()
    cluster = dataclasses.replace(cluster, stack=stack or cluster.stack, prices=None)
    habits = cluster.stack.habits
    point = embed(plan, workload, float(cluster.tiers[0].usable_size), habits)
    return as_floats(run_by(in_pieces(workload, plan.pieces), habits)), as_floats(cluster), point
