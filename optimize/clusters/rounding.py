"""From relaxed points to plans: the nearest points of the enumerated lattice, several for each mode.

Rounding each degree by itself fails: the degrees must multiply to a count, divide heads, layers and batch, and nest in
the domains. So the lattice is enumerated and all of its points are compared, by distance in log2 of the degrees.
"""

import numpy as np

from costmodel.inputs import SCHEDULES
from optimize.clusters.progress import Outcome, Relaxed
from optimize.lattice import Families

WEIGHTS = {"tensor": 2.0, "context": 1.0, "pipeline": 1.0, "data": 1.0, "microbatch": 0.5, "virtual_stages": 0.3}
"""How much a factor of two off counts; one in `expert` counts 1."""
NEAREST = 8  # plans for each relaxed point
MODES = 3  # relaxed points of each schedule and ZeRO stage


def modes(relaxed: Relaxed, each: int = MODES) -> np.ndarray:
    """The best relaxed points of each schedule and ZeRO stage that meet the limits, best first."""
    seen: dict[tuple[str, int], int] = {}
    chosen = []
    for i, outcome in enumerate(relaxed.outcome):
        mode = (relaxed.schedule[i].item(), int(relaxed.zero[i]))
        if outcome is Outcome.infeasible or seen.get(mode, 0) >= each:
            continue
        seen[mode] = seen.get(mode, 0) + 1
        chosen.append(i)
    return np.array(chosen, int)


def nearest(
    families: Families, relaxed: Relaxed, chosen: np.ndarray, each: int = NEAREST, job: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Families of one lattice near relaxed points, and for each the relaxed point that it is near to."""
    first = families.first(0, len(families))
    if not len(first) or not len(chosen):
        return np.zeros(0, int), np.zeros(0, int)
    columns = families.lattice.columns(first)
    plans, near = [], []
    for i in chosen:
        distance = _distance(columns, relaxed, int(i), job)
        closest = np.argpartition(distance, min(each, len(distance) - 1))[:each]
        plans.append(first[closest])
        near.append(np.full(len(closest), i))
    kept, place = np.unique(np.concatenate(plans), return_index=True)
    return kept, np.concatenate(near)[place]


def _distance(columns: dict[str, np.ndarray], relaxed: Relaxed, i: int, job: int) -> np.ndarray:
    """Squared, over all plans; another schedule or ZeRO stage counts as a factor of two."""
    total = np.zeros(len(columns["tensor"]))
    for name, weight in (*WEIGHTS.items(), ("expert", 1.0)):
        total += weight * (np.log2(columns[name]) - np.log2(relaxed.jobs[job][name][i])) ** 2
    total += columns["schedule"] != list(SCHEDULES).index(relaxed.schedule[i].item())
    return total + (columns["zero_stage"] != relaxed.zero[i]) + 1.0 * (columns["data_shard"] > 0)
