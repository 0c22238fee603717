"""What is open of one job of a mix on all counts: rows of degrees, runs of families, families and plans, lowest first.

Each is bounded by a tangent with the tilt of its count (`tilts`). What is below the level of its count is replaced by
what it holds, the narrowest kind first, until nothing but plans is below, bounded at hardware nearer to their own best.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from optimize.clusters.mixes.job_plans import Covers, JobRows, pieces, plan_set
from optimize.clusters.mixes.tilts import Tilts, least_value, tilted, within
from optimize.hardware import aggregated, bytes_of_rows
from optimize.lattice import Families
from optimize.question import Tangents

ROWS, RUNS, FAMILIES, PLANS, STUCK = range(5)
AT_A_TIME = (192, 1024, 2048, 2048)
AGAIN = 2  # tangents of the rows that are open, after the first
TIMES = 2  # tangents of a run and of a family
ROUNDS = 9  # of tangents of a plan, each nearer to its best hardware, before it is stuck
COVERS: dict[int, Covers] = {RUNS: "schedule", FAMILIES: "recompute", PLANS: "plan"}

Part = tuple[np.ndarray, Tangents]
"""Rows of degrees under some switches, with a tangent each."""


class Members(NamedTuple):
    """Rows (by place in the rows of the job), or runs, families and plans (by number in its lattice)."""

    kind: np.ndarray
    number: np.ndarray
    cell: np.ndarray  # place of its count in those of the tilts
    bound: np.ndarray
    need_bytes: np.ndarray
    y: np.ndarray

    def take(self, chosen: np.ndarray) -> "Members":
        """Some of them."""
        return Members(*(column[chosen] for column in self))


def joined(parts: list[Members]) -> Members:
    """All in one."""
    return Members(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def members(
    kind: int, number: np.ndarray, count: np.ndarray, bound: np.ndarray, need: np.ndarray, y: np.ndarray
) -> Members:
    """New ones of one kind."""
    n = len(number)
    return Members(np.full(n, kind), number, count, bound, np.broadcast_to(need, n), y)


class Pool:
    """The members of one job that are open, and the least bound of all that is above every level, by count."""

    def __init__(self, rows: JobRows, job: int, tilts: Tilts, cap: np.ndarray) -> None:
        self.rows, self.job, self.tilts, self.cap = rows, job, tilts, cap
        self.tilt = tilts.tilts[:, job]
        self.gone: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # count, bytes, bound
        self.gone_least = np.full(len(tilts.counts), np.inf)
        self.evaluations = 0
        none = np.zeros(0, int)
        self.open = members(ROWS, none, none, np.zeros(0), np.zeros(0), np.zeros((0, tilts.place.shape[1])))

    def open_rows(self, parts: list[Part]) -> None:
        """Bound rows by their tangents: first without the memory that they need."""
        problem, alone = self.rows.problem, dataclasses.replace(self.rows.problem, jobs=(self.rows.job,))
        for own, at in parts:
            counts = self.rows.accelerators[own]
            count = np.searchsorted(self.tilts.counts, counts)
            tilt, place = self.tilt[count], self.tilts.place[count]
            at = tilted(at, tilt, place)
            bound, y = least_value(problem, counts, at, -np.inf)
            low = np.flatnonzero(bound < self.cap[count])
            high = np.setdiff1d(np.flatnonzero(np.isfinite(bound)), low)
            self.put(members(ROWS, own[high], count[high], bound[high], at.peak_bytes[high], y[high]))
            at, own, count = at.keep(low), own[low], count[low]
            need = bytes_of_rows(alone, self.rows.columns(own))
            bound, y = least_value(problem, counts[low], at._replace(peak_bytes=need), self.cap[count])
            self.put(members(ROWS, own, count, bound, need, y))
        self._merge_rows()
        place = self.tilts.place
        for _ in range(AGAIN):
            place = self._nearer(place)

    def _merge_rows(self) -> None:
        """Of the same row under several switches, the lowest."""
        order = np.lexsort((self.open.bound, self.open.number))
        number = self.open.number[order]
        self.open = self.open.take(order[np.diff(number, prepend=-1) > 0])

    def _nearer(self, place: np.ndarray) -> np.ndarray:
        """Bound what is open once more, at rates half way to where the least row of each count is least."""
        order = np.lexsort((self.open.bound, self.open.cell))
        which, first = np.unique(self.open.cell[order], return_index=True)
        place = place.copy()
        place[which] = 0.5 * (place[which] + self.open.y[order[first]])
        now, bound = self.open, np.full(len(self.open.kind), np.inf)
        for chosen, at in self.rows.tangents(now.number, place, now.cell):
            at = at._replace(peak_bytes=now.need_bytes[chosen])
            found, y = self._least(at, now.cell[chosen])
            less = found < bound[chosen]
            bound[chosen[less]], now.y[chosen[less]] = found[less], y[less]
        self.open = now.take(np.zeros(0, int))
        self.put(now._replace(bound=np.maximum(now.bound, bound)))
        return place

    @functools.cached_property
    def families(self) -> Families:
        """Of the lattice of the rows."""
        return Families(self.rows.lattice)

    def put(self, new: Members) -> None:
        """Open some; what is above the cap of its count is gone."""
        possible = np.isfinite(new.bound)
        gone = (new.bound >= self.cap[new.cell]) & possible
        self.gone.append((new.cell[gone], new.need_bytes[gone], new.bound[gone]))
        np.minimum.at(self.gone_least, new.cell[gone], new.bound[gone])
        kept = new.take(np.flatnonzero(possible & ~gone))
        self.open = joined([self.open, kept])

    @property
    def least(self) -> np.ndarray:
        """By count, what no plan is below."""
        least = self.gone_least.copy()
        np.minimum.at(least, self.open.cell, self.open.bound)
        return least

    def busy(self, level: np.ndarray) -> bool:
        """Whether something below the level of its count can be worked at."""
        return bool(((self.open.bound < level[self.open.cell]) & (self.open.kind < STUCK)).any())

    def work(self, level: np.ndarray) -> None:
        """One step at the lowest of the narrowest kind that is below the level of its count."""
        below = np.flatnonzero((self.open.bound < level[self.open.cell]) & (self.open.kind < STUCK))
        kind = int(self.open.kind[below].max())
        below = below[self.open.kind[below] == kind]
        order = np.argsort((self.open.bound - level[self.open.cell])[below], kind="stable")
        chosen = below[order[: AT_A_TIME[kind]]]
        part = self.open.take(chosen)
        rest = np.ones(len(self.open.kind), bool)
        rest[chosen] = False
        new = self._narrowed(part, kind, level)
        self.open = self.open.take(np.flatnonzero(rest))
        self.put(new)

    def _narrowed(self, part: Members, kind: int, level: np.ndarray) -> Members:
        if kind == ROWS:
            return self._bounded(RUNS, self.families.of_any_schedule(part.number)[0])
        if kind == RUNS:
            return self._bounded(FAMILIES, self.families.of_every_schedule(part.number))
        number, y = part.number, part.y
        if kind == FAMILIES:
            number, family = self.families.members(number)
            y = y[family]
        return joined([self._polished(number[here], y[here], level) for here in pieces(len(number))])

    def _bounded(self, kind: int, number: np.ndarray) -> Members:
        """Runs or families, by a tangent at the place of their count, and one nearer to where that is least."""
        plans = plan_set(self.rows, number, COVERS[kind])
        count = np.searchsorted(self.tilts.counts, plans.points.accelerators)
        new = members(kind, number, count, np.full(len(number), -np.inf), plans.peak_bytes, self.tilts.place[count])
        for _ in range(TIMES):
            low = np.flatnonzero(new.bound < self.cap[new.cell])
            self.evaluations += len(low)
            at = plans.take(low).tangents(new.y[low])
            bound, where = self._least(at, count[low])
            new.y[low], new.bound[low] = 0.5 * (at.y + where), np.maximum(new.bound[low], bound)
        return new

    def _least(self, at: Tangents, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = tilted(at, self.tilt[count], self.tilts.place[count])
        return least_value(self.rows.problem, self.tilts.counts[count], at, self.cap[count])

    def _polished(self, number: np.ndarray, y: np.ndarray, level: np.ndarray) -> Members:
        """Plans by tangents nearer and nearer to their best hardware, until they are above their level, or stuck."""
        plans, y = plan_set(self.rows, number), y.copy()
        count = np.searchsorted(self.tilts.counts, plans.points.accelerators)
        place, bound, kind = self.tilts.place[count], np.full(len(number), -np.inf), np.full(len(number), PLANS)
        low, mean = np.arange(len(number)), None
        for turn in range(ROUNDS):
            self.evaluations += len(low)
            at = tilted(plans.take(low).tangents(y[low]), self.tilt[count[low]], place[low])
            if turn < 3 or mean is None:
                mean, (found, where) = at, least_value(self.rows.problem, self.tilts.counts[count[low]], at, np.inf)
            else:
                each = functools.partial(within, self.rows.problem, self.tilts.counts[count[low]])
                mean, (found, where) = aggregated(each, mean, at)
            bound[low], y[low] = np.maximum(bound[low], found), 0.5 * (y[low] + where) if turn == 0 else where
            stays = bound[low] < level[count[low]]
            low, mean = low[stays], mean.keep(stays)
            if not len(low):
                break
        kind[low] = STUCK
        return members(PLANS, number, count, bound, plans.peak_bytes, y)._replace(kind=kind)
