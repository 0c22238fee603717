"""Compiled evaluators of workloads with many kinds of layer: small programs for each kind, and one for the step.

One fused program of them all computes what kinds share once for each sum that reads it: the gradient of Swin's seven
kinds takes minutes to compile and runs at a twentieth of the rate. So the evaluation is cut twice, where few numbers
pass: between each block and the step, and between the step's sums and their maxima (`work` and `finished` of cost.py).
Kinds of one operator structure share a program.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from costmodel.formulas import BlockCounts, BlockPasses, Cost, OpCounts, OpTimes, counts, finished, timing, work
from costmodel.inputs import Block, Cluster, PlanPoint, Position, Workload
from costmodel.semantics import Scalar, Semantics

T = TypeVar("T")
BlockParts = tuple[BlockCounts, BlockPasses]
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]

KINDS_TOGETHER = 3
"""Kinds of layer up to which one fused program is fastest."""


def many_kinds(workload: Workload) -> bool:
    """Whether the workload has more kinds of layer than one program should hold."""
    return sum(block.position == Position.LAYER for block in workload.blocks) > KINDS_TOGETHER


def cost_by_kinds(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Cost:
    """`cost` as one program in which no kind is fused with another, nor with the step."""
    rest, blocks = _split(workload)
    parts = tuple(_apart(_block_parts(block, rest, cluster, point, sem), point) for block in blocks)
    return _finish(parts, rest, cluster, point, sem)


def _cut(counted: OpCounts, times: OpTimes, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Cost:
    """The cost, with the sums of a step computed before its maxima."""
    todo = _apart(work(counted, times, point, cluster, sem), point)
    return finished(counted, times, todo, point, cluster, sem).cost


def _split(workload: Workload) -> tuple[Workload, tuple[Block, ...]]:
    """The workload without blocks, and its blocks without names: kinds of one structure are then one trace."""
    return dataclasses.replace(workload, blocks=()), tuple(dataclasses.replace(b, name="") for b in workload.blocks)


def _block_parts(block: Block, rest: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> BlockParts:
    counted = counts(dataclasses.replace(rest, blocks=(block,)), point, sem)
    return counted.blocks[0], timing(counted, point, cluster, sem).blocks[0]


def _finish(parts: tuple[BlockParts, ...], rest: Workload, cluster: Cluster, point: PlanPoint, sem: Semantics) -> Cost:
    """The step and the memory of blocks that are evaluated. (Times of blocks that `timing` takes again go unused.)"""
    counted = dataclasses.replace(counts(rest, point, sem), blocks=tuple(counted for counted, _ in parts))
    times = timing(counted, point, cluster, sem)
    times = dataclasses.replace(times, blocks=tuple(passes for _, passes in parts))
    return _cut(counted, times, cluster, point, sem)


def _apart(tree: T, point: PlanPoint) -> T:
    """`tree`, computed before anything that reads it: a branch on a value is where fusion ends on CPUs.

    (`jax.lax.optimization_barrier` is expanded before fusion there.) Degrees are positive, so the branch is the first.
    """
    import jax
    from jax import numpy as jnp

    legal = jnp.ravel(point.tensor)[0] > 0
    return jax.lax.cond(legal, lambda tree: tree, lambda tree: jax.tree.map(lambda x: x * jnp.nan, tree), tree)


class GradientByKinds:
    """Value and derivatives by reverse differentiation over programs: each kind, the step and back, each kind back."""

    def __init__(self, names: tuple[str, ...], of: str, hardware: bool, sem: Semantics, compiled: Compile) -> None:
        self.names, self.of, self.hardware, self.sem = names, of, hardware, sem
        self._forward, self._step, self._back = (compiled(f) for f in (self._parts, self._pull_step, self._pull_block))

    def __call__(
        self, workload: Workload, cluster: Cluster, point: PlanPoint
    ) -> tuple[Scalar, dict[str, Scalar], Cluster | None]:
        """Value, derivatives by `names` and, with `hardware`, by the cluster."""
        rest, blocks = _split(workload)
        parts = tuple(self._forward(block, rest, cluster, point) for block in blocks)
        value, pulled, slopes = self._step(parts, rest, cluster, point)
        for block, back in zip(blocks, pulled, strict=True):
            slopes = self._back(slopes, back, block, rest, cluster, point)
        return value, *slopes

    def _parts(self, block: Block, rest: Workload, cluster: Cluster, point: PlanPoint) -> BlockParts:
        return _block_parts(block, rest, cluster, point, self.sem)

    def _pull_step(self, parts: tuple[BlockParts, ...], rest: Workload, cluster: Cluster, point: PlanPoint) -> Any:
        """The value, and its derivatives by the parts and by what else the step reads."""
        import jax

        def objective(parts: tuple[BlockParts, ...], moved: Any) -> Scalar:
            machine, there = self._moved(moved, cluster, point)
            return getattr(_finish(parts, rest, machine, there, self.sem), self.of)

        value, pull = jax.vjp(objective, parts, self._movable(cluster, point))
        return value, *pull(jax.numpy.ones_like(value))

    def _pull_block(
        self, slopes: Any, back: BlockParts, block: Block, rest: Workload, cluster: Cluster, point: PlanPoint
    ) -> Any:
        """`slopes`, and on top what goes through one block."""
        import jax

        def parts(moved: Any) -> BlockParts:
            machine, there = self._moved(moved, cluster, point)
            return _block_parts(block, rest, machine, there, self.sem)

        _, pull = jax.vjp(parts, self._movable(cluster, point))
        return jax.tree.map(jax.numpy.add, slopes, *pull(back))

    def _movable(self, cluster: Cluster, point: PlanPoint) -> tuple[dict[str, Scalar], Cluster | None]:
        return {name: getattr(point, name) for name in self.names}, cluster if self.hardware else None

    def _moved(self, moved: Any, cluster: Cluster, point: PlanPoint) -> tuple[Cluster, PlanPoint]:
        by_name, machine = moved
        return cluster if machine is None else machine, dataclasses.replace(point, **by_name)
