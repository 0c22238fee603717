"""Critical paths of ZB-V, whose chunks go down over the stages and back: the first stage holds embedding and head.

Read off the critical paths of schedules played out, m >= 2p: exact for plain stages without transfers. Zero for all
schedules that do not fold. Source of the schedule: Qi et al. 2024 (Pipeline parallelism with controllable memory).
"""

from costmodel.formulas.pipeline.stages import Run
from costmodel.semantics import Scalar, Semantics


def longest_s(run: Run, sem: Semantics) -> Scalar:
    """The longest of the paths over the first stage and over the others."""
    return run.row.folds * sem.maximum(*_on_the_first_stage(run, sem), *_over_the_others(run, sem))


def _on_the_first_stage(run: Run, sem: Semantics) -> tuple[Scalar, Scalar, Scalar]:
    """All microbatches of embedding and head; the warm-up's 2k forwards go at the pace of transfers or embedding."""
    m, k, plain, first, last = run.m, run.p - 1, run.stages.plain, run.stages.first, run.stages.last
    start_s = first.passes_s(m - 2 * k, m, m) + 2 * k * sem.maximum(run.hops.ends_s, first.forward_s)
    head_s, gradients_s = last.passes_s(m, m, m - 1) + start_s, first.backward_s + first.weights_s
    # it is never idle
    busy_s = plain.passes_s(m, m, m) + last.weights_s + head_s
    # it waits for the last input gradients on their way back, and k turns of its own gradients fill the wait
    returned_s = plain.passes_s(m, m + 0.5 * k, m - 0.5 * (k + 1)) + head_s + k * (2 * run.hops.ends_s - gradients_s)
    # the same, where the weight gradients of the inner stages stand in the way
    inner_s = plain.passes_s(m, m, m + 0.5 * _inner(run, sem)) + head_s - (k + 1) * gradients_s + k * run.hops.ends_s
    return busy_s, returned_s, inner_s


def _over_the_others(run: Run, sem: Semantics) -> tuple[Scalar, Scalar, Scalar, Scalar]:
    """The first microbatch's way down (a chunk is half a stage), a turn of head or weights, and the rest elsewhere."""
    m, k, inner, plain, first = run.m, run.p - 1, _inner(run, sem), run.stages.plain, run.stages.first
    ends_s, steady_s, gradients_s = run.hops.ends_s, run.hops.steady_s, first.backward_s + first.weights_s
    turn_s = sem.maximum(0.5 * plain.weights_s, ends_s + steady_s + run.stages.last.both_s)
    turn_s = turn_s + (k + inner) * ends_s + inner * steady_s + first.forward_s
    way_s = turn_s + k * (ends_s + steady_s)
    # filled by backwards, or by forwards, of k chunks
    backwards_s = plain.passes_s(m, m + 0.5 * k, m - 0.5) + way_s
    forwards_s = plain.passes_s(m + 0.5 * k, m, m - 0.5) + way_s
    # by backwards of both chunks, down to the first stage's last gradients; weight gradients come after
    both_s = plain.passes_s(m, m + k, m - k - 0.5) + way_s + k * ends_s + gradients_s
    # by forwards down to the last stage and over the inner ones again, whose gradients come after
    again_s = plain.passes_s(m + 0.5 * (k + inner), m - 0.5 * inner, m - 0.5) + turn_s
    return backwards_s, forwards_s, both_s, again_s


def _inner(run: Run, sem: Semantics) -> Scalar:
    """Stages between the first and the last."""
    return sem.maximum(run.p - 2, 0.0)
