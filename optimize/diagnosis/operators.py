"""The operators of one plan on the roofline: work, bytes and seconds of each forward pass, for one microbatch."""

import dataclasses
import math

from costmodel import Exact
from costmodel.evaluators import prepare
from costmodel.formulas import BlockCounts, Rates, attention_s, counts, matmul_s, memory_s, rates
from costmodel.inputs import Cluster, Plan, PlanPoint, Stack, Workload

_EXACT = Exact(math)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoofedOperator:
    """One operator of one block on one accelerator, forward.

    The model counts no FLOP for operators that only move data; `flop` is one for each element moved there, which puts
    them where they belong on a roofline.
    """

    name: str
    kind: str  # matmul, attention or memory
    flop: float
    bytes_moved: float
    seconds: float


def operators(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[RoofedOperator, ...]:
    """All operators of all blocks that do something."""
    workload, cluster, point = prepare(workload, cluster, plan)
    speed, stack = rates(cluster.accelerator, point, cluster.stack), cluster.stack
    blocks = counts(workload, point, _EXACT).blocks
    each = (operator for block in blocks for operator in _of_block(block, point, speed, stack))
    return tuple(operator for operator in each if operator.bytes_moved > 0)


def _of_block(block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack) -> list[RoofedOperator]:
    row, operators = point.precision, []
    for count in block.matmuls:
        moved = count.operand_bytes + row.weight_bytes * count.weight_elements
        seconds = matmul_s(count, point, speed, stack, _EXACT)[0]
        operators.append(
            RoofedOperator(name=count.name, kind="matmul", flop=count.flop, bytes_moved=moved, seconds=seconds)
        )
    for count in block.attentions:
        touches = point.attention.score_touches_forward * count.score_elements * row.activation_bytes
        moved, seconds = count.operand_bytes + touches, attention_s(count, point, speed, stack, _EXACT)[0]
        operators.append(
            RoofedOperator(name=count.name, kind="attention", flop=count.flop, bytes_moved=moved, seconds=seconds)
        )
    for count in block.memories:
        moved, seconds = count.forward_bytes, memory_s(count, point, speed, stack)[0]
        flop = moved / row.activation_bytes
        operators.append(RoofedOperator(name=count.name, kind="memory", flop=flop, bytes_moved=moved, seconds=seconds))
    return operators
