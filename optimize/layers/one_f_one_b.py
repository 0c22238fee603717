"""1F1B pipelines of unequal stages played out, a whole batch at once: every operation has its own start.

The same order and the same transfers as `costmodel.graph.play`, which plays one pipeline; a test compares them. Stage
$s$ of $p$ runs its forward $i$ in turn $s + 2i$ and its backward $i$ in turn $2p - 1 - s + 2i$: what either waits for
stands in an earlier turn, and the turns of a stage follow its order. So $2(m + p - 1)$ turns play everything.
"""

import numpy as np

from costmodel.formulas import Hops


def played_s(forward_s: np.ndarray, backward_s: np.ndarray, hop: Hops, microbatches: int) -> np.ndarray:
    """Seconds from the first start to the last end, for arrays (stages, batch) of one microbatch's seconds."""
    stages, batch = forward_s.shape
    free_s = np.zeros((stages, batch))  # when each stage is done with what it has run
    down_s = np.full((stages + 1, batch), -np.inf)  # when the newest activations left the stage before; none do for 0
    up_s = np.full((stages + 1, batch), -np.inf)  # when the newest gradient left the stage; none comes to the last
    lone_s = hop.ends_s - hop.steady_s
    for turn in range(2 * (microbatches + stages) - 2):
        at = _running(turn, turn - 2 * (microbatches - 1), stages)
        if at.start < at.stop:
            ready_s = down_s[at] + hop.steady_s
            if turn < stages:  # the first microbatch, on the last of them
                ready_s[-1] += lone_s
            free_s[at] = np.maximum(free_s[at], ready_s) + forward_s[at]
            down_s[at.start + 1 : at.stop + 1 : 2] = free_s[at]
        newest = 2 * (stages + microbatches) - 3 - turn  # the stage at which the last microbatch is
        at = _running(newest, newest - 2 * (microbatches - 1), stages)
        if at.start < at.stop:
            ready_s = up_s[at.start + 1 : at.stop + 1 : 2] + hop.steady_s
            if newest < stages:
                ready_s[-1] += lone_s
            free_s[at] = np.maximum(free_s[at], ready_s) + backward_s[at]
            up_s[at] = free_s[at]
    return free_s.max(axis=0)


def _running(last: int, first: int, stages: int) -> slice:
    """Every other stage from `first` to `last`, of those that there are."""
    first = max(first, first % 2)
    last = min(last, stages - 1 - (stages - 1 - last) % 2)
    return slice(first, last + 1, 2)
