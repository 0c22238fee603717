"""What a rule is, and what the rules compare with: the demands of a workload and a cluster, read once."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from costmodel.inputs import Block, Cluster, Kind, Op, Position, Split, Workload, is_expert, layers

Columns = Any
"""The fields of one plan, or of many as arrays that broadcast, by name: `p.tensor`, `p.zero_stage`.

`domain` and `data_shard` are 0 where the plan leaves them open. `stage_layers` is three columns, 0 where it is not
given: how many stages it lists, of how many layers together, and the fewest of one stage. `accelerators` is the
product of the degrees. Names of options may be arrays too, but the schedule is one name.
"""

Mask = Any
"""One truth value for each plan."""


class Rule(NamedTuple):
    """What plans must keep: `keeps` is a mask over those columns that it `reads`, `says` what is wrong with one plan.

    A mask is written with arithmetic, comparisons, `&` and `|` alone, so that it holds for integers and for arrays.
    """

    reads: tuple[str, ...]
    keeps: Callable[[Columns], Mask]
    says: Callable[[Columns], str]


Demand = tuple[Any, str]
"""A size that a degree must divide, and what it counts."""


@dataclasses.dataclass(frozen=True)
class Demands:
    """What a workload and a cluster demand of a plan."""

    workload: Workload
    cluster: Cluster
    layers: int
    tensor_divides: tuple[Demand, ...]  # none is a multiple of another, which would be divided with it
    tensor_limits: tuple[Demand, ...]  # divisors or multiples of them
    heads: tuple[Any, ...]
    expert_divides: tuple[tuple[Split, Any, str], ...]  # the degree, the size and what it counts
    has_experts: bool


def demands(workload: Workload, cluster: Cluster) -> Demands:
    """The demands of a workload on a cluster, in the order of its operators."""
    ops = [op for block in workload.blocks for op in block.ops]
    experts = [op for op in ops if is_expert(op)]
    divided, limits = _tensor_sizes(workload.blocks)
    return Demands(
        workload=workload,
        cluster=cluster,
        layers=layers(workload),
        tensor_divides=divided,
        tensor_limits=limits,
        heads=_once(size.value for op in ops if op.kind == Kind.ATTENTION for size in op.groups),
        expert_divides=_once(demand for op in experts for demand in _expert_sizes(op)),
        has_experts=bool(experts),
    )


def _once(values: Iterable[Any]) -> tuple[Any, ...]:
    """Each value at its first place."""
    return tuple(dict.fromkeys(values))


def _tensor_sizes(blocks: Iterable[Block]) -> tuple[tuple[Demand, ...], tuple[Demand, ...]]:
    """Sizes of the layers that the tensor degree divides, and those beyond which it replicates."""
    divided: dict[Any, str] = {}
    limits: list[Demand] = []
    for op in (op for block in blocks if block.position == Position.LAYER for op in block.ops):
        heads = "heads" if op.kind == Kind.ATTENTION else f"groups of `{op.name}`"
        for size in (size for size in (*op.groups, *op.columns, *op.inner) if Split.TENSOR in size.split):
            if size.limit is not None:
                limits.append((size.limit, heads if size in op.groups else "key-value heads"))
            else:
                divided.setdefault(size.value, heads if size in op.groups else f"elements of `{op.name}`")
    least = (value for value in divided if not any(value > other and value % other == 0 for other in divided))
    return tuple((value, divided[value]) for value in least), _once(limits)


def _expert_sizes(op: Op) -> Iterator[tuple[Split, Any, str]]:
    """Whole experts on a rank, and whole columns of each. Tables are divided by their rows, evenly or not."""
    if op.kind == Kind.LOOKUP:
        return
    for size in (*op.groups, *op.columns, *op.inner):
        if Split.EXPERT in size.split:
            yield Split.EXPERT, size.value, "experts"
        if Split.EXPERT_TENSOR in size.split:
            yield Split.EXPERT_TENSOR, size.value, f"elements of `{op.name}`"


def domain_of(d: Demands, p: Columns) -> Any:
    """Accelerators used of each innermost domain: the tier's usable size where the plan leaves it open."""
    return p.domain + (p.domain == 0) * d.cluster.tiers[0].usable_size
