"""`violations` against what README and DESIGN say of legal plans: every plan of small clusters, family by family."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest

from costmodel.inputs.plan import Plan
from costmodel.inputs.schedules import SCHEDULES
from costmodel.specs.rules import all_rules, columns, demands, violations
from tests.oracles.legal import MODELS, legal
from tests.support.builders import accelerator, cluster
from tests.support.small_workloads import FAMILIES

DEGREES = ("tensor", "context", "pipeline", "data")
CLUSTERS = {
    "8 by 4": cluster(8, domain=4),
    "12 by 3, three tiers": cluster(12, domain=3, tiers=3),
    "6": cluster(6),
    "8 by 4 of 6": dataclasses.replace(
        cluster(8), tiers=(dataclasses.replace(cluster(8).tiers[0], size=6, usable_size=4), cluster(8).tiers[1])
    ),
    "12 by 6, partly": dataclasses.replace(cluster(12, domain=6), partial_domains=True),
}


def every_plan(accelerators: int, layers: int, has_experts: bool):
    """All degrees that multiply to the cluster, and some that do not; with each, all options that meet in a rule."""
    values = [d for d in range(1, accelerators + 1) if accelerators % d == 0]
    degrees = [c for c in itertools.product(values, repeat=4) if _product(c) == accelerators]
    degrees += [c for c in itertools.product((1, 3, 5), repeat=4) if _product(c) == 3] + [(3, 1, 1, 3), (1, 1, 1, 5)]
    meshes = [(1, 1), (2, 1), *([(4, 1), (5, 1), (1, 2), (2, 2)] if has_experts else [])]
    meshes = [dict(zip(("expert", "expert_tensor"), mesh, strict=True)) for mesh in meshes]
    stages = {"schedule": SCHEDULES, "virtual_stages": (1, 2, 3), "microbatch": (1, 5)}
    shards = {"zero_stage": (0, 1), "data_shard": (None, 2, 3), "domain": (None, 2, 5, 6)}
    switches = {"sequence_parallel": (False, True), "context_kind": ("ring", "all_to_all")}
    for chosen in degrees:
        fields = dict(zip(DEGREES, chosen, strict=True))
        for held, options in itertools.product(_stage_layers(layers, fields["pipeline"]), _product_of(stages)):
            yield Plan(**fields, **options, stage_layers=held, sequence_parallel=has_experts and chosen[0] > 1)
        for mesh, options in itertools.product(meshes, _product_of(shards)):
            yield Plan(**fields, **mesh, **options, sequence_parallel=has_experts and chosen[0] > 1)
        for mesh, options in itertools.product(meshes, _product_of(switches)):
            yield Plan(**fields, **mesh, **options)


def _product(values) -> int:
    return values[0] * values[1] * values[2] * values[3]


def _product_of(menus):
    return [dict(zip(menus, values, strict=True)) for values in itertools.product(*menus.values())]


def _stage_layers(layers: int, stages: int):
    """None, as even as it goes, one layer too many, and one stage too many."""
    even = tuple(layers // stages + (i < layers % stages) for i in range(stages))
    return [None] + [
        held for held in (even, (*even[:-1], even[-1] + 1), (*even[:-1], even[-1] - 1, 1)) if min(held) > 0
    ]


@pytest.mark.parametrize(
    ("family", "machine"),
    [
        ("dense", "8 by 4"),
        ("dense", "12 by 3, three tiers"),
        ("dense", "12 by 6, partly"),
        ("experts", "8 by 4 of 6"),
        ("encoder-decoder", "6"),
        ("swin", "8 by 4"),
        ("dlrm", "8 by 4 of 6"),
    ],
)
def test_every_plan_of_a_small_cluster(family, machine):
    workload, model, where = FAMILIES[family], MODELS[family], CLUSTERS[machine]
    verdicts = {True: 0, False: 0}
    for plan in every_plan(int(where.accelerators), model.layers, model.experts is not None):
        broken = violations(plan, workload, where)
        assert legal(plan, model, where) is (not broken), (plan, broken)
        verdicts[not broken] += 1
    assert min(verdicts.values()) > 40


@pytest.mark.parametrize("memory_bytes", [0.0, 1e12])
def test_options_that_need_hardware(memory_bytes):
    chip = dataclasses.replace(accelerator(), types=("fp16", "fp8"), second_memory_bytes=memory_bytes)
    where = dataclasses.replace(cluster(4), accelerator=chip)
    shares = [{}, *({f"offload_{what}": 0.5} for what in ("weights", "optimizer", "activations"))]
    for precision, share in itertools.product(("fp32", "fp16", "bf16", "fp8_tensor", "fp8_block", "mxfp8"), shares):
        plan = Plan(data=4, precision=precision, **share)
        assert legal(plan, MODELS["dense"], where) is (violations(plan, FAMILIES["dense"], where) == ())


@pytest.mark.parametrize("family", FAMILIES)
def test_rules_read_what_they_say(family):
    """A rule that reads another column fails here; `kept` and unsound fields would pass over it."""
    asked, plan = demands(FAMILIES[family], CLUSTERS["8 by 4"]), Plan(tensor=5, context=3, data_shard=7, expert=3)
    every = vars(columns(plan))
    for rule in all_rules(asked):
        known = SimpleNamespace(**{name: every[name] for name in rule.reads})
        assert rule.keeps(known) in (True, False)
        assert rule.says(known)


def test_an_unsound_field_stops_only_the_rules_that_read_it():
    plan = Plan(tensor=5, context_kind="all_to_all", zero_stage=0)
    object.__setattr__(plan, "data", "many")
    said = violations(plan, FAMILIES["dense"], CLUSTERS["6"])
    assert said[0].startswith("`data` is 'many'")
    assert said[1:] == (
        "`tensor` is 5; expected a divisor or a multiple of the 4 key-value heads",
        "`tensor` is 5; expected a divisor of the 8 heads",
    )
