"""Hardware that several jobs share: few variables outside, the exact least over sets of plans of each job inside.

Four rates and bytes of HBM, in logarithms. A hardware is moved onto the limits, every plan of every set is timed on it,
and each job takes its fastest that fits: so a generation of hardwares is valued at once, and the best are varied.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costmodel.inputs import Plan
from optimize.clusters.mixes.job_plans import PlanSet
from optimize.hardware import project
from optimize.question import Problem

ELITE = 6  # hardwares that are varied
COOLING = 0.8  # of the steps, from one generation to the next
_ROUNDING = 1e-9


class Valued(NamedTuple):
    """Hardwares with what they are worth (logarithms of the minimised value) and the plans that are best on them."""

    log_value: np.ndarray
    y: np.ndarray
    log_bytes: np.ndarray  # offered
    peak_bytes: np.ndarray  # needed by the plans that were chosen
    chosen: np.ndarray  # jobs last

    def take(self, order: np.ndarray) -> "Valued":
        """Some of them."""
        return Valued(*(column[order] for column in self))


@dataclasses.dataclass
class Shared:
    """Sets of plans of all jobs at one count."""

    problem: Problem
    count: int
    sets: Sequence[PlanSet]
    evaluations: int = 0

    def value(self, y: np.ndarray, log_bytes: np.ndarray) -> Valued:
        """The best of the sets on hardwares (hardwares x rates) with so much memory each; infinite where none fits."""
        problem, money, most = self.problem, self.problem.money, np.exp(log_bytes)
        count = np.full(len(y), float(self.count))
        y = project(problem, money.left(problem.limits, count, most), y, problem.spends_all)
        total, peak, late, chosen = np.zeros(len(y)), np.zeros(len(y)), np.zeros(len(y), bool), []
        drawn_s = np.zeros(len(y))
        for own in self.sets:
            fits, times = own.peak_bytes <= most[:, None], own.times(y[:, None, :])
            worth = np.where(fits, own.worth(y[:, None, :], times), np.inf)
            self.evaluations += worth.size
            best = np.arange(len(y)), worth.argmin(axis=1)
            taken = np.where(fits[best], times[0][best], np.inf)
            total, peak, drawn_s = total + taken, np.maximum(peak, own.peak_bytes[best[1]]), drawn_s + times[-1][best]
            chosen.append(best[1])
            if own.rows.job.deadline_s is not None:
                late |= taken > own.rows.job.weight * own.rows.job.deadline_s
        have = money.left(problem.limits, count, peak)
        second, drawn = money.seconds(y, have)
        value = np.log(second * total + drawn * drawn_s) + problem.log_scale
        value = value + (0.0 if problem.fill else np.log(self.count))
        broken = (money.usd(y) > have.usd * (1 + _ROUNDING)) | (money.watt(y) > have.watt * (1 + _ROUNDING)) | late
        if problem.limits.deadline_s is not None:
            broken |= total > problem.limits.deadline_s
        if problem.carbon is not None:
            second, drawn = problem.carbon.seconds(y, have)
            grams = self.count * (second * total + drawn * drawn_s)
            broken |= np.log(grams) > problem.log_carbon_g
        value = np.where(broken | (have.usd <= 0), np.inf, value)
        return Valued(value, y, log_bytes, peak, np.stack(chosen, axis=-1))

    def evolve(self, first: Valued, generator: np.random.Generator, generations: int, born: int, step: float) -> Valued:
        """Hardwares after some generations, best first: the elite and what is born of it by normal steps.

        Half of the children offer what their parent's plans need and no more.
        """
        low, high = self.problem.ends
        most = np.log(self.problem.most_hbm_bytes)
        now = _best(first)
        for generation in range(generations):
            if not np.isfinite(now.log_value[:1]).any():
                break
            size = step * COOLING**generation
            parent = generator.choice(np.flatnonzero(np.isfinite(now.log_value)), born)
            moved = generator.random((born, len(low))) < 0.6
            y = np.clip(now.y[parent] + size * moved * generator.standard_normal((born, len(low))), low, high)
            offered = now.log_bytes[parent] + size * generator.standard_normal(born)
            exact = generator.random(born) < 0.5
            log_bytes = np.where(exact, np.log(now.peak_bytes[parent]) + _ROUNDING, np.minimum(offered, most))
            children = self.value(y, log_bytes)
            now = _best(Valued(*(np.concatenate(pair) for pair in zip(now, children, strict=True))))
        return now

    def plans(self, chosen: np.ndarray) -> tuple[Plan, ...]:
        """The plans of one hardware."""
        return tuple(own.plan(int(i)) for own, i in zip(self.sets, chosen, strict=True))


def _best(of: Valued) -> Valued:
    return of.take(np.argsort(of.log_value, kind="stable")[:ELITE])
