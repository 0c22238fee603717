"""The lattice of legal plans: the same plans as brute force, masks with the verdict of `violations`, no plan twice."""

import dataclasses

import numpy as np
import pytest

from costmodel.evaluators.evaluate import prepare
from costmodel.formulas.cost import as_floats, cost
from costmodel.inputs.plan import Plan, layers
from costmodel.inputs.schedules import SCHEDULES
from costmodel.semantics import Exact
from costmodel.specs.loading import load_cluster, load_workload
from costmodel.specs.rules import violations
from optimize.lattice.default_plan import even_layers
from optimize.lattice.degrees import divisors
from optimize.lattice.lattice import chunks, count, lattice
from optimize.lattice.legality import rules
from tests.oracles.plans import brute_force
from tests.support.builders import cluster, small_decoder, small_moe

DENSE, MOE = small_decoder(layers=6, batch=12), small_moe(batch=16)
ODD = dataclasses.replace(cluster(24, domain=6, tiers=3), name="odd")
WIDE = load_cluster("gb200-nvl72", 144)


@pytest.mark.parametrize(
    ("workload", "machine", "fixed"),
    [
        (DENSE, cluster(8, domain=4), {"recompute": "none", "context_kind": "all_to_all"}),
        (DENSE, cluster(8, domain=4, tiers=3), {"zero_stage": 1, "microbatch": 1}),
        (DENSE, ODD, {"recompute": "none", "zero_stage": 3, "context": 1, "microbatch": 1}),
        (DENSE, cluster(1), {}),
        (DENSE, cluster(6), {"schedule": "interleaved", "recompute": "full", "zero_stage": 2}),
        (small_decoder(layers=8, batch=16), cluster(8), {"schedule": "zb_v", "recompute": "none", "zero_stage": 1}),
        (DENSE, cluster(4), {"recompute_share": 0.3, "schedule": "gpipe", "zero_stage": 2, "data_shard": 2}),
        (DENSE, cluster(4), {"stage_layers": (1, 5), "pipeline": 2}),
        (MOE, cluster(8, domain=4), {"recompute": "selective", "context": 1, "schedule": "one_f_one_b"}),
        (MOE, cluster(4, domain=2), {"recompute": "none", "microbatch": 2}),
        (
            small_decoder(layers=2, batch=144),
            WIDE,
            {"tensor": 2, "expert": 1, "expert_tensor": 1, "pipeline": 1, "zero_stage": 1},
        ),
    ],
    ids=["8", "three tiers", "24 by 6", "1", "6", "V", "4", "stage layers", "experts", "experts on 4", "domains of 72"],
)
def test_the_lattice_is_brute_force(workload, machine, fixed):
    whole = lattice(workload, machine, fixed)
    expected = set(brute_force(workload, machine, fixed))
    usable = machine.tiers[0].usable_size
    found = [whole.plan(i) for i in range(len(whole))]
    expected = {dataclasses.replace(p, domain=None if p.domain == usable else p.domain) for p in expected}
    assert len(set(found)) == len(found)
    assert set(found) == expected
    assert len(found) > 0


def _random_plans(rng, workload, machine, n):
    """Plans of which many break a rule or two, and many none."""
    total = machine.accelerators
    degrees = [d for d in divisors(total) if d <= 64] + [3, 5]
    experts = [1, 2, 4, 8] if rules(workload, machine).has_experts else [1] * 12 + [2]
    size, fills = machine.tiers[0].size, total % machine.tiers[0].usable_size == 0
    domains = [d for d in divisors(total) if 4 <= d <= size] + [2 * size, 7]
    for _ in range(n):
        tensor, context, pipeline = rng.choice(degrees, 3, p=_towards_small(degrees))
        data = max(1, total // int(tensor * context * pipeline))
        pipeline = int(pipeline)
        ranks = data * int(context)
        schedule = str(rng.choice([*SCHEDULES, "one_f_one_b", "one_f_one_b"]))
        several = SCHEDULES[schedule].interleaves
        yield Plan(
            tensor=int(tensor),
            context=int(context),
            pipeline=pipeline,
            data=data,
            microbatch=int(rng.choice([1, 1, 1, 2, 3])),
            virtual_stages=int(rng.choice([1, 2, 3]) if several else (rng.random() < 0.05) + 1),
            schedule=schedule,
            stage_layers=even_layers(layers(workload), pipeline),
            expert=int(rng.choice(experts)),
            expert_tensor=int(rng.choice([1, 1, 1, 1, 2, 3])) if experts[1] > 1 else 1,
            zero_stage=int(rng.integers(4)),
            data_shard=int(rng.choice(divisors(ranks))) if rng.random() < 0.3 else None,
            sequence_parallel=bool(rng.random() < 0.7 and tensor > 1),
            context_kind=str(rng.choice(["ring", "all_to_all"])),
            domain=int(rng.choice(domains)) if rng.random() < (0.2 if fills else 0.9) else None,
        )


def _towards_small(degrees):
    weights = 1.0 / np.array(degrees, float) * (1.0 - 0.8 * np.isin(degrees, (3, 5)))
    return weights / weights.sum()


def _verdict(rule, plan: Plan, machine) -> bool:
    c = {name: np.array([getattr(plan, name)]) for name in ("tensor", "context", "pipeline", "data", "microbatch")}
    c |= {name: np.array([getattr(plan, name)]) for name in ("expert", "expert_tensor", "zero_stage")}
    c |= {"domain": np.array([plan.domain or machine.tiers[0].usable_size])}
    c |= {"data_shard": np.array([plan.data_shard or 0])}
    v, m = np.array([plan.virtual_stages]), rule.workload.batch // (c["data"] * c["microbatch"])
    if rule.workload.batch % int((c["data"] * c["microbatch"])[0]):
        return False
    legal = rule.degrees(c) & rule.schedule(plan.schedule, c["pipeline"], v, m) & rule.shards(c)
    legal = legal & rule.stages(plan.schedule, c["pipeline"], v, plan.stage_layers)
    legal = legal & rule.sequence_parallel(c["tensor"], c["context"], [plan.sequence_parallel])
    return bool((legal & rule.context_kind(c["tensor"], c["context"], [plan.context_kind == "all_to_all"]))[0])


@pytest.mark.parametrize(
    ("workload", "machine"),
    [
        (small_decoder(layers=12, batch=48), cluster(48, domain=8, tiers=3)),
        (small_decoder(layers=7, batch=72), dataclasses.replace(WIDE, partial_domains=True)),
        (small_decoder(layers=8, batch=72), WIDE),
        (small_moe(), cluster(64)),
        (load_workload("llama3-70b", batch=512), load_cluster("h100", 1024)),
        (load_workload("deepseek-v3", batch=96), load_cluster("gb200-nvl72", 576)),
    ],
    ids=["48 in three tiers", "partial domains", "nvl72", "experts", "70b", "v3"],
)
def test_masks_have_the_verdict_of_violations(workload, machine):
    rule, legal = rules(workload, machine), 0
    for plan in _random_plans(np.random.default_rng(0), workload, machine, 2000):
        broken = violations(plan, workload, machine)
        assert _verdict(rule, plan, machine) is (not broken), (plan, broken)
        legal += not broken
    assert 20 < legal < 1800


@pytest.mark.parametrize(
    ("workload", "machine"),
    [
        (load_workload("gpt3-175b", batch=1536), load_cluster("a100-80gb", 1536)),
        (load_workload("deepseek-v3", batch=960), load_cluster("h100", 256)),
    ],
    ids=["dense", "experts"],
)
def test_plans_and_points_are_the_same(workload, machine):
    """A random plan is legal and costs what its point in the batch costs, but for the last bits of powers of arrays."""
    whole = lattice(workload, machine, {})
    indices = np.sort(np.random.default_rng(1).integers(len(whole), size=60))
    numbers = as_floats(workload), as_floats(dataclasses.replace(machine, prices=None))
    batch = cost(*numbers, whole.points(indices, np.float64), Exact(np))
    for place, index in enumerate(indices):
        plan = whole.plan(int(index))
        assert violations(plan, workload, machine) == ()
        alone = cost(*prepare(workload, machine, plan), Exact(np))
        assert batch.step_s[place] == pytest.approx(alone.step_s, rel=1e-14), plan
        assert batch.peak_bytes[place] == pytest.approx(alone.peak_bytes, rel=1e-14), plan


def test_chunks_cover_the_lattice_in_order():
    machine = cluster(16)
    whole = lattice(DENSE, machine, {})
    pieces = list(chunks(DENSE, machine, {}, size=1000))
    assert count(DENSE, machine, {}) == len(whole) == sum(map(len, pieces))
    np.testing.assert_array_equal(np.concatenate([piece.indices for piece in pieces]), np.arange(len(whole)))
    assert pieces[1].plan(7) == whole.plan(1007)
    again = lattice(DENSE, machine, {})
    assert [again.plan(i) for i in (0, 99, len(whole) - 1)] == [whole.plan(i) for i in (0, 99, len(whole) - 1)]


def test_sets_allow_any_of_their_members():
    machine, both = cluster(8), {"one_f_one_b", "gpipe"}
    several = lattice(DENSE, machine, {"schedule": frozenset(both), "recompute": "none"})
    plans = {several.plan(i) for i in range(len(several))}
    assert {plan.schedule for plan in plans} == both
    alone = {p for name in both for p in brute_force(DENSE, machine, {"schedule": name, "recompute": "none"})}
    assert plans == {p for p in alone if p.pipeline > 1 or p.schedule == "one_f_one_b"}


def test_nothing_legal_is_an_empty_lattice():
    assert count(DENSE, cluster(8), {"tensor": 3}) == 0
    assert list(chunks(DENSE, cluster(8), {"tensor": 3})) == []
