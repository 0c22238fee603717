r"""Time and memory of pipeline stages of which each holds its own layers, of several kinds and recompute modes.

The closed forms (cost.py, memory.py) know a plain stage of the mean layers and what the first and the last have
beyond it. Here every stage has its own: how many layers of each kind (of Swin's stages, of an encoder and a decoder,
of dense and expert layers) under each recompute mode. The stages are the last axis of every array; the numbers of
layers may be fractions. The formulas are those of counts, timing, cost and memory, given a stage's own layers.

The step of a 1F1B pipeline is the longest of its critical paths (`paths`): sums of passes with counts that are never
negative, so its logarithm is convex in the logarithms of rates and latencies.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

from costmodel.formulas import (
    BlockCounts,
    BlockPasses,
    Hops,
    OpCounts,
    OpTimes,
    SavedBytes,
    StageKind,
    StageMemory,
    counts,
    gathered_bytes,
    gradient_traffic_s,
    hops,
    links_by_tier_s,
    optimizer_s,
    stage_memory,
    timing,
    working_bytes,
)
from costmodel.inputs import RECOMPUTES, Cluster, PlanPoint, Position, Workload
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total

MODES = tuple(RECOMPUTES)
"""Names of the recompute modes, in the order of every axis of modes."""

Held = Sequence[Sequence[Scalar]]
"""Layers of each kind (as the workload lists them) and, inside, of each mode: a number, or one for each stage. None
under a mode that no layer of the kind has (for memory alone: a maximum over what is there is then one over fewer)."""


class StagedModel(NamedTuple):
    """One workload under one plan's degrees: what does not depend on where its layers lie."""

    counted: OpCounts
    times: tuple[OpTimes, ...]  # by mode
    points: tuple[PlanPoint, ...]  # by mode
    cluster: Cluster

    @property
    def kinds(self) -> tuple[BlockCounts, ...]:
        """Kinds of layer, in the order of the model."""
        return self.counted.layers


@pytree
class StageSeconds:
    """Seconds of each stage: one microbatch forward and backward (all gradients and recompute), and what follows."""

    forward_s: Scalar
    backward_s: Scalar
    traffic_s: Scalar  # of gradients, once a step
    update_s: Scalar
    links_s: tuple[Scalar, ...]  # by tier, once a step


def model(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> StagedModel:
    """Counts and times of all blocks under every recompute mode."""
    points = tuple(dataclasses.replace(point, recompute=row) for row in cluster.stack.habits.recompute_rows().values())
    counted = counts(workload, points[0], sem)
    times = tuple(timing(counted, each, cluster, sem) for each in points)
    return StagedModel(counted=counted, times=times, points=points, cluster=cluster)


def where(stages: int, stage: int) -> StageKind:
    """One stage of a pipeline."""
    return StageKind(remaining=float(stages - stage), first=float(stage == 0), last=float(stage == stages - 1))


def seconds(given: StagedModel, held: Held, at: StageKind, sem: Semantics) -> StageSeconds:
    """Seconds of stages that hold such layers. Embedding and head are never recomputed."""
    plain, point = given.times[0], given.points[0]
    layers = [each.layers for each in given.times]
    half_s = 0.5 * plain.microbatch_s
    forward_s = total(total(n) * block.forward_s for n, block in zip(held, layers[0], strict=True))
    backward_s = total(
        held[kind][mode] * (block.backward_s + block.weights.seconds)
        for mode, blocks in enumerate(layers)
        for kind, block in enumerate(blocks)
    )
    edges = [(block, at.first if block.position == Position.FIRST else at.last) for block in _edges(plain)]
    return StageSeconds(
        forward_s=forward_s + total(there * b.repeats * b.forward_s for b, there in edges) + half_s,
        backward_s=backward_s
        + total(there * b.repeats * (b.backward_s + b.weights.seconds) for b, there in edges)
        + half_s,
        traffic_s=traffic_s(given, held, at, sem),
        update_s=optimizer_s(
            _own(given, held, at), point, given.cluster.accelerator, given.cluster.stack, plain.rates, sem
        ),
        links_s=_links_s(given, held, at, sem),
    )


def traffic_s(given: StagedModel, held: Held, at: StageKind, sem: Semantics) -> Scalar:
    """Gradient traffic of each stage, once a step."""
    return gradient_traffic_s(_own(given, held, at), given.times[0].laws, given.points[0], sem)


def memory_of_stages(given: StagedModel, held: Held, at: StageKind, sem: Semantics) -> StageMemory:
    """Bytes of stages that hold such layers, term by term."""
    point, stack = given.points[0], given.cluster.stack
    own = _own(given, held, at)
    split = [block for block in own.blocks if block.position != Position.LAYER]
    split += [_under(kind, n, given.points[mode]) for kind, mode, n in _parts(given, held)]
    counted = dataclasses.replace(own, blocks=tuple(split))
    found = stage_memory(counted, point, at, stack, sem)
    present = [(block, sem.minimum(n, 1.0), given.points[mode]) for block, mode, n in _parts(given, held)]
    working = sem.maximum(*(there * working_bytes(each)(block) for block, there, each in present))
    gathered = sem.maximum(*(there * gathered_bytes(each, stack)(block) for block, there, each in present))
    return dataclasses.replace(
        found,
        working_bytes=working,
        gathered_bytes=gathered,
        fragmentation_bytes=found.fragmentation_bytes + stack.fragmentation * working,
    )


def between(given: StagedModel, sem: Semantics) -> Hops:
    """One transfer of a microbatch's activations to the next stage."""
    return hops(given.counted, given.times[0], sem)


def ending_s(stage: StageSeconds, given: StagedModel, sem: Semantics) -> Scalar:
    """What each stage adds to the passes: gradient traffic that one microbatch does not hide, and its update."""
    hide, k, traffic_s = given.times[0].hide, given.times[0].contention, stage.traffic_s
    late_s = sem.maximum(traffic_s - hide.data * (stage.forward_s + stage.backward_s), 0.0)
    return (1 - k) * late_s + k * traffic_s + stage.update_s


def host_s(given: StagedModel, sem: Semantics) -> Scalar:
    """What the host adds to a step."""
    stack = given.cluster.stack
    return stack.step_s + stack.jitter_s * sem.log2(given.points[0].accelerators)


class Path(NamedTuple):
    """A chain of operations that follow one another: how many of each kind on each stage, and transfers between."""

    forward: tuple[int, ...]
    backward: tuple[int, ...]
    lone: int  # transfers of the first microbatch's activations and the last one's gradients
    steady: int


def paths(stages: int, microbatches: int) -> tuple[Path, ...]:
    r"""Chains of a 1F1B pipeline: no step is shorter than any of them.

    Stage $s$ runs $w = \min(p - s, m)$ forwards before its first backward. From its first backward on it has $m - 1$
    backwards and $m - w$ forwards to do; before its last forward the same the other way round; in between each trip
    to the last stage and back brings it $w$ microbatches further.
    """
    chains: list[Path] = []
    for stage in range(stages):
        chains += _paths_of(stage, stages, microbatches)
    return tuple(dict.fromkeys(chains))


def makespan_s(
    chains: Sequence[Path], forward_s: Sequence[Scalar], backward_s: Sequence[Scalar], hop: Hops, sem: Semantics
) -> Scalar:
    """The longest of the chains, given the seconds of each stage."""
    return sem.maximum(*(_path_s(chain, forward_s, backward_s, hop) for chain in chains))


def _path_s(chain: Path, forward_s: Sequence[Scalar], backward_s: Sequence[Scalar], hop: Hops) -> Scalar:
    passes_s = total(n * s for n, s in zip(chain.forward + chain.backward, (*forward_s, *backward_s), strict=True))
    return passes_s + chain.lone * hop.ends_s + chain.steady * hop.steady_s


def _paths_of(stage: int, stages: int, m: int) -> list[Path]:
    warm, beyond = min(stages - stage, m), stages - 1 - stage
    before = tuple(int(i < stage) for i in range(stages))
    every, own = (1,) * stages, tuple(int(i == stage) for i in range(stages))
    after = tuple(int(i >= stage) for i in range(stages))
    lone, steady = (2 * (stages - 1), 0) if m == 1 else (2 * (stages - 1) - beyond, beyond)
    chains = [
        Path(_sum((1, before), (m, own)), _sum((1, before), (m, own)), 2 * stage, 0),
        Path(_sum((1, every), (m - warm, own)), _sum((1, every), (m - 1, own)), lone, steady),
        Path(_sum((1, every), (m - 1, own)), _sum((1, every), (m - warm, own)), lone, steady),
    ]
    for trips in {1, (m - 1) // (stages - stage)} if m > stages - stage else ():
        turns = _sum((1, every), (trips, after), (m - 1 - trips * (stages - stage), own))
        chains.append(Path(turns, turns, 2 * (stages - 1), 2 * trips * beyond))
    return chains


def _sum(*terms: tuple[int, tuple[int, ...]]) -> tuple[int, ...]:
    columns = zip(*(tuple(n * entry for entry in vector) for n, vector in terms), strict=True)
    return tuple(map(sum, columns))


def _edges(times: OpTimes) -> list[BlockPasses]:
    return [block for block in times.blocks if block.position != Position.LAYER]


def _parts(given: StagedModel, held: Held) -> list[tuple[BlockCounts, int, Scalar]]:
    """Kinds of layer under each mode, with their numbers."""
    pairs = zip(given.kinds, held, strict=True)
    return [(block, mode, n) for block, ns in pairs for mode, n in enumerate(ns) if n is not None]


def _under(block: BlockCounts, layers: Scalar, point: PlanPoint) -> BlockCounts:
    """The block with what it keeps under a point's recompute row, as many times as a mean over stages asks for. What it
    works with counts once."""
    row, saved = point.recompute, block.saved
    kept = SavedBytes(
        input=saved.input,
        core=row.keep_core * saved.core,
        rest=row.keep_rest * saved.rest,
        modules=None if saved.modules is None else saved.modules.scaled(row.keep_rest),
    )
    return dataclasses.replace(block, repeats=layers * point.pipeline, saved=kept, flowing_bytes=0.0)


def _own(given: StagedModel, held: Held, at: StageKind, edges: bool = True) -> OpCounts:
    """The counts of a pipeline all of whose stages hold these layers: their mean is what one stage holds."""
    left, blocks = [total(n for n in modes if n is not None) for modes in held], []
    for block in given.counted.blocks:
        if block.position == Position.LAYER:
            blocks.append(dataclasses.replace(block, repeats=left.pop(0) * given.points[0].pipeline))
        elif edges:
            there = at.first if block.position == Position.FIRST else at.last
            blocks.append(dataclasses.replace(block, repeats=there * block.repeats))
    return dataclasses.replace(given.counted, blocks=tuple(blocks))


def _links_s(given: StagedModel, held: Held, at: StageKind, sem: Semantics) -> tuple[Scalar, ...]:
    """Seconds by tier. Layers of each mode send what their mode repeats; what crosses stage boundaries is sent once."""
    by_mode = []
    for mode, point in enumerate(given.points):
        own = _own(given, [[modes[mode]] for modes in held], at, edges=mode == 0)
        own = dataclasses.replace(own, boundary_bytes=own.boundary_bytes if mode == 0 else 0.0)
        by_mode.append(links_by_tier_s(own, given.times[mode].laws, point, sem))
    return tuple(map(total, zip(*by_mode, strict=True)))
