"""Every plan of a lattice evaluated, in batches, with the best few kept: memory does not grow with the number of plans.

Search is in float32. A plan that may be among the best, by a margin far above the error of float32, is evaluated again
in float64 and judged by that; so is memory within the margin of the limit. So the best few are those of float64, ties
ordered by the plan's number, whatever the batches, the processes or the interruptions.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from costmodel import Exact, map_leaves
from costmodel.formulas import Cost, as_floats, cost
from costmodel.inputs import SCHEDULES
from optimize.lattice import CHUNK, Chunk, Lattice
from optimize.plans.plan_values import PlanValue
from optimize.plans.row_bounds import flop_bound_s

MARGIN = 1e-4
"""Relative. Errors of float32 on a step and on a peak are below a tenth of it (tests/plans/test_exhaustive.py)."""

COMPILE_FROM = 600_000
"""Plans from which compiled batches are sooner than NumPy: starting JAX takes as long as so many plans in NumPy."""

_BLOCK = 8_192  # points of one NumPy evaluation: its intermediates stay in the cache
_EXACT = Exact(np)
_FIELDS = tuple(field.name for field in dataclasses.fields(Cost))  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Entry:
    """A plan by its number, with its value in float64."""

    value: float
    index: int

    @property
    def key(self) -> tuple[float, int]:
        """Ties, up to the rounding of sums, are ordered by the plan's number."""
        return float(f"{self.value:.12e}"), self.index


@dataclasses.dataclass(frozen=True)
class Best:
    """What is kept of the plans seen so far. `cells` and `levels` hold the best of each group, by group."""

    top: tuple[Entry, ...] = ()
    cells: dict[int, Entry] = dataclasses.field(default_factory=dict)  # by tensor and pipeline degree
    levels: dict[int, Entry] = dataclasses.field(default_factory=dict)  # by how much a plan makes use of
    least_memory: Entry | None = None  # over what there is
    evaluated: int = 0
    fitting: int = 0
    unseen: float = np.inf  # a lower bound of what is not evaluated and not proved to be worse; infinite: nothing

    def merged(self, other: "Best", top: int) -> "Best":
        """The best of both; the order does not matter."""
        entries = sorted({*self.top, *other.top}, key=lambda entry: entry.key)
        memory = [entry for entry in (self.least_memory, other.least_memory) if entry is not None]
        return Best(
            top=tuple(entries[:top]),
            cells=_lower(self.cells, other.cells),
            levels=_lower(self.levels, other.levels),
            least_memory=min(memory, key=lambda entry: entry.key, default=None),
            evaluated=self.evaluated + other.evaluated,
            fitting=self.fitting + other.fitting,
            unseen=min(self.unseen, other.unseen),
        )


def _lower(first: dict[int, Entry], second: dict[int, Entry]) -> dict[int, Entry]:
    keys = sorted({*first, *second})
    return {key: min((of[key] for of in (first, second) if key in of), key=lambda entry: entry.key) for key in keys}


Evaluate = Callable[[Chunk], Cost]
Looked = Callable[[Chunk, Cost, np.ndarray], None]


def search(
    lattice: Lattice,
    value: PlanValue,
    top: int,
    numbers: Iterable[int] | None = None,
    best: Best | None = None,
    done: Callable[[int, Best], None] | None = None,
    looked: Looked | None = None,
) -> Best:
    """The best of the chunks with these numbers (default: all), on top of what is known already.

    `looked(chunk, cost, memory over what there is)` and then `done(number, best)` are called for each chunk. An
    interruption loses one chunk at most. Where rows stand in the order of their bounds, the search ends as soon as no
    plan that is left can be among the best few.
    """
    evaluate, best = evaluator(lattice), best or Best()
    numbers = list(range(chunk_count(lattice)) if numbers is None else numbers)
    for place, number in enumerate(numbers):
        if _proved(lattice, value, number, best, top):
            break
        chunk = lattice.chunk(number * CHUNK, (number + 1) * CHUNK)
        costs = evaluate(chunk)
        best = best.merged(_best_of(chunk, costs, value, best, top), top)
        if looked is not None:
            looked(chunk, costs, lattice.needed(costs))
        if done is not None:
            rest = numbers[place + 1 :]
            unseen = min(floor(lattice, value, rest[0]), best.unseen) if rest else np.inf
            done(number, dataclasses.replace(best, unseen=unseen))
    return best


def _proved(lattice: Lattice, value: PlanValue, number: int, best: Best, top: int) -> bool:
    """Whether no plan from this chunk on can be among the best few: too slow by its bound, or none that fits."""
    if lattice.floor_s is None or not best.top:
        return False
    least = floor(lattice, value, number)
    return least == np.inf or (len(best.top) >= top and least > best.top[-1].value * (1 + MARGIN))


def floor(lattice: Lattice, value: PlanValue, number: int) -> float:
    """A lower bound of the values in a chunk and in all that follow it."""
    if value.function is not None:
        return -np.inf
    if lattice.floor_s is None:
        return flop_bound_s(lattice) * min(value.factors.values())
    row = np.searchsorted(lattice.ends, number * CHUNK, side="right")
    return float(lattice.floor_s[row]) * min(value.factors.values())


def chunk_count(lattice: Lattice) -> int:
    """Chunks of the whole lattice."""
    return -(-len(lattice) // CHUNK)


def evaluator(lattice: Lattice) -> Evaluate:
    """NumPy for small lattices, compiled batches for large ones: by the whole lattice, so that shares of it agree."""
    return in_numpy(lattice) if len(lattice) < COMPILE_FROM else compiled_batches(lattice)


def in_numpy(lattice: Lattice) -> Evaluate:
    """Evaluation by NumPy, in float32."""
    return lambda chunk: _in_numpy(lattice, chunk.indices, np.float32)


def compiled_batches(lattice: Lattice) -> Evaluate:
    """Evaluation in float32 by one compiled program for all chunks."""
    from costmodel.evaluators import compiled

    return lambda chunk: compiled.batch_cost(lattice.workload, lattice.cluster, chunk.points, batch=CHUNK)


def exactly(lattice: Lattice, indices: np.ndarray) -> Cost:
    """Cost of the plans with these numbers, in float64."""
    return _in_numpy(lattice, indices, np.float64)


def _in_numpy(lattice: Lattice, indices: np.ndarray, dtype: Any) -> Cost:
    workload = map_leaves(dtype, as_floats(lattice.workload))
    cluster = map_leaves(dtype, as_floats(dataclasses.replace(lattice.cluster, prices=None)))
    parts = []
    for start in range(0, len(indices), _BLOCK):
        points = lattice.points(indices[start : start + _BLOCK], dtype)
        with np.errstate(all="ignore"):  # of hardware beyond anything physical: told by `find_plan`
            parts.append(cost(workload, cluster, map_leaves(_as(dtype), points), _EXACT))
    whole = [[np.broadcast_to(getattr(part, name), np.shape(part.step_s)) for part in parts] for name in _FIELDS]
    return Cost(**dict(zip(_FIELDS, map(np.concatenate, whole), strict=True)))


def _as(dtype: Any) -> Callable[[Any], Any]:
    """Numbers as numbers of a type; arrays have it already."""
    return lambda leaf: leaf if np.ndim(leaf) else dtype(leaf)


def _best_of(chunk: Chunk, costs: Cost, value: PlanValue, best: Best, top: int) -> Best:
    """The best few of one chunk that may stand beside `best`."""
    values, share = value(chunk, costs), chunk.lattice.needed(costs)
    sure, lightest = np.flatnonzero(share <= 1 - MARGIN), int(np.argmin(share))
    return Best(
        top=_top(chunk, values, share, value, best, top),
        cells=_least_of_groups(chunk.indices[sure], values[sure], cell_of(chunk)[sure]),
        levels=_least_of_groups(chunk.indices[sure], values[sure], level_of(chunk)[sure]),
        least_memory=Entry(float(share[lightest]), int(chunk.indices[lightest])),
        evaluated=len(chunk),
        fitting=int(np.count_nonzero(share <= 1)),
    )


def _top(
    chunk: Chunk, values: np.ndarray, share: np.ndarray, value: PlanValue, best: Best, top: int
) -> tuple[Entry, ...]:
    """Plans of one chunk that belong to the best few, in float64."""
    reached = best.top[-1].value if len(best.top) >= top else np.inf
    sure = values[share <= 1 - MARGIN]
    if len(sure) >= top:
        reached = min(reached, float(np.partition(sure, top - 1)[top - 1]))
    near = np.flatnonzero((share <= 1 + MARGIN) & (values <= reached * (1 + MARGIN)))
    if not len(near):
        return ()
    asked = Chunk(chunk.lattice, chunk.indices[near])
    exact = exactly(chunk.lattice, asked.indices)
    fits = chunk.lattice.needed(exact) <= 1
    entries = zip(value(asked, exact)[fits], asked.indices[fits], strict=True)
    return tuple(sorted((Entry(float(v), int(i)) for v, i in entries), key=lambda entry: entry.key)[:top])


def _least_of_groups(indices: np.ndarray, values: np.ndarray, groups: np.ndarray) -> dict[int, Entry]:
    """The first least value of each group."""
    least_by_group = {}
    for group in np.unique(groups):
        inside = np.flatnonzero(groups == group)
        least = inside[np.argmin(values[inside])]
        least_by_group[int(group)] = Entry(float(values[least]), int(indices[least]))
    return least_by_group


_CELL = 1 << 24


def cell_of(chunk: Chunk) -> np.ndarray:
    """Tensor and pipeline degree as one number."""
    return cells_of_rows(chunk.lattice)[chunk.row]


def cells_of_rows(lattice: Lattice) -> np.ndarray:
    """Tensor and pipeline degree of every row of degrees, as one number."""
    return lattice.rows["tensor"] * _CELL + lattice.rows["pipeline"]


def cell_degrees(cell: int) -> tuple[int, int]:
    """Tensor and pipeline degree of a cell."""
    return divmod(cell, _CELL)


def level_of(chunk: Chunk) -> np.ndarray:
    """How many things a plan makes use of beyond data parallelism, ZeRO up to 2 and plain 1F1B."""
    c, usable = chunk.columns, int(chunk.lattice.cluster.tiers[0].usable_size)
    used = sum((c[name] > 1).astype(int) for name in ("tensor", "context", "pipeline", "expert", "expert_tensor"))
    used = used + (c["virtual_stages"] > 1) + (c["zero_stage"] > 2) + (c["data_shard"] > 0) + c["all_to_all"]
    used = used + (c["recompute"] > 0) + (c["recompute_share"] < 1) + (c["domain"] != usable)
    return used + np.isin(c["schedule"], [i for i, schedule in enumerate(SCHEDULES.values()) if schedule.splits])
