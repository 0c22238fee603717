"""Step seconds of plans in float64, on hardware of their own each with the slopes by the rates, or on one cluster.

In NumPy and dual numbers: nothing is compiled.
"""

import dataclasses
from typing import Any

import numpy as np

from costmodel import Exact, as_floats
from costmodel.evaluators import dual
from costmodel.formulas import OpCounts, counts, hardware_of, memory, step, timed, with_hardware
from costmodel.inputs import RECOMPUTES, Cluster, PlanPoint, RecomputeRow, Workload
from optimize.question import RATES, Tangents

_FULL: RecomputeRow = RECOMPUTES["full"]
_EXACT = Exact(np)

Loads = tuple[float, float, float, float] | None
"""What busy units draw (`Prices.loads`), where an objective pays for it: then seconds at the usual power count too."""


def _timed(counted: OpCounts, machine: Cluster, point: PlanPoint, loads: Loads, sem: Any) -> tuple[Any, ...]:
    """Seconds of a step, and with loads at the usual power."""
    if loads is None:
        return (step(counted, point, machine, sem).step_s,)
    return timed(counted, point, machine, loads, sem)


def _floats(workload: Workload) -> Workload:
    """As floats, unless it is so already: it is asked for hundreds of times of one."""
    return workload if isinstance(workload.batch, float) else as_floats(workload)


def _with_rates(template: Cluster, rates: Any) -> Cluster:
    return with_hardware(template, dataclasses.replace(hardware_of(template), **dict(zip(RATES, rates, strict=True))))


def tangents_of(
    workload: Workload,
    machine: Cluster,
    points: PlanPoint,
    y: np.ndarray,
    loads: Loads = None,
    need: np.ndarray | None = None,
) -> Tangents:
    """Tangents of one step of few plans, in float64 by dual numbers. `need`: their bytes of HBM, where known."""
    at: dict[str, Any] = dict(zip(RATES, np.exp(y).T, strict=True))
    counted = counts(_floats(workload), points, _EXACT)

    def seconds(rates: dict[str, Any]) -> tuple[Any, ...]:
        own = _with_rates(machine, [rates[name] for name in RATES])
        return _timed(counted, own, points, loads, dual.SUBGRADIENT)

    found = [
        (log_s, np.stack([slopes[name] for name in RATES], -1)) for log_s, slopes in dual.log_gradients(seconds, at)
    ]
    modes = () if need is not None else (points, dataclasses.replace(points, recompute=_FULL))
    peak = [_needs(counted, machine, at, len(y)) for at in modes] or [need, need]
    return Tangents(*found[0], y, peak[0], np.minimum(*peak), *(column for pair in found[1:] for column in pair))


def bytes_of(workload: Workload, machine: Cluster, points: PlanPoint, plans: int) -> np.ndarray:
    """What each plan needs of HBM."""
    return _needs(counts(_floats(workload), points, _EXACT), machine, points, plans)


def _needs(counted: OpCounts, machine: Cluster, points: PlanPoint, plans: int) -> np.ndarray:
    return np.broadcast_to(memory(counted, points, machine.stack, _EXACT).needed_bytes, plans)


def values_of(workload: Workload, machine: Cluster, points: PlanPoint, plans: int, loads: Loads = None) -> Tangents:
    """One step of each plan on one cluster, in float64 and without slopes: nothing is compiled or differentiated.

    Of a workload and a cluster as floats."""
    counted = counts(workload, points, _EXACT)
    logs = [np.log(np.broadcast_to(seconds, plans)) for seconds in _timed(counted, machine, points, loads, _EXACT)]
    peak, least = (_needs(counted, machine, at, plans) for at in (points, dataclasses.replace(points, recompute=_FULL)))
    nothing = np.zeros((plans, 0))
    at = Tangents(logs[0], nothing, nothing, peak, np.minimum(peak, least))
    return at if loads is None else at._replace(log_drawn=logs[1])
