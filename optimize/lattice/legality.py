"""The rules of `costmodel.violations`, as masks over arrays of plans: the same verdict, thousands of plans at once.

A column is an integer array; columns broadcast. Each rule reads few columns, so that the lattice can ask it where only
those are known. `tests/lattice/test_lattice.py` compares every mask with `violations` on random plans.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.formulas import domain_sizes
from costmodel.inputs import PRECISION_TYPES, SCHEDULES, Cluster, Kind, Split, Workload, is_expert, layers
from costmodel.specs import tensor_sizes

Column = Any
"""An integer array, or one integer."""

Columns = Mapping[str, Column]


@dataclasses.dataclass(frozen=True)
class Rules:
    """What the rules compare with, read once from a workload and a cluster."""

    workload: Workload
    cluster: Cluster
    tensor_divides: tuple[int, ...]
    tensor_limits: tuple[int, ...]  # divisors or multiples of them
    heads: tuple[int, ...]
    has_experts: bool
    expert_divides: tuple[tuple[str, int], ...]  # name of the degree, and what it divides
    layers: int

    def degrees(self, c: Columns) -> Column:
        """Rules of the degrees alone, microbatch and domain included."""
        batch, sequence = int(self.workload.batch), int(self.workload.sequence)
        legal = (c["tensor"] * c["context"] * c["data"] * c["pipeline"] == int(self.cluster.accelerators)) & (
            batch % (c["data"] * c["microbatch"]) == 0
        )
        legal = legal & (sequence % c["context"] == 0) & self.tensor(c["tensor"]) & self.experts(c)
        return legal & self.domain(c["domain"]) & self._degrees_nest(c)

    def tensor(self, tensor: Column) -> Column:
        """Heads and widths divide; key-value heads divide or are replicated evenly."""
        legal = np.asarray(tensor) > 0
        for value in self.tensor_divides:
            legal = legal & (value % tensor == 0)
        for limit in self.tensor_limits:
            legal = legal & ((limit % tensor == 0) | (tensor % limit == 0))
        return legal

    def experts(self, c: Columns) -> Column:
        """The second mesh divides the first, experts and their columns divide over it."""
        mesh, ranks = c["expert"] * c["expert_tensor"], c["tensor"] * c["context"] * c["data"]
        if not self.has_experts:
            return mesh == 1
        legal = ranks % mesh == 0
        for name, value in self.expert_divides:
            legal = legal & (value % c[name] == 0)
        return legal

    def domain(self, domain: Column) -> Column:
        """Within the innermost tier, and dividing the accelerators where they fill more than one."""
        count = int(self.cluster.accelerators)
        fills = (count <= domain) | (count % domain == 0)
        return (np.asarray(domain) <= self.cluster.tiers[0].size) & fills

    def sequence_parallel(self, tensor: Column, context: Column, chosen: Column) -> Column:
        """Off or on, by tensor and context."""
        divides = (tensor > 1) & (int(self.workload.sequence) % (tensor * context) == 0)
        off = ~np.asarray(chosen, bool)
        return (off & ((tensor == 1) | (not self.has_experts))) | (~off & divides)

    def context_kind(self, tensor: Column, context: Column, all_to_all: Column) -> Column:
        """All-to-all divides the heads by both degrees."""
        legal = np.ones(np.broadcast_shapes(np.shape(tensor), np.shape(context)), bool)
        for heads in self.heads:
            legal = legal & (heads % (tensor * context) == 0)
        return legal | (context == 1) | ~np.asarray(all_to_all, bool)

    def schedule(self, name: str, pipeline: Column, virtual: Column, microbatches: Column) -> Column:
        """Virtual stages and the least number of microbatches of one schedule."""
        schedule = SCHEDULES[name]
        legal = microbatches >= schedule.least_microbatches(pipeline)
        if schedule.folds:
            legal = legal & (pipeline >= 2)
        if schedule.interleaves:
            return legal & (virtual >= 2) & (pipeline >= 2) & (microbatches % pipeline == 0)
        return legal & (virtual == 1)

    def stages(self, name: str, pipeline: Column, virtual: Column, given: Sequence[int] | None = None) -> Column:
        """Layers divide over stages and virtual stages, or those that do not go to some stages (`even_layers`).

        `given` are the layers of each stage where a user fixes them.
        """
        schedule = SCHEDULES[name]
        chunks = pipeline * virtual * (2 if schedule.folds else 1)
        divides, uneven = self.layers % chunks == 0, not schedule.splits
        if given is not None:
            whole = (pipeline == len(given)) & (sum(given) == self.layers) & (virtual <= min(given))
            return whole & uneven
        shared = (self.layers % pipeline != 0) & (self.layers // pipeline >= np.maximum(virtual, 1))
        return divides | (shared & uneven)

    def shards(self, c: Columns) -> Column:
        """Ranks that share weights: a divisor of data x context, groups that nest; all of them is 0 here."""
        ranks, given = c["data"] * c["context"], c["data_shard"]
        shard = np.where(given == 0, ranks, given)
        legal = (given == 0) | ((ranks % shard == 0) & (c["zero_stage"] > 0))
        shard = np.where(c["zero_stage"] > 0, shard, 1)
        replica = np.maximum(1, ranks // shard)
        groups = [(shard, c["tensor"]), (replica, c["tensor"] * shard)]
        mesh = c["expert"] * c["expert_tensor"]
        holders = np.maximum(1, c["tensor"] * ranks // mesh)
        own = np.where(c["zero_stage"] > 0, np.minimum(holders, np.where(given == 0, ranks, given)), 1)
        apart = mesh > 1
        groups += [(np.where(apart, own, 1), mesh), (np.where(apart, np.maximum(1, holders // own), 1), mesh * own)]
        return legal & self._nest(groups, c["domain"])

    def precision(self, name: str) -> bool:
        """Whether the accelerator has the type."""
        return PRECISION_TYPES[name] in self.cluster.accelerator.types

    def _degrees_nest(self, c: Columns) -> Column:
        stage = c["tensor"] * c["data"] * c["context"]
        mesh = c["expert"] * c["expert_tensor"]
        groups = [(c["tensor"], 1), (c["context"], c["tensor"]), (c["pipeline"], stage)]
        groups += [(c["expert_tensor"], 1), (np.where(mesh > 1, c["expert"], 1), c["expert_tensor"])]
        return self._nest(groups, c["domain"])

    def _nest(self, groups: list[tuple[Column, Column]], domain: Column) -> Column:
        """`placement.nests` of every group (size, stride) in the domains of every tier but the last."""
        legal = np.True_
        if self.cluster.partial_domains:
            return legal
        count = int(self.cluster.accelerators)
        for size in domain_sizes(self.cluster.tiers, np.asarray(domain, float))[:-1]:
            for group, stride in groups:
                block = group * stride
                inside = (group == 1) | (count <= size) | (stride >= size) | (size % block == 0)
                legal = legal & (inside | ((size % stride == 0) & (block % size == 0)))
        return legal


def rules(workload: Workload, cluster: Cluster) -> Rules:
    """Read what the rules need."""
    sizes = {size for size, _ in tensor_sizes(workload)}
    ops = [op for block in workload.blocks for op in block.ops]
    experts = [op for op in ops if is_expert(op)]
    divides = {
        (name, int(size.value))
        for op in experts
        if op.kind != Kind.LOOKUP
        for size in (*op.groups, *op.columns, *op.inner)
        for name in (Split.EXPERT, Split.EXPERT_TENSOR)
        if name in size.split
    }
    return Rules(
        workload=workload,
        cluster=cluster,
        tensor_divides=tuple(sorted({int(size.value) for size in sizes if size.limit is None})),
        tensor_limits=tuple(sorted({int(size.limit) for size in sizes if size.limit is not None})),
        heads=tuple(sorted({int(size.value) for op in ops if op.kind == Kind.ATTENTION for size in op.groups})),
        has_experts=bool(experts),
        expert_divides=tuple(sorted(divides)),
        layers=layers(workload),
    )
