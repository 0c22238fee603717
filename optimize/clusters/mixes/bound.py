"""Bounds of a mix on all counts at once: levels of all jobs first, then boxes where plans in steps leave a gap.

Every row of degrees of every job on every count gets a tangent at hardware like the best that is known there, tilted so
that jobs can be bounded alone (`tilts`). Then bounds are raised to one share below the best answer after the other:
at each count every job has a level, and what is below it is replaced by what it holds (`pools`), over all counts
together and the narrowest kind first, so that a count whose bound is above the share costs nothing. Where plans are
left that are below the level at their own best hardware, the others get more to do, and where that does not suffice,
hardware is split (`boxes`): what is far above its level is one plane, the few plans that are left have planes of their
own, with more tangents where the least box lies.
"""

import time
from collections.abc import Sequence

import numpy as np

from optimize.clusters.mixes.answers import Finder
from optimize.clusters.mixes.boxes import AT_ONCE, Boxes, Planes, bounded, everything, halves, joined
from optimize.clusters.mixes.job_plans import JobRows, PlanSet, plan_set
from optimize.clusters.mixes.pools import PLANS, STUCK, Part, Pool
from optimize.clusters.mixes.progress import MixProgress
from optimize.clusters.mixes.tilts import Tilts, priced
from optimize.hardware import project
from optimize.question import Tangents

LOWEST = 3  # counts of the lowest bounds where answers are looked for among the plans that are open
AMONG = 120  # of them for each job
LOOKED = 0.1  # of the value: counts that may be better by no more than this are looked at for answers
CAP = 0.08  # of a logarithm above the best answer, up to which levels may rise
WIDER = 0.05  # of a logarithm above its level, up to which a plan has planes of its own in boxes
STEP = 0.02  # of a logarithm: by which planes of what is not kept are rounded down
SMALL = 0.03  # lost to the sides of a box below which its planes need to be better
FINAL = 0.01  # widths (logarithms) below which a box is not split any more
SLICE = 0.2  # of the time that is left, for the boxes of one count
NEAR = 0.04  # of a logarithm above the least plan: plans that get a tangent at the middle of the least box

Pools = list[Pool]
"""Of each job."""
Kept = tuple[PlanSet, Planes]
"""Plans of a job that are kept, and planes below them and below all others."""


def open_counts(progress: MixProgress, rows: Sequence[JobRows], log_target: float) -> tuple[Tilts, Pools]:
    """Every row of the counts whose products alone do not pass a target, bounded; their bounds are put to `progress`.

    `rows`: those of each job on all counts.
    """
    counts = np.array([n for n in progress.counts if progress.log_bounds[n] < log_target], int)
    place = _places(progress, counts)
    parts = [_tangents(own, counts, place) for own in rows]
    tilts = _tilts(progress, counts, place, rows, parts)
    pools, cap = [], tilts.levels(log_target)
    for job, (own, found) in enumerate(zip(rows, parts, strict=True)):
        pools.append(Pool(own, job, tilts, cap[:, job]))
        pools[-1].open_rows(found)
        found.clear()  # tangents of all rows are large
    put_bounds(progress, tilts, pools)
    return tilts, pools


def _places(progress: MixProgress, counts: np.ndarray) -> np.ndarray:
    """Rates of the answer of each count, or like those of the best, on its limits."""
    problem, best = progress.problem, progress.best
    assert best is not None
    known = [progress.answers.get(int(n), best) for n in counts]
    have = problem.money.left(problem.limits, counts.astype(float), np.array([each.hbm_bytes for each in known]))
    y = np.array([each.y for each in known]).reshape(-1, len(best.y))
    return project(problem, have, y, problem.spends_all)


def _tangents(rows: JobRows, counts: np.ndarray, place: np.ndarray) -> list[Part]:
    """Of the rows of some counts at the place of each."""
    chosen = np.flatnonzero(np.isin(rows.accelerators, counts))
    of_count = np.searchsorted(counts, rows.accelerators[chosen])
    places, which = _of_octaves(counts, place)
    parts = rows.tangents(chosen, places, which[of_count])
    return [(chosen[here], at) for here, at in parts if len(here)]


def _of_octaves(counts: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A place for each half octave of counts, and the one of each count: what layers take is found once for each."""
    _, first, which = np.unique((2 * np.log2(counts)).astype(int), return_index=True, return_inverse=True)
    return place[first], which


def _tilts(
    progress: MixProgress, counts: np.ndarray, place: np.ndarray, rows: Sequence[JobRows], parts: list[list[Part]]
) -> Tilts:
    """By the rows that may be fastest at the place of each count. (The plans of an answer lie at kinks, where the slope
    is any of two, and do worse.)"""
    problem = progress.problem
    values, slopes = np.full((len(counts), len(parts)), np.inf), np.zeros((len(counts), len(parts), place.shape[1]))
    for job, (own, found) in enumerate(zip(rows, parts, strict=True)):
        for chosen, at in found:
            of_count = np.searchsorted(counts, own.accelerators[chosen])
            _lower(values[:, job], slopes[:, job], of_count, place, priced(problem, at))
    log_price = problem.log_scale + (np.zeros(len(counts)) if problem.fill else np.log(counts))
    return Tilts(counts, place, values, slopes, log_price)


def _lower(values: np.ndarray, slopes: np.ndarray, count: np.ndarray, place: np.ndarray, at: Tangents) -> None:
    """Set the tangent of each count that is least at its place where it is less than what is known."""
    value = at.log_value + ((place[count] - at.y) * at.slopes).sum(-1)
    order = np.lexsort((value, count))
    which, first = np.unique(count[order], return_index=True)
    least = order[first]
    less = value[least] < values[which]
    values[which[less]], slopes[which[less]] = value[least[less]], at.slopes[least[less]]


def least_of(pools: Pools) -> np.ndarray:
    """What no plan of each job is below: counts x jobs."""
    return np.stack([pool.least for pool in pools], axis=-1)


def put_bounds(progress: MixProgress, tilts: Tilts, pools: Pools) -> np.ndarray:
    """Raise the bounds that are known to those of the levels; by count."""
    progress.hear()
    if not len(tilts.counts):
        return np.zeros(0)
    found = np.maximum(tilts.bounds(least_of(pools)), [progress.log_bounds[int(n)] for n in tilts.counts])
    progress.log_bounds |= dict(zip(tilts.counts.tolist(), found.tolist(), strict=True))
    return found


def raise_bounds(progress: MixProgress, tilts: Tilts, pools: Pools, share: float, finder: Finder, end: float) -> None:
    """Raise the bounds of all counts to a share below the best answer, as far as that is possible until `end`.

    Counts that stay below are looked at by `finder`; a better answer lowers what is aimed at.
    """
    split: set[int] = set()
    for i in np.argsort(put_bounds(progress, tilts, pools), kind="stable")[: LOWEST if share <= LOOKED else 0]:
        _among(tilts, pools, int(i), finder)
    while time.monotonic() < end and progress.best is not None:
        best = progress.best
        log_target = best.log_value + np.log1p(-share)
        low = _low(progress, tilts, pools, log_target, split)
        _exhaust(progress, tilts, pools, low, log_target, end)
        low = _low(progress, tilts, pools, log_target, split)
        if not len(low):
            return
        new = [count for count in tilts.counts[low].tolist() if count not in finder.looked]
        for count in new if share <= LOOKED else ():
            finder.look(count)
        if progress.best is best:
            split.add(int(low[0]))
            now = time.monotonic()
            _split(progress, tilts, pools, int(low[0]), share, finder, now + SLICE * (end - now))


def _among(tilts: Tilts, pools: Pools, i: int, finder: Finder) -> None:
    """Look for an answer at one count among the plans that are open there, each at hardware near its own best; nothing
    where a job has none."""
    count, sets, some = int(tilts.counts[i]), [], [tilts.place[i][None]]
    for pool in pools:
        here = np.flatnonzero((pool.open.cell == i) & (pool.open.kind >= PLANS))
        if not len(here):
            return
        here = here[np.argsort(pool.open.bound[here], kind="stable")][:AMONG]
        sets.append(plan_set(pool.rows, pool.open.number[here]))
        some.append(pool.open.y[here[:4]])
    finder.among(count, sets, np.concatenate(some))


def _low(progress: MixProgress, tilts: Tilts, pools: Pools, log_target: float, split: set[int]) -> np.ndarray:
    """Places of the counts that are below a target and were not split for it, lowest first."""
    found = put_bounds(progress, tilts, pools)
    order = np.argsort(found, kind="stable")
    return np.array([i for i in order if found[i] < log_target and i not in split], int)


def _exhaust(progress: MixProgress, tilts: Tilts, pools: Pools, low: np.ndarray, log_target: float, end: float) -> None:
    """Work at what is below the levels of some counts, until plans alone are; and again at higher levels of the jobs
    that have none, as long as that may pass the target."""
    first = tilts.levels(log_target)
    level = np.full_like(first, -np.inf)
    level[low] = first[low]
    while (level > -np.inf).any() and time.monotonic() < end:
        worked = _turn(pools, level)
        found = put_bounds(progress, tilts, pools)  # the time may be up at any moment
        level = np.where((found < log_target)[:, None], level, -np.inf)
        if not worked:
            level = _higher(tilts, least_of(pools), first, level, log_target)


def _turn(pools: Pools, level: np.ndarray) -> bool:
    """A step of every job that has something below its levels; whether there was any."""
    worked = False
    for job, pool in enumerate(pools):
        if pool.busy(level[:, job]):
            pool.work(level[:, job])
            worked = True
    return worked


def _higher(tilts: Tilts, least: np.ndarray, first: np.ndarray, level: np.ndarray, log_target: float) -> np.ndarray:
    """Levels of the counts that may still pass the target: jobs that are stuck below theirs let the others rise."""
    stuck, other = least < level, (tilts.shares * (least >= level)).sum(-1)
    more = (log_target - tilts.bounds(np.where(stuck, least, first))) / np.maximum(other, 1e-12)
    higher = np.where(stuck, level, first + more[:, None])
    may = (higher > level + 1e-9).any(-1) & (more < CAP) & (level > -np.inf).any(-1)
    return np.where(may[:, None], higher, -np.inf)


def _split(progress: MixProgress, tilts: Tilts, pools: Pools, i: int, share: float, finder: Finder, end: float) -> None:
    """Raise the bound of one count by boxes of hardware; the plans that are left may be an answer, too."""
    best, count = progress.best, int(tilts.counts[i])
    assert best is not None
    log_target = best.log_value + float(np.log1p(-share))
    level = np.full_like(tilts.values, -np.inf)
    level[i] = tilts.levels(log_target + WIDER)[i]
    while _turn(pools, level):
        if time.monotonic() > end:
            return
    groups = [_kept(tilts, pool, i, level[i, job]) for job, pool in enumerate(pools)]
    _among(tilts, pools, i, finder)
    bound = _by_boxes(progress, count, groups, log_target, end)
    progress.log_bounds[count] = max(progress.log_bounds[count], bound)


def _kept(tilts: Tilts, pool: Pool, i: int, level: float) -> Kept:
    """The plans of a job at one count that are below a level, with planes; all others become a few planes, each from
    some bytes of HBM on."""
    stuck = (pool.open.cell == i) & (pool.open.kind == STUCK) & (pool.open.bound < level)
    rest = pool.open.take(np.flatnonzero((pool.open.cell == i) & ~stuck))
    some, place = pool.open.take(np.flatnonzero(stuck)), tilts.place[i]
    plans = plan_set(pool.rows, some.number)
    planes = Planes(np.zeros(0, int), np.zeros(0), np.zeros((0, len(place))), plans.peak_bytes)
    for y in (np.broadcast_to(place, some.y.shape), some.y):
        planes.add(np.arange(len(plans)), priced(pool.rows.problem, plans.tangents(y)))
    gone = [(bytes_[count == i], bound[count == i]) for count, bytes_, bound in pool.gone]
    others = [*gone, (rest.need_bytes, rest.bound)]
    need, bound = (np.concatenate(columns) for columns in zip(*others, strict=True))
    _join(planes, need, bound, pool.tilt[i], place)
    return plans, planes


def _join(planes: Planes, need: np.ndarray, bound: np.ndarray, tilt: np.ndarray, place: np.ndarray) -> None:
    """Add a plane for each step by which more memory lets something lower in, rounded down."""
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


def _by_boxes(progress: MixProgress, count: int, groups: list[Kept], log_target: float, end: float) -> float:
    """Split the least boxes until none is below the target; what is left at the end is the bound."""
    problem = progress.problem
    planes = [own for _, own in groups]
    boxes, done = bounded(problem, count, planes, everything(problem)), np.inf
    while len(boxes.low) and time.monotonic() < end:
        progress.hear()
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
        at = plans.take(near).tangents(np.broadcast_to(middle, (len(near), len(middle))))
        planes.add(near, priced(plans.rows.problem, at))
