"""What is known of training at scale without a measured row: ratios and differences that any prediction must show."""

import csv
import dataclasses
import math

import pytest

from costmodel import Exact, Plan, evaluate, load_cluster, load_workload
from costmodel.evaluators import prepare
from costmodel.formulas import counts
from costmodel.formulas.collectives import neighbour
from costmodel.formulas.cost import finished, work
from costmodel.formulas.placement import ranks_by_tier
from costmodel.formulas.timing import timing
from costmodel.formulas.traffic import tiers_in_training
from tests.support.row_by_hand import BULK, needs_bulk

SEM = Exact(math)


def scatter_gather_gain(virtual_stages: int, hidden: bool) -> float:
    """How much longer 175B takes on 96 A100 (t8 p12) where every tensor rank sends whole activations."""
    workload, cluster = load_workload("gpt3-175b", batch=48), load_cluster("a100-80gb", accelerators=96)
    shape = {"tensor": 8, "pipeline": 12, "schedule": "interleaved", "virtual_stages": virtual_stages}
    plan = Plan(**shape, recompute="full", attention="unfused", zero_stage=0, overlap_pipeline=hidden)
    workload, cluster, point = prepare(workload, cluster, plan)
    counted, tiers = counts(workload, point, SEM), tiers_in_training(cluster, point, cluster.stack, SEM)
    times = timing(counted, point, cluster, SEM)
    ranks = ranks_by_tier(point.pipeline, point.tensor, tiers, point.domain, SEM)
    laws = dataclasses.replace(times.laws, boundary=neighbour(ranks, tiers, cluster.stack, SEM))
    own, whole = (
        finished(counted, each, work(counted, each, point, cluster, SEM), point, cluster, SEM).step.step_s
        for each in (times, dataclasses.replace(times, laws=laws))
    )
    return whole / own - 1


def test_interleaved_transfers_cost_what_scatter_gather_saves():
    """Published: up to 11 % (Narayanan et al. 2021, section 5.6); their virtual stages are not said."""
    assert 0.03 < scatter_gather_gain(2, hidden=False) < scatter_gather_gain(4, hidden=False)
    assert scatter_gather_gain(4, hidden=False) == pytest.approx(0.11, abs=0.03)
    assert scatter_gather_gain(4, hidden=True) < 0.5 * scatter_gather_gain(4, hidden=False)


def fsdp(accelerators: int, software: str | None = None):
    """7B fully sharded, 2 sequences on each H100."""
    plan = Plan(data=accelerators, zero_stage=3, microbatch=2, gradient_dtype="bf16")
    cluster = load_cluster("h100", accelerators=accelerators, software=software)
    return evaluate(load_workload("llama2-7b", batch=2 * accelerators), cluster, plan)


PUBLISHED_POWER, PUBLISHED_THROUGHPUT = 0.0587, 0.3722
"""What each of 2,048 H100 draws and does less than each of 128 under FSDP (a text that quotes arXiv 2411.13055)."""


@pytest.mark.parametrize("software", [None, "fsdp"])
def test_accelerators_that_wait_draw_little_less(software):
    """From 8 to 2,048 power falls by 4 to 8 % under FSDP, which is what was measured.

    Other software may hide more and wait less: of what it loses it saves at least the published share. Utilisation
    falls by more in any case.
    """
    few, many = fsdp(8, software), fsdp(2048, software)
    watts = []
    for each, n in ((few, 8), (many, 2048)):
        assert each.economics is not None
        assert each.economics.base.draw is not None
        watts.append(each.economics.base.draw.servers_w / n)
    saved, lost = 1 - watts[1] / watts[0], 1 - many.mfu / few.mfu
    least = 0.04 if software == "fsdp" else PUBLISHED_POWER / PUBLISHED_THROUGHPUT * lost
    assert least <= saved <= 0.08
    assert lost > 1.5 * saved


@pytest.mark.parametrize("sequence", [4096, 65536])
@pytest.mark.parametrize("model", ["llama3-8b", "llama3-70b"])
def test_the_same_die_with_faster_memory_is_little_faster(model, sequence):
    """H200 over H100, which differ in their HBM alone: at most 1.1 where compute limits."""
    plan = Plan(tensor=8, sequence_parallel=True)
    workload = load_workload(model, batch=8, sequence=sequence)
    slow, fast = (evaluate(workload, load_cluster(name, accelerators=8), plan).step_s for name in ("h100", "h200"))
    assert 1.0 <= slow / fast <= 1.1


@pytest.mark.parametrize(
    "schedule", [{}, {"schedule": "interleaved", "virtual_stages": 5}], ids=["1f1b", "interleaved"]
)
def test_gradients_divided_under_a_pipeline_cost_no_more_time(schedule):
    """ZeRO 2 within 5 % of ZeRO 1: gradients add up over the microbatches and are reduced once."""
    cluster, workload = load_cluster("h100", accelerators=512), load_workload("llama3-70b", batch=1024)
    plan = Plan(data=16, tensor=8, pipeline=4, sequence_parallel=True, **schedule)
    times = [evaluate(workload, cluster, dataclasses.replace(plan, zero_stage=stage)).step_s for stage in (1, 2)]
    assert times[1] == pytest.approx(times[0], rel=0.05)


def seconds_with(microbatch: int, adds_apart: float = 0.0, sums_exposed: float = 0.0) -> float:
    """7B on 8 A100, 16 sequences a rank, plain data parallelism."""
    cluster = load_cluster("a100-80gb", accelerators=8)
    stack = dataclasses.replace(cluster.stack, adds_apart=adds_apart, sums_exposed=sums_exposed)
    cluster = dataclasses.replace(cluster, stack=stack)
    plan = Plan(data=8, microbatch=microbatch, zero_stage=0, recompute="full")
    return float(evaluate(load_workload("llama2-7b", sequence=2048, batch=128), cluster, plan).step_s)


def test_sums_apart_cost_a_pass_over_the_gradients_of_each_microbatch():
    """Each weight gradient is read, and its 32-bit sum read and written: 10 bytes a parameter at HBM's rate."""
    one, two = (seconds_with(size, adds_apart=1.0) - seconds_with(size) for size in (1, 2))
    assert one == pytest.approx(2 * two, rel=0.01)
    assert one == pytest.approx(seconds_of(10.0), rel=0.05)


def seconds_of(passes_bytes: float) -> float:
    """Of passes over the matrices that layers of 7B hold, in 16 microbatches, at what A100's memory reaches."""
    stack = load_cluster("a100-80gb").stack
    return 16 * passes_bytes * 6.6e9 / (float(stack.hbm_ceiling) * 2.039e12)


def test_sums_that_products_add_to_cost_the_share_that_these_do_not_hide():
    """8 bytes a parameter and microbatch, read and written; a sum in a kernel of its own is as before."""
    some = seconds_with(1, sums_exposed=0.45) - seconds_with(1)
    assert some == pytest.approx(seconds_of(0.45 * 8.0), rel=0.05)
    apart = (seconds_with(1, adds_apart=1.0, sums_exposed=share) for share in (0.0, 0.45))
    assert next(apart) == next(apart)


@needs_bulk
def test_the_share_is_that_of_products_measured_alone():
    """SimuMax's products of three sizes in any order on a B200: seconds that the one which adds to a sum takes beyond
    those that do not, over those of reading and writing it at what memory reaches; by least squares of shares of them.
    """
    assert BULK is not None
    with open(BULK / "microbenchmarks.csv", newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["source"].startswith("SimuMax") and row["dtype"] == "bf16"]
    alike: dict[tuple[int, ...], dict[bool, list[tuple[float, float]]]] = {}
    for row in rows:
        m, n, k = (int(part[1:]) for part in row["shape_or_bytes"].split())
        adds, width = "accumulate True" in row["notes"], 4.0 if "output fp32" in row["notes"] else 2.0
        seconds = 2.0 * m * n * k / (float(row["value"]) * 1e12)
        alike.setdefault(tuple(sorted((m, n, k))), {}).setdefault(adds, []).append((seconds, 2.0 * width * m * n))
    stack, chip = load_cluster("b200").stack, load_cluster("b200").accelerator
    s_per_byte = 1.0 / (float(stack.hbm_ceiling) * float(chip.hbm_bytes_per_s))
    longer, passes = [], []
    for each in (each for each in alike.values() if len(each) == 2):
        plain_s = sum(seconds for seconds, _ in each[False]) / len(each[False])
        longer += [seconds / plain_s - 1 for seconds, _ in each[True]]
        passes += [size_bytes * s_per_byte / plain_s for _, size_bytes in each[True]]
    assert len(longer) == 226
    share = sum(a * b for a, b in zip(longer, passes, strict=True)) / sum(b * b for b in passes)
    assert share == pytest.approx(load_cluster("h100", software="megatron-core").stack.sums_exposed, abs=0.03)


def test_weights_cast_before_they_are_gathered_halve_the_gathers():
    """Fully sharded 70B in 8 bits on 64 H100, torchao's way and with casts after 16-bit gathers."""
    cluster = load_cluster("h100", accelerators=64, software="fsdp")
    plan = Plan(data=64, microbatch=1, zero_stage=3, recompute="full", precision="fp8_tensor", gradient_dtype="fp32")
    workload, traffic = load_workload("llama3-70b", sequence=8192, batch=64), []
    for narrow in (False, True):
        habits = dataclasses.replace(cluster.stack.habits, gathers_8bit_weights=narrow)
        own = dataclasses.replace(cluster, stack=dataclasses.replace(cluster.stack, habits=habits))
        term = next(term for term in evaluate(workload, own, plan).terms if term.name == "data traffic")
        traffic.append(float(term.exposed_s + term.hidden_s))
    gathered, reduced = 2 * 2.0, 4.0  # bytes a parameter: two gathers of 16 bits, and one reduction of 32
    assert traffic[1] / traffic[0] == pytest.approx((gathered / 2 + reduced) / (gathered + reduced), abs=0.03)
