"""Methods enumerated with plans: which way of agreeing on the model, on which plan, is soonest at a target."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel import Exact, Scalar, as_floats
from costmodel.formulas import cost, limit_bytes
from costmodel.inputs import Cluster, Workload
from costmodel.target import METHODS, applied, fewest
from optimize.lattice import lattice

_EXACT = Exact(np)


def find_method(
    workload: Workload,
    cluster: Cluster,
    problem: Callable[[int], Mapping[str, Scalar]],
    target: float,
    names: Sequence[str] = tuple(METHODS),
    fixed: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """The best plan of each method that arrives and fits, soonest first, as rows of names.

    Every legal plan of ZeRO 0 is evaluated. `problem` gives the constants for so many workers, the data ranks of a
    plan (`costmodel.target.instance`); `target` is a relative squared error.
    """
    found = []
    whole = lattice(workload, cluster, {**(fixed or {}), "zero_stage": 0})
    machine = as_floats(dataclasses.replace(cluster, prices=None))
    points = whole.points(np.arange(len(whole)), np.float64)
    workers = np.broadcast_to(np.rint(points.data), (len(whole),)).astype(int)
    problems = {n: problem(int(n)) for n in np.unique(workers)}
    for name in names:
        method = METHODS[name]()
        narrow, own = applied(method, as_floats(whole.workload), points)
        done = cost(narrow, machine, own, _EXACT)
        steps = np.zeros(len(whole))
        for n, constants in problems.items():
            steps[workers == n] = fewest(method, constants, target)
        train_s = np.where(done.peak_bytes <= limit_bytes(machine), steps * done.step_s, np.inf)
        best = int(train_s.argmin()) if len(whole) else 0
        if len(whole) and np.isfinite(train_s[best]):
            step_s = float(np.broadcast_to(done.step_s, len(whole))[best])
            row = {"steps": float(steps[best]), "step_s": step_s, "train_s": float(train_s[best])}
            found.append({"method": name, "plan": whole.plan(best), **row})
    return sorted(found, key=lambda each: each["train_s"])
