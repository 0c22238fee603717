"""1F1B pipelines of unequal stages played out, a whole batch at once: every operation has its own start.

The same order and the same transfers as `costmodel.graph.play`, which plays one pipeline; a test compares them. Stage
$s$ of $p$ runs its forward $i$ in turn $s + 2i$ and its backward $i$ in turn $2p - 1 - s + 2i$: what either waits for
stands in an earlier turn, and the turns of a stage follow its order. So $2(m + p - 1)$ turns play everything.
"""

import numpy as np

from costmodel.pipeline import Hops


def played_s(forward_s: np.ndarray, backward_s: np.ndarray, hop: Hops, microbatches: int) -> np.ndarray:
    """Seconds from the first start to the last end, for arrays (stages, batch) of one microbatch's seconds."""
    stages, batch = forward_s.shape
    free_s = np.zeros((stages, batch))  # when each stage is done with what it has run
    down_s = np.zeros((stages + 1, batch))  # when the newest activations left stage i - 1
    up_s = np.zeros((stages + 1, batch))  # when the newest gradient left stage i; 0 beyond the last stage
    numbers = np.arange(stages)
    for turn in range(2 * (microbatches + stages) - 2):
        first, last = _running(turn - numbers, microbatches)
        if last >= 0:
            at = slice(first, last + 1, 2)
            own = _delays((turn - numbers[at]) // 2 == 0, hop)
            own[numbers[at] == 0] = 0.0
            free_s[at] = np.maximum(free_s[at], down_s[at] + own) + forward_s[at]
            down_s[first + 1 : last + 2 : 2] = free_s[at]
        first, last = _running(turn - (2 * stages - 1 - numbers), microbatches)
        if last >= 0:
            at = slice(first, last + 1, 2)
            own = _delays((turn - (2 * stages - 1 - numbers[at])) // 2 == microbatches - 1, hop)
            own[numbers[at] == stages - 1] = 0.0
            free_s[at] = np.maximum(free_s[at], up_s[first + 1 : last + 2 : 2] + own) + backward_s[at]
            up_s[at] = free_s[at]
    return free_s.max(axis=0)


def _running(doubled: np.ndarray, microbatches: int) -> tuple[int, int]:
    """The first and the last stage whose turn it is (every other one between them), or (0, -1)."""
    due = np.flatnonzero((doubled >= 0) & (doubled % 2 == 0) & (doubled < 2 * microbatches))
    return (int(due[0]), int(due[-1])) if len(due) else (0, -1)


def _delays(lone: np.ndarray, hop: Hops) -> np.ndarray:
    return np.where(lone, hop.ends_s, hop.steady_s)[:, None]
