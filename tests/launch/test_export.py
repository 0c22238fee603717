"""Launch files: what is written reads back as the same plan, whatever the framework can be told."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import costmodel
from costmodel.inputs import Position, options
from costmodel.inputs.plan import Plan
from optimize.launch.framework import Framework
from optimize.launch.frameworks import (
    FRAMEWORKS,
    VERSIONS,
    Known,
    canonical,
    framework_at,
    has_experts,
    launch,
    of_the_model,
    outside,
    read,
)
from tests.support.builders import cluster, small_decoder, small_moe

OPTIONS = {
    "zero_stage": (0, 1, 2, 3),
    "context_kind": ("ring", "all_to_all"),
    "schedule": ("gpipe", "one_f_one_b", "interleaved", "zb_h1", "zb_v"),
    "recompute": (*options.RECOMPUTES, "norms", "gates+latent", "norms+feed_forward"),
    "precision": tuple(options.PRECISIONS),
    "gradient_dtype": ("fp32", "bf16", "fp16"),
    "state_dtype": tuple(options.DTYPE_BYTES),
    "optimizer": tuple(options.OPTIMIZERS),
    "attention": tuple(options.ATTENTIONS),
    "offload_optimizer": (0.0, 0.5, 1.0),
    "offload_gradients": (0.0, 1.0),
    **{f.name: (True, False) for f in dataclasses.fields(Plan) if isinstance(f.default, bool)},
}
DEFAULTS = {f.name: (f.default,) for f in dataclasses.fields(Plan)}


def _often_usual(field, allowed):
    """One of the values, the default half of the time: few combinations of others go together."""
    usual = DEFAULTS[field] if DEFAULTS[field][0] in allowed else allowed
    return st.one_of(st.sampled_from(usual), st.sampled_from(tuple(allowed)))


@st.composite
def jobs(draw, framework: Framework, experts: bool):
    """A workload that the plan's degrees divide; options that the framework has a word for, and now and then others."""
    table = draw(st.sampled_from(framework.alternatives))
    foreign = draw(st.one_of(st.none(), st.sampled_from(tuple(OPTIONS))))
    chosen = {field: draw(_often_usual(field, table.get(field, DEFAULTS[field]))) for field in OPTIONS}
    chosen |= {} if foreign is None else {foreign: draw(st.sampled_from(OPTIONS[foreign]))}
    degree = st.sampled_from((1, 1, 2, 4))
    names = ("data", "tensor", "context", "pipeline", "microbatch", *(("expert", "expert_tensor") if experts else ()))
    degrees = {field: draw(st.sampled_from(tuple(table[field])) if field in table else degree) for field in names}
    stages = degrees["pipeline"]
    virtual = draw(st.sampled_from((2, 3))) if chosen["schedule"] == "interleaved" and stages > 1 else 1
    chosen["schedule"] = "one_f_one_b" if stages == 1 and chosen["schedule"] == "interleaved" else chosen["schedule"]
    held = None
    if stages > 1 and "stage_layers" not in table and draw(st.booleans()):
        ends, middle = draw(st.tuples(*[st.integers(3, 6)] * 2)), draw(st.integers(2, 3)) * virtual
        held = (ends[0], *[middle] * (stages - 2), ends[1])
    ranks = degrees["data"] * degrees["context"]
    shards = [None, *(n for n in (2, 4) if ranks % n == 0)] if chosen["zero_stage"] else [None]
    share = draw(st.sampled_from((1.0, 0.5))) if chosen["recompute"] == "full" else 1.0
    plan = Plan(
        **degrees, **chosen, virtual_stages=virtual, stage_layers=held, data_shard=draw(st.sampled_from(shards)),
        domain=draw(st.sampled_from((None, None, 4))), recompute_share=share,
    )  # fmt: skip
    batch = degrees["data"] * degrees["microbatch"] * stages * 2
    build = small_moe if experts else small_decoder
    return plan, build(layers=sum(held) if held else 2 * stages * virtual, batch=batch, sequence=128)


def back(name, version, plan, workload):
    text = launch(name, plan, workload, cluster(plan.accelerators), version)
    layers = sum(int(block.repeats) for block in workload.blocks if block.position == Position.LAYER)
    return read(text, name, Known(layers=layers, has_experts=has_experts(workload)))


@pytest.mark.parametrize(("name", "version"), [*((name, None) for name in FRAMEWORKS), *VERSIONS])
@pytest.mark.parametrize("experts", [False, True])
def test_plans_that_can_be_told_read_back_as_they_were(name, version, experts):
    told, framework = [], framework_at(name, version)

    @settings(max_examples=120)
    @given(jobs(framework, experts))
    def check(job):
        plan, workload = job
        found = back(name, version, plan, workload)
        assert found.framework == name
        if not framework.cannot(plan, workload):
            told.append(plan)
            assert Plan(**found.fields) == canonical(plan)
            assert found.unread == ()
            expected = {"batch": workload.batch, "sequence": workload.sequence, "accelerators": plan.accelerators}
            assert all(expected[fact] == value for fact, value in found.facts.items() if fact in expected)

    check()
    assert len(told) >= 10


@pytest.mark.parametrize(("name", "is_described"), [("llama3-8b", True), ("swin-c256", False), ("dlrm-criteo", False)])
def test_of_a_model_that_no_options_describe_that_is_said(name, is_described):
    """A framework can be told the plan; that it has such a model is not known."""
    workload, machine = costmodel.load_workload(name), cluster(8)
    told = f"the model: of {name} it says only how it is divided; its code must be there, and allow that"
    assert of_the_model(workload) == (() if is_described else (told,))
    for title in ("megatron", "torchtitan"):
        outside_it = outside(FRAMEWORKS[title], Plan(data=8), workload, machine)
        assert (told in outside_it) is not is_described


@pytest.mark.parametrize(("modules", "told"), [(1, "the last layer is a module"), (2, "the last 2 layers are modules")])
@pytest.mark.parametrize("make", [small_moe, small_decoder])
def test_modules_of_multi_token_prediction_are_told_of(make, modules, told):
    """They are layers of the plan, which no framework counts as layers."""
    for title in FRAMEWORKS:
        text = launch(title, Plan(data=8), make(layers=4, mtp_layers=modules), cluster(8))
        assert f"{told} of multi-token prediction" in text
        assert "multi-token" not in launch(title, Plan(data=8), make(layers=4), cluster(8))
