"""Pieces in turn: the same work, parameters and payloads, a share of the memory at a time, as the graph plays it."""

import dataclasses
import math

import pytest

from costmodel import evaluate, load_workload, register_model
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.formulas.timing import timing
from costmodel.graph import build, co_shard, prices
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import model_flop, parameters
from costmodel.models.co_shard import co_sharded
from tests.support.builders import cluster, small_decoder
from tests.support.small_workloads import FAMILIES

MATH = Exact(math)
WORKLOAD = small_decoder(layers=4, key_value_heads=8, sequence=1024)
PLAN = Plan(data=4, tensor=2, recompute="full", attention="unfused", domain=8)


@pytest.mark.parametrize("name", ["dense", "encoder-decoder", "swin"])
def test_the_work_is_the_same(name):
    whole = FAMILIES[name]
    cut = co_sharded(whole, 2)
    assert (parameters(cut), model_flop(cut)) == (parameters(whole), model_flop(whole))
    point = embed(Plan(tensor=1, data=8, sequence_parallel=False), whole, 8.0)
    sums = []
    for each in (whole, cut):
        blocks = counts(each, point, MATH).blocks
        sums.append(
            [
                sum(b.repeats * getattr(b, n) for b in blocks)
                for n in ("parameters", "sync_bytes", "backward_sync_bytes")
            ]
            + [sum(b.repeats * b.syncs for b in blocks)]
        )
    assert sums[0] == pytest.approx(sums[1])


def test_a_piece_is_there_at_a_time():
    """By hand: half of the scores, queries, keys and values of four heads of a layer, less in eight pieces."""
    point = embed(PLAN, WORKLOAD, 8.0)
    (layer,) = counts(WORKLOAD, point, MATH).layers
    heads, tokens = 4, 1024
    scores = 2 * heads * tokens**2
    assert layer.saved.core == scores
    rest, attention, feed = counts(co_sharded(WORKLOAD, 4), point, MATH).layers
    assert attention.saved.core == scores / 4
    assert attention.saved.rest == (2 * tokens * 3 * heads * 32 + 2 * tokens * heads * 32) / 4
    assert feed.saved.rest == 2 * tokens * 3 * 512 / 4
    assert rest.saved.input == layer.saved.input + 2 * 2 * tokens * 256


def test_pieces_of_the_graph_take_what_those_of_the_workload_take():
    """Two ways to say it: operators that are cut by their views, and blocks of smaller operators."""
    workload, machine, point = prepare(WORKLOAD, cluster(8), PLAN)
    price = prices(workload, machine, point)
    flow = build(workload, point)

    def branch(each):
        return each.name.startswith("layer 0/") and each.source.name in ("qkv", "attention", "attention out")

    found = co_shard(flow, 4, branch)
    pieces = [each for each in found.operators if "." in each.name and branch(each)]
    cut, machine, _ = prepare(co_sharded(WORKLOAD, 4), cluster(8), PLAN)
    times = timing(counts(cut, point, MATH), point, machine, MATH)
    (attention,) = (block for block in times.blocks if "branch 0" in block.name)
    forward = attention.forward.matmul_s + attention.forward.attention_s
    again = [sum(price(each) for each in pieces if each.phase == phase) for phase in "FR"]
    assert again == pytest.approx([4 * forward] * 2)


def test_it_needs_less_memory_and_not_much_more_time():
    large, machine = small_decoder(hidden=2048, ffn=8192, key_value_heads=8, sequence=4096), cluster(8)
    whole, cut = (evaluate(each, machine, PLAN) for each in (large, co_sharded(large, 4)))
    assert cut.memory.peak_bytes < whole.memory.peak_bytes
    assert whole.step_s < cut.step_s < 1.1 * whole.step_s


def test_pieces_that_do_not_divide_are_one_line():
    with pytest.raises(ValueError, match="operator qkv cannot be cut into 3 pieces"):
        co_sharded(WORKLOAD, 3)
    assert co_sharded(WORKLOAD, 1).blocks == WORKLOAD.blocks
    assert dataclasses.replace(co_sharded(WORKLOAD, 2, ("no such block",)), name="decoder").blocks == WORKLOAD.blocks


def test_pieces_are_a_model_like_any_other():
    """Under a name of its own, whose tensor ranks talk in the block of what is left of a layer."""
    cut = co_sharded(WORKLOAD, 4)
    with register_model("in-pieces", cut):
        assert load_workload("in-pieces", batch=8) == dataclasses.replace(cut, batch=8)
    silent = dataclasses.replace(cut, blocks=tuple(b for b in cut.blocks if "sync" not in str(b)))
    with pytest.raises(ValueError, match="tensor ranks divide its sizes, but it has no `sync`"):
        register_model("silent", silent)
