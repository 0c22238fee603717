"""The best cluster of real parts: which accelerator known by name, how many, how fast a network between domains.

Hardware is not varied here but enumerated, so the answer is exhaustive: a count whose products alone, or whose rows of
degrees, take longer than the best answer so far or miss a limit is dismissed, of the others every plan of every job is
evaluated. What a usual share of the products' speed makes best is looked at first, so that there is an answer soon. The
gap that remains is 0 unless time is up.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import as_floats, evaluate
from costmodel.inputs import Cluster, Plan
from costmodel.measured import with_margin
from optimize.clusters.best_plan import SECONDS, Worth, best_plan, least_worth, worth_of
from optimize.clusters.counts import grid, least_products_s
from optimize.lattice import Families, lattice
from optimize.plans import row_bounds_s
from optimize.question import (
    Job,
    Limits,
    Objective,
    Quantities,
    failing,
    known_clusters,
    quantities,
    second_of,
    sized,
)
from optimize.time_limit import until

TURNS, RISE, DEAREST = 16, 64, 1e6  # prices of limits that jobs share, in units of the value the last
USUAL_SHARE = 0.4  # of the speed of products alone, that a good plan reaches
USUAL_TOKENS = 256  # of a step on one accelerator, from which it does
NETWORKS_BYTES_PER_S = (25e9, 50e9, 100e9)
"""InfiniBand of 200, 400 and 800 Gb/s for each accelerator, priced in proportion, as `prices.toml` says."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidate:
    """One cluster known by name with one network, of so many accelerators."""

    cluster: Cluster  # with prices
    domain: int
    bought: float
    worth: Worth  # of the minimised value
    log_bound: float  # of the minimised value, by the products alone

    @property
    def name(self) -> str:
        gbit = 8e-9 * self.cluster.tiers[-1].bandwidth_bytes_per_s
        return f"{self.cluster.name}, {self.cluster.tiers[-1].name} {gbit:g} Gb/s"


@dataclasses.dataclass(kw_only=True)
class PartsProgress:
    """What the search among real parts knows so far."""

    jobs: Sequence[Job]
    limits: Limits
    objective: Objective
    fixed: Mapping[str, Any]
    margin: float = 0.5
    failures: str = "base"
    repair_s: float | None = None
    log_value: float = math.inf
    best: Candidate | None = None
    plans: tuple[Plan, ...] = ()
    log_bound: float = math.inf  # nothing that was dismissed is below
    evaluations: int = 0
    candidates: int = 0  # within the limits, by their products
    listed: bool = False  # whether there was time to find them
    left_over: int = 0  # of them, those that time was up for
    interrupted: bool = False
    fastest: dict[tuple[str, float], float] = dataclasses.field(default_factory=dict)  # network, by parts and count
    products_s: dict[tuple[int, str], float] = dataclasses.field(default_factory=dict)  # on one accelerator

    @property
    def finished(self) -> bool:
        """Whether what is not found is not there."""
        return self.listed and not self.left_over and (self.best is not None or self.log_bound == math.inf)

    @property
    def steps(self) -> float:
        return sum(job.weight * job.steps for job in self.jobs)


def search_parts(
    jobs: Sequence[Job],
    limits: Limits,
    objective: Objective,
    seconds: float,
    fixed: Mapping[str, Any] | None = None,
    margin: float = 0.5,
    failures: str = "base",
    repair_s: float | None = None,
    work: float = math.inf,
) -> PartsProgress:
    """The best cluster known by name, of those whose prices and powers the limits and the objective read, as far as
    `work` evaluations and the time go.

    Plans fit with the probability `margin`; one half takes predictions as they are.
    """
    end = time.monotonic() + seconds
    own: dict[str, Any] = {"fixed": fixed or {}, "margin": margin, "failures": failures, "repair_s": repair_s}
    parts = PartsProgress(jobs=jobs, limits=limits, objective=objective, **own)
    todo: list[Candidate] = []
    try:
        with until(end):
            todo += sorted(within_limits(parts), key=lambda part: _likely(parts, part))
            parts.candidates, parts.listed = len(todo), True
            while todo and parts.evaluations < work:
                if todo[0].log_bound < parts.log_value and not _slower(parts, todo[0]):
                    _look(parts, todo[0])
                todo.pop(0)
    except KeyboardInterrupt:  # what is known so far is an answer
        parts.interrupted = True
    left = [part.log_bound for part in todo if part.log_bound < parts.log_value]
    parts.left_over = len(left)
    parts.log_bound = min([parts.log_bound, parts.log_value, *left]) if parts.listed else -math.inf
    return parts


def _slower(parts: PartsProgress, part: Candidate) -> bool:
    """Whether as many of the same parts were looked at on a faster network, where that costs nothing."""
    speed, key = part.cluster.tiers[-1].bandwidth_bytes_per_s, (part.cluster.name, part.bought)
    paid = parts.objective.priced or parts.limits.rent or parts.limits.carbon_g is not None
    if paid or parts.fastest.get(key, 0.0) < speed:
        parts.fastest[key] = float(speed)
        return False
    return True


def _likely(parts: PartsProgress, part: Candidate) -> tuple[bool, float, float, float]:
    """The order of candidates: whether one misses a limit at a usual speed, its value there, its size, and the fastest
    network first."""
    steps_s = [_products_s(parts, job, part.cluster) / _usual_share(job, part) for job in parts.jobs]
    train_s = _train_s(parts, steps_s, part.cluster)
    there = quantities(part.cluster, part.domain, train_s, parts.limits.rent)
    speed = -float(part.cluster.tiers[-1].bandwidth_bytes_per_s)
    return _misses(parts, there), round(math.log(train_s * sum(part.worth[:2])), 1), part.bought, speed


def _usual_share(job: Job, part: Candidate) -> float:
    """Of the speed of the products alone: less where an accelerator has few tokens of a step."""
    tokens = job.workload.batch * job.workload.sequence / float(part.cluster.accelerators)
    return USUAL_SHARE * min(1.0, tokens / USUAL_TOKENS)


def within_limits(parts: PartsProgress) -> list[Candidate]:
    """All clusters, networks and counts within the limits."""
    kept = []
    fails = parts.failures, parts.repair_s
    for known in (failing(with_margin(cluster, parts.margin), *fails) for cluster in known_clusters()):
        if len(known.tiers) != 2 or known.prices is None or not _priced(parts, known):
            continue
        known = _rented(known, parts.limits.rental)
        own = float(known.tiers[-1].bandwidth_bytes_per_s)
        speeds = {own, *(NETWORKS_BYTES_PER_S if known.tiers[-1].name == "infiniband" else ())}
        for speed in sorted(speeds):
            outer = dataclasses.replace(known.tiers[-1], bandwidth_bytes_per_s=speed)
            kept += _counts(parts, dataclasses.replace(known, tiers=(*known.tiers[:-1], outer)))
    return kept


def _rented(cluster: Cluster, rental: str) -> Cluster:
    """The cluster whose usual rental price is that end of its range."""
    assert cluster.prices is not None
    price = getattr(cluster.prices, rental).rental_usd_per_s
    base = dataclasses.replace(cluster.prices.base, rental_usd_per_s=price)
    return dataclasses.replace(cluster, prices=dataclasses.replace(cluster.prices, base=base))


def _priced(parts: PartsProgress, cluster: Cluster) -> bool:
    assert cluster.prices is not None
    base = cluster.prices.base
    usd = base.rental_usd_per_s if parts.limits.rent else base.price_usd
    needs_usd = parts.limits.budget_usd is not None or parts.objective.usd_power
    limited = parts.limits.power_w is not None or parts.limits.carbon_g is not None
    needs_watt = limited or parts.objective.watt_power or parts.objective.usd_power
    return (usd is not None or not needs_usd) and (cluster.accelerator.power_w is not None or not needs_watt)


def _counts(parts: PartsProgress, cluster: Cluster) -> list[Candidate]:
    domain, size = int(cluster.tiers[0].usable_size), float(cluster.tiers[0].size)
    one = quantities(sized(cluster, domain), domain, 1.0, parts.limits.rent)
    usd, watt = (max(1e-9, value / domain) if value == value else 1e-9 for value in (one.capital_usd, one.usual_w))
    kept = []
    most = parts.limits.accelerators or math.inf
    for count in grid(parts.limits, domain, usd, watt):
        part, bought = sized(cluster, count), count * size / domain
        least_s = _train_s(parts, [_products_s(parts, job, part) for job in parts.jobs], part)
        carbon = _carbon(parts, part, domain)
        if carbon is not None and least_s * least_worth(carbon) > 1.0:
            continue
        if bought > most or _misses(parts, quantities(part, domain, least_s, parts.limits.rent)):
            continue
        worth = _worth(parts, part, domain)
        log_bound = math.log(least_s * least_worth(worth))
        kept.append(Candidate(cluster=part, domain=domain, bought=bought, worth=worth, log_bound=log_bound))
    return kept


def _worth(parts: PartsProgress, cluster: Cluster, domain: int) -> Worth:
    """What a second of the steps counted is worth, and one at the usual power: rent is for both together."""
    if not parts.objective.priced:
        return (1.0 / parts.steps, 0.0, None) if parts.objective is Objective.step else SECONDS
    return _priced_worth(parts, parts.objective, cluster, domain)


def _carbon(parts: PartsProgress, cluster: Cluster, domain: int) -> Worth | None:
    """The same of CO2, over what is allowed; None where all is."""
    if parts.limits.carbon_g is None:
        return None
    second, drawn, loads = _priced_worth(parts, Objective.carbon, cluster, domain)
    return second / parts.limits.carbon_g, drawn / parts.limits.carbon_g, loads


def _priced_worth(parts: PartsProgress, objective: Objective, cluster: Cluster, domain: int) -> Worth:
    assert cluster.prices is not None
    grid = float(cluster.prices.base.carbon_g_per_j)

    def at(load: float) -> float:
        money = second_of(cluster, domain, load)
        usd_per_s = money.rental_usd if parts.limits.rent else money.owned_usd
        price = objective.price(usd_per_s, None if money.draw is None else money.draw.meter_w, grid)
        assert price is not None
        return float(price)

    return at(0.0), at(1.0) - at(0.0), as_floats(cluster.prices.base).loads


def _misses(parts: PartsProgress, value: Quantities) -> bool:
    """Whether the rent of training is above the budget, or it ends too late."""
    budget_usd, deadline_s = parts.limits.budget_usd, parts.limits.deadline_s
    dear = parts.limits.rent and budget_usd is not None and value.usd_per_s * value.train_s > budget_usd
    return dear or (deadline_s is not None and value.train_s > deadline_s)


def _products_s(parts: PartsProgress, job: Job, cluster: Cluster) -> float:
    """Seconds of a step that the products alone take."""
    key = id(job), cluster.name
    if key not in parts.products_s:
        parts.products_s[key] = least_products_s(job.workload, cluster, parts.fixed)
    return parts.products_s[key] / cluster.accelerators


def _train_s(parts: PartsProgress, step_s: Sequence[float], cluster: Cluster) -> float:
    """All jobs one after the other, by weight."""
    return sum(_steps(parts, job, cluster) * seconds for job, seconds in zip(parts.jobs, step_s, strict=True))


def _steps(parts: PartsProgress, job: Job, cluster: Cluster) -> float:
    """By weight, with what failures cost; as `Problem.steps_on`."""
    alone = parts.objective is Objective.step
    return job.weight * (job.steps if alone else job.steps_on(cluster.accelerators, cluster.prices))


def _look(parts: PartsProgress, part: Candidate) -> None:
    """Evaluate every plan of every job on one part, as long as it can be best.

    Where the best plans of several jobs miss limits that these share, what is used of the limits is given a price. At
    any price the least of both together bounds what can be (the dual of the limits), and plans that meet them are an
    answer; the next price is where the bounds of the last two cross, until they are one.
    """
    shared = _shared(parts, part)
    price, log_bound, early, late = 0.0, -math.inf, None, (0.0, 1.0)
    for _ in range(TURNS):
        chosen = _choose(parts, part, price, shared)
        if chosen is None:
            return  # nothing is better
        plans, seconds = chosen
        value = sum(worth_of(part.worth, own) for own in seconds)
        used = _used(shared, seconds)
        over = sum(used) - len(used)
        log_bound = max(log_bound, math.log(max(value + price * over, 1e-300)))
        if all(share <= 1 + 1e-9 for share in used) and math.log(value) < parts.log_value:
            parts.log_value, parts.best, parts.plans = math.log(value), part, plans
        if over <= 0:
            early = value, over
        else:
            late = value, over
        before, price = price, RISE * price or value
        if early is not None:
            price = (early[0] - late[0]) / (late[1] - early[1])
        if (over <= 0 and not before) or abs(price - before) <= 1e-9 * before or price > DEAREST * value:
            break
    if early is not None or not _never_within(parts, part, shared):
        parts.log_bound = min(parts.log_bound, log_bound)


def _never_within(parts: PartsProgress, part: Candidate, shared: Sequence[Worth]) -> bool:
    """Whether even the plans that use least of the limits that jobs share use more than there is, all limits added."""
    chosen = _choose(parts, dataclasses.replace(part, worth=(0.0, 0.0, None)), 1.0, shared)
    return chosen is None or sum(_used(shared, chosen[1])) > len(shared) + 1e-9


def _used(shared: Sequence[Worth], seconds: Sequence[tuple[float, float]]) -> list[float]:
    """Share of each limit that all jobs use together."""
    return [sum(worth_of(limit, own) for own in seconds) for limit in shared]


def _shared(parts: PartsProgress, part: Candidate) -> list[Worth]:
    """What a second of the jobs uses of the limits that they share, and one at the usual power."""
    latest_s, carbon = _latest_s(parts, part), _carbon(parts, part.cluster, part.domain)
    late: list[Worth] = [(1.0 / latest_s, 0.0, None)] if math.isfinite(latest_s) else []
    return late if carbon is None else [*late, carbon]


def _choose(
    parts: PartsProgress, part: Candidate, price: float, shared: Sequence[Worth]
) -> tuple[tuple[Plan, ...], list[tuple[float, float]]] | None:
    """The best plan of each job with a price on what is used of the limits, and seconds of all its steps, and of them
    at the usual power. None where no job's plans meet the limits alone, or the sum is not below the best answer."""
    cluster, worth = as_floats(dataclasses.replace(part.cluster, prices=None)), part.worth
    for limit in shared if price else ():
        worth = worth[0] + price * limit[0], worth[1] + price * limit[1], worth[2] or limit[2]
    step_s, plans, seconds = [_products_s(parts, job, part.cluster) for job in parts.jobs], [], []
    values, most = [least_worth(worth, each) for each in step_s], math.exp(parts.log_value) + price * len(shared)
    for i, job in enumerate(parts.jobs):
        steps = _steps(parts, job, part.cluster)
        spare = most - _train_s(parts, [*values[:i], 0.0, *values[i + 1 :]], part.cluster)
        if spare <= 0:
            return None
        cut = math.log(spare / steps) if math.isfinite(spare) else math.inf
        families, floors = _open_families(parts, i, dataclasses.replace(part, worth=worth), (step_s, cut))
        limits = [(second * steps, drawn * steps, loads) for second, drawn, loads in [*shared, *_own_end(job)]]
        found = best_plan(
            job.floats, cluster, families, float(cluster.accelerator.hbm_bytes), floors, cut, worth, limits
        )
        parts.evaluations += found[2]
        if found[1] is None:
            return None
        own_s = _seconds(job, part.cluster, found[1])
        values[i] = math.exp(found[0])
        if not worth[1]:  # otherwise a plan that is worth more may be faster
            step_s[i] = own_s[0]
        plans.append(found[1])
        seconds.append((steps * own_s[0], steps * own_s[1]))
    return tuple(plans), seconds


def _own_end(job: Job) -> list[Worth]:
    """What a second of a job uses of its own deadline."""
    return [] if job.deadline_s is None else [(1.0 / (job.weight * job.deadline_s), 0.0, None)]


def _open_families(
    parts: PartsProgress, i: int, part: Candidate, known: tuple[list[float], float]
) -> tuple[Families, np.ndarray]:
    """The families of one job in rows that may be better than `cut` and within the limits, by what steps of the other
    jobs take at least: those rows first that may be best, and logarithms of what their steps are worth at least."""
    (step_s, cut), job = known, parts.jobs[i]
    fixed = {**parts.fixed, "domain": part.domain}
    whole = lattice(job.workload, part.cluster, fixed, every_shard=False)
    if not len(whole):
        return Families(whole), np.zeros(0)
    others_s = _train_s(parts, [*step_s[:i], 0.0, *step_s[i + 1 :]], part.cluster)
    own_s = math.inf if job.deadline_s is None else job.weight * job.deadline_s * (1 + 1e-9)
    latest_s = min(own_s, _latest_s(parts, part) - others_s) / _steps(parts, job, part.cluster)
    products_s, most = _products_s(parts, job, part.cluster), math.exp(cut) if math.isfinite(cut) else math.inf
    apart, each = least_worth(part.worth, products_s, 0.0), least_worth(part.worth, 0.0, 1.0)
    seconds = row_bounds_s(whole, below=min(latest_s, (most - apart) / max(each, 1e-300)))
    least = least_worth(part.worth, products_s, seconds)
    kept = np.flatnonzero((seconds < latest_s) & (least < most))
    kept = kept[np.argsort(least[kept], kind="stable")]
    return Families(whole.with_rows(kept)), np.log(least[kept])


def _seconds(job: Job, cluster: Cluster, plan: Plan) -> tuple[float, float]:
    """Of a step of a plan that is known to be legal, and those at the usual power that take as much energy."""
    found = evaluate(job.workload, cluster, plan, checked=False)
    draw = None if found.economics is None else found.economics.base.draw
    return float(found.step_s), float(found.step_s) * (1.0 if draw is None else float(draw.load))


def _latest_s(parts: PartsProgress, part: Candidate) -> float:
    """Seconds of all jobs that the deadline and the rent of a cluster allow."""
    limits, most_s = parts.limits, math.inf
    if limits.deadline_s is not None:
        most_s = limits.deadline_s
    if limits.rent and limits.budget_usd is not None:
        each = quantities(part.cluster, part.domain, 1.0, rent=True)
        most_s = min(most_s, limits.budget_usd / each.usd_per_s)
    return most_s * (1 + 1e-9)
