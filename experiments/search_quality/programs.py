"""Methods that are exact where they apply: every plan in float64, and the convex program of the hardware by SciPy."""

import functools
import math
from typing import Any

import numpy as np

from costmodel.inputs import PlanPoint, embed
from experiments.search_quality.evaluator import INFEASIBLE, Evaluator
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.score import fields, objective_of_plans
from experiments.search_quality.suite import Question, plan_of
from optimize.lattice import CHUNK, Chunk, lattice, plan_precision
from optimize.plans import chunk_count, exactly
from optimize.question import RATES


def exhaustive_plans(question: Question, recorder: Recorder, seed: int) -> float | None:
    """Every plan in float64, no float32 before it; the bound is the value where all were reached in time."""
    del seed
    whole = lattice(question.workload, question.cluster, {**plan_precision(question.cluster), **question.problem.fixed})
    value = objective_of_plans(question, sorted(set(whole.rows["domain"].tolist())))
    for number in range(chunk_count(whole)):
        if not recorder.go():
            return None
        chunk = whole.chunk(number * CHUNK, (number + 1) * CHUNK)
        found = exactly(whole, chunk.indices)
        values = np.where(whole.needed(found) <= 1.0, value(chunk, found), np.inf)
        recorder.evaluations += len(chunk)
        best = int(values.argmin())
        if np.isfinite(values[best]):
            recorder.offer(math.log(values[best]), functools.partial(_candidate, chunk, best))
    return recorder.found[-1].log_value if recorder.found else None


def _candidate(chunk: Chunk, i: int) -> dict[str, Any]:
    return {"plan": fields(chunk.plan(i))}


class _OnePlan:
    """An encoding of nothing but one plan."""

    def __init__(self, question: Question) -> None:
        self.problem, self.jobs = question.problem, [self]
        self.usable = float(question.cluster.tiers[0].usable_size)
        self.point = embed(plan_of(question.case), question.workload, self.usable)

    def points(self, index: np.ndarray, dtype: type) -> PlanPoint:
        del index, dtype
        return self.point


def convex_hardware(question: Question, recorder: Recorder, seed: int) -> float | None:
    """SciPy's SLSQP on the logarithms of the rates from several starts; values are at the projection of its points."""
    from scipy.optimize import minimize

    evaluate = Evaluator(_OnePlan(question))  # pyright: ignore[reportArgumentType]
    (low, high), generator = question.problem.ends, np.random.default_rng(seed)
    count = np.array([float(question.case.accelerators)])
    number = [np.zeros(1, int)]

    def value(y: np.ndarray) -> float:
        found = evaluate.at(count, y[None], number)
        recorder.evaluations += 1
        if found.log_value[0] < INFEASIBLE:
            own = found.candidate(0)._asdict() | {"plans": [question.case.plan]}
            recorder.offer(float(found.log_value[0]), lambda: own)
        return float(found.log_value[0])

    bounds = list(zip(low, high, strict=True))
    for _ in range(8):
        start = low + (high - low) * generator.random(len(RATES))
        for method in ("SLSQP", "Nelder-Mead"):
            if recorder.go():
                start = np.clip(minimize(value, start, method=method, bounds=bounds).x, low, high)
    return None
