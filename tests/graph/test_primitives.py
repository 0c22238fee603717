"""Transform, place, order: pieces against the plan's own shares, against schedules as played, and sums by hand."""

import math
from functools import partial
from typing import Any

import pytest

from costmodel.graph import (
    Dataflow,
    Operator,
    Tensor,
    View,
    amounts,
    build,
    materialize,
    play,
    played,
    total_amounts,
    whole,
)
from costmodel.graph.layouts import cheapest
from costmodel.graph.plans import (
    co_shard,
    data_parallel,
    everything,
    interlaced,
    piece,
    pipelined,
    shared,
    tensor_parallel,
)
from costmodel.graph.primitives import before, offload, order_by, place, recompute, transform
from costmodel.graph.views import dependencies, layout_of, replicate, split
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import Kind, Role
from tests.support.builders import small_decoder

WORKLOAD = small_decoder(layers=4, key_value_heads=8)


def flow_of(workload=WORKLOAD, **plan):
    point = embed(Plan(**plan), workload, 8.0)
    return build(workload, point), point


def no_time(_):
    return 0.0


def layer_of(each):
    block, number = each.name.split("/")[0].rsplit(" ", 1)
    return {"embedding": 0, "head": WORKLOAD.blocks[1].repeats - 1}.get(block, int(number))


def test_tensor_ranks_are_cut_as_the_plan_cuts_them():
    """The first piece of every operator does what the counts say of one rank of four, together they do the whole."""
    flow, point = flow_of()
    cut = tensor_parallel(flow, 4)
    ranked, four = flow_of(tensor=4)
    firsts = {each.name.removesuffix(".0"): each for each in cut.operators if piece(each) == 0}
    assert len(firsts) == len(flow.operators) == len(ranked.operators)
    for each in ranked.operators:
        own, expected = amounts(firsts[each.name], point), amounts(each, four)
        assert own | {"kept_bytes": 0} == pytest.approx(expected | {"kept_bytes": 0}), each.name
    assert total_amounts(cut.operators, point)["flop"] == pytest.approx(total_amounts(flow.operators, point)["flop"])


def test_what_tensor_ranks_send_is_derived_from_the_masks():
    """Parts of sums behind each closing product, replicas before the residual: one all-reduce of that payload."""
    flow, point = flow_of()
    cut = tensor_parallel(flow, 4).operators
    for name in ("layer 0/attention", "layer 0/ffn"):
        closing = "attention out" if name.endswith("attention") else "ffn down"
        parts = [e.writes[0] for e in cut if e.name.startswith(f"layer 0/{closing}.")]
        readers = [e for e in cut if e.name.startswith(f"{name} sync.")]
        start, end = layout_of(parts), layout_of([e.reads[0] for e in readers])
        assert (start, end) == ((1, 4, 1, 1), (4, 1, 1, 1))
        way, spent = cheapest(start, end, parts[0].tensor.shape)
        assert [step.primitive for step in way] == ["all-reduce"]
        payload = amounts(readers[0], point)["payload_bytes"] / point.precision.activation_bytes
        assert spent - 1 == pytest.approx(2 * 3 / 4 * payload)


def test_communication_is_made_of_layouts():
    """Tensor ranks: an all-reduce at each edge of Megatron's regions, one behind the table and one before the head's.

    Data ranks none but of gradients; two groups of two ranks: what a stage ends with, in halves over the slow link.
    """
    flow, _ = flow_of(microbatch=2)
    cut = tensor_parallel(flow, 4)
    sent = materialize(cut)
    assert {tuple(step.primitive for step in each.way[0]) for each in sent} == {("all-reduce",)}
    forward, backward = ([e for e in sent if e.tensor.name.endswith("'") == back] for back in (False, True))
    assert len(forward) == len(backward) == 2 * 4 + 1
    assert materialize(data_parallel(flow, 2)) == ()
    two = tensor_parallel(flow, 2)
    staged = place(two, lambda each: layer_of(each) > 1, lambda each: 2 + piece(each))
    (down,) = [each for each in materialize(staged) if each.writers.devices != each.readers.devices]
    assert down.tensor.name == "layer 1/ffn residual"  # its gradient comes in two parts on each device
    size = math.prod(down.tensor.shape)
    assert [step.primitive for step in down.way[0]] == ["chunk", "move", "all-gather"]
    assert down.way[1] == 3 + size + size // 2


def test_data_ranks_send_gradients_alone():
    flow, point = flow_of(microbatch=4)
    cut = data_parallel(flow, 4)
    crossing = [e for e in dependencies(cut.operators) if cut.devices[e[0]] != cut.devices[e[1]]]
    assert crossing == []
    (first, *_) = [e for e in cut.operators if e.name.startswith("layer 0/qkv, W.")]
    assert first.writes[0].part == (0, 4)
    whole = total_amounts(flow.operators, point)
    for device in range(4):
        own = [e for e, at in zip(cut.operators, cut.devices, strict=True) if at == device]
        assert total_amounts(own, point)["flop"] == whole["flop"] / 4
        assert total_amounts(own, point)["parameters"] == whole["parameters"]


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b", "zb_h1", "zb_h2"])
def test_pipelines_are_the_schedules_that_are_played(schedule):
    """One layer a stage with a second for F, B and W each: makespans of schedules whose operations are arrays."""
    flow, _ = flow_of(microbatch=8)
    names = {("F", "ffn up"): 1.0, ("B", "ffn up"): 1.0, ("W", "ffn up"): 1.0}

    def seconds(each):
        return names.get((each.phase, each.source.name), 0.0)

    laid = played(pipelined(flow, schedule, 4, 8, layer_of), seconds, lambda size_bytes: 0.1)
    expected = play(schedule, 4, 8, forward_s=1, backward_s=1, weight_s=1, transfer_s=0.1)
    assert laid.makespan_s == pytest.approx(expected.makespan_s)


def test_an_interlaced_pipeline_has_the_rows_of_all_devices_and_its_share_of_the_table():
    """Every device holds a quarter of table and head and has its share of the work, whose bubble is that of 1F1B."""
    flow, point = flow_of(microbatch=8)
    cut = interlaced(flow, 4, 8, layer_of)
    weights = {}
    for each, device in zip(cut.operators, cut.devices, strict=True):
        if shared(each) and each.phase == "F":
            weights.setdefault(device, set()).update(v for v in each.reads if v.tensor.parameter)
    assert [sum(v.elements for v in weights[d]) for d in range(4)] == [2 * 1000 * 256 / 4] * 4

    def seconds(each):
        if shared(each):
            return 0.5 * (each.source.kind != Kind.LOSS)
        return {"F": 1.0, "B": 2.0}.get(each.phase, 0.0) * (each.source.name == "ffn up")

    laid = played(cut, seconds, no_time)
    busy_s = 8 * (1 + 2 + 0.5 * (2 + 1 + 2))  # table F and B; head F, B and W
    assert laid.busy_s == pytest.approx([busy_s] * 4)
    assert busy_s < laid.makespan_s < busy_s * (1 + 3 / 8) + 4
    assert total_amounts(cut.operators, point)["flop"] == total_amounts(flow.operators, point)["flop"]


def attention_of(each):
    return each.name.startswith("layer 0/") and each.source.name in ("qkv", "attention", "attention out")


def peak_of(flow):
    return float(max(played(flow, lambda each: 1.0, no_time).peak_bytes))


def test_co_shard_holds_one_piece_at_a_time():
    """Recompute of the attention alone holds all of its scores at once, four pieces in turn a quarter."""
    workload = small_decoder(layers=1, key_value_heads=8, sequence=1024, ffn=64, vocabulary=64)
    flow, point = flow_of(workload, attention="unfused")
    inputs, *_ = (e.keeps[0] for e in flow.operators if e.name == "layer 0/qkv")
    own = [v.size_bytes for e in flow.operators if e.phase == "F" and attention_of(e) for v in e.keeps if v != inputs]
    cut = co_shard(flow, 4, attention_of)
    pieces = [e for e in cut.operators if e.name.startswith("layer 0/attention.") and e.phase == "R"]
    assert len(pieces) == 4
    assert peak_of(recompute(flow, attention_of)) - peak_of(cut) == pytest.approx(3 / 4 * sum(own), rel=1e-12)
    added = sum(amounts(e, point)["flop"] for e in flow.operators if e.phase == "F" and attention_of(e))
    before_flop, after_flop = (total_amounts(f.operators, point)["flop"] for f in (flow, cut))
    assert after_flop - before_flop == pytest.approx(added)


def test_recompute_does_forward_work_twice_and_holds_one_layer_at_a_time():
    flow, point = flow_of()
    found = flow
    for number in range(4):
        found = recompute(found, lambda e, number=number: e.name.startswith(f"layer {number}/"))
    forward = [e for e in flow.operators if e.name.startswith("layer") and e.phase == "F"]
    again = [e for e in found.operators if e.phase == "R"]
    assert len(again) == len(forward)
    added = sum(amounts(e, point)["flop"] for e in forward)
    totals = [total_amounts(f.operators, point) for f in (flow, found)]
    assert totals[1]["flop"] - totals[0]["flop"] == added
    assert totals[1]["parameters"] == totals[0]["parameters"]
    kept = {role: 0.0 for role in Role}
    for each in forward:
        assert each.source is not None
        for view in each.keeps:
            kept[each.source.saved[int(view.tensor.name[-1])].role] += view.size_bytes
    head = sum(v.size_bytes for e in flow.operators if e.name.startswith("head") for v in e.keeps)
    layer = (kept[Role.REST] + kept[Role.CORE]) / 4
    assert peak_of(flow) == sum(kept.values()) + head
    assert peak_of(found) == pytest.approx(kept[Role.INPUT] + max(head, layer))


def test_offload_adds_two_ways_and_holds_what_is_underway():
    flow, point = flow_of()
    found = offload(flow, lambda e: e.name.startswith("layer"))
    ways = [e for e in found.operators if e.phase == "T"]
    keeping = [e for e in flow.operators if e.name.startswith("layer") and e.keeps]
    assert len(ways) == 2 * len(keeping)
    out = sum(v.size_bytes for e in ways for v in e.writes)
    assert out == sum(v.size_bytes for e in keeping for v in e.keeps)
    assert sum(v.size_bytes for e in ways for v in e.keeps) == out
    assert total_amounts(found.operators, point)["flop"] == total_amounts(flow.operators, point)["flop"]
    assert peak_of(found) < 0.3 * peak_of(flow)
    lanes = place(found, lambda e: e.phase == "T", 1)
    laid = played(lanes, lambda e: 1.0, no_time)
    assert laid.busy_s[1] == len(ways)


def test_a_message_has_the_bytes_that_are_read_of_it():
    """By hand: 8 x 8 of 2 bytes are written, 8 x 4 of 1 byte kept; others read half of the one, all of the other."""
    out, kept = Tensor("out", (8, 8), 2.0), Tensor("kept", (8, 4), 1.0)
    half = View(out, ((0, 4), (0, 8)))
    made = Operator("made", "-> m n | m k", (), (whole(out),), (whole(kept),))
    readers = (Operator("half", "m n ->", (half,), ()), Operator("all", "m k ->", (whole(kept),), ()))
    sent = []
    played(Dataflow((made, *readers), (0, 1, 2)), lambda _: 1.0, lambda size_bytes: sent.append(size_bytes) or 0.0)
    assert sorted(sent) == [8 * 4 * 1, 4 * 8 * 2]


def test_transform_place_and_order_in_any_turn():
    """The same plan, whichever decision comes first."""
    flow, _ = flow_of(microbatch=4)
    cut = partial(transform, where=lambda e: "m" in e.dimensions, how=partial(split, dimension="m", pieces=4))
    put = partial(place, where=everything, device=layer_of)
    makespans = set()
    for turns in ((cut, put), (put, cut)):
        found = flow
        for decide in turns:
            found = decide(found)
        found = order_by(found, lambda e, _: (piece(e), e.phase != "F"))
        makespans.add(float(played(found, lambda e: 1.0, no_time).makespan_s))
    early = put(cut(before(flow, "layer 0/qkv", "layer 0/ffn up")))
    assert len(makespans) == 1
    assert len(early.after) == 16


def test_wrong_plans_are_one_line_that_names_the_operators():
    flow, _ = flow_of()

    half: Any = 2.5

    def is_up(each):
        return each.name == "layer 0/ffn up"

    with pytest.raises(ValueError, match="layer 0/ffn up cannot be split by 'n' into 3; expected a divisor of 2048"):
        transform(flow, lambda e: e.name == "layer 0/ffn up", lambda e: split(e, "n", 3))
    with pytest.raises(ValueError, match="layer 0/qkv waits for layer 0/ffn up"):
        played(before(flow, "layer 0/ffn up", "layer 0/qkv"), no_time, no_time)
    two = place(before(flow, "layer 0/qkv", "layer 1/qkv"), lambda e: e.name.startswith("layer 1"), 1)
    with pytest.raises(ValueError, match="layer 0/qkv and layer 1/qkv are ordered; expected both on one device"):
        played(two, no_time, no_time)
    up = "operator layer 0/ffn up"
    for wrong, told in (
        (
            lambda: transform(flow, is_up, lambda e: split(e, "n", 0)),
            f"{up} cannot be split into 0; expected an integer",
        ),
        (lambda: transform(flow, is_up, lambda e: replicate(e, half)), f"{up} cannot be copied into 2.5"),
        (lambda: place(flow, is_up, -1), f"{up} is placed on device -1; expected an integer >= 0"),
        (lambda: place(flow, is_up, lambda _: half), f"{up} is placed on device 2.5"),
        (
            lambda: pipelined(flow, "gpipe", 2, 2, lambda e: 2 * is_up(e)),
            f"{up} is on stage 2; expected one of 2 from 0",
        ),
        (
            lambda: order_by(flow, lambda e, d: "1" if is_up(e) else 1),
            "and layer 0/ffn up on device 0 are of different",
        ),
        (lambda: tensor_parallel(flow, 3), "operator embedding 0/embedding cannot be split by 'k' into 3"),
    ):
        with pytest.raises(ValueError, match=told):
            wrong()
    with pytest.raises(ValueError, match="no operator 'layer 9/qkv' to be ordered"):
        before(flow, "layer 9/qkv", "layer 1/qkv")
