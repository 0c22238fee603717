"""What a row leaves open: settled where memory decides, averaged over where nothing does."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from costmodel.rows.batches import evaluated
from costmodel.rows.cases import Case
from costmodel.rows.defaults import HABITS
from costmodel.rows.layouts import OPEN_RECOMPUTE, selective

_SLACK = 1.0  # a layout that ran is taken to fit if the prediction is within this of the capacity
_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)  # of the layers, recomputed in full


def settle(cases: Sequence[Case]) -> list[Case]:
    """The cases with their recompute chosen, where row and software leave it open: the least that fits in memory."""
    return _least_that_fits(cases, [OPEN_RECOMPUTE in c.open and HABITS[c.stack].recompute is None for c in cases])


def lightened(cases: Sequence[Case]) -> list[Case]:
    """As they fit in memory, for its prediction: also those whose software is not known to recompute whole layers.

    Megatron-Core recomputes cheap modules or offloads instead, which rows seldom print and which costs little time.
    """
    return _least_that_fits(cases, [OPEN_RECOMPUTE in case.open for case in cases])


def _least_that_fits(cases: Sequence[Case], is_open: Sequence[bool]) -> list[Case]:
    chosen = list(cases)
    waiting = [i for i, asked in enumerate(is_open) if asked]
    for rung in range(len(_SHARES) + 2):
        tried = [_with_recompute(cases[i], rung) for i in waiting]
        peaks = evaluated(tried).peak_bytes
        unsettled = []
        for i, case, peak_bytes in zip(waiting, tried, peaks, strict=True):
            chosen[i] = case
            if not peak_bytes <= _SLACK * case.cluster.accelerator.hbm_bytes:
                unsettled.append(i)
        waiting = unsettled
    return chosen


def _with_recompute(case: Case, rung: int) -> Case:
    """The case with none, with what its software calls selective, or with a share of its layers recomputed in full."""
    values: dict[str, Any] = {"recompute": "none"}
    if rung == 1:
        values = selective(case.facts)
    if rung > 1:
        values = {"recompute": "full", "recompute_share": _SHARES[rung - 2]}
    said = values["recompute"] if rung < 2 else f"full of {100 * values['recompute_share']:g} % of the layers"
    plan = dataclasses.replace(case.plan, **values)
    return dataclasses.replace(case, plan=plan, assumed=(*case.assumed, f"recompute {said}: the least that fits"))


def alternatives(case: Case) -> tuple[Case, ...]:
    """Open readings of one row, over which its prediction is averaged; the row itself where nothing is open."""
    return (case,)
