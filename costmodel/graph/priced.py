"""Seconds of the operators of a dataflow on a cluster: the rooflines and laws of the formulas, one operator at a time.

So a plan of single operators is priced as any other: pieces have their own sizes, and lose what small kernels lose.
What overlaps is left to the order. Weights that are gathered and context rings are not operators here.
"""

import math
from collections.abc import Callable

from costmodel.exact import Exact
from costmodel.formulas import (
    AttentionCount,
    MatmulCount,
    MemoryCount,
    OpTimes,
    attention_s,
    collectives,
    counts,
    matmul_s,
    memory_s,
    single,
    timing,
)
from costmodel.graph.amounts import amounts, lengths
from costmodel.graph.views import Operator
from costmodel.inputs import Cluster, Kind, PlanPoint, Stack, Workload, whole

_SEM = Exact(math)


def prices(workload: Workload, cluster: Cluster, point: PlanPoint) -> Callable[[Operator], float]:
    """What an operator of the workload takes, or a piece of one. What is offloaded takes nothing here."""
    times = timing(counts(workload, point, _SEM), point, cluster, _SEM)

    def seconds(operator: Operator) -> float:
        op = operator.source
        if op is None or operator.phase == "T":
            return 0.0
        if op.kind in (Kind.MATMUL, Kind.PRODUCT):
            return float(_product_s(operator, times, point, cluster.stack))
        if op.kind == Kind.ATTENTION:
            forward_s, backward_s = _attention_s(operator, times, point, cluster.stack)
            return float(backward_s if operator.phase == "B" else forward_s)
        found = amounts(operator, point)
        if op.kind in (Kind.SYNC, Kind.EXCHANGE, Kind.GATHER):
            return float(_sent_s(op.kind, found["payload_bytes"], times))
        own_bytes = found["moved_bytes"]
        moved = MemoryCount(name=op.name, forward_bytes=own_bytes, backward_bytes=own_bytes, single=single(op, point))
        return float(memory_s(moved, point, times.rates, cluster.stack)[0])

    return seconds


def _product_s(operator: Operator, times: OpTimes, point: PlanPoint, stack: Stack) -> float:
    """The product itself forward and for the input gradient, the weight gradient in W or with an activation's B."""
    length = lengths(operator)
    m, k, n, groups = (length.get(name, 1) for name in "mkng")
    count = MatmulCount(
        name=operator.name,
        flop=2.0 * m * k * n * groups,
        operand_bytes=point.precision.activation_bytes * m * (k + n) * groups,
        weight_elements=k * n * groups,
        reciprocal_sizes=1.0 / m + 1.0 / k + 1.0 / n,
    )
    product_s, weights_s = matmul_s(count, point, times.rates, stack, _SEM)
    if operator.phase == "W":
        return weights_s
    apart = operator.phase != "B" or operator.source is None or operator.source.kind == Kind.MATMUL
    return product_s if apart else product_s + weights_s


def _attention_s(operator: Operator, times: OpTimes, point: PlanPoint, stack: Stack) -> tuple[float, float]:
    op, length, found = operator.source, lengths(operator), amounts(operator, point)
    assert op is not None
    inner, flop = whole(op.inner), found["flop"] / (2 if operator.phase == "B" else 1)
    count = AttentionCount(
        name=operator.name,
        flop=flop,
        operand_bytes=found["moved_bytes"],
        score_elements=flop / (4.0 * inner),
        reciprocal_keys=1.0 / length["j"],
        ring_bytes=0.0,
        exchange_bytes=0.0,
    )
    return attention_s(count, point, times.rates, stack, _SEM)


def _sent_s(kind: Kind, payload_bytes: float, times: OpTimes) -> float:
    experts = times.laws.experts
    if not payload_bytes or (kind != Kind.SYNC and experts is None):
        return 0.0
    laws = {Kind.SYNC: times.laws.sync}
    laws |= {} if experts is None else {Kind.EXCHANGE: experts.exchange, Kind.GATHER: experts.gather}
    return collectives.time_s(laws[kind], payload_bytes, _SEM)
