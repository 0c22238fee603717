"""The timeline of a plan: its operations, its memory and the trace that Perfetto opens."""

import dataclasses
import importlib
import json
import math

import pytest

from costmodel.evaluators import memory_by_stage
from costmodel.exact import Exact
from costmodel.formulas import passing_bytes
from costmodel.graph import Task
from costmodel.inputs.plan import Plan
from optimize.diagnosis import Span, chrome_trace, timeline, validate
from optimize.report.figures_timeline import draw_timeline, has_room
from tests.support.builders import cluster, small_decoder

MATH = Exact(math)
PLAN = Plan(data=2, tensor=4, pipeline=4, sequence_parallel=True, microbatch=2)
WORKLOAD = small_decoder(layers=16, batch=64)


@pytest.mark.parametrize("schedule", ["one_f_one_b", "interleaved", "zb_h1", "zb_v", "dualpipe"])
def test_a_timeline_is_the_play_with_the_memory_of_every_stage(schedule):
    plan = dataclasses.replace(PLAN, schedule=schedule, virtual_stages=2 if schedule == "interleaved" else 1)
    found, checked = timeline(WORKLOAD, cluster(32), plan), validate(WORKLOAD, cluster(32), plan)
    assert found is not None
    assert checked.pipeline is not None
    assert found.passes_s == checked.pipeline.played_s
    assert max(span.end_s for spans in found.spans for span in spans) == found.passes_s
    kinds = {"zb_h1": 3, "zb_v": 3, "dualpipe": 3}.get(schedule, 2)
    chunks = 2 if schedule in ("interleaved", "zb_v") else 1
    for spans, held, memory in zip(
        found.spans, found.held_bytes, memory_by_stage(WORKLOAD, cluster(32), plan), strict=True
    ):
        assert all(a.end_s <= b.start_s for a, b in zip(spans, spans[1:], strict=False))
        assert sum(len(span.parts) for span in spans) == kinds * chunks * 16
        peak_bytes = max(held_bytes for _, held_bytes in held)
        assert peak_bytes == pytest.approx(memory.held_bytes + passing_bytes(memory, MATH))
        assert held[-1][1] == pytest.approx(peak_bytes - memory.activations_bytes)  # all are gone


def test_the_trace_holds_every_operation():
    plan = dataclasses.replace(PLAN, schedule="dualpipe")
    found = timeline(WORKLOAD, cluster(32), plan)
    assert found is not None
    trace = chrome_trace(found)
    assert trace is not None
    events = json.loads(trace)["traceEvents"]
    passes = [event for event in events if event["ph"] == "X" and "cat" in event]
    assert len(passes) == sum(map(len, found.spans))
    for event in passes:
        span = next(span for span in found.spans[event["tid"]] if 1e6 * span.start_s == event["ts"])
        assert event["dur"] == 1e6 * (span.end_s - span.start_s)
        assert event["args"]["microbatch"] == [task.microbatch for task in span.parts]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} >= {f"stage {i}" for i in (1, 2, 3, 4)}
    last_us = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    assert last_us == pytest.approx(1e6 * found.step_s)


@pytest.mark.parametrize("batch", [16, 2048])  # one picture, and the start and the end of a long step
def test_files(batch):
    files = draw_timeline(small_decoder(layers=16, batch=batch), cluster(32), PLAN)
    assert sorted(files) == ["timeline.png", "timeline.svg", "trace.json"]
    assert files["timeline.png"].startswith(b"\x89PNG")


def test_numbers_stand_where_they_are_no_larger_than_the_bar():
    """Bars of one of a hundred seconds on nine inches: two digits fit, three do not, nor two lines in a low row."""
    one, two, three = (Span(tuple(Task("F", n, 0) for n in numbers), 0.0, 1.0) for numbers in ((8,), (98, 3), (120,)))
    shown = [[has_room(span, (0.0, 100.0), 9.0, high) for span in (one, two, three)] for high in (0.3, 0.1, 0.05)]
    assert shown == [[True, True, False], [True, False, False], [False] * 3]


def test_too_many_operations_are_not_drawn(monkeypatch):
    monkeypatch.setattr("optimize.diagnosis.played.MOST_OPERATIONS", 10)
    assert draw_timeline(WORKLOAD, cluster(32), PLAN) == {}
    monkeypatch.undo()
    monkeypatch.setattr(importlib.import_module("optimize.diagnosis.timeline"), "MOST_TRACED", 10)
    assert sorted(draw_timeline(WORKLOAD, cluster(32), PLAN)) == ["timeline.png", "timeline.svg"]
