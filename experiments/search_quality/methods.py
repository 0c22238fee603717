"""The methods by name: each takes a question, a recorder and a seed, and returns the logarithm of a bound or None."""

from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.search_quality import black_boxes, greedy, layers, ours, programs
from experiments.search_quality.encoding import Encoding
from experiments.search_quality.evaluator import INFEASIBLE, Evaluator
from experiments.search_quality.evolution import differential, evolve
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.score import fields
from experiments.search_quality.suite import Question

Method = Callable[[Question, Recorder, int], float | None]
Values = Callable[[np.ndarray], np.ndarray]


def watched(question: Question, recorder: Recorder) -> tuple[Values, Encoding]:
    """The values of batches of vectors, every improvement recorded."""
    encoding = Encoding(question.problem)
    evaluate = Evaluator(question.problem, encoding.points)

    def values(genes: np.ndarray) -> np.ndarray:
        batch = evaluate(*encoding.decode(np.clip(genes, 0.0, 1.0)))
        recorder.evaluations += len(genes)
        best = int(batch.log_value.argmin())
        if batch.log_value[best] < INFEASIBLE:
            recorder.offer(float(batch.log_value[best]), lambda: _candidate(batch.candidate(best), encoding))
        return batch.log_value

    return values, encoding


def _candidate(candidate: dict[str, Any], encoding: Encoding) -> dict[str, Any]:
    plans = [fields(job.plan(index)) for job, index in zip(encoding.jobs, candidate["plans"], strict=True)]
    return candidate | {"plans": plans}


def _vectorised(search: Callable[..., None], inside: bool = False) -> Method:
    """`inside`: what can be solved for exactly is not in the vector."""

    def method(question: Question, recorder: Recorder, seed: int) -> None:
        if question.case.kind == "layers":
            values, genes = (layers.nested if inside else layers.flat)(question, recorder)
        else:
            values, encoding = watched(question, recorder)
            genes = encoding.genes
        search(values, genes, seed, recorder.go)

    return method


METHODS: dict[str, Method] = {
    "equipoise": ours.solve,
    "evolution": _vectorised(evolve),
    "differential": _vectorised(differential),
    "nested": _vectorised(evolve, inside=True),
    "scipy": _vectorised(black_boxes.scipy_differential),
    "cma": _vectorised(black_boxes.cma_es),
    "tpe": _vectorised(black_boxes.optuna_tpe),
    "greedy": _vectorised(greedy.bottleneck_greedy),
    "exhaustive": programs.exhaustive_plans,
    "convex": programs.convex_hardware,
}
OF_KIND: dict[str, tuple[str, ...]] = {
    "plan": ("equipoise", "exhaustive"),
    "hardware": ("equipoise", "convex"),
    "joint": ("equipoise", "evolution", "differential", "greedy", "scipy", "cma", "tpe"),
    "mix": ("equipoise", "evolution", "differential", "greedy", "scipy", "cma", "tpe"),
}
OF_KIND |= {"layers": (*OF_KIND["mix"][:3], "nested", *OF_KIND["mix"][3:])}
OPTIONAL = {"cma": "cma", "tpe": "optuna"}  # method: the package of the extra `search` that it needs
