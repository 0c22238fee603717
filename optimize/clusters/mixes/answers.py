"""Answers for a mix of jobs, in NumPy and without compilation: evolution, and exact steps from what it finds.

Evolution (`clusters.evolution`) offers what it finds as it finds it. Then every count is glanced at with hardware like
the best (`sweep`), and the envelope of the best of several counts is followed: convex hardware at the plans, the whole
lattice at that hardware, until nothing changes. All three go on by turns; a convex program ends them (`polish`).

A look at one count searches its hardware over sets of plans that are fast or lean near some rates (`job_plans.near`),
with the exact least over these sets (`shared.Shared`).
"""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np

from costmodel.specs import violations
from optimize.beside import beside
from optimize.clusters.evolution import FirstAnswers
from optimize.clusters.genes import Found
from optimize.clusters.mixes.job_plans import JobRows, PlanSet, near
from optimize.clusters.mixes.progress import Mixed, MixProgress
from optimize.clusters.mixes.shared import Shared, Valued
from optimize.clusters.mixes.sweep import Sweep
from optimize.clusters.valued import INFEASIBLE
from optimize.hardware import project, solve_plans
from optimize.question import RATES, sized

EVOLVED, MORE = 24_000, 5_000  # evaluations of evolution: first, and between two looks at what it found
LEVELS = np.array([0.12, 0.25, 0.45, 0.7, 1.0])  # of the most HBM: sizes that are looked at
USUAL = 0.3  # of the most HBM: what rates are projected with
SWEPT = 8  # counts whose best of a sweep is offered
SETTLED = 4  # counts whose envelope is followed
SLACK = 0.25  # by which rows and families may be slower than the fastest
TURNS = 5  # of the envelope
_ROUNDING = 1e-9


class Finder:
    """Looks for answers of one question; what is found is offered to `progress`."""

    def __init__(self, progress: MixProgress, seed: int) -> None:
        self.progress, self.problem, self.generator = progress, progress.problem, np.random.default_rng(seed)
        self.seed = seed
        self.first = FirstAnswers(progress.problem, seed, self._offer)
        trees = zip(self.problem.jobs, self.first.values.genes.jobs, strict=True)
        self.rows = [JobRows(self.problem, job, tree.lattice, tree.accelerators) for job, tree in trees]
        self.sweep = Sweep(self.first.values.genes, self.generator)
        self.looked: set[int] = set()  # counts
        self.settled: dict[int, float] = {}  # values at which the envelope ended, by count

    def _offer(self, found: Found) -> None:
        self.progress.offer(Mixed(**found._asdict()))

    def run(self, end: float, last: float) -> None:
        """Evolve and settle by turns, until the time is up; the first evolution goes on beside that until `last`, if it
        can, and another begins here."""
        self._evolve(EVOLVED)
        self.progress.beside = beside(self.first, last)
        if self.progress.beside is not None:
            self.first.begin(self.seed + 1)
        self.evolve(0, end)
        while len(self.first.values.genes.counts) and time.monotonic() < end:
            self.evolve(MORE, end)

    def evolve(self, evaluations: int, end: float) -> None:
        """So many evaluations of evolution, and a sweep; then the envelope of the best answers from which that has
        not been followed."""
        self._evolve(evaluations)
        for found, place in self.first.kept():
            self._offer(self.first.values.found(found, place))  # the best of other counts, too
        if time.monotonic() < end:
            self._sweep()
        answers = self.progress.answers
        new = [count for count in answers if self.settled.get(count) != answers[count].log_value]
        for count in sorted(new, key=lambda n: answers[n].log_value)[:SETTLED]:
            if time.monotonic() < end:
                self.progress.hear()
                self.settle(count, end)
                self.settled[count] = answers[count].log_value

    def _evolve(self, evaluations: int) -> None:
        before = self.first.values.evaluations
        self.first.run(evaluations, self.progress.hear)
        self.progress.evaluations += self.first.values.evaluations - before

    def _sweep(self) -> None:
        """Offer the best that every count has for hardware like the best."""
        values, best, before = self.first.values, self.progress.best, self.sweep.evaluations
        if best is None:
            return
        counts = values.genes.counts
        found = self.sweep.run(self._projected(counts, np.broadcast_to(best.y, (len(counts), len(best.y)))))
        self.progress.evaluations += self.sweep.evaluations - before
        for place in np.argsort(found.log_value, kind="stable")[:SWEPT].tolist():
            if found.log_value[place] < INFEASIBLE:
                self._offer(values.found(found, place))

    def _projected(self, counts: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Rates like `y` on the limits of counts, with a usual share of the most HBM."""
        most = np.full(len(y), USUAL * self.problem.most_hbm_bytes)
        have = self.problem.money.left(self.problem.limits, counts.astype(float), most)
        return project(self.problem, have, y, self.problem.spends_all)

    def look(self, count: int) -> None:
        """Search the hardware of one count over sets of plans near the best rates; offer what is best."""
        best = self.progress.best
        if best is None:
            return
        self.looked.add(count)
        some = best.y + 0.3 * self.generator.standard_normal((3, len(best.y))) * (np.arange(3) > 0)[:, None]
        some = self._projected(np.full(len(some), count), np.clip(some, *self.problem.ends))
        most = self.problem.most_hbm_bytes
        self.among(count, [near(rows, count, some, most, SLACK, keep=12) for rows in self.rows], some)

    def among(
        self, count: int, sets: Sequence[PlanSet | None], some: np.ndarray, generations: int = 7, born: int = 28
    ) -> None:
        """Search the hardware of one count over sets of plans, from some rates; offer what is best. Nothing is done
        where a job has no plan."""
        own = [each for each in sets if each is not None and len(each)]
        if len(own) < len(self.rows):
            return
        shared = Shared(self.problem, count, own)
        spread = some[0] + 0.5 * self.generator.standard_normal((born, some.shape[1]))
        at = np.clip(np.concatenate([some, spread]), *self.problem.ends)
        levels = self.generator.choice(LEVELS, len(at)) * self.problem.most_hbm_bytes
        self._take(shared, shared.evolve(shared.value(at, np.log(levels)), self.generator, generations, born, 0.35))

    def _take(self, shared: Shared, found: Valued) -> Mixed | None:
        """Offer the best; None where there is none or it breaks a rule."""
        self.progress.evaluations += shared.evaluations
        if not np.isfinite(found.log_value[:1]).any():
            return None
        plans, cluster = shared.plans(found.chosen[0]), sized(self.problem.machine, shared.count)
        jobs = zip(plans, self.problem.jobs, strict=True)
        if any(violations(plan, job.workload, cluster) for plan, job in jobs):
            return None
        own = {"y": found.y[0], "hbm_bytes": float(found.peak_bytes[0]), "log_value": float(found.log_value[0])}
        mixed = Mixed(accelerators=shared.count, plans=plans, **own)
        self.progress.offer(mixed)
        return mixed

    def settle(self, count: int, end: float) -> None:
        """Follow the envelope of a count from its answer."""
        now, last = self.progress.answers.get(count), np.inf
        for _ in range(TURNS):
            if now is None or now.log_value > last - 1e-4 or time.monotonic() > end:
                return
            last, sets = now.log_value, self._near(now)
            if any(each is None for each in sets):
                return
            shared = Shared(self.problem, count, [each for each in sets if each is not None])
            y = np.repeat(now.y[None], 24, axis=0)
            y[1:] += 0.06 * self.generator.standard_normal(y[1:].shape)
            log_bytes = np.full(len(y), np.log(now.hbm_bytes) + 1e-9)
            log_bytes[8:] += np.log(self.generator.uniform(0.7, 1.6, len(y) - 8))
            first = shared.value(
                np.clip(y, *self.problem.ends), np.minimum(log_bytes, np.log(self.problem.most_hbm_bytes))
            )
            now = self._take(shared, shared.evolve(first, self.generator, 5, 24, 0.08))

    def polish(self) -> None:
        """The best answer on the best hardware for its plans, by the convex program."""
        if self.progress.best is None:
            return
        solved = solve_plans(self.problem, self.progress.best.plans)
        self.progress.evaluations += solved.evaluations
        if np.isfinite(solved.value[0]):
            found = solved.hardware(0)
            y = np.log([float(getattr(found, name)) for name in RATES])
            own = {"hbm_bytes": float(found.hbm_bytes) * (1 + _ROUNDING), "log_value": float(np.log(solved.value[0]))}
            self.progress.offer(dataclasses.replace(self.progress.best, y=y, **own))

    def _near(self, at: Mixed) -> list[PlanSet | None]:
        most = min(1.6 * at.hbm_bytes, self.problem.most_hbm_bytes)
        return [near(rows, at.accelerators, at.y[None], most, SLACK, keep=60) for rows in self.rows]
