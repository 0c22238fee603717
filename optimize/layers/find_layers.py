"""The best division of a plan's layers among its stages: descent, exact partition, repair, bound and validation."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping

import numpy as np

from costmodel import Shown
from costmodel.graph import MODES, play
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import COUNT, COUNT_FROM_0, FLAG, LEAF, Check, expecting
from optimize.layers.descent import EVALUATIONS, Relaxed, descend
from optimize.layers.exact import Segments, longest_run, segments, solve
from optimize.layers.one_f_one_b import played_s
from optimize.layers.problem import Candidate, LayeredProblem, problem
from optimize.layers.tables import chains_s
from optimize.status import Status
from optimize.versions import versions

_CHECKS = {
    "modes": Check(
        f"a tuple of one or more of {', '.join(MODES)}",
        lambda value: isinstance(value, tuple) and value != () and all(mode in MODES for mode in value),
    ),
    "microbatch": COUNT,
    "seed": COUNT_FROM_0,
    "seconds": LEAF,
    "descent": FLAG,
}
TRIED = 32  # splits of each microbatch that are played out and repaired
LONGER = 1.25  # than those of an even division: runs among which a first answer is looked for
ROUNDS = 20  # of repair
PLAYED = 12  # neighbours of each round
REPAIRED = 6  # starts of the descent


@dataclasses.dataclass(frozen=True, kw_only=True)
class LayersResult(Shown):
    """The answer. `lower_bound_s` holds for every contiguous division, recompute of each layer and microbatch."""

    status: Status
    message: str
    stage_layers: tuple[int, ...]
    recompute_by_block: tuple[str, ...]  # of each layer
    microbatch: int
    step_s: float  # played out
    lower_bound_s: float
    gap: float
    peak_bytes: float
    played_s: float  # the passes by `costmodel.graph.play`
    passes_s: float  # the same as searched
    descended_s: float | None  # the best that descent reached after rounding alone
    relaxed_s: tuple[float, ...]  # the best relaxed value, from step to step of the descent
    evaluations: int
    variables: int
    seconds: float
    seed: int
    versions: Mapping[str, str]


Watch = Callable[[float, int, Callable[[], Candidate]], None]
"""What is told of each better step: its seconds, how many were evaluated so far, and how to make its candidate."""


@dataclasses.dataclass
class _Best:
    """The best candidate so far, and who is told of it."""

    watch: Watch | None = None
    step_s: float = np.inf
    size: int = 0
    edges: tuple[int, ...] = ()
    modes: np.ndarray | None = None
    evaluations: int = 0


@expecting(**_CHECKS)
def find_layers(
    workload: Workload,
    cluster: Cluster,
    plan: Plan,
    *,
    modes: tuple[str, ...] = MODES,
    microbatch: int | None = None,
    seed: int = 0,
    seconds: float = 20.0,
    descent: bool = True,
    watch: Watch | None = None,
) -> LayersResult:
    """Improve a plan's layers by stage, recompute by layer and microbatch. Raises `CommandError` for a wrong plan.

    Where nothing fits the status says so and `step_s` is infinite. After `seconds` remaining microbatches are bounded
    by their products alone: the bound stays true. `watch` is told of what is better, as it is found.
    """
    start = time.perf_counter()
    asked = problem(workload, cluster, plan, modes=modes, microbatch=microbatch)
    best, bound_s = _Best(watch), np.inf
    for quick_s, size in sorted((_quick_bound_s(asked, size), size) for size in asked.microbatches):
        if quick_s >= best.step_s or time.perf_counter() - start > seconds:
            bound_s = min(bound_s, quick_s)
            continue
        bound_s = min(bound_s, _exactly(asked, size, best))
    bound_s = min(bound_s, best.step_s)
    descended = _descend(asked, best, seed) if descent and np.isfinite(best.step_s) else (None, [])
    return _result(asked, best, bound_s, descended, start, seed)


def _descend(asked: LayeredProblem, best: _Best, seed: int) -> tuple[float, list[float]]:
    """The best step that descent from random starts reaches at the best microbatch after rounding, cheapest recompute
    and repair, which is kept if it beats the exact partition's splits; and the relaxed values on the way.
    """
    own = _Best(best.watch, evaluations=best.evaluations)
    starts, relaxed_s = descend(Relaxed(*asked.at(best.size)), seed)
    runs = segments(*asked.at(best.size), 1 + int(np.diff(starts[:REPAIRED]).max()))
    for edges in starts[:REPAIRED]:
        _repair(asked, best.size, runs, edges, own)
    best.evaluations = own.evaluations + EVALUATIONS
    if own.step_s < best.step_s:
        best.step_s, best.edges, best.modes = own.step_s, own.edges, own.modes
    return own.step_s, relaxed_s


def _quick_bound_s(asked: LayeredProblem, size: int) -> float:
    """All layers without recompute, spread evenly: the second bound of `exact`."""
    table, plain = asked.tables[size], np.zeros((1, asked.stages, int(asked.kind_of_layer.max()) + 1, len(MODES)))
    plain[..., 0] = np.bincount(asked.kind_of_layer) / asked.stages
    once_s = (table.linear["forward_s"].of(plain) + table.linear["backward_s"].of(plain)).sum()
    return float((1 + (table.microbatches - 1) // asked.stages) * once_s + table.host_s)


def _exactly(asked: LayeredProblem, size: int, best: _Best) -> float:
    """Bound one microbatch, and try its best splits. Where there is no answer yet, runs a little longer than an even
    division's are enough for one, and with it for a limit of all runs."""
    table, near = asked.tables[size], 2 + math.ceil(LONGER * asked.layers / asked.stages)
    if not np.isfinite(best.step_s):
        _tried(asked, size, segments(*asked.at(size), near), best)
    most = longest_run(table, best.step_s) if np.isfinite(best.step_s) else None
    return _tried(asked, size, segments(*asked.at(size), most), best)


def _tried(asked: LayeredProblem, size: int, runs: Segments, best: _Best) -> float:
    """Repair the best splits into such runs; what no such split is below."""
    lower_bound_s, splits = solve(asked.tables[size], runs, at_most_s=best.step_s)
    for split, value_s in splits[:TRIED]:
        if value_s < best.step_s:
            _repair(asked, size, runs, np.array(split), best)
    return lower_bound_s


def _repair(asked: LayeredProblem, size: int, runs: Segments, edges: np.ndarray, best: _Best) -> None:
    """Move boundaries by a layer while the step gets shorter. Only neighbours whose bound is below are played."""
    own_s, table, near = np.inf, asked.tables[size], edges[None]
    for _ in range(ROUNDS):
        near = near[runs.fits(near)]
        if not len(near):
            return
        layers = runs.layers(near).astype(float)
        bounds_s = chains_s(table, layers)
        promising = np.argsort(bounds_s, kind="stable")[:PLAYED]
        promising = promising[bounds_s[promising] < own_s]
        if not len(promising):
            return
        step_s, over = asked.exact(size, layers[promising])
        step_s = np.where(over <= 0, step_s, np.inf)
        best.evaluations += len(promising)
        at = int(step_s.argmin())
        if step_s[at] >= own_s:
            return
        own_s, edges = float(step_s[at]), near[promising[at]]
        if own_s < best.step_s:
            best.step_s, best.size, best.edges = own_s, size, tuple(int(e) for e in edges)
            best.modes = layers[promising[at]]
            if best.watch is not None:
                best.watch(own_s, best.evaluations, functools.partial(asked.candidate, size, edges, best.modes))
        near = _neighbours(edges)


def _neighbours(edges: np.ndarray) -> np.ndarray:
    """One boundary moved by one layer; and whole runs of boundaries, which pass a layer from stage to stage."""
    return edges + _moves(len(edges))


@functools.cache
def _moves(edges: int) -> np.ndarray:
    first, last = np.triu_indices(edges - 1, k=1)
    place = np.arange(edges)
    moved = ((place > first[:, None]) & (place <= last[:, None])).astype(int)
    return np.stack([-moved, moved], axis=1).reshape(-1, edges)


def _result(
    asked: LayeredProblem,
    best: _Best,
    bound_s: float,
    descended: tuple[float | None, list[float]],
    start: float,
    seed: int,
) -> LayersResult:
    fits = best.modes is not None
    layers = best.modes if best.modes is not None else np.zeros(0)
    nothing = Candidate(microbatch=0, stage_layers=(), recompute=())
    candidate = asked.candidate(best.size, np.array(best.edges), layers) if fits else nothing
    passes_s, played_s, peak_bytes = _played(asked, best.size, layers) if fits else (np.inf,) * 3
    status = Status.ok if fits else Status.infeasible
    return LayersResult(
        status=status,
        message=status.value,
        stage_layers=candidate.stage_layers,
        recompute_by_block=candidate.recompute,
        microbatch=candidate.microbatch,
        step_s=best.step_s,
        lower_bound_s=bound_s,
        gap=best.step_s / bound_s - 1 if fits else np.inf,
        peak_bytes=peak_bytes,
        played_s=played_s,
        passes_s=passes_s,
        descended_s=descended[0],
        relaxed_s=tuple(descended[1]),
        evaluations=best.evaluations,
        variables=asked.variables,
        seconds=time.perf_counter() - start,
        seed=seed,
        versions=versions(),
    )


def _played(asked: LayeredProblem, size: int, layers: np.ndarray) -> tuple[float, float, float]:
    """The passes by both players, and the peak of the fullest stage."""
    table = asked.tables[size]
    forward, backward = (table.linear[name].of(layers[None])[0] for name in ("forward_s", "backward_s"))
    played = play(
        "one_f_one_b",
        asked.stages,
        table.microbatches,
        forward_s=tuple(map(float, forward)),
        backward_s=tuple(map(float, backward)),
        transfer_s=float(table.hop.ends_s),
        steady_transfer_s=float(table.hop.steady_s),
    )
    passes_s = played_s(forward[:, None], backward[:, None], table.hop, table.microbatches)[0]
    return float(passes_s), played.makespan_s, float(table.peak_bytes(layers[None]).max())
