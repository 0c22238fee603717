"""The solver under test, for each kind: what it finds is recorded as it is found, its bound when it ends."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.search_quality import layers
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.score import fields
from experiments.search_quality.suite import Question, plan_of
from optimize.clusters import Best, Found, Mixed, MixProgress, Progress, search_mix
from optimize.clusters import one_job as joint
from optimize.hardware import solve_plans
from optimize.plans import find_in_lattice
from optimize.question import RATES


def solve(question: Question, recorder: Recorder, seed: int) -> float | None:
    """Returns the logarithm of the lower bound, where there is one."""
    return _KINDS[question.case.kind](question, recorder, seed)


def _plan(question: Question, recorder: Recorder, seed: int) -> float | None:
    del seed
    name, tokens = question.problem.objective.key, question.problem.job.tokens
    asked = {"fixed": question.problem.fixed, "objective": name, "tokens": tokens}
    answer = find_in_lattice(question.workload, question.cluster, **asked, top=3, margin=0.5)  # as the others judge
    recorder.evaluations = answer.evaluations
    recorder.offer(math.log(answer.value), lambda: {"plan": fields(answer.plan)})
    return math.log(answer.lower_bound)


def _hardware(question: Question, recorder: Recorder, seed: int) -> float | None:
    del seed
    solved = solve_plans(question.problem, (plan_of(question.case),))
    recorder.evaluations = solved.evaluations
    if not np.isfinite(solved.value[0]):
        return None
    recorder.offer(math.log(solved.value[0]), lambda: _of_hardware(solved.hardware(0), [question.case.plan]))
    return math.log(solved.lower_bound[0])


def _of_hardware(hardware: Any, plans: list[Any]) -> dict[str, Any]:
    rates = [float(getattr(hardware, name)) for name in RATES]
    count = int(round(float(hardware.accelerators)))
    return {"accelerators": count, "rates": rates, "hbm_bytes": float(hardware.hbm_bytes), "plans": plans}


def _joint(question: Question, recorder: Recorder, seed: int) -> float | None:
    """What `design` does for one job: the certified search, then the hardware of its plan solved to the end."""
    problem = question.problem

    def watched(kept: Callable[[Progress, Best], None]) -> Any:
        def offer(self: Progress, best: Best) -> None:
            kept(self, best)
            recorder.evaluations = self.evaluations
            own = best.cell.accelerators, best.y, best.hbm_bytes, [fields(best.plan)]
            recorder.offer(best.log_value, lambda: of_rates(*own))

        return offer

    Progress.offer = watched(Progress.offer)  # this is a process of one search
    Progress.note = watched(Progress.note)  # what would be told if the time were up
    search = joint.search(problem, recorder.left_s(), seed)
    recorder.evaluations = search.evaluations
    if search.best is None:
        return None
    solved = solve_plans(problem, (search.best.plan,))
    hardware = dataclasses.replace(solved.hardware(0), hbm_bytes=search.best.hbm_bytes)
    recorder.evaluations += solved.evaluations
    assert search.best is not None
    plans = [fields(search.best.plan)]
    recorder.offer(math.log(solved.value[0]), lambda: _of_hardware(hardware, plans))
    return search.log_bound


def of_rates(accelerators: int, y: np.ndarray, hbm_bytes: float, plans: list[Any]) -> dict[str, Any]:
    """A candidate, as JSON holds it, from the logarithms of its rates."""
    return {"accelerators": accelerators, "rates": np.exp(y).tolist(), "hbm_bytes": hbm_bytes, "plans": plans}


def candidate_of(found: Mixed | Found) -> dict[str, Any]:
    """The same of an answer."""
    return of_rates(found.accelerators, found.y, found.hbm_bytes, [fields(plan) for plan in found.plans])


def _mix(question: Question, recorder: Recorder, seed: int) -> float | None:
    offer = MixProgress.offer

    def watched(self: MixProgress, mixed: Mixed) -> None:
        offer(self, mixed)
        recorder.evaluations = self.evaluations
        recorder.offer(mixed.log_value, lambda: candidate_of(mixed))

    MixProgress.offer = watched  # this is a process of one search
    search = search_mix(question.problem, recorder.left_s(), seed)
    recorder.evaluations = search.evaluations
    return None if search.best is None else search.log_bound


_KINDS = {"plan": _plan, "hardware": _hardware, "joint": _joint, "mix": _mix, "layers": layers.solve}
