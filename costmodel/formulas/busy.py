"""How long the units of an accelerator are busy in a step: what its power goes by."""

from collections.abc import Callable

from costmodel.formulas.breakdown import Breakdown, roofs
from costmodel.formulas.cost import Parts
from costmodel.formulas.counts import BlockCounts
from costmodel.formulas.economics import Busy
from costmodel.formulas.roofline import Roof
from costmodel.inputs import Cluster, PlanPoint, Position
from costmodel.semantics import Scalar, total


def busy(found: Breakdown, cluster: Cluster, point: PlanPoint, done: Parts) -> Busy:
    """Seconds at the arithmetic units and of the HBM by the rooflines of all operators, in the mean over the stages;
    links are busy for as long as their messages take, hidden or not (those of two kinds at once count twice)."""
    work = done.step.work
    return Busy(
        compute_s=_of_operators(cluster, point, done, lambda roof: roof.compute_s) + work.orthogonal_s,
        hbm_s=_of_operators(cluster, point, done, _memory_s) + work.optimizer_s - work.orthogonal_s,
        links_s=total(term.exposed_s + term.hidden_s for term in found.terms if term.sends),
    )


def _memory_s(roof: Roof) -> Scalar:
    return roof.memory_s + roof.aside_s


def _of_operators(cluster: Cluster, point: PlanPoint, done: Parts, side: Callable[[Roof], Scalar]) -> Scalar:
    """Seconds of one side of the rooflines; embedding and head are never recomputed (timing.py)."""

    def once_s(block: BlockCounts) -> Scalar:
        *passes, again = roofs(block, point, done, cluster)
        kinds = (*passes, again) if block.position == Position.LAYER else passes
        return total(times * side(roof) for kind in kinds for times, roof in kind)

    summed_s = total(block.repeats * once_s(block) for block in done.counts.blocks)
    return done.counts.microbatches / point.pipeline * summed_s
