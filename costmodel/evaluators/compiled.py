"""Compiled evaluators: millions of plans, or gradients, a second.

`value` and `gradient` are jitted once for each operator structure and number of tiers: plans, option rows, model sizes
and hardware are traced numbers. `batch_cost` and `batch_gradient` run them over arrays of any length in padded batches
of one length, from Python (a loop inside a program, or a reduction fused to it, costs XLA its SIMD code). JAX is
imported when the first evaluator is made.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from costmodel.evaluators.compiled_kinds import cost_by_kinds, gradient_by_kinds, many_kinds
from costmodel.evaluators.machine_code import Packed, packed, stored
from costmodel.evaluators.programs import COMPILER_OPTIONS, anonymous, in_jax
from costmodel.exact import Exact
from costmodel.formulas import Cost, cost
from costmodel.inputs import Cluster, PlanPoint, Workload
from costmodel.pytree import map_leaves
from costmodel.semantics import Scalar

T = TypeVar("T")

VALUE_BATCH = 65_536  # the fastest lengths of the same experiment
MANY_KINDS_BATCH = (
    16_384  # parts that pass between kinds and step leave the caches beyond: a fifth of the rate at 65,536
)
GRADIENT_BATCH = 2_048

DEGREES = ("tensor", "context", "pipeline", "virtual_stages", "microbatch", "copies")
"""The fields of a point that a plan may relax."""


class Gradient(NamedTuple):
    """Derivatives of one field of `Cost` at each point."""

    value: Scalar
    plan: dict[str, Scalar]
    cluster: Cluster | None  # with respect to every number of the cluster and its stack, where asked for


Evaluator = Callable[[Workload, Cluster, PlanPoint], Any]


@functools.cache
def value() -> Callable[[Workload, Cluster, PlanPoint], Cost]:
    """The compiled `cost`. Pass leaves of one dtype; `anonymous` keeps names from tracing it again.

    For calls from Python: inside a JAX program of your own call `cost.cost` (JAX takes compiler options outside only).
    """
    return _compile(value_program(), "value")


def gradient(
    names: tuple[str, ...] = DEGREES, of: str = "step_s", hardware: bool = False
) -> Callable[[Workload, Cluster, PlanPoint], Gradient]:
    """The compiled value and gradient of `of` (a field of `Cost`), each field of the point an array of its own.

    With `hardware`, also by the cluster; its leaves must then be arrays over the batch, or their derivatives are sums.
    Workloads of many kinds of layer take several programs (compiled_kinds.py). Programs are kept in the user's cache,
    compiled apart from this process (machine_code.py), where all leaves are arrays of float32.
    """
    return _gradient(names, of, hardware)


def value_program() -> Callable[[Workload, Cluster, PlanPoint], Cost]:
    """What `value` compiles."""
    semantics = in_jax()

    def evaluate(workload: Workload, cluster: Cluster, point: PlanPoint) -> Cost:
        return _cost(workload, cluster, point, semantics)

    return evaluate


def _cost(workload: Workload, cluster: Cluster, point: PlanPoint, sem: Exact) -> Cost:
    """`cost`, in parts that XLA does not fuse where there are many kinds of layer."""
    return (cost_by_kinds if many_kinds(workload) else cost)(workload, cluster, point, sem)


def gradient_program(
    names: tuple[str, ...] = DEGREES, of: str = "step_s", hardware: bool = False
) -> Callable[[Workload, Cluster, PlanPoint], Gradient]:
    """What `gradient` compiles."""
    import jax

    semantics = in_jax()

    def differentiate(workload: Workload, cluster: Cluster, point: PlanPoint) -> Gradient:
        def objective(moved: dict[str, Scalar], machine: Cluster) -> Scalar:
            there = dataclasses.replace(point, **moved)
            return getattr(_cost(workload, machine, there, semantics), of)

        moved = {name: getattr(point, name) for name in names}
        if hardware:
            result, pull = jax.vjp(objective, moved, cluster)
            by_plan, by_cluster = pull(jax.numpy.ones_like(result))
            return Gradient(result, by_plan, by_cluster)
        result, pull = jax.vjp(lambda moved: objective(moved, cluster), moved)
        (by_plan,) = pull(jax.numpy.ones_like(result))
        return Gradient(result, by_plan, None)

    return differentiate


@functools.cache
def _gradient(names: tuple[str, ...], of: str, hardware: bool) -> "_Differentiate":
    return _Differentiate(names, of, hardware)


class _Differentiate:
    """One program where kinds of layer are few, from the user's cache if possible; `lower` is that of JAX."""

    def __init__(self, names: tuple[str, ...], of: str, hardware: bool) -> None:
        self._make, self._stored, self._last = functools.partial(gradient_program, names, of, hardware), {}, ()
        self._result = functools.partial(Gradient, 0.0, dict.fromkeys(names, 0.0))
        self._hardware = hardware
        self._together = _compile(gradient_program(names, of, hardware), "gradient")
        self._by_kinds = gradient_by_kinds(names, of, hardware, in_jax(), functools.partial(_compile, role="gradient"))
        self.lower = self._together.lower

    def __call__(self, workload: Workload, cluster: Cluster, point: PlanPoint) -> Gradient:
        if many_kinds(workload):
            return Gradient(*self._by_kinds(workload, cluster, point))
        parts = (*self._fixed(workload, cluster), packed(point))
        if any(shapes is None for *_, shapes in parts):
            return self._together(workload, cluster, point)
        key = tuple(form for _, *forms in parts for form in forms)
        if key not in self._stored:
            result = self._result(cluster if self._hardware else None)
            self._stored[key] = stored(self._make, (workload, cluster, point), result)
        return self._stored[key](*(arrays for arrays, *_ in parts))

    def _fixed(self, workload: Workload, cluster: Cluster) -> tuple[Packed, Packed]:
        """Both packed, once for all points that are asked for in turn."""
        if not self._last or self._last[0] is not workload or self._last[1] is not cluster:
            self._last = workload, cluster, (packed(workload), packed(cluster))
        return self._last[2]


def _compile(program: Callable[..., Any], role: str) -> Any:
    import jax

    return jax.jit(program, compiler_options={**COMPILER_OPTIONS[role]})


def batch_cost(workload: Workload, cluster: Cluster, points: PlanPoint, batch: int | None = None) -> Cost:
    """`cost` in float32 of every point, as NumPy arrays. Fields of `points` are arrays of one length, or numbers.

    Every length runs in batches of `batch` (the last one padded), so all lengths share one program.
    """
    best = MANY_KINDS_BATCH if many_kinds(workload) else VALUE_BATCH
    return _in_batches(value(), workload, cluster, points, batch or best)


def batch_gradient(
    workload: Workload,
    cluster: Cluster,
    points: PlanPoint,
    names: tuple[str, ...] = DEGREES,
    of: str = "step_s",
    batch: int = GRADIENT_BATCH,
) -> Gradient:
    """`gradient` in float32 at every point with respect to fields of the plan, in padded batches, as NumPy arrays."""
    return _in_batches(gradient(names, of), workload, cluster, points, batch)


def _in_batches(evaluator: Evaluator, workload: Any, cluster: Any, points: PlanPoint, batch: int) -> Any:
    """The evaluator's results over all points, joined: outputs are written in place, so that one copy is held."""
    import jax

    length = _length(points)
    own_arrays = isinstance(evaluator, _Differentiate) and not many_kinds(workload)  # it packs them
    workload, cluster = (map_leaves(np.float32, anonymous(tree)) for tree in (workload, cluster))
    if length > batch and not own_arrays:
        workload, cluster = jax.device_put((workload, cluster))
    joined: list[np.ndarray] = []
    tree = None
    for start, piece in _pieces(points, length, batch):
        leaves, tree = jax.tree.flatten(evaluator(workload, cluster, piece))
        joined = joined or [np.empty(length, np.float32) for _ in leaves]
        stop = min(start + batch, length)
        for whole, part in zip(joined, leaves, strict=True):
            whole[start:stop] = np.broadcast_to(np.asarray(part), batch)[: stop - start]
    return jax.tree.unflatten(tree, joined)


def _length(points: PlanPoint) -> int:
    shapes: set[tuple[int, ...]] = set()
    map_leaves(lambda leaf: shapes.add(np.shape(leaf)), points)
    shapes.discard(())
    if len(shapes) != 1 or len(next(iter(shapes))) != 1 or shapes == {(0,)}:
        raise ValueError(f"`points` has fields of shapes {sorted(shapes)}; expected arrays of one length above 0")
    return shapes.pop()[0]


def _pieces(points: PlanPoint, length: int, batch: int) -> Iterator[tuple[int, PlanPoint]]:
    """Batches of one length and dtype; numbers become arrays, the last point fills up the last batch."""

    def piece(leaf: Any, start: int) -> np.ndarray:
        part = np.atleast_1d(np.asarray(leaf[start : start + batch] if np.ndim(leaf) else leaf, np.float32))
        if part.size == batch:
            return part
        padded = np.full(batch, part[-1])
        padded[: part.size] = part
        return padded

    for start in range(0, length, batch):
        yield start, map_leaves(functools.partial(piece, start=start), points)
