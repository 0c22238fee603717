"""Step seconds of plans in float64, on hardware of their own each with the slopes by the rates, or on one cluster.

In NumPy and dual numbers: nothing is compiled.
"""

import dataclasses
from typing import Any

import numpy as np

from costmodel import Exact, as_floats
from costmodel.evaluators import dual
from costmodel.formulas import Loads, OpCounts, counts, memory, timed
from costmodel.inputs import RECOMPUTES, Cluster, PlanPoint, RecomputeRow, Workload
from optimize.question import RATES, Tangents, at_rates

_FULL: RecomputeRow = RECOMPUTES["full"]
_EXACT = Exact(np)


def _floats(workload: Workload) -> Workload:
    """As floats, unless it is so already: it is asked for hundreds of times of one."""
    return workload if isinstance(workload.batch, float) else as_floats(workload)


def _peaks(
    workload: Workload, counted: OpCounts, machine: Cluster, points: PlanPoint, plans: int
) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of HBM of each plan, from what is counted, and with everything recomputed, if that is less."""
    peak = np.broadcast_to(memory(counted, points, machine.stack, _EXACT).needed_bytes, plans)
    return peak, np.minimum(peak, bytes_of(workload, machine, dataclasses.replace(points, recompute=_FULL), plans))


def tangents_of(
    workload: Workload,
    machine: Cluster,
    points: PlanPoint,
    y: np.ndarray,
    loads: Loads = None,
    peak_bytes: np.ndarray | None = None,
) -> Tangents:
    """Tangents of one step of few plans, in float64 by dual numbers. `peak_bytes`: where they are known."""
    at: dict[str, Any] = dict(zip(RATES, np.exp(y).T, strict=True))
    workload = _floats(workload)
    counted = counts(workload, points, _EXACT)

    def seconds(rates: dict[str, Any]) -> tuple[Any, ...]:
        own = at_rates(machine, (rates[name] for name in RATES))
        return timed(counted, points, own, loads, dual.SUBGRADIENT)

    found = [
        (log_s, np.stack([slopes[name] for name in RATES], -1)) for log_s, slopes in dual.log_gradients(seconds, at)
    ]
    drawn = [column for pair in found[1:] for column in pair]
    if peak_bytes is not None:
        return Tangents(*found[0], y, peak_bytes, peak_bytes, *drawn)
    peak, least = _peaks(workload, counted, machine, points, len(y))
    return Tangents(*found[0], y, peak, least, *drawn)


def bytes_of(workload: Workload, machine: Cluster, points: PlanPoint, plans: int) -> np.ndarray:
    """What each plan needs of HBM."""
    counted = counts(_floats(workload), points, _EXACT)
    return np.broadcast_to(memory(counted, points, machine.stack, _EXACT).needed_bytes, plans)


def values_of(workload: Workload, machine: Cluster, points: PlanPoint, plans: int, loads: Loads = None) -> Tangents:
    """One step of each plan on one cluster, in float64 and without slopes: nothing is compiled or differentiated."""
    workload, machine = _floats(workload), as_floats(machine)
    counted = counts(workload, points, _EXACT)
    logs = [
        np.log(np.broadcast_to(np.asarray(seconds, float), plans))
        for seconds in timed(counted, points, machine, loads, _EXACT)
    ]
    peak, least = _peaks(workload, counted, machine, points, plans)
    nothing = np.zeros((plans, 0))
    at = Tangents(logs[0], nothing, nothing, peak, least)
    return at if loads is None else at._replace(log_drawn=logs[1])
