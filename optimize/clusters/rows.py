"""Bounds of tangents within the limits, and with them the rows of degrees of every count of accelerators at once."""

import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from costmodel import map_leaves
from costmodel.inputs import RecomputeRow
from optimize.clusters.progress import ROWS, RUNS, Cell, Open, Progress, joined, trim
from optimize.hardware import (
    bytes_of_modes,
    bytes_of_rows,
    dual_bound,
    largest_alone,
    priced_bound,
    project,
    tangents_of_rows,
)
from optimize.lattice import DEGREES, Families, lattice_of_rows, wanted, with_microbatches
from optimize.question import RATES, Left, Problem, Tangents

TOGETHER = 16_000  # rows without microbatches that are bounded at once
NEARER = 3  # tangents of rows at rates of their own
AT_ONCE = 8_192  # rows under several modes: what lies between stays in the caches
ROUNDING = 1e-9  # of a logarithm: bounds of runs are lowered by it
LIMIT_ROUNDS = 7  # of the multiplier of a deadline or of a limit of CO2
Rows = Mapping[str, np.ndarray]
Places = list[tuple[np.ndarray, np.ndarray]]
"""Rates where tangents are taken, one set after the other, and which of them each row has."""


def open_counts(progress: Progress, rows: Rows) -> None:
    """Dismiss the counts whose products alone take longer than the best answer, and bound the rows of all others."""
    left = progress.left(np.array(list(progress.unseen.values())))
    progress.unseen = dict(itertools.compress(progress.unseen.items(), left))
    counts, sizes = np.unique(rows["accelerators"], return_counts=True)
    size_of = dict(zip(counts.tolist(), sizes.tolist(), strict=True))
    here = 1.0 if progress.best is None else progress.best.cell.accelerators
    nearest_first = np.array(sorted(progress.unseen, key=lambda count: (abs(np.log(count / here)), count)), int)
    groups = np.cumsum([size_of[count] for count in nearest_first.tolist()]) // TOGETHER
    for number in np.unique(groups):
        progress.hear()
        if progress.spent:
            break
        own = nearest_first[groups == number]
        chosen = np.isin(rows["accelerators"], own)
        _open_rows(progress, {name: column[chosen] for name, column in rows.items()})
        progress.unseen = {count: bound for count, bound in progress.unseen.items() if count not in own}
    if len(progress.open) > 1:
        progress.open = [_as_one(progress)]


def _as_one(progress: Progress) -> Open:
    """All rows that are open as one part: steps are large."""
    every = [_columns(part) for part in progress.open]
    rows = {name: np.concatenate([own[name] for own in every]) for name in every[0]}
    log_bound, y = (np.concatenate([getattr(part, name) for part in progress.open]) for name in ("log_bound", "y"))
    return _part(progress, rows, log_bound, y)


def open_rows(progress: Progress) -> Rows:
    """The rows of degrees of all that is open, with their counts."""
    names, parts = (*DEGREES, "accelerators"), []
    for part in progress.open:
        rows = part.families.lattice.rows
        own = part.indices if part.kind == ROWS else np.searchsorted(part.families.lattice.ends, part.indices, "right")
        parts.append(np.stack([*(rows[name][own] for name in DEGREES), part.cell.counts(len(own)).astype(int)]))
    return dict(zip(names, np.unique(np.concatenate(parts, axis=1), axis=1), strict=True))


def possible_rows(progress: Progress, rows: Rows) -> Rows:
    """Rows whose least memory the limits can pay for, with the least rates; counts without one have no answer."""
    problem, (low, _) = progress.problem, progress.problem.ends
    kept = [np.zeros(0, int)]
    for start in range(0, len(rows["tensor"]), TOGETHER):
        own = {name: column[start : start + TOGETHER] for name, column in rows.items()}
        have = Cell(problem, own["accelerators"]).left(bytes_of_rows(problem, own))
        enough = (have.usd >= problem.money.usd(low)) & (have.watt >= problem.money.watt(low))
        kept.append(start + np.flatnonzero(enough))
    chosen = np.concatenate(kept)
    left = {*rows["accelerators"][chosen].tolist()}
    progress.unseen = {count: bound for count, bound in progress.unseen.items() if count in left}
    return {name: column[chosen] for name, column in rows.items()}


def _open_rows(progress: Progress, rows: Rows) -> None:
    """Bound all plans of some rows of `rows_of_counts`, and open the rows that are left."""
    problem = progress.problem
    rows = with_microbatches(rows, problem.job.workload, problem.fixed)
    counts = np.array(sorted(progress.unseen))
    products = np.array([progress.unseen[count] for count in counts.tolist()])
    log_bound = np.fmax(_roughly(progress, rows), products[np.searchsorted(counts, rows["accelerators"])])
    y, chosen = np.zeros((len(log_bound), len(RATES))), np.flatnonzero(progress.left(log_bound))
    for turn in range(1 if progress.best is None else 1 + NEARER):  # without an answer nothing is dismissed
        if not len(chosen):
            return
        rows, log_bound, y = {name: column[chosen] for name, column in rows.items()}, log_bound[chosen], y[chosen]
        places = [(y, np.arange(len(chosen)))] if turn else _places(progress, rows["accelerators"])
        least, where = _bounds(progress, rows, places)
        log_bound, y = np.fmax(log_bound, least), 0.5 * (y + where) if turn else where  # no number says nothing
        chosen = np.flatnonzero(progress.left(log_bound))
    if not len(chosen):
        return
    rows = {name: column[chosen] for name, column in rows.items()}
    part = _part(progress, rows, log_bound[chosen], y[chosen])
    part = joined(*_with_memory(progress, part, rows)) if problem.money.priced else part
    if len(part.indices):
        progress.open = [*progress.open, part]


def _part(progress: Progress, rows: Rows, log_bound: np.ndarray, y: np.ndarray) -> Open:
    """Rows with their bounds, and their plans."""
    problem, fixed = progress.problem, {**progress.problem.fixed, "domain": progress.problem.domain}
    plans = Families(lattice_of_rows(problem.job.workload, problem.machine, fixed, rows))
    return Open(Cell(problem, rows["accelerators"]), plans, ROWS, np.arange(len(log_bound)), log_bound, y)


def _with_memory(progress: Progress, part: Open, rows: Rows) -> Iterator[Open]:
    """Rows that are left where the memory of every mode is paid for beside the time that it takes: what HBM costs is
    what recompute and divided weights save."""
    for start in range(0, len(part.indices), AT_ONCE):
        chosen = np.arange(start, min(start + AT_ONCE, len(part.indices)))
        here, own = part.keep(chosen), {name: column[chosen] for name, column in rows.items()}
        needs, recompute = needs_by_mode(progress.problem, part.families, chosen, own)
        places = _places(progress, own["accelerators"])
        log_bound, y = _bounds_of_modes(progress, own, needs.min(axis=0)[None], recompute, places)
        lowest = log_bound[0].argmin(axis=0), np.arange(len(chosen))
        here.log_bound, here.y = np.fmax(here.log_bound, log_bound[0][lowest]), y[0][lowest]
        yield trim(progress, here)


def _columns(part: Open) -> dict[str, np.ndarray]:
    """The degrees of some rows, and their counts."""
    rows = {name: column[part.indices] for name, column in part.families.lattice.rows.items()}
    return rows | {"accelerators": part.cell.counts(len(part.indices)).astype(int)}


def runs_of(progress: Progress, part: Open) -> Open:
    """Runs of some rows with what those are not below under the mode and the memory of each; what that dismisses is
    left out."""
    families = part.families
    first, place = families.of_any_schedule(part.indices)
    if not len(first):
        return part.narrowed(RUNS, first, place)
    rows, own = _columns(part), [(part.y, np.arange(len(part.indices)))]
    needs, recompute = needs_by_mode(progress.problem, families, part.indices, rows)
    log_bound, y = _bounds_of_modes(progress, rows, needs, recompute, own)
    numbers, _ = families.by_recompute(first)
    kind = np.minimum(families.lattice.columns(first)["zero_stage"] >= 3, len(needs) - 1).astype(int)
    mode, run = np.nonzero(numbers >= 0)
    place, kind = place[run], kind[run]
    runs = part.narrowed(RUNS, numbers[mode, run], place)
    runs.log_bound = np.fmax(runs.log_bound, log_bound[kind, mode, place] - ROUNDING)
    runs.y = y[kind, mode, place]
    return trim(progress, runs)


def needs_by_mode(
    problem: Problem, families: Families, number: np.ndarray, rows: Rows
) -> tuple[np.ndarray, RecomputeRow]:
    """Bytes that rows of a lattice, by number, need up to ZeRO 2, and under 3 if that is searched (first axis), under
    each mode of recompute (second axis), and what that computes again; infinite where a row has no such mode or more is
    needed than is sold."""
    stages = [stage for stage in (2, 3) if stage < 3 or wanted(problem.fixed, "zero_stage", 3)]
    plans, recompute = families.by_recompute((families.lattice.ends - families.sizes)[number])
    needs = np.stack([bytes_of_modes(problem, rows, stage, recompute) for stage in stages])
    return np.where((plans >= 0) & (needs <= problem.most_hbm_bytes), needs, np.inf), recompute


def _bounds_of_modes(
    progress: Progress, rows: Rows, needs: np.ndarray, recompute: RecomputeRow, tried: Places
) -> tuple[np.ndarray, np.ndarray]:
    """What no plan of each row (last axis) is below under each mode (the axis before), with so many bytes, and half
    way to where."""
    problem = progress.problem
    best, y = np.full(needs.shape, -np.inf), np.zeros((*needs.shape, len(RATES)))
    for places, place in tried:
        alive = np.flatnonzero(best.min(axis=(0, 1)) < progress.cut)
        own = {name: column[alive] for name, column in rows.items()}
        modes = map_leaves(lambda leaf, of=alive: leaf[:, of], recompute)
        least, where = np.full((*needs.shape[:2], len(alive)), np.inf), y[:, :, alive]
        for _, some, step in tangents_of_rows(problem, own, places, place[alive], modes):
            progress.hear()
            for kind, need in enumerate(needs[:, :, alive[some]]):
                bound, at = _with_needs(progress, own["accelerators"][some], need, step)
                lower = bound < least[kind][:, some]
                least[kind][:, some] = np.where(lower, bound, least[kind][:, some])
                where[kind][:, some] = np.where(lower[..., None], at, where[kind][:, some])
        higher = least > best[:, :, alive]
        best[:, :, alive] = np.where(higher, least, best[:, :, alive])
        y[:, :, alive] = np.where(higher[..., None], where, y[:, :, alive])
    return best, y


def _with_needs(
    progress: Progress, accelerators: np.ndarray, need: np.ndarray, step: Tangents
) -> tuple[np.ndarray, np.ndarray]:
    """What no hardware is below for rows under several modes (first axis), needing so many bytes, and half way to
    where."""
    problem, possible = progress.problem, np.flatnonzero(np.isfinite(need.ravel()))
    bound, y = np.full(need.size, np.inf), step.y.copy()
    cell = Cell(problem, np.tile(accelerators, len(need))[possible])
    progress.evaluations += len(possible)
    have = cell.left(need.ravel()[possible])
    at = cell.tangents(step.keep(possible), have)
    if problem.money.priced:
        found, where = priced_bound(problem.money, have, at, problem.ends, rounds=5)
        found = found + cell.log_count
    else:
        found, where = bound_of(cell, have, at, progress.cut)
    y[possible] = 0.5 * (at.y + where)
    bound[possible] = np.where(have.usd > 0, np.fmax(found, -np.inf), np.inf)  # what is no number says nothing
    return bound.reshape(need.shape), y.reshape(*need.shape, -1)


def _roughly(progress: Progress, rows: Rows) -> np.ndarray:
    """What no plan of each row is below, cheaply, and without the memory that it needs."""
    problem, accelerators = progress.problem, rows["accelerators"]
    best, alive = np.full(len(accelerators), -np.inf), np.arange(len(accelerators))
    for places, place in _places(progress, accelerators):
        progress.evaluations += len(alive)
        own, least = {name: column[alive] for name, column in rows.items()}, np.full(len(alive), np.inf)
        for _, chosen, step in tangents_of_rows(problem, own, places, place[alive]):
            cell = Cell(problem, own["accelerators"][chosen])
            have = cell.left(np.zeros(len(chosen)))
            bound = np.where(have.usd > 0, rough_bound(cell, have, cell.tangents(step, have)), np.inf)
            least[chosen] = np.minimum(least[chosen], bound)
        best[alive] = np.maximum(best[alive], least)
        alive = np.flatnonzero(best < progress.cut)
    return best


def _places(progress: Progress, accelerators: np.ndarray) -> Places:
    """Rates where tangents are taken, for each octave of counts, and the octave of each count.

    Where the objective has a price, the best hardware may have none of what another plan lives on (a network), and a
    tangent there says nothing of it: rates in the middle of their ranges follow.
    """
    problem, (low, high) = progress.problem, progress.problem.ends
    octaves, which = np.unique(np.log2(accelerators).astype(int), return_inverse=True)
    cells = [Cell(problem, round(1.4 * 2.0**octave)) for octave in octaves]
    middle = 0.5 * (low + high)
    start = middle if progress.best is None and progress.relaxed is None else progress.place()
    starts = [start] if problem.spends_all else [start, middle, 0.5 * (middle + high)]
    return [(np.stack([reference(cell, start) for cell in cells]), which.ravel()) for start in starts]


def _bounds(progress: Progress, rows: Rows, tried: Places) -> tuple[np.ndarray, np.ndarray]:
    """What no plan of each row is below on any hardware, and the rates where the tangent is least."""
    problem, n = progress.problem, len(rows["tensor"])
    need_bytes, by_switches = bytes_of_rows(problem, rows), {}
    for places, place in tried:
        known = np.min([bound for bound, _ in by_switches.values()] or [np.full(n, -np.inf)], axis=0)
        alive = np.flatnonzero(known < progress.cut)
        own = {name: column[alive] for name, column in rows.items()}
        for name, some, step in tangents_of_rows(problem, own, places, place[alive]):
            chosen = alive[some]
            progress.evaluations += len(chosen)
            cell = Cell(problem, rows["accelerators"][chosen])
            least, y = by_switches.setdefault(name, (np.full(n, np.inf), np.zeros((n, len(RATES)))))
            have = cell.left(need_bytes[chosen])
            bound, where = bound_of(cell, have, cell.tangents(step, have), progress.cut)
            bound = np.where(have.usd > 0, bound, np.inf)
            better = np.isinf(least[chosen]) | (bound > least[chosen])
            least[chosen] = np.where(better, bound, least[chosen])
            y[chosen] = np.where(better[:, None], where, y[chosen])
    log_bounds = np.stack([bound for bound, _ in by_switches.values()])
    y, least = np.stack([y for _, y in by_switches.values()]), log_bounds.argmin(axis=0)
    return log_bounds.min(axis=0), y[least, np.arange(n)]


def reference(cell: Cell, y: np.ndarray) -> np.ndarray:
    """Rates like `y` for a cell: on the limits, where more hardware is never worse."""
    have = cell.left(np.array([0.25 * cell.problem.most_hbm_bytes]))
    return project(cell.problem, have, y[None], cell.problem.spends_all)[0]


def bound_of(cell: Cell, have: Left, at: Tangents, cut: float = np.inf) -> tuple[np.ndarray, np.ndarray]:
    """What no hardware is below, for each plan, and where.

    Limits beside money and power are looked at only for plans below `cut`.
    """
    aim = cell.aim(at)
    log_value, y = dual_bound(cell.problem, have, aim, money=cell.money)
    log_value = log_value + cell.log_count
    for limit in cell.over(have, at):
        chosen = np.flatnonzero((log_value < cut) & _above(cell, have, limit, y))
        if len(chosen):
            own = cell.of(chosen)
            value, y[chosen] = _within(own, have.keep(chosen), aim.keep(chosen), limit.keep(chosen))
            log_value[chosen] = np.maximum(log_value[chosen], value + own.log_count)
    return log_value, y


def _above(cell: Cell, have: Left, limit: Tangents, y: np.ndarray) -> np.ndarray:
    """Whether even the tangent of what is limited is above the limit."""
    paid = limit.share * np.log(cell.money.price(y, have))
    return limit.log_value + (limit.slopes * (y - limit.y)).sum(-1) + paid > 0


def _within(cell: Cell, have: Left, aim: Tangents, limit: Tangents) -> tuple[np.ndarray, np.ndarray]:
    """What no hardware is below that meets a limit of the seconds or of CO2: its tangent weighs more by a multiplier.

    Both are convex in the logarithms of the rates, so every multiplier gives a bound; the one at which the tangent
    just meets the limit gives most (by bisection of its logarithm). Infinite where no hardware meets it.
    """
    y, n = aim.y, len(aim.y)
    least, most, log_value = np.full(n, -5.0), np.full(n, 5.0), np.full(n, -np.inf)
    never = dual_bound(cell.problem, have, limit, money=cell.money)[0] > 1e-9
    for _ in range(LIMIT_ROUNDS):
        middle = 0.5 * (least + most)
        more = np.exp(middle)
        weighed = aim._replace(
            log_value=aim.log_value + more * limit.log_value,
            slopes=aim.slopes + more[:, None] * limit.slopes,
            share=aim.share + more * limit.share,
            log_drawn=None,
        )
        value, where = dual_bound(cell.problem, have, weighed, money=cell.money)
        is_above = _above(cell, have, limit, where)
        log_value = np.maximum(log_value, value)
        y = np.where(is_above[:, None], y, where)
        least, most = np.where(is_above, middle, least), np.where(is_above, most, middle)
    return np.where(never, np.inf, log_value), y


def rough_bound(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """What no hardware is below, cheaply: where a tangent falls to the best corner of its box, or, where the objective
    has a price, without limits."""
    aim, money = cell.aim(at), cell.problem.money
    if money.priced:
        bound = priced_bound(money, have, at, cell.problem.ends, rounds=4)[0] + cell.log_count
    else:
        bound = aim.log_value + _falls(cell, have, aim)
    for limit in cell.over(have, at):
        if not np.any(limit.share):
            bound = np.where(limit.log_value + _falls(cell, have, limit) > 0, np.inf, bound)
    return bound


def _falls(cell: Cell, have: Left, at: Tangents) -> np.ndarray:
    """By how much a tangent falls to the best corner of its box."""
    low, _ = cell.problem.ends
    highest = largest_alone(cell.problem, np.maximum(have.usd, 1e-300), have.watt)
    return np.minimum(at.slopes * (highest - at.y), at.slopes * (low - at.y)).sum(-1)
