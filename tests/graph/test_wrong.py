"""Wrong graphs are refused in one line, which names what is wrong with them."""

import math
from typing import Any

import numpy as np
import pytest

from costmodel import Exact
from costmodel.graph import (
    Costs,
    Dataflow,
    Operator,
    Tensor,
    arrange,
    chain,
    cheapest,
    graph_of,
    in_order,
    layout_of,
    pipeline,
    place,
    play,
    played,
    repeat,
    run,
    split,
    whole,
)
from costmodel.graph.search import least_period_s, search
from costmodel.inputs import Schedule, ScheduleRow

READ, WRITTEN = Tensor("a", (8, 8), 2.0), Tensor("c", (8, 8), 2.0)
OPERATOR = Operator("p", "m n -> m n", (whole(READ),), (whole(WRITTEN),))
FLOW = Dataflow((OPERATOR,), (0,))
PLACEMENT = chain([("F", [0], 1.0, 1.0), ("B", [0], 2.0, -1.0)])
READER = Operator("q", "m n -> m n", (whole(WRITTEN),), (whole(Tensor("d", (8, 8), 2.0)),))
APART = Dataflow((OPERATOR, READER), (0, 1))
NONE = np.zeros((3, 0), int)
SECONDS, LAGS_S = np.ones(6), np.zeros(2)


def order(devices=(0, 0), kinds=(0, 0), edges: Any = NONE):
    return graph_of(np.array(devices), np.array(kinds), np.asarray(edges))


def timed(seconds=SECONDS, lags_s=LAGS_S, **held):
    return run(pipeline("gpipe", 2, 2)[0], Costs(seconds=seconds, lags_s=lags_s, **held), Exact(np))


def ordered(turns):
    """Two stages that run the same turns."""
    return play(Schedule(row=ScheduleRow(), order=lambda *_: iter(turns)), 2, 2, forward_s=1, backward_s=1)


WRONG = {
    "operations are on devices [-1, 0]": lambda: order((-1, 0)),
    "operations are on devices [0, 1, 0]; expected integers >= 0, device by device": lambda: order((0, 1, 0)),
    "operations are on devices []": lambda: order((), ()),
    "the kinds of 2 operations are [0]": lambda: order(kinds=(0,)),
    "the kinds of 2 operations are [-1, 0]": lambda: order(kinds=(-1, 0)),
    "edges are an array of (2, 1)": lambda: order(edges=[[0], [1]]),
    "edges are an array of (3, 1)": lambda: order(edges=[[0], [1], [-1]]),
    "an edge names operation 2; expected one of 2": lambda: order(edges=[[0], [2], [0]]),
    "`seconds` has 3 classes; expected one for each of 4": lambda: timed(seconds=np.ones(3)),
    "`lags_s` has 0 classes; expected one for each of 2": lambda: timed(lags_s=np.zeros(0)),
    "`taken_bytes` has 5 classes; expected one for each of 6": lambda: timed(taken_bytes=np.ones(5)),
    "(0, 5) are ordered; expected two of 1 operators": lambda: arrange((OPERATOR,), (0,), [(0, 5)]),
    "operator p has dimensions 'm n -> m'; expected a word": lambda: split(
        OPERATOR._replace(dimensions="m n -> m"), "m", 2
    ),
    "operator p is placed on device 'x'": lambda: place(FLOW, lambda _: True, "x"),  # pyright: ignore[reportArgumentType]
    "operator p takes nan s": lambda: played(FLOW, lambda _: math.nan, lambda _: 0.0),
    "operator p takes -1.0 s": lambda: played(FLOW, lambda _: -1.0, lambda _: 0.0),
    "a message of 128 bytes takes nan s": lambda: played(APART, lambda _: 1.0, lambda _: math.nan),
    "runs ('F', 99) on device 0; expected F, B or W on chunk 0": lambda: ordered([("F", 99)]),
    "runs ('X', 0) on device 0; expected F, B or W on chunk 0": lambda: ordered([("X", 0)]),
    "runs ('B', 1) on device 0; expected F, B or W on chunk 0": lambda: ordered([("F", 1), ("B", 1)]),
    "runs nothing on device 0": lambda: ordered([]),
    "a pass takes nan s; expected finite numbers": lambda: play("gpipe", 2, 2, forward_s=math.nan, backward_s=1),
    "a layout is one of views of one tensor; got views of a, c": lambda: layout_of([whole(READ), whole(WRITTEN)]),
    "a layout is one of views of one tensor; got views of none": lambda: layout_of([]),
    "degrees are (2, 2.5, 1); expected integers >= 1": lambda: play("gpipe", 2, 2.5, forward_s=1, backward_s=1),  # pyright: ignore[reportArgumentType]
    "0 operations are listed": lambda: in_order(PLACEMENT, []),
    "2 operations are listed, 1 of them different": lambda: in_order(PLACEMENT, [(0, 0), (0, 0)]),
    "1 operations are listed, 1 of them different; expected each block once": lambda: in_order(PLACEMENT, [(0, 2)]),
    "`transfer_s` is nan": lambda: search(PLACEMENT, 1, transfer_s=math.nan),
    "`copies` is 0": lambda: repeat(PLACEMENT, 1, copies=0),
    "`copies` is 1, `unit_s` 0.0": lambda: repeat(PLACEMENT, 1, unit_s=0.0),
    "block F runs on devices (0.5,)": lambda: search(chain([("F", [0.5], 1.0, 0.0)]), 1),  # pyright: ignore[reportArgumentType]
    "block F takes None s": lambda: search(chain([("F", [0], None, 0.0)]), 1),  # pyright: ignore[reportArgumentType]
    "`limit` is nan": lambda: search(PLACEMENT, math.nan),
    "(4.5, 1, 1) is no layout": lambda: cheapest((4.5, 1, 1), (4, 1, 1), (8,)),  # pyright: ignore[reportArgumentType]
    "a placement has no blocks": lambda: least_period_s(()),
}


@pytest.mark.parametrize("told", WRONG)
def test_a_wrong_graph_is_refused_in_one_line(told):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the message is compared below)
        WRONG[told]()
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
