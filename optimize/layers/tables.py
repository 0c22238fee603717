"""Stages of one plan at one microbatch as tables: what is a constant of the stage plus so much for each layer.

`costmodel.graph.staged` is linear in the numbers of layers (by kind and recompute mode) but for a few terms, which stay
formulas here. So the tables are read off it once, and batches of thousands of candidates are then sums of products.
"""

import dataclasses
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.evaluators import prepare
from costmodel.formulas import Hops, StageKind, gathered_bytes, working_bytes
from costmodel.graph import MODES, StagedModel, StageSeconds, paths, staged
from costmodel.inputs import Cluster, Plan, Workload

SEM = Exact(np)
NAMES = (
    "forward_s", "backward_s", "update_s", "traffic_s",
    "held_bytes", "kept_bytes", "logits_bytes", "late_bytes", "update_bytes",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Linear:
    """`constant[..., stage] + sum of slope[..., stage, kind, mode] * layers[stage, kind, mode]`."""

    constant: np.ndarray
    slope: np.ndarray

    def of(self, layers: np.ndarray) -> np.ndarray:
        """Values for layers (batch, stage, kind, mode): an array (batch, ..., stage)."""
        return self.constant + np.einsum("...skm,bskm->b...s", self.slope, layers)


@dataclasses.dataclass(frozen=True, eq=False)
class Tables:
    """One microbatch size. Linear terms by the names of `NAMES` (gradient traffic only nearly so), and the others."""

    microbatch: int
    microbatches: int
    given: StagedModel
    at: StageKind
    hop: Hops
    host_s: float
    linear: dict[str, Linear]
    links: Linear
    working_bytes: np.ndarray  # (kind, mode): what one layer works with,
    fragmentation: float  # and the share of it that is lost, whenever the peak is
    gathered_bytes: np.ndarray  # (kind,): under ZeRO 3
    live: np.ndarray  # microbatches in flight of each stage, over those of the first

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return len(self.live)

    def ending_s(self, layers: np.ndarray, forward_s: np.ndarray, backward_s: np.ndarray) -> np.ndarray:
        """What each stage adds to the passes, exactly: (batch, stage)."""
        held = [[layers[..., k, :].sum(axis=-1)] for k in range(layers.shape[-2])]
        traffic_s = staged.traffic_s(self.given, held, self.at, SEM)
        update_s = self.linear["update_s"].of(layers)
        stage = StageSeconds(
            forward_s=forward_s, backward_s=backward_s, traffic_s=traffic_s, update_s=update_s, links_s=()
        )
        return staged.ending_s(stage, self.given, SEM)

    def peak_bytes(self, layers: np.ndarray) -> np.ndarray:
        """Bytes at the peak of each stage: (batch, stage)."""
        return peak_and_slopes(self, layers)[0]


def tables(workload: Workload, cluster: Cluster, plan: Plan, microbatch: int) -> Tables:
    """Read off the model. The plan's own recompute, schedule's stages and microbatch are left open by it."""
    chosen = dataclasses.replace(plan, microbatch=microbatch, recompute="none", recompute_share=1.0, stage_layers=None)
    numbers, machine, point = prepare(workload, cluster, chosen)
    given, stages = staged.model(numbers, machine, point, SEM), plan.pipeline
    places = [staged.where(stages, stage) for stage in range(stages)]
    names = ("remaining", "first", "last")
    at = StageKind(**{name: np.array([getattr(each, name) for each in places]) for name in names})
    kinds, fragmentation = len(given.kinds), machine.stack.fragmentation
    linear = _probed(given, at, kinds, stages, fragmentation)
    links = [linear.pop(f"links_{i}") for i in range(len(machine.tiers))]
    live = np.minimum(at.remaining, float(given.counted.microbatches))
    working = [[working_bytes(each)(kind) for each in given.points] for kind in given.kinds]
    return Tables(
        microbatch=microbatch,
        microbatches=round(float(given.counted.microbatches)),
        given=given,
        at=at,
        hop=staged.between(given, SEM),
        host_s=float(staged.host_s(given, SEM)),
        linear=linear,
        links=Linear(np.stack([each.constant for each in links]), np.stack([each.slope for each in links])),
        working_bytes=np.array(working),
        fragmentation=float(fragmentation),
        gathered_bytes=np.array([gathered_bytes(point, machine.stack)(kind) for kind in given.kinds]),
        live=live / live[0],
    )


def _probed(given: StagedModel, at: StageKind, kinds: int, stages: int, fragmentation: float) -> dict[str, Linear]:
    """One layer of everything on every stage, and one more of each in turn."""
    modes = len(MODES)
    probes = np.ones((1 + kinds * modes, stages, kinds, modes))
    probes[1:] += np.eye(kinds * modes).reshape(kinds * modes, 1, kinds, modes)
    held = [[probes[..., kind, mode] for mode in range(modes)] for kind in range(kinds)]
    times, memory = staged.seconds(given, held, at, SEM), staged.memory_of_stages(given, held, at, SEM)
    kept = memory.activations_bytes + memory.fragmentation_bytes
    values: dict[str, Any] = {
        **{name: getattr(times, name) for name in NAMES[:4]},
        "held_bytes": memory.held_bytes,
        "kept_bytes": kept - fragmentation * memory.working_bytes,
        "logits_bytes": memory.logits_bytes,
        "late_bytes": memory.late_bytes,
        "update_bytes": memory.update_bytes,
        **{f"links_{i}": seconds for i, seconds in enumerate(times.links_s)},
    }
    shape = probes.shape[:2]
    return {name: _linear(np.broadcast_to(value, shape), kinds, modes) for name, value in values.items()}


def _linear(values: np.ndarray, kinds: int, modes: int) -> Linear:
    slopes = (values[1:] - values[0]).T.reshape(-1, kinds, modes)
    return Linear(values[0] - slopes.sum(axis=(1, 2)), slopes)


def peak_and_slopes(table: Tables, layers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bytes at the peak of each stage (batch, stage), and their derivatives by its layers (..., kind, mode)."""
    held, kept, logits, late, update = (table.linear[name] for name in NAMES[4:])
    working, working_slope = _largest(layers, table.working_bytes)
    gathered, gathered_slope = _largest(layers, np.repeat(table.gathered_bytes[:, None], layers.shape[-1], axis=1))
    block, block_slope = working + gathered, working_slope + gathered_slope
    passes, passing_slope = _larger((logits.of(layers), logits.slope), (block, block_slope))
    passes = passes + kept.of(layers) + table.fragmentation * working
    passing_slope = passing_slope + kept.slope + table.fragmentation * working_slope
    ends, end_slope = _larger((update.of(layers), update.slope), (block, block_slope))
    most, slope = _larger((passes, passing_slope), (late.of(layers) + ends, late.slope + end_slope))
    return held.of(layers) + most, held.slope + slope


def _larger(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The larger of two values (batch, stage), and its derivatives (..., kind, mode)."""
    first = (one[0] >= other[0])[..., None, None]
    return np.maximum(one[0], other[0]), np.where(first, one[1], other[1])


def _largest(layers: np.ndarray, each_bytes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest of what is there (of less than one layer, that share), and its derivatives."""
    flat = (np.minimum(layers, 1.0) * each_bytes).reshape(*layers.shape[:-2], -1)
    chosen = np.eye(flat.shape[-1])[flat.argmax(axis=-1)].reshape(layers.shape)
    return flat.max(axis=-1), chosen * each_bytes * (layers < 1)


def chains_s(table: Tables, layers: np.ndarray) -> np.ndarray:
    """A bound of the step of each of a batch (batch, stage, kind, mode): chains, what follows on a stage, and host."""
    forward, backward = table.linear["forward_s"].of(layers), table.linear["backward_s"].of(layers)
    passes_s = longest_chain_s(table, forward, backward)
    return passes_s + table.ending_s(layers, forward, backward).max(axis=1) + table.host_s


def longest_chain_s(table: Tables, forward_s: np.ndarray, backward_s: np.ndarray) -> np.ndarray:
    """`staged.makespan_s` of a batch (batch, stage)."""
    chains, hop = paths(table.stages, table.microbatches), table.hop
    hops_s = np.array([chain.lone * hop.ends_s + chain.steady * hop.steady_s for chain in chains])
    by_stage = [np.array([getattr(chain, way) for chain in chains], dtype=float).T for way in ("forward", "backward")]
    return (forward_s @ by_stage[0] + backward_s @ by_stage[1] + hops_s).max(axis=1)
