"""Every plan of a lattice evaluated, in batches, with the best few kept: memory does not grow with the number of plans.

Search is in float32. A plan that may be among the best, by a margin far above the error of float32, is evaluated again
in float64 and judged by that; so is memory within the margin of the limit. So the best few are those of float64, ties
ordered by the plan's number, whatever the batches, the processes or the interruptions.
"""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from costmodel.formulas import Cost
from costmodel.inputs import SCHEDULES
from optimize.lattice import CHUNK, Chunk, Lattice
from optimize.plans.best import Best, Entry, cells_of_rows
from optimize.plans.evaluation import MARGIN, Evaluate, exactly, in_numpy, least_value, promising
from optimize.plans.plan_values import PlanValue
from optimize.plans.row_bounds import flop_bound_s

COMPILE_FROM = 600_000
"""Plans from which compiled batches are sooner than NumPy: starting JAX takes as long as so many plans in NumPy."""

SIMPLER_WITHIN = 0.01  # of the best value: what a simpler plan may cost, so that all up to it are of interest

SHAPES = 5  # of the best plans, of which more than one shape is told, and one of those may not fit in order
FEW = 8_192  # plans that are evaluated sooner than bounded
_FIRST, _AMONG = 8_192, 1_048_576  # plans of a first glance, and the first ones, among which they are
_AT_FIRST, _AT_ONCE = 65_536, 524_288  # plans whose bounds are compared at once, more and more

Looked = Callable[[Chunk, Cost, np.ndarray], None]


def search(
    lattice: Lattice,
    value: PlanValue,
    top: int,
    numbers: Iterable[int] | None = None,
    best: Best | None = None,
    done: Callable[[int, Best], None] | None = None,
    looked: Looked | None = None,
    compiled: bool | None = None,
) -> Best:
    """The best of the chunks with these numbers (default: all), on top of what is known already.

    `looked(chunk, cost, memory over what there is)` and then `done(number, best)` are called for each chunk. An
    interruption loses one chunk at most. Where rows stand in the order of their bounds, the search ends as soon as no
    plan that is left can be among the best few. `compiled`: whether plans are evaluated in compiled batches; by their
    number, unless said.
    """
    evaluate, best = evaluator(lattice) if compiled is None else MAKERS[compiled](lattice), best or Best()
    numbers = list(range(chunk_count(lattice)) if numbers is None else numbers)
    for place, number in enumerate(numbers):
        if _proved(lattice, value, number, best, top):
            break
        chunk = lattice.chunk(number * CHUNK, (number + 1) * CHUNK)
        costs = evaluate(chunk)
        best = best.merged(_best_of(chunk, costs, value, best, top), top)
        if looked is not None:
            looked(chunk, costs, lattice.needed(costs.peak_bytes, costs.second_bytes))
        if done is not None:
            rest = numbers[place + 1 :]
            unseen = min(floor(lattice, value, rest[0]), best.unseen) if rest else np.inf
            done(number, dataclasses.replace(best, unseen=unseen))
    return best


def may_spare(lattice: Lattice, value: PlanValue) -> bool:
    """Whether bounds order the rows, so that `sparing` may leave plans out."""
    return lattice.floor_s is not None and value.function is None


def sooner(lattice: Lattice, value: PlanValue, top: int) -> Best:
    """The best of the whole lattice by whichever search takes less: what all ask for who say no other."""
    return (sparing if may_spare(lattice, value) else search)(lattice, value, top)


def sparing(
    lattice: Lattice,
    value: PlanValue,
    top: int,
    reached: float = np.inf,
    done: Callable[[int, Best], None] | None = None,
    shapes: bool = True,
) -> Best:
    """What `search` finds below `reached`, of plans alone that no bound dismisses (`promising`).

    Rows stand in the order of their bounds. The best few are the same; of shapes, `SHAPES` are known, and
    the simpler ones are the same, unless nobody asks for them. `done(rows, best)` is called now and then.
    """
    evaluate, best, start = in_numpy(lattice), Best(), 0
    cells, count, size = cells_of_rows(lattice), len(lattice.ends), _AT_FIRST if reached == np.inf else _AT_ONCE
    glance = Best()
    if len(lattice) > FEW and reached == np.inf:
        glanced = min(_FIRST, len(lattice) // 8)
        some = Chunk(lattice, np.unique(np.linspace(0, min(len(lattice), _AMONG) - 1, glanced).astype(np.int64)))
        glance = _best_of(some, evaluate(some), value, best, top, shapes)
    while start < count:
        overall, limits = _limits(best.merged(glance, top), top, reached, cells[start:], shapes)
        least = _row_floor(lattice, value, start)
        if least == np.inf or least > overall * (1 + MARGIN):
            break
        before = int(lattice.ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(lattice.ends, before + size, side="right")))
        indices = np.arange(before, lattice.ends[stop - 1])
        if len(indices) > FEW:
            indices = promising(lattice, np.arange(start, stop), value, limits[: stop - start])
        if len(indices):
            chunk = Chunk(lattice, indices)
            best = best.merged(_best_of(chunk, evaluate(chunk), value, best, top, shapes), top)
        start, size = stop, min(8 * size, _AT_ONCE)
        if done is not None:
            unseen = np.inf if stop == count else _row_floor(lattice, value, stop)
            done(stop, dataclasses.replace(best, unseen=unseen))
    return best


def _limits(best: Best, top: int, reached: float, cells: np.ndarray, several: bool) -> tuple[float, np.ndarray]:
    """The value above which a row holds no plan of interest; and a plan of each row, which may be of another shape."""
    known = best.top[-1].value if len(best.top) >= top else np.inf
    wanted = max(known, best.top[0].value * (1 + SIMPLER_WITHIN)) if best.top else np.inf
    values = sorted(entry.value for entry in best.cells.values())
    shapes = values[SHAPES - 1] if len(values) >= SHAPES else np.inf
    own = {cell: min(entry.value, shapes) for cell, entry in best.cells.items()}
    if not several:
        return min(wanted, reached), np.full(len(cells), min(wanted, reached))
    limits = np.full(len(cells), max(wanted, shapes))
    for cell, limit in own.items():
        limits[cells == cell] = max(wanted, limit)
    return min(wanted, reached), np.minimum(limits, reached)


def _proved(lattice: Lattice, value: PlanValue, number: int, best: Best, top: int) -> bool:
    """Whether no plan from this chunk on can be among the best few or a simpler one: too slow, or none that fits."""
    if lattice.floor_s is None:
        return False
    least = floor(lattice, value, number)
    if least == np.inf or len(best.top) < top:
        return least == np.inf
    reached = max(best.top[-1].value, best.top[0].value * (1 + SIMPLER_WITHIN))
    return least > reached * (1 + MARGIN)


def floor(lattice: Lattice, value: PlanValue, number: int) -> float:
    """A lower bound of the values in a chunk and in all that follow it."""
    if value.function is not None:
        return -np.inf
    if lattice.floor_s is None:
        return least_value(lattice, value, flop_bound_s(lattice))
    return _row_floor(lattice, value, int(np.searchsorted(lattice.ends, number * CHUNK, side="right")))


def _row_floor(lattice: Lattice, value: PlanValue, row: int) -> float:
    """A lower bound of the values of a row and of all that follow it."""
    assert lattice.floor_s is not None
    return least_value(lattice, value, float(lattice.floor_s[row]))


def chunk_count(lattice: Lattice) -> int:
    """Chunks of the whole lattice."""
    return -(-len(lattice) // CHUNK)


def evaluator(lattice: Lattice) -> Evaluate:
    """NumPy for small lattices, compiled batches for large ones: by the whole lattice, so that shares of it agree.

    Where rows stand in the order of their bounds, the first plans are evaluated by NumPy: often no more are needed.
    """
    first, later = in_numpy(lattice), compiled_batches(lattice)
    if len(lattice) < COMPILE_FROM:
        return first
    return later if lattice.floor_s is None else lambda chunk: _by_number(chunk, first, later)


def _by_number(chunk: Chunk, first: Evaluate, later: Evaluate) -> Cost:
    return (first if len(chunk) and chunk.indices[0] < COMPILE_FROM else later)(chunk)


def compiled_batches(lattice: Lattice) -> Evaluate:
    """Evaluation in float32 by one compiled program for all chunks."""

    def evaluate(chunk: Chunk) -> Cost:
        from costmodel.evaluators import compiled

        return compiled.batch_cost(lattice.workload, lattice.cluster, chunk.points, batch=CHUNK)

    return evaluate


MAKERS: dict[bool, Callable[[Lattice], Evaluate]] = {False: in_numpy, True: compiled_batches}
"""Evaluation in compiled batches, or not."""


def _best_of(chunk: Chunk, costs: Cost, value: PlanValue, best: Best, top: int, groups: bool = True) -> Best:
    """The best few of one chunk that may stand beside `best`, and of its groups, where somebody asks for them."""
    values, share = value(chunk, costs), chunk.lattice.needed(costs.peak_bytes, costs.second_bytes)
    sure = np.flatnonzero(share <= 1 - MARGIN)
    return Best(
        top=_top(chunk, values, share, value, best, top),
        cells=_least_of_groups(chunk.indices[sure], values[sure], cell_of(chunk)[sure]) if groups else {},
        levels=_least_of_groups(chunk.indices[sure], values[sure], level_of(chunk)[sure]) if groups else {},
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
    fits = chunk.lattice.needed(exact.peak_bytes, exact.second_bytes) <= 1
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


def cell_of(chunk: Chunk) -> np.ndarray:
    """Tensor and pipeline degree as one number."""
    return cells_of_rows(chunk.lattice)[chunk.row]


def level_of(chunk: Chunk) -> np.ndarray:
    """How many things a plan makes use of beyond data parallelism, ZeRO up to 2 and plain 1F1B."""
    c, usable = chunk.columns, int(chunk.lattice.cluster.tiers[0].usable_size)
    used = sum((c[name] > 1).astype(int) for name in ("tensor", "context", "pipeline", "expert", "expert_tensor"))
    used = used + (c["virtual_stages"] > 1) + (c["zero_stage"] > 2) + (c["data_shard"] > 0) + c["all_to_all"]
    used = used + (c["recompute"] > 0) + (c["recompute_share"] < 1) + (c["domain"] != usable)
    return used + np.isin(c["schedule"], [i for i, schedule in enumerate(SCHEDULES.values()) if schedule.splits])
