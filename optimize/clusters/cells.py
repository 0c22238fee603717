"""One count of accelerators with one domain: what a plan there may spend, and what its products take at least."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from optimize.clusters.counts import flop_bound_s, grid
from optimize.clusters.screening import Screened
from optimize.clusters.tangents import Bound, Left, Money, Rate, Tangents, dual_bound, left, money, project, rate
from optimize.lattice import Families, lattice
from optimize.question import Objective, Problem, sized


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """All plans of one count and one domain."""

    problem: Problem
    accelerators: int
    domain: int

    @property
    def bought(self) -> float:
        """Accelerators, with those that the domain leaves idle."""
        return self.accelerators * float(self.problem.space.domain) / self.domain

    @property
    def fill(self) -> bool:
        """Whether more hardware is never worse."""
        return self.problem.fill

    @property
    def money(self) -> Money:
        return money(self.problem.space, self.domain)

    def families(self) -> Families:
        """Enumerated when asked for: a lattice is not kept."""
        p = self.problem
        return Families(lattice(p.job.workload, sized(p.space.template, self.accelerators), self._fixed))

    @property
    def _fixed(self) -> Mapping[str, Any]:
        return {**self.problem.fixed, "domain": self.domain}

    def left(self, hbm_bytes: np.ndarray) -> Left:
        have = left(self.money, self.problem.limits, np.full(len(hbm_bytes), self.bought), hbm_bytes)
        unbuildable = hbm_bytes > self.problem.space.ranges.most_hbm_bytes
        return have._replace(usd=np.where(unbuildable, -1.0, have.usd))

    def tangents(self, found: Screened, y: np.ndarray) -> Tangents:
        """Of the seconds of all steps, from those of one."""
        steps = 1.0 if self.problem.objective is Objective.step else self.problem.job.steps
        return Tangents(found.log_step_s + np.log(steps), found.slopes, y)

    def price(self, have: Left) -> Rate:
        """What multiplies the seconds, for one accelerator."""
        return rate(self.problem.objective, self.money, have)

    @property
    def log_bought(self) -> float:
        """What is added to logarithms where the objective has a price."""
        return 0.0 if self.problem.fill else math.log(self.bought)

    def bound(self, have: Left, at: Tangents) -> Bound:
        found = dual_bound(self.problem.space, self.money.laws, have, self.price(have), at)
        return found._replace(log_value=found.log_value + self.log_bought)

    def log_value(self, have: Left, at: Tangents) -> np.ndarray:
        """Of the objective, where the tangents were taken."""
        return at.log_value + np.log(self.price(have).of(self.money.laws, at.y)) + self.log_bought

    def reference(self, y: np.ndarray) -> np.ndarray:
        """Rates like these, on the limits where more is never worse."""
        space = self.problem.space
        have = self.left(np.array([0.25 * space.ranges.most_hbm_bytes]))
        return project(space, self.money.laws, have, y[None], self.problem.fill)[0]


def cells(problem: Problem) -> list[Cell]:
    """Every count that the limits can pay for, with whole innermost domains."""
    domain = int(problem.space.template.tiers[0].usable_size)
    priced, low = money(problem.space, domain), np.log(problem.space.ranges.low)
    least = priced.laws.usd_of(low).sum(), max(1e-9, priced.laws.watt_of(low).sum())
    return [Cell(problem, count, domain) for count in grid(problem.limits, domain, *least)]


def cell_bounds(found: list[Cell]) -> np.ndarray:
    """Logarithm of the least value by the products alone (of seconds; other objectives: no bound but of rates)."""
    bounds = []
    for cell in found:
        p = cell.problem
        step_s = flop_bound_s(p.job.workload, p.space, p.limits, float(cell.accelerators), p.fixed)
        steps = 1.0 if p.objective is Objective.step else p.job.steps
        seconds = math.log(step_s * steps)
        if not p.fill and p.limits.deadline_s is not None and seconds > math.log(p.limits.deadline_s):
            seconds = math.inf
        if p.objective.priced:
            low = np.log(p.space.ranges.low)
            laws, priced = cell.money.laws, cell.money
            usd_per_s = (
                priced.usd_per_capital_s * laws.usd_of(low).sum() + priced.usd_per_joule * laws.watt_of(low).sum()
            )
            seconds += float(np.log(cell.bought * (usd_per_s if p.objective.usd_power else laws.watt_of(low).sum())))
        bounds.append(seconds)
    return np.array(bounds)
