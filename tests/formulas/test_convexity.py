"""The log of the step is convex in the logs of all rates and latencies, over all option rows (DESIGN section 6).

A chord joins two clusters at up to 1.5 in every log; the step in between must not lie above it. float64 rounds the
log of a sum of some thousand positive terms by less than 1e-12, so a gap of 1e-9 is a violation and not rounding.
"""

import dataclasses
from collections.abc import Callable, Iterator
from importlib import import_module

import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas import collectives, traffic
from costmodel.formulas.cost import cost
from costmodel.inputs.cluster import Cluster
from costmodel.inputs.plan import PlanPoint
from costmodel.inputs.workload import Workload
from tests.support import often
from tests.support.strategies import PEAKS, Array, cluster_batch, point_batch, workload_batch

NUMPY = Exact(np)
TOLERANCE = 1e-9
CHORDS = often(20_000, 100_000)  # of 4,000 chords of each mutant below, 9 or more bend the wrong way, with five seeds
RATES = (*PEAKS, "hbm_bytes_per_s", "second_memory_bytes_per_s", "host_bytes_per_s", "bandwidth_bytes_per_s")
LATENCIES = (
    "latency_s", "kernel_s", "host_kernel_s", "microbatch_s", "jitter_s", "collective_s", "ring_step_s"
)  # fmt: skip


def scaled(cluster: Cluster, scale: Callable[[str], Array]) -> Cluster:
    """The cluster with every rate and latency times `scale` of its name, drawn once for each."""

    def scale_fields(tree):
        names = [f.name for f in dataclasses.fields(tree) if f.name in RATES + LATENCIES]
        return dataclasses.replace(tree, **{name: getattr(tree, name) * scale(name) for name in names})

    return dataclasses.replace(
        cluster,
        accelerator=scale_fields(cluster.accelerator),
        tiers=tuple(map(scale_fields, cluster.tiers)),
        stack=scale_fields(cluster.stack),
    )


def variables(cluster: Cluster) -> list[str]:
    """Names of the rates and latencies, in the order in which `scaled` asks for them."""
    asked: list[str] = []
    scaled(cluster, lambda name: asked.append(name) or 1.0)
    return asked


def moved(cluster: Cluster, logs: Array) -> Cluster:
    steps: Iterator[Array] = iter(np.exp(logs))
    return scaled(cluster, lambda _: next(steps))


def gaps(log_time: Callable[[Cluster], Array], cluster: Cluster, rng: np.random.Generator, n: int) -> Array:
    """How far the time lies above each of `n` random chords, in log; convex where none is positive."""
    first, second = rng.uniform(-1.5, 1.5, (2, len(variables(cluster)), n))
    weight = rng.uniform(0, 1, n)
    between = log_time(moved(cluster, (1 - weight) * first + weight * second))
    return between - (1 - weight) * log_time(moved(cluster, first)) - weight * log_time(moved(cluster, second))


def jobs(rng: np.random.Generator, n: int, tiers: int, **kind: bool) -> tuple[Workload, Cluster, PlanPoint]:
    point, batch = point_batch(rng, n, **kind)
    return workload_batch(rng, n, batch, least_layers=3 * point.pipeline), cluster_batch(rng, n, tiers), point


def log_step(workload: Workload, point: PlanPoint) -> Callable[[Cluster], Array]:
    return lambda cluster: np.log(cost(workload, cluster, point, NUMPY).step_s)


KINDS = {
    "pure rows": {},
    "mixed rows": {"mixed": True},
    "uneven layers": {"uneven": True},
    "relaxed degrees": {"relaxed": True, "mixed": True},
}


@pytest.mark.parametrize("tiers", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_log_step_is_convex(kind, tiers):
    rng, n = np.random.default_rng(tiers), CHORDS
    workload, cluster, point = jobs(rng, n, tiers, **KINDS[kind])
    gap = gaps(log_step(workload, point), cluster, rng, n)
    assert np.isfinite(gap).all()
    worst = int(np.argmax(gap))
    assert gap[worst] <= TOLERANCE, (f"{(gap > TOLERANCE).sum()} of {n} chords", worst, gap[worst])
    assert np.mean(gap < -TOLERANCE) > 0.9  # the chords do bend: nearly all of them see more than one term


@pytest.mark.parametrize("tiers", [2, 3])
def test_step_falls_in_every_rate_and_rises_in_every_latency(tiers):
    rng, n = np.random.default_rng(7), 5_000
    workload, cluster, point = jobs(rng, n, tiers)
    time, names = log_step(workload, point), variables(cluster)
    before, moving = time(cluster), np.zeros(len(names), dtype=bool)
    for i, name in enumerate(names):
        logs = np.zeros((len(names), n))
        logs[i] = rng.uniform(0, 1.5, n)
        change = (time(moved(cluster, logs)) - before) * (-1 if name in RATES else 1)
        assert change.min() >= -1e-12, name
        moving[i] = change.max() > 1e-3
    assert moving.all(), [name for name, moves in zip(names, moving, strict=True) if not moves]


def _cheaper_of_two(law: collectives.Law, payload_bytes, sem, calls=1.0):
    """min(ring, tree): more bytes against more latency."""
    ring_s = law.seconds_per_byte * payload_bytes + 8.0 * calls * law.latency_s
    return np.minimum(ring_s, 3.0 * law.seconds_per_byte * payload_bytes + calls * law.latency_s)


def _slowed_by_overlap(compute_s, traffic_s, share, contention, sem):
    return np.maximum(compute_s, traffic_s) - contention * np.minimum(share * compute_s, traffic_s)


def _body_and_bubble(pipe, hops, microbatches, point, sem):
    """Body and bubble with a minus sign: a zero-bubble schedule without the bound of the first stage's own work."""
    plain, deep = pipe.plain, point.pipeline - 1
    return microbatches * plain.seconds + deep * (plain.forward_s + plain.backward_s - 3.0 * plain.weights_s)


MUTANTS = {
    "min of two algorithms": (traffic, "time_s", _cheaper_of_two),
    "difference of times": (import_module("costmodel.formulas.timing"), "overlapped_s", _slowed_by_overlap),
    "bubble with a minus sign": (import_module("costmodel.formulas.cost"), "pipeline_s", _body_and_bubble),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_illegal_forms_are_caught(mutant, monkeypatch):
    monkeypatch.setattr(*MUTANTS[mutant])
    rng, n = np.random.default_rng(3), 20_000
    workload, cluster, point = jobs(rng, n, 2)
    with np.errstate(invalid="ignore"):  # a mutant may even be negative
        gap = gaps(log_step(workload, point), cluster, rng, n)
    assert np.sum(gap > TOLERANCE) > 10
