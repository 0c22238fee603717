"""The rules of expert parallelism: degrees of the second mesh, expert_tensor x expert, folded into the first."""

from collections.abc import Iterator

from costmodel.inputs import Cluster, Kind, Op, Plan, Split, Workload, is_expert
from costmodel.specs.files import show


def expert_rules(plan: Plan, workload: Workload, _: Cluster) -> Iterator[str]:
    """Broken rules, in words."""
    mesh, ranks = plan.expert * plan.expert_tensor, plan.tensor * plan.context * plan.data
    experts = [op for block in workload.blocks for op in block.ops if is_expert(op)]
    if not experts:
        if mesh > 1:
            yield f"`expert` x `expert_tensor` is {show(mesh)}; expected 1, because {workload.name} has no experts"
        return
    if ranks % mesh:
        yield (
            f"`expert` x `expert_tensor` is {show(mesh)}; expected a divisor of `tensor` x `context` x `data` "
            f"({show(ranks)})"
        )
    if plan.tensor > 1 and not plan.sequence_parallel:
        yield f"`tensor` is {show(plan.tensor)} for a model with experts; expected `sequence_parallel` with it"
    yield from dict.fromkeys(rule for op in experts for rule in _sizes(plan, op))


def _sizes(plan: Plan, op: Op) -> Iterator[str]:
    """Whole experts on a rank, and whole columns of each. Tables are divided by their rows, evenly or not."""
    if op.kind == Kind.LOOKUP:
        return
    for size in (*op.groups, *op.columns, *op.inner):
        for name, degree in ((Split.EXPERT, plan.expert), (Split.EXPERT_TENSOR, plan.expert_tensor)):
            if name in size.split and size.value % degree:
                what = "experts" if name == Split.EXPERT else f"elements of `{op.name}`"
                yield f"`{name}` is {show(degree)}; expected a divisor of the {size.value} {what}"


def expert_groups(plan: Plan) -> tuple[tuple[str, int, int], ...]:
    """Name, size and stride of each group of the second mesh, from the inside out."""
    mesh, ranks = plan.expert * plan.expert_tensor, plan.tensor * plan.context * plan.data
    if mesh == 1:
        return ()
    holders = max(1, ranks // mesh)
    shard = min(holders, plan.data_shard or plan.data * plan.context) if plan.zero_stage else 1
    return (
        ("expert tensor", plan.expert_tensor, 1),
        ("expert", plan.expert, plan.expert_tensor),
        ("expert data shard", shard, mesh),
        ("expert replica", max(1, holders // shard), mesh * shard),
    )
