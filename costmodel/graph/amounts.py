"""What an operator of a dataflow does, by the lengths of its views: FLOP, bytes, parameters, payload, what is kept."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from costmodel.formulas import payload_copies, touches
from costmodel.graph.dataflow import KEYS_AND_VALUES
from costmodel.graph.views import Operator, named
from costmodel.inputs import Kind, PlanPoint
from costmodel.semantics import Scalar

AMOUNTS = ("flop", "moved_bytes", "parameters", "payload_bytes", "kept_bytes")
"""Matrix and attention arithmetic; bytes through memory; elements of weights; what a collective carries; what waits."""

_SENT = (Kind.SYNC, Kind.EXCHANGE, Kind.GATHER)


def lengths(operator: Operator) -> Mapping[str, Scalar]:
    """The length of each dimension, as what is written has it, or as the gradient has it that a backward pass reads."""
    reads, writes, _ = named(operator)
    sides = [*zip(reads, operator.reads, strict=True), *zip(writes, operator.writes, strict=True)]
    if operator.phase in ("B", "W"):
        sides = sides[1:] + sides[:1]
    return {name: b - a for words, view in sides for (name, _), (a, b) in zip(words, view.box, strict=True)}


def amounts(operator: Operator, point: PlanPoint) -> dict[str, Scalar]:
    """All of `AMOUNTS` for one operator of a workload; parameters with the forward pass that reads them."""
    op, phase = operator.source, operator.phase
    found: dict[str, Any] = dict.fromkeys(AMOUNTS, 0.0)
    if op is None or phase == "T":
        return found
    length, size_bytes = lengths(operator), point.precision.activation_bytes
    rows = length.get("m", 1) * length.get("g", 1)
    if op.kind in (Kind.MATMUL, Kind.PRODUCT):
        products = 2 if op.kind == Kind.PRODUCT and phase == "B" else 1
        found["flop"] = products * 2.0 * rows * length["k"] * length["n"]
        found["moved_bytes"] = products * size_bytes * rows * (length["k"] + length["n"])
    elif op.kind == Kind.ATTENTION:
        density = point.attention.flash * op.density + (1 - point.attention.flash)
        found["flop"] = 4.0 * density * rows * length["j"] * length["h"] * (2 if phase == "B" else 1)
        beside = next(view.elements for view in operator.reads if view.tensor.name.endswith(KEYS_AND_VALUES))
        found["moved_bytes"] = size_bytes * rows * (2.0 * length["h"] + beside)
    elif op.kind in _SENT:
        if op.backward if phase == "B" else op.forward:
            found["payload_bytes"] = payload_copies(op, point) * size_bytes * rows * length["n"]
    else:
        forward, backward = touches(op, point)
        found["moved_bytes"] = (backward if phase == "B" else forward) * size_bytes * rows * length["n"]
    if phase == "F":
        found["parameters"] = sum(view.elements for view in operator.reads if view.tensor.parameter)
    found["kept_bytes"] = math.fsum(view.size_bytes for view in operator.keeps)
    return found


def total_amounts(operators: Iterable[Operator], point: PlanPoint) -> dict[str, Scalar]:
    """Sums over operators. Of parts that several share, each counts once."""
    sums: dict[str, Any] = dict.fromkeys(AMOUNTS, 0.0)
    kept, weights = {}, {}
    for operator in operators:
        for name, value in amounts(operator, point).items():
            sums[name] += value
        kept |= {(view.tensor.name, view.box): view.size_bytes for view in operator.keeps}
        weights |= {(view.tensor.name, view.box): view.elements for view in operator.reads if view.tensor.parameter}
    return sums | {"kept_bytes": math.fsum(kept.values()), "parameters": sum(weights.values())}
