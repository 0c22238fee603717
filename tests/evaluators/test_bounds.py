"""`Bounds` contains `Exact` everywhere in a box, equals it at points, and is tight on a model of a training step."""

import itertools
import operator

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costmodel.evaluators.bounds import Bounded, Bounds, Box, tightest
from costmodel.semantics import Exact, total

SEM, EXACT = Bounds(), Exact(np)

# --- Random expressions: nested tuples of an operation and its arguments. ---

BINARY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
NAMED = ("maximum", "exact_maximum", "minimum", "floor", "log2")
leaves = st.sampled_from(["t", "p", "b"]) | st.sampled_from([0.0, 0.25, 1.0, 2.0, 3.0, 8.0, -1.0, 1e3])


def _grow(inner):
    pairs = st.tuples(st.sampled_from([*BINARY, "maximum", "exact_maximum", "minimum"]), inner, inner)
    return pairs | st.tuples(st.sampled_from(["floor", "log2", "neg", "square", "cube", "root"]), inner)


expressions = st.recursive(leaves, _grow, max_leaves=12)
lows = st.fixed_dictionaries({name: st.sampled_from([0.5, 1.0, 2.0, 3.0, 7.0, 16.0]) for name in "tpb"})
widths = st.fixed_dictionaries({name: st.sampled_from([1.0, 1.5, 2.0, 4.0, 8.0]) for name in "tpb"})


def evaluate(expression, variables, sem):
    """The value of an expression under either semantics."""
    if not isinstance(expression, tuple):
        return variables[expression] if isinstance(expression, str) else np.float64(expression)
    name, *arguments = expression
    values = [evaluate(argument, variables, sem) for argument in arguments]
    if name in NAMED:
        return getattr(sem, name)(*values)
    if name in BINARY:
        return BINARY[name](*values)
    return -values[0] if name == "neg" else values[0] ** {"square": 2, "cube": 3, "root": 0.5}[name]


def exactly(expression, variables):
    """The exact value, where it and everything on the way is finite."""
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        try:
            return evaluate(expression, variables, EXACT)
        except FloatingPointError:
            return None


def bounded(expression, box):
    """The bounds; constants on their own may divide by zero, where `exactly` says None."""
    with np.errstate(all="ignore"):
        return evaluate(expression, box.variables(), SEM)


@given(expressions, lows, widths, st.lists(st.tuples(*[st.floats(0, 1)] * 3), min_size=1, max_size=8))
def test_contains_exact_at_every_point(expression, low, width, shares):
    points = [
        {n: np.float64(low[n] * (1 + s * (width[n] - 1))) for n, s in zip("tpb", point, strict=True)}
        for point in [*shares, *itertools.product((0.0, 1.0), repeat=3)]
    ]
    exact = [value for value in (exactly(expression, point) for point in points) if value is not None]
    box = Box(**{name: (low[name], low[name] * width[name]) for name in low})
    value = bounded(expression, box)
    assume(exact and isinstance(value, Bounded))
    for result in (value, bounded(expression, box.focused(value))):
        assert result.lower <= min(exact)
        assert result.upper >= max(exact)


@given(expressions, lows)
def test_equals_exact_at_points(expression, point):
    exact = exactly(expression, {name: np.float64(x) for name, x in point.items()})
    value = bounded(expression, Box(**{name: (x, x) for name, x in point.items()}))
    assume(exact is not None and isinstance(value, Bounded))
    np.testing.assert_allclose([value.lower, value.upper], [exact, exact], rtol=1e-12)


# --- Single operations. ---


def _range(value):
    return pytest.approx((float(value.lower), float(value.upper)), rel=1e-9, abs=1e-9)


def test_products_and_powers_are_exact():
    v = Box(t=(2.0, 8.0), p=(1.0, 4.0)).variables()
    assert _range(v["t"] * v["p"] / (v["t"] ** 2 * v["p"]) * v["t"]) == (1.0, 1.0)
    assert _range(v["t"] ** -1.5 * v["t"] ** 1.5) == (1.0, 1.0)
    assert _range((v["p"] / v["t"]) ** 0.5) == (8.0**-0.5, 2.0**0.5)


def test_sums_of_equal_monomials_are_exact():
    t = Box(t=(2.0, 8.0)).variable("t")
    assert _range((3.0 / t + 4.0 / t - 5.0 / t) * t) == (2.0, 2.0)


@pytest.mark.parametrize(("name", "below", "above"), [("minimum", (1, 0), (0, 8)), ("maximum", (0, 8), (1, 0))])
def test_the_side_that_wins_over_a_whole_box_is_the_result(name, below, above):
    """min(t, 8) is t, exponent included, in boxes below 8 and 8 in boxes above; also at the border itself."""
    t = Box(t=([1.0, 4.0, 8.0, 16.0], [4.0, 8.0, 16.0, 64.0])).variable("t")
    for value in (getattr(SEM, name)(t, 8.0), getattr(SEM, name)(8.0, t)):
        power, constant = np.array([below, below, above, above]).T
        np.testing.assert_array_equal(value.exponents["t"], power)
        np.testing.assert_allclose(value.lower, np.where(power, [1.0, 4.0, 8.0, 16.0], constant), rtol=1e-11)
        np.testing.assert_allclose(value.upper, np.where(power, [4.0, 8.0, 16.0, 64.0], constant), rtol=1e-11)


def test_placement_inside_a_domain_keeps_its_monomial():
    """max(1, min(g, S/s)) with g below the domain is g, so that what is divided by it cancels."""
    v = Box(g=(2.0, 4.0), s=(1.0, 2.0)).variables()
    inside = SEM.exact_maximum(1.0, SEM.minimum(v["g"], 8.0 / v["s"]))
    assert _range(inside / v["g"]) == (1.0, 1.0)


def test_degree_one_gives_zero_not_nan():
    t = Box(t=(1.0, 2.0)).variable("t")
    assert _range(t - 1) == (0.0, 1.0)
    assert _range((t - 1) / t) == (0.0, 0.5)
    assert _range(SEM.maximum(t - 1, 0.0 * t)) == (0.0, 1.0)
    one = Box(t=(1.0, 1.0)).variable("t")
    assert _range(SEM.maximum((one - 1) / one, one - 1)) == (0.0, 0.0)


def test_division_by_an_interval_with_zero_is_sound():
    t = Box(t=(1.0, 4.0)).variable("t")
    inverse = 1.0 / (t - 1)
    assert inverse.lower == pytest.approx(1 / 3)
    assert inverse.upper == np.inf
    both_signs, negative = 1.0 / (t - 2.0), 1.0 / (1.0 - t)
    assert (both_signs.lower, both_signs.upper) == (-np.inf, np.inf)
    assert negative.lower == -np.inf
    assert negative.upper == pytest.approx(-1 / 3)
    for value in (inverse - inverse, inverse * 0.0, both_signs * (t - 1)):
        assert value.lower <= 0.0 <= value.upper
    either = SEM.maximum(both_signs, inverse) + t
    assert 4 / 3 <= either.lower <= 3.0  # 1/(t - 1) + t has its minimum at t = 2
    assert either.upper == np.inf


@pytest.mark.parametrize("operation", BINARY.values())
@pytest.mark.parametrize("other", [3.0, 2, np.float64(3.0), np.array([1.0, 5.0]), np.array(2.0)])
def test_numbers_and_arrays_on_either_side(operation, other):
    low, high = np.array([2.0, 3.0]), np.array([4.0, 9.0])
    t = Box(t=(low, high)).variable("t")
    for value, ends in (
        (operation(t, other), [operation(low, other), operation(high, other)]),
        (operation(other, t), [operation(other, low), operation(other, high)]),
    ):
        assert isinstance(value, Bounded)
        np.testing.assert_allclose(value.lower, np.minimum(*ends), rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(value.upper, np.maximum(*ends), rtol=1e-11, atol=1e-11)


def test_plain_numbers_stay_plain_and_axes_broadcast():
    assert SEM.maximum(1.0, 2.0, 3.0) == 3.0
    assert SEM.minimum(1.0, 2.0) == 1.0
    assert SEM.floor(2.5) == 2.0
    assert SEM.log2(8.0) == 3.0
    v = Box(t=([[1.0], [2.0]], [[2.0], [4.0]]), p=([1.0, 2.0, 4.0], [2.0, 4.0, 8.0])).variables()
    assert total([v["t"], 1 / v["p"], SEM.minimum(v["t"], v["p"])]).lower.shape == (2, 3)


def test_an_empty_or_negative_range_is_refused():
    for low, high in ((2.0, 1.0), (0.0, 1.0), (-1.0, 1.0), (np.nan, 1.0)):
        with pytest.raises(ValueError, match="`t`"):
            Box(t=(low, high))


# --- Tightness, on a step of a 70B decoder on 1,024 accelerators with three tiers. ---

ACCELERATORS, BATCH, SEQUENCE, HIDDEN, FFN, KV, LAYERS, WORDS = (
    1024.0,
    512.0,
    4096.0,
    8192.0,
    28672.0,
    1024.0,
    80.0,
    128256.0,
)
FLOP_PER_S, HBM_BYTES_PER_S = 740e12, 2.85e12
TIERS = ((8.0, 400e9, 2e-6), (128.0, 45e9, 6e-6), (1e9, 20e9, 15e-6))  # size, bytes/s, latency
OPTIONS = (
    {"context": 1.0, "sequence_parallel": 1.0, "virtual": 1.0, "redo": 0.0, "hide": 0.8, "zero": 1, "waits": 1.0},
    {"context": 2.0, "sequence_parallel": 0.0, "virtual": 1.0, "redo": 1.0, "hide": 0.0, "zero": 3, "waits": 1.0},
    {"context": 4.0, "sequence_parallel": 1.0, "virtual": 4.0, "redo": 0.0, "hide": 1.0, "zero": 0, "waits": 0.0},
)


def _ring(group, stride, sem):
    """Seconds per byte of a hierarchical all-gather, and its latency; ranks of each tier with one max and one min."""
    inner, inverse, busy, latency = None, 1.0, [], 0.0
    for size, bandwidth, hop in TIERS:
        unit = stride if inner is None else sem.exact_maximum(stride, inner)
        ranks, inner = sem.exact_maximum(1.0, sem.minimum(group * stride, size) / unit), size
        inverse = inverse / ranks
        busy.append((ranks - 1) * inverse / bandwidth)
        latency = latency + ((ranks - 1) + sem.log2(ranks)) * hop
    return 0.8 * sem.maximum(*busy) + 0.2 * total(busy), latency + 8e-6 * sem.minimum(1.0, group - 1)


def _matmul_s(m, k, n, weight_bytes, sem):
    compute_s = 2.0 * m * k * n / FLOP_PER_S * (1 + 60.0 * (1 / m + 1 / k + 1 / n))
    return sem.maximum(compute_s, (2.0 * m * (k + n) + weight_bytes * k * n) / HBM_BYTES_PER_S) + 4e-6


def _sizes(t, b, option, sem):
    inverse = 1.0 / t
    share = (1 - option["sequence_parallel"]) + option["sequence_parallel"] * inverse
    return b * SEQUENCE / option["context"], inverse, share, sem.exact_maximum(inverse, 1.0 / 8) * KV


def _matrices(inverse, kv):
    return (
        (HIDDEN, HIDDEN * inverse + 2 * kv),
        (HIDDEN * inverse, HIDDEN),
        (HIDDEN, 2 * FFN * inverse),
        (FFN * inverse, HIDDEN),
    )


def _parameters(p, inverse, kv):
    return total(k * n for k, n in _matrices(inverse, kv)) * LAYERS / p + HIDDEN * WORDS * inverse


def layer_s(t, b, option, sem):
    """Forward and backward seconds of one layer: rooflines, tensor collectives, context ring with overlap."""
    rows, inverse, share, kv = _sizes(t, b, option, sem)
    forward_s = total(_matmul_s(rows, k, n, 2.0, sem) for k, n in _matrices(inverse, kv))
    weights_s = total(_matmul_s(rows, k, n, 8.0, sem) for k, n in _matrices(inverse, kv))
    scores_s = 2.6 * rows * SEQUENCE * HIDDEN * inverse / FLOP_PER_S
    attention_s = sem.maximum(scores_s, 2.0 * rows * (2 * HIDDEN * inverse + 2 * kv) / HBM_BYTES_PER_S)
    moved_s = rows * (24.0 * HIDDEN * share + 6.0 * FFN * inverse) / HBM_BYTES_PER_S + 3e-5
    s_per_byte, latency_s = _ring(t, 1.0, sem)
    sync_s = 4 * (s_per_byte * rows * HIDDEN * 2.0 + latency_s)
    s_per_byte, latency_s = _ring(option["context"], t, sem)
    ring_s = s_per_byte * rows * kv * 4.0 * option["context"] + option["context"] * latency_s
    once_s = forward_s + attention_s + moved_s
    back_s = forward_s + weights_s + 2.5 * attention_s + 1.5 * moved_s + option["redo"] * once_s
    back_s = sem.maximum(back_s, 2 * ring_s + (1 - option["hide"]) * back_s)
    return once_s + ring_s + sync_s + back_s + (1 + 0.5 * option["redo"]) * sync_s


def step_s(t, p, b, option, sem):
    """The pipeline with its transfers, and the gradient traffic beside it."""
    rows, inverse, share, kv = _sizes(t, b, option, sem)
    data = ACCELERATORS / (t * option["context"] * p)
    microbatches = BATCH / (data * b)
    head_s = 4 * _matmul_s(rows, HIDDEN, WORDS * inverse, 2.0, sem)
    stage_s = layer_s(t, b, option, sem) * (LAYERS / p) + head_s
    pipeline_s = (microbatches + (p - 1) / option["virtual"]) * stage_s
    hop_s = sem.minimum(1.0, p - 1) * (2.0 * rows * HIDDEN * share / TIERS[2][1] + TIERS[2][2])
    waits = (p - 1) * option["virtual"] + option["waits"] * sem.floor((microbatches - 1) * (p - 1) / p)
    s_per_byte, latency_s = _ring(data * option["context"], t, sem)
    gradient_s = 6.0 * _parameters(p, inverse, kv) * s_per_byte + 3 * latency_s
    step = sem.maximum(pipeline_s, gradient_s + (1 - option["hide"]) * pipeline_s) + 0.3 * gradient_s
    return step + 2 * hop_s * waits


def peak_bytes(t, p, b, option, sem):
    """Weights, gradients, states, activations of the microbatches in flight, logits."""
    rows, inverse, share, kv = _sizes(t, b, option, sem)
    data = ACCELERATORS / (t * option["context"] * p)
    ranks, zero = data * option["context"], option["zero"]
    held = total(size * ((zero < stage) + (zero >= stage) / ranks) for size, stage in ((2.0, 3), (4.0, 2), (12.0, 1)))
    layer = rows * (10 * HIDDEN * share + (4 * HIDDEN + 8 * FFN) * inverse + 4 * kv) * (1 - 0.7 * option["redo"])
    chunks = p * option["virtual"] + (p - 1) * (option["virtual"] - 1)
    live = sem.minimum(BATCH / (data * b) * option["virtual"], chunks) / option["virtual"]
    logits = 6.0 * rows * WORDS * inverse
    return _parameters(p, inverse, kv) * held + layer * live * LAYERS / p + logits + 1.5e9


def _boxes(factor, option):
    """Corners (t, p, b) of all boxes of powers of two whose every plan has data and microbatches of at least 1."""
    corners = itertools.product([1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0])
    for t, p, b in corners:
        ranks = option["context"] * t * p
        if ranks * factor**2 <= ACCELERATORS and BATCH * ranks >= ACCELERATORS * b * factor:
            yield t, p, b


def _tightness(quantity, factor, passes):
    """Lower bound over the true minimum of the box's plans; containment is asserted on the way, between plans too."""
    ratios = []
    for option in OPTIONS:
        low = np.array(list(_boxes(factor, option))).T
        steps = factor ** np.array(list(itertools.product(np.linspace(0, 1, 2 * round(np.log2(factor)) + 1), repeat=3)))
        values = quantity(*(low[:, :, None] * steps.T[:, None, :]), option, EXACT)
        on_lattice = (np.log2(steps) % 1 == 0).all(1)
        box = Box(**{name: (side, side * factor) for name, side in zip("tpb", low, strict=True)})
        lower, upper = tightest(lambda v, o=option: quantity(v["t"], v["p"], v["b"], o, SEM), box, passes)
        assert (lower <= values.min(1)).all()
        assert (upper >= values.max(1)).all()
        ratios.append(lower / values[:, on_lattice].min(1))
    return np.concatenate(ratios)


@pytest.mark.parametrize(
    ("quantity", "factor", "passes", "median", "least"),
    [
        (step_s, 2, 1, 0.92, 0.78),
        (step_s, 2, 4, 0.975, 0.8),
        (step_s, 4, 4, 0.91, 0.67),
        (peak_bytes, 2, 1, 0.98, 0.84),
        (peak_bytes, 4, 1, 0.95, 0.65),
    ],
)
def test_bounds_are_tight_on_a_training_step(quantity, factor, passes, median, least):
    ratios = _tightness(quantity, factor, passes)
    assert np.median(ratios) >= median
    assert ratios.min() >= least


@pytest.mark.parametrize("quantity", [step_s, peak_bytes])
@pytest.mark.parametrize("option", OPTIONS)
def test_a_training_step_at_points_is_exact(quantity, option):
    low = np.array(list(_boxes(1.0, option))).T
    box = Box(**{name: (side, side) for name, side in zip("tpb", low, strict=True)})
    value = quantity(*box.variables().values(), option, SEM)
    exact = quantity(*low, option, EXACT)
    np.testing.assert_allclose(value.lower, exact, rtol=1e-12)
    np.testing.assert_allclose(value.upper, exact, rtol=1e-12)
