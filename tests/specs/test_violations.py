"""Each rule of a plan: the legal neighbour passes, the illegal one is named, all at once and without raising."""

import dataclasses

import numpy as np
import pytest

from costmodel import evaluate, prepare
from costmodel.inputs.plan import Plan
from costmodel.models.decoder import decoder
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster
from costmodel.specs.plans import PLAN_CHECKS
from costmodel.specs.rules import check_plan, violations
from costmodel.specs.workloads import load_workload
from optimize import explain, find_plan

LLAMA = load_workload("llama3-70b", batch=512)  # 80 layers, 64 heads, 8 key-value heads, ffn 28672, 8192 tokens
H100 = load_cluster("h100", 1024)
LEGAL = Plan(tensor=8, pipeline=4, data=32)


def unsound(**changes) -> Plan:
    """The legal plan with any values, which `Plan` itself refuses."""
    plan = dataclasses.replace(LEGAL)
    for name, value in changes.items():
        object.__setattr__(plan, name, value)
    return plan


def broken(cluster=H100, workload=LLAMA, **changes):
    return violations(unsound(**changes), workload, cluster)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tensor": 16, "data": 16},  # twice the key-value heads: they are replicated
        {"context": 2, "data": 16, "context_kind": "all_to_all"},
        {"tensor": 4, "context": 2, "sequence_parallel": True},
        {"schedule": "interleaved", "virtual_stages": 5},
        {"schedule": "zb_h1", "microbatch": 4},
        {"schedule": "zb_h2", "microbatch": 2},
        {"schedule": "zb_v", "microbatch": 2},
        {"zero_stage": 3, "data_shard": 8},
        {"zero_stage": 2, "data_shard": 4},
        {"stage_layers": (19, 21, 21, 19)},
        {"pipeline": 1, "data": 128, "zero_stage": 0},
        {"domain": 4, "tensor": 4, "data": 64},
        {"precision": "fp8_tensor"},
        {"recompute": "full", "recompute_share": 0.5},
    ],
    ids=str,
)
def test_legal_plans_break_no_rule(changes):
    assert broken(**changes) == ()
    check_plan(dataclasses.replace(LEGAL, **changes), LLAMA, H100)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": 16}, ["512", "1024"]),
        ({"microbatch": 3}, ["`data` x `microbatch` is 96", "512"]),
        ({"tensor": 128, "data": 2}, ["`tensor` is 128", "64 heads"]),
        ({"tensor": 3}, ["`tensor` is 3", "64 heads", "8 key-value heads"]),
        ({"sequence_parallel": True, "tensor": 1, "data": 256}, ["`sequence_parallel`", "`tensor` > 1"]),
        ({"context": 3}, ["`context` is 3", "8192 tokens"]),
        ({"context": 16, "data": 2, "context_kind": "all_to_all"}, ["is 128", "64 heads"]),
        ({"pipeline": 64, "data": 2}, ["`pipeline` x `virtual_stages` is 64", "80 layers"]),
        ({"stage_layers": (20, 20, 20)}, ["3 stages of 60 layers", "4 stages of 80"]),
        ({"stage_layers": (40, 20, 20, 0)}, ["`stage_layers` is (40, 20, 20, 0)"]),
        ({"stage_layers": (20, 20, 20, 20), "schedule": "zb_h1"}, ["zb_h1", "gpipe, one_f_one_b"]),
        ({"schedule": "interleaved"}, ["`virtual_stages` >= 2"]),
        ({"schedule": "interleaved", "virtual_stages": 2, "microbatch": 8}, ["2 microbatches", "multiple", "4"]),
        ({"virtual_stages": 2}, ["`virtual_stages` is 2", "interleaved"]),
        ({"schedule": "zb_h1", "microbatch": 8}, ["zb_h1", "2 microbatches", "at least 4"]),
        ({"schedule": "zb_h2", "microbatch": 4}, ["zb_h2", "4 microbatches", "at least 7"]),
        ({"schedule": "zb_v", "microbatch": 4}, ["zb_v", "4 microbatches", "at least 8"]),
        ({"schedule": "zb_v", "pipeline": 1, "data": 128}, ["zb_v", "`pipeline` >= 2"]),
        ({"schedule": "zb_v", "pipeline": 16, "data": 8}, ["`pipeline` is 16 with zb_v", "twice", "80 layers"]),
        ({"schedule": "zb_v", "virtual_stages": 2}, ["zb_v", "`virtual_stages` is 2"]),
        ({"zero_stage": 4}, ["`zero_stage` is 4"]),
        ({"data_shard": 5}, ["`data_shard` is 5", "32"]),
        ({"data_shard": 4, "zero_stage": 0}, ["`zero_stage` 0"]),
        ({"recompute_share": 1.5}, ["`recompute_share` is 1.5", "0 to 1"]),
        ({"domain": 9}, ["`domain` is 9", "8 accelerators"]),
        ({"domain": 7}, ["`domain` is 7", "divisor"]),
        ({"precision": "mxfp8"}, ["mxfp8", "h100", "fp8"]),
        ({"precision": "int8"}, ["`precision` is 'int8'", "bf16"]),
        ({"optimizer": "lion"}, ["`optimizer` is 'lion'", "adam"]),
        ({"gradient_dtype": "fp64"}, ["`gradient_dtype` is 'fp64'"]),
        ({"attention": None}, ["`attention` is None", "flash"]),
        ({"fused_kernels": 1}, ["`fused_kernels` is 1", "true or false"]),
    ],
    ids=str,
)
def test_broken_rules_are_named(changes, words):
    said = " | ".join(broken(**changes))
    for word in words:
        assert word in said
    with pytest.raises(SpecError) as caught:
        check_plan(unsound(**changes), LLAMA, H100)
    assert str(caught.value).isprintable()


def test_all_broken_rules_at_once():
    said = broken(data=7, tensor=3, microbatch=0, schedule="best", zero_stage=9, precision="nvfp4")
    assert len(said) >= 6
    for word in ("`microbatch`", "`schedule`", "`zero_stage`", "`tensor` is 3", "nvfp4", "1024"):
        assert any(word in rule for rule in said)


def test_the_ffn_is_divided_too_but_not_the_vocabulary():
    sizes = {"layers": 4, "hidden": 64, "heads": 8, "vocabulary": 101, "sequence": 32, "batch": 8}
    cluster, plan = load_cluster("h100", 8), Plan(tensor=8)
    assert violations(plan, decoder(ffn=128, **sizes), cluster) == ()  # pyright: ignore[reportArgumentType]
    (said,) = violations(plan, decoder(ffn=100, **sizes), cluster)  # pyright: ignore[reportArgumentType]
    assert said == "`tensor` is 8; expected a divisor of the 100 elements of `ffn up`"


def test_bf16_needs_hardware_for_it():
    v100 = load_cluster("v100", 1024)
    assert any("bf16" in rule for rule in broken(cluster=v100))
    assert broken(cluster=v100, precision="fp16") == ()


def test_groups_that_do_not_nest_are_named():
    """A tensor group of 12 fills one domain of 8 and half of the next; a rack of 64 holds 16 groups of 4."""
    wide = load_workload("gpt-18.4b", batch=720)  # 48 heads, hidden 6144, 40 layers
    cluster = load_cluster("h100", 96)
    said = violations(Plan(tensor=12, data=8), wide, cluster)
    assert any("tensor group of 12 ranks at stride 1 does not nest in the 8" in rule for rule in said)
    partial = dataclasses.replace(cluster, partial_domains=True)
    assert violations(Plan(tensor=12, data=8), wide, partial) == ()
    assert violations(Plan(tensor=4, data=24), wide, cluster) == ()


def test_domains_of_72_used_as_64():
    gb200 = load_cluster("gb200-nvl72", 1152)
    plan = Plan(tensor=8, data=16, pipeline=9)
    workload = load_workload("llama3-405b", batch=2048)
    assert violations(dataclasses.replace(plan, pipeline=9), workload, gb200) == ()
    assert any("`domain` is 72" in rule for rule in violations(dataclasses.replace(plan, domain=72), workload, H100))
    assert violations(dataclasses.replace(plan, domain=72, data=18), LLAMA, gb200) != ()


WEIRD = [None, -1, 0, 2.5, 8.0, "8", "", [], {}, (), float("nan"), float("inf"), 10**30, 10**5000, True, object(), b"x"]


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Plan)])
def test_weird_values_never_raise(field):
    for value in [*WEIRD, np.ones(3), np.array(2)]:
        said = broken(**{field: value})
        assert isinstance(said, tuple)
        assert all(rule.isprintable() for rule in said)
        if value is None and field in ("domain", "data_shard", "stage_layers"):
            continue
        legal = isinstance(value, bool | int) and PLAN_CHECKS[field](value)  # true for a flag, 0 for a ZeRO stage
        assert said or legal, (field, value)


def test_everything_weird_at_once():
    fields = [field.name for field in dataclasses.fields(Plan)]
    said = violations(unsound(**dict.fromkeys(fields, object())), LLAMA, H100)
    assert len(said) == len(fields)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"tensor": "8"}, "Plan: `tensor` is '8'; expected an integer >= 0"),
        ({"data": -1}, "Plan: `data` is -1; expected an integer >= 0"),
        ({"pipeline": True}, "Plan: `pipeline` is True; expected an integer >= 0"),
        ({"domain": 4.0}, "Plan: `domain` is 4.0; expected an integer >= 0, or None"),
        ({"stage_layers": [40, 40]}, "Plan: `stage_layers` is [40, 40]; expected a tuple of integers, or None"),
        ({"recompute_share": "half"}, "Plan: `recompute_share` is 'half'; expected a number"),
        ({"schedule": None}, "Plan: `schedule` is None; expected a name"),
        ({"overlap_data": 1}, "Plan: `overlap_data` is 1; expected True or False"),
    ],
)
def test_a_plan_refuses_other_types_where_it_is_written(fields, said):
    with pytest.raises(ValueError, match="Plan") as caught:
        Plan(**fields)
    assert str(caught.value) == said


def test_names_are_no_objects():
    for given, said in (
        (("llama3-8b", H100, LEGAL), "`workload` is 'llama3-8b'; expected a Workload, such as load_workload"),
        ((LLAMA, "h100", LEGAL), "`cluster` is 'h100'; expected a Cluster, such as load_cluster"),
        ((LLAMA, H100, "data=8"), "`plan` is 'data=8'; expected a Plan"),
    ):
        for call in (evaluate, prepare, explain):
            with pytest.raises(SpecError) as caught:
                call(*given)  # pyright: ignore[reportArgumentType]
            assert str(caught.value).startswith(f"{call.__name__}: {said}")
    with pytest.raises(SpecError, match="`cluster` is 'h100'"):
        find_plan(LLAMA, "h100")  # pyright: ignore[reportArgumentType]


def test_relaxed_degrees_are_no_plans():
    said = broken(tensor=7.9, data=32.4)
    assert any("`tensor` is 7.9" in rule for rule in said)
    assert any("`data` is 32.4" in rule for rule in said)


def test_numpy_integers_are_integers():
    assert broken(tensor=np.int64(8), data=np.int32(32)) == ()
