"""The dataflow of a workload: its sums are those of the counts and of published formulas; who reads what, by hand."""

import dataclasses
import math
import random
from typing import Any

import pytest

from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.counts import counts
from costmodel.formulas.timing import timing
from costmodel.graph import build, prices, total_amounts
from costmodel.graph.views import dependencies
from costmodel.graph.wiring import steps
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from costmodel.inputs.workload import Kind, active_parameters, model_flop, whole
from costmodel.models.adapters import low_rank
from costmodel.models.encoder import encoder
from costmodel.models.evoformer import evoformer
from costmodel.specs import load_workload, violations
from tests.support.builders import cluster, small_decoder
from tests.support.small_workloads import FAMILIES as SMALL

MATH = Exact(math)


def counted(block, name):
    """One of the sums over operators, of one block of the counts."""
    passes = block.forwards
    forward = sum(m.flop for m in block.matmuls) + sum(a.flop for a in block.attentions)
    trained = sum((1 + m.trained) * m.flop for m in block.matmuls) + 2 * sum(a.flop for a in block.attentions)
    operands = [m.operand_bytes for m in block.matmuls] + [a.operand_bytes for a in block.attentions]
    back = sum((1 + m.trained) * m.operand_bytes for m in block.matmuls) + sum(
        a.operand_bytes for a in block.attentions
    )
    moved = [m.forward_bytes for m in block.memories], [m.backward_bytes for m in block.memories]
    both = block.exchange_bytes + block.gather_bytes
    return {
        "flop": passes * forward + trained,
        "moved_bytes": passes * (sum(operands) + sum(moved[0])) + back + sum(moved[1]),
        "parameters": block.parameters + block.expert_parameters,
        "payload_bytes": passes * (block.sync_bytes + both) + block.backward_sync_bytes + both,
        "kept_bytes": block.saved.input + block.saved.core + block.saved.rest,
    }[name]


def short(workload):
    """Two layers of each kind."""
    blocks = (dataclasses.replace(block, repeats=min(block.repeats, 2)) for block in workload.blocks)
    return dataclasses.replace(workload, blocks=tuple(blocks))


def random_plans(workload, number):
    """Legal plans of up to 16 accelerators."""
    rng, found = random.Random(0), []
    machine = cluster(16)
    while len(found) < number:
        degrees: dict[str, Any] = {
            name: rng.choice((1, 2, 4)) for name in ("tensor", "context", "data", "expert", "expert_tensor")
        }
        plan = Plan(
            **degrees,
            microbatch=rng.choice((1, 2)),
            sequence_parallel=rng.random() < 0.5,
            context_kind=rng.choice(("ring", "all_to_all")),
            attention=rng.choice(("unfused", "flash_2")),
            precision=rng.choice(("bf16", "fp8_tensor")),
        )
        machine = dataclasses.replace(machine, accelerators=plan.accelerators)
        if not violations(plan, workload, machine):
            found.append((plan, embed(plan, workload, 8.0)))
    return found


_BERT: dict[str, Any] = {
    "layers": 2,
    "hidden": 64,
    "heads": 4,
    "ffn": 128,
    "vocabulary": 100,
    "sequence": 32,
    "batch": 16,
}
FAMILIES = SMALL | {
    "evoformer": evoformer(layers=1, extra_layers=1, sequences=8, residues=16, batch=16, hidden=32, recycles=2),
    "encoder": encoder(**_BERT),
    "low rank": low_rank(SMALL["dense"], 4, ("qkv", "attention out")),
    "uneven experts": dataclasses.replace(SMALL["experts"], expert_imbalance=1.5),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_sums_are_those_of_the_counts(name):
    """For every family and random legal plans: FLOP, bytes, parameters, payloads, what is kept."""
    workload = FAMILIES[name]
    for plan, point in random_plans(workload, 6):
        found = total_amounts(build(workload, point).operators, point)
        blocks = counts(workload, point, MATH).blocks
        for each, value in found.items():
            expected = sum(block.repeats * counted(block, each) for block in blocks)
            assert value == pytest.approx(expected, rel=1e-12), (each, str(plan))


@pytest.mark.parametrize("name", FAMILIES)
def test_undivided_it_has_the_published_flop_and_parameters(name):
    """6 N D and the attention, of all sequences; whole sizes are integers, so these are exact."""
    workload = dataclasses.replace(FAMILIES[name], expert_imbalance=1.0)
    point = embed(Plan(attention="flash_2"), workload, 8.0)
    found = total_amounts(build(workload, point).operators, point)
    assert found["flop"] == pytest.approx(model_flop(workload), rel=1e-14)
    if name in ("dense", "evoformer", "swin"):
        assert found["parameters"] == active_parameters(workload)


def test_a_layer_reads_what_it_should():
    """By hand: the stream branches at each norm and closes at each residual; gradients come in as many parts."""
    workload = small_decoder(layers=1)
    point = embed(Plan(), workload, 8.0)
    operators = build(workload, point).operators
    names = [operator.name.removeprefix("layer 0/") for operator in operators]
    edges = {(names[producer], names[consumer]) for producer, consumer, _ in dependencies(operators)}
    assert {a for a, b in edges if b == "attention residual"} == {"attention sync", "embedding 0/embedding sync"}
    assert {a for a, b in edges if b == "ffn residual"} == {"ffn sync", "attention residual"}
    assert {a for a, b in edges if b == "ffn up, W"} == {"activation, B", "ffn up"}
    assert {a for a, b in edges if b == "attention out, B"} == {"attention sync, B"}
    assert {a for a, b in edges if b == "attention residual, B"} == {"ffn norm, B", "ffn residual, B"}
    (norm,) = (operator for operator in operators if operator.name == "layer 0/ffn norm, B")
    assert norm.writes[0].part[1] == 2
    (attention,) = (operator for operator in operators if operator.name == "layer 0/attention")
    assert attention.writes[0].tensor.shape == (128, 256)  # tokens by all heads' columns


_LATENT = {
    "attention norm": {"embedding 0/embedding sync"},
    "latent down": {"attention norm"},
    "latent norms": {"latent down"},
    "query up": {"latent norms"},
    "key value up": {"latent norms"},
    "attention": {"query up", "key value up"},
    "attention out": {"attention"},
    "attention sync": {"attention out"},
    "attention residual": {"attention sync", "embedding 0/embedding sync"},
    "ffn norm": {"attention residual"},
    "ffn residual": {"ffn sync", "attention residual"},
}
_ROUTED = {
    "router": {"ffn norm"},
    "permute": {"router", "ffn norm"},
    "dispatch": {"permute"},
    "dispatch gather": {"dispatch"},
    "expert up": {"dispatch gather"},
    "expert activation": {"expert up"},
    "expert down": {"expert activation"},
    "return gather": {"expert down"},
    "return": {"return gather"},
    "unpermute": {"return"},
    "ffn residual": {"unpermute", "attention residual"},
    "ffn up": {"ffn norm"},  # the shared expert
}
_ADDED = {  # the stream with the shared expert of the layer before
    "attention norm": {"expert layer 0/ffn residual", "expert layer 0/ffn sync"},
    "attention residual": {"attention sync", "expert layer 0/ffn residual", "expert layer 0/ffn sync"},
}
_NORMED = {"attention": {"qkv"}, "query, key norm": {"input of query, key norm"}, "ffn norm": {"attention residual"}}
_CROSS = {
    "cross attention norm": {"attention residual"},
    "cross attention query": {"cross attention norm"},
    "cross attention key value": {"head 0/encoder final norm"},
    "cross attention": {"cross attention query", "cross attention key value"},
    "cross attention residual": {"cross attention sync", "attention residual"},
    "ffn residual": {"ffn sync", "cross attention residual"},
}
_TRANSFORMED = {
    "head transform": {"layer 1/ffn residual"},
    "head activation": {"head transform"},
    "head norm": {"head activation"},
    "head sync": {"head norm"},  # whose gradient is summed over the ranks that share the vocabulary
    "logits": {"head sync"},
    "loss": {"logits"},
}
_RECOMMENDED = {
    "bottom 1": {"input of bottom 1"},
    "bottom activation 1": {"bottom 1"},
    "table exchange": {"tables"},
    "interaction": {"bottom activation 2", "table exchange"},
    "top 1": {"interaction"},
}
_GLOBAL = {  # one query for a whole column of the extra sequences
    "msa column query": {"msa column norm"},
    "msa column key value": {"msa column norm"},
    "msa column": {"msa column query", "msa column key value"},
    "msa column gate": {"msa column norm"},
    "msa column gating": {"msa column", "msa column gate"},
    "msa column out": {"msa column gating"},
    "msa column residual": {"msa column out", "msa row residual"},
}
_TRIANGLE = {
    "row pair bias": {"row pair norm"},
    "msa row attention": {"row pair bias", "msa row qkv"},
    "outer product": {"outer product in"},
    "triangle outgoing gates": {"triangle outgoing in"},
    "triangle outgoing": {"triangle outgoing gates"},
    "triangle outgoing product norm": {"triangle outgoing"},
    "triangle outgoing gate": {"triangle outgoing norm"},
    "triangle outgoing gating": {"triangle outgoing out", "triangle outgoing gate"},
    "triangle outgoing residual": {"triangle outgoing gating", "outer product residual"},
    "triangle starting attention": {"triangle starting bias", "triangle starting qkv"},
}
_MERGED = {"merging norm": {"stage 1 1/ffn residual"}, "merging": {"merging norm"}, "attention norm": {"merging"}}
_MERGED |= {"attention": {"relative positions", "qkv"}, "ffn residual": {"ffn sync", "attention residual"}}
READ = FAMILIES | {"normed": short(load_workload("qwen3-235b-a22b"))}
READS = {
    ("experts", "dense layer 0"): _LATENT,
    ("experts", "expert layer 0"): _ROUTED,
    ("experts", "expert layer 1"): _ADDED,
    ("normed", "expert layer 1"): _NORMED,
    ("encoder-decoder", "decoder layer 1"): _CROSS,
    ("encoder", "head 0"): _TRANSFORMED,
    ("dlrm", "model 0"): _RECOMMENDED,
    ("evoformer", "extra msa block 0"): _GLOBAL,
    ("evoformer", "evoformer block 0"): _TRIANGLE,
    ("swin", "stage 2 entry 0"): _MERGED,
}


@pytest.mark.parametrize(("name", "layer"), READS)
def test_layers_of_other_families_read_what_they_should(name, layer):
    """By hand, from the papers: DeepSeek-V3, Qwen3, T5, BERT, DLRM, AlphaFold2, Swin."""
    listed = [step for step in steps(READ[name]) if step.name.rpartition("/")[0] == layer]
    read = {step.op.name: {made[0].removeprefix(f"{layer}/") for made in step.reads} for step in listed}
    for operator, expected in READS[name, layer].items():
        assert read[operator] == expected, operator


UNLIKE = {"attention out", "query up", "key value up"}  # parts of latents, and heads of values beside those of keys
UNLIKE |= {"classes", "msa column query", "top 1"}  # means of tokens and of sequences, one half of a product
_SHORT = {
    name: short(load_workload(name))
    for name in ("llama3-8b", "deepseek-v3", "qwen3-235b-a22b", "bert-base", "t5-3.87b", "swin-1.8b", "dlrm-criteo")
}


@pytest.mark.parametrize("name", [*_SHORT, "evoformer"])
def test_all_that_is_written_is_read_and_products_read_what_has_their_size(name):
    """But the loss, what recycling ends with, and norms that only count parameters."""
    listed = list(steps(_SHORT.get(name) or FAMILIES[name]))
    unread = {step.name for step in listed} - {made[0] for step in listed for made in step.reads}
    assert {each.rpartition("/")[2] for each in unread} <= {"loss", "pair transition residual", "query, key norm"}
    assert len([each for each in unread if "norm" not in each]) == 1
    for step in listed:
        (source, shape), op = step.reads[0], step.op
        if op.kind == Kind.MATMUL and not source.startswith("input") and op.name not in UNLIKE:
            assert math.prod(shape) == whole(op.rows) * whole(op.groups) * whole(op.inner), step.name


OUTSIDE = {"embedding", "decoder embedding", "patches", "relative positions", "msa row norm", "row pair norm"}
OUTSIDE |= {"msa row residual", "outer product residual"}  # which add to the first layer's own input


@pytest.mark.parametrize("name", ["swin-1.8b", "mbart-large", "alphafold2-128x256", "deepseek-v3", "llama3-8b"])
def test_only_what_comes_from_the_data_is_read_from_outside(name):
    """Every other operator waits for one before it."""
    listed = list(steps(load_workload(name)))
    written = {step.name for step in listed}
    outside = {step.op.name for step in listed for made in step.reads if made[0] not in written}
    assert outside <= OUTSIDE
    assert all(step.reads for step in listed)


def test_gradients_are_sums_over_the_ranks_that_have_other_rows():
    """A norm's scale under two tensor ranks: each has half of the rows with sequence parallelism, else all of them."""
    workload = small_decoder(layers=1)
    for sequence_parallel, ranks in ((True, 2), (False, 1)):
        point = embed(Plan(tensor=2, sequence_parallel=sequence_parallel), workload, 8.0)
        (norm,) = (each for each in build(workload, point).operators if each.name == "layer 0/ffn norm, B")
        assert [view.part for view in norm.writes if view.tensor.parameter] == [(0, ranks)]


@pytest.mark.parametrize("name", ["dense", "swin", "evoformer", "experts"])
def test_prices_of_operators_add_up_to_those_of_a_pass(name):
    """Matmuls, attention and what only moves data of each pass, one operator at a time; syncs of one size as well."""
    workload, machine = FAMILIES[name], cluster(8)
    ranks: dict[str, Any] = (
        {"tensor": 2} if name in ("dense", "swin") else {"expert": 2} if name == "experts" else {"context": 2}
    )
    plan = Plan(data=8 // 2 if name != "experts" else 8, context_kind="all_to_all", attention="unfused", **ranks)
    machine = dataclasses.replace(machine, accelerators=plan.accelerators)
    workload, machine, point = prepare(workload, machine, plan)
    price, found = prices(workload, machine, point), {}
    for each in build(workload, point).operators:
        assert each.source is not None
        kind = {Kind.MATMUL: "matmul", Kind.PRODUCT: "matmul", Kind.ATTENTION: "attention", Kind.SYNC: "sync"}
        if each.source.kind not in (Kind.EXCHANGE, Kind.GATHER):
            key = kind.get(each.source.kind, "memory"), each.phase
            found[key] = found.get(key, 0.0) + price(each)
    times = timing(counts(workload, point, MATH), point, machine, MATH)
    for kind in ("matmul", "attention", "memory", "sync"):
        forward = sum(b.repeats * b.forwards * getattr(b.forward, f"{kind}_s") for b in times.blocks)
        back = sum(b.repeats * getattr(b.backward, f"{kind}_s") for b in times.blocks)
        weights = sum(b.repeats * getattr(b.weights, f"{kind}_s") for b in times.blocks)
        assert found.get((kind, "F"), 0.0) == pytest.approx(forward, rel=1e-9), kind
        ours = found.get((kind, "B"), 0.0) + found.get((kind, "W"), 0.0)
        assert ours == pytest.approx(back + weights, rel=1e-9), kind
