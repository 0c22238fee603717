"""A step as it goes by: what every stage of the pipeline does when, and what it holds meanwhile."""

import json
import math
from typing import Any, NamedTuple

from costmodel import Exact
from costmodel.evaluators import memory_by_stage, prepare
from costmodel.formulas import StageMemory, parts, passing_bytes
from costmodel.graph import Played, Task
from costmodel.inputs import SCHEDULES, Cluster, Plan, Workload
from optimize.diagnosis.played import played_passes

MOST_TRACED = 100_000  # operations in a trace: about 15 MB of JSON

NAMES = {"F": "forward", "B": "backward", "W": "weight gradient"}

_EXACT = Exact(math)


class Span(NamedTuple):
    """One operation of a stage: its parts, of which most have one, with start and end."""

    parts: tuple[Task, ...]
    start_s: float
    end_s: float

    @property
    def kind(self) -> str:
        """The kinds of its parts: F, B, W, or several that run as one."""
        return "".join(dict.fromkeys(task.kind for task in self.parts))


class Timeline(NamedTuple):
    """The passes played out, what follows them, and the bytes of each stage as pairs of a time and what it holds from
    then on."""

    spans: tuple[tuple[Span, ...], ...]  # by stage
    held_bytes: tuple[tuple[tuple[float, float], ...], ...]  # by stage
    passes_s: float
    step_s: float
    limit_bytes: float


def timeline(workload: Workload, cluster: Cluster, plan: Plan) -> Timeline | None:
    """Play a legal plan; None where its operations are too many."""
    numbers, cluster_numbers, point = prepare(workload, cluster, plan)
    done = parts(numbers, cluster_numbers, point, _EXACT)
    played = played_passes(plan, done)
    if played is None:
        return None
    memories = memory_by_stage(workload, cluster, plan)
    after_s = float(done.step.step_s - done.step.passes_s)
    last_use = "W" if SCHEDULES[plan.schedule].splits else "B"
    return Timeline(
        spans=tuple(_spans(played, stage) for stage in range(plan.pipeline)),
        held_bytes=tuple(_held(played, stage, memory, last_use) for stage, memory in enumerate(memories)),
        passes_s=played.makespan_s,
        step_s=played.makespan_s + after_s,
        limit_bytes=float(cluster.accelerator.hbm_bytes),
    )


def _spans(played: Played, stage: int) -> tuple[Span, ...]:
    """Parts that start and end together are one operation."""
    found: list[Span] = []
    columns = (played.order[stage], played.starts_s[stage], played.ends_s[stage])
    for task, start_s, end_s in zip(*columns, strict=True):
        if found and (found[-1].start_s, found[-1].end_s) == (start_s, end_s) and end_s > start_s:
            found[-1] = found[-1]._replace(parts=(*found[-1].parts, task))
        else:
            found.append(Span((task,), start_s, end_s))
    return tuple(found)


def _held(played: Played, stage: int, memory: StageMemory, last_use: str) -> tuple[tuple[float, float], ...]:
    """Activations come with each forward pass and go with their last use; all else of the peak is held throughout."""
    rows = zip(played.order[stage], played.starts_s[stage], played.ends_s[stage], strict=True)
    events = [
        (start_s, 1) if task.kind == "F" else (end_s, -1)
        for task, start_s, end_s in rows
        if task.kind in ("F", last_use)
    ]
    live = {0.0: 0}
    for at_s, change in sorted(events):  # at one moment, what goes makes room for what comes
        live[at_s] = next(reversed(live.values())) + change
    own_bytes = float(memory.activations_bytes) / max(live.values())
    rest_bytes = float(memory.held_bytes + passing_bytes(memory, _EXACT) - memory.activations_bytes)
    return tuple((at_s, rest_bytes + own_bytes * count) for at_s, count in live.items())


def chrome_trace(found: Timeline) -> bytes | None:
    """Trace events in JSON, which Perfetto and Chrome open: a process with a thread for each stage, memory as counters.

    Format: Trace Event Format (Google): complete events, times in microseconds. None where they would be too many.
    """
    if sum(map(len, found.spans)) > MOST_TRACED:
        return None
    events: list[dict[str, Any]] = [_named("process_name", 0, "pipeline")]
    for stage, spans in enumerate(found.spans):
        events.append(_named("thread_name", stage, f"stage {stage + 1}"))
        events += [_event(stage, span) for span in spans]
        rest = {"name": "gradients, optimizer", "ph": "X", "pid": 0, "tid": stage, "ts": 1e6 * found.passes_s}
        events.append(rest | {"dur": 1e6 * (found.step_s - found.passes_s)})
        events += [
            {"name": f"memory of stage {stage + 1}", "ph": "C", "pid": 0, "ts": 1e6 * at_s, "args": {"bytes": held}}
            for at_s, held in found.held_bytes[stage]
        ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": 0, "tid": thread, "args": {"name": name}}


def _event(stage: int, span: Span) -> dict[str, Any]:
    names = [f"{NAMES[task.kind]} {task.microbatch}" for task in span.parts]
    return {
        "name": ", ".join(names),
        "cat": NAMES[span.parts[0].kind],
        "ph": "X",
        "pid": 0,
        "tid": stage,
        "ts": 1e6 * span.start_s,
        "dur": 1e6 * (span.end_s - span.start_s),
        "args": {"chunk": [task.chunk for task in span.parts], "microbatch": [task.microbatch for task in span.parts]},
    }
