"""The rooflines of all operators of a block, pass by pass: what breakdowns and busy units are read off."""

from costmodel.formulas.counted import BlockCounts, MatmulCount, MemoryCount, OpCounts
from costmodel.formulas.roofline import Rates, Roof, attention_roofs, matmul_roofs, memory_roofs
from costmodel.inputs import PlanPoint, Position, Stack
from costmodel.semantics import Scalar, total

Roofs = list[tuple[Scalar, Roof]]
"""Roofs of operators in a pass, and how often each stands in one layer and microbatch."""


def roofs(block: BlockCounts, point: PlanPoint, speed: Rates, stack: Stack) -> tuple[Roofs, Roofs, Roofs, Roofs]:
    """Those behind the seconds of a block: of its matmuls, its attention, what only moves data, and the recompute."""
    row, common = point.recompute, (point, speed, stack)
    matmuls, attentions, memories, again = [], [], [], []
    for count in block.matmuls:
        product, weights = matmul_roofs(count, *common)
        matmuls += [(block.forwards + 1.0, product), (count.trained, weights)]
        again.append((row.redo_rest + redone(count, point), product))
    for count in block.attentions:
        forward, backward = attention_roofs(count, *common)
        attentions += [(block.forwards, forward), (1.0, backward)]
        again.append((row.redo_core, forward))
    for count in block.memories:
        forward, backward = memory_roofs(count, *common)
        memories += [(block.forwards, forward), (1.0, backward)]
        again.append((row.redo_rest + redone(count, point), forward))
    return matmuls, attentions, memories, again


def redone(count: MatmulCount | MemoryCount, point: PlanPoint) -> Scalar:
    """Share of the layers in which the operator is computed again with its module."""
    row = point.modules
    return 0.0 if row is None or not count.module else getattr(row, count.module)


def operators_s(counted: OpCounts, speed: Rates, point: PlanPoint, stack: Stack) -> tuple[Scalar, Scalar]:
    """Seconds at the arithmetic units and of the HBM of one microbatch in all blocks; embedding and head are never
    recomputed (timing.py)."""

    def once(block: BlockCounts) -> Roofs:
        *passes, again = roofs(block, point, speed, stack)
        kinds = (*passes, again) if block.position == Position.LAYER else passes
        return [each for kind in kinds for each in kind]

    return _summed([(block.repeats, once(block)) for block in counted.blocks])


def again_s(counted: OpCounts, speed: Rates, point: PlanPoint, stack: Stack) -> tuple[Scalar, Scalar]:
    """The same of what is computed again alone."""
    layers = [block for block in counted.blocks if block.position == Position.LAYER]
    return _summed([(block.repeats, roofs(block, point, speed, stack)[-1]) for block in layers])


def _summed(by_block: list[tuple[Scalar, Roofs]]) -> tuple[Scalar, Scalar]:
    return (
        total(n * total(count * roof.compute_s for count, roof in own) for n, own in by_block),
        total(n * total(count * (roof.memory_s + roof.aside_s) for count, roof in own) for n, own in by_block),
    )
