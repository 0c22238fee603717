"""The same layouts as the cost model sees them: from the cluster file of `measure` alone, and after a few of them."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

import costmodel
from costmodel.inputs import Cluster
from costmodel.measured import Case, calibrate, carried, own_constants
from experiments.real_steps.layouts import Layout


def predicted(layout: Layout, cluster: Cluster) -> tuple[float, float]:
    """Seconds of a step, and bytes of its tensors on one device, by `costmodel.evaluate`."""
    found = costmodel.evaluate(layout.model.workload, cluster, layout.plan)
    return float(found.step_s), float(found.memory.peak_bytes)


def case(layout: Layout, cluster: Cluster, measured_step_s: float | None) -> Case:
    """A measured layout as `calibrate` takes it."""
    return Case(
        row={"layout": layout.name},
        source="real_steps",
        family="node",
        fabric="node",
        stack=cluster.stack.software,
        workload=layout.model.workload,
        cluster=cluster,
        plan=layout.plan,
        facts={},
        assumed=(),
        open=(),
        measured_step_s=measured_step_s,
        measured_mem_bytes=None,
        oom=False,
    )


def after(
    given: Sequence[Layout], measured: Mapping[str, float], clusters: Mapping[int, Cluster]
) -> dict[int, Cluster]:
    """The clusters, by the number of devices, after some layouts were given to `calibrate`."""
    cases = [case(layout, clusters[layout.devices], measured[layout.name]) for layout in given]
    before = cases[0].cluster.stack
    stack = calibrate(cases, own_constants(before)).stack
    return {devices: carried(before, stack, cluster) for devices, cluster in clusters.items()}


def subsets(known: Sequence[Layout], rows: int, count: int, seed: int) -> list[tuple[Layout, ...]]:
    """So many different sets of layouts, drawn without favour."""
    random, chosen = np.random.default_rng(seed), dict[tuple[int, ...], None]()
    possible = len(list(itertools.islice(itertools.combinations(known, rows), count)))
    while len(chosen) < possible:
        chosen[tuple(sorted(random.choice(len(known), rows, replace=False).tolist()))] = None
    return [tuple(known[i] for i in places) for places in chosen]


def kendall_tau(measured: Sequence[float], said: Sequence[float]) -> float:
    """Pairs in the right order less those in the wrong one, over all that differ."""
    signs = [
        np.sign((a - b) * (c - d)) for (a, c), (b, d) in itertools.combinations(zip(measured, said, strict=True), 2)
    ]
    return float(np.sum(signs) / max(1, np.count_nonzero(signs)))
