"""The best of all plans of one count on hardware that is given: families in the order of their rows' bounds, then the
plans of the best, in NumPy."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.formulas import Loads
from costmodel.inputs import Cluster, Plan, Workload
from optimize.clusters.screening import values_of
from optimize.lattice import Families
from optimize.question import Tangents

_TOGETHER = 256  # families expanded into plans at once
_AT_ONCE = 4096  # families evaluated at once: what lies between stays in the caches
_ROUNDING = 1e-9


Worth = tuple[float, float, Loads]
"""What a second of a step is worth on hardware that is given, and one at the usual power."""
SECONDS: Worth = (1.0, 0.0, None)


def least_worth(worth: Worth, products_s: float = 1.0, step_s: Any = None) -> Any:
    """What steps are worth at least whose products alone take so long, and they themselves too (default: no longer)."""
    (second, drawn, loads), step_s = worth, products_s if step_s is None else step_s
    if loads is None or not drawn:  # rows without a plan take for ever, of which no share is nothing
        return second * step_s
    idle, compute = loads[:2]
    return second * step_s + drawn * (idle * step_s + compute * products_s)


def worth_of(worth: Worth, seconds: tuple[float, float]) -> float:
    """What seconds are worth, and those of them at the usual power."""
    return worth[0] * seconds[0] + worth[1] * seconds[1]


def _log_worth(worth: Worth, at: Tangents) -> np.ndarray:
    """Logarithms of what steps are worth, from those of their seconds."""
    second, drawn, _ = worth
    if at.log_drawn is None or not drawn:
        return at.log_value + math.log(second)
    return np.log(second * np.exp(at.log_value) + drawn * np.exp(at.log_drawn))


def best_plan(
    workload: Workload,
    machine: Cluster,
    families: Families,
    hbm_bytes: float,
    floors: np.ndarray,
    cut: float = math.inf,
    worth: Worth = SECONDS,
    limits: Sequence[Worth] = (),
) -> tuple[float, Plan | None, int]:
    """The plan whose step is worth least and fits into `hbm_bytes`, below `cut` (a logarithm of that).

    `floors`, ascending: logarithms below which no plan of each row is; what lies above the best is not looked at. The
    logarithm, the plan and how many evaluations that took; None where nothing fits or is below the cut. `limits`: what
    a step is worth besides, each at most 1.
    """
    best, evaluations, chosen = cut, 0, -1
    for start in range(0, len(families), _AT_ONCE):
        first = families.first(start, start + _AT_ONCE)
        if floors[np.searchsorted(families.lattice.ends, first[0], side="right")] >= best:
            break
        evaluations += len(first)
        first, least = _that_may_fit(workload, machine, families, first, hbm_bytes, worth)
        for place in range(0, len(first), _TOGETHER):
            here = slice(place, place + _TOGETHER)
            kept = first[here][least[here] < best]
            if not len(kept):
                break
            evaluations += len(kept)
            value, member = _best_member(workload, machine, families, kept, hbm_bytes, (worth, *limits))
            if value < best:
                best, chosen = value, member
    if chosen < 0:
        return math.inf, None, evaluations
    return best, families.lattice.plan(chosen), evaluations


def _that_may_fit(
    workload: Workload, machine: Cluster, families: Families, first: np.ndarray, hbm_bytes: float, worth: Worth
) -> tuple[np.ndarray, np.ndarray]:
    """Families that may fit, by what their steps are worth at least (logarithms), least first."""
    at = values_of(workload, machine, families.points(first, np.float64), len(first), worth[-1])
    fits = at.least_bytes * (1 - _ROUNDING) <= hbm_bytes
    first, least = first[fits], _log_worth(worth, at)[fits] - _ROUNDING
    order = np.argsort(least, kind="stable")
    return first[order], least[order]


def _best_member(
    workload: Workload,
    machine: Cluster,
    families: Families,
    first: np.ndarray,
    hbm_bytes: float,
    worths: Sequence[Worth],
) -> tuple[float, int]:
    """The best plan of some families that fits and meets all limits, which follow what is best: its worth (a logarithm;
    infinite: none), and its number."""
    (worth, *limits), (members, _) = worths, families.members(first)
    loads = next((own[-1] for own in worths if own[-1]), None)
    exact = values_of(workload, machine, families.lattice.points(members, np.float64), len(members), loads)
    met = exact.peak_bytes <= hbm_bytes
    for limit in limits:
        met = met & (_log_worth(limit, exact) <= _ROUNDING)
    value = np.where(met, _log_worth(worth, exact), np.inf)
    place = int(value.argmin())
    return float(value[place]), int(members[place])
