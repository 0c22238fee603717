"""Why no cluster meets the limits: which of them fails, by how much, and the smallest change that helps."""

import dataclasses
import math

import numpy as np

from optimize import units
from optimize.clusters.bounding import families_of
from optimize.clusters.counts import counts_of_grid
from optimize.clusters.progress import Cell
from optimize.clusters.screening import tangents_of
from optimize.question import Limits, Problem

LIMITS = ("budget_usd", "power_w", "accelerators")
MOST = 16_384  # accelerators up to which a way out is looked for


def why_infeasible(problem: Problem, finished: bool = False) -> str:
    """One line that says why. Memory decides: with it, the least rates must be paid for and powered.

    `finished`: everything was looked at. Otherwise, where no limit alone is in the way, only time was up.
    """
    least = least_needed(problem)
    name = problem.job.workload.name
    if least is None:
        most_gib = problem.most_hbm_bytes / 2**30
        return f"{name} does not fit: no plan on up to {MOST:,} accelerators needs less than {most_gib:.0f} GiB each"
    said = []
    for limit, need in least.items():
        have = getattr(problem.limits, limit)
        if have is not None and need > have:
            said.append(
                f"`{limit}` is {_number(have)}, the least that any cluster for {name} needs is {_number(need)}"
                f" ({need / have:.3g} times); {_flag(limit, need)} makes it feasible"
            )
    if said:
        return said[0]
    if finished:
        return f"no plan of {name} meets all limits together; more of each would"
    return f"no plan of {name} was found before time was up; more `seconds` may find one"


def in_the_way(problem: Problem) -> bool:
    """Whether one limit alone rules out every cluster, or memory does."""
    least = least_needed(problem)
    limits = {name: getattr(problem.limits, name) for name in least or ()}
    return least is None or any(have is not None and least[name] > have for name, have in limits.items())


def least_needed(problem: Problem) -> dict[str, float] | None:
    """The least of each limit alone at which some plan can be built with the least rates; None: memory forbids all.

    Once every limit is enough, no less is looked for.
    """
    free = dataclasses.replace(problem, limits=Limits(accelerators=MOST))
    given = {name: have for name in LIMITS if (have := getattr(problem.limits, name)) is not None}
    least: dict[str, float] = {}
    for cell in (Cell(free, count) for count in counts_of_grid(free)):
        for hbm_bytes in _least_bytes(cell):
            own = _needs(cell, hbm_bytes)
            least = {name: min(need, least.get(name, math.inf)) for name, need in own.items()}
        if least and all(least[name] <= have for name, have in given.items()):
            break
    return least or None


def _least_bytes(cell: Cell) -> list[float]:
    """The least memory of all plans of a cell, if it can be built."""
    families, problem = families_of(cell), cell.problem
    if not len(families):
        return []
    first = families.first(0, len(families))
    first = first[:: max(1, len(first) // 4096)]
    y = np.broadcast_to(problem.ends[0], (len(first), 4))
    points = families.points(first, np.float64)
    least = float(tangents_of(problem.job.workload, problem.machine, points, y).least_bytes.min())
    return [least] if least <= problem.most_hbm_bytes else []


def _needs(cell: Cell, hbm_bytes: float) -> dict[str, float]:
    money, (low, _), count = cell.problem.money, cell.problem.ends, float(cell.accelerators)
    usd = float(money.usd(low) + money.hbm(np.array(hbm_bytes)))
    return dict(zip(LIMITS, (count * usd, count * float(money.watt(low)), count), strict=True))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _flag(limit: str, need: float) -> str:
    """The option with a value that is enough, rounded up to three digits."""
    scale = 1e6 if limit == "power_w" else 1.0
    enough = units.rounded_up(need / scale)
    return f"--{'power-mw' if limit == 'power_w' else limit.replace('_', '-')} {enough:g}"
