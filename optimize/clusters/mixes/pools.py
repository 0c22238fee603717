"""What is open of one job of a mix on all counts: rows of degrees, runs that differ in the schedule alone, and plans.

Each is bounded by a tangent with the tilt of its count (`tilts`). What is below the level of its count is replaced,
the narrowest kind first: rows by themselves at hardware of their own count, with the memory of each mode of recompute
beside the time that it takes; those by runs (`hardware.tangents_of_runs`), runs by plans, and these are bounded at
hardware nearer and nearer to their own best, until nothing but plans that are stuck is below.
"""

import functools
from collections.abc import Callable
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
AT_A_TIME = (2048, 512, 1024, 2048)
AGAIN = 2  # tangents of rows at hardware of their own count
AT_ONCE = 4096  # runs: what lies between stays in the caches
RUN_ROUNDS = 3  # of tangents of a run
PURE = 1  # tangents that are taken as they are: the next ones are the mean of two
ROUNDS = 9  # of tangents of a plan, each nearer to its best hardware, before it is stuck

Part = tuple[np.ndarray, Tangents]
"""Rows of degrees under some switches, with a tangent each."""


class Members(NamedTuple):
    """Rows (by place in the rows of the job); or rows under a mode of recompute, runs and plans (by number in its
    lattice, of the first plan)."""

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
            below = bound < self.cap[cell]
            low, high = np.flatnonzero(below), np.flatnonzero(~below)
            self.put(members(ROWS, own[high], cell[high], bound[high], at.peak_bytes[high], y[high]))
            at, own, cell = at.keep(low), own[low], cell[low]
            need = bytes_of_rows(self.rows.alone, self.rows.columns(own))
            bound, y = self._least(at._replace(peak_bytes=need), cell)
            self.put(members(ROWS, own, cell, bound, need, y))
        order = np.lexsort((self.open.bound, self.open.number))  # of one row under several switches, the lowest
        self.open = self.open.take(order[np.diff(self.open.number[order], prepend=-1) > 0])

    @functools.cached_property
    def families(self) -> Families:
        """Families of the lattice of the rows."""
        return Families(self.rows.lattice)

    def put(self, new: Members) -> None:
        """Open some; what is above the cap of its count is gone."""
        new = new._replace(bound=np.fmax(new.bound, -np.inf))  # what is no number says nothing
        possible = new.bound < np.inf
        gone = (new.bound >= self.cap[new.cell]) & possible
        self.gone.append((new.cell[gone], new.need_bytes[gone], new.bound[gone]))
        np.minimum.at(self.gone_least, new.cell[gone], new.bound[gone])
        kept = new.take(np.flatnonzero(possible & ~gone))
        self.open = joined([self.open, kept])

    @property
    def least(self) -> np.ndarray:
        """What no plan is below, by count."""
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
            return self._runs(part, level)
        number, y = part.number, part.y
        if kind == RUNS:  # the best hardware of a run lacks what a schedule lives on, and says little of its plans
            number = self.families.of_every_schedule(number)
            y = self.tilts.place[np.repeat(part.cell, self.families.schedules(part.number))]
        return joined([self._polished(number[here], y[here], level) for here in pieces(len(number))])

    def _nearer(self, part: Members) -> Members:
        """Rows under each mode of recompute, with its memory and its time, at rates of their count and then at rates
        half way to where the least of them is least there."""
        rows, places = self.rows, self.tilts.place
        needs, modes = needs_by_mode(rows.alone, self.families, part.number, rows.columns(part.number))
        need = needs.min(axis=0)
        y, cell = np.tile(part.y, (*need.shape[:1], 1, 1)), np.broadcast_to(part.cell, need.shape)
        bound = np.where(np.isfinite(need), -np.inf, np.inf)
        for _ in range(AGAIN):
            alive = np.flatnonzero((bound < self.cap[part.cell]).any(axis=0))
            own, least = map_leaves(lambda leaf, of=alive: leaf[:, of], modes), np.full(need[:, alive].shape, np.inf)
            for chosen, at in rows.tangents(part.number[alive], places, part.cell[alive], own):
                here = np.ix_(np.arange(len(need)), alive[chosen])
                found, where = self._of_modes(at, need[here], cell[here])
                less = found < least[:, chosen]
                least[:, chosen] = np.where(less, found, least[:, chosen])
                y[here] = np.where(less[..., None], where, y[here])
            bound[:, alive] = np.maximum(bound[:, alive], least)
            places = _moved(places, cell.ravel(), bound.ravel(), y.reshape(-1, y.shape[-1]))
        mode, row = np.nonzero(np.isfinite(need))
        number = (rows.lattice.ends - self.families.sizes)[part.number[row]] + mode
        bound = np.maximum(bound[mode, row], part.bound[row])
        return members(NEARER, number, part.cell[row], bound, need[mode, row], y[mode, row])

    def _of_modes(self, at: Tangents, need: np.ndarray, cell: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What rows are at least under every mode (first axis of what they need), and where."""
        found, where = np.full(need.size, np.inf), at.y.copy()
        some = np.flatnonzero(np.isfinite(need.ravel()))
        self.evaluations += len(some)
        at = at.keep(some)._replace(peak_bytes=need.ravel()[some])
        least, where[some] = self._least(at, cell.ravel()[some])
        found[some] = np.fmax(least, -np.inf)  # what is no number says nothing
        return found.reshape(need.shape), where.reshape(*need.shape, -1)

    def _runs(self, part: Members, level: np.ndarray) -> Members:
        """Runs of rows under a mode of recompute each."""
        row = np.searchsorted(self.rows.lattice.ends, part.number, "right")
        first, place = self.families.of_any_schedule(row)
        mode = part.number - (self.rows.lattice.ends - self.families.sizes)[row]
        number, cell = first + mode[place], part.cell[place]
        modes, parts = self.families.recompute_of(number), []

        def at(of: np.ndarray, y: np.ndarray) -> Tangents:
            return self._at_runs(number[of], cell[of], y, map_leaves(lambda leaf: leaf[of], modes))

        for start in range(0, len(number), AT_ONCE):
            here = np.arange(start, min(start + AT_ONCE, len(number)))
            tangents = functools.partial(lambda of, y, here: at(here[of], y), here=here)
            bound, y, _ = self._raised(tangents, cell[here], self.tilts.place[cell[here]], level, RUN_ROUNDS)
            need = part.need_bytes[place[here]]
            parts.append(members(RUNS, number[here], cell[here], bound, need, y))
        return joined(parts)

    def _at_runs(self, first: np.ndarray, cell: np.ndarray, y: np.ndarray, modes: RecomputeRow) -> Tangents:
        """Tangents of runs under their modes, flattened."""
        counts, of_row = self.tilts.counts[cell].astype(float), np.searchsorted(self.rows.lattice.ends, first, "right")
        at = tangents_of_runs(self.rows.alone, self.families, first, counts, y, modes)
        self.evaluations += len(at.y)
        return of_steps(at, self.rows.steps(of_row))

    def _least(self, at: Tangents, cell: np.ndarray, level: float | None = None) -> tuple[np.ndarray, np.ndarray]:
        problem, counts = self.rows.problem, self.tilts.counts[cell]
        at = tilted(paid(problem, at), self.tilt[cell], self.tilts.place[cell])
        return least_value(problem, counts, at, self.cap[cell] if level is None else level)

    def _polished(self, number: np.ndarray, y: np.ndarray, level: np.ndarray) -> Members:
        """Plans by tangents nearer and nearer to their best hardware, until they are above their level, or stuck."""
        plans, kind = plan_set(self.rows, number), np.full(len(number), PLANS)
        cell = np.searchsorted(self.tilts.counts, plans.points.accelerators)
        bound, y, low = self._raised(lambda of, y: plans.take(of).tangents(y), cell, y, level, ROUNDS)
        kind[low] = STUCK
        return members(PLANS, number, cell, bound, plans.peak_bytes, y)._replace(kind=kind)

    def _raised(
        self,
        tangents: Callable[[np.ndarray, np.ndarray], Tangents],
        cell: np.ndarray,
        y: np.ndarray,
        level: np.ndarray,
        rounds: int,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Bounds by several tangents, each nearer to where the last ones are least, and where; what stays below."""
        problem, y, bound = self.rows.problem, y.copy(), np.full(len(cell), -np.inf)
        low, mean = np.arange(len(cell)), None
        for turn in range(rounds):
            self.evaluations += len(low)
            here = cell[low]
            at = tilted(paid(problem, tangents(low, y[low])), self.tilt[here], self.tilts.place[here])
            if turn < PURE or mean is None:
                mean, (found, where) = at, least_value(problem, self.tilts.counts[here], at, np.inf)
            else:
                each = functools.partial(within, problem, self.tilts.counts[here])
                mean, (found, where) = aggregated(each, mean, at)
            bound[low], y[low] = np.maximum(bound[low], found), 0.5 * (y[low] + where) if turn == 0 else where
            stays = bound[low] < level[here]
            low, mean = low[stays], mean.keep(stays)
            if not len(low):
                break
        return bound, y, low


def _moved(places: np.ndarray, cell: np.ndarray, bound: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Places half way to where the least of each cell is least."""
    order = np.lexsort((bound, cell))
    which, first = np.unique(cell[order], return_index=True)
    places = places.copy()
    places[which] = 0.5 * (places[which] + y[order[first]])
    return places
