"""What one rank or one stage holds of what `counts` counted: shares under ZeRO, sums over the heaviest stage."""

from collections.abc import Callable

from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.modules import by_module
from costmodel.inputs import PlanPoint, Position, ZeroRow
from costmodel.semantics import Scalar, Semantics, total

Held = tuple[tuple[Scalar, Scalar], ...]
"""Elements of weights on one rank before ZeRO, and the ranks that share them, for each of the two meshes."""


def kept_bytes(block: BlockCounts, point: PlanPoint) -> Scalar:
    """Activations that one block keeps per microbatch under the plan's recompute row."""
    row, saved = point.recompute, block.saved
    kept = saved.input + row.keep_core * saved.core + row.keep_rest * saved.rest
    return kept + by_module(lambda dropped, size_bytes: (1 - dropped) * size_bytes, point.modules, saved.modules)


def share(divided: Scalar, ranks: Scalar) -> Scalar:
    """What one rank holds of something that is divided over `ranks` (1) or replicated (0)."""
    return (1 - divided) + divided / ranks


def divided(held: Held, by_zero: Scalar) -> Scalar:
    """Elements left on a rank where ZeRO divides them (1) or not (0)."""
    return total(elements * share(by_zero, ranks) for elements, ranks in held)


def on_rank(
    dense: Scalar,
    experts: Scalar,
    divided: Scalar,
    counted: OpCounts,
    point: PlanPoint,
    sem: Semantics,
    copies: Scalar = 1.0,
) -> Scalar:
    """What one rank holds of the elements of both meshes, which its group shares (1) or not (0). Groups are `copies`
    times as large where as many copies of a layer share their parts."""
    held = dense * share(divided, copies * point.data_shard)
    if not counted.has_experts:
        return held
    return held + experts * share(divided, copies * expert_shard(point, sem))


def sharding(point: PlanPoint, sem: Semantics) -> ZeroRow:
    """ZeRO's row as the plan's pipeline has it."""
    return point.zero.under(1 - sem.maximum(2 - point.pipeline, 0.0))


def expert_shard(point: PlanPoint, sem: Semantics) -> Scalar:
    """Ranks that share an expert's weights: all that hold a copy, or `data_shard` of them where that is fewer."""
    holders = point.accelerators / (point.pipeline * point.expert * point.expert_tensor)
    return sem.minimum(holders, point.data_shard)


def on_heaviest_stage(
    counted: OpCounts, quantity: Callable[[BlockCounts], Scalar], point: PlanPoint, sem: Semantics
) -> Scalar:
    """The sum of a count over the blocks of the heaviest stage (of the mean number of layers)."""

    def at(position: Position) -> Scalar:
        return total(b.repeats * quantity(b) for b in counted.blocks if b.position == position)

    first, last, single = at(Position.FIRST), at(Position.LAST), point.single_stage(sem)
    edges = (1 - single) * sem.maximum(first, last) + single * (first + last)
    return at(Position.LAYER) / point.pipeline + edges


def held_on_heaviest_stage(
    counted: OpCounts, quantity: Callable[[BlockCounts], Scalar], point: PlanPoint, sem: Semantics
) -> Scalar:
    """The same of what a stage holds: twice the layers and both ends where it has chunks of two copies."""
    copies = point.schedule.both_ways
    layers = total(b.repeats * quantity(b) for b in counted.layers) / point.pipeline
    edges = total(b.repeats * quantity(b) for b in counted.blocks if b.position != Position.LAYER)
    one_way = on_heaviest_stage(counted, quantity, point, sem)
    return (1 - copies) * one_way + copies * (2.0 * layers + edges)
