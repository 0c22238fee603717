"""The best of all plans of one count on hardware that is given: every family screened, the best in float64."""

import dataclasses
import math

import numpy as np

from costmodel.inputs import Plan, Workload
from optimize.clusters.screening import BATCH, FLOAT32_SLACK, screen, tangents_of
from optimize.lattice import Families
from optimize.question import Space

_TOGETHER = 256  # families expanded into plans at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedBest:
    """`plan` is None where nothing fits, or nothing is below the cut."""

    log_step_s: float
    plan: Plan | None
    evaluations: int


def best_plan(
    workload: Workload, space: Space, families: Families, y: np.ndarray, hbm_bytes: float, cut: float = math.inf
) -> FixedBest:
    """The plan with the least step that fits into `hbm_bytes`, below `cut` (a logarithm of seconds)."""
    if not len(families):
        return FixedBest(log_step_s=math.inf, plan=None, evaluations=0)
    first, fastest = _screened(workload, space, families, y, hbm_bytes)
    best, evaluations, chosen = cut, len(first), -1
    for start in range(0, len(first), _TOGETHER):
        here = slice(start, start + _TOGETHER)
        kept = first[here][fastest[here] < best]
        if not len(kept):
            break
        members, _ = families.members(kept)
        points = families.lattice.points(members, np.float64)
        seen = tangents_of(workload, space, points, np.broadcast_to(y, (len(members), len(y))))
        evaluations += len(members)
        value = np.where(seen.peak_bytes <= hbm_bytes, seen.log_step_s, np.inf)
        place = int(value.argmin())
        if value[place] < best:
            best, chosen = float(value[place]), int(members[place])
    plan = families.lattice.plan(chosen) if chosen >= 0 else None
    return FixedBest(log_step_s=best if plan else math.inf, plan=plan, evaluations=evaluations)


def _screened(
    workload: Workload, space: Space, families: Families, y: np.ndarray, hbm_bytes: float
) -> tuple[np.ndarray, np.ndarray]:
    """Families that may fit, by how fast they may be at most (logarithms of seconds), fastest first."""
    found, speeds = [], []
    for start in range(0, len(families), BATCH):
        first = families.first(start, start + BATCH)
        rows = np.broadcast_to(y, (len(first), len(y)))
        seen = screen(workload, space, families.points(first, np.float32), rows)
        fits = seen.least_bytes * (1 - 1e-5) <= hbm_bytes
        found.append(first[fits])
        speeds.append(seen.log_step_s[fits] - FLOAT32_SLACK)
    first, fastest = np.concatenate(found), np.concatenate(speeds)
    order = np.argsort(fastest, kind="stable")
    return first[order], fastest[order]
