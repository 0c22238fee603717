"""Pipeline schedules: a table with one entry for each, which formulas, rules, plays, searches and reports ask.

Nothing else knows a schedule by its name. `costmodel.register_schedule` checks an entry and adds it.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from costmodel.inputs.turns import Turns, dual_order, v_order
from costmodel.pytree import pytree
from costmodel.semantics import Scalar


@pytree
class ScheduleRow:
    """Coefficients of a pipeline schedule (pipeline: time, memory.py: microbatches in flight)."""

    splits: Scalar = 0.0  # 1 where the weight gradient runs apart from the input gradient
    interleaves: Scalar = 0.0  # 1 where a device holds several chunks of the model
    steady_transfers: Scalar = 0.0  # 1 where transfers also slow the steady state, and weight gradients wait for them
    all_in_flight: Scalar = 0.0  # 1 where all microbatches are live at once
    depth_in_flight: Scalar = 0.0  # live chunks per stage from this one to the end
    stages_in_flight: Scalar = 0.0  # live chunks per stage of the pipeline, on every stage
    virtual_in_flight: Scalar = 0.0  # those of the earlier virtual stages
    extra_in_flight: Scalar = 0.0  # chunks
    both_ways: Scalar = 0.0  # 1 where half of the microbatches go up the stages: each holds the chunks of two
    folds: Scalar = 0.0  # 1 where the second half of the layers comes back over the stages: the first holds both ends


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is to be known of one pipeline schedule. Functions take counts of stages, microbatches and virtual stages.

    `warm_up` gives the forwards that a device, counted from 0, runs before its first backward, in chunks; then
    backwards, weight gradients and forwards alternate. An `order` gives all its operations in turn instead.
    """

    row: ScheduleRow
    warm_up: Callable[[int, int, int, int], int] | None = None
    order: Callable[[int, int, int, int], Iterator[Turns]] | None = None
    least_microbatches: Callable[[Any], Any] = lambda stages: 1  # which its row needs to be true; for arrays too
    short: str | None = None  # its name in tables for people

    @property
    def splits(self) -> bool:
        """Whether weight gradients run apart from input gradients."""
        return bool(self.row.splits)

    @property
    def folds(self) -> bool:
        """Whether the model goes down over the stages and back: two chunks a stage, both ends on the first."""
        return bool(self.row.folds)

    @property
    def interleaves(self) -> bool:
        """Whether it takes virtual stages, and microbatches in groups of as many as there are stages."""
        return bool(self.row.interleaves) and not self.folds

    def chunks(self, virtual_stages: Any) -> Any:
        """Model chunks of a stage."""
        return 2 if self.folds else virtual_stages

    @property
    def ways(self) -> int:
        """Ways that microbatches take through the stages, each with its own copy of the model: down, and up."""
        return 2 if self.row.both_ways else 1

    def device_of(self, chunk: int, stages: int) -> int:
        """The stage that holds a chunk: round and round, or down and back again; chunks of the way up come last."""
        return 2 * stages - 1 - chunk if (self.folds or self.ways > 1) and chunk >= stages else chunk % stages


SCHEDULES: dict[str, Schedule] = {
    "gpipe": Schedule(  # Huang et al. 2019
        row=ScheduleRow(all_in_flight=1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: microbatches,
        short="GPipe",
    ),
    "one_f_one_b": Schedule(  # Narayanan et al. 2019
        row=ScheduleRow(steady_transfers=1.0, depth_in_flight=1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: stages - device,
        short="1F1B",
    ),
    "interleaved": Schedule(  # Narayanan et al. 2021, as in Megatron-LM
        row=ScheduleRow(interleaves=1.0, depth_in_flight=2.0, virtual_in_flight=1.0, extra_in_flight=-1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: (
            2 * (stages - device) - 1 + (virtual_stages - 1) * stages
        ),
        short="1F1B",
    ),
    "zb_h1": Schedule(  # Qi et al. 2023, as ZB-H2
        row=ScheduleRow(splits=1.0, steady_transfers=1.0, stages_in_flight=1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: stages - device,
        least_microbatches=lambda stages: stages,
        short="ZB-H1",
    ),
    "zb_h2": Schedule(
        row=ScheduleRow(splits=1.0, stages_in_flight=2.0, extra_in_flight=-1.0),
        warm_up=lambda stages, microbatches, virtual_stages, device: 2 * (stages - device) - 1,
        least_microbatches=lambda stages: 2 * stages - 1,
        short="ZB-H2",
    ),
    "zb_v": Schedule(
        row=ScheduleRow(splits=1.0, interleaves=1.0, stages_in_flight=1.0, folds=1.0),
        order=v_order,
        least_microbatches=lambda stages: 2 * stages,
        short="ZB-V",
    ),
    "dualpipe": Schedule(
        row=ScheduleRow(splits=1.0, both_ways=1.0, stages_in_flight=1.0, extra_in_flight=1.0),
        order=dual_order,
        least_microbatches=lambda stages: 2 * stages,
        short="DualPipe",
    ),
}

_FOLDED = SCHEDULES["zb_v"].row
FOLDED: Mapping[str, ScheduleRow] = MappingProxyType({
    "": _FOLDED,
    "v_half": dataclasses.replace(_FOLDED, stages_in_flight=1.0 / 2.0, extra_in_flight=1.0),
    "v_min": dataclasses.replace(_FOLDED, stages_in_flight=1.0 / 3.0, extra_in_flight=1.0),
})  # fmt: skip
"""ZB-V, and what holds fewer microbatches at the price of bubbles, of which only the memory is known here: a half and a
third of it, and one stage more. By the patterns of Qi et al. 2024, Pipeline parallelism with controllable memory; exact
for an even number of stages and for one that three divides, half and a third of a stage off for others."""

OWN_SCHEDULES: dict[str, Schedule] = {}
"""Those of them that a user has registered."""


def schedule_rows() -> dict[str, ScheduleRow]:
    """The row of each schedule by its name."""
    return {name: schedule.row for name, schedule in SCHEDULES.items()}
