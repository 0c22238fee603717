"""One method on one problem in a process of its own: `python -m experiments.search_quality.worker ORDER`.

JSON on both sides. The clock starts when the parent asks for the process, so imports and compilation count for every
method.
"""

import contextlib
import dataclasses
import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from experiments.search_quality.recorder import Improvement, OverTimeError, Recorder

MARKS_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
GRACE_S = 3.0  # and a fifth of the run: what the end of a method may take


def main(order: dict[str, Any]) -> dict[str, Any]:
    """Run, then score again what was known at every mark."""
    from experiments.search_quality.methods import METHODS
    from experiments.search_quality.suite import Case, problem_of

    recorder = Recorder(order["started"], order["seconds"], order["clock"], order.get("evaluations", 0))
    case = Case(**{**order["case"], "jobs": tuple(order["case"]["jobs"])})
    question = problem_of(case)
    log_bound = None
    with contextlib.suppress(OverTimeError), _limited(recorder):
        log_bound = METHODS[order["method"]](question, recorder, order["seed"])
    ended = {"wall_s": recorder.wall_s(), "cpu_s": recorder.cpu_s(), "evaluations": recorder.evaluations}
    marks = [mark for mark in MARKS_S if mark <= order["seconds"]] + [order["seconds"]]
    scored: dict[int, float | None] = {}
    at = {}
    for mark in sorted(set(marks)):
        improvement = recorder.until(mark)
        if improvement is not None and id(improvement) not in scored:
            scored[id(improvement)] = _score(question, improvement)
        at[f"{mark:g}"] = None if improvement is None else scored[id(improvement)]
    trace = [(one.wall_s, one.cpu_s, one.evaluations, one.log_value) for one in recorder.improvements]
    best = recorder.improvements[-1].candidate if recorder.improvements else None
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {**ended, "load": load, "at": at, "trace": trace, "log_bound": log_bound, "best": best}


@contextlib.contextmanager
def _limited(recorder: Recorder) -> Iterator[None]:
    """Rings when the time is up and once more a little later, where the system has alarms."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return
    cpu = recorder.clock == "cpu"
    timer, number = (signal.ITIMER_PROF, signal.SIGPROF) if cpu else (signal.ITIMER_REAL, signal.SIGALRM)

    def ring(number: int, frame: Any) -> None:
        raise OverTimeError

    before = signal.signal(number, ring)
    signal.setitimer(timer, max(0.1, recorder.seconds - recorder.elapsed_s()), GRACE_S + 0.2 * recorder.seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        signal.signal(number, before)


def _score(question: Any, improvement: Improvement) -> float | None:
    from experiments.search_quality import layers
    from experiments.search_quality.score import score_design, score_plan
    from experiments.search_quality.suite import plan_of

    own = improvement.candidate
    if "plan" in own:
        return score_plan(question, plan_of(dataclasses.replace(question.case, plan=own["plan"])))
    if "layers" in own:
        return layers.score(question, own["layers"])
    plans = [plan_of(dataclasses.replace(question.case, plan=plan)) for plan in own["plans"]]
    value = score_design(question, own["accelerators"], own["rates"], own["hbm_bytes"], plans)
    return value if value is not None and math.isfinite(value) else None


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))), flush=True)
    os._exit(0)  # a thread that still compiles would abort the interpreter's own end
