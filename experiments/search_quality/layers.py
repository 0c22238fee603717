"""High-dimensional plans: layers by stage, recompute by layer and microbatch of a deep pipeline; 70 variables and more.

Vectors, their decoding and their score are those of `optimize.layers.problem`. A second kind of baseline is given more:
the vector holds the microbatch and the boundaries only, and the cheapest recompute that fits is solved for, as the
solver does (`optimize.layers.segments`).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.search_quality.recorder import Recorder
from experiments.search_quality.suite import Question, plan_of
from optimize.layers import Candidate, LayeredProblem, find_layers, problem, segments

MISSES = 1e6  # the score of a division that does not fit with everything recomputed


def layered(question: Question) -> LayeredProblem:
    """HBM lies between what an even division needs with all recomputed and with nothing: by `hbm_share` of the case."""
    cluster, plan = question.cluster, plan_of(question.case)
    wide = problem(question.workload, cluster, plan)
    size, share = wide.microbatches[min(1, len(wide.microbatches) - 1)], float(question.case.fixed["hbm_share"])
    kinds = np.bincount(wide.kind_of_layer) / wide.stages
    layers = np.zeros((2, wide.stages, len(kinds), 3))
    layers[0, ..., 2] = layers[1, ..., 0] = kinds
    least, most = wide.tables[size].peak_bytes(layers).max(axis=1)
    chip = dataclasses.replace(cluster.accelerator, hbm_bytes=float(1.1 * least + share * (most - 1.1 * least)))
    return problem(question.workload, dataclasses.replace(cluster, accelerator=chip), plan)


def solve(question: Question, recorder: Recorder, seed: int) -> float | None:
    """The solver under test, which tells of every improvement."""
    given = layered(question)

    def watch(step_s: float, evaluations: int, candidate: Callable[[], Candidate]) -> None:
        recorder.evaluations = evaluations
        recorder.offer(math.log(step_s), lambda: _plain(candidate()))

    seconds = recorder.left_s()
    answer = find_layers(given.workload, given.cluster, given.plan, seed=seed, seconds=seconds, watch=watch)
    recorder.evaluations = answer.evaluations
    return math.log(answer.lower_bound_s) if math.isfinite(answer.step_s) else None


def _plain(candidate: Candidate) -> dict[str, Any]:
    return {"layers": dataclasses.asdict(candidate)}


def score(question: Question, candidate: dict[str, Any]) -> float | None:
    """Exactly, in float64; None where a stage does not fit."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in candidate.items()
    }
    given = layered(question)
    step_s, over = given.evaluate(given.encode(Candidate(**fields))[None])
    return float(step_s[0]) if over[0] <= 0 else None


def flat(question: Question, recorder: Recorder) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """All variables in the vector."""
    given = layered(question)

    def values(genes: np.ndarray) -> np.ndarray:
        x = np.clip(genes, 0.0, 1.0)
        step_s, over = given.evaluate(x)
        recorder.evaluations += len(x)
        fits = np.where(over <= 0, step_s, np.inf)
        best = int(fits.argmin())
        if np.isfinite(fits[best]):
            recorder.offer(math.log(fits[best]), lambda: _plain(given.decode(x[best])))
        return np.log(step_s * (1 + 10.0 * np.maximum(over, 0.0)))

    return values, given.variables


def nested(question: Question, recorder: Recorder) -> tuple[Callable[[np.ndarray], np.ndarray], int]:
    """Microbatch and boundaries in the vector, the cheapest recompute solved for inside."""
    given = layered(question)
    runs = {size: segments(*given.at(size)) for size in given.microbatches}

    def values(genes: np.ndarray) -> np.ndarray:
        scores = np.full(len(genes), MISSES)
        padded = np.concatenate([np.clip(genes, 0.0, 1.0), np.zeros((len(genes), given.layers))], axis=1)
        which, edges, _ = given.divisions(padded)
        recorder.evaluations += len(genes)
        for number in np.unique(which):
            size = given.microbatches[number]
            rows = [i for i in np.flatnonzero(which == number) if runs[size].fits(edges[i])]
            if rows:
                layers = np.array([runs[size].layers(edges[i]) for i in rows], float)
                step_s, over = given.exact(size, layers)
                scores[rows] = np.where(over <= 0, step_s, MISSES)
                best = int(scores[rows].argmin())
                if scores[rows][best] < MISSES:
                    own = (size, edges[rows[best]], layers[best])
                    recorder.offer(math.log(scores[rows][best]), lambda own=own: _plain(given.candidate(*own)))
        return np.log(scores)

    return values, 1 + given.stages
