"""What is open of one job of a mix on all counts: rows of degrees, runs that differ in the schedule alone, and plans.

Each is bounded by a tangent with the tilt of its count (`tilts`). What is below the level of its count is replaced,
the narrowest kind first: rows by themselves at hardware of their own count, with the memory of each mode of recompute
beside the time that it takes; those by runs (`hardware.tangents_of_runs`), runs by plans, and these are bounded at
hardware nearer and nearer to their own best, until nothing but plans that are stuck is below.
"""

import functools
from typing import NamedTuple

import numpy as np

from costmodel import map_leaves
from costmodel.inputs import RecomputeRow
from optimize.clusters.mixes.job_plans import JobRows, of_steps, pieces, plan_set
from optimize.clusters.mixes.tilts import Tilts, least_value, paid, tilted, within
from optimize.clusters.rows import needs_by_mode
from optimize.hardware import aggregated, bytes_of_rows, tangents_of_runs
from optimize.lattice import Families
from optimize.question import Tangents

ROWS, NEARER, RUNS, PLANS, STUCK = range(5)
AT_A_TIME = (2048, 256, 1024, 2048)
AGAIN = 2  # tangents of rows at hardware of their own count
AT_ONCE = 1024  # runs, under several modes each
ROUNDS = 9  # of tangents of a plan, each nearer to its best hardware, before it is stuck

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
        for own, at in parts:
            cell = np.searchsorted(self.tilts.counts, self.rows.accelerators[own])
            bound, y = self._least(at, cell, level=-np.inf)
            low = np.flatnonzero(bound < self.cap[cell])
            high = np.setdiff1d(np.flatnonzero(np.isfinite(bound)), low)
            self.put(members(ROWS, own[high], cell[high], bound[high], at.peak_bytes[high], y[high]))
            at, own, cell = at.keep(low), own[low], cell[low]
            need = bytes_of_rows(self.rows.alone, self.rows.columns(own))
            bound, y = self._least(at._replace(peak_bytes=need), cell)
            self.put(members(ROWS, own, cell, bound, need, y))
        order = np.lexsort((self.open.bound, self.open.number))  # of one row under several switches, the lowest
        self.open = self.open.take(order[np.diff(self.open.number[order], prepend=-1) > 0])

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
            return self._nearer(part)
        if kind == NEARER:
            return self._runs(part)
        number, y = part.number, part.y
        if kind == RUNS:
            number, y = self.families.of_every_schedule(number), np.repeat(y, self.families.schedules(number), axis=0)
        return joined([self._polished(number[here], y[here], level) for here in pieces(len(number))])

    def _nearer(self, part: Members) -> Members:
        """Rows with the memory of each mode of recompute beside its time, at rates of their count and then at rates
        half way to where the least of them is least there."""
        rows, places, bound = self.rows, self.tilts.place, np.full(len(part.number), -np.inf)
        need, modes = needs_by_mode(rows.alone, self.families, part.number, rows.columns(part.number))
        for _ in range(AGAIN):
            alive = np.flatnonzero(bound < self.cap[part.cell])
            own, least = map_leaves(lambda leaf, of=alive: leaf[:, of], modes), np.full(len(alive), np.inf)
            for chosen, at in rows.tangents(part.number[alive], places, part.cell[alive], own):
                here = alive[chosen]
                found, where = self._least_mode(at, need[:, here], part.cell[here])
                less = found < least[chosen]
                least[chosen[less]], part.y[here[less]] = found[less], where[less]
            bound[alive] = np.maximum(bound[alive], least)
            places = _moved(places, part.cell, bound, part.y)
        return part._replace(kind=np.full(len(bound), NEARER), bound=np.maximum(part.bound, bound))

    def _least_mode(self, at: Tangents, need: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What rows are at least under any mode (first axis of what they need), and where."""
        found, where = np.full(need.size, np.inf), at.y.copy()
        some, cells = np.flatnonzero(np.isfinite(need.ravel())), np.tile(cell, len(need))
        self.evaluations += len(some)
        at = at.keep(some)._replace(peak_bytes=need.ravel()[some])
        found[some], where[some] = self._least(at, cells[some])
        lowest = found.reshape(need.shape).argmin(axis=0), np.arange(len(cell))
        return found.reshape(need.shape)[lowest], where.reshape(*need.shape, -1)[lowest]

    def _runs(self, part: Members) -> Members:
        """Runs of rows under each mode of recompute."""
        first, place = self.families.of_any_schedule(part.number)
        found = []
        for start in range(0, len(first), AT_ONCE):
            here = slice(start, start + AT_ONCE)
            numbers, modes = self.families.by_recompute(first[here])
            legal = np.flatnonzero(numbers.ravel() >= 0)
            cell, y = part.cell[place[here]], part.y[place[here]]
            own = legal % len(cell)
            each = self._bounded_runs(first[here], cell, y, modes, legal)
            found.append(members(RUNS, numbers.ravel()[legal], cell[own], each.bound, each.need_bytes, each.y))
        new = joined(found)
        low = np.flatnonzero(new.bound < self.cap[new.cell])
        again = new.take(low)
        modes = self.families.recompute_of(again.number)
        each = self._bounded_runs(again.number, again.cell, again.y, modes, np.arange(len(low)))
        new.bound[low], new.y[low] = np.maximum(new.bound[low], each.bound), each.y
        return new

    def _bounded_runs(
        self, first: np.ndarray, cell: np.ndarray, y: np.ndarray, modes: RecomputeRow, chosen: np.ndarray
    ) -> Members:
        """Some of runs under their modes, by a tangent at rates of each; half way to where that is least."""
        counts, of_row = self.tilts.counts[cell].astype(float), np.searchsorted(self.rows.lattice.ends, first, "right")
        at = tangents_of_runs(self.rows.alone, self.families, first, counts, y, modes)
        at, own = of_steps(at, self.rows.steps(of_row)).keep(chosen), np.tile(cell, len(at.y) // len(cell))[chosen]
        self.evaluations += len(chosen)
        bound, where = self._least(at, own)
        return members(RUNS, chosen, own, bound, at.peak_bytes, 0.5 * (at.y + where))

    def _least(self, at: Tangents, cell: np.ndarray, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        problem, counts = self.rows.problem, self.tilts.counts[cell]
        at = tilted(paid(problem, at), self.tilt[cell], self.tilts.place[cell])
        return least_value(problem, counts, at, self.cap[cell] if level is None else level)

    def _polished(self, number: np.ndarray, y: np.ndarray, level: np.ndarray) -> Members:
        """Plans by tangents nearer and nearer to their best hardware, until they are above their level, or stuck."""
        problem, plans, y = self.rows.problem, plan_set(self.rows, number), y.copy()
        cell = np.searchsorted(self.tilts.counts, plans.points.accelerators)
        bound, kind = np.full(len(number), -np.inf), np.full(len(number), PLANS)
        low, mean = np.arange(len(number)), None
        for turn in range(ROUNDS):
            self.evaluations += len(low)
            at, here = paid(problem, plans.take(low).tangents(y[low])), cell[low]
            at = tilted(at, self.tilt[here], self.tilts.place[here])
            if turn < 3 or mean is None:
                mean, (found, where) = at, least_value(problem, self.tilts.counts[here], at, np.inf)
            else:
                each = functools.partial(within, problem, self.tilts.counts[here])
                mean, (found, where) = aggregated(each, mean, at)
            bound[low], y[low] = np.maximum(bound[low], found), 0.5 * (y[low] + where) if turn == 0 else where
            stays = bound[low] < level[cell[low]]
            low, mean = low[stays], mean.keep(stays)
            if not len(low):
                break
        kind[low] = STUCK
        return members(PLANS, number, cell, bound, plans.peak_bytes, y)._replace(kind=kind)


def _moved(places: np.ndarray, cell: np.ndarray, bound: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Places half way to where the least of each cell is least."""
    order = np.lexsort((bound, cell))
    which, first = np.unique(cell[order], return_index=True)
    places = places.copy()
    places[which] = 0.5 * (places[which] + y[order[first]])
    return places
