"""Cases of one structure stacked into arrays, so that thousands of rows are one evaluation of `cost`.

Everything that is a number becomes an array of one value for each case: sizes of the workload, leaves of the cluster
(its stack among them) and of the point. Options are rows of numbers, so plans of all kinds share a batch. What remains
is the structure: the operators, the number of tiers, the algorithm of the all-reduce.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from costmodel.exact import Exact
from costmodel.formulas import StageMemory, allocated_bytes, device_bytes, parts, reserved_bytes
from costmodel.inputs import Accelerator, Cluster, PlanPoint, Stack, Tier, Workload, embed, options
from costmodel.measured.rows.records import Case
from costmodel.models import run_by

T = TypeVar("T")
_LABELLED = (Workload, Cluster, Accelerator, Tier, Stack)
_LABELS = (
    "name",
    "widths",
    "types",
    "partial_domains",
    "software",
    "habits",
)  # static fields of these that no formula reads


@dataclasses.dataclass(frozen=True, kw_only=True)
class Batch:
    """Cases of one structure. `indices` are their places among the cases that were stacked."""

    indices: np.ndarray
    workload: Workload
    cluster: Cluster
    point: PlanPoint


def stacked(cases: Sequence[Case]) -> list[Batch]:
    """All cases in as few batches as there are structures."""
    groups: dict[Any, list[int]] = {}
    known: dict[int, Any] = {}  # structures by object: rows share their blocks and their clusters

    def structure(part: Any) -> Any:
        if id(part) not in known:
            known[id(part)] = _structure(part)
        return known[id(part)]

    for index, case in enumerate(cases):
        key = structure(adapted(case).blocks), structure(case.cluster), _kind_of(case)
        groups.setdefault(key, []).append(index)
    return [_batch([cases[i] for i in indices], np.array(indices)) for indices in groups.values()]


def _kind_of(case: Case) -> tuple[bool, bool]:
    """What gives points a structure of their own: a second memory, modules that are computed again alone."""
    return case.plan.offloads, bool(options.modules_of(case.plan.recompute))


DEVICE, TENSORS, ALLOCATED = range(3)
"""Bytes as the device's driver counts, with what the allocator keeps unused; of the framework's allocator, with what is
lost between allocations, but not the context, not the communicators; of that, what tensors and workspaces hold."""
FIRST, LAST, FULLEST = range(3)
"""Stages of the pipeline of which a figure may be."""


class Figures(NamedTuple):
    """Time and memory, one value of each for each case."""

    step_s: np.ndarray
    peak_bytes: np.ndarray  # that a plan needs
    shown_bytes: np.ndarray  # by what is counted, by stage, and by case

    @property
    def device_bytes(self) -> np.ndarray:
        """On the fullest stage, as the device's driver counts."""
        return self.shown_bytes[DEVICE, FULLEST]

    @property
    def tensor_bytes(self) -> np.ndarray:
        """Of the framework's allocator there."""
        return self.shown_bytes[TENSORS, FULLEST]

    @property
    def allocated_bytes(self) -> np.ndarray:
        """What of that tensors and workspaces hold."""
        return self.shown_bytes[ALLOCATED, FULLEST]


def evaluated(cases: Sequence[Case]) -> Figures:
    """Time and memory of each case, exactly, whether or not its plan keeps to all rules."""
    number = len(cases)
    figures = Figures(np.full(number, np.nan), np.full(number, np.nan), np.full((3, 3, number), np.nan))
    with np.errstate(all="ignore"):
        for batch in stacked(cases):
            result = parts(batch.workload, batch.cluster, batch.point, Exact(np))
            memory = result.memory
            stages = (memory.first, memory.last, memory.second)
            figures.step_s[batch.indices] = result.step.step_s
            figures.peak_bytes[batch.indices] = memory.peak_bytes
            figures.shown_bytes[..., batch.indices] = shown_bytes(stages, batch.cluster, len(batch.indices))
    return figures


def shown_bytes(stages: Sequence[StageMemory], cluster: Cluster, number: int) -> np.ndarray:
    """What `number` cases show: on the first of these stages, on the second as the last, on the fullest of all."""
    exact = Exact(np)
    found = np.empty((3, 3, number))
    for what, of in ((DEVICE, device_bytes), (TENSORS, reserved_bytes), (ALLOCATED, allocated_bytes)):
        own = [np.broadcast_to(of(stage, cluster, exact), number) for stage in stages]
        found[what] = own[0], own[1], np.maximum.reduce(own)
    return found


def point(case: Case) -> PlanPoint:
    """The point of a case's plan, with option rows as its software has them."""
    domain = case.cluster.tiers[0].usable_size
    return embed(case.plan, case.workload, domain=domain, habits=case.cluster.stack.habits)  # pyright: ignore[reportArgumentType]


def _batch(cases: list[Case], indices: np.ndarray) -> Batch:
    return Batch(
        indices=indices,
        workload=_stack([adapted(case) for case in cases], _same_workload),
        cluster=_stack([case.cluster for case in cases], id),
        point=_stack([point(case) for case in cases], id),
    )


def adapted(case: Case) -> Workload:
    """The workload with operators as the software of the case has them."""
    return run_by(case.workload, case.cluster.stack.habits)


def _same_workload(workload: Workload) -> tuple[int, Any]:
    """Workloads of the same dimensions share their blocks and differ in the batch."""
    return id(workload.blocks), workload.batch


def _stack(trees: Sequence[T], key: Callable[[Any], Any]) -> T:
    """One tree of arrays. Trees of the same `key` are read once."""
    first: dict[Any, int] = {}
    unique: list[T] = []
    place = np.empty(len(trees), dtype=int)
    for i, tree in enumerate(trees):
        place[i] = first.setdefault(key(tree), len(unique))
        if place[i] == len(unique):
            unique.append(tree)
    table = np.array([_leaves(tree) for tree in unique], dtype=float)
    columns = iter(np.ascontiguousarray(table[place].T))
    return _rebuilt(trees[0], columns)


@functools.cache
def _fields(cls: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the fields that hold numbers or subtrees, and of the static ones."""
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    static = tuple(f.name for f in fields if f.metadata.get("static"))
    return tuple(f.name for f in fields if f.name not in static), static


def _leaves(tree: Any) -> list[float]:
    leaves: list[float] = []
    _add_leaves(tree, leaves)
    return leaves


def _add_leaves(tree: Any, leaves: list[float]) -> None:
    if isinstance(tree, float):
        leaves.append(tree)
    elif isinstance(tree, tuple):
        for item in tree:
            _add_leaves(item, leaves)
    elif isinstance(tree, int):
        leaves.append(float(tree))
    elif tree is not None:
        for name in _fields(type(tree))[0]:
            _add_leaves(getattr(tree, name), leaves)


def _rebuilt(tree: Any, columns: Iterator[np.ndarray]) -> Any:
    if dataclasses.is_dataclass(tree):
        data, static = _fields(type(tree))
        same = {name: getattr(tree, name) for name in static}
        own = {name: _rebuilt(getattr(tree, name), columns) for name in data}
        return type(tree)(**same, **own)  # pyright: ignore[reportCallIssue]
    if isinstance(tree, tuple):
        return tuple(_rebuilt(item, columns) for item in tree)
    return None if tree is None else next(columns)


def _structure(tree: Any) -> Any:
    """What must be equal for two trees to share a batch."""
    if dataclasses.is_dataclass(tree):
        data, static = _fields(type(tree))
        ignored = _LABELS if isinstance(tree, _LABELLED) else ()
        own = tuple(getattr(tree, name) for name in static if name not in ignored)
        return (type(tree).__name__, own, tuple(_structure(getattr(tree, name)) for name in data))
    if isinstance(tree, tuple):
        return tuple(map(_structure, tree))
    return tree is None
