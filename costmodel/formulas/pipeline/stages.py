"""The stages of a pipeline, what passes over them, and the counts that every critical path is written in."""

import dataclasses
from typing import NamedTuple

from costmodel.formulas.pipeline.streams import Streams, streamed_s
from costmodel.inputs import PlanPoint, ScheduleRow
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics


@pytree
class Stage:
    """Seconds of one stage for one microbatch: forward, input gradient (with recompute), weight gradient."""

    forward_s: Scalar
    backward_s: Scalar
    weights_s: Scalar

    @property
    def seconds(self) -> Scalar:
        """A turn: one pass of each kind."""
        return self.forward_s + self.backward_s + self.weights_s

    @property
    def both_s(self) -> Scalar:
        """A turn without its weight gradient."""
        return self.forward_s + self.backward_s

    def passes_s(self, forward: Scalar, backward: Scalar, weights: Scalar) -> Scalar:
        """So many passes of each kind."""
        return forward * self.forward_s + backward * self.backward_s + weights * self.weights_s

    def __add__(self, other: "Stage") -> "Stage":
        return Stage(
            forward_s=self.forward_s + other.forward_s,
            backward_s=self.backward_s + other.backward_s,
            weights_s=self.weights_s + other.weights_s,
        )

    def beyond(self, other: "Stage") -> "Stage":
        """What it takes more than `other`."""
        return self + other.scaled(-1.0)

    def streamed(self, moved: Streams, sem: Semantics) -> "Stage":
        """The stage with traffic of the second memory behind forward and backward."""
        return Stage(
            forward_s=streamed_s(self.forward_s, moved.forward_s(sem), moved, sem),
            backward_s=streamed_s(self.backward_s, moved.backward_s(sem), moved, sem),
            weights_s=self.weights_s,
        )

    def scaled(self, factor: Scalar) -> "Stage":
        """`factor` times as long."""
        return Stage(
            forward_s=factor * self.forward_s,
            backward_s=factor * self.backward_s,
            weights_s=factor * self.weights_s,
        )

    def merged(self, split: Scalar) -> "Stage":
        """Weight gradients inside the backward pass, unless the schedule splits them off (1)."""
        return Stage(
            forward_s=self.forward_s,
            backward_s=self.backward_s + (1 - split) * self.weights_s,
            weights_s=split * self.weights_s,
        )


@pytree
class Pipeline:
    """The stages of one pipeline: a plain one, and what the first, the heaviest middle and the last one have beyond it.

    `between` is what all middle stages together have beyond plain ones: the layers that both ends have less (where ends
    have more, nothing: their way is taken to be as long as with plain stages between them).
    `streams` is a plain stage's, whose layers take `layers`; stages with more layers have more of it.
    """

    plain: Stage
    first: Stage
    middle: Stage
    last: Stage
    between: Stage = Stage(forward_s=0.0, backward_s=0.0, weights_s=0.0)
    streams: Streams | None = None
    layers: Stage | None = None  # of a plain stage that streams: without the host's work, which no layer has
    hidden_s: Scalar = 0.0  # what a forward and a backward pass of a plain stage that run together take less than alone

    def longer(self, each_s: Scalar) -> "Pipeline":
        """The pipeline with every forward and every backward pass longer by so much."""
        more = Stage(forward_s=each_s, backward_s=each_s, weights_s=0.0)
        return dataclasses.replace(self, plain=self.plain + more)

    def merged(self, split: Scalar) -> "Pipeline":
        """Every stage with its weight gradients inside the backward pass, unless the schedule splits them off (1)."""
        return dataclasses.replace(
            self,
            plain=self.plain.merged(split),
            first=self.first.merged(split),
            middle=self.middle.merged(split),
            between=self.between.merged(split),
            last=self.last.merged(split),
            layers=None if self.layers is None else self.layers.merged(split),
        )

    def streamed(self, moved: Streams, point: PlanPoint, sem: Semantics) -> "Pipeline":
        """The pipeline with passes that wait for the second memory, on stages of more layers as much longer."""
        plain, layer = self.plain, (self.plain if self.layers is None else self.layers).scaled(1.0 / moved.layers)
        waiting = plain.streamed(moved, sem)
        usual = waiting.beyond(plain)

        def waits(extra_layers: Scalar) -> Stage:
            """What a stage with so many layers more waits beyond a plain one."""
            longer = plain + layer.scaled(extra_layers)
            more = moved.scaled(1 + extra_layers / moved.layers)
            return longer.streamed(more, sem).beyond(longer).beyond(usual)

        return Pipeline(
            plain=waiting,
            first=self.first + waits(point.extra_layers_first),
            middle=self.middle + waits(point.extra_layers_middle),
            between=self.between + waits(-(point.extra_layers_first + point.extra_layers_last)),
            last=self.last + waits(point.extra_layers_last),
            hidden_s=self.hidden_s,
        )


@pytree
class Hops:
    """Seconds of one transfer between stages: at the ends of the pipeline, and what of it the steady state feels."""

    ends_s: Scalar
    steady_s: Scalar

    def scaled(self, factor: Scalar) -> "Hops":
        """`factor` times as long."""
        return Hops(ends_s=factor * self.ends_s, steady_s=factor * self.steady_s)


class Run(NamedTuple):
    """What the critical paths of one step are sums of: stages with their waits, transfers, and counts of turns.

    No count is negative for a legal plan.
    """

    row: ScheduleRow
    stages: Pipeline
    hops: Hops
    m: Scalar  # microbatches
    p: Scalar  # stages
    v: Scalar  # virtual stages
    single: Scalar  # 1 where one stage holds embedding and head
    fill: Scalar  # turns of F or of B that fill or drain the pipeline
    reach: Scalar  # turns from the end of the first stage's warm-up on, over all stages
    after: Scalar  # those of them that are the first stage's own
    together_s: Scalar  # a forward and a backward pass of a plain stage that run together
    between_s: tuple[Scalar, Scalar]  # F and B that a way over the middle stages takes beyond that over plain ones

    @property
    def round_trips(self) -> Scalar:
        """Transfers of one microbatch to the last stage and back."""
        return 2.0 * (1 - self.single) * (self.p * self.v - 1)


def run_of(pipe: Pipeline, hops: Hops, microbatches: Scalar, point: PlanPoint, sem: Semantics) -> Run:
    """One step of so many microbatches.

    Devices of an interleaved schedule exchange after every chunk and wait for it (Megatron-LM's
    `forward_backward_pipelining_with_interleaving` without `overlap_p2p_comm`): what is not hidden of a transfer makes
    each pass over a chunk longer, and does not delay its consumer again.
    """
    row, m, p, v = point.schedule, microbatches, point.pipeline, point.virtual_stages
    waits = row.interleaves * (1 - row.folds) * (1 - point.single_stage(sem))
    stages = pipe.merged(row.splits)
    stages = stages if pipe.streams is None else stages.streamed(pipe.streams, point, sem)
    chunks = (row.depth_in_flight + row.stages_in_flight) * p + row.extra_in_flight
    warm = chunks / v + row.virtual_in_flight * p * (1 - 1 / v)  # forwards before the first stage's first backward
    reach = sem.maximum((1 - row.all_in_flight) * (m - (warm - p)), p)
    return Run(
        row=row,
        stages=stages.longer(waits * v * hops.steady_s),
        hops=Hops(ends_s=hops.ends_s - waits * hops.steady_s, steady_s=(1 - waits) * hops.steady_s),
        m=m,
        p=p,
        v=v,
        single=point.single_stage(sem),
        fill=(1 - row.folds) * (p - 1) / v,
        reach=reach,
        after=reach - (p - 1),
        together_s=stages.plain.seconds - stages.hidden_s,
        between_s=_between_s(stages, row, sem),
    )


def _between_s(stages: Pipeline, row: ScheduleRow, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Of schedules whose way does not turn round on the last stage."""
    both = (1 - row.folds) * stages.between.forward_s, (1 - row.folds) * stages.between.backward_s
    return sem.maximum(both[0], 0.0), sem.maximum(both[1], 0.0)


def plain_s(pipe: Pipeline, point: PlanPoint, sem: Semantics) -> Scalar:
    """One microbatch on a plain stage, with its waits for the second memory: what every path holds m times."""
    if pipe.streams is None:
        return pipe.plain.seconds
    return pipe.plain.merged(point.schedule.splits).streamed(pipe.streams, sem).seconds
