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


def gradient_by_kinds(
    names: tuple[str, ...], of: str, hardware: bool, sem: Semantics, compiled: Compile
) -> Callable[[Workload, Cluster, PlanPoint], tuple[Scalar, dict[str, Scalar], Cluster | None]]:
    """Value, derivatives by `names` and, with `hardware`, by the cluster, by reverse differentiation over programs.

    There are three: each kind; the step and back; each kind back.
    """
    import jax

    def block_parts(block: Block, rest: Workload, cluster: Cluster, point: PlanPoint) -> BlockParts:
        return _block_parts(block, rest, cluster, point, sem)

    def pull_step(parts: tuple[BlockParts, ...], rest: Workload, cluster: Cluster, point: PlanPoint) -> Any:
        """The value, and its derivatives by the parts and by what else the step reads."""

        def objective(parts: tuple[BlockParts, ...], moved: Any) -> Scalar:
            return getattr(_finish(parts, rest, *_moved(moved, cluster, point), sem), of)

        value, pull = jax.vjp(objective, parts, movable(cluster, point))
        return value, *pull(jax.numpy.ones_like(value))

    def pull_block(
        slopes: Any, back: BlockParts, block: Block, rest: Workload, cluster: Cluster, point: PlanPoint
    ) -> Any:
        """`slopes`, and on top what goes through one block."""
        moving = movable(cluster, point)
        _, pull = jax.vjp(lambda moved: block_parts(block, rest, *_moved(moved, cluster, point)), moving)
        return jax.tree.map(jax.numpy.add, slopes, *pull(back))

    def movable(cluster: Cluster, point: PlanPoint) -> tuple[dict[str, Scalar], Cluster | None]:
        return {name: getattr(point, name) for name in names}, cluster if hardware else None

    forward, step, back = map(compiled, (block_parts, pull_step, pull_block))

    def differentiate(
        workload: Workload, cluster: Cluster, point: PlanPoint
    ) -> tuple[Scalar, dict[str, Scalar], Cluster | None]:
        rest, blocks = _split(workload)
        parts = tuple(forward(block, rest, cluster, point) for block in blocks)
        value, pulled, slopes = step(parts, rest, cluster, point)
        for block, own in zip(blocks, pulled, strict=True):
            slopes = back(slopes, own, block, rest, cluster, point)
        return value, *slopes

    return differentiate


def _moved(moved: Any, cluster: Cluster, point: PlanPoint) -> tuple[Cluster, PlanPoint]:
    by_name, machine = moved
    return cluster if machine is None else machine, dataclasses.replace(point, **by_name)
