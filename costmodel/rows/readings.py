"""What a row leaves open: settled where memory decides, averaged over where nothing does."""

import dataclasses
from collections.abc import Sequence

from costmodel.rows.batches import evaluated
from costmodel.rows.cases import Case
from costmodel.rows.defaults import HABITS
from costmodel.rows.layouts import OPEN_RECOMPUTE, selective

_SLACK = 1.1  # a layout that ran is taken to fit if the prediction is within this of the capacity


def settle(cases: Sequence[Case]) -> list[Case]:
    """The cases with their recompute chosen, where the row leaves it open: the least that fits in memory."""
    chosen = list(cases)
    waiting = [i for i, case in enumerate(cases) if OPEN_RECOMPUTE in case.open]
    for mode in ("none", "selective", "full"):
        tried = [_with_recompute(cases[i], mode) for i in waiting]
        peaks = evaluated(tried).peak_bytes
        unsettled = []
        for i, case, peak_bytes in zip(waiting, tried, peaks, strict=True):
            chosen[i] = case
            if not peak_bytes <= _SLACK * case.cluster.accelerator.hbm_bytes:
                unsettled.append(i)
        waiting = unsettled
    return chosen


def _with_recompute(case: Case, mode: str) -> Case:
    values = selective(case.facts, HABITS[case.stack]) if mode == "selective" else {"recompute": mode}
    plan = dataclasses.replace(case.plan, **values)
    return dataclasses.replace(case, plan=plan, assumed=(*case.assumed, f"recompute {mode}, the least that fits"))


def alternatives(case: Case) -> tuple[Case, ...]:
    """Open readings of one row, over which its prediction is averaged; the row itself where nothing is open."""
    return (case,)
