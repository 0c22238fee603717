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
with transfers of $c$ seconds between stages. `tests/test_schedule.py` plays the schedules out and states the errors:
none for plain stages (interleaved with large transfers: 2.3 %), at most 3 % with heavier first and last stages.
Sources: Narayanan et al. 2021 (1F1B, interleaving), Qi et al. 2023 (zero bubble). Every coefficient is non-negative
for legal plans, so the result is log-convex in rates and latencies.
"""

from costmodel._pytree import pytree
from costmodel.plan import PlanPoint
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

    def __rmul__(self, factor: Scalar) -> "Stage":
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
    """The stages of one pipeline: a plain one, and what the first, a middle and the last one have beyond it."""

    plain: Stage
    first: Stage
    middle: Stage
    last: Stage


@pytree
class Hops:
    """Seconds of one transfer between stages: at the ends of the pipeline, and what of it the steady state feels."""

    ends_s: Scalar
    steady_s: Scalar

    def __rmul__(self, factor: Scalar) -> "Hops":
        return Hops(ends_s=factor * self.ends_s, steady_s=factor * self.steady_s)


def single_stage(point: PlanPoint, sem: Semantics) -> Scalar:
    """1 without a pipeline, 0 with one: whether the same stage holds embedding and head."""
    return sem.exact_maximum(2 - point.pipeline, 0.0)


def pipeline_s(
    pipe: Pipeline, hops: Hops, window: Scalar, microbatches: Scalar, point: PlanPoint, sem: Semantics
) -> Scalar:
    """Seconds of a step's passes, less the share `window` of one plain stage's microbatch.

    (What gradient traffic hides behind is taken out here and added with that traffic: `schedule.step_time`.)
    """
    paths = _Paths(pipe, hops, window, microbatches, point, sem)
    through = sem.maximum(*paths.steady_turns(), *paths.first_stage_turns(), paths.gpipe_turns())
    first_s = paths.busy_first_s(), paths.first_warm_up_s(), paths.first_backward_s()
    return sem.maximum(paths.round_trip_s() + through, paths.last_stage_s(), *first_s)


class _Paths:
    """The critical paths of one pipeline. What starts with `turns` comes on top of `round_trip_s`."""

    def __init__(self, pipe: Pipeline, hops: Hops, window: Scalar, m: Scalar, point: PlanPoint, sem: Semantics) -> None:
        row, p, v = point.schedule, point.pipeline, point.virtual_stages
        self.row, self.p, self.v, self.m, self.window, self.sem = row, p, v, m, window, sem
        self.single = single_stage(point, sem)
        self.more_first, self.more_last = pipe.first.merged(row.splits), pipe.last.merged(row.splits)
        self.plain = pipe.plain.merged(row.splits)
        both = self.single * self.more_first, self.single * self.more_last
        self.first = self.plain + self.more_first + both[1]
        self.last = self.plain + self.more_last + both[0]
        self.middle = self.plain + pipe.middle.merged(row.splits)
        self.hops = hops
        between = 2.0 * (1 - self.single) * (p * v - 1)
        self.ends_s, self.again_s = between * hops.ends_s, between * hops.steady_s
        chunks = (row.depth_in_flight + row.stages_in_flight) * p + row.extra_in_flight
        warm = row.all_in_flight * m + chunks / v + row.virtual_in_flight * p * (1 - 1 / v)
        self.later_rounds, self.first_round = sem.maximum(m - p, 0.0), sem.minimum(m - 1, p - 1) / v
        self.beyond_warm = sem.maximum(m - warm, 0.0)

    def round_trip_s(self) -> Scalar:
        """The first microbatch through all stages and back, and one weight gradient at the end, less the window."""
        plain, edges = self.plain, self.more_first + self.more_last
        ways_s = (self.p - self.window) * (plain.forward_s + plain.backward_s) + (1 - self.window) * plain.weights_s
        weights_s = self.more_first.weights_s + self.single * self.more_last.weights_s
        return ways_s + edges.forward_s + edges.backward_s + weights_s + self.ends_s

    def steady_turns(self) -> tuple[Scalar, ...]:
        """Turns on a plain (or the heaviest middle) stage, on the last one, and round trips that transfers stretch."""
        row, sem, m, p = self.row, self.sem, self.m, self.p
        waits = sem.floor((m - 1) * (p - 1) / p)
        rounds = row.steady_transfers * sem.floor((m - 1) / p)
        middle_s = self._turns_s(self.middle)
        last = self.more_last + self.single * self.more_first
        later_s = self.beyond_warm * self.middle.weights_s
        stretched_s = 2.0 * self.hops.steady_s * row.steady_transfers
        return (
            middle_s + later_s + stretched_s * sem.minimum(p - 1, waits),
            middle_s + rounds * self.middle.weights_s + stretched_s * waits,
            self._turns_s(self.plain)
            + (m - 1) * (last.forward_s + last.backward_s)
            + row.interleaves * (p - 1) * (self.more_first.forward_s + self.more_first.backward_s)
            + self.beyond_warm * self.last.weights_s,
        )

    def _turns_s(self, stage: Stage) -> Scalar:
        """m - 1 turns of F and B; of those in the first round of an interleaved schedule, a v-th counts."""
        return self.later_rounds * self._turn_s(stage) + self.first_round * (stage.forward_s + stage.backward_s)

    def _turn_s(self, stage: Stage) -> Scalar:
        """F + B; interleaved, a transfer longer than a chunk delays each of the v visits."""
        v, hop_s = self.v, self.row.interleaves * self.hops.steady_s
        inverse = 1.0 / v

        def turn(a: Scalar, b: Scalar) -> Scalar:
            maximum = self.sem.maximum
            return (v - 1) * maximum(a * inverse, hop_s) + maximum(b * inverse, hop_s) + (a + (v - 1) * b) * inverse

        return self.sem.maximum(turn(stage.forward_s, stage.backward_s), turn(stage.backward_s, stage.forward_s))

    def first_stage_turns(self) -> tuple[Scalar, ...]:
        """Turns on a heavy first stage, of which the warm-up hides some."""
        first, beyond, sem = self.first, self.beyond_warm, self.sem
        plain, edges = self.plain, self.more_first + self.more_last
        again_s = self.p * (plain.forward_s + plain.backward_s) + edges.forward_s + edges.backward_s + self.again_s
        repeated = (1 - self.row.interleaves) * sem.minimum(beyond, 1.0)
        turn_s = first.forward_s + first.backward_s
        turns = self.later_rounds + self.first_round
        return (
            turns * (first.backward_s + first.weights_s) + beyond * first.forward_s,
            turns * first.forward_s + beyond * (first.backward_s + first.weights_s),
            repeated * again_s + sem.maximum(beyond - 1, 0.0) * turn_s + beyond * first.weights_s,
        )

    def gpipe_turns(self) -> Scalar:
        """All forwards, then all backwards: the slowest stage holds up each of the two phases."""
        forward_s = self.sem.maximum(self.first.forward_s, self.middle.forward_s, self.last.forward_s)
        backward_s = self.sem.maximum(self.first.backward_s, self.middle.backward_s, self.last.backward_s)
        return self.row.all_in_flight * (self.m - 1) * (forward_s + backward_s)

    def busy_first_s(self) -> Scalar:
        """All microbatches on the first stage, which is never done sooner, less the window."""
        edges_s = self.more_first.seconds + self.single * self.more_last.seconds
        return (self.m - self.window) * self.plain.seconds + self.m * edges_s

    def first_warm_up_s(self) -> Scalar:
        """Interleaved: part of the warm-up's idle time stays, and a heavy last stage delays the first backward.

        `_INTERLEAVED_FIRST` is fitted to schedules played out (p <= 8, m <= 32, v 2 to 4, up to 0.6 of a stage more).
        """
        idle, filled, delayed = (x * (self.p - 1) for x in _INTERLEAVED_FIRST)
        plain_s = self.plain.forward_s + self.plain.backward_s
        last_s = self.more_last.forward_s + self.more_last.backward_s
        turns_s = (self.m - self.window) * self.plain.seconds + (self.m - filled) * self.more_first.seconds
        return self.row.interleaves * (turns_s + idle / self.v * plain_s + delayed * last_s)

    def first_backward_s(self) -> Scalar:
        """Interleaved: the first stage waits for its first backward pass, then does all the others."""
        m, p, plain, more = self.m, self.p, self.plain, self.more_first
        turn = (p - 1) / self.v
        plain_s = (m - self.window - turn) * plain.forward_s + (m - self.window + turn) * plain.backward_s
        more_s = self.sem.maximum(m - p + 1, 0.0) * more.forward_s + m * more.backward_s
        last_s = self.more_last.forward_s + self.more_last.backward_s
        return self.row.interleaves * (plain_s + more_s + (p - 1) * last_s)

    def last_stage_s(self) -> Scalar:
        """The way to the last stage, and all microbatches on it, less the window."""
        way_s = (self.p - 1) / self.v * self.plain.forward_s + (1 - self.single) * self.more_first.forward_s
        here_s = (self.m - self.window) * self.plain.seconds + self.m * self.more_last.seconds
        return way_s + here_s + self.m * self.single * self.more_first.seconds + self.hops.ends_s * (self.p - 1)
