"""Answers for a mix of jobs, in NumPy and without compilation, from those of evolution.

1. The envelope of the best of them: convex hardware at the plans, the whole lattice at that hardware, until nothing
   changes.
2. A glance at every count: the value over counts is jagged (degrees must divide), so none may be left out. Rows of
   degrees at rates like the best that is known, a few options of the best rows, five sizes of memory.
3. A look at the best counts: sets of plans that are fast or lean near these rates (`job_plans.near`), and some
   generations of hardware with the exact least over these sets (`shared.Shared`).
4. The envelope of what is best then.
"""

import time
from collections.abc import Callable, Sequence

import numpy as np

from costmodel.specs import violations
from optimize.clusters.mixes.job_plans import LEAST, JobRows, PlanSet, near, pieces, plan_set
from optimize.clusters.mixes.progress import Mixed, MixProgress
from optimize.clusters.mixes.shared import Shared, Valued
from optimize.hardware import project
from optimize.question import sized

LEVELS = np.array([0.12, 0.25, 0.45, 0.7, 1.0])  # of the most HBM: sizes that are glanced at
USUAL = 0.3  # of the most HBM: what rates are projected with
FEW = 250  # rows of a count and job that a first glance looks at
RANKED = 48  # rows of each count and job whose 1F1B is timed at a glance
ROWS = 12  # of each count and job, at a glance
LOOKED = 6  # counts that are looked at near the best hardware that is known
OTHERS = 2  # of them that are looked at from other hardware
SETTLED = 3  # counts whose envelope is followed
SLACK, CLOSE = 0.25, 0.06  # by which rows and families may be slower than the fastest: in a look, and at the end
ASIDE = np.log(2.0)  # of a rate: how far that lies from the best
TURNS = 5  # of the envelope
Told = Callable[[str], None]


class Finder:
    """Looks for answers of one question; what is found is offered to `progress`."""

    def __init__(self, progress: MixProgress, rows: Sequence[JobRows], counts: Sequence[int], seed: int) -> None:
        self.progress, self.problem, self.rows = progress, progress.problem, rows
        self.counts, self.generator = list(counts), np.random.default_rng(seed)
        self.values: dict[int, float] = {}  # at the last glance, by count
        self.looked: dict[int, float] = {}
        self.settled: dict[int, float] = {}

    @property
    def order(self) -> list[int]:
        """Counts that were glanced at, best first."""
        return sorted(self.values, key=lambda count: self.looked.get(count, self.values[count]))

    def _projected(self, counts: np.ndarray, shares: np.ndarray | float, y: np.ndarray) -> np.ndarray:
        """Rates like `y` on the limits of counts, with such shares of the most HBM."""
        shape = np.broadcast_shapes(np.shape(counts), np.shape(shares))
        count = np.broadcast_to(counts, shape).ravel().astype(float)
        most = np.broadcast_to(shares, shape).ravel() * self.problem.most_hbm_bytes
        have = self.problem.money.left(self.problem.limits, count, most)
        moved = project(self.problem, have, np.broadcast_to(y, (len(count), len(y))), self.problem.spends_all)
        return moved.reshape(*shape, len(y))

    def glance(self, counts: Sequence[int], y: np.ndarray, most: int | None = None) -> list[JobRows]:
        """Order counts by about the best value at rates like `y`; the rows of each job that were timed. `most`: of the
        rows of each count and job are looked at."""
        asked = np.sort(np.asarray(counts))
        at = self._projected(asked, USUAL, y)
        total, levels, parts = 0.0, LEVELS * self.problem.most_hbm_bytes, []
        for rows in self.rows:
            own = np.flatnonzero(np.isin(rows.accelerators, asked))
            place = np.searchsorted(asked, rows.accelerators[own])
            chosen = self._some(rows, own, place, at, most)
            parts.append(rows.part(chosen, LEAST))
            total = total + self._least_of(parts[-1], asked, at, levels)
        moved = self._projected(asked[:, None], LEVELS, y) - at[:, None]
        have = self.problem.money.left(
            self.problem.limits, np.repeat(asked, len(levels)).astype(float), np.tile(levels, len(asked))
        )
        flat = (at[:, None] + moved).reshape(-1, len(y))
        price = np.log(self.problem.money.price(flat, have)).reshape(moved.shape[:2])
        broken = (self.problem.money.usd(flat) > have.usd * (1 + 1e-9)) | (
            self.problem.money.watt(flat) > have.watt * (1 + 1e-9)
        )
        value = np.log(total) - moved.mean(axis=-1) + price + (0.0 if self.problem.fill else np.log(asked)[:, None])
        value = np.where(broken.reshape(value.shape), np.inf, value + self.problem.log_scale)
        self.values |= dict(zip(asked.tolist(), value.min(axis=1).tolist(), strict=True))
        return parts

    def _some(self, rows: JobRows, own: np.ndarray, place: np.ndarray, at: np.ndarray, most: int | None) -> np.ndarray:
        """The rows of each count that are timed at a glance."""
        if most is None:
            first = _first(place, rows.least_s(own, at[place]), RANKED)
        else:
            first = _first(place, self.generator.random(len(own)), most)
        own, place = own[first], place[first]
        return own[_first(place, rows.about_s(own, at[place]), ROWS)]

    def _least_of(self, part: JobRows, counts: np.ndarray, at: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Weighted seconds of the fastest plan of a few that fits, by count and size of memory."""
        least = np.full((len(counts), len(levels)), np.inf)
        for here in pieces(len(part.lattice)):
            plans = plan_set(part, np.arange(len(part.lattice))[here])
            of_count = np.searchsorted(counts, plans.points.accelerators)
            seconds = plans.seconds(at[of_count])
            self.progress.evaluations += len(seconds)
            for level, most in enumerate(levels):
                np.minimum.at(least[:, level], of_count, np.where(plans.peak_bytes <= most, seconds, np.inf))
        return least

    def look(self, count: int, y: np.ndarray, generations: int = 7, born: int = 28) -> None:
        """Search the hardware of one count over sets of plans near such rates; offer what is best."""
        some = y + 0.3 * self.generator.standard_normal((3, len(y))) * (np.arange(3) > 0)[:, None]
        some = np.stack([self._projected(np.array(count), USUAL, each) for each in np.clip(some, *self.problem.ends)])
        self.looked.setdefault(count, np.inf)
        sets = [self.near(job, count, some) for job in range(len(self.rows))]
        self.among(count, sets, some, generations, born)

    def near(self, job: int, count: int, y: np.ndarray) -> PlanSet | None:
        """Plans of a job that may be best near some rates."""
        return near(self.rows[job], count, y, self.problem.most_hbm_bytes, SLACK, keep=12)

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
        self.looked[shared.count] = min(self.looked.get(shared.count, np.inf), mixed.log_value)
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

    def _near(self, at: Mixed) -> list[PlanSet | None]:
        most = min(1.6 * at.hbm_bytes, self.problem.most_hbm_bytes)
        return [near(rows, at.accelerators, at.y[None], most, SLACK, keep=60) for rows in self.rows]

    def _possible(self, counts: Sequence[int]) -> list[int]:
        """Counts whose products alone may be better than the best answer."""
        best, bounds = self.progress.best, self.progress.log_bounds
        return [count for count in counts if best is None or bounds.get(count, -np.inf) < best.log_value]

    def aside(self, places: Sequence[tuple[int, np.ndarray]], end: float) -> None:
        """Look at counts from other hardware, too.

        What is best near one hardware is seldom what another would make best: a tensor group over a whole domain wants
        links twice as fast, and is not among the plans that are near without them.
        """
        for count, y in places:
            if time.monotonic() < end:
                self.look(count, np.clip(y, *self.problem.ends))

    @property
    def y(self) -> np.ndarray:
        """Rates of the best answer."""
        return _usual(self.problem.ends) if self.progress.best is None else self.progress.best.y

    def run(self, end: float, told: Told) -> None:
        """All of it, from the answers that are known, until it is done or the time is up."""
        told("every plan on the best counts")
        self.settle_best(end)
        told("a glance at the counts")
        self.glance(self._possible(self.counts), self.y, most=FEW)
        self.glance(self._possible(self.order[:24]), self.y)
        for count in [count for count in self.order[:LOOKED] if count not in self.looked]:
            if time.monotonic() > end:
                return
            told(f"{count:,} accelerators")
            self.look(count, self.y)
        told("other hardware")
        self.aside([(count, _usual(self.problem.ends)) for count in self.order[:OTHERS]], end)
        if self.progress.best is not None:
            best = self.progress.best.accelerators
            self.aside([(best, self.y + step) for step in ASIDE * np.eye(len(self.y))], end)
        self.settle_best(end)

    def settle_best(self, end: float) -> None:
        """Follow the envelope of the counts with the best answers, unless that has been done from there."""
        for count in sorted(self.progress.answers, key=lambda n: self.progress.answers[n].log_value)[:SETTLED]:
            if self.settled.get(count) != self.progress.answers[count].log_value:
                self.settle(count, end)
                self.settled[count] = self.progress.answers[count].log_value


def _usual(ends: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Rates with which a search begins."""
    return ends[0] + 0.7 * (ends[1] - ends[0])


def _first(group: np.ndarray, value: np.ndarray, most: int) -> np.ndarray:
    """Places of the least values of each group, in order."""
    order = np.lexsort((value, group))
    rank = np.arange(len(order)) - np.searchsorted(group[order], group[order])
    return np.sort(order[rank < most])
