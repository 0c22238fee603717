r"""Critical paths of DualPipe: half of the microbatches go down the stages, half up, and a stage holds chunks of both.

With $k = p/2 - 1$ and $J$ the seconds of a forward and a backward pass that run together, plain stages take

$$T = (m - k - 3) J + (k + 3)(F + B + W) + \max(2kF, (k-1)F + kB) + k \max(B - W, 0)$$

(m even, at least $2p$): the published bubble $(p/2 - 1)(J + B - 2W)$ where $F = B = W$, with $B + W$ for the $B$ of its
source (DeepSeek-V3 2024, table 2). Read off schedules played out: exact for plain stages without transfers, within
0.7 % with transfers of 0.3 F. Embedding and head, which both outer stages hold, count for half of the microbatches
each: errors of up to 6 % where they are 0.6 of a stage (2 stages), 10 % with such transfers.
"""

from costmodel.formulas.pipeline.stages import Run
from costmodel.semantics import Scalar, Semantics


def longest_s(run: Run, sem: Semantics) -> Scalar:
    """The longest of the paths over the inner stages and over an outer one; zero for all other schedules."""
    m, k, half = run.m, 0.5 * run.p - 1, 0.5 * run.m
    steady_s = (m * (run.p - 1) / run.p - sem.minimum(0.5 * run.p, 2.0)) * run.hops.steady_s
    inner_s = (m - k - 3) * run.together_s + sem.maximum(*_over_the_inner_stages(run, k, half))
    outer_s = (m - 3 * k - 2) * run.together_s + sem.maximum(*_on_an_outer_stage(run, k, half))
    backwards_s, forwards_s = _from_one_to_the_other(run, k, half)
    between_s = (m - 2 * k - 3) * run.together_s + sem.maximum(backwards_s, run.together_s + forwards_s)
    return run.row.both_ways * (sem.maximum(inner_s, outer_s, between_s) + steady_s)


def _over_the_inner_stages(run: Run, k: Scalar, half: Scalar) -> tuple[Scalar, ...]:
    """Forwards fill the pipeline, or backwards drain it, and weight gradients stand in the way or do not."""
    plain, first, last, ends_s = run.stages.plain, run.stages.first, run.stages.last, run.hops.ends_s
    late, early = half - 2 * k - 1, half - 2 * k
    filled_s, drained_s = last.passes_s(late, late, late), last.passes_s(early, early, late)
    return (
        plain.passes_s(3 * k + 3, 2 * k + 3, 3.0)
        + (3 * k + 2) * ends_s
        + first.passes_s(late, early, early)
        + filled_s,
        plain.passes_s(3 * k + 3, k + 3, k + 3)
        + (2 * k + 2) * ends_s
        + first.passes_s(late, half - k, half - k)
        + filled_s,
        plain.passes_s(2 * k + 2, 3 * k + 3, 3.0)
        + (4 * k + 2) * ends_s
        + first.passes_s(half - 1, early, early)
        + drained_s,
        plain.passes_s(2 * k + 2, 2 * k + 3, k + 3)
        + (3 * k + 2) * ends_s
        + first.passes_s(half - 1, half - k, half - k)
        + drained_s,
    )


def _from_one_to_the_other(run: Run, k: Scalar, half: Scalar) -> tuple[Scalar, Scalar]:
    """From the inner stages to an outer one by backwards, or by forwards."""
    plain, first, last, late = run.stages.plain, run.stages.first, run.stages.last, half - k
    backwards_s = first.passes_s(half - 1, half, half) + last.passes_s(late, late, late - 1)
    forwards_s = first.passes_s(half, late, late) + last.passes_s(late, late, late)
    alone = 2 * k + 2
    return (
        plain.passes_s(alone, alone + k + 1, alone + 1) + backwards_s,
        plain.passes_s(alone + k, alone, alone) + forwards_s,
    )


def _on_an_outer_stage(run: Run, k: Scalar, half: Scalar) -> tuple[Scalar, Scalar]:
    """It is never idle, or backwards fill what its weight gradients leave."""
    plain, first, last, alone = run.stages.plain, run.stages.first, run.stages.last, 3 * k + 2
    head_s = last.passes_s(half, half, half)
    busy_s = plain.passes_s(alone, alone, alone) + first.passes_s(half, half, half) + head_s
    waits_s = plain.passes_s(alone, alone + k, alone - k) + first.passes_s(half, half - k, half - k) + head_s
    return busy_s, waits_s
