r"""Contiguous stages and their recompute by dynamic programming, and with it a bound that holds for every such plan.

1. Recompute costs seconds and frees bytes, so of a stage that holds given layers only the cheapest choice of modes
   that fits in memory matters: every chain through a pipeline grows with it. Layers of one kind are interchangeable:
   the choices are numbers of layers by kind and mode, and their frontier (bytes freed, seconds) is enumerated.
2. For every split, with $t_s$ a stage's seconds for one microbatch, $w_s$ what its turns add and $e_s$ what follows
   the passes on it (`staged.paths`; transfers left out), for k = 1 and the most trips to the last stage and back,
       step >= sum t + max_s max(w_s, k sum_{i >= s} t_i + (m - 1 - k (p - s)) t_s) + e_s + host.
   For a ceiling on the second term the least $\sum t$ is a shortest path over boundaries, from the last stage to the
   first; intervals of ceilings whose ends show that nothing better lies inside are skipped. So the minimum is exact
   (to `CLOSE_ENOUGH`), and the bound includes integrality, order and memory.
"""

import dataclasses
import functools
import heapq
from collections.abc import Callable

import numpy as np

from costmodel.graph import MODES
from optimize.layers.tables import Tables

CLOSE_ENOUGH = 1e-6  # of the value: intervals nearer to the best are not divided
TINY_S = 1e-15  # of a layer that takes no time
MOST_CEILINGS = 4000  # that are looked at for one microbatch size; the bound is true wherever the search stops


@dataclasses.dataclass(frozen=True, eq=False)
class Segments:
    """Runs of layers from i on, by their number, on every stage: the cheapest modes that fit, and what they add to a
    step."""

    modes: np.ndarray  # (stage, run, kind, mode): layers
    run_of: np.ndarray  # (i, layers): which run, or -1
    seconds: np.ndarray  # (stage, i, layers): one microbatch, both ways; infinite where it does not fit
    turns_s: np.ndarray  # (stage, i, layers): w and what follows the passes
    ending_s: np.ndarray  # (stage, i, layers): what follows the passes, at least

    @property
    def most(self) -> int:
        """Layers of the longest run."""
        return self.run_of.shape[1] - 1

    def layers(self, edges: np.ndarray) -> np.ndarray:
        """Layers of the stages between boundaries (..., stage + 1), which `fits`: (..., stage, kind, mode)."""
        runs = self.run_of[edges[..., :-1], np.diff(edges)]
        return self.modes[np.arange(runs.shape[-1]), runs]

    def fits(self, edges: np.ndarray) -> np.ndarray:
        """Whether every stage has layers, no more than the longest run, and can hold them: (...)."""
        held, stages = np.diff(edges), np.arange(edges.shape[-1] - 1)
        seconds = self.seconds[stages, edges[..., :-1], np.clip(held, 0, self.most)]
        return np.asarray((np.isfinite(seconds) & (held > 0) & (held <= self.most)).all(axis=-1))


Splits = list[tuple[tuple[int, ...], float]]
"""Boundaries between stages (first 0, last all layers), and a bound of each; best first."""


def segments(
    table: Tables, kind_of_layer: np.ndarray, limit_bytes: float, allowed: tuple[int, ...], most: int | None = None
) -> Segments:
    """Solve the recompute of every run of layers on every stage, of at most so many. `allowed` are indices of modes."""
    longest = len(kind_of_layer) - table.stages + 1  # no stage is empty
    most = longest if most is None else min(most, longest)
    counts, run_of = _runs(kind_of_layer, table.linear["held_bytes"].slope.shape[1], most)
    modes, feasible = _cheapest(table, counts, limit_bytes, allowed)
    seconds, turns, ending = _seconds(table, modes, allowed)
    seconds[~feasible] = np.inf
    bands = [np.where(run_of >= 0, each[:, run_of], np.inf) for each in (seconds, turns, ending)]
    return Segments(modes=modes, run_of=run_of, seconds=bands[0], turns_s=bands[1], ending_s=bands[2])


def longest_run(table: Tables, step_s: float) -> int:
    """How many layers a stage may have in a shorter step: it runs every microbatch of each, one after the other."""
    once_s = (table.linear["forward_s"].constant + table.linear["backward_s"].constant).min()
    each_s = (table.linear["forward_s"].slope + table.linear["backward_s"].slope).min()
    left = (step_s - table.host_s) / table.microbatches - once_s
    return max(1, int(left / max(each_s, TINY_S) * (1 + CLOSE_ENOUGH)))


def solve(table: Tables, runs: Segments, at_most_s: float = np.inf) -> tuple[float, Splits]:
    """The least bound over all splits, infinite where none fits, and the splits met on the way.

    Best first over intervals of ceilings. Nothing above `at_most_s` is looked at: the bound is then that.
    """
    trips, bounds = [_trips(stage, table) for stage in range(table.stages)], dict[tuple[int, ...], float]()

    def value(sum_s: float, ceiling_s: float) -> float:
        return sum_s + ceiling_s + table.host_s

    sum_s, high, edges = _shortest(runs, trips, np.inf)
    if edges is None:
        return np.inf, []
    bound_s = best_s = bounds[edges] = value(sum_s, high)
    waiting, looked = [(value(sum_s, 0.0), 0.0, high, sum_s)], 1
    while waiting:
        bound_s, low, high, sum_s = heapq.heappop(waiting)
        if bound_s >= min(best_s * (1 - CLOSE_ENOUGH), at_most_s) or looked >= MOST_CEILINGS:
            break
        middle, looked = 0.5 * (low + high), looked + 1
        less_s, reached, edges = _shortest(runs, trips, middle)
        heapq.heappush(waiting, (value(sum_s, middle), middle, high, sum_s))
        if edges is not None:
            bounds.setdefault(edges, value(less_s, reached))
            best_s = min(best_s, value(less_s, reached))
            heapq.heappush(waiting, (value(less_s, low), low, reached, less_s))
    return min(bound_s, best_s), sorted(bounds.items(), key=lambda pair: pair[1])


Trips = list[tuple[int, int, float]]
"""Ways of a chain past a stage: trips from it to the end and back, turns on it beside them, transfers on the way."""


def _shortest(runs: Segments, trips: list[Trips], ceiling_s: float) -> tuple[float, float, tuple[int, ...] | None]:
    """The least sum of seconds of a split that keeps the ceiling, the ceiling that it would need, and its boundaries.

    From the last stage to the first: of all ways to divide the layers from one on among the last stages, the one
    of least sum also leaves most room to the stages before it.
    """
    count = runs.seconds.shape[1] - 1
    rest, ahead, needs = np.full(count + 1 + runs.most, np.inf), [], []  # no layers are left beyond the last
    rest[count] = 0.0
    for stage in reversed(range(len(runs.seconds))):
        ways = runs.seconds[stage] + np.lib.stride_tricks.sliding_window_view(rest, runs.most + 1)
        need = runs.turns_s[stage]
        for again, turns, hops_s in trips[stage]:
            after_s = again * ways + hops_s + runs.ending_s[stage]
            need = np.maximum(need, after_s + turns * runs.seconds[stage] if turns else after_s)  # not 0 * infinity
        ways = np.where(need <= ceiling_s, ways, np.inf)
        ahead.append(ways.argmin(axis=1))
        needs.append(need)
        rest[: count + 1] = ways.min(axis=1)
    if not np.isfinite(rest[0]):
        return np.inf, ceiling_s, None
    edges, reached = [0], 0.0
    for follow, need in zip(reversed(ahead), reversed(needs), strict=True):
        held = int(follow[edges[-1]])
        reached = max(reached, float(need[edges[-1], held]))
        edges.append(edges[-1] + held)
    return float(rest[0]), reached, tuple(edges)


def _trips(stage: int, table: Tables) -> Trips:
    p, m, hop = table.stages, table.microbatches, table.hop
    ways = []
    for trips in {1, (m - 1) // (p - stage)} if m > p - stage else ():
        hops_s = 2 * (p - 1) * hop.ends_s + 2 * trips * (p - 1 - stage) * hop.steady_s
        ways.append((trips, m - 1 - trips * (p - stage), float(hops_s)))
    return ways


def _runs(kind_of_layer: np.ndarray, kinds: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The different runs of layers by their number of each kind, and which of them so many layers from i on are."""
    count = len(kind_of_layer)
    before = np.zeros((count + 1, kinds), dtype=int)
    np.cumsum(np.eye(kinds, dtype=int)[kind_of_layer], axis=0, out=before[1:])
    starts, held = np.nonzero(np.add.outer(np.arange(count + 1), np.arange(1, most + 1)) <= count)
    runs, which = np.unique(before[starts + held + 1] - before[starts], axis=0, return_inverse=True)
    run_of = np.full((count + 1, most + 1), -1)
    run_of[starts, held + 1] = which.ravel()
    return runs, run_of


def _cheapest(
    table: Tables, counts: np.ndarray, limit_bytes: float, allowed: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Modes (stage, run, kind, mode) with the least recompute that fit, and whether any do."""
    kinds, stages = counts.shape[1], table.stages
    plain = np.zeros((len(counts), stages, kinds, len(MODES)))
    plain[..., 0] = counts[:, None]
    kept, held = table.linear["kept_bytes"], table.linear["held_bytes"].of(plain)
    gathered = (np.minimum(counts, 1) * table.gathered_bytes).max(axis=-1)[:, None]
    over = held + kept.of(plain) - limit_bytes  # (run, stage), before loss and working memory
    loss, late, update = (table.linear[f"{name}_bytes"].of(plain) for name in ("logits", "late", "update"))
    freed = kept.slope[0, :, :1] - kept.slope[0]  # (kind, mode), on the first stage
    again_s = table.linear["backward_s"].slope[0] - table.linear["backward_s"].slope[0, :, :1]
    best_s = np.full((stages, len(counts)), np.inf)
    modes = np.moveaxis(plain, 0, 1).copy()
    frontier = _frontiers(freed, again_s)
    for working in np.unique(np.append(table.working_bytes[:, list(allowed)], 0.0)):
        may = tuple(tuple(m for m in allowed if table.working_bytes[k, m] <= working) for k in range(kinds))
        if not all(may):
            continue
        for run, held_layers in enumerate(counts):
            beside = table.fragmentation * working + np.maximum(loss[run], gathered[run] + working)
            need = (over[run] + beside) / table.live
            bytes_, seconds, choices = frontier(tuple(held_layers), may)
            at = np.searchsorted(bytes_, need)
            ends = held[run] + late[run] + np.maximum(update[run], gathered[run] + working)
            enough = (at < len(bytes_)) & (ends <= limit_bytes)
            cost_s = np.where(enough, seconds[np.minimum(at, len(bytes_) - 1)], np.inf)
            better = cost_s < best_s[:, run]
            best_s[better, run] = cost_s[better]
            modes[better, run] = choices[at[better]]
    return modes, np.isfinite(best_s)


Frontier = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Choices of modes for given layers that no other one beats in bytes freed and in seconds: bytes, which rise from point
to point, seconds, which do not fall, and layers by kind and mode."""
Counts = tuple[int, ...]


def _frontiers(freed: np.ndarray, again_s: np.ndarray) -> Callable[[Counts, tuple[Counts, ...]], Frontier]:
    """Frontiers of so many layers of each kind under the modes that each may have, kept as they are asked for."""

    @functools.cache
    def frontier(layers: Counts, may: tuple[Counts, ...]) -> Frontier:
        kinds = [kind for kind, n in enumerate(layers) if n]
        if len(kinds) == 1:
            ways = _divisions(layers[kinds[0]], len(may[kinds[0]]))
            choices = np.zeros((len(ways), *freed.shape), dtype=int)
            choices[:, kinds[0], list(may[kinds[0]])] = ways
        else:
            rest = tuple(0 if kind == kinds[-1] else n for kind, n in enumerate(layers))
            alone = tuple(n if kind == kinds[-1] else 0 for kind, n in enumerate(layers))
            choices = (frontier(rest, may)[2][:, None] + frontier(alone, may)[2][None]).reshape(-1, *freed.shape)
        bytes_, seconds = (np.einsum("nkm,km->n", choices, each) for each in (freed, again_s))
        kept = _undominated(bytes_, seconds)
        return bytes_[kept], seconds[kept], choices[kept]

    return frontier


def _divisions(count: int, parts: int) -> np.ndarray:
    """All ways to divide a number of layers among so many modes, one a row."""
    grid = np.indices((count + 1,) * (parts - 1)).reshape(parts - 1, -1).T
    grid = grid[grid.sum(axis=1) <= count]
    return np.column_stack([count - grid.sum(axis=1), grid])


def _undominated(bytes_: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Indices of points, bytes rising: none of them is below another in bytes and at or above it in seconds."""
    order = np.lexsort((seconds, -bytes_))  # most bytes first
    least = np.minimum.accumulate(np.append(np.inf, seconds[order]))[:-1]
    return order[seconds[order] < least][::-1]


def _seconds(table: Tables, modes: np.ndarray, allowed: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """Seconds of each (stage, run): one microbatch; its turns with the least that can follow them; and that alone."""
    layers, p, m = np.moveaxis(modes, 0, 1).astype(float), table.stages, table.microbatches
    forward, backward = table.linear["forward_s"].of(layers), table.linear["backward_s"].of(layers)
    most = np.zeros_like(layers)
    most[..., max(allowed)] = layers.sum(axis=-1)
    longest = np.maximum(backward, table.linear["backward_s"].of(most))
    ending = table.ending_s(layers, forward, longest)
    beyond = np.arange(p)[::-1]
    cold = np.maximum(m - (beyond + 1), 0)
    turns = np.maximum((m - 1) * backward + cold * forward, (m - 1) * forward + cold * backward)
    steady = beyond * (m > 1)
    hops = (2 * (p - 1) - steady) * table.hop.ends_s + steady * table.hop.steady_s
    return (forward + backward).T, (turns + ending + hops).T, ending.T
