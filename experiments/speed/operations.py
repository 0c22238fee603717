"""The operations that a program needs: its jaxpr after folding, common sub-expressions and dead code are removed.

XLA's own operation count is no yardstick: it duplicates producers when it fuses. This count is of the mathematics as
written, so it bounds what any compiler that keeps the formulas could run.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from costmodel.evaluators import FREE, numbered

_PRIMITIVES = {
    "add_multiply": "add add_any sub mul neg square",
    "divide": "div",
    "max_min": "max min floor ceil abs sign select_n gt ge lt le eq ne and or not",
    "square_root": "sqrt rsqrt",
    "exp_log": "exp exp2 log log1p pow",
}
KINDS = {primitive: kind for kind, primitives in _PRIMITIVES.items() for primitive in primitives.split()}
"""Primitive to kind. One that is in none of these tables is an error, so that none is forgotten."""


def operations(function: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    """Operations of each kind for one element of the largest result, each on arrays of its own size.

    What depends on scalars alone is done once for a batch and does not count; in a broadcast grid an operation on a
    shorter axis counts by its share.
    """
    program, _, outputs = numbered(function, *arguments)
    largest = max(program.nodes[number].size for number in outputs)
    count: Counter[str] = Counter()
    for node in (program.nodes[number] for number in program.alive(outputs)):
        if node.primitive not in {*KINDS, *FREE, "leaf"}:
            raise ValueError(f"operation `{node.primitive}` has no kind in experiments/speed/operations.py")
        if node.primitive in KINDS and node.size > 1:
            count[KINDS[node.primitive]] += node.size  # in whole elements: sums of shares would round
    return {kind: count[kind] / largest for kind in _PRIMITIVES}
