"""The best of all plans of one count on hardware that is given: every family screened, the best in float64."""

import math

import numpy as np

from costmodel.inputs import Cluster, Plan, Workload
from optimize.clusters.screening import BATCH, FLOAT32_SLACK, screen, tangents_of
from optimize.lattice import Families

_TOGETHER = 256  # families expanded into plans at once


def best_plan(
    workload: Workload, machine: Cluster, families: Families, y: np.ndarray, hbm_bytes: float, cut: float = math.inf
) -> tuple[float, Plan | None, int]:
    """The plan with the least step that fits into `hbm_bytes`, below `cut` (a logarithm of seconds).

    The logarithm of its step, the plan and how many evaluations that took; None where nothing fits or is below the cut.
    """
    if not len(families):
        return math.inf, None, 0
    first, fastest = _that_may_fit(workload, machine, families, y, hbm_bytes)
    best, evaluations, chosen = cut, len(first), -1
    for start in range(0, len(first), _TOGETHER):
        here = slice(start, start + _TOGETHER)
        kept = first[here][fastest[here] < best]
        if not len(kept):
            break
        members, _ = families.members(kept)
        points = families.lattice.points(members, np.float64)
        exact = tangents_of(workload, machine, points, np.broadcast_to(y, (len(members), len(y))))
        evaluations += len(members)
        value = np.where(exact.peak_bytes <= hbm_bytes, exact.log_value, np.inf)
        place = int(value.argmin())
        if value[place] < best:
            best, chosen = float(value[place]), int(members[place])
    if chosen < 0:
        return math.inf, None, evaluations
    return best, families.lattice.plan(chosen), evaluations


def _that_may_fit(
    workload: Workload, machine: Cluster, families: Families, y: np.ndarray, hbm_bytes: float
) -> tuple[np.ndarray, np.ndarray]:
    """Families that may fit, by how fast they may be at most (logarithms of seconds), fastest first."""
    fitting, speeds = [], []
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        rows = np.broadcast_to(y, (len(first), len(y)))
        at = screen(workload, machine, families.points(first, np.float32), rows)
        fits = at.least_bytes * (1 - 1e-5) <= hbm_bytes
        fitting.append(first[fits])
        speeds.append(at.log_value[fits] - FLOAT32_SLACK)
    first, fastest = np.concatenate(fitting), np.concatenate(speeds)
    order = np.argsort(fastest, kind="stable")
    return first[order], fastest[order]
