"""Rows of degrees on every count of accelerators at once: which counts have a legal plan, and plans of any of them."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import numpy as np

from costmodel.inputs import Cluster, PlanPoint, Workload
from costmodel.specs import Demands, demands, kept
from optimize.lattice.axes import least_fill, recompute_axis, shards_axis, stages_axis, switches_axis
from optimize.lattice.axis import DEGREES, Fixed, divisors, wanted
from optimize.lattice.degrees import LARGEST, every_microbatch, expert_degrees, tensor_widths
from optimize.lattice.lattice import Lattice, as_run

Rows = Mapping[str, np.ndarray]
SORTED = ("tensor", "pipeline", "context", "expert", "expert_tensor", "microbatch")
"""By what the rows of one count are in order, where those of several stand side by side."""


def legal_counts(workload: Workload, cluster: Cluster, fixed: Fixed, most: int) -> np.ndarray:
    """Every count up to `most`, in order, that some row of degrees fills.

    What options ask of degrees is left out: a count that is listed may have no plan, none that has one is missing.
    """
    return np.unique(rows_of_counts(workload, cluster, fixed, most)["accelerators"])


def possible_counts(workload: Workload, cluster: Cluster, fixed: Fixed, most: int) -> np.ndarray:
    """Every count up to `most`, in order, that tensor x context x pipeline x data ranks can make.

    Rules of domains and of options are left out: a count may have no plan, none that has one is missing.
    """
    d = demands(as_run(workload, cluster, fixed), cluster)
    axes = {"tensor": tensor_widths(d, fixed), "context": divisors(int(d.workload.sequence))}
    axes |= {"pipeline": list(range(1, d.layers + 1)), "data": divisors(int(d.workload.batch))}
    counts = np.ones(1, int)
    for name, values in axes.items():
        degrees = np.array([value for value in values if wanted(fixed, name, value) and value <= most], int)
        counts = np.unique(np.outer(counts, degrees))
        counts = counts[counts <= most]
    return counts


def rows_of_counts(workload: Workload, cluster: Cluster, fixed: Fixed, most: int) -> dict[str, np.ndarray]:
    """Every legal row of degrees on up to `most` accelerators in whole domains of `fixed["domain"]`, one of each.

    `cluster` gives the tiers, whatever its own count; `accelerators` is the product of a row's degrees, its microbatch
    is one sequence.
    """
    d, domain = demands(as_run(workload, cluster, fixed), cluster), int(fixed["domain"])
    parts = [_of_tensor(d, fixed, domain, tensor, most) for tensor in tensor_widths(d, fixed)]
    names = (*DEGREES, "accelerators")
    return {name: np.concatenate([np.zeros(0, int), *(part[name] for part in parts)]) for name in names}


def with_microbatches(rows: Rows, workload: Workload, fixed: Fixed) -> dict[str, np.ndarray]:
    """Rows of `rows_of_counts`, each with every microbatch of its data ranks."""
    own = {name: column for name, column in rows.items() if name != "microbatch"}
    return every_microbatch(own, int(workload.batch), fixed)


def lattice_of_rows(workload: Workload, cluster: Cluster, fixed: Fixed, rows: Rows) -> Lattice:
    """The plans of some rows of any counts (`accelerators`), with a few of the legal shares of weights.

    Its rows stay in order, those without an option too; `accelerators` of its points are the cluster's, not theirs.
    """
    workload = as_run(workload, cluster, fixed)
    many = dataclasses.replace(cluster, accelerators=LARGEST)
    d = demands(workload, many)
    keeps, shards = functools.partial(kept, d), functools.partial(shards_axis, every=False)
    sized = {**rows, "accelerators": _held_by(cluster, rows["accelerators"])}
    axes = tuple(make(d, keeps, sized, fixed) for make in (stages_axis, shards, switches_axis, recompute_axis))
    sizes = functools.reduce(np.multiply, (axis.count for axis in axes))
    return Lattice(workload, many, fixed, {name: rows[name] for name in DEGREES}, axes, np.cumsum(sizes))


def _held_by(cluster: Cluster, accelerators: np.ndarray) -> np.ndarray:
    """The size of the least domain that holds each count, `LARGEST` where none but the cluster does: all counts that it
    holds alone have the same options."""
    sizes = sorted({int(tier.usable_size) for tier in cluster.tiers[:-1]})
    return np.array([*sizes, LARGEST])[np.searchsorted(sizes, accelerators)]


def lattice_of_counts(
    workload: Workload, cluster: Cluster, fixed: Fixed, counts: np.ndarray
) -> tuple[Lattice, np.ndarray]:
    """The plans of every legal row on some counts, with every microbatch, and each row's count; in the order of the
    counts, then of `SORTED`.

    Rows without an option are left out.
    """
    rows = rows_of_counts(workload, cluster, fixed, int(np.max(counts, initial=0)))
    own = np.flatnonzero(np.isin(rows["accelerators"], counts))
    order = own[np.lexsort([rows[name][own] for name in (*SORTED[-2::-1], "accelerators")])]
    rows = with_microbatches({name: column[order] for name, column in rows.items()}, workload, fixed)
    return with_options(workload, cluster, fixed, rows)


def with_options(workload: Workload, cluster: Cluster, fixed: Fixed, rows: Rows) -> tuple[Lattice, np.ndarray]:
    """The plans of those of some rows that have an option, and each row's count."""
    whole = lattice_of_rows(workload, cluster, fixed, rows)
    own = np.flatnonzero(functools.reduce(np.multiply, (axis.count for axis in whole.axes)) > 0)
    return whole if len(own) == len(whole.ends) else whole.with_rows(own), rows["accelerators"][own]


def switches_of_rows(
    workload: Workload, cluster: Cluster, fixed: Fixed, rows: Rows
) -> Iterator[tuple[float, float, np.ndarray]]:
    """Sequence parallelism and ring (1 or 0) as they occur, and which rows may have them so."""
    d = demands(as_run(workload, cluster, fixed), dataclasses.replace(cluster, accelerators=LARGEST))
    axis = switches_axis(d, functools.partial(kept, d), rows, fixed)
    for parallel, exchange in ((1, 0), (0, 0), (1, 1), (0, 1)):
        own = (axis.table["sequence_parallel"] == parallel) & (axis.table["all_to_all"] == exchange)
        before = np.concatenate([[0], np.cumsum(own)])
        yield float(parallel), 1.0 - exchange, before[axis.offset + axis.count] > before[axis.offset]


def fill_of_rows(workload: Workload, cluster: Cluster, fixed: Fixed, rows: Rows) -> np.ndarray:
    """`least_fill` of rows of any counts."""
    d = demands(as_run(workload, cluster, fixed), dataclasses.replace(cluster, accelerators=LARGEST))
    axis = stages_axis(d, functools.partial(kept, d), rows, fixed)
    return least_fill(axis, rows["pipeline"])


def points_of_rows(workload: Workload, cluster: Cluster, fixed: Fixed, rows: Rows) -> PlanPoint:
    """The degrees of rows of any counts; their options are left as in the default plan."""
    degrees = {name: rows[name] for name in DEGREES}
    whole = Lattice(as_run(workload, cluster, fixed), cluster, fixed, degrees, (), np.zeros(0, int))
    points = whole.points_of_rows(np.arange(len(rows["tensor"])), np.float64)
    return dataclasses.replace(points, accelerators=rows["accelerators"].astype(float))


def _of_tensor(d: Demands, fixed: Fixed, domain: int, tensor: int, most: int) -> dict[str, np.ndarray]:
    axes = {"context": divisors(int(d.workload.sequence)), "pipeline": list(range(1, d.layers + 1))}
    axes |= {"data": divisors(int(d.workload.batch))}
    axes |= dict(zip(("expert", "expert_tensor"), expert_degrees(d), strict=True))
    axes = {name: [value for value in values if wanted(fixed, name, value)] for name, values in axes.items()}
    grid = np.meshgrid(*(np.array(values, int) for values in axes.values()), indexing="ij")
    c = {name: axis.ravel() for name, axis in zip(axes, grid, strict=True)}
    total = tensor * c["context"] * c["pipeline"] * c["data"]
    whole = (total <= most) & ((total % domain == 0) | (total < domain))
    c = {name: column[whole] for name, column in c.items()}
    c |= {name: np.full_like(c["context"], value) for name, value in (("tensor", tensor), ("domain", domain))}
    c |= {"accelerators": total[whole], "microbatch": np.ones_like(c["context"])}
    sized = dataclasses.replace(d, cluster=dataclasses.replace(d.cluster, accelerators=c["accelerators"]))
    legal = np.broadcast_to(kept(sized, c), c["context"].shape)  # each row on a cluster of its own size
    return {name: column[legal] for name, column in c.items()}
