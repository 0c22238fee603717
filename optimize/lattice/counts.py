"""Rows of degrees on every count of accelerators at once: which counts have a legal plan, and what may run on them."""

import dataclasses
import functools

import numpy as np

from costmodel.inputs import Cluster, Workload
from costmodel.models import run_by
from costmodel.specs import Demands, demands, kept
from optimize.lattice.axes import switches_axis
from optimize.lattice.axis import Fixed, wanted
from optimize.lattice.degrees import divisors, expert_degrees, tensor_widths, with_microbatches
from optimize.lattice.lattice import Lattice


def lattice_of_counts(workload: Workload, cluster: Cluster, fixed: Fixed, most: int) -> Lattice:
    """Every legal row of degrees on up to `most` accelerators in whole innermost domains of `fixed["domain"]`.

    The column `accelerators` is the product of a row's degrees, `cluster` gives the tiers, whatever its own count. Of
    the options that are left to rows only the switches are an axis (sequence parallelism, kind of context).
    """
    workload = run_by(workload, cluster.stack.habits)
    d, domain = demands(workload, cluster), int(fixed["domain"])
    parts = [_of_tensor(d, fixed, domain, tensor, most) for tensor in tensor_widths(d, fixed)]
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]} if parts else {}
    axis = switches_axis(d, functools.partial(kept, d), rows, fixed)
    whole = Lattice(workload, cluster, fixed, rows, (axis,), np.cumsum(axis.count))
    return whole.with_rows(np.flatnonzero(axis.count > 0))


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
    return with_microbatches({name: column[legal] for name, column in c.items()}, int(d.workload.batch), fixed)
