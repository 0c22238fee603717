"""Pieces in turn: the same work, parameters and payloads, a share of the memory at a time, as the graph plays it."""

import dataclasses
import math
import random

import pytest

from costmodel import evaluate, load_workload, register_model
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.formulas.memory import peak
from costmodel.formulas.timing import timing
from costmodel.graph import build, co_shard, prices
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import SCHEDULES
from costmodel.inputs.workload import Kind, model_flop, parameters
from costmodel.models.adapters import map_operators
from costmodel.models.co_shard import co_sharded
from costmodel.specs import violations
from optimize.diagnosis import validate
from optimize.lattice.enumeration import chunks
from optimize.plans import find_in_lattice, find_plan_for
from optimize.status import CommandError, Status
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
    silent = dataclasses.replace(cut, blocks=map_operators(cut.blocks, lambda op: (op,) * (op.kind != Kind.SYNC)))
    with pytest.raises(ValueError, match="tensor ranks divide its sizes, but it has no `sync`"):
        register_model("silent", silent)


def piece_plans(number):
    """Legal plans of eight accelerators in pieces, of every schedule."""
    rng, machine, found = random.Random(0), cluster(8), []
    while len(found) < number:
        tensor, pipeline = rng.choice((1, 2)), rng.choice((1, 2, 4))
        plan = Plan(
            tensor=tensor, pipeline=pipeline, data=8 // tensor // pipeline, pieces=rng.choice((2, 4)),
            schedule=rng.choice(list(SCHEDULES)) if pipeline > 1 else "one_f_one_b", virtual_stages=rng.choice((1, 2)),
            recompute=rng.choice(("none", "full")), zero_stage=rng.choice((0, 1)), attention="unfused", domain=8,
        )  # fmt: skip
        if not violations(plan, WORKLOAD, machine):
            found.append((plan, machine))
    return found


def test_pieces_of_a_plan_are_those_of_the_workload():
    """Seconds and bytes; and each stage has the pieces of its own layers, as the closed form spreads them."""
    for plan, machine in piece_plans(40):
        found = evaluate(WORKLOAD, machine, plan)
        other = evaluate(co_sharded(WORKLOAD, plan.pieces), machine, dataclasses.replace(plan, pieces=1))
        assert (found.step_s, found.memory) == (other.step_s, other.memory), plan
        assert found.step_s >= evaluate(WORKLOAD, machine, dataclasses.replace(plan, pieces=1)).step_s
        checked = validate(WORKLOAD, machine, plan)
        assert checked.pipeline is not None
        if plan.pipeline > 1:
            assert checked.pipeline.ordered_s == pytest.approx(checked.pipeline.played_s, rel=1e-12), plan
        if not SCHEDULES[plan.schedule].folds and SCHEDULES[plan.schedule].ways == 1:
            ends = checked.stages[0], checked.stages[-1]
            told = (found.memory.first, found.memory.last) if plan.pipeline > 1 else (found.memory.first,) * 2
            assert [float(peak(each, MATH)) for each in ends] == pytest.approx([float(peak(e, MATH)) for e in told])


def test_a_plan_of_other_pieces_than_the_workload_is_in_is_refused():
    """Else the plan would say two pieces, and the step be that of four."""
    workload = co_sharded(small_decoder(), 4)
    assert not violations(Plan(pieces=4), workload, cluster(1))
    assert not violations(Plan(), workload, cluster(1))
    (told,) = violations(Plan(pieces=2), workload, cluster(1))
    assert told == "`pieces` is 2: the workload is in 4 already; expected that, or 1"


def test_pieces_of_a_plan_that_it_cannot_have_are_one_line():
    machine = cluster(8)
    for fields, told in (
        ({"pieces": 3}, "`pieces` is 3: operator qkv cannot be cut into 3 pieces"),
        ({"pieces": 0}, "`pieces` is 0; expected an integer from 1"),
        ({"pieces": 8}, "`tensor` is 2; expected a divisor of the 1 heads"),
        ({"pieces": 2, "pipeline": 2, "data": 2, "stage_layers": (1, 3)}, "`stage_layers` is given with `pieces` 2"),
    ):
        broken = violations(dataclasses.replace(PLAN, **fields), WORKLOAD, machine)
        assert any(each.startswith(told) for each in broken), broken
    with pytest.raises(CommandError, match="`pieces` is 4; Megatron-LM can be told 1"):
        find_plan_for("megatron", WORKLOAD, machine, fixed={"pieces": 4})


def test_where_nothing_fits_pieces_that_would_are_named():
    large = small_decoder(layers=4, hidden=1024, ffn=4096, key_value_heads=8, sequence=8192, batch=16)
    fixed, machine = {"attention": "unfused", "tensor": 1, "context": 1, "pipeline": 1}, cluster(8)
    whole, cut = (least_bytes(large, machine, fixed | more) for more in ({}, {"pieces": 2}))
    assert cut < 0.9 * whole
    chip = dataclasses.replace(machine.accelerator, hbm_bytes=0.5 * (whole + cut))
    small = dataclasses.replace(machine, accelerator=chip)
    with pytest.raises(CommandError, match="with --fix pieces=2,recompute=full") as refused:
        find_in_lattice(large, small, fixed=fixed, margin=0.5)
    assert refused.value.status is Status.infeasible
    found = find_in_lattice(large, small, fixed=fixed | {"pieces": 2, "recompute": "full"}, margin=0.5, top=1)
    assert found.plans[0].plan.pieces == 2


def least_bytes(workload, machine, fixed):
    """Of all plans that save memory."""
    saving = {"recompute": "full", "recompute_share": 1.0, "microbatch": 1, "zero_stage": 3}
    plans = (plan for chunk in chunks(workload, machine, fixed | saving) for plan in map(chunk.plan, range(len(chunk))))
    return min(evaluate(workload, machine, plan).memory.peak_bytes for plan in plans)
