r"""Gradients of every registered cost function under JIT, in float32 and float64.

Against central differences in float64 NumPy, in log coordinates: with $h = 2 \cdot 10^{-6}$ the differences round by
$10^{-16} / h \approx 10^{-10}$ and truncate by $h^2 f''' \approx 10^{-8}$ where degrees are 1.05 and larger (third
derivatives of $\log(n - 1)$). Kinks and jumps show as left and right differences that disagree; they are left out and
counted.
"""

import contextlib
import functools
import importlib
import math
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.formulas import collectives, roofline
from costmodel.formulas.counts import MatmulCount
from costmodel.inputs.embedding import embed
from costmodel.inputs.hardware import Tier
from costmodel.inputs.plan import Plan
from costmodel.inputs.stack import Stack
from costmodel.inputs.workload import model_flop
from costmodel.models.decoder import decoder
from costmodel.pytree import as_float
from tests.support import NIGHTLY
from tests.support.families import Args
from tests.support.interpreted import interpreted
from tests.support.jobs import job_args, job_of
from tests.support.registry import FAMILIES, REGISTRY
from tests.support.strategies import Array, cluster_batch, double, point_batch, sizes_batch

_POINT = embed(Plan(), decoder(layers=2, hidden=64, heads=2, ffn=64, vocabulary=64, sequence=8, batch=1), 8)
BATCH = 128
STEP = 2e-6
KINK = 1e-4
QUICK = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}  # compiles in a third of the time
UNCOMPILED = ("report", "float32")  # its terms compile for ten seconds; what they read is in "job"
CUTS = {  # functions of the composition whose results XLA must not fuse with what reads them
    "costmodel.formulas.cost": ("counts", "timing", "work", "memory"),
    "costmodel.formulas.timing": ("block_times", "_passes"),
}
DTYPES = {"float32": np.float32, "float64": np.float64}


def outputs(family: str) -> list[str]:
    return [name for name, entry in REGISTRY.items() if entry.family == family]


def stacked(family: str, args: Args, library, shape: tuple[int, ...]) -> Array:
    """All values of a family, entry by entry on the leading axis."""
    values = FAMILIES[family].call(args, Exact(library))
    return library.stack([library.broadcast_to(values[name], shape) for name in outputs(family)])


def apart(tree, legal):
    """`tree` behind a branch that is always taken, through which XLA does not fuse."""
    tree = jax.tree.map(lambda leaf: jnp.asarray(as_float(leaf)), tree)
    return jax.lax.cond(legal, lambda t: t, lambda t: jax.tree.map(lambda x: x * jnp.nan, t), tree)


@contextlib.contextmanager
def in_pieces(legal):
    """The composition cut where few numbers pass: whole, a job compiles for twice as long and takes 3 GiB."""

    def cutting(function):
        return lambda *given: apart(function(*given), legal)

    with pytest.MonkeyPatch.context() as patch:
        for home, names in CUTS.items():
            module = importlib.import_module(home)
            for name in names:
                patch.setattr(module, name, cutting(getattr(module, name)))
        yield


@functools.cache
def compiled(family: str, dtype: str):
    """Values and gradients, under JIT, of all entries of a family, for batches of `BATCH`, in one dtype."""

    by_numpy = family == UNCOMPILED[0] or (family == "job" and not NIGHTLY)

    def program(args, row):
        cut = family == "job" and not by_numpy
        with in_pieces(args["point.tensor"][0] > 0) if cut else contextlib.nullcontext():
            values, pull = jax.vjp(lambda a: stacked(family, a, jnp, (BATCH,)), args)
        return values, pull(row)[0]

    if by_numpy:
        program = interpreted(program)  # by day jobs are compiled by the README's example and as `evaluators` do
    else:
        program = jax.jit(program, compiler_options=QUICK if family == "job" else None)

    def call(args: Args, entries: tuple[str, ...] = ()) -> tuple[Array, dict[str, Array]]:
        names = outputs(family)
        with double() if dtype == "float64" else contextlib.nullcontext():
            given = {name: jnp.asarray(value, dtype=DTYPES[dtype]) for name, value in args.items()}
            rows = np.eye(len(names), dtype=DTYPES[dtype])[:, :, None] * np.ones(BATCH, DTYPES[dtype])
            answers = [jax.tree.map(np.asarray, program(given, rows[names.index(e)])) for e in entries or names]
        return answers[0][0].astype(float), {k: np.stack([g[k] for _, g in answers]).astype(float) for k in args}

    return call


def representable(args: Args) -> dict[str, Array]:
    """The arguments as float32 holds them, so that both dtypes are asked at one point."""
    return {name: np.asarray(value, dtype=np.float32).astype(float) for name, value in args.items()}


def units(args: Args) -> dict[str, Array]:
    """What one step in log is: the argument itself, and one where it is zero."""
    return {name: np.where(value == 0, 1.0, value) for name, value in args.items()}


def differences(family: str, args: Args) -> tuple[Array, Array]:
    """Left and right differences per unit of each argument: entries x arguments x points."""
    names, count = list(args), len(args)
    moved = {name: np.repeat(value[None, :], 2 * count + 1, axis=0) for name, value in args.items()}
    for i, name in enumerate(names):
        moved[name][2 * i] -= STEP * units(args)[name]
        moved[name][2 * i + 1] += STEP * units(args)[name]
    values = stacked(family, moved, np, (2 * count + 1, BATCH))
    middle = values[:, -1:, :]
    return (middle - values[:, 0:-1:2]) / STEP, (values[:, 1:-1:2] - middle) / STEP


def per_unit(gradients: dict[str, Array], args: Args) -> Array:
    """Gradients per unit of each argument: entries x arguments x points."""
    return np.stack([gradients[name] * units(args)[name] for name in args], axis=1)


def elasticities(family: str, args: Args, dtype: str) -> tuple[Array, Array, Array, Array]:
    """By autodiff, by differences and the disagreement of the two sides, over |value|; and the smooth ones' mask."""
    values, gradients = compiled(family, dtype)(args)
    assert np.isfinite(values).all()
    assert all(np.isfinite(g).all() for g in gradients.values()), [
        k for k, g in gradients.items() if not np.isfinite(g).all()
    ]
    left, right = differences(family, args)
    exact = stacked(family, args, np, (BATCH,))[:, None, :]
    scale = np.where(exact == 0, 1.0, np.abs(exact))
    gap = np.abs(right - left) / scale
    return per_unit(gradients, args) / scale, (left + right) / 2 / scale, gap, gap < KINK * (1 + np.abs(right) / scale)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype"), [pair for pair in product(FAMILIES, DTYPES) if pair != UNCOMPILED])
def test_gradients_equal_central_differences(family, dtype):
    args = representable(FAMILIES[family].sample(np.random.default_rng(11), BATCH))
    automatic, central, gap, smooth = elasticities(family, args, dtype)
    assert np.mean(~smooth) < 0.02  # kinks left out
    tolerance = 2e-4 if dtype == "float32" else 1e-6
    assert_close(automatic, central, tolerance * (1 + np.abs(central)) + gap, smooth, family, args)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", [family for family in FAMILIES if family != UNCOMPILED[0]])
def test_values_equal_numpy(family, dtype):
    args = representable(FAMILIES[family].sample(np.random.default_rng(12), BATCH))
    values, _ = compiled(family, dtype)(args, tuple(outputs(family)[:1]))
    assert_values(values, stacked(family, args, np, (BATCH,)), dtype)


def assert_values(values: Array, exact: Array, dtype: str) -> None:
    np.testing.assert_allclose(values, exact, rtol=2e-5 if dtype == "float32" else 1e-12, atol=0)


def assert_close(actual: Array, wanted: Array, tolerance: Array, smooth: Array, family: str, args: Args) -> None:
    """Equal within the tolerance wherever there is no kink; else the worst place by name."""
    excess = np.where(smooth, np.abs(actual - wanted) - tolerance, -np.inf)
    entry, argument, point = worst = np.unravel_index(np.argmax(excess), excess.shape)
    place = (outputs(family)[entry], list(args)[argument], {name: value[point] for name, value in args.items()})
    assert excess[worst] <= 0, (actual[worst], wanted[worst], place)


# the edges of the legal domain

ONE = {"tensor": 1.0, "context": 1.0, "pipeline": 1.0, "data": 1.0}
LARGE = {"tensor": 8.0, "context": 16.0, "pipeline": 16.0, "data": 64.0}  # 131,072 accelerators
MODEL = {"layers": 128, "heads": 160, "head_size": 160, "ffn": 102400, "vocabulary": 51200, "key_value_heads": 160}


def edge(degrees: dict[str, float], sequence: float, microbatches: float, **leaves: float) -> dict[str, Array]:
    """`BATCH` jobs with random options at given degrees; `leaves` by the end of their names."""
    rng = np.random.default_rng(5)
    point, _ = point_batch(rng, BATCH)
    args = job_args(sizes_batch(rng, BATCH), np.ones(BATCH), cluster_batch(rng, BATCH, 3), point)
    args |= {name: np.full(BATCH, float(size)) for name, size in MODEL.items()}
    args |= {f"point.{name}": np.full(BATCH, degree) for name, degree in degrees.items() if name != "data"}
    multiple = microbatches * degrees["pipeline"]  # legal for every schedule
    args["batch"] = degrees["data"] * multiple * args["point.microbatch"]
    args["sequence"] = np.full(BATCH, sequence)
    args["point.accelerators"] = np.full(BATCH, math.prod(degrees.values()))
    args["point.copies"] = np.ones(BATCH)
    for end, value in leaves.items():
        args |= {name: np.full(BATCH, value) for name in args if name.endswith(end)}
    return representable(args)


EDGES = {
    "every degree 1": edge(ONE, 4096, 8),
    "every degree 1, one microbatch": edge(ONE, 4096, 1),
    "every degree 1, 1e26 FLOP, 1e16 FLOP/s": edge(ONE, 32768, 1e9, bit_flop_per_s=1e16),
    "131,072 accelerators": edge(LARGE, 8192, 4),
    "131,072 accelerators, 1e26 FLOP, 1e16 FLOP/s": edge(LARGE, 32768, 1e6, bit_flop_per_s=1e16),
    "no latency": edge(LARGE, 8192, 4, latency_s=0.0, collective_s=0.0, kernel_s=0.0),
    "no latency, every degree 1": edge(ONE, 8192, 4, latency_s=0.0, collective_s=0.0, kernel_s=0.0, step_s=0.0),
}


COSTS = ("cost.cost:step_s", "cost.cost:peak_bytes", "breakdown.Breakdown:mfu", "breakdown.Breakdown:tokens_per_s")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", EDGES)
def test_values_equal_numpy_at_the_edges(name, dtype):
    values, _ = compiled("job", dtype)(EDGES[name], COSTS[:1])
    assert_values(values, stacked("job", EDGES[name], np, (BATCH,)), dtype)


def edge_elasticities(args: Args, dtype: str) -> Array:
    """Of the costs by autodiff, all finite: costs x arguments x points."""
    values, gradients = compiled("job", dtype)(args, COSTS)
    assert np.isfinite(values).all()
    assert [name for name, gradient in gradients.items() if not np.isfinite(gradient).all()] == []
    scale = np.abs(values[[outputs("job").index(name) for name in COSTS]])
    return per_unit(gradients, args) / scale[:, None, :]


def jittered(args: Args, seed: int) -> dict[str, Array]:
    """Sizes and hardware moved by as much as float32 may round them; degrees and options stay where they are."""
    rng = np.random.default_rng(seed)
    free = [name for name in args if not name.startswith("point.")]
    return {**args, **{name: args[name] * (1 + rng.uniform(-1e-5, 1e-5, BATCH)) for name in free}}


@pytest.mark.parametrize("name", EDGES)
def test_float32_gradients_equal_float64_ones_at_the_edges(name):
    """Finite everywhere, and no denominator leaves float32 (a gradient would silently be zero).

    Where two candidates of a maximum are equal to float32's rounding, it may pick either: what counts is that it lies
    between the float64 gradients around the point. Degrees, domains and one microbatch stand on their kinks: any share
    is a subgradient there.
    """
    args = EDGES[name]
    single = edge_elasticities(args, "float32")
    around = np.stack([edge_elasticities(jittered(args, seed), "float64") for seed in range(6)])
    low, high = around.min(axis=0), around.max(axis=0)
    excess = np.maximum(low - single, single - high) - 1e-3 * np.maximum(np.abs(low), np.abs(high)) - 1e-5
    free = np.array(
        [
            not (leaf.startswith("point.") or leaf == "batch" or leaf.endswith((".size", ".usable_size")))
            for leaf in args
        ]
    )
    cost_, argument, point = worst = np.unravel_index(np.argmax(excess * free[:, None]), excess.shape)
    assert excess[worst] <= 0, (COSTS[cost_], list(args)[argument], point, single[worst], low[worst], high[worst])


def test_the_edges_reach_1e26_flop():
    for name, args in EDGES.items():
        if "1e26" in name:
            workload, _, _ = job_of(args)
            assert (model_flop(workload) * workload.batch).min() > 1e26


@pytest.mark.parametrize("name", EDGES)
def test_utilisation_falls_with_the_peak(name):
    """d log MFU / d log peak: -1 where compute does not limit the step, up to 0 where nothing else does."""
    peak = list(EDGES[name]).index("cluster.accelerator.peak_16bit_flop_per_s")
    for dtype in DTYPES:
        slope = edge_elasticities(EDGES[name], dtype)[COSTS.index("breakdown.Breakdown:mfu"), peak]
        assert slope.max() <= 1e-5
        assert slope.min() >= -1 - 1e-5
        assert slope.mean() < -1e-3


# by hand


def _all_gather_s(bandwidth_bytes_per_s):
    """Four ranks on one tier, a payload of 1e9 bytes, no latency, links at full rate."""
    tier = Tier(name="", size=8.0, usable_size=8.0, bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=0.0)
    stack = Stack(link_ceiling=1.0, collective_s=0.0)
    law = collectives.all_gather((4.0,), (tier,), stack, Exact(jnp))
    return collectives.time_s(law, 1e9, Exact(jnp))


def test_all_gather_by_hand():
    # T = S (n - 1) / (n beta), dT/dbeta = -S (n - 1) / (n beta^2) = -1e9 * 0.75 / 1e22
    np.testing.assert_allclose(jax.jit(jax.grad(_all_gather_s))(1e11), -7.5e-14, rtol=1e-6)


def _matmul_s(m):
    """m x 1000 x 1000 at 1e12 FLOP/s, with a half-performance size of 100."""
    count = MatmulCount(
        name="", flop=2e6 * m, operand_bytes=0.0, weight_elements=0.0, reciprocal_sizes=1 / m + 1 / 1000 + 1 / 1000
    )
    speed = roofline.Rates(
        matmul_s_per_flop=1e-12, attention_s_per_flop=1.0, memory_s_per_byte=1.0, update_s_per_flop=1.0,
        matmul_fill_s_per_flop=1e-12,
    )  # fmt: skip
    return roofline.matmul_s(count, _POINT, speed, Stack(matmul_size0=100.0), Exact(jnp))[0]


def test_matmul_by_hand():
    # T = 2e6 m (1 + 100 / m + 0.2) / 1e12 + constant, dT/dm = 2e-6 * 1.2
    np.testing.assert_allclose(jax.jit(jax.grad(_matmul_s))(500.0), 2.4e-6, rtol=1e-5)


def test_exact_gives_the_derivative_to_one_argument():
    """At ties the first one, whatever their types; a maximum and a minimum of the same arguments choose by value."""
    first, second = jnp.asarray([1.0, 2.0, 3.0, 0.0]), jnp.asarray([2.0, 2.0, 1.0, 0.0])
    for choose, mine in ((Exact(jnp).maximum, [0, 1, 1, 1]), (Exact(jnp).minimum, [1, 1, 0, 1])):
        value, pull = jax.vjp(jax.jit(choose), first, second)
        np.testing.assert_array_equal(pull(jnp.ones_like(value)), [mine, 1 - np.array(mine)])
    slope = jax.grad(lambda x: Exact(jnp).maximum(jnp.arange(4), x, 1).sum())
    assert slope(1.5) == 2


def test_one_trace_serves_all_plans_and_clusters():
    traces = []

    @jax.jit
    def step_s(args):
        traces.append(1)
        return FAMILIES["job"].call(args, Exact(jnp))["cost.cost:step_s"]

    for args in EDGES.values():
        step_s.trace({name: jnp.asarray(v, jnp.float32) for name, v in args.items()})
    assert len(traces) == 1
