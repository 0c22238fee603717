"""Critical paths of an interleaved schedule, whose devices hold several chunks of the model: zero for all others.

`_IDLE`, `_FILLED` and `_DELAYED` are fitted to schedules played out (p <= 8, m <= 32, v 2 to 4, up to 0.6 of a stage
more).
"""

from costmodel.formulas.pipeline.stages import Run
from costmodel.semantics import Scalar, Semantics

_IDLE = 0.5  # of the turns that fill the pipeline, those in which the first stage waits in its warm-up
_FILLED = 0.45  # of the other stages, those whose turns a heavy first stage spends on work that it has then
_DELAYED = 1.0  # of the other stages, those that a heavy last stage delays


def warm_up_s(run: Run) -> Scalar:
    """The first stage with the idle time of its warm-up."""
    plain, idle = run.stages.plain, _IDLE * run.fill
    held_s = plain.passes_s(run.m, run.m, run.m) + plain.passes_s(idle, idle, 0.0)
    held_s = held_s + (run.m - _FILLED * (run.p - 1)) * run.stages.first.seconds
    return run.row.interleaves * (held_s + _DELAYED * _head_waits_s(run))


def first_backward_s(run: Run, sem: Semantics) -> Scalar:
    """The first stage up to its first backward pass: its forwards before it are hidden, and backwards drain after."""
    m, p, fill = run.m, run.p, run.fill
    plain_s = run.stages.plain.passes_s(m - fill, m + fill, m)
    first_s = run.stages.first.passes_s(sem.maximum(m - p + 1, 0.0), m, 0.0)
    return run.row.interleaves * (plain_s + first_s + _head_waits_s(run))


def _head_waits_s(run: Run) -> Scalar:
    """The head's turns in the first microbatches of all stages but the last."""
    return (run.p - 1) * run.stages.last.both_s
