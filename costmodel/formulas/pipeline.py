r"""Seconds of a pipeline's step in closed form: the longest of its critical paths.

With $m$ microbatches, $p$ stages, $v$ virtual ones, and $F, B, W$ the seconds of a stage for one microbatch (plain
stages; index 0 the first stage, which also holds the embedding, $l$ the last, which holds the head), every path starts
with the first microbatch's way through all stages and back, $\sum F + \sum B + W$, and then takes $m - 1$ turns on the
stages that hold it up. Schedules that do not split off $W$ have it inside $B$. A schedule is a row of
`options.ScheduleRow`; it sets $N$, the forwards that the first stage runs before its first backward (GPipe $m$,
1F1B and ZB-H1 $p$, ZB-H2 $2p - 1$): the turns that a heavy first stage can hide in its warm-up.

For plain stages the longest path is
  GPipe        $(m+p-1)(F+B) + 2(p-1)c$
  1F1B         the same $+ 2c \lfloor (m-1)(p-1)/p \rfloor$
  interleaved  $(m + (p-1)/v)(F+B) + 2(pv-1)c$ while $c \le \min(F,B)/v$; beyond, turns of $X(F,B)$ below
  ZB-H1, H2    $\max((m+p-1)(F+B) + (m-N+1) W,\; (m+p-1) F + m(B+W),\; ...)$
with transfers of $c$ seconds between stages. `tests/formulas/test_schedule.py` plays the schedules out and states the
errors: none for plain stages (interleaved with large transfers: 2.3 %), at most 3 % with heavier first and last stages.
Sources: Narayanan et al. 2021 (1F1B, interleaving), Qi et al. 2023 (zero bubble). Every coefficient is non-negative
for legal plans, so the result is log-convex in rates and latencies.
"""

from costmodel.formulas.offload import Streams, streamed_s
from costmodel.inputs import PlanPoint
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics

_INTERLEAVED_FIRST = (0.5, 0.45, 1.0)


@pytree
class Stage:
    """Seconds of one stage for one microbatch: forward, input gradient (with recompute), weight gradient."""

    forward_s: Scalar
    backward_s: Scalar
    weights_s: Scalar

    @property
    def seconds(self) -> Scalar:
        return self.forward_s + self.backward_s + self.weights_s

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
        """With traffic of the second memory behind forward and backward."""
        return Stage(
            forward_s=streamed_s(self.forward_s, moved.forward_s(sem), moved, sem),
            backward_s=streamed_s(self.backward_s, moved.backward_s, moved, sem),
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
    """The stages of one pipeline: a plain one, and what the first, a middle and the last one have beyond it.

    `streams` is a plain stage's, whose layers take `layers`; stages with more layers have more of it.
    """

    plain: Stage
    first: Stage
    middle: Stage
    last: Stage
    streams: Streams | None = None
    layers: Stage | None = None  # of a plain stage that streams: without the host's work, which no layer has


@pytree
class Hops:
    """Seconds of one transfer between stages: at the ends of the pipeline, and what of it the steady state feels."""

    ends_s: Scalar
    steady_s: Scalar

    def scaled(self, factor: Scalar) -> "Hops":
        """`factor` times as long."""
        return Hops(ends_s=factor * self.ends_s, steady_s=factor * self.steady_s)


def plain_s(pipe: Pipeline, point: PlanPoint, sem: Semantics) -> Scalar:
    """One microbatch on a plain stage, with its waits for the second memory: what every path holds m times."""
    if pipe.streams is None:
        return pipe.plain.seconds
    return pipe.plain.merged(point.schedule.splits).streamed(pipe.streams, sem).seconds


def single_stage(point: PlanPoint, sem: Semantics) -> Scalar:
    """Whether the same stage holds embedding and head: without a pipeline, or where the schedule folds it."""
    return sem.maximum(2 - point.pipeline, point.schedule.folds)


def pipeline_s(pipe: Pipeline, hops: Hops, microbatches: Scalar, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds from the first forward pass to the last backward pass of a step, anywhere in the pipeline.

    Every path holds all microbatches once on some stage: at least `microbatches` times a plain one.
    """
    paths = _Paths(pipe, hops, microbatches, point, sem)
    return sem.maximum(
        *paths.through_all_stages(), *paths.held_by_the_first_stage(), *paths.interleaved(), paths.folded()
    )


class _Paths:
    """The critical paths of one pipeline, each a sum of times with a count that is never negative.

    Counts are written as `m + ...` and not as `(m - 1) + ...` where that is the same, and `m` times a plain stage as a
    term of its own: it hardly changes over a box of plans, so that bounds over boxes (bounds.py) are tight.
    """

    def __init__(self, pipe: Pipeline, hops: Hops, m: Scalar, point: PlanPoint, sem: Semantics) -> None:
        row, p, v = point.schedule, point.pipeline, point.virtual_stages
        self.row, self.p, self.v, self.m, self.sem = row, p, v, m, sem
        self.plain, self.middle = pipe.plain.merged(row.splits), pipe.middle.merged(row.splits)
        self.first, self.last = pipe.first.merged(row.splits), pipe.last.merged(row.splits)
        if pipe.streams is not None:
            layers = pipe.plain if pipe.layers is None else pipe.layers
            self._stream(pipe.streams, layers.merged(row.splits), point)
        self.single, self.hops = single_stage(point, sem), hops
        between = 2.0 * (1 - self.single) * (p * v - 1)
        self.ends_s, self.again_s = between * hops.ends_s, between * hops.steady_s
        self.fill = (1 - row.folds) * (p - 1) / v  # turns of F or of B to fill or drain the pipeline
        chunks = (row.depth_in_flight + row.stages_in_flight) * p + row.extra_in_flight
        warm = chunks / v + row.virtual_in_flight * p * (1 - 1 / v)  # forwards before the first stage's first backward
        self.reach = sem.maximum((1 - row.all_in_flight) * (m - (warm - p)), p)
        self.after = self.reach - (p - 1)  # turns that remain to the first stage once it is warm

    def _stream(self, moved: Streams, layers: Stage, point: PlanPoint) -> None:
        """Let passes wait for the second memory, on stages of more layers as much longer."""
        plain, layer = self.plain, layers.scaled(1.0 / moved.layers)
        self.plain = plain.streamed(moved, self.sem)
        usual = self.plain.beyond(plain)

        def waits(extra_layers: Scalar) -> Stage:
            """What a stage with so many layers more waits beyond a plain one."""
            longer = plain + layer.scaled(extra_layers)
            more = moved.scaled(1 + extra_layers / moved.layers)
            return longer.streamed(more, self.sem).beyond(longer).beyond(usual)

        self.first = self.first + waits(point.extra_layers_first)
        self.middle = self.middle + waits(point.extra_layers_middle)
        self.last = self.last + waits(point.extra_layers_last)

    def through_all_stages(self) -> tuple[Scalar, ...]:
        """Turns on a middle stage, on the last one, at the pace of transfers, and the two phases of GPipe."""
        row, sem, m, p = self.row, self.sem, self.m, self.p
        ends = self.ends_s + _all(self.first, 1.0, 1.0, 1.0) + _all(self.last, 1.0, 1.0, 0.0)
        waits, rounds = sem.floor(((m - 1) * (p - 1) + 0.5) / p), sem.floor((m - 0.5) / p)  # safe from rounding
        turns_s = _all(self.plain, m, m, 0.0) + _all(self.plain, self.fill, self.fill, 0.0) + ends
        pace_s, steady_s = row.steady_transfers * self.hops.steady_s, turns_s + self.after * self.plain.weights_s
        more_s = self._overtime_s() + row.interleaves * (p - 1) * _all(self.first, 1.0, 1.0, 0.0)
        later = row.steady_transfers * rounds
        return (
            steady_s + _all(self.middle, m - 1, m - 1, self.after) + 2.0 * pace_s * sem.minimum(p - 1, waits),
            steady_s + _all(self.last, m - 1, m - 1, self.after - 1) + more_s,
            turns_s + (1 + later) * self.plain.weights_s + 2.0 * pace_s * waits,
            self._last_stage_s(),
            self._two_phases_s() + row.all_in_flight * ends,
        )

    def _overtime_s(self) -> Scalar:
        """Interleaved: a transfer longer than a chunk delays each of the v visits of a turn."""
        v, hop_s, sem = self.v, self.row.interleaves * self.hops.steady_s, self.sem
        forward_s, backward_s = (
            sem.maximum(hop_s - seconds / v, 0.0) for seconds in (self.plain.forward_s, self.plain.backward_s)
        )
        turn_s = sem.maximum((v - 1) * forward_s + backward_s, (v - 1) * backward_s + forward_s)
        return sem.maximum(self.m - self.p, 0.0) * turn_s

    def _last_stage_s(self) -> Scalar:
        """The way to the last stage, and all microbatches on it."""
        m = self.m
        way_s = _all(self.first, 1 - self.single, 0.0, 0.0) + self.hops.ends_s * (self.p - 1)
        return _all(self.plain, m, m, m) + self.fill * self.plain.forward_s + _all(self.last, m, m, m) + way_s

    def _two_phases_s(self) -> Scalar:
        """GPipe: all forwards, then all backwards; the slowest stage holds up each."""
        forward_s = self.sem.maximum(self.first.forward_s, self.middle.forward_s, self.last.forward_s)
        backward_s = self.sem.maximum(self.first.backward_s, self.middle.backward_s, self.last.backward_s)
        turns_s = (
            (self.m - 1) * (forward_s + backward_s)
            + _all(self.plain, self.m, self.m, 0.0)
            + _all(self.plain, self.fill, self.fill, 0.0)
        )
        return self.row.all_in_flight * turns_s

    def held_by_the_first_stage(self) -> tuple[Scalar, ...]:
        """Turns on a heavy first stage, of which the warm-up hides some; it is never done before all its work."""
        m, after, reach, last = self.m, self.after, self.reach, _all(self.last, 1.0, 1.0, 0.0) + self.ends_s
        plain, first, fill = self.plain, self.first, self.fill
        repeated = (1 - self.row.interleaves) * self.sem.minimum(after - 1, 1.0)
        again_s = repeated * ((self.p - 1) * _all(plain, 1.0, 1.0, 0.0) + _all(self.last, 1.0, 1.0, 0.0) + self.again_s)
        return (
            _all(plain, m, m, m) + _all(first, m, m, m) + self.single * m * self.last.seconds,
            _all(plain, reach, m, m) + fill * plain.backward_s + _all(first, after, m, m) + last,
            _all(plain, m, reach, after) + fill * plain.forward_s + _all(first, m, after, after) + last,
            _all(plain, reach, reach, after) + _all(first, after, after, after) + last + again_s,
        )

    def interleaved(self) -> tuple[Scalar, ...]:
        """The first stage of an interleaved schedule: its warm-up's idle time, and its first backward pass.

        `_INTERLEAVED_FIRST` is fitted to schedules played out (p <= 8, m <= 32, v 2 to 4, up to 0.6 of a stage more).
        """
        m, p, fill, row, plain = self.m, self.p, self.fill, self.row, self.plain
        idle, filled, delayed = _INTERLEAVED_FIRST
        warm_s = _all(plain, m, m, m) + _all(plain, idle * fill, idle * fill, 0.0)
        warm_s = warm_s + (m - filled * (p - 1)) * self.first.seconds
        first_s = _all(plain, m - fill, m + fill, m) + _all(self.first, self.sem.maximum(m - p + 1, 0.0), m, 0.0)
        waits_s = (p - 1) * _all(self.last, 1.0, 1.0, 0.0)
        return row.interleaves * (warm_s + delayed * waits_s), row.interleaves * (first_s + waits_s)

    def folded(self) -> Scalar:
        """ZB-V: the first stage, never idle or waiting for the last gradients, and four ways over the others.

        Read off the critical paths of schedules played out, m >= 2p: exact for plain stages without transfers.
        """
        m, k, sem, plain, hops = self.m, self.p - 1, self.sem, self.plain, self.hops
        inner, first, last = sem.maximum(self.p - 2, 0.0), self.first, self.last
        ends_s, steady_s = hops.ends_s, hops.steady_s
        start_s = _all(first, m - 2 * k, m, m) + 2 * k * sem.maximum(ends_s, first.forward_s)
        head_s, gradients_s = _all(last, m, m, m - 1) + start_s, first.backward_s + first.weights_s
        turn_s = sem.maximum(0.5 * plain.weights_s, ends_s + steady_s + _all(last, 1.0, 1.0, 0.0))
        turn_s = turn_s + (k + inner) * ends_s + inner * steady_s + first.forward_s
        way_s = turn_s + k * (ends_s + steady_s)
        return self.row.folds * sem.maximum(
            _all(plain, m, m, m) + last.weights_s + head_s,
            _all(plain, m, m + 0.5 * k, m - 0.5 * (k + 1)) + head_s + k * (2 * ends_s - gradients_s),
            _all(plain, m, m, m + 0.5 * inner) + head_s - (k + 1) * gradients_s + k * ends_s,
            _all(plain, m, m + 0.5 * k, m - 0.5) + way_s,
            _all(plain, m + 0.5 * k, m, m - 0.5) + way_s,
            _all(plain, m, m + k, m - k - 0.5) + way_s + k * ends_s + gradients_s,
            _all(plain, m + 0.5 * (k + inner), m - 0.5 * inner, m - 0.5) + turn_s,
        )


def _all(stage: Stage, forward: Scalar, backward: Scalar, weights: Scalar) -> Scalar:
    """Seconds of so many passes of each kind over one stage."""
    return forward * stage.forward_s + backward * stage.backward_s + weights * stage.weights_s
