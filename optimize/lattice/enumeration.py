"""All legal plans of a question as a lattice: degrees, then the options of each of their rows."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Workload
from costmodel.models import run_by
from costmodel.specs import PLAN_CHECKS, Demands, SpecError, demands, fail, kept, nearest, violations
from optimize.lattice.axes import recompute_axis, shards_axis, stages_axis, switches_axis
from optimize.lattice.axis import DEGREES, wanted
from optimize.lattice.degrees import rows_of_degrees
from optimize.lattice.lattice import CHUNK, Chunk, Lattice


def lattice(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], every_shard: bool = True) -> Lattice:
    """All legal plans that keep the fields in `fixed`. A set among its values allows any of its members.

    Without `every_shard` weights are shared by all of data x context or by the ranks inside one domain alone. The
    workload of the lattice has the operators that the cluster's software has.
    """
    _check_fields(fixed)
    workload = run_by(workload, cluster.stack.habits)
    asked = demands(workload, cluster)
    keeps = functools.partial(kept, asked)
    parts = list(rows_of_degrees(asked, keeps, fixed)) or list(rows_of_degrees(asked, keeps, fixed, half=False))
    rows = {name: np.concatenate([part[name] for part in parts]) if parts else np.zeros(0, int) for name in DEGREES}
    return _with_options(Lattice(workload, cluster, fixed, rows, (), np.zeros(0, int)), asked, every_shard)


def within(whole: Lattice, fixed: Mapping[str, Any]) -> Lattice:
    """The plans of a lattice that keep more fields, in its order; with `lattice`'s own rows where it has none of them.

    Its bounds stay, which hold for fewer plans too; whoever changes more than the options must leave them out.
    """
    kept_rows = [wanted(fixed, name, whole.rows[name]) for name in DEGREES]
    rows = np.flatnonzero(np.logical_and.reduce(kept_rows))
    if not len(rows):
        return lattice(whole.workload, whole.cluster, fixed)
    _check_fields(fixed)
    own = {name: column[rows] for name, column in whole.rows.items()}
    floor_s = None if whole.floor_s is None else whole.floor_s[rows]
    own = Lattice(whole.workload, whole.cluster, fixed, own, (), np.zeros(0, int), floor_s)
    return _with_options(own, demands(whole.workload, whole.cluster), True)


def _with_options(bare: Lattice, asked: Demands, every_shard: bool) -> Lattice:
    """Rows with their options, those that have some."""
    rows, fixed, keeps = bare.rows, bare.fixed, functools.partial(kept, asked)
    shards = functools.partial(shards_axis, every=every_shard)
    makers = (stages_axis, shards, switches_axis, recompute_axis) if len(rows["tensor"]) else ()
    axes = tuple(make(asked, keeps, rows, fixed) for make in makers)
    sizes = functools.reduce(np.multiply, (axis.count for axis in axes), np.ones(len(rows["tensor"]), int))
    single = {name: next(iter(v)) if isinstance(v, set | frozenset) and len(v) == 1 else v for name, v in fixed.items()}
    whole = dataclasses.replace(bare, fixed=single, axes=axes, ends=np.cumsum(sizes)).with_rows(np.flatnonzero(sizes))
    if len(whole) and violations(whole.plan(0), whole.workload, whole.cluster):  # by what is the same in all plans
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
