"""Why no cluster meets the limits: which of them fails, by how much, and the smallest change that helps."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from costmodel.inputs import RECOMPUTES
from optimize import units
from optimize.clusters.bounding import families_of
from optimize.clusters.counts import rows_of
from optimize.clusters.progress import Cell
from optimize.clusters.screening import bytes_of
from optimize.hardware import bytes_of_rows
from optimize.lattice import Families, cheapest, least_bytes
from optimize.question import Limits, Problem

LIMITS = ("budget_usd", "power_w", "accelerators")
MOST = 16_384  # accelerators up to which a way out is looked for
ROWS = 64  # of degrees that are evaluated together
LOOKED_AT = 8  # counts for each limit, those that may need least of it first


def why_infeasible(problem: Problem, finished: bool = False) -> str:
    """One line that says why. Memory decides: with it, the least rates must be paid for and powered.

    `finished`: everything was looked at. Otherwise, where no limit alone is in the way, only time was up.
    """
    least, surely = least_needed(problem)
    name = problem.job.workload.name
    if min(surely.values()) == math.inf:
        most_gib = problem.most_hbm_bytes / 2**30
        return f"{name} does not fit: no plan on up to {MOST:,} accelerators needs less than {most_gib:.0f} GiB each"
    said = []
    for limit, need in least.items():
        have = getattr(problem.limits, limit)
        if have is not None and need > have and (finished or surely[limit] > have):
            said.append(
                f"`{limit}` is {_number(have)}, the least that any cluster for {name} needs is {_number(need)}"
                f" ({units.significant(need / have)} times); {_flag(limit, need)} makes it feasible"
            )
    if said:
        return said[0]
    if finished:
        return f"no plan of {name} meets all limits together{'; more of each would' if least else ''}"
    return f"no plan of {name} was found before time was up; more `seconds` may find one"


def in_the_way(problem: Problem) -> bool:
    """Whether one limit alone rules out every cluster, or memory does."""
    _, surely = least_needed(problem)
    limits = {name: getattr(problem.limits, name) for name in surely}
    return min(surely.values()) == math.inf or any(
        have is not None and surely[name] > have for name, have in limits.items()
    )


def least_needed(problem: Problem) -> tuple[dict[str, float], dict[str, float]]:
    """The least of each limit alone at which some plan is known that can be built with the least rates, nothing where
    memory forbids all that were looked at; and what any plan needs at least: infinite where memory forbids all.

    Rows of degrees tell which counts may need least; these are looked at one after another.
    """
    free = dataclasses.replace(problem, limits=Limits(accelerators=MOST))
    rows = rows_of(free)
    need, count = bytes_of_rows(free, rows), rows["accelerators"]
    fits = need <= free.most_hbm_bytes
    counts, which = np.unique(count[fits], return_inverse=True)
    held = np.full(len(counts), np.inf)
    np.minimum.at(held, which, need[fits])
    least, beyond = dict[str, float](), dict[str, float](dict.fromkeys(LIMITS, math.inf))
    exactly = functools.cache(lambda place: _least_bytes(Cell(free, int(counts[place]))))
    for name, column in _needs(free, counts.astype(float), held).items():
        order = np.argsort(column, kind="stable").tolist()
        for place in order[:LOOKED_AT]:
            if column[place] < least.get(name, math.inf) and exactly(place) <= free.most_hbm_bytes:
                own = _needs(free, float(counts[place]), exactly(place))
                least = {other: min(float(value), least.get(other, math.inf)) for other, value in own.items()}
        beyond[name] = min((float(column[place]) for place in order[LOOKED_AT:]), default=math.inf)
    return least, {name: min(bound, least.get(name, math.inf)) for name, bound in beyond.items()}


def _least_bytes(cell: Cell) -> float:
    """The least memory of all plans of a cell: rows of degrees in the order of what they need at least."""
    whole, problem, best = families_of(cell).lattice, cell.problem, math.inf
    point = cheapest(whole.points_of_rows(np.arange(len(whole.ends)), np.float64), 1.0, 1.0)
    bounds = np.broadcast_to(least_bytes(problem.job.floats, problem.machine.stack, point), len(whole.ends))
    order = np.argsort(bounds, kind="stable")
    for start in range(0, len(order), ROWS):
        if bounds[order[start]] >= best:
            break
        families = Families(whole.with_rows(np.sort(order[start : start + ROWS])))
        points = families.points(families.first(0, len(families)), np.float64)
        each = [dataclasses.replace(points, recompute=row) for row in RECOMPUTES.values()]
        needs = (bytes_of(problem.job.floats, problem.machine, at, len(families)).min() for at in each)
        best = min(best, *map(float, needs))
    return best


def _needs(problem: Problem, count: Any, hbm_bytes: Any) -> dict[str, Any]:
    """Of so many accelerators with so much memory and the least rates."""
    money, (low, _) = problem.money, problem.ends
    usd = money.usd(low) + money.hbm(np.asarray(hbm_bytes))
    return dict(zip(LIMITS, (count * usd, count * money.watt(low), count), strict=True))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _flag(limit: str, need: float) -> str:
    """The option with a value that is enough, rounded up to three digits."""
    scale = 1e6 if limit == "power_w" else 1.0
    enough = units.rounded_up(need / scale)
    return f"--{'power-mw' if limit == 'power_w' else limit.replace('_', '-')} {enough:g}"
