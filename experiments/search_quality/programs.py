"""Methods that are exact where they apply: every plan in float64, and the convex program of the hardware by SciPy."""

import functools
import math
from typing import Any

import numpy as np

from costmodel.inputs import embed
from experiments.search_quality.ours import of_rates
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.score import fields, objective_of_plans
from experiments.search_quality.suite import Question, plan_of
from optimize.clusters import INFEASIBLE, valued
from optimize.lattice import CHUNK, Chunk, lattice, usual_formats
from optimize.plans import chunk_count, exactly
from optimize.question import RATES


def exhaustive_plans(question: Question, recorder: Recorder, seed: int) -> float | None:
    """Every plan in float64, no float32 before it; the bound is the value where all were reached in time."""
    del seed
    fixed = dict(question.problem.fixed)
    whole = lattice(question.workload, question.cluster, usual_formats(question.cluster, fixed) | fixed)
    value = objective_of_plans(question, sorted(set(whole.rows["domain"].tolist())))
    for number in range(chunk_count(whole)):
        if not recorder.go():
            return None
        chunk = whole.chunk(number * CHUNK, (number + 1) * CHUNK)
        costs = exactly(whole, chunk.indices)
        values = np.where(whole.needed(costs.peak_bytes, costs.second_bytes) <= 1.0, value(chunk, costs), np.inf)
        recorder.evaluations += len(chunk)
        best = int(values.argmin())
        if np.isfinite(values[best]):
            recorder.offer(math.log(values[best]), functools.partial(_candidate, chunk, best))
    return recorder.improvements[-1].log_value if recorder.improvements else None


def _candidate(chunk: Chunk, i: int) -> dict[str, Any]:
    return {"plan": fields(chunk.plan(i))}


def convex_hardware(question: Question, recorder: Recorder, seed: int) -> float | None:
    """SciPy's SLSQP on the logarithms of the rates from several starts; values are at the projection of its points."""
    from scipy.optimize import minimize

    plan_point = embed(
        plan_of(question.case),
        question.workload,
        float(question.cluster.tiers[0].usable_size),
        question.cluster.stack.habits,
    )
    (low, high), generator = question.problem.ends, np.random.default_rng(seed)
    count = np.array([question.case.accelerators])

    def value(y: np.ndarray) -> float:
        point = valued(question.problem, count, y[None], [plan_point], [])
        recorder.evaluations += 1
        if point.log_value[0] < INFEASIBLE:
            own = of_rates(question.case.accelerators, point.y[0], float(point.hbm_bytes[0]), [question.case.plan])
            recorder.offer(float(point.log_value[0]), lambda: own)
        return float(point.log_value[0])

    bounds = list(zip(low, high, strict=True))
    for _ in range(8):
        start = low + (high - low) * generator.random(len(RATES))
        for method in ("SLSQP", "Nelder-Mead"):
            if recorder.go():
                start = np.clip(minimize(value, start, method=method, bounds=bounds).x, low, high)
    return None
