"""All legal plans of a question as a lattice: degrees, then the options of each of their rows."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Workload
from costmodel.specs import PLAN_CHECKS, SpecError, demands, fail, kept, nearest, violations
from optimize.lattice.axes import Remembered, recompute_axis, shards_axis, stages_axis, switches_axis
from optimize.lattice.axis import DEGREES, Axis, wanted
from optimize.lattice.degrees import rows_of_degrees
from optimize.lattice.lattice import CHUNK, Chunk, Lattice, as_run


def lattice(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], every_shard: bool = True) -> Lattice:
    """All legal plans that keep the fields in `fixed`. A set among its values allows any of its members.

    Without `every_shard` weights are shared by all of data x context or by the ranks inside one domain alone. The
    workload of the lattice has the operators that the cluster's software has.
    """
    _check_fields(fixed)
    workload = as_run(workload, cluster, fixed)
    whole = _lattice(workload, cluster, fixed, every_shard, half=True)
    return whole if len(whole) else _lattice(workload, cluster, fixed, every_shard, half=False)


def _lattice(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], every_shard: bool, half: bool) -> Lattice:
    asked = demands(workload, cluster)
    keeps = functools.partial(kept, asked)
    parts = list(rows_of_degrees(asked, keeps, fixed, half))
    rows = {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, int) for name in DEGREES}
    shards = functools.partial(shards_axis, every=every_shard)
    makers = (stages_axis, shards, switches_axis, recompute_axis) if len(rows["tensor"]) else ()
    axes = tuple(make(asked, keeps, rows, fixed) for make in makers)
    bare = Lattice(workload, cluster, _single(fixed), rows, axes, np.zeros(0, int))
    return _with_plans(bare)


def within(whole: Lattice, fixed: Mapping[str, Any], made: dict[Any, Any]) -> Lattice:
    """The plans of a lattice that keep more fields, in its order; with `lattice`'s own rows where it has none of them.

    Its bounds stay, which hold for fewer plans too; whoever changes more than the options must leave them out. Rows and
    axes that were `made` for other fields are taken from there.
    """
    _check_fields(fixed)
    kept_rows = np.logical_and.reduce([wanted(fixed, name, whole.rows[name]) for name in DEGREES])
    if not kept_rows.any():
        return lattice(whole.workload, whole.cluster, fixed)
    asked, keys, axes = demands(whole.workload, whole.cluster), [], []
    rows = made.setdefault("rows", Remembered(whole.rows))
    for make, names in _AXES:
        keys.append((make.__name__, *(str(_listed(fixed.get(name))) for name in names)))
        if keys[-1] not in made:
            made[keys[-1]] = make(asked, functools.partial(kept, asked), rows, fixed)
        axes.append(made[keys[-1]])
    sizes = np.where(kept_rows, _sizes(axes), 0)
    places = np.flatnonzero(sizes)
    some = places.tobytes()
    if some not in made:
        made[some] = dataclasses.replace(whole, axes=()).with_rows(places)
    for place, key in enumerate(keys):
        if (key, some) not in made:
            made[key, some] = axes[place].at(places)
        axes[place] = made[key, some]
    ends = np.cumsum(sizes[places])
    return _if_legal(dataclasses.replace(made[some], fixed=_single(fixed), axes=tuple(axes), ends=ends))


_AXES: tuple[tuple[Callable[..., Axis], tuple[str, ...]], ...] = (
    (stages_axis, ("schedule", "virtual_stages", "stage_layers")),
    (shards_axis, ("zero_stage", "data_shard", "precision")),
    (switches_axis, ("sequence_parallel", "context_kind")),
    (recompute_axis, ("recompute", "recompute_share")),
)
"""The axes in their order, each with the fields that change it."""


def _listed(asked: Any) -> Any:
    return sorted(map(repr, asked)) if isinstance(asked, set | frozenset) else repr(asked)


def _single(fixed: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with sets of one member as that member."""
    return {name: next(iter(v)) if isinstance(v, set | frozenset) and len(v) == 1 else v for name, v in fixed.items()}


def _with_plans(bare: Lattice) -> Lattice:
    """The rows of a lattice that have a plan; it says nothing of how many each has."""
    sizes = _sizes(bare.axes) if bare.axes else np.zeros(0, int)
    return _if_legal(dataclasses.replace(bare, ends=np.cumsum(sizes)).with_rows(np.flatnonzero(sizes)))


def _sizes(axes: Sequence[Axis]) -> np.ndarray:
    """Plans of each row."""
    return functools.reduce(np.multiply, (axis.count for axis in axes))


def _if_legal(whole: Lattice) -> Lattice:
    """A lattice without plans where what is the same in all of them is not legal."""
    if len(whole) and violations(whole.plan(0), whole.workload, whole.cluster):
        return dataclasses.replace(whole, ends=whole.ends[:0])
    return whole


def _check_fields(fixed: Mapping[str, Any]) -> None:
    """Raise for a field that no plan has, and for a value that it does not take."""
    for name, value in fixed.items():
        if name not in PLAN_CHECKS:
            raise SpecError(f"fixed: `{name}` is not a field of a plan; {nearest(name, PLAN_CHECKS)}")
        for one in value if isinstance(value, set | frozenset) else (value,):
            if not PLAN_CHECKS[name](one):
                fail("fixed", name, one, PLAN_CHECKS[name].expected)


def chunks(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], size: int = CHUNK) -> Iterator[Chunk]:
    """All legal plans in a fixed order, `size` at a time: memory does not grow with their number."""
    whole = lattice(workload, cluster, fixed)
    return (whole.chunk(start, start + size) for start in range(0, len(whole), size))


def count(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> int:
    """How many legal plans there are."""
    return len(lattice(workload, cluster, fixed))
