"""The lattice of legal plans: the same plans as brute force, rules over arrays as over one plan, no plan twice."""

import dataclasses
import itertools

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.evaluators.prepare import prepare
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs.plan import Plan, layers
from costmodel.inputs.schedules import SCHEDULES
from costmodel.pytree import as_floats
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import all_rules, columns, demands, kept, violations
from costmodel.specs.workloads import load_workload
from optimize.lattice import enumeration
from optimize.lattice.axis import even_layers
from optimize.lattice.default_plan import usual_formats
from optimize.lattice.degrees import divisors
from optimize.lattice.enumeration import chunks, count, lattice
from optimize.lattice.lattice import SEARCHED
from optimize.lattice.recompute_families import Families
from tests.oracles.legal import MODELS, legal
from tests.oracles.plans import brute_force
from tests.support.builders import cluster, small_decoder, small_moe
from tests.support.small_workloads import FAMILIES, small_dlrm
from tests.support.software import running

DENSE, MOE = small_decoder(layers=6, batch=12), small_moe(batch=16)
ODD = dataclasses.replace(cluster(24, domain=6, tiers=3), name="odd")
WIDE = load_cluster("gb200-nvl72", 144)


def by_hand(name: str, **changes: int):
    """What `oracles.legal` says of a model, with other sizes."""
    return MODELS[name]._replace(**changes)


@pytest.mark.parametrize(
    ("workload", "model", "machine", "fixed"),
    [
        (DENSE, by_hand("dense"), cluster(8, domain=4), {"recompute": "none", "context_kind": "all_to_all"}),
        (DENSE, by_hand("dense"), cluster(8, domain=4, tiers=3), {"zero_stage": 1, "microbatch": 1}),
        (DENSE, by_hand("dense"), ODD, {"recompute": "none", "zero_stage": 3, "context": 1, "microbatch": 1}),
        (DENSE, by_hand("dense"), cluster(1), {}),
        (DENSE, by_hand("dense"), cluster(6), {"schedule": "interleaved", "recompute": "full", "zero_stage": 2}),
        (
            small_decoder(layers=8, batch=16),
            by_hand("dense", layers=8, batch=16),
            cluster(8),
            {"schedule": "zb_v", "recompute": "none", "zero_stage": 1},
        ),
        (
            DENSE,
            by_hand("dense"),
            cluster(4),
            {"recompute_share": 0.3, "schedule": "gpipe", "zero_stage": 2, "data_shard": 2},
        ),
        (DENSE, by_hand("dense"), cluster(4), {"stage_layers": (1, 5), "pipeline": 2}),
        (
            MOE,
            by_hand("experts"),
            cluster(8, domain=4),
            {"recompute": "selective", "context": 1, "schedule": "one_f_one_b"},
        ),
        (MOE, by_hand("experts"), cluster(4, domain=2), {"recompute": "none", "microbatch": 2}),
        (
            small_decoder(layers=2, batch=144),
            by_hand("dense", layers=2, batch=144),
            WIDE,
            {"tensor": 2, "expert": 1, "expert_tensor": 1, "pipeline": 1, "zero_stage": 1, "microbatch": 1},
        ),
        (FAMILIES["encoder-decoder"], by_hand("encoder-decoder"), cluster(6, domain=3), {"recompute": "none"}),
        (FAMILIES["swin"], by_hand("swin"), cluster(8, domain=4), {"recompute": "none", "microbatch": 1}),
        (
            FAMILIES["dlrm"],
            by_hand("dlrm"),
            cluster(12, domain=6),
            {"recompute": "none", "microbatch": 1, "zero_stage": 1},
        ),
    ],
    ids=["8", "three tiers", "24 by 6", "1", "6", "V", "4", "stage layers", "experts", "experts on 4", "domains of 72"]
    + ["encoder-decoder", "swin", "dlrm"],
)
def test_the_lattice_is_brute_force(workload, model, machine, fixed):
    whole = lattice(workload, machine, fixed)
    expected = set(brute_force(workload, model, machine, fixed))
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
    experts = [1, 2, 4, 8] if demands(workload, machine).has_experts else [1] * 12 + [2]
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


def _verdicts(plans: list[Plan], workload, machine) -> np.ndarray:
    """Which plans keep all rules that read what differs between plans, asked over arrays: one name of a schedule."""
    told = [vars(columns(plan)) for plan in plans]
    c = {name: np.array([each[name] for each in told]) for name in told[0] if name not in ("stage_layers", "schedule")}
    held = tuple(np.array([each["stage_layers"] for each in told]).T)
    single = {"stage_layers": held, "precision": plans[0].precision, "schedule": plans[0].schedule}
    return np.broadcast_to(kept(demands(workload, machine), {**c, **single}), len(plans))


@pytest.mark.parametrize(
    ("workload", "model", "machine"),
    [
        (
            small_decoder(layers=12, batch=48),
            by_hand("dense", layers=12, batch=48),
            cluster(48, domain=8, tiers=3),
        ),
        (
            small_decoder(layers=7, batch=72),
            by_hand("dense", layers=7, batch=72),
            dataclasses.replace(WIDE, partial_domains=True),
        ),
        (small_decoder(layers=8, batch=72), by_hand("dense", layers=8, batch=72), WIDE),
        (small_moe(), by_hand("experts", batch=256), cluster(64)),
        (load_workload("llama3-70b", batch=512), by_hand("llama3-70b"), load_cluster("h100", 1024)),
        (load_workload("deepseek-v3", batch=96), by_hand("deepseek-v3"), load_cluster("gb200-nvl72", 576)),
    ],
    ids=["48 in three tiers", "partial domains", "nvl72", "experts", "70b", "v3"],
)
def test_masks_have_the_verdict_of_violations(workload, model, machine):
    """And both that of the rules as documented."""
    plans = sorted(_random_plans(np.random.default_rng(0), workload, machine, 2000), key=lambda plan: plan.schedule)
    several = [list(same) for _, same in itertools.groupby(plans, key=lambda plan: plan.schedule)]
    masks, sound = np.concatenate([_verdicts(same, workload, machine) for same in several]), 0
    for plan, mask in zip(plans, masks, strict=True):
        broken = violations(plan, workload, machine)
        assert mask == (not broken), (plan, broken)
        assert legal(plan, model, machine) is (not broken), (plan, broken)
        sound += not broken
    assert 20 < sound < 1800


@pytest.mark.parametrize(("name", "schedule"), [("tpu-v4", "one_f_one_b"), ("a100-40gb", "dualpipe")])
def test_weights_are_shared_on_one_data_rank_where_that_is_faster(name, schedule):
    """ZeRO 3 keeps no second copy of 32-bit weights (XLA); a schedule that goes both ways keeps two of the layers."""
    fixed = {"data": 1, "context": 1, "pipeline": 2, "schedule": schedule, "recompute": "none", "microbatch": 1}
    machine, model = load_cluster(name, accelerators=4), small_decoder(batch=12)
    whole = lattice(model, machine, fixed)
    plans = [whole.plan(i) for i in range(len(whole))]
    other = [dataclasses.replace(plan, zero_stage=stage) for plan in plans for stage in range(4)]
    least = min(evaluate(model, machine, plan).step_s for plan in plans)
    assert least == min(evaluate(model, machine, plan).step_s for plan in other if not violations(plan, model, machine))


def test_the_lattice_asks_every_rule(monkeypatch):
    """Each rule is asked over the columns of some axis, or reads one field that all plans share."""
    asked = []

    def watched(d, fields, new=()):
        known = set(fields)
        asked.extend(
            rule.reads for rule in all_rules(d) if known.issuperset(rule.reads) and (not new or {*new} & {*rule.reads})
        )
        return kept(d, fields, new)

    monkeypatch.setattr(enumeration, "kept", watched)
    for family, machine in (("dense", cluster(8, domain=4)), ("experts", cluster(8, tiers=3))):
        asked.clear()
        lattice(FAMILIES[family], machine, {})
        shared = {rule.reads for rule in all_rules(demands(FAMILIES[family], machine))} - set(asked)
        assert {name for reads in shared for name in reads}.isdisjoint(SEARCHED | {"accelerators"}), shared


@pytest.mark.parametrize(
    ("workload", "machine"),
    [
        *(
            (workload, where)
            for workload in FAMILIES.values()
            for where in (cluster(12, domain=6), cluster(8, tiers=3))
        ),
        (load_workload("llama3-70b"), load_cluster("h100", 256)),
        (load_workload("deepseek-v3"), WIDE),
        (load_workload("swin-1.8b"), load_cluster("a100-80gb", 64)),
        (load_workload("t5-3.87b"), load_cluster("v100", 48)),
        (load_workload("alphafold2-128x256"), load_cluster("h100", 32)),
        (load_workload("dlrm-criteo"), load_cluster("tpu-v5p", 128)),
    ],
    ids=lambda it: getattr(it, "name", ""),
)
def test_no_plan_of_a_lattice_breaks_a_rule(workload, machine):
    """Of every family: all its plans, or some hundreds at random."""
    whole = lattice(workload, machine, usual_formats(machine, {}))
    some = np.random.default_rng(2).permutation(len(whole))[:300]
    assert len(some) > 0
    for i in some:
        assert violations(whole.plan(int(i)), workload, machine) == (), whole.plan(int(i))


def test_tables_of_a_recommendation_model_are_divided():
    """Their rows divide over any mesh of experts, evenly or not: as `violations` has it."""
    rows = lattice(small_dlrm(), cluster(12, domain=6), {}).rows
    assert set(np.unique(rows["expert"])) == {1, 2, 3, 4, 6, 12}
    assert set(np.unique(rows["tensor"])) == {1}


@pytest.mark.parametrize(
    ("workload", "machine"),
    [
        (load_workload("gpt3-175b", batch=1536), load_cluster("a100-80gb", 1536)),
        (load_workload("deepseek-v3", batch=960), load_cluster("h100", 256)),
        (small_decoder(layers=6, batch=12), load_cluster("h100", 8, software="deepspeed")),
        (small_decoder(layers=8, batch=16), running(load_cluster("h100", 8), folded="v_half")),
    ],
    ids=["dense", "experts", "copies that ZeRO keeps", "V-Half"],
)
def test_plans_and_points_are_the_same(workload, machine):
    """A random plan is legal and costs what its point in the batch costs, but for the last bits of powers of arrays."""
    whole = lattice(workload, machine, {})
    indices = np.sort(np.random.default_rng(1).integers(len(whole), size=60))
    numbers = as_floats(whole.workload), as_floats(dataclasses.replace(machine, prices=None))
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
    alone = {
        p
        for name in both
        for p in brute_force(DENSE, MODELS["dense"], machine, {"schedule": name, "recompute": "none"})
    }
    assert plans == {p for p in alone if p.pipeline > 1 or p.schedule == "one_f_one_b"}


def test_domains_of_half_or_less_are_used_where_nothing_else_is_legal():
    workload, machine = load_workload("gpt-39.1b", batch=16), load_cluster("tpu-v7x", 1536)
    domains = set(np.unique(lattice(workload, machine, {"recompute": "none"}).rows["domain"]))
    assert domains == {1, 2, 4}
    plan = lattice(workload, machine, {"recompute": "none"}).plan(0)
    assert violations(plan, workload, machine) == ()


def test_they_are_also_where_rows_of_degrees_are_legal_and_no_plan_of_theirs():
    """Interleaved stages of 4 layers on 6 accelerators: whole domains of 2 have rows, and no such plan."""
    fixed = {"schedule": "interleaved", "zero_stage": 2, "recompute": "selective", "microbatch": 2}
    workload, machine = small_decoder(layers=4, batch=24), cluster(6, domain=2)
    whole = lattice(workload, machine, fixed)
    assert set(whole.rows["domain"]) == {1}
    assert {whole.plan(i) for i in range(len(whole))} == set(brute_force(workload, None, machine, fixed))


def test_a_narrow_lattice_shares_weights_inside_one_domain_or_over_all_ranks():
    machine = cluster(16, domain=4)
    narrow, whole = (lattice(DENSE, machine, {"zero_stage": 1}, every_shard=every) for every in (False, True))
    shards = [np.unique(of.columns(np.arange(len(of)))["data_shard"]).tolist() for of in (narrow, whole)]
    assert shards == [[0, 2, 4], [0, 2, 4, 8]]


def test_a_narrow_lattice_on_a_single_tier_shares_weights_over_all_ranks():
    """All accelerators in one domain, as in a cluster file with one `[[tiers]]`."""
    narrow = lattice(DENSE, cluster(16, tiers=1), {"zero_stage": 1}, every_shard=False)
    assert np.unique(narrow.columns(np.arange(len(narrow)))["data_shard"]).tolist() == [0]


@pytest.mark.parametrize("workload", [DENSE, MOE], ids=["dense", "experts"])
def test_families_differ_in_recompute_alone_and_hold_every_plan_once(workload):
    families = Families(lattice(workload, cluster(16, domain=4), {"context": 1}))
    whole, first = families.lattice, families.first(0, len(families))
    members, family = families.members(first)
    np.testing.assert_array_equal(members, np.arange(len(whole)))
    plans, leaders = whole.columns(members), whole.columns(first)
    for name in plans.keys() - {"recompute", "recompute_share"}:
        np.testing.assert_array_equal(plans[name], leaders[name][family])
    rows = np.arange(len(whole.rows["tensor"]))[::2]
    runs, place = families.of_any_schedule(rows)
    of_rows = first[np.isin(np.searchsorted(whole.ends, first, side="right"), rows)]
    assert sorted(families.of_every_schedule(runs)) == sorted(of_rows)
    np.testing.assert_array_equal(np.searchsorted(whole.ends, runs, side="right"), rows[place])
    numbers, recompute = families.by_recompute(first)
    assert sorted(numbers[numbers >= 0]) == list(range(len(whole)))
    redone = families.recompute_of(numbers[numbers >= 0])
    np.testing.assert_array_equal(recompute.redo_rest[numbers >= 0], redone.redo_rest)
    np.testing.assert_array_equal(redone.redo_rest, whole.points(numbers[numbers >= 0], np.float64).recompute.redo_rest)


def test_nothing_legal_is_an_empty_lattice():
    assert count(DENSE, cluster(8), {"tensor": 3}) == 0
    assert list(chunks(DENSE, cluster(8), {"tensor": 3})) == []
