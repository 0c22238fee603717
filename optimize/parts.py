"""The best cluster of real parts: which accelerator known by name, how many, how fast a network between domains.

Hardware is not varied here but enumerated, so the answer is exhaustive: a count whose products alone take longer than
the best answer so far is dismissed, of the others every plan is evaluated. The gap that remains is 0 unless time is up.
"""

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.cluster import Cluster
from costmodel.cost import as_floats
from costmodel.curves import hardware_of
from costmodel.economics import Economics, economics
from costmodel.plan import Plan
from optimize.counts_of_accelerators import grid, products_s
from optimize.families import Families
from optimize.lattice import lattice
from optimize.objective import Job, Limits, Objective, Quantities, minimised
from optimize.screen import BATCH, FLOAT32_SLACK, screen, tangents_of
from optimize.space import RATES, Ranges, Space, known_clusters, sized

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

    job: Job
    limits: Limits
    objective: Objective
    fixed: Mapping[str, Any]
    log_value: float = math.inf
    best: Part | None = None
    plan: Plan | None = None
    log_bound: float = math.inf  # nothing that was dismissed is below
    evaluations: int = 0
    by_name: dict[str, float] = dataclasses.field(default_factory=dict)


def search_parts(
    job: Job, limits: Limits, objective: Objective, seconds: float, fixed: Mapping[str, Any] | None = None
) -> Parts:
    """Every named cluster that has the prices and powers which the limits and the objective read."""
    end = time.monotonic() + seconds
    found = Parts(job=job, limits=limits, objective=objective, fixed=fixed or {})
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
    one = quantities(found, sized(cluster, domain), domain, 1.0)
    limits = dataclasses.replace(found.limits, accelerators=found.limits.accelerators)
    usd, watt = max(1e-9, one.capital_usd / domain), max(1e-9, one.meter_w / domain)
    parts = []
    for count in grid(limits, domain, usd, watt):
        part = sized(cluster, count)
        least_s = _products_s(found, part) * found.job.steps
        value = quantities(found, part, domain, least_s)
        within = not found.limits.rent or found.limits.budget_usd is None
        if not within and value.usd_per_s * least_s > (found.limits.budget_usd or 0.0):
            continue
        log_bound = math.log(minimised(found.objective, value, found.job.steps))
        parts.append(Part(cluster=part, domain=domain, bought=count * size / domain, log_bound=log_bound))
    return parts


def _products_s(found: Parts, cluster: Cluster) -> float:
    """Seconds of a step that the products alone take."""
    return products_s(found.job.workload, cluster, found.fixed) / cluster.accelerators


def bill(cluster: Cluster, domain: int, step_s: float, tokens: float) -> Economics:
    """Of all its accelerators."""
    assert cluster.prices is not None
    return economics(as_floats(cluster), as_floats(cluster.prices.base), cluster.accelerators, domain, step_s, tokens)


def quantities(found: Parts, cluster: Cluster, domain: int, train_s: float) -> Quantities:
    """What limits and objective read; nan where no price is known (and none is asked for)."""
    money = bill(cluster, domain, 1.0, 1.0)
    usd_per_s = money.rental_usd if found.limits.rent else money.owned_usd
    return Quantities(
        train_s=train_s,
        usd_per_s=math.nan if usd_per_s is None else usd_per_s,
        meter_w=math.nan if money.draw is None else money.draw.meter_w,
        capital_usd=math.nan if money.bill is None else money.bill.usd,
        accelerators=cluster.accelerators,
    )


def _look(found: Parts, part: Part) -> None:
    """Evaluate every plan of one part that can be best."""
    cluster = as_floats(dataclasses.replace(part.cluster, prices=None))
    hardware = hardware_of(cluster)
    y = np.log([float(getattr(hardware, name)) for name in RATES])
    space = Space(cluster, None, None, Ranges(np.exp(y), np.exp(y), float(cluster.accelerator.hbm_bytes)))  # pyright: ignore[reportArgumentType]
    families = Families(lattice(found.job.workload, part.cluster, {**found.fixed, "domain": part.domain}))
    scale = part.log_bound - math.log(_products_s(found, part.cluster))  # from the step to the objective
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        rows = np.broadcast_to(y, (len(first), len(y)))
        seen = screen(found.job.workload, space, families.points(first, np.float32), rows)
        found.evaluations += len(first)
        fits = seen.least_bytes * (1 - 1e-5) <= space.ranges.most_hbm_bytes
        fastest = np.where(fits, seen.log_step_s + scale - FLOAT32_SLACK, np.inf)
        order = np.argsort(fastest, kind="stable")
        _members(found, part, space, families, first[order[:4096]], fastest[order[:4096]], scale, y)
        if len(order) > 4096 and fastest[order[4096]] < found.log_value:
            later = order[4096:]
            _members(found, part, space, families, first[later], fastest[later], scale, y)


def _members(
    found: Parts,
    part: Part,
    space: Space,
    families: Families,
    first: np.ndarray,
    fastest: np.ndarray,
    scale: float,
    y: np.ndarray,
) -> None:
    """Plans of families that can be best, fastest families first, in float64."""
    for start in range(0, len(first), 256):
        here = slice(start, start + 256)
        kept = first[here][fastest[here] < found.log_value]
        if not len(kept):
            return
        members, _ = families.members(kept)
        points = families.lattice.points(members, np.float64)
        seen = tangents_of(found.job.workload, space, points, np.broadcast_to(y, (len(members), len(y))))
        found.evaluations += len(members)
        value = np.where(seen.peak_bytes <= space.ranges.most_hbm_bytes, seen.log_step_s + scale, np.inf)
        place = int(value.argmin())
        found.by_name[part.name] = min(float(value[place]), found.by_name.get(part.name, math.inf))
        if value[place] < found.log_value:
            found.log_value, found.best = float(value[place]), part
            found.plan = families.lattice.plan(int(members[place]))
