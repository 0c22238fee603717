"""The form of every registered cost function: units, monotonicity, array libraries, broadcasting, what vanishes."""

import dataclasses
import importlib
import inspect
import math
import pkgutil
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel import formulas
from costmodel.exact import Exact
from costmodel.formulas import roofline
from costmodel.formulas.cost import cost
from costmodel.inputs.embedding import embed
from costmodel.inputs.plan import Plan
from tests.support.families import NETWORK, Args, Family
from tests.support.jobs import job_values, report_values
from tests.support.registry import FAMILIES, REGISTRY
from tests.support.strategies import Array, cluster_batch, named, point_batch, workload_batch
from tests.support.trees import flatten, unflatten

NUMPY = Exact(np)
# Reached through another entry: they return counts and trees, not times, or are called by what is registered.
INSIDE = {
    "placement.nests", "traffic.laws", "traffic.expert_laws", "traffic.links_by_tier_s",
    "counts.split_shares", "placement.reached", "held.expert_shard", "held.sharding", "traffic.spread",
    "held.on_heaviest_stage", "held.held_on_heaviest_stage",  # test_both_ways.py
    "held.kept_bytes", "held.share", "held.on_rank",
    "pipeline.plain_s", "memory.peak", "memory.communicators", "held.divided",
    "memory.gathered_bytes", "memory.limit_bytes", "memory.reserved_bytes",
    "memory.allocated_bytes", "memory.passing_bytes", "memory.device_bytes", "memory.at_moment",
    "memory.working_bytes", "roofs.roofs", "roofs.redone",
    "cost.parts", "cost.step", "cost.work", "cost.finished", "cost.step_time", "cost.around",
    "timing.stages", "timing.hops", "timing.redone_s", "counts.payload_copies", "counts.saved_bytes",
    "counts.single", "counts.touches",  # test_losses.py
    "offload.layer_weights_bytes", "offload.layer_states_bytes", "offload.update_s",
    "modules.by_module", "timing.modules_s", "roofline.module_times",  # test_modules.py
    "roofline.larger",  # of `roofline.rates:fill`
    "offload.layer_gradients_bytes", "optimizer.accelerator_update_s", "optimizer.streamed_update_s",
    "optimizer.update_bytes",
    "pipeline.run_of", "pipeline.warm_up_s", "pipeline.first_backward_s", "pipeline.longest_s",
    "curves.hardware_of", "curves.with_hardware",
    "economics.economics", "economics.economics_range", "economics.idle_per_domain",  # test_economics.py
    "goodput.failures_per_s", "goodput.checkpoint_s", "goodput.interval_s", "goodput.lost_share", "goodput.elapsed",
    "goodput.slow_share", "goodput.spare_share",
    "economics.bill", "economics.network_bill", "economics.draw", "economics.drawn_s",
    "busy.busy", "busy.sent_s", "roofs.operators_s", "roofs.again_s", "busy.timed",  # test_same_joules.py
}  # fmt: skip
seeds = st.integers(0, 2**32 - 1)
powers_of_two = st.integers(-20, 20).map(lambda k: 2.0**k)
factors = st.floats(1e-6, 1e6)


def test_no_cost_function_is_missing():
    registered = {name.split(":")[0] for name in REGISTRY}
    assert not registered & INSIDE
    for each in pkgutil.walk_packages(formulas.__path__, "costmodel.formulas."):
        module = importlib.import_module(each.name)
        for name, function in inspect.getmembers(module, inspect.isfunction):
            full = f"{module.__name__.split('.')[2]}.{name}"
            if function.__module__ == module.__name__ and not name.startswith("_"):
                assert full in registered | INSIDE, full


# units

DIMENSION = re.compile(r"(?:^|_)(?P<over>bytes|s|flop)?(?:_?per_(?P<under>bytes?|s|flop))?$")
HIDDEN_UNITS = {  # fields whose name does not say it
    "attention_backward_ratio": "",  # a ratio of two counts of FLOP
    "update_copies": "_bytes",  # copies of 4 bytes an element
}


def factor(name: str, s: float, b: float, f: float) -> float:
    """What a quantity of this name is multiplied by when s seconds, b bytes and f FLOP become the units."""
    last = name.rsplit(".", 1)[-1]
    found = DIMENSION.search(HIDDEN_UNITS.get(last, last))
    scale = {"s": s, "bytes": b, "byte": b, "flop": f, None: 1.0}
    return scale[found["over"]] / scale[found["under"]] if found else 1.0


def in_units(args: Args, s: float = 1.0, b: float = 1.0, f: float = 1.0) -> dict[str, Array]:
    """Named arguments in other units, read from their suffixes."""
    return {name: value * factor(name, s, b, f) for name, value in args.items()}


def tree_in_units(tree, s: float = 1.0, b: float = 1.0):
    """A Workload, Cluster or PlanPoint in other units: nothing in a workload carries FLOP."""
    return unflatten(tree, in_units(flatten(tree), s, b))


@pytest.mark.parametrize(
    ("name", "over", "under"),
    [
        ("tiers.0.bandwidth_bytes_per_s", "b", "s"),
        ("peak_16bit_flop_per_s", "f", "s"),
        ("memory_s_per_byte", "s", "b"),
        ("latency_s", "s", ""),
        ("tokens_per_s", "", "s"),
        ("logit_bytes", "b", ""),
        ("fixed_bytes", "b", ""),
        ("heads", "", ""),
        ("matmul_size0", "", ""),
        ("attention_backward_ratio", "", ""),
    ],
)
def test_suffixes_are_read(name, over, under):
    scale = {"s": 2.0, "b": 3.0, "f": 5.0, "": 1.0}
    assert factor(name, 2.0, 3.0, 5.0) == scale[over] / scale[under]


def assert_scaled(values: Args, before: Args, s: float, b: float, f: float, rtol: float) -> None:
    for name, value in values.items():
        expected = before[name] * factor(REGISTRY[name].unit, s, b, f)
        vanishing = 1e-15 * np.max(np.abs(expected))  # guards of roots (collectives.py), where there is no traffic
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=vanishing, err_msg=name)


@pytest.mark.parametrize("family", ["network", "placement", "kernel", "small", "curves"])
@given(seed=seeds, s=powers_of_two, b=powers_of_two, f=powers_of_two)
def test_units_by_powers_of_two_change_no_digit(family, seed, s, b, f):
    """But for the last one of a collective's ramp: a root of a power of two is rounded."""
    args = FAMILIES[family].sample(np.random.default_rng(seed), 20)
    call = FAMILIES[family].call
    rtol = 1e-14 if family == "network" else 0
    assert_scaled(call(in_units(args, s, b, f), NUMPY), call(args, NUMPY), s, b, f, rtol=rtol)


@given(seed=seeds, s=powers_of_two, b=powers_of_two)
def test_the_whole_job_in_other_units(seed, s, b):
    rng = np.random.default_rng(seed)
    point, batch = point_batch(rng, 20, mixed=True, uneven=True)
    trees = (workload_batch(rng, 20, batch, 3 * point.pipeline, dropout=True), cluster_batch(rng, 20, 3), point)
    moved = [tree_in_units(tree, s, b) for tree in trees]
    assert_scaled(job_values(moved[0], moved[1], moved[2], NUMPY), job_values(*trees, NUMPY), s, b, 1.0, rtol=1e-14)


@given(s=factors, b=factors)
def test_one_plan_in_other_units(small_decoder, two_tiers, s, b):
    point = embed(Plan(data=4, tensor=4, pipeline=4, sequence_parallel=True), small_decoder, 8)
    before = cost(small_decoder, two_tiers, point, Exact(math))
    workload, cluster, moved = (tree_in_units(tree, s, b) for tree in (small_decoder, two_tiers, point))
    after = cost(workload, cluster, moved, Exact(math))
    assert math.isclose(after.step_s, s * before.step_s, rel_tol=1e-12)
    assert math.isclose(after.peak_bytes, b * before.peak_bytes, rel_tol=1e-12)


def test_a_bare_constant_is_caught(monkeypatch):
    memory_s = roofline.memory_s
    monkeypatch.setattr(roofline, "memory_s", lambda *args: tuple(x + 1e-6 for x in memory_s(*args)))
    args, call = FAMILIES["kernel"].sample(np.random.default_rng(0), 20), FAMILIES["kernel"].call
    with pytest.raises(AssertionError, match="memory_s"):
        assert_scaled(call(in_units(args, 2.0), NUMPY), call(args, NUMPY), 2.0, 1.0, 1.0, rtol=1e-12)


# monotonicity

ROUNDING = 1e-12


def changes(family: Family, args: Args, ratio: float) -> dict[str, Array]:
    """Each value's relative change when each argument alone is multiplied: arguments x points."""
    n, names = len(next(iter(args.values()))), list(args)
    grid = {name: np.repeat(value[None, :], len(names) + 1, axis=0) for name, value in args.items()}
    for i, name in enumerate(names):
        grid[name][i] *= ratio
    result = {}
    for name, value in family.call(grid, NUMPY).items():
        full = np.broadcast_to(value, (len(names) + 1, n))
        result[name] = (full[:-1] - full[-1]) / np.where(full[-1] == 0, 1.0, np.abs(full[-1]))
    return result


@pytest.mark.parametrize("family", FAMILIES)
@given(seed=seeds, ratio=st.floats(1.001, 3.0))
def test_monotonicity(family, seed, ratio):
    args = FAMILIES[family].sample(np.random.default_rng(seed), 20)
    shares = {name for name in args if ".hide_" in name or name.endswith(_SHARES)}
    with np.errstate(invalid="ignore"):  # a share moved above 1 means nothing, and is left out below
        moves = changes(FAMILIES[family], args, ratio)
    for name, change in moves.items():
        for argument, moved in zip(args, change, strict=True):
            direction = REGISTRY[name].direction(argument)
            inside = args[argument] * ratio <= 1.0 if argument in shares else np.full(len(moved), True)
            assert (direction * moved[inside] >= -ROUNDING).all(), (name, argument, moved)


_SHARES = (
    "share", "contention", "chunk_fill", "weight", "flash", "fused_kernels", "in_network_reduction", "_ceiling",
    "all_reduce_tree", "regather_exposed", "sequence_parallel", "context_ring", "overlap.tensor", "overlap.context",
    "overlap.data", "overlap.pipeline", "zero.weights", "zero.gradients", "zero.states", "keep_core", "keep_rest",
)  # fmt: skip


def test_a_declaration_that_is_wrong_is_caught():
    args = FAMILIES["network"].sample(np.random.default_rng(0), 20)
    change = changes(FAMILIES["network"], args, 2.0)["collectives.all_gather"]
    assert (change[list(args).index("payload_bytes")] > ROUNDING).all()
    assert (change[list(args).index("outer_bandwidth_bytes_per_s")] < -ROUNDING).any()


# libraries, broadcasting, zeros


def values_one_by_one(family: Family, args: Args, n: int) -> list[dict[str, float]]:
    return [family.call({name: float(value[i]) for name, value in args.items()}, Exact(math)) for i in range(n)]


@pytest.mark.parametrize("family", FAMILIES)
def test_plain_floats_equal_numpy(family):
    n = 12
    args = FAMILIES[family].sample(np.random.default_rng(2), n)
    together = FAMILIES[family].call(args, NUMPY)
    for i, single in enumerate(values_one_by_one(FAMILIES[family], args, n)):
        for name, value in single.items():
            np.testing.assert_allclose(value, np.broadcast_to(together[name], n)[i], rtol=1e-12, err_msg=name)


@pytest.mark.parametrize("family", FAMILIES)
def test_grids_equal_element_by_element(family):
    """Arguments on three axes of a grid, `(2,1,1)`, `(1,3,1)` and `(1,1,4)` in turn."""
    shapes = ((2, 1, 1), (1, 3, 1), (1, 1, 4))
    sample = FAMILIES[family].sample(np.random.default_rng(3), 4)
    args = {name: v[: max(shapes[i % 3])].reshape(shapes[i % 3]) for i, (name, v) in enumerate(sample.items())}
    grid = FAMILIES[family].call(args, NUMPY)
    flat = {name: np.broadcast_to(value, (2, 3, 4)).ravel() for name, value in args.items()}
    for i, single in enumerate(values_one_by_one(FAMILIES[family], flat, 24)):
        for name, value in single.items():
            element = np.broadcast_to(grid[name], (2, 3, 4)).ravel()[i]
            np.testing.assert_allclose(element, value, rtol=1e-12, err_msg=name)


@given(args=named({name: bounds for name, bounds in NETWORK.items() if not name.endswith("_ranks")}))
def test_collectives_of_one_rank_take_no_time(args):
    alone = args | {"inner_ranks": 1.0, "middle_ranks": 1.0, "outer_ranks": 1.0}
    assert set(FAMILIES["network"].call(alone, Exact(math)).values()) == {0.0}


TRAFFIC = ("traffic.sync_s", "traffic.context_s", "traffic.sharded_s", "traffic.tokens_s", "timing.timing:ring")


@given(seed=seeds)
def test_one_accelerator_sends_nothing(seed):
    args = FAMILIES["job"].sample(np.random.default_rng(seed), 20)
    for degree in ("accelerators", "tensor", "context", "pipeline", "copies"):
        args[f"point.{degree}"] = np.ones(20)
    values = FAMILIES["job"].call(args, NUMPY)
    silent = [name for name in values if name.startswith(TRAFFIC)]
    for name in [
        *silent,
        "traffic.gradient_traffic_s",
        "traffic.busiest_links_s",
        "memory.stage_memory:buffers_bytes",
    ]:
        assert not np.any(values[name]), name


@given(seed=seeds)
def test_terms_sum_to_the_step(seed):
    rng = np.random.default_rng(seed)
    point, batch = point_batch(rng, 50, mixed=True, uneven=True)
    trees = (workload_batch(rng, 50, batch, 3 * point.pipeline), cluster_batch(rng, 50, 2), point)
    step_s = cost(*trees, NUMPY).step_s
    np.testing.assert_allclose(report_values(*trees, NUMPY)["breakdown.breakdown:step_s"], step_s, rtol=1e-12)


@pytest.mark.parametrize("sign", [-1, 1])
def test_rounded_microbatches_neither_add_nor_drop_a_transfer(sign):
    """A batch that float32 rounds makes 1 - 1e-7 microbatches of one, whose floor would be a transfer of -1."""
    rng, n = np.random.default_rng(6), 2_000
    point, batch = point_batch(rng, n)
    cluster, sizes = cluster_batch(rng, n, 2), workload_batch(rng, n, batch)
    rounded = dataclasses.replace(sizes, batch=batch * (1 + sign * 1e-7))
    change = cost(rounded, cluster, point, NUMPY).step_s / cost(sizes, cluster, point, NUMPY).step_s - 1
    assert np.abs(change).max() < 1e-5
