"""`Bounds` over the whole cost function: contains `Exact`, equals it at points, and is tight (DESIGN section 5)."""

import dataclasses
import itertools

import numpy as np
import pytest

from costmodel.evaluators.bounds import Bounds, Box, tightest
from costmodel.evaluators.evaluate import prepare
from costmodel.formulas.cost import cost, parts
from costmodel.inputs.plan import Plan
from costmodel.semantics import Exact
from costmodel.specs.loading import load_cluster, load_workload

EXACT = Exact(np)
N = 4096


def with_second_memory(cluster):
    chip = dataclasses.replace(cluster.accelerator, second_memory_bytes=5e11, second_memory_bytes_per_s=1e11)
    return dataclasses.replace(cluster, accelerator=chip)


WORKLOADS = {name: load_workload(name) for name in ("llama3-405b", "gpt3-175b")}
CLUSTERS = {name: with_second_memory(load_cluster(name, accelerators=N)) for name in ("h100", "a100-80gb")}
OPTIONS = [
    {"sequence_parallel": True},
    {"zero_stage": 3},
    {"zero_stage": 2, "recompute": "full"},
    {"zero_stage": 0, "recompute": "selective", "attention": "unfused"},
    {"schedule": "zb_h1", "overlap_tensor": True, "recompute": "full"},
    {"schedule": "zb_h2", "sequence_parallel": True, "overlap_data": False},
    {"schedule": "zb_v", "zero_stage": 2, "overlap_pipeline": True},
    {"schedule": "gpipe", "recompute": "full", "recompute_share": 0.5, "overlap_pipeline": True},
    {"schedule": "interleaved", "virtual_stages": 2, "sequence_parallel": True},
    {"context": 2},
    {"context": 4, "context_kind": "all_to_all", "precision": "fp16"},
    {"zero_stage": 3, "overlap_tensor": True, "sequence_parallel": True, "fused_kernels": False},
    {"offload_weights": 0.5, "offload_optimizer": 1.0, "offload_activations": 0.25, "recompute": "full"},
    {"zero_stage": 3, "offload_weights": 1.0, "offload_activations": 1.0, "sequence_parallel": True},
]
NEEDS = {"zb_h1": 1, "zb_h2": 2, "zb_v": 2, "interleaved": 1}  # microbatches per stage, at the least
CASES = list(itertools.product(zip(WORKLOADS, CLUSTERS, strict=True), OPTIONS))


def draw(rng, factor, count, schedule):
    """Boxes in tensor, pipeline and microbatch, from powers of two, in which every plan has enough microbatches."""
    k = round(np.log2(factor))
    tensor, pipeline, microbatch = (2.0 ** rng.integers(0, top + 1 - k, 20 * count) for top in (3, 5, 2 + k // 2))
    needed = np.maximum(NEEDS.get(schedule, 0) * pipeline * factor, 1.0)
    legal = np.flatnonzero(batch(schedule) * tensor * pipeline / N >= needed * microbatch * factor)[:count]
    lows = {"tensor": tensor[legal], "pipeline": pipeline[legal], "microbatch": microbatch[legal]}
    return {name: (low, low * factor) for name, low in lows.items()}


def batch(schedule):
    """Sequences of a step: more where a schedule needs many microbatches."""
    return 65536 if schedule in NEEDS else 2048


def function(names, options, field):
    """The cost as a function of the box's variables, on arrays or on boxes."""
    plan = Plan(data=N // options.get("context", 1), **options)
    workload, cluster, point = prepare(WORKLOADS[names[0]], CLUSTERS[names[1]], plan)
    workload = dataclasses.replace(workload, batch=float(batch(plan.schedule)))

    def evaluate(variables):
        at = dataclasses.replace(point, accelerators=float(N), **variables)
        return getattr(cost(workload, cluster, at, Bounds()), field)

    return evaluate


def lattice_values(formula, ranges, factor):
    """The formula at every power of two in the boxes, exactly: plain arrays stay plain under `Bounds`."""
    steps = 2.0 ** np.arange(round(np.log2(factor)) + 1)
    values = []
    for scale in itertools.product(steps, repeat=3):
        values.append(formula({n: low * s for (n, (low, _)), s in zip(ranges.items(), scale, strict=True)}))
    return np.stack(np.broadcast_arrays(*values))


def tightness(field, factor, count=24):
    """Lower bound over the true minimum of the box's lattice points, of every case; containment on the way."""
    rng, ratios = np.random.default_rng(0), {}
    for names, options in CASES:
        ranges = draw(rng, factor, count, options.get("schedule"))
        formula = function(names, options, field)
        values = lattice_values(formula, ranges, factor)
        lower, upper = tightest(formula, Box(**ranges))
        assert (lower <= values.min(0)).all()
        assert (upper >= values.max(0)).all()
        ratios[names, str(options)] = lower / values.min(0)
    return ratios


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "factor", "median"),
    [("step_s", 2, 0.97), ("step_s", 4, 0.9), ("peak_bytes", 2, 0.97), ("peak_bytes", 4, 0.9)],
)
def test_bounds_are_tight(field, factor, median):
    ratios = tightness(field, factor)
    assert len(ratios) == len(CASES)
    assert np.median(np.concatenate(list(ratios.values()))) >= median


@pytest.mark.slow
@pytest.mark.parametrize("field", ["step_s", "peak_bytes"])
def test_ten_thousand_random_boxes_contain_the_exact_value(field):
    """Boxes of any size and place, not on the lattice; the value anywhere inside them."""
    rng = np.random.default_rng(1)
    for names, options in CASES:
        low = 2.0 ** rng.uniform(0, [[3], [4], [2]], (3, 500))
        high = low * 2.0 ** rng.uniform(0, 2, (3, 500))
        ranges = dict(zip(("tensor", "pipeline", "microbatch"), zip(low, high, strict=True), strict=True))
        formula = function(names, options, field)
        value = formula(Box(**ranges).variables())
        for _ in range(4):
            inside = low * (high / low) ** rng.uniform(0, 1, low.shape)
            exact = formula(dict(zip(ranges, inside, strict=True)))
            assert (value.lower <= exact).all(), options
            assert (value.upper >= exact).all(), options


@pytest.mark.parametrize("field", ["step_s", "peak_bytes"])
def test_at_points_bounds_are_the_exact_value(field):
    rng = np.random.default_rng(2)
    for names, options in CASES:
        at = dict(
            zip(("tensor", "pipeline", "microbatch"), 2.0 ** rng.integers(0, [[4], [5], [3]], (3, 50)), strict=True)
        )
        formula = function(names, options, field)
        value = formula(Box(**{name: (x, x) for name, x in at.items()}).variables())
        np.testing.assert_allclose(value.lower, formula(at), rtol=1e-12)
        np.testing.assert_allclose(value.upper, formula(at), rtol=1e-12)


def test_plain_arrays_under_bounds_are_exact():
    """What the other tests compare with is `Exact` itself, to the last bit."""
    names, options = CASES[0]
    plan = Plan(tensor=8, pipeline=4, data=N // 32, **options)
    workload, cluster, point = prepare(WORKLOADS[names[0]], CLUSTERS[names[1]], plan)
    assert cost(workload, cluster, point, Bounds()) == parts_cost(workload, cluster, point)


def parts_cost(workload, cluster, point):
    done = parts(workload, cluster, point, EXACT)
    return type(cost(workload, cluster, point, EXACT))(step_s=done.step.step_s, peak_bytes=done.memory.peak_bytes)


if __name__ == "__main__":  # the figures by case: python -m tests.evaluators.test_model_bounds
    for field, factor in (("step_s", 2), ("step_s", 4), ("peak_bytes", 2), ("peak_bytes", 4)):
        found = tightness(field, factor)
        print(field, f"x{factor} median {np.median(np.concatenate(list(found.values()))):.3f}")
        for case, values in found.items():
            print(f"   {np.median(values):.3f} worst {values.min():.3f} {len(values)} boxes {case}")
