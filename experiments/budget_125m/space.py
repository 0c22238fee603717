"""Every plan of every cluster size within the budget, with what it needs of both memories."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from costmodel import Exact, as_floats, map_leaves
from costmodel.formulas import cost
from costmodel.inputs import Cluster, Offload, Plan, PlanPoint, Workload, layers
from experiments.budget_125m.prices import ACCELERATOR_USD, GIB, HBM, HBM_CURVE, SECOND, Sizes, listed_usd, unit_usd
from optimize.lattice import Lattice, lattice

FIXED = {"context": 1, "zero_stage": frozenset((1, 3)), "sequence_parallel": True, "domain": 8}
"""What is not searched: one rank for a sequence, gradients and states divided, whole domains of eight."""
ALL_OR_NOTHING = tuple(product((0.0, 1.0), repeat=3))
QUARTERS = tuple(product((0.0, 0.25, 0.5, 0.75, 1.0), repeat=3))
KEPT = 40  # plans of each cluster size for each choice
_BLOCK = 4096
_EXACT = Exact(np)


class Plans(NamedTuple):
    """Plans as columns: cluster size, number in its lattice, shares offloaded, and what follows."""

    accelerators: np.ndarray
    number: np.ndarray
    weights: np.ndarray
    optimizer: np.ndarray
    activations: np.ndarray
    step_s: np.ndarray
    hbm_bytes: np.ndarray
    second_bytes: np.ndarray

    def take(self, chosen: np.ndarray) -> "Plans":
        """These plans alone."""
        return Plans(*(column[chosen] for column in self))


Choice = tuple[float, Sizes | None]
"""A budget, and sizes of the memories, or None: each as large as the plan needs, at the price between listed sizes."""


def whole_usd(plans: Plans, sizes: Sizes | None) -> np.ndarray:
    """Price of the whole cluster with memories of these sizes; infinite where the plan does not fit."""
    if sizes is None:
        sold = (plans.hbm_bytes <= HBM[-1][0] * GIB) & (plans.second_bytes <= SECOND[-1][0] * GIB)
        return plans.accelerators * np.where(sold, unit_usd(plans.hbm_bytes, plans.second_bytes), np.inf)
    hbm, second = sizes
    fits = (plans.hbm_bytes <= hbm * GIB) & (plans.second_bytes <= second * GIB)
    return plans.accelerators * np.where(fits, listed_usd(sizes), np.inf)


def joined(parts: Iterable[Plans]) -> Plans:
    """Plans one after another."""
    return Plans(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def cluster_of(template: Cluster, accelerators: int) -> Cluster:
    """The template with so many accelerators, and a second memory without processors: states stream past them."""
    last = dataclasses.replace(template.tiers[-1], size=accelerators, usable_size=accelerators)
    habits = dataclasses.replace(template.stack.habits, updates_on_host=False)
    stack, tiers = dataclasses.replace(template.stack, habits=habits), (*template.tiers[:-1], last)
    return dataclasses.replace(template, accelerators=accelerators, tiers=tiers, stack=stack)


def cluster_sizes(workload: Workload, budget_usd: float, least: int) -> list[int]:
    """Numbers of accelerators that some plan uses wholly: tensor x pipeline x data, in domains of eight."""
    most = int(budget_usd / (ACCELERATOR_USD + float(HBM_CURVE(np.asarray(0.0)))))
    divisors = [d for d in range(1, int(workload.batch) + 1) if workload.batch % d == 0]
    counts = {t * p * d for t in (1, 2, 4, 8) for p in range(1, layers(workload) + 1) for d in divisors}
    return sorted(n for n in counts if least <= n <= most and n % 8 == 0)


Batch = tuple[np.ndarray, np.ndarray, PlanPoint]
"""Plans of a lattice: cluster size and number of each, and what the cost model reads."""


def batch_of(space: Lattice, numbers: np.ndarray) -> Batch:
    """Plans of one lattice, in float32."""
    count = np.full(len(numbers), space.cluster.accelerators)
    return count, numbers, space.points(numbers, np.float32)


def evaluate(job: tuple[Workload, Cluster], batches: Sequence[Batch], shares: tuple[tuple[float, ...], ...]) -> Plans:
    """All plans of some batches with each combination of shares: in float32, the counts of each plan made once.

    One cluster serves all sizes: the number of accelerators is the plan's, and the outermost tier takes everything.
    """
    counts = np.concatenate([sizes for sizes, _, _ in batches])
    numbers = np.concatenate([own for _, own, _ in batches])
    split = [np.asarray(column, np.float32)[:, None] for column in zip(*shares, strict=True)]
    own = dict(zip(("weights", "optimizer", "activations"), split, strict=True))
    together = _stacked([points for *_, points in batches], [len(ids) for _, ids, _ in batches])
    points = dataclasses.replace(together, offload=Offload(**own))
    costs = cost(*job, points, _EXACT)
    columns = (counts, numbers, *split, costs.step_s, costs.peak_bytes, costs.second_bytes)
    return Plans(*(np.broadcast_to(column, (len(shares), len(numbers))).ravel() for column in columns))


def _stacked(points: Sequence[PlanPoint], sizes: Sequence[int]) -> PlanPoint:
    """Points one after another; numbers that all share stay numbers."""
    columns: list[list[np.ndarray | float]] = []
    for own in points:
        row: list[np.ndarray | float] = []
        map_leaves(row.append, own)
        columns.append(row)
    whole = iter([_leaf(leaves, sizes) for leaves in zip(*columns, strict=True)])
    return map_leaves(lambda _: next(whole), points[0])


def _leaf(leaves: Sequence[np.ndarray | float], sizes: Sequence[int]) -> np.ndarray | np.float32:
    if not any(map(np.ndim, leaves)) and len(set(leaves)) == 1:
        return np.float32(leaves[0])
    parts = (np.broadcast_to(np.asarray(leaf, np.float32), size) for leaf, size in zip(leaves, sizes, strict=True))
    return np.concatenate(list(parts))


def in_float32(workload: Workload, template: Cluster) -> tuple[Workload, Cluster]:
    """What `evaluate` reads."""
    plain = dataclasses.replace(template, prices=None)
    return map_leaves(np.float32, as_floats(workload)), map_leaves(np.float32, as_floats(plain))


def search(
    workload: Workload, template: Cluster, counts: list[int], choices: Sequence[Choice], say: Callable[[str], None]
) -> tuple[Plans, int]:
    """The fastest plans of each cluster size for each choice, and how many were evaluated.

    All or nothing of each kind is offloaded in every plan, every combination of quarters in the fastest of these.
    """
    job, kept, evaluated = in_float32(workload, template), [], 0
    for group in _grouped(workload, template, counts, say):
        plans = evaluate(job, group, ALL_OR_NOTHING)
        kept.append(_fastest(plans, choices))
        evaluated += len(plans.number)
    coarse = _fastest(joined(kept), choices)
    if not len(coarse.number):
        return coarse, evaluated
    fine = _refined(workload, template, coarse)
    return joined([coarse, _fastest(fine, choices)]), evaluated + len(fine.step_s)


def _grouped(
    workload: Workload, template: Cluster, counts: list[int], say: Callable[[str], None]
) -> Iterator[list[Batch]]:
    """All plans of all cluster sizes, `_BLOCK` at a time or a little more."""
    group: list[Batch] = []
    for accelerators in counts:
        say(f"{workload.name}: {accelerators} accelerators")
        space = lattice(workload, cluster_of(template, accelerators), FIXED, every_shard=False)
        for start in range(0, len(space), _BLOCK):
            group.append(batch_of(space, np.arange(start, min(start + _BLOCK, len(space)))))
            if sum(len(own) for _, own, _ in group) >= _BLOCK:
                yield group
                group = []
    if group:
        yield group


def _fastest(plans: Plans, choices: Sequence[Choice]) -> Plans:
    """The `KEPT` fastest of those that each choice can buy."""
    chosen: set[int] = set()
    for budget_usd, sizes in choices:
        bought = np.flatnonzero(whole_usd(plans, sizes) <= budget_usd)
        most = min(KEPT, len(bought))
        if most:
            chosen.update(bought[np.argpartition(plans.step_s[bought], most - 1)[:most]].tolist())
    return plans.take(np.array(sorted(chosen), int))


def _refined(workload: Workload, template: Cluster, plans: Plans) -> Plans:
    """The same plans with every combination of quarters offloaded."""
    job, parts = in_float32(workload, template), []
    for accelerators in np.unique(plans.accelerators):
        space = lattice(workload, cluster_of(template, int(accelerators)), FIXED, every_shard=False)
        own = batch_of(space, np.unique(plans.number[plans.accelerators == accelerators]))
        parts.append(evaluate(job, [own], QUARTERS))
    return joined(parts)


def plan_of(workload: Workload, template: Cluster, plans: Plans, i: int) -> Plan:
    """The plan in one place."""
    space = lattice(workload, cluster_of(template, int(plans.accelerators[i])), FIXED, every_shard=False)
    shares = {f"offload_{name}": float(getattr(plans, name)[i]) for name in ("weights", "optimizer", "activations")}
    return dataclasses.replace(space.plan(int(plans.number[i])), **shares)
