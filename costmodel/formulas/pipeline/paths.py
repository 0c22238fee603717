r"""Seconds of a pipeline's step in closed form: the longest of its critical paths.

With $m$ microbatches, $p$ stages, $v$ virtual ones, and $F, B, W$ the seconds of a stage for one microbatch (plain
stages; index 0 the first stage, which also holds the embedding, $l$ the last, which holds the head), every path starts
with the first microbatch's way through all stages and back, $\sum F + \sum B + W$, and then takes $m - 1$ turns on the
stages that hold it up. Schedules that do not split off $W$ have it inside $B$. A schedule is a `ScheduleRow`; it sets
$N$, the forwards that the first stage runs before its first backward (GPipe $m$, 1F1B and ZB-H1 $p$, ZB-H2 $2p - 1$):
the turns that a heavy first stage can hide in its warm-up.

For plain stages the longest path is
  GPipe        $(m+p-1)(F+B) + 2(p-1)c$
  1F1B         the same $+ 2c \lfloor (m-1)(p-1)/p \rfloor$
  interleaved  $(m + (p-1)/v)(F+B+2ve) + 2(pv-1)(c-e)$ with the share $e$ of $c$ that nothing hides: devices wait for it
  ZB-H1, H2    $\max((m+p-1)(F+B) + (m-N+1) W,\; (m+p-1) F + m(B+W),\; ...)$
  ZB-V         folded.py
  DualPipe     both_ways.py
with transfers of $c$ seconds between stages. `tests/formulas/test_schedule.py` plays the schedules out and states the
errors: none for plain stages, at most 3 % with heavier first and last stages.
Sources: Narayanan et al. 2021 (1F1B, interleaving), Qi et al. 2023 (zero bubble). Every coefficient is non-negative
for legal plans, so the result is log-convex in rates and latencies.
"""

from costmodel.formulas.pipeline import both_ways, folded, interleaved
from costmodel.formulas.pipeline.stages import Hops, Pipeline, Run, run_of
from costmodel.inputs import PlanPoint
from costmodel.semantics import Scalar, Semantics, total


def pipeline_s(pipe: Pipeline, hops: Hops, microbatches: Scalar, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds from the first forward pass to the last backward pass of a step, anywhere in the pipeline.

    Every path holds all microbatches once on some stage: at least `microbatches` times a plain one.
    """
    run = run_of(pipe, hops, microbatches, point, sem)
    one_way_s = sem.maximum(
        *_through_all_stages(run, sem),
        *_held_by_the_first_stage(run, sem),
        interleaved.warm_up_s(run),
        interleaved.first_backward_s(run, sem),
        folded.longest_s(run, sem),
    )
    return sem.maximum((1 - run.row.both_ways) * one_way_s, both_ways.longest_s(run, sem))


def _through_all_stages(run: Run, sem: Semantics) -> tuple[Scalar, ...]:
    """The first microbatch's way to the last stage and back, and m - 1 turns that one thing holds up."""
    ends_s, plain = _ends_s(run), run.stages.plain
    turns_s = plain.passes_s(run.m, run.m, 0.0) + plain.passes_s(run.fill, run.fill, 0.0) + ends_s
    steady_s, between_s = turns_s + run.after * plain.weights_s, total(run.between_s)
    return (
        _middle_stage_s(run, steady_s, sem),
        _last_stage_s(run, steady_s + between_s),
        _paced_by_transfers_s(run, turns_s + between_s, sem),
        _all_on_the_last_stage_s(run),
        _two_phases_s(run, ends_s + between_s, sem),
    )


def _ends_s(run: Run) -> Scalar:
    """What the first microbatch's way takes beyond plain stages: its transfers, embedding and head."""
    return run.round_trips * run.hops.ends_s + run.stages.first.seconds + run.stages.last.both_s


def _middle_stage_s(run: Run, steady_s: Scalar, sem: Semantics) -> Scalar:
    """Turns on a middle stage of more layers; a turn in which all stages wait for each other takes two transfers.

    (Its first warm-up hides a forward or more, about as much as middle stages have beyond plain ones on the way.)
    """
    m, middle = run.m, run.stages.middle
    held_s = steady_s + middle.passes_s(m - 1, m - 1, run.after)
    return held_s + 2.0 * _pace_s(run) * sem.minimum(run.p - 1, _waiting_turns(run, sem))


def _last_stage_s(run: Run, steady_s: Scalar) -> Scalar:
    """Turns on the last stage, which the head makes longer."""
    m = run.m
    held_s = steady_s + run.stages.last.passes_s(m - 1, m - 1, run.after - 1)
    return held_s + run.row.interleaves * (run.p - 1) * run.stages.first.both_s


def _paced_by_transfers_s(run: Run, turns_s: Scalar, sem: Semantics) -> Scalar:
    """Turns at the pace of transfers, which leave room for all weight gradients but one a round over the stages."""
    rounds = sem.floor((run.m - 0.5) / run.p)  # half a microbatch off: safe from rounding
    late_s = (1 + run.row.steady_transfers * rounds) * run.stages.plain.weights_s
    return turns_s + late_s + 2.0 * _pace_s(run) * _waiting_turns(run, sem)


def _pace_s(run: Run) -> Scalar:
    """What a transfer adds where the steady state waits for it."""
    return run.row.steady_transfers * run.hops.steady_s


def _waiting_turns(run: Run, sem: Semantics) -> Scalar:
    """Turns of 1F1B that wait for a transfer each way: all but the first of each round over the stages."""
    return sem.floor(((run.m - 1) * (run.p - 1) + 0.5) / run.p)  # half a turn off: safe from rounding


def _all_on_the_last_stage_s(run: Run) -> Scalar:
    """The way to the last stage, and all microbatches on it."""
    m, stages = run.m, run.stages
    way_s = (1 - run.single) * stages.first.forward_s + run.hops.ends_s * (run.p - 1) + run.between_s[0]
    turns_s = stages.plain.passes_s(m, m, m) + run.fill * stages.plain.forward_s
    return turns_s + stages.last.passes_s(m, m, m) + way_s


def _two_phases_s(run: Run, ends_s: Scalar, sem: Semantics) -> Scalar:
    """GPipe: all forwards, then all backwards; the slowest stage holds up each."""
    m, plain, first, middle, last = run.m, run.stages.plain, run.stages.first, run.stages.middle, run.stages.last
    forward_s = sem.maximum(first.forward_s, middle.forward_s, last.forward_s)
    backward_s = sem.maximum(first.backward_s, middle.backward_s, last.backward_s)
    phases_s = (m - 1) * (forward_s + backward_s) + plain.passes_s(m, m, 0.0)
    phases_s = phases_s + plain.passes_s(run.fill, run.fill, 0.0)
    return run.row.all_in_flight * phases_s + run.row.all_in_flight * ends_s


def _held_by_the_first_stage(run: Run, sem: Semantics) -> tuple[Scalar, ...]:
    """Turns on a heavy first stage, of which the warm-up hides some; it is never done before all its work."""
    m, fill, reach, after = run.m, run.fill, run.reach, run.after
    plain, first, last = run.stages.plain, run.stages.first, run.stages.last
    to_last_s = last.both_s + total(run.between_s) + run.round_trips * run.hops.ends_s
    # it is never idle: all its work, with the head where it holds it too
    busy_s = plain.passes_s(m, m, m) + first.passes_s(m, m, m) + run.single * m * last.seconds
    # its backwards hold up the end: forwards only from the warm-up on, and backwards drain the pipeline
    backwards_s = plain.passes_s(reach, m, m) + fill * plain.backward_s + first.passes_s(after, m, m) + to_last_s
    # its forwards hold up the start: forwards fill the pipeline, and backwards only from the warm-up on
    forwards_s = plain.passes_s(m, reach, after) + fill * plain.forward_s + first.passes_s(m, after, after) + to_last_s
    # both, once it is warm; where turns remain then, the pipeline waits for one more way to the last stage and back
    repeated = (1 - run.row.interleaves) * sem.minimum(after - 1, 1.0)
    again_s = repeated * ((run.p - 1) * plain.both_s + last.both_s + run.round_trips * run.hops.steady_s)
    warm_s = plain.passes_s(reach, reach, after) + first.passes_s(after, after, after) + to_last_s + again_s
    return busy_s, backwards_s, forwards_s, warm_s
