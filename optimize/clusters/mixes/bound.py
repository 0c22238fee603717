r"""The bound of a mix at one count: plans that may matter, kept as planes, and boxes of hardware until none is below.

Every row of degrees of every job gets a tangent near the best hardware that is known; then, of the rows that are low,
runs of families, families and plans. With tilts $m_j$ that cancel over the
shares ($\sum_j s_j m_j = 0$), a plan $p$ of job $j$ lies above the plane $e_j - m_j \cdot (y - y_0)$ wherever the
limits allow, if $\min_y [L_{jp}(y) + m_j \cdot (y - y_0)] \ge e_j$ (`hardware.dual_bound` of its tangent). So all that
is no better than a level is one plane, and what is left (some hundred plans) is bounded box by box (`boxes`), with more
tangents where the least box lies.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.inputs import Plan, embed
from optimize.clusters.mixes.boxes import AT_ONCE, Boxes, Planes, bounded, halves, joined, whole
from optimize.clusters.mixes.job_plans import JobRows, PlanSet, pieces, plan_set
from optimize.clusters.mixes.progress import Mixed
from optimize.clusters.screening import tangents_of
from optimize.hardware import bytes_of_rows, dual_bound, largest_alone, project
from optimize.lattice import Families, lattice
from optimize.question import Job, Left, Objective, Problem, Tangents, sized

MARGIN = 0.08  # of a logarithm above its level, up to which a plan is kept
ROUNDS = 3  # of tangents of the plans that are kept, each nearer to their best hardware
STEP = 0.02  # of a logarithm: by which planes of what is not kept are rounded down
SMALL = 0.03  # lost to the sides of a box below which its planes need to be better
FINAL = 0.01  # widths (logarithms) below which a box is not split any more
NEAR = 0.04  # of a logarithm above the least plan: plans that get a tangent at the middle of the least box


Part = tuple[np.ndarray, Tangents]
"""Rows of degrees under some switches, with a tangent each."""
Level = Callable[[np.ndarray], np.ndarray]
"""What seconds (logarithms) are compared with, by bytes of HBM: those who need more pay more."""
Kept = tuple[PlanSet, Planes]
"""Plans of a job that are kept, and planes below them and below all others."""


def all_rows(problem: Problem, job: Job, count: int) -> JobRows:
    """Every plan of a job at one count."""
    fixed = {**problem.fixed, "domain": problem.domain}
    every = lattice(job.workload, sized(problem.machine, count), fixed, every_shard=False)
    return JobRows(problem, job, every, np.full(len(every.ends), count))


def rows_that_fit(rows: JobRows, place: np.ndarray) -> list[Part]:
    """All rows that may fit, with tangents at a place, by switches."""
    every = np.arange(len(rows.lattice.ends))
    need = bytes_of_rows(dataclasses.replace(rows.problem, jobs=(rows.job,)), rows.columns(every))
    fits = np.flatnonzero(need <= rows.problem.most_hbm_bytes)
    if not len(fits):
        return []
    tangents = rows.tangents(fits, place[None], np.zeros(len(fits), int))
    return [(fits[chosen], at._replace(peak_bytes=need[fits[chosen]])) for chosen, at in tangents if len(chosen)]


def _usual(rows: JobRows, parts: list[Part], place: np.ndarray, plan: Plan | None) -> Tangents:
    """The tangent of a plan at the place, or of the row that may be fastest there."""
    if plan is None:
        at = min((at for _, at in parts), key=lambda at: at.log_value.min())
        return at.keep(np.array([int(at.log_value.argmin())]))
    points = embed(plan, rows.job.workload, float(rows.problem.domain), rows.problem.machine.stack.habits)
    at = tangents_of(rows.job.workload, rows.problem.machine, points, place[None], rows.problem.loads)
    return rows.worth_of(at, rows.steps(np.zeros(1, int)), at.peak_bytes)


def _tilted(
    rows: JobRows, at: Tangents, tilt: np.ndarray, place: np.ndarray, level: Any = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """What each tangent is at least with a tilt, wherever the limits allow, and where; above `level` only roughly."""
    problem, count = rows.problem, float(rows.accelerators[0])
    plain = dataclasses.replace(problem, objective=Objective.time)  # what hardware costs is in the tilt
    have = problem.money.left(problem.limits, np.full(len(at.y), count), at.peak_bytes)
    tilted = at._replace(log_value=at.log_value + (at.y - place) @ tilt, slopes=at.slopes + tilt)
    highest, (low, _) = largest_alone(problem, np.maximum(have.usd, 1e-300), have.watt), problem.ends
    corner = np.minimum(tilted.slopes * (highest - at.y), tilted.slopes * (low - at.y)).sum(-1)
    bound, y = tilted.log_value + corner, at.y.copy()
    below = bound < level
    own = tilted.keep(below)
    bound[below], y[below] = dual_bound(plain, Left(*(column[below] for column in have)), own)
    return bound, y


def _steepest(rows: JobRows, tilt: np.ndarray, place: np.ndarray) -> float:
    """What a logarithm of seconds falls by at most from a place, with a tilt, wherever the limits allow.

    Its slopes by the logarithms of the rates are negative and no less than -1 in all, so it is least at a corner. (What
    it is worth has these slopes and those of its price.)
    """
    slopes = np.concatenate([np.zeros((1, len(place))), -np.eye(len(place))])
    none = np.zeros(len(slopes))
    at = Tangents(none, slopes, np.broadcast_to(place, slopes.shape), none, none)
    return float(_tilted(rows, at, tilt, place)[0].min()) + _cheaper(rows, place)


def _cheaper(rows: JobRows, place: np.ndarray) -> float:
    """What the logarithm of the price of a second falls by at most from a place, of either kind."""
    money, (low, _), none = rows.problem.money, rows.problem.ends, np.zeros(())
    ends = zip(*(money.seconds(y, Left(none, none, none)) for y in (low, place)), strict=True)
    return min(float(np.log(a / b)) for a, b in ends if b > 0)


def keep(rows: JobRows, parts: list[Part], place: np.ndarray, tilt: np.ndarray, level: Level) -> Kept:
    """The plans that may lie below a level; all others become a few planes, each from some bytes of HBM on."""
    others: list[tuple[np.ndarray, np.ndarray]] = []
    plans, planes = plan_set(rows, _low_members(rows, parts, place, tilt, level, others)), []
    y, best = np.broadcast_to(place, (len(plans), len(place))), np.full(len(plans), -np.inf)
    for number in range(ROUNDS):
        if not len(plans):
            break
        at = plans.tangents(y)
        bound, where = _tilted(rows, at, tilt, place, level(plans.peak_bytes))
        bound = np.where(plans.peak_bytes <= rows.problem.most_hbm_bytes, np.maximum(bound, best), np.inf)
        low = _low(others, plans.peak_bytes, bound, level(plans.peak_bytes))
        planes = [each.keep(low) for each in [*planes, at]]
        plans, best = plans.take(low), bound[low]
        y = 0.5 * (y + where)[low] if number == 0 else where[low]
    kept = Planes(np.zeros(0, int), np.zeros(0), np.zeros((0, len(place))), plans.peak_bytes)
    for at in planes:
        kept.add(np.arange(len(plans)), at)
    _join(kept, others, tilt, place)
    return plans, kept


def _low(
    others: list[tuple[np.ndarray, np.ndarray]], need: np.ndarray, bound: np.ndarray, level: np.ndarray
) -> np.ndarray:
    """Places of what is below a level; bytes and bounds of the rest are put to the others, but of what cannot be."""
    gone = (bound >= level) & np.isfinite(bound)
    others.append((need[gone], bound[gone]))
    return np.flatnonzero(bound < level)


def _join(planes: Planes, others: list[tuple[np.ndarray, np.ndarray]], tilt: np.ndarray, place: np.ndarray) -> None:
    """Add a plane for each step by which more memory lets something lower in, rounded down."""
    need, bound = (np.concatenate(columns) for columns in zip(*others, strict=True))
    if not len(need):
        return
    order = np.argsort(need, kind="stable")
    rounded = np.maximum(STEP * np.floor(bound[order] / STEP), bound.min())
    least = np.minimum.accumulate(rounded)
    first = np.flatnonzero(np.diff(least, prepend=np.inf) < 0)
    number, shape = len(planes.need) + np.arange(len(first)), (len(first), len(place))
    planes.need = np.concatenate([planes.need, need[order][first]])
    slopes, y = np.broadcast_to(-tilt, shape), np.broadcast_to(place, shape)
    planes.add(number, Tangents(least[first], slopes, y, least[first], least[first]))


def _low_members(
    rows: JobRows,
    parts: list[Part],
    place: np.ndarray,
    tilt: np.ndarray,
    level: Level,
    others: list[tuple[np.ndarray, np.ndarray]],
) -> np.ndarray:
    """Numbers of plans whose rows, runs of families and families may all lie below a level."""
    families, low = Families(rows.lattice), [np.zeros(0, int)]
    steepest = _steepest(rows, tilt, place)
    for own, at in parts:
        enough = level(at.peak_bytes)
        low.append(own[_low(others, at.peak_bytes, _tilted(rows, at, tilt, place, enough)[0], enough)])
    first, _ = families.of_any_schedule(np.unique(np.concatenate(low)))
    for covers in ("schedule", "recompute"):
        kept = [np.zeros(0, int)]
        for here in pieces(len(first)):
            plans = plan_set(rows, first[here], covers)
            fits = plans.peak_bytes <= rows.problem.most_hbm_bytes
            at_place = plans.worth(place[None], plans.times(place[None]))
            value = np.where(fits, np.log(at_place) + steepest, np.inf)
            plans = plans.take(_low(others, plans.peak_bytes, value, level(plans.peak_bytes)))
            if len(plans):
                at = plans.tangents(np.broadcast_to(place, (len(plans), len(place))))
                enough = level(plans.peak_bytes)
                bound, _ = _tilted(rows, at, tilt, place, enough)
                kept.append(plans.numbers[_low(others, plans.peak_bytes, bound, enough)])
        first = np.concatenate(kept)
        first = families.of_every_schedule(first) if covers == "schedule" else families.members(first)[0]
    return first


def count_bound(problem: Problem, count: int, known: Mixed, log_target: float, end: float) -> float:
    """The logarithm that no mix at a count is below: at least the target, or what is known at `end`.

    `known` is an answer at this count or another, near whose hardware tangents are taken.
    """
    place = _place(problem, count, known)
    every = [all_rows(problem, job, count) for job in problem.jobs]
    parts = [rows_that_fit(rows, place) for rows in every]
    if not all(parts):
        return np.inf
    chosen = known.plans if known.accelerators == count else [None] * len(every)
    at = [_usual(rows, own, place, plan) for rows, own, plan in zip(every, parts, chosen, strict=True)]
    values, slopes = np.concatenate([own.log_value for own in at]), np.concatenate([own.slopes for own in at])
    shares = np.exp(values - np.logaddexp.reduce(values))
    log_price = problem.log_scale + (0.0 if problem.fill else float(np.log(count)))  # the rest is in the planes
    levels = values + log_target - np.logaddexp.reduce(values) + MARGIN
    tilts = shares @ slopes - slopes
    least = [
        _least_of_rows(rows, own, place, tilt, log_price) for rows, own, tilt in zip(every, parts, tilts, strict=True)
    ]
    by_rows = log_target + float(shares @ (least - levels + MARGIN))
    if by_rows >= log_target:
        return by_rows
    groups = []
    for rows, own, tilt, level in zip(every, parts, tilts, levels, strict=True):
        groups.append(keep(rows, own, place, tilt, lambda need, own=level - log_price: np.full(len(need), own)))
    return _by_boxes(problem, count, groups, log_target, end)


def _least_of_rows(rows: JobRows, parts: list[Part], place: np.ndarray, tilt: np.ndarray, log_price: float) -> float:
    """What all rows are at least with a tilt."""
    return log_price + float(min(_tilted(rows, at, tilt, place)[0].min() for _, at in parts))


def _place(problem: Problem, count: int, known: Mixed) -> np.ndarray:
    have = problem.money.left(problem.limits, np.array([float(count)]), np.array([known.hbm_bytes]))
    return project(problem, have, known.y[None], problem.fill)[0]


def _by_boxes(problem: Problem, count: int, groups: list[Kept], log_target: float, end: float) -> float:
    """Split the least boxes until none is below the target; what is left at the end is the bound."""
    planes = [own for _, own in groups]
    boxes, done = bounded(problem, count, planes, whole(problem)), np.inf
    while len(boxes.low) and time.monotonic() < end:
        order = np.argsort(boxes.log_bound, kind="stable")
        part, rest = boxes.take(order[:AT_ONCE]), boxes.take(order[AT_ONCE:])
        if part.apart[0].sum() < SMALL:
            _sharpen(groups, part)
        children = bounded(problem, count, planes, halves(part))
        low = children.log_bound < log_target
        final = low & ((children.high - children.low).max(axis=1) < FINAL)
        done = min(done, float(children.log_bound[~low | final].min(initial=np.inf)))
        boxes = joined([rest, children.take(np.flatnonzero(low & ~final))])
    return min(done, float(boxes.log_bound.min(initial=np.inf)))


def _sharpen(groups: list[Kept], boxes: Boxes) -> None:
    """Tangents in the middle of the first box, for the plans that are nearly the best there."""
    middle, most = 0.5 * (boxes.low + boxes.high)[0], boxes.most_bytes[0]
    for plans, planes in groups:
        if not len(plans):
            continue
        value = np.maximum.reduceat(planes.value + planes.slopes @ middle, planes.starts)[: len(plans)]
        value = np.where(plans.peak_bytes <= most, value, np.inf)
        near = np.flatnonzero(value < value.min() + NEAR)
        planes.add(near, plans.take(near).tangents(np.broadcast_to(middle, (len(near), len(middle)))))
