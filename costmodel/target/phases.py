"""Which method is soonest where: a phase diagram over bandwidth, target and workers.

One model on pure data parallelism, one worker an accelerator; rounds by the bounds of `convergence.rates` on a random
quadratic, as a stand-in for the loss. Limits: quadratics with exact gradients, one machine a worker, ZeRO 0.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from costmodel.convergence import constants, optimum, random_quadratic, subnetworks
from costmodel.evaluators import prepare
from costmodel.exact import Exact
from costmodel.formulas import Cost, cost
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.semantics import Scalar
from costmodel.target.campaign import campaign, quadratic
from costmodel.target.methods import METHODS, Method, applied, arrives

_EXACT = Exact(np)


def instance(workers: int, dimension: int, alike: float = 0.0, seed: int = 0) -> Mapping[str, Scalar]:
    """Constants of a random quadratic with disjoint masks, offsets shrunk by `1 - alike`; start at a distance of 3 a
    coordinate. Local steps have no floor here unless the offsets differ, and then none that is bounded: they are left
    out."""
    hessians, offsets = random_quadratic(seed, workers, dimension)
    problem, start = (hessians, (1 - alike) * offsets), 3.0 * np.ones(dimension)
    kept, first = dimension // workers, float(((start - optimum(problem)) ** 2).sum())
    bias = float(((subnetworks.plain_limit(problem, kept) - optimum(problem)) ** 2).sum()) / first
    own = {
        "slowest": float(np.linalg.eigvalsh(subnetworks.plain_map(problem, kept))[0]),
        "bias": bias,
        "noise": float(subnetworks.plain_noise(problem, kept)) / first,
    }
    return {name: float(value) for name, value in constants(problem, start).items()} | own


SHRINK = 2.0 ** -np.arange(0, 21, 0.25)
"""Steps, over the largest that is stable, of which the soonest counts: smaller ones lower a floor, not a bias."""


def step_of(method: Method, workload: Workload, cluster: Cluster, bandwidths: np.ndarray) -> Cost:
    """One step of every worker on a cluster all of whose levels have these bandwidths, in bytes/s."""
    plan = Plan(data=int(cluster.accelerators), zero_stage=0)
    _, machine, point = prepare(workload, cluster, plan)
    narrow, point = applied(method, workload, point)
    tiers = tuple(dataclasses.replace(tier, bandwidth_bytes_per_s=bandwidths) for tier in machine.tiers)
    return cost(narrow, dataclasses.replace(machine, tiers=tiers), point, _EXACT)


def phases(
    workload: Workload,
    cluster: Cluster,
    bandwidths: np.ndarray,
    targets: np.ndarray,
    problem: Mapping[str, Scalar],
    names: Sequence[str] = tuple(METHODS),
) -> Mapping[str, np.ndarray]:
    """Seconds to each target (rows) at each bandwidth (columns) by method; infinite where its floor is above it."""
    found = {}
    for name in names:
        method = METHODS[name]()
        step = step_of(method, workload, cluster, bandwidths)
        seconds = np.full((len(targets), len(bandwidths)), np.inf)
        for i, target in enumerate(targets):
            steps = fewest(method, problem, float(target))
            if np.isfinite(steps):
                seconds[i] = campaign(step, method, lambda _, steps=steps: steps)["train_s"]
        found[name] = seconds
    return found


def fewest(method: Method, problem: Mapping[str, Scalar], target: float) -> float:
    """Steps to a target with the best step size; infinite where the floor of each is above it."""
    if method["local"] > 1 and problem["spread"] > 0:
        return float("inf")
    tried = {**problem, "shrink": SHRINK}
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = np.where(arrives(method, tried, target), quadratic(tried, target, _EXACT)(method), np.inf)
    return float(steps.min())


def winners(found: Mapping[str, np.ndarray]) -> np.ndarray:
    """The soonest method at each target and bandwidth."""
    names = np.array(list(found))
    return names[np.argmin(np.stack(list(found.values())), axis=0)]
