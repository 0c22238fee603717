"""Bounds of all plans of a cell: of runs by a tangent each in batches, then of single plans until none is open."""

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.inputs import PlanPoint
from optimize.clusters.progress import (
    PLANS,
    ROWS,
    RUNS,
    SOLVED,
    STUCK,
    Best,
    Cell,
    Open,
    Progress,
    joined,
    trim,
)
from optimize.clusters.rows import ROUNDING, bound_of, rough_bound, runs_of
from optimize.clusters.screening import bytes_of, tangents_of
from optimize.hardware import aggregated, project, tangents_of_runs, tangents_of_schedules
from optimize.lattice import Families, lattice
from optimize.question import RATES, Left, Problem, Tangents, sized

ROUNDS = 10  # of tangents for what stays
AT_A_TIME = (4096, 16_384, 2048, 64)  # rows, runs, plans and stuck ones that one step works at
CLOSER = 2  # tangents of a run before those of its plans
SAME = 1e-9  # of a logarithm: solved hardware that is better by less is not (and may hold more HBM than the plan needs)

Solve = Callable[[Problem, PlanPoint, float], Any]
"""The best hardware of plans (`HardwareSolutions`) by cutting planes; those that cannot be below a value are left."""


def families_of(cell: Cell) -> Families:
    """Every family of plans of a cell: enumerated when asked for, a lattice is not kept."""
    p = cell.problem
    return Families(
        lattice(p.job.workload, sized(p.machine, cell.accelerators), {**p.fixed, "domain": p.domain}, every_shard=False)
    )


def _kept(progress: Progress, part: Open, have: Left, at: Tangents) -> Open:
    """What tangents do not dismiss, with bounds and places half way to where these are."""
    crude = np.fmax(rough_bound(part.cell, have, at) - ROUNDING, part.log_bound)  # what is no number says nothing
    likely = have.usd > 0  # others are not possible
    likely[likely] = progress.left(crude[likely])
    own, part, have = at.keep(likely), part.keep(likely), have.keep(likely)
    log_value, y = bound_of(part.cell, have, own)
    part.log_bound, part.y = np.fmax(part.log_bound, log_value - ROUNDING), 0.5 * (own.y + y)
    return trim(progress, part)


def _closer(progress: Progress, part: Open) -> Open:
    """Runs that no tangent where they have them dismisses, each with its bound and half way to where that was."""
    if not len(part.indices):
        return part
    counts, own = part.cell.counts(len(part.indices)).astype(float), part.families.recompute_of(part.indices)
    step = tangents_of_runs(progress.problem, part.families, part.indices, counts, part.y, own)
    progress.evaluations += len(part.indices)
    have = part.cell.left(step.least_bytes)
    return _kept(progress, part, have, part.cell.tangents(step, have))


def _schedules(progress: Progress, part: Open) -> tuple[Open, ...]:
    """Plans of runs that no tangent at the rates of their run dismisses, and the runs that need no work now."""
    aside = [part.keep(np.zeros(0, int))]
    for _ in range(CLOSER):
        part = _closer(progress, part)
        busy = part.log_bound < progress.busy
        aside.append(part.keep(~busy))
        part = part.keep(busy)
    counts = part.cell.counts(len(part.indices)).astype(float)
    plans, place, step = tangents_of_schedules(progress.problem, part.families, part.indices, counts, part.y)
    progress.evaluations += len(plans)
    own = part.narrowed(PLANS, plans, place)
    have = own.cell.left(step.peak_bytes)
    return _kept(progress, own, have, own.cell.tangents(step, have)), joined(*aside)


def polish(progress: Progress, part: Open, rounds: int, dismiss: bool = True) -> tuple[Open, ...]:
    """Bound plans by tangents in float64, at hardware nearer and nearer to each one's best; offer every answer.

    What is left: the plans that are stuck, and those that are not worked at now. Without `dismiss`, both are another's
    to bound.
    """
    problem, aside = progress.problem, [part.keep(np.zeros(0, int))]
    peak, mean = np.zeros(0), None
    for number in range(rounds):
        if len(part.indices) == 0:
            break
        progress.hear()
        cell, points = part.cell, part.points()
        if number == 0:
            peak = bytes_of(problem.job.floats, problem.machine, points, len(part.indices))
        have = cell.left(peak)
        y = project(problem, have, part.y, problem.spends_all)
        at = tangents_of(problem.job.floats, problem.machine, points, y, problem.loads, peak)
        progress.evaluations += len(peak)
        at = cell.tangents(at, have)
        _offer(progress, part, at, have)
        if number < 3 or mean is None:
            mean, (log_value, y) = at, bound_of(cell, have, at)
        else:
            mean, (log_value, y) = aggregated(functools.partial(bound_of, cell, have), mean, at)
        log_bound = np.fmax(part.log_bound, log_value)
        part = dataclasses.replace(part, log_bound=log_bound, y=y)
        alive = (progress.left if dismiss else progress.may_be_best)(log_bound)
        busy = alive & (log_bound < progress.busy)
        aside.append(part.keep(alive & ~busy))
        part, peak, mean = part.keep(busy), peak[busy], mean.keep(busy)
    return dataclasses.replace(part, kind=STUCK), joined(*aside)


def _offer(progress: Progress, part: Open, at: Tangents, have: Left) -> None:
    """The best four of the plans whose tangents were taken within the limits."""
    value = np.where(part.cell.within(have, at), part.cell.log_value(have, at), np.inf)
    for place in np.argsort(value, kind="stable")[:4]:
        if np.isfinite(value[place]):
            _offer_one(progress, part, int(place), float(value[place]), at.y[place].copy(), float(at.peak_bytes[place]))


def _offer_one(progress: Progress, part: Open, place: int, log_value: float, y: np.ndarray, hbm_bytes: float) -> None:
    """One plan of a part, on its own count."""
    cell = dataclasses.replace(part.cell, accelerators=int(part.cell.counts(len(part.indices))[place]))
    plan = part.families.lattice.plan(int(part.indices[place]))
    progress.offer(Best(log_value=log_value, cell=cell, y=y, hbm_bytes=hbm_bytes, plan=plan))


def close(progress: Progress, end: float, solve: Solve) -> None:
    """Work at what is open, the lowest bounds first, until nothing is below `progress.busy`, its evaluations are
    spent, or until `end`.

    Rows become runs, these become plans, and what tangents of plans do not decide is left to `solve`.
    """
    while time.monotonic() < end and not progress.spent and (place := _lowest(progress)) is not None:
        progress.hear()
        part = trim(progress, progress.open[place])
        order = np.argsort(part.log_bound, kind="stable")[: AT_A_TIME[part.kind]]
        chosen = order[part.log_bound[order] < progress.busy]
        rest = np.ones(len(part.indices), bool)
        rest[chosen] = False
        _put(progress, place, part.keep(rest), _narrowed(progress, part.keep(chosen), solve))


def _lowest(progress: Progress) -> int | None:
    """The part to work at: the narrowest kind of which there is enough for a step, or else the widest, so that steps
    are large; before there is an answer, always the narrowest."""
    at_work = []
    for place, part in enumerate(progress.open):
        busy = int(np.count_nonzero(part.log_bound < progress.busy))
        if part.kind <= STUCK and busy:
            full = busy >= AT_A_TIME[part.kind] or progress.best is None
            at_work.append((not full, -part.kind if full else part.kind, place))
    return min(at_work)[-1] if at_work else None


def _narrowed(progress: Progress, part: Open, solve: Solve) -> tuple[Open, ...]:
    """What is left of members of a part after the next step."""
    if part.kind == ROWS:
        return (runs_of(progress, part),)
    if part.kind == RUNS:
        return _schedules(progress, part)
    if part.kind == STUCK:
        return (_exactly(progress, part, solve),)
    return polish(progress, part, ROUNDS)


def _put(progress: Progress, place: int, rest: Open, found: tuple[Open, ...]) -> None:
    """Set what is left of a part, and add what was found, in one step: a search may end at any moment."""
    parts = [*progress.open[:place], rest, *progress.open[place + 1 :]]
    for new in found:
        same = [i for i, part in enumerate(parts) if part.families is new.families and part.kind == new.kind]
        if same:
            parts[same[0]] = joined(parts[same[0]], new)
        else:
            parts.append(new)
    progress.open = [part for part in parts if len(part.indices)]


def _exactly(progress: Progress, part: Open, solve: Solve) -> Open:
    """The few that tangents do not decide, by cutting planes: their best hardware, or a bound above the best answer."""
    cutoff = math.exp(progress.cut) if progress.best else np.inf
    solved = solve(progress.problem, part.points(), cutoff)
    progress.evaluations += solved.evaluations
    for place in np.flatnonzero(np.isfinite(solved.value)):
        _offer_solved(progress, part, solved, int(place))
    with np.errstate(divide="ignore"):
        log_bound = np.fmax(part.log_bound, np.log(solved.lower_bound))
    return trim(progress, dataclasses.replace(part, kind=SOLVED, log_bound=log_bound))


def _offer_solved(progress: Progress, part: Open, solved: Any, place: int) -> None:
    hardware, log_value = solved.hardware(place), float(np.log(solved.value[place]))
    if progress.best is not None and log_value >= progress.best.log_value - SAME:
        return
    y = np.log([float(getattr(hardware, name)) for name in RATES])
    _offer_one(progress, part, place, log_value, y, float(hardware.hbm_bytes))
