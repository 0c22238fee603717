"""Where a published plan stands among all legal ones, and what the fastest of them does otherwise."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel import Breakdown, Exact, Plan, as_floats, cost, evaluate
from costmodel.formulas import limit_bytes
from experiments.published_plans.runs import PublishedRun
from optimize.lattice import Lattice, lattice

SEM = Exact(np)
TYPES = ("precision", "gradient_dtype", "attention")
ABILITIES = (*TYPES, "schedule", "sequence_parallel", "fused_kernels")
OVERLAPS = ("overlap_data", "overlap_tensor", "overlap_expert", "overlap_pipeline")
SPACES = {"same software": ABILITIES + OVERLAPS, "all": TYPES}
"""Fields that stay as published: what the software could do then, or number formats and kernels alone."""
_BLOCK = 20_000
_VALIDATED = 20  # plans of the fastest that are evaluated one by one


def ranked(run: PublishedRun, space: str, most: int, seed: int) -> dict[str, Any]:
    """Those of the legal plans (all, or `most` drawn at random) that fit and are faster than the published plan, by our
    prediction for both; the fastest of them, and where its step differs."""
    fixed = {name: getattr(run.plan, name) for name in SPACES[space]}
    whole = lattice(run.workload, run.cluster, fixed)
    numbers = _drawn(len(whole), most, seed)
    told: dict[str, Any] = {"plans": len(whole), "looked_at": len(numbers), "faster": None, "best_s": None}
    if not len(numbers):
        return told
    step_s, fits = _evaluated(whole, numbers)
    own = evaluate(run.workload, run.cluster, run.plan)
    faster = fits & (step_s < float(own.step_s) * (1 - 1e-9))
    told |= {"fitting": int(fits.sum()), "faster": float(faster.sum() / max(1, fits.sum()))}
    best = _best(run, whole, numbers[fits], step_s[fits])
    if best is None or best[0].step_s >= own.step_s:
        return told | {"best_s": float(own.step_s), "best_plan": str(run.plan), "difference": {}}
    found, plan = best
    return told | {"best_s": float(found.step_s), "best_plan": str(plan), "difference": _difference(own, found)}


def _drawn(count: int, most: int, seed: int) -> np.ndarray:
    """All numbers, or some of them, ordered."""
    if count <= most:
        return np.arange(count)
    return np.unique(np.random.default_rng(seed).integers(0, count, most))


def _evaluated(whole: Lattice, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of each plan, and whether it fits."""
    workload, cluster = as_floats(whole.workload), dataclasses.replace(as_floats(whole.cluster), prices=None)
    limit = float(limit_bytes(cluster))
    steps, kept = [], []
    for start in range(0, len(numbers), _BLOCK):
        block = numbers[start : start + _BLOCK]
        found = cost(workload, cluster, whole.points(block, np.float64), SEM)
        steps.append(np.broadcast_to(found.step_s, block.shape))
        kept.append(np.broadcast_to(found.peak_bytes <= limit, block.shape))
    return np.concatenate(steps), np.concatenate(kept)


def _best(run: PublishedRun, whole: Lattice, numbers: np.ndarray, step_s: np.ndarray) -> tuple[Breakdown, Plan] | None:
    """The fastest that fits in every stage."""
    order = np.lexsort((numbers, step_s))[:_VALIDATED]
    for number in numbers[order].tolist():
        plan = whole.plan(number)
        found = evaluate(run.workload, run.cluster, plan)
        if found.fits:
            return found, plan
    return None


def _difference(own: Breakdown, best: Breakdown) -> Mapping[str, float]:
    """Seconds that each term is longer in the published plan, largest first."""
    least = {term.name: float(term.exposed_s) for term in best.terms}
    lost = {term.name: float(term.exposed_s) - least.get(term.name, 0.0) for term in own.terms}
    return dict(sorted(lost.items(), key=lambda item: -abs(item[1])))
