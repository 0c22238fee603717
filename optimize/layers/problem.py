"""Layers of every stage, the recompute of every layer and the microbatch of a pipeline, all at once.

The problem: a plan's degrees are given; the layers, in the order of the model, are divided among the stages of a 1F1B
pipeline; every layer recomputes nothing, its attention or all; every stage must fit in memory. The value is the step
with the pipeline played out (`one_f_one_b`), each stage with its own layers (`costmodel.graph.staged`).

A candidate is a vector of [0, 1]^n: the microbatch, one weight for each stage and one number for each layer, 100 to
1,000 of them for models of 90 layers and more. Descent and black boxes see the same vectors (`decode`, `score`).
"""

import dataclasses
import functools
import itertools

import numpy as np

from costmodel.formulas import limit_bytes
from costmodel.graph import MODES
from costmodel.inputs import Cluster, Plan, Position, Workload, layers, options
from optimize.layers.one_f_one_b import played_s
from optimize.layers.tables import Tables, tables
from optimize.status import CommandError, Status

TOO_MUCH = 10.0  # in the penalised score, for each share of the memory that is missing


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One division of the layers: everything whole."""

    microbatch: int
    stage_layers: tuple[int, ...]
    recompute: tuple[str, ...]  # of each layer, in the model's order


@dataclasses.dataclass(frozen=True, eq=False)
class LayeredProblem:
    """A workload, a cluster, and a plan of which the degrees and all options but those searched here are kept."""

    workload: Workload
    cluster: Cluster
    plan: Plan
    microbatches: tuple[int, ...]  # sizes that are legal, in sequences
    allowed: tuple[int, ...] = tuple(range(len(MODES)))

    @functools.cached_property
    def tables(self) -> dict[int, Tables]:
        """Tables of each microbatch."""
        return {size: tables(self.workload, self.cluster, self.plan, size) for size in self.microbatches}

    @functools.cached_property
    def kind_of_layer(self) -> np.ndarray:
        """The index of each layer's kind, in the model's order."""
        repeats = [int(block.repeats) for block in self.workload.blocks if block.position == Position.LAYER]
        return np.repeat(np.arange(len(repeats)), repeats)

    @property
    def layers(self) -> int:
        """Layers of the whole model."""
        return len(self.kind_of_layer)

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.plan.pipeline

    @property
    def variables(self) -> int:
        """Numbers of a candidate's vector."""
        return 1 + self.stages + self.layers

    @property
    def limit_bytes(self) -> float:
        """Memory of one accelerator, with the stack's margin off."""
        return float(limit_bytes(self.cluster))

    def at(self, size: int) -> tuple[Tables, np.ndarray, float, tuple[int, ...]]:
        """What the searches of one microbatch read: its tables, the layers' kinds, the memory, the modes."""
        return self.tables[size], self.kind_of_layer, self.limit_bytes, self.allowed

    def decode(self, x: np.ndarray) -> Candidate:
        """The candidate of one vector."""
        which, edges, modes = self.divisions(np.asarray(x, dtype=float)[None])
        return Candidate(
            microbatch=self.microbatches[int(which[0])],
            stage_layers=tuple(int(n) for n in np.diff(edges[0])),
            recompute=tuple(MODES[mode] for mode in modes[0]),
        )

    def encode(self, candidate: Candidate) -> np.ndarray:
        """A vector that decodes to this."""
        extra = np.array(candidate.stage_layers) - 1.0
        modes = [self.allowed.index(MODES.index(name)) for name in candidate.recompute]
        size = self.microbatches.index(candidate.microbatch)
        inside = [(size + 0.5) / len(self.microbatches)], (np.array(modes) + 0.5) / len(self.allowed)
        return np.concatenate([inside[0], extra / max(1.0, extra.max()), inside[1]])

    def candidate(self, size: int, edges: np.ndarray, layers: np.ndarray) -> Candidate:
        """The division at these boundaries with so many layers (stage, kind, mode): within a stage, the layers of each
        kind that recompute most come first."""
        names: list[str] = []
        for (start, end), rows in zip(itertools.pairwise(edges), layers, strict=True):
            left = {
                kind: [name for mode in reversed(range(len(MODES))) for name in [MODES[mode]] * round(row[mode])]
                for kind, row in enumerate(rows)
            }
            names += [left[int(kind)].pop(0) for kind in self.kind_of_layer[start:end]]
        return Candidate(microbatch=size, stage_layers=tuple(int(n) for n in np.diff(edges)), recompute=tuple(names))

    def score(self, x: np.ndarray) -> np.ndarray:
        """Penalised seconds of a step of each vector of a batch (batch, n): the exact ones where every stage fits."""
        step_s, over = self.evaluate(x)
        return step_s * (1 + TOO_MUCH * np.maximum(over, 0.0))

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Exact seconds of a step of what each vector decodes to, and its fullest stage over the memory, minus one."""
        which, edges, modes = self.divisions(np.asarray(x, dtype=float))
        step_s, over = np.empty(len(which)), np.empty(len(which))
        for i in np.unique(which):
            chosen = which == i
            layers = self.by_stage(edges[chosen], modes[chosen])
            step_s[chosen], over[chosen] = self.exact(self.microbatches[i], layers)
        return step_s, over

    def exact(self, size: int, layers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same for layers (batch, stage, kind, mode) at one microbatch."""
        table = self.tables[size]
        forward, backward = table.linear["forward_s"].of(layers), table.linear["backward_s"].of(layers)
        passes_s = played_s(forward.T, backward.T, table.hop, table.microbatches)
        after_s = table.ending_s(layers, forward, backward).max(axis=1) + table.host_s
        step_s = np.maximum(passes_s + after_s, table.links.of(layers).max(axis=(1, 2)))
        return step_s, table.peak_bytes(layers).max(axis=1) / self.limit_bytes - 1

    def by_stage(self, edges: np.ndarray, modes: np.ndarray) -> np.ndarray:
        """Layers (batch, stage, kind, mode) between boundaries (batch, stage + 1), of modes (batch, layer)."""
        kinds = int(self.kind_of_layer.max()) + 1
        one = np.zeros((*modes.shape, kinds, len(MODES)))
        rows, layers = np.indices(modes.shape)
        one[rows, layers, self.kind_of_layer[layers], modes] = 1.0
        before = np.concatenate([np.zeros_like(one[:, :1]), one.cumsum(axis=1)], axis=1)
        return np.diff(before[np.arange(len(edges))[:, None], edges], axis=1)

    def divisions(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Index of the microbatch, boundaries and modes of a batch. Every stage has a layer; the others by weight."""
        sizes, p = len(self.microbatches), self.stages
        which = np.minimum((x[:, 0] * sizes).astype(int), sizes - 1)
        weights = x[:, 1 : 1 + p] + 1e-9
        shares = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
        edges = np.zeros((len(x), p + 1), dtype=int)
        edges[:, 1:] = np.arange(1, p + 1) + np.rint((self.layers - p) * shares)
        modes = np.minimum((x[:, 1 + p :] * len(self.allowed)).astype(int), len(self.allowed) - 1)
        return which, edges, np.array(self.allowed)[modes]


def problem(
    workload: Workload, cluster: Cluster, plan: Plan, *, modes: tuple[str, ...] = MODES, microbatch: int | None = None
) -> LayeredProblem:
    """Check what is asked, and find the legal microbatches. Raises `CommandError`."""
    if not 1 < plan.pipeline <= layers(workload):
        told = f"`pipeline` is {plan.pipeline}; expected 2 to the {layers(workload)} layers"
        raise CommandError(Status.bad_input, told)
    if plan.offloads:
        raise CommandError(Status.bad_input, "the plan offloads; expected none where layers are placed one by one")
    if plan.pieces > 1:
        told = f"`pieces` is {plan.pieces}; expected 1 where layers are placed one by one"
        raise CommandError(Status.bad_input, told)
    if options.modules_of(plan.recompute):
        told = f"the plan computes {plan.recompute} again; expected one of {', '.join(MODES)} where layers choose"
        raise CommandError(Status.bad_input, told)
    if plan.accelerators != cluster.accelerators:
        asked = f"`accelerators` of the plan is {plan.accelerators}"
        raise CommandError(Status.bad_input, f"{asked}; expected the {cluster.accelerators} of the cluster")
    unknown = [name for name in modes if name not in MODES]
    if unknown or not modes:
        raise CommandError(Status.bad_input, f"`modes` has {unknown}; expected some of {', '.join(MODES)}")
    sequences, rest = divmod(int(workload.batch), plan.data)
    sizes = tuple(b for b in range(1, sequences + 1) if sequences % b == 0 and microbatch in (None, b))
    if rest or not sizes:
        told = f"`microbatch` is {microbatch} and `data` {plan.data}"
        raise CommandError(Status.bad_input, f"{told}; expected divisors of the batch of {workload.batch}")
    kept = dataclasses.replace(plan, schedule="one_f_one_b", virtual_stages=1)
    allowed = tuple(sorted(MODES.index(name) for name in modes))
    return LayeredProblem(workload, cluster, kept, sizes, allowed)
