"""The best cluster of real parts: which accelerator known by name, how many, how fast a network between domains.

Hardware is not varied here but enumerated, so the answer is exhaustive: a count whose products alone take longer than
the best answer so far is dismissed, of the others every plan of every job is evaluated. The gap that remains is 0
unless time is up.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.formulas import Economics, as_floats, economics, hardware_of
from costmodel.inputs import Cluster, Plan
from optimize.clusters.best_plan import best_plan
from optimize.clusters.counts import grid, products_s
from optimize.lattice import Families, lattice
from optimize.question import RATES, Job, Limits, Objective, Quantities, Ranges, Space, known_clusters, sized

NETWORKS_BYTES_PER_S = (25e9, 50e9, 100e9)
"""InfiniBand of 200, 400 and 800 Gb/s for each accelerator, priced in proportion, as `prices.toml` says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One cluster of the catalogue with one network, of so many accelerators."""

    cluster: Cluster  # with prices
    domain: int
    bought: float
    log_bound: float  # of the minimised value, by the products alone

    @property
    def name(self) -> str:
        gbit = 8e-9 * self.cluster.tiers[-1].bandwidth_bytes_per_s
        return f"{self.cluster.name}, {self.cluster.tiers[-1].name} {gbit:g} Gb/s"


@dataclasses.dataclass(kw_only=True)
class Parts:
    """What the search of the catalogue knows so far."""

    jobs: Sequence[Job]
    limits: Limits
    objective: Objective
    fixed: Mapping[str, Any]
    log_value: float = math.inf
    best: Part | None = None
    plans: tuple[Plan, ...] = ()
    log_bound: float = math.inf  # nothing that was dismissed is below
    evaluations: int = 0
    by_name: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def steps(self) -> float:
        return sum(job.weight * job.steps for job in self.jobs)


def search_parts(
    jobs: Sequence[Job], limits: Limits, objective: Objective, seconds: float, fixed: Mapping[str, Any] | None = None
) -> Parts:
    """Every named cluster that has the prices and powers which the limits and the objective read."""
    end = time.monotonic() + seconds
    found = Parts(jobs=jobs, limits=limits, objective=objective, fixed=fixed or {})
    todo = sorted(_parts(found), key=lambda part: part.log_bound)
    for number, part in enumerate(todo):
        if part.log_bound >= found.log_value or time.monotonic() > end:
            found.log_bound = min([found.log_bound, *(left.log_bound for left in todo[number:])])
            break
        _look(found, part)
    found.log_bound = min(found.log_bound, found.log_value)
    return found


def _parts(found: Parts) -> list[Part]:
    """All clusters, networks and counts within the limits."""
    parts = []
    for known in known_clusters():
        if len(known.tiers) != 2 or known.prices is None or not _priced(found, known):
            continue
        own = float(known.tiers[-1].bandwidth_bytes_per_s)
        speeds = {own, *(NETWORKS_BYTES_PER_S if known.tiers[-1].name == "infiniband" else ())}
        for speed in sorted(speeds):
            outer = dataclasses.replace(known.tiers[-1], bandwidth_bytes_per_s=speed)
            parts += _counts(found, dataclasses.replace(known, tiers=(*known.tiers[:-1], outer)))
    return parts


def _priced(found: Parts, cluster: Cluster) -> bool:
    assert cluster.prices is not None
    base = cluster.prices.base
    usd = base.rental_usd_per_s if found.limits.rent else base.price_usd
    needs_usd = found.limits.budget_usd is not None or found.objective.usd_power
    needs_watt = found.limits.power_w is not None or found.objective.watt_power or found.objective.usd_power
    return (usd is not None or not needs_usd) and (cluster.accelerator.power_w is not None or not needs_watt)


def _counts(found: Parts, cluster: Cluster) -> list[Part]:
    domain, size = int(cluster.tiers[0].usable_size), float(cluster.tiers[0].size)
    one = quantities(sized(cluster, domain), domain, 1.0, found.limits.rent)
    usd, watt = (max(1e-9, value / domain) if value == value else 1e-9 for value in (one.capital_usd, one.meter_w))
    parts = []
    for count in grid(found.limits, domain, usd, watt):
        part = sized(cluster, count)
        least_s = _train_s(found, [_products_s(found, job, part) for job in found.jobs])
        value = quantities(part, domain, least_s, found.limits.rent)
        if _misses(found, value):
            continue
        log_bound = math.log(found.objective.minimised(value, found.steps))
        parts.append(Part(cluster=part, domain=domain, bought=count * size / domain, log_bound=log_bound))
    return parts


def _misses(found: Parts, value: Quantities) -> bool:
    """Whether the rent of training is above the budget, or it ends too late."""
    budget_usd, deadline_s = found.limits.budget_usd, found.limits.deadline_s
    dear = found.limits.rent and budget_usd is not None and value.usd_per_s * value.train_s > budget_usd
    return dear or (deadline_s is not None and value.train_s > deadline_s)


def _products_s(found: Parts, job: Job, cluster: Cluster) -> float:
    """Seconds of a step that the products alone take."""
    return products_s(job.workload, cluster, found.fixed) / cluster.accelerators


def _train_s(found: Parts, step_s: Sequence[float]) -> float:
    """All jobs one after the other, by weight."""
    return sum(job.weight * job.steps * seconds for job, seconds in zip(found.jobs, step_s, strict=True))


def bill(cluster: Cluster, domain: int, step_s: float, tokens: float) -> Economics:
    """Of all its accelerators."""
    assert cluster.prices is not None
    return economics(as_floats(cluster), as_floats(cluster.prices.base), cluster.accelerators, domain, step_s, tokens)


def quantities(cluster: Cluster, domain: int, train_s: float, rent: bool) -> Quantities:
    """What limits and objectives read; nan where no price is known (and none is asked for)."""
    money, size = bill(cluster, domain, 1.0, 1.0), float(cluster.tiers[0].size)
    usd_per_s = money.rental_usd if rent else money.owned_usd
    return Quantities(
        train_s=train_s,
        usd_per_s=math.nan if usd_per_s is None else float(usd_per_s),
        meter_w=math.nan if money.draw is None else float(money.draw.meter_w),
        capital_usd=math.nan if money.bill is None else float(money.bill.usd),
        accelerators=float(cluster.accelerators) * max(1.0, size / domain),
    )


def _look(found: Parts, part: Part) -> None:
    """Evaluate every plan of every job on one part, as long as it can be best."""
    cluster = as_floats(dataclasses.replace(part.cluster, prices=None))
    hardware = hardware_of(cluster)
    rates = np.array([float(getattr(hardware, name)) for name in RATES])
    hbm_bytes = float(cluster.accelerator.hbm_bytes)
    space = Space(cluster, None, None, Ranges(rates, rates, hbm_bytes))  # pyright: ignore[reportArgumentType]
    step_s, plans = [_products_s(found, job, part.cluster) for job in found.jobs], []
    per_second = math.exp(part.log_bound) / _train_s(found, step_s)
    for i, job in enumerate(found.jobs):
        spare = math.exp(found.log_value) / per_second - _train_s(found, [*step_s[:i], 0.0, *step_s[i + 1 :]])
        if spare <= 0:
            return
        cut = math.log(spare / (job.weight * job.steps)) if math.isfinite(spare) else math.inf
        families = Families(lattice(job.workload, part.cluster, {**found.fixed, "domain": part.domain}))
        best = best_plan(job.workload, space, families, np.log(rates), hbm_bytes, cut)
        found.evaluations += best.evaluations
        if best.plan is None:
            return
        step_s[i] = math.exp(best.log_step_s)
        plans.append(best.plan)
    log_value = math.log(per_second * _train_s(found, step_s))
    if _misses(found, quantities(part.cluster, part.domain, _train_s(found, step_s), found.limits.rent)):
        return
    found.by_name[part.name] = min(log_value, found.by_name.get(part.name, math.inf))
    if log_value < found.log_value:
        found.log_value, found.best, found.plans = log_value, part, tuple(plans)
