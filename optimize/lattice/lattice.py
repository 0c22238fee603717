"""All legal plans of a workload on a cluster, numbered: any slice of them is made when it is asked for.

A plan is a row of degrees and one option of each axis: schedule with virtual stages, ZeRO stage with the ranks that
share weights, sequence parallelism, kind of context parallelism, recompute. Given the degrees, each axis is legal or
not by itself, so the lattice is a sum over rows of products of axes: plan number i is found by division, nothing is
stored but the rows and the axes, and processes may each take a range of numbers.

What is left out because something that stays is never worse in time nor in memory (tests/formulas/test_dominance.py):
- overlap that is switched off (timing.overlapped_s is at most compute + communication, and takes no memory);
- ZeRO 1 to 3 on one rank (3: unless the precision casts or copies weights; all: unless a schedule goes both ways and
  keeps two copies), all-to-all with one context rank;
- schedules other than 1F1B without a pipeline (equal time, no less memory).
And what `LEFT_OUT` says, for the sake of size; of a design also all that `lattice(every_shard=False)` leaves out.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.inputs import SCHEDULES, Cluster, Plan, PlanPoint, Workload, embed, extra_layers, layers, options
from costmodel.models import in_pieces, run_by
from costmodel.specs import Demands, demands
from optimize.lattice.axis import DEGREES, Axis, distinct, even_layers, recompute_names

CHUNK = 65_536
LEFT_OUT = (
    "other stages with a layer more than late middle ones, where the layers do not divide",  # `axis.even_layers`
    "virtual stages that do not divide the layers of the fullest stage",  # where the closed form is up to 18 % too fast
    "recompute of other shares of the layers than quarters, as far as those are whole layers; with single modules or "
    "offload, of other than all",
    "innermost domains used by half or less, unless there is no other plan",
    "plans that fit with their layers in order, but not with every kind of them spread evenly over the stages",
)
"""Legal plans that are not searched: a bound says nothing of them."""
AXES = ("schedule", "virtual_stages", "zero_stage", "data_shard", "sequence_parallel", "context_kind", "recompute")
SEARCHED = {*DEGREES, *AXES, "recompute_share", "stage_layers"}
"""Fields of `Plan` that differ between plans of a lattice."""
OVERLAPS = ("overlap_data", "overlap_tensor", "overlap_context", "overlap_expert", "overlap_pipeline")


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Consecutive plans of a lattice: `points` holds arrays of one length, or numbers."""

    lattice: "Lattice"
    indices: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    @functools.cached_property
    def points(self) -> PlanPoint:
        """The points in float32, for search."""
        return self.lattice.points(self.indices, np.float32)

    @functools.cached_property
    def row(self) -> np.ndarray:
        """The row of degrees of each plan."""
        return np.searchsorted(self.lattice.ends, self.indices, side="right")

    @functools.cached_property
    def columns(self) -> dict[str, np.ndarray]:
        """Degrees and options as integers."""
        return self.lattice.columns(self.indices)

    def plan(self, i: int) -> Plan:
        """The plan that `points` holds at place `i`."""
        return self.lattice.plan(int(self.indices[i]))


@dataclasses.dataclass(frozen=True)
class Lattice:
    """Rows of degrees, and the options of each; `fixed` are the fields of `Plan` that are not searched."""

    workload: Workload
    cluster: Cluster
    fixed: Mapping[str, Any]
    rows: Mapping[str, np.ndarray]
    axes: tuple[Axis, ...]
    ends: np.ndarray  # number of plans up to and including each row
    floor_s: np.ndarray | None = None  # ascending lower bounds of the step, by row (`row_bounds`)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def chunk(self, start: int, stop: int) -> Chunk:
        """Plans number `start` to `stop` - 1."""
        return Chunk(self, np.arange(start, min(stop, len(self)), dtype=np.int64))

    def select(self, indices: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
        """The row of each plan, and the entry of each axis."""
        row = np.searchsorted(self.ends, indices, side="right")
        rest = indices - (self.ends[row] - self._sizes[row])
        entries = []
        for axis in reversed(self.axes):
            count = axis.count[row]
            entries.append(axis.offset[row] + rest % count)
            rest = rest // count
        return row, entries[::-1]

    @functools.cached_property
    def _sizes(self) -> np.ndarray:
        return np.diff(self.ends, prepend=0)

    def columns(self, indices: np.ndarray) -> dict[str, np.ndarray]:
        """Degrees and options of plans as arrays; names of options as numbers in their tables."""
        row, entries = self.select(indices)
        found = {name: column[row] for name, column in self.rows.items()}
        for axis, entry in zip(self.axes, entries, strict=True):
            found |= {name: column[entry] for name, column in axis.table.items()}
        return found

    def points(self, indices: np.ndarray, dtype: Any) -> PlanPoint:
        """What the cost model reads."""
        row, entries = self.select(indices)
        plain, rows = self.points_of_rows(row, dtype), {}
        for axis, entry in zip(self.axes, entries, strict=True):
            rows |= axis.fields(entry, dtype)
        shard = rows.pop("data_shard")
        ranks = (self.rows["data"][row] * self.rows["context"][row]).astype(dtype)
        copies = np.where(shard > 0, ranks / np.maximum(shard, 1), dtype(1.0))
        return dataclasses.replace(plain, **rows, copies=copies)

    def points_of_rows(self, row: np.ndarray, dtype: Any) -> PlanPoint:
        """The degrees of rows; their options are left as in the default plan."""
        degrees = {name: column[row].astype(dtype) for name, column in self.rows.items() if name != "data"}
        extra = {name: values[row].astype(dtype) for name, values in self._extra_layers.items()}
        on = {name: values[row].astype(dtype) for name, values in self._overlapped.items()}
        overlap = dataclasses.replace(self._plain.overlap, **on)
        accelerators = dtype(self.cluster.accelerators)
        return dataclasses.replace(self._plain, **degrees, **extra, overlap=overlap, accelerators=accelerators)

    @functools.cached_property
    def _overlapped(self) -> dict[str, np.ndarray]:
        """What overlaps where a row has the traffic alone, as in `plan`; where it is the same in all, nothing."""
        on = overlapping({name: self.rows[name] for name in DEGREES})
        own = {name.removeprefix("overlap_"): values for name, values in on.items() if name not in self.fixed}
        return {name: values for name, values in own.items() if not np.all(values)}

    def with_rows(self, order: np.ndarray) -> "Lattice":
        """The lattice of these rows, in this order."""
        rows = {name: column[order] for name, column in self.rows.items()}
        axes = tuple(axis.at(order) for axis in self.axes)
        floor_s = None if self.floor_s is None else self.floor_s[order]
        return dataclasses.replace(self, rows=rows, axes=axes, ends=np.cumsum(self._sizes[order]), floor_s=floor_s)

    @functools.cached_property
    def _plain(self) -> PlanPoint:
        """The fields that are not searched."""
        others = {f.name for f in dataclasses.fields(Plan)} - {*DEGREES, *AXES, "stage_layers", "recompute_share"}
        chosen: dict[str, Any] = dict.fromkeys(OVERLAPS, True)
        chosen |= {name: value for name, value in self.fixed.items() if name in others}
        if recompute_names(self.fixed) != list(options.RECOMPUTES):
            chosen |= {name: self.fixed[name] for name in ("recompute", "recompute_share") if self.fixed.get(name)}
        return embed(Plan(**chosen), self.workload, float(self.cluster.tiers[0].usable_size), self.cluster.stack.habits)

    @functools.cached_property
    def _extra_layers(self) -> dict[str, np.ndarray]:
        names = ("extra_layers_first", "extra_layers_middle", "extra_layers_last")
        first, which = distinct([self.rows["pipeline"]])
        depth, stages = layers(self.workload), self.rows["pipeline"][first].tolist()
        extra = np.array([extra_layers(self.stage_layers(p), depth / p) for p in stages]).reshape(-1, 3)
        return dict(zip(names, extra[which].T, strict=True))

    def stage_layers(self, pipeline: int) -> tuple[int, ...] | None:
        """None where the layers divide."""
        if self.fixed.get("stage_layers") is not None:
            return tuple(self.fixed["stage_layers"])
        return even_layers(self.demands.layers, pipeline)

    def needed(self, peak_bytes: np.ndarray, second_bytes: np.ndarray | float) -> np.ndarray:
        """Memory over what there is: of HBM or, where more of it is lacking, of the second memory. Above 1: no fit."""
        chip, share = self.cluster.accelerator, peak_bytes / self.cluster.accelerator.hbm_bytes
        if self._plain.offload is None:
            return share
        return np.maximum(share, second_bytes / chip.second_memory_bytes)

    @functools.cached_property
    def demands(self) -> Demands:
        """What workload and cluster demand of every plan."""
        return demands(self.workload, self.cluster)

    def plan(self, index: int) -> Plan:
        """Plan number `index`, with what overlaps only where there is traffic to hide."""
        found = {name: values[0] for name, values in self.columns(np.array([index])).items()}
        usable = int(self.cluster.tiers[0].usable_size)
        degrees = {name: int(found[name]) for name in DEGREES}
        fields: dict[str, Any] = degrees | {
            "domain": None if found["domain"] == usable else int(found["domain"]),
            "virtual_stages": int(found["virtual_stages"]),
            "zero_stage": int(found["zero_stage"]),
            "data_shard": int(found["data_shard"]) or None,
            "sequence_parallel": bool(found["sequence_parallel"]),
            "context_kind": "all_to_all" if found["all_to_all"] else "ring",
            "schedule": list(SCHEDULES)[found["schedule"]],
            "recompute": recompute_names(self.fixed)[found["recompute"]],
            "recompute_share": float(found["recompute_share"]),
            "stage_layers": self.stage_layers(int(found["pipeline"])),
        }
        on: dict[str, Any] = overlapping(degrees)
        given = {name: value for name, value in self.fixed.items() if name not in fields}
        return Plan(**(on | fields | given))


def as_run(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> Workload:
    """The operators that the cluster's software has, layers in the pieces that plans are asked to have, if they can."""
    pieces = next(iter(fixed["pieces"])) if isinstance(fixed.get("pieces"), set | frozenset) else fixed.get("pieces", 1)
    with contextlib.suppress(ValueError):  # which `violations` tells
        workload = in_pieces(workload, int(pieces))
    return run_by(workload, cluster.stack.habits)


def overlapping(degrees: Mapping[str, Any]) -> dict[str, Any]:
    """Whether what overlaps has something to hide."""
    return {
        "overlap_tensor": degrees["tensor"] > 1,
        "overlap_expert": degrees["expert"] * degrees["expert_tensor"] > 1,
        "overlap_pipeline": degrees["pipeline"] > 1,
    }


def number_of(lattice: Lattice, plan: Plan) -> int | None:
    """The number of a plan in a lattice; None where it is not there."""
    usable = int(lattice.cluster.tiers[0].usable_size)
    degrees = {name: getattr(plan, name) for name in DEGREES} | {"domain": plan.domain or usable}
    same = np.logical_and.reduce([lattice.rows[name] == value for name, value in degrees.items()])
    for row in np.flatnonzero(same):
        start = int(lattice.ends[row - 1]) if row else 0
        for number in range(start, int(lattice.ends[row])):
            if lattice.plan(number) == plan:
                return number
    return None
