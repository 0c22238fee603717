"""The rows of a lattice: every legal combination of degrees, microbatch and domain."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Split, Workload
from costmodel.specs import Demands
from optimize.lattice.axis import DEGREES, Keeps, divisors, wanted
from optimize.status import CommandError, Status

LARGEST = 10**9  # accelerators, and sequences of a step
MOST_ROWS = 20_000_000  # of degrees: some 2 GB
_TOO_MANY = (
    "plan: {} on {:,} {} has more than 20 million combinations of degrees; expected some fixed, such as `expert` or "
    "`microbatch`"
)


def rows_of_degrees(
    d: Demands, keeps: Keeps, fixed: Mapping[str, Any], half: bool = True
) -> Iterator[dict[str, np.ndarray]]:
    """Part by part, in a fixed order: the usual domain first, then the least tensor degree; none is empty.

    Domains of which more than `half` is used, or else those of which less is.
    """
    _check_sizes(d.workload, d.cluster)
    count = 0
    for domain, tensor in _outer(d, keeps, fixed, half):
        part = _rows(d, keeps, fixed, domain, tensor)
        if not len(part["tensor"]):
            continue
        count += len(part["tensor"])
        if count > MOST_ROWS:
            cluster = d.cluster
            told = _TOO_MANY.format(d.workload.name, cluster.accelerators, cluster.name)
            raise CommandError(Status.bad_input, told)
        yield part


def _check_sizes(workload: Workload, cluster: Cluster) -> None:
    """Numbers whose divisors would take long to list are no physical sizes."""
    for name, value in (("accelerators", cluster.accelerators), ("batch", workload.batch)):
        if value > LARGEST:
            raise CommandError(Status.bad_input, f"`{name}` is {value}; expected at most {LARGEST} for a search")


def _outer(d: Demands, keeps: Keeps, fixed: Mapping[str, Any], half: bool) -> Iterator[tuple[int, int]]:
    """Domains and tensor degrees, the usual domain first."""
    tensors = [t for t in tensor_widths(d, fixed, int(d.cluster.accelerators)) if keeps({"tensor": t})]
    return itertools.product(_domains(d, keeps, fixed, half), tensors)


def tensor_widths(d: Demands, fixed: Mapping[str, Any], total: int = 0) -> list[int]:
    """Tensor degrees that divide all that they must, and so many accelerators (0: any number).

    Where nothing is divided, more ranks do the same work again: one is enough where the number is open.
    """
    widths = divisors(math.gcd(total, *(int(size) for size, _ in d.tensor_divides)) or 1)
    return [t for t in widths if wanted(fixed, "tensor", t)]


def _domains(d: Demands, keeps: Keeps, fixed: Mapping[str, Any], half: bool) -> list[int]:
    inner, total = d.cluster.tiers[0], int(d.cluster.accelerators)
    usable, size = int(inner.usable_size), int(inner.size)
    if half:
        domains = [usable, *(n for n in divisors(total) if size / 2 < n <= size and n != usable)]
    else:
        domains = [n for n in divisors(total) if n <= size / 2 and n != usable]
    if fixed.get("domain") is not None:
        domains = [fixed["domain"]] if isinstance(fixed["domain"], int) else sorted(fixed["domain"])
    domains = domains[:1] if domains and total <= domains[0] else domains
    return [n for n in domains if keeps({"domain": n, "accelerators": total})]


def _rows(d: Demands, keeps: Keeps, fixed: Mapping[str, Any], domain: int, tensor: int) -> dict[str, np.ndarray]:
    """Legal degrees under one domain and tensor degree, each with every microbatch."""
    inside = int(d.cluster.accelerators) // tensor
    batch = int(d.workload.batch)
    stages = [p for p in divisors(inside) if p <= d.layers]
    experts, shares = expert_degrees(d, inside * tensor)
    grid = np.meshgrid(divisors(math.gcd(inside, int(d.workload.sequence))), stages, experts, shares, indexing="ij")
    context, pipeline, expert, expert_tensor = (axis.ravel() for axis in grid)
    whole = inside % (context * pipeline) == 0
    c = {"context": context, "pipeline": pipeline, "expert": expert, "expert_tensor": expert_tensor}
    c |= {"data": np.where(whole, inside // (context * pipeline), 1), "microbatch": np.ones_like(context)}
    product = tensor * context * c["data"] * pipeline
    legal = whole & keeps({**c, "tensor": tensor, "domain": domain, "accelerators": product})
    for name in DEGREES[2:-1]:
        legal = legal & wanted(fixed, name, c[name])
    c = {name: column[legal] for name, column in c.items()}
    c |= {name: np.full_like(c["context"], value) for name, value in (("tensor", tensor), ("domain", domain))}
    return every_microbatch(c, batch, fixed)


def every_microbatch(c: dict[str, np.ndarray], batch: int, fixed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Rows with each microbatch that divides what their data ranks have of the batch."""
    ranks, which = np.unique(c["data"], return_inverse=True)
    each = [[m for m in divisors(batch // data) if wanted(fixed, "microbatch", m)] for data in ranks.tolist()]
    sizes = np.array([len(own) for own in each], int)
    times, every = sizes[which], np.array(list(itertools.chain.from_iterable(each)), int)
    rows = {name: np.repeat(column, times) for name, column in c.items()}
    before = (np.cumsum(sizes) - sizes)[which] - (np.cumsum(times) - times)
    return rows | {"microbatch": every[np.repeat(before, times) + np.arange(times.sum())]}


def expert_degrees(d: Demands, ranks: int = 0) -> tuple[list[int], list[int]]:
    """Degrees of the second mesh that divide what they share, and so many ranks (0: any number)."""
    degrees = []
    for name in (Split.EXPERT, Split.EXPERT_TENSOR):
        values = [int(size) for degree, size, _ in d.expert_divides if degree == name]
        whole = math.gcd(ranks, *values) or int(d.workload.sequence * d.workload.batch)
        degrees.append(divisors(whole) if d.has_experts else [1])
    return degrees[0], degrees[1]
