"""Which counts of accelerators have a legal plan: the products of all rows of degrees that keep the rules."""

import dataclasses

import numpy as np

from costmodel.inputs import Cluster, Workload
from costmodel.models import run_by
from costmodel.specs import Demands, demands, kept
from optimize.lattice.axis import Fixed, wanted
from optimize.lattice.degrees import divisors, expert_degrees, tensor_widths


def legal_counts(workload: Workload, cluster: Cluster, fixed: Fixed, most: int) -> np.ndarray:
    """Every count up to `most`, in order, that some row of degrees fills in whole domains of `fixed["domain"]`.

    `cluster` gives the tiers, whatever its own count. What options ask of degrees is left out: a count that is listed
    may have no plan, none that has one is missing.
    """
    d, domain = demands(run_by(workload, cluster.stack.habits), cluster), int(fixed["domain"])
    parts = [_of_tensor(d, fixed, domain, tensor, most) for tensor in tensor_widths(d, fixed)]
    return np.unique(np.concatenate([np.zeros(0, int), *parts]))


def _of_tensor(d: Demands, fixed: Fixed, domain: int, tensor: int, most: int) -> np.ndarray:
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
    return np.unique(c["accelerators"][legal])
