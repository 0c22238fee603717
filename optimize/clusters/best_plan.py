"""The best of all plans of one count on hardware that is given: every family, then the plans of the best, in NumPy."""

import math

import numpy as np

from costmodel.inputs import Cluster, Plan, Workload
from optimize.clusters.screening import Loads, values_of
from optimize.lattice import Families
from optimize.question import Tangents

_TOGETHER = 256  # families expanded into plans at once
_AT_ONCE = 4096  # families evaluated at once: what lies between stays in the caches
_ROUNDING = 1e-9


Worth = tuple[float, float, Loads]
"""What a second of a step is worth on hardware that is given, and one at the usual power."""
SECONDS: Worth = (1.0, 0.0, None)


def _log_worth(worth: Worth, at: Tangents) -> np.ndarray:
    """Logarithms of what steps are worth, from those of their seconds."""
    second, drawn, _ = worth
    if at.log_drawn is None:
        return at.log_value + math.log(second)
    return np.log(second * np.exp(at.log_value) + drawn * np.exp(at.log_drawn))


def best_plan(
    workload: Workload,
    machine: Cluster,
    families: Families,
    hbm_bytes: float,
    cut: float = math.inf,
    worth: Worth = SECONDS,
    limit: Worth | None = None,
) -> tuple[float, Plan | None, int]:
    """The plan whose step is worth least and fits into `hbm_bytes`, below `cut` (a logarithm of that).

    The logarithm, the plan and how many evaluations that took; None where nothing fits or is below the cut. `limit`: of
    what a step is worth besides, which must be at most 1.
    """
    loads = worth[-1] or (limit or worth)[-1]
    if not len(families):
        return math.inf, None, 0
    first, least = _that_may_fit(workload, machine, families, hbm_bytes, worth)
    best, evaluations, chosen = cut, len(first), -1
    for start in range(0, len(first), _TOGETHER):
        here = slice(start, start + _TOGETHER)
        kept = first[here][least[here] < best]
        if not len(kept):
            break
        members, _ = families.members(kept)
        points = families.lattice.points(members, np.float64)
        exact = values_of(workload, machine, points, len(members), loads)
        evaluations += len(members)
        met = True if limit is None else _log_worth(limit, exact) <= 0.0
        value = np.where((exact.peak_bytes <= hbm_bytes) & met, _log_worth(worth, exact), np.inf)
        place = int(value.argmin())
        if value[place] < best:
            best, chosen = float(value[place]), int(members[place])
    if chosen < 0:
        return math.inf, None, evaluations
    return best, families.lattice.plan(chosen), evaluations


def _that_may_fit(
    workload: Workload, machine: Cluster, families: Families, hbm_bytes: float, worth: Worth
) -> tuple[np.ndarray, np.ndarray]:
    """Families that may fit, by what their steps are worth at least (logarithms), least first."""
    fitting, values = [], []
    for start in range(0, len(families), _AT_ONCE):
        first = families.first(start, start + _AT_ONCE)
        at = values_of(workload, machine, families.points(first, np.float64), len(first), worth[-1])
        fits = at.least_bytes * (1 - _ROUNDING) <= hbm_bytes
        fitting.append(first[fits])
        values.append(_log_worth(worth, at)[fits] - _ROUNDING)
    first, least = np.concatenate(fitting), np.concatenate(values)
    order = np.argsort(least, kind="stable")
    return first[order], least[order]
