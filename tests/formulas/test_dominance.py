"""What the lattice leaves out is never better than something that stays: not in time, not in memory."""

import dataclasses

import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs import options
from costmodel.inputs.schedules import SCHEDULES, schedule_rows
from costmodel.models.decoder import decoder
from costmodel.pytree import as_floats
from tests.support.builders import small_moe
from tests.support.strategies import cluster_batch, point_batch, rows_batch, sizes_batch

N = 20_000
SLACK = 1 + 1e-12


def _draw(experts: bool, seed: int = 0):
    """Random hardware, software, models and legal plans; every leaf an array of N."""
    rng = np.random.default_rng(seed)
    point, batch = point_batch(rng, N)
    sizes = sizes_batch(rng, N, point.pipeline * point.virtual_stages)
    if experts:
        point = dataclasses.replace(point, expert=rng.choice([1.0, 2.0], N), expert_tensor=rng.choice([1.0, 2.0], N))
        workload = dataclasses.replace(as_floats(small_moe()), batch=batch)
    else:
        workload = decoder(hidden=sizes["heads"] * sizes["head_size"], batch=batch, **sizes)
    return workload, cluster_batch(rng, N, tiers=3), point


def _compare(kept, left, parts):
    """`kept` is nowhere slower or larger than `left`."""
    workload, cluster, _ = parts
    with np.errstate(all="ignore"):
        first, second = (cost(workload, cluster, point, Exact(np)) for point in (kept, left))
    assert np.isfinite(second.step_s).all()
    assert (first.step_s <= second.step_s * SLACK).all()
    assert (first.peak_bytes <= second.peak_bytes * SLACK).all()
    return first, second


@pytest.mark.parametrize("experts", [False, True], ids=["dense", "experts"])
@pytest.mark.parametrize("kind", ["tensor", "context", "data", "pipeline", "expert"])
def test_overlap_is_never_slower(kind, experts):
    parts = _draw(experts)
    point = parts[2]
    on, off = (
        dataclasses.replace(point, overlap=dataclasses.replace(point.overlap, **{kind: np.full(N, switch)}))
        for switch in (1.0, 0.0)
    )
    first, second = _compare(on, off, parts)
    np.testing.assert_array_equal(first.peak_bytes, second.peak_bytes)
    assert (first.step_s < second.step_s).any() or (kind == "expert" and not experts)


def _alone(point, **others):
    """The same plans with one data and one context rank."""
    ones = np.ones(N)
    return dataclasses.replace(point, accelerators=point.tensor * point.pipeline, context=ones, copies=ones, **others)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_sharding_over_one_rank_gains_nothing(stage):
    parts = _draw(False)
    precision = parts[2].precision
    if stage == 3:  # cast copies are not kept there: in narrow formats that is less memory
        precision = rows_batch(options.PRECISIONS, np.arange(N) % 3)
        assert (precision.copy_bytes == 0).all()
    one_way = dataclasses.replace(parts[2].schedule, both_ways=np.zeros(N))  # else two copies share their shards
    parts = (*parts[:2], dataclasses.replace(parts[2], precision=precision, schedule=one_way))
    rows = [rows_batch(options.ZERO_STAGES, np.full(N, i)) for i in (0, stage)]
    _compare(_alone(parts[2], zero=rows[0]), _alone(parts[2], zero=rows[1]), parts)


def test_heads_over_one_context_rank_change_nothing():
    parts = _draw(False)
    ring, exchange = (_alone(parts[2], context_ring=np.full(N, kind)) for kind in (1.0, 0.0))
    first, second = _compare(ring, exchange, parts)
    np.testing.assert_array_equal(first.step_s, second.step_s)


SINGLE = [name for name, entry in SCHEDULES.items() if not entry.interleaves and entry.ways == 1]


@pytest.mark.parametrize("name", [name for name in SINGLE if name != "one_f_one_b"])
def test_schedules_without_a_pipeline_gain_nothing(name):
    parts, ones = _draw(False), np.ones(N)
    single = dataclasses.replace(
        parts[2], accelerators=parts[2].accelerators / parts[2].pipeline, pipeline=ones, virtual_stages=ones
    )
    rows = [rows_batch(schedule_rows(), np.full(N, list(SCHEDULES).index(key))) for key in ("one_f_one_b", name)]
    plain, other = _compare(*(dataclasses.replace(single, schedule=row) for row in rows), parts)
    assert (plain.step_s <= other.step_s * SLACK).all()


def test_sequence_parallelism_may_lose():
    """So it is searched: its gathers start two collectives where an all-reduce starts one, and are partly exposed."""
    workload, cluster, point = _draw(False)
    sharded = dataclasses.replace(point, tensor=np.full(N, 8.0), accelerators=8 * point.accelerators / point.tensor)
    on, off = (dataclasses.replace(sharded, sequence_parallel=np.full(N, switch)) for switch in (1.0, 0.0))
    with np.errstate(all="ignore"):
        times = [cost(workload, cluster, each, Exact(np)).step_s for each in (on, off)]
    assert 0.05 < np.mean(times[0] > times[1]) < 0.95
