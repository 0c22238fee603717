"""The methods by name: each takes a question, a recorder and a seed, and returns the logarithm of a bound or None."""

from collections.abc import Callable

import numpy as np

from experiments.search_quality import black_boxes, greedy, layers, ours, programs
from experiments.search_quality.differential import differential
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.suite import Question
from optimize.clusters import INFEASIBLE, Genes, Values, evolve

Method = Callable[[Question, Recorder, int], float | None]
Batch = Callable[[np.ndarray], np.ndarray]


def watched(question: Question, recorder: Recorder) -> tuple[Batch, Genes]:
    """The values of batches of vectors, every improvement recorded."""
    values = Values(Genes(question.problem))

    def recorded(vectors: np.ndarray) -> np.ndarray:
        batch = values(np.clip(vectors, 0.0, 1.0))
        recorder.evaluations = values.evaluations
        best = int(batch.log_value.argmin())
        if batch.log_value[best] < INFEASIBLE:
            recorder.offer(float(batch.log_value[best]), lambda: ours.candidate_of(values.found(batch, best)))
        return batch.log_value

    return recorded, values.genes


def _vectorised(search: Callable[..., None], inside: bool = False) -> Method:
    """`inside`: what can be solved for exactly is not in the vector."""

    def method(question: Question, recorder: Recorder, seed: int) -> None:
        if question.case.kind == "layers":
            search(*(layers.nested if inside else layers.flat)(question, recorder), seed, recorder.go)
            return
        values, genes = watched(question, recorder)
        known = {"groups": genes.counts_of, "degrees": genes.degrees} if search is evolve else {}
        search(values, len(genes), seed, recorder.go, **known)

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
