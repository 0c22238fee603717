"""The bound of a row is below every plan of it, rows that are left out hold none that fits, and the answer stays."""

import dataclasses
from importlib import import_module

import numpy as np
import pytest

from costmodel.inputs.schedules import SCHEDULES, Schedule, ScheduleRow
from costmodel.inputs.stack import Stack
from costmodel.register.schedules import register_schedule
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.lattice import least
from optimize.lattice.enumeration import lattice
from optimize.lattice.recompute_families import Families
from optimize.others import Sharding
from optimize.plans import exhaustive, find_in_lattice, processes, row_bounds
from optimize.plans.evaluation import _least_of_runs
from optimize.plans.plan_values import plan_value
from optimize.plans.row_bounds import flop_bound_s, in_order_of_bounds, row_bounds_s
from tests.support.builders import accelerator, cluster, small_decoder, small_moe
from tests.support.small_workloads import small_swin
from tests.support.software import running

TIGHT = dataclasses.replace(cluster(16, tiers=3), accelerator=accelerator(hbm_bytes=2.6e9))
PROBLEMS = {
    "dense": (small_decoder(layers=6, batch=48), TIGHT, {}),
    "experts": (small_moe(batch=48), TIGHT, {"recompute_share": 1.0}),
    "8b": (load_workload("llama3-8b", batch=64), load_cluster("h100", 16), {}),
    "without overlap": (
        small_decoder(layers=4, batch=24),
        cluster(8),
        {"overlap_tensor": False, "overlap_data": False},
    ),
    "with a bubble": (
        small_decoder(layers=6, batch=48),
        TIGHT,
        {"schedule": frozenset({"gpipe", "one_f_one_b", "interleaved"}), "overlap_pipeline": False},
    ),
    "fp8": (small_decoder(layers=4, batch=24), TIGHT, {"precision": "fp8_block", "zero_stage": 3}),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_plan_is_below_the_bound_of_its_row(name, monkeypatch):
    whole = lattice(*PROBLEMS[name])
    bounds_s = row_bounds_s(whole)
    indices = (
        np.arange(len(whole)) if len(whole) < 100_000 else np.random.default_rng(0).integers(len(whole), size=100_000)
    )
    exact = exhaustive.exactly(whole, indices)
    row, fits = (
        np.searchsorted(whole.ends, indices, side="right"),
        whole.needed(exact.peak_bytes, exact.second_bytes) <= 1,
    )
    assert (exact.step_s[fits] >= bounds_s[row[fits]]).all()
    assert fits[np.isinf(bounds_s[row])].sum() == 0
    assert (exact.step_s >= flop_bound_s(whole)).all()
    of_all_s = row_bounds.least_of_all_s(whole)
    monkeypatch.setattr(row_bounds, "MANY", 0)
    assert row_bounds.least_of_all_s(whole) <= of_all_s * (1 + 1e-12)
    assert of_all_s <= exact.step_s.min()  # whether or not it fits
    assert of_all_s > 0.4 * exact.step_s.min()
    tight = exact.step_s[fits].min() / bounds_s.min()
    assert 1 <= tight < 2.5


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_group_of_microbatches_is_bounded_by_the_largest_that_fits(name, monkeypatch):
    """Nothing is left out that fits, no bound is above that of the row alone, and enough rows have that itself."""
    monkeypatch.setattr(row_bounds, "_NEAR", 16)
    whole = lattice(*PROBLEMS[name])
    exact, quick = row_bounds_s(whole), row_bounds.many_bounds_s(whole)
    np.testing.assert_array_equal(np.isinf(quick), np.isinf(exact))
    assert (quick <= exact * (1 + 1e-12)).all()
    assert np.count_nonzero(quick == exact) >= 16


MORE_TOKENS = small_decoder(layers=7, mtp_layers=1, batch=24, vocabulary=200_000)
BOTH_WAYS = [small_decoder(batch=24), dataclasses.replace(small_swin(), batch=24), MORE_TOKENS]


@pytest.mark.parametrize("workload", BOTH_WAYS)
def test_no_plan_both_ways_needs_less_than_its_row(workload):
    """ZeRO divides both ends of the model by the ranks of both copies of a stage, also where one end is larger, and
    no end has a copy of the embedding for modules of further tokens."""
    bare = dataclasses.replace(Stack(), context_bytes=0.0, workspace_bytes=0.0, communicator_bytes=0.0)
    whole = lattice(workload, cluster(8, stack=bare), {"schedule": "dualpipe", "zero_stage": 3})
    needed = exhaustive.exactly(whole, np.arange(len(whole))).peak_bytes
    least = row_bounds.row_bytes(whole, np.arange(len(whole.ends)))
    row = np.searchsorted(whole.ends, np.arange(len(whole)), side="right")
    assert np.all(needed >= least[row])
    assert (least[row] / needed).max() > 0.97


@pytest.mark.parametrize("tied", [False, True])
def test_no_plan_needs_less_than_its_row_where_an_end_needs_the_embedding_again(tied):
    """Schedules that come back have both ends on one stage, and no copy: they need less than 1F1B."""
    bare = dataclasses.replace(Stack(), context_bytes=0.0, workspace_bytes=0.0, communicator_bytes=0.0)
    workload = small_decoder(layers=3, mtp_layers=1, batch=8, tied=tied, vocabulary=50_000)
    whole = lattice(workload, cluster(8, stack=bare), {"zero_stage": frozenset({1, 3}), "microbatch": 1})
    every = np.arange(len(whole))
    least = row_bounds.row_bytes(whole, np.arange(len(whole.ends)))[np.searchsorted(whole.ends, every, side="right")]
    assert np.all(exhaustive.exactly(whole, every).peak_bytes >= least)


@pytest.mark.parametrize("habits", [{"deepspeed_zero": True}, {"folded": "v_half"}, {"folded": "v_min"}])
def test_no_plan_needs_less_than_its_row_whatever_its_software_keeps(habits):
    """Without ZeRO no copies of gradients lie beside states; V-Half and V-Min hold fewer microbatches than 1F1B."""
    bare = dataclasses.replace(Stack(), context_bytes=0.0, workspace_bytes=0.0, communicator_bytes=0.0)
    machine = running(cluster(8, stack=bare), **habits)
    whole = lattice(small_decoder(layers=8, batch=32, sequence=8192, vocabulary=8), machine, {"context": 1})
    every = np.arange(len(whole))
    least = row_bounds.row_bytes(whole, np.arange(len(whole.ends)))[np.searchsorted(whole.ends, every, side="right")]
    needed = exhaustive.exactly(whole, every).peak_bytes
    assert np.all(needed >= least)
    assert (least / needed).max() > 0.97


FEWER = {"context": 32, "tensor": 1, "pipeline": 3, "microbatch": 128, "zero_stage": 3, "recompute": "none"}
"""Of 26, 27 and 27 layers: interleaved, what the first stage has less is had as often as there are stages."""


@pytest.mark.parametrize("name", ["dense", "with a bubble", "fewer layers first"])
def test_no_plan_is_below_the_bound_of_those_that_differ_in_the_schedule_alone(name):
    uneven = load_workload("llama3-70b", sequence=4096, batch=384), load_cluster("a100-80gb", 96), FEWER
    whole = lattice(*PROBLEMS.get(name, uneven))
    families, domains = Families(whole), sorted({*whole.rows["domain"].tolist()})
    first, _ = families.of_any_schedule(np.arange(len(whole.ends)))
    bounds_s = _least_of_runs(whole, first, plan_value("step_s", whole.workload, whole.cluster, domains))
    place = np.random.default_rng(0).integers(len(first), size=300)
    every = [families.of_every_schedule(first[[one]]) for one in place]
    step_s = exhaustive.exactly(whole, np.concatenate(every)).step_s  # with nothing recomputed, which is first
    assert (step_s >= np.repeat(bounds_s[place], list(map(len, every))) * (1 - 1e-9)).all()
    assert row_bounds.fill_of(whole, np.arange(len(whole.ends))).max() > 0


@pytest.mark.parametrize("name", ["dense", "experts", "8b"])
def test_the_order_of_bounds_gives_the_same_answer_sooner(name, monkeypatch):
    workload, machine, fixed = PROBLEMS[name]
    finding = import_module("optimize.plans.find_in_lattice")
    monkeypatch.setattr(finding, "ENUMERATED", 10**9)
    expected = find_in_lattice(workload, machine, fixed=fixed, top=5)
    monkeypatch.setattr(finding, "ENUMERATED", 0)
    monkeypatch.setattr(exhaustive, "CHUNK", 2048)
    found = find_in_lattice(workload, machine, fixed=fixed, top=5)
    np.testing.assert_allclose([r.step_s for r in found.plans], [r.step_s for r in expected.plans], rtol=1e-12)
    assert (found.status, found.gap) == (expected.status, 0)
    assert found.evaluations < 0.9 * expected.evaluations == 0.9 * expected.plans_in_lattice


def test_shares_of_an_ordered_search_join_to_the_same_answer(monkeypatch):
    workload, machine, fixed = PROBLEMS["8b"]
    monkeypatch.setattr(exhaustive, "CHUNK", 2048)
    monkeypatch.setattr(processes, "joined", lambda best, *_: best)
    ordered = in_order_of_bounds(lattice(workload, machine, fixed))
    value = plan_value("step_s", workload, machine, [8])
    alone = exhaustive.search(ordered, value, 6)
    parts = [processes.search_shared(ordered, value, 6, sharding=Sharding(processes=3, process=i)) for i in range(3)]
    assert parts[0].merged(parts[1].merged(parts[2], 6), 6).top == alone.top
    assert alone.unseen == np.inf
    assert alone.evaluated < len(ordered)


def test_a_schedule_that_holds_fewer_microbatches_than_1f1b_is_not_left_out(monkeypatch):
    """One microbatch at a time: plans fit which would not under 1F1B, and no row of theirs is given up."""
    lean = Schedule(row=ScheduleRow(extra_in_flight=1.0), warm_up=lambda stages, microbatches, virtual, device: 1)
    workload = small_decoder(layers=16, batch=64, sequence=32_768, vocabulary=8)
    machine = dataclasses.replace(cluster(8), accelerator=accelerator(hbm_bytes=2.1 * 2**30))
    with register_schedule("one_at_a_time", lean, tolerance=10.0):
        whole = lattice(workload, machine, {"pipeline": 8})
        exact = exhaustive.exactly(whole, np.arange(len(whole)))
        names = np.array(list(SCHEDULES))[whole.columns(np.arange(len(whole)))["schedule"]]
        fits = whole.needed(exact.peak_bytes, exact.second_bytes) <= 1
        row = np.searchsorted(whole.ends, np.arange(len(whole)), side="right")
        assert set(names[fits]) == {"one_at_a_time"}
        assert np.isfinite(row_bounds_s(whole)[row[fits]]).all()
        monkeypatch.setattr(least, "leanest", lambda point, *_: [point])
        assert np.isinf(row_bounds_s(whole)[row[fits]]).any()
