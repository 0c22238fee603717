"""Views of tensors, operators that are divided, and plans of them: against sums by hand and products of matrices."""

import numpy as np
import pytest

from costmodel.exact import Exact
from costmodel.graph import Costs, run
from costmodel.graph.arranged import arrange
from costmodel.graph.layouts import cheapest
from costmodel.graph.views import Operator, Tensor, dependencies, layout_of, replicate, split, whole

X, W1, H = Tensor("x", (8, 4)), Tensor("w1", (4, 16)), Tensor("h", (8, 16))
W2, Y = Tensor("w2", (16, 4)), Tensor("y", (8, 4))
UP = Operator("up", "m k+, k+ f -> m f", (whole(X), whole(W1)), (whole(H),))
DOWN = Operator("down", "m f+, f+ n -> m n", (whole(H), whole(W2)), (whole(Y),))
READ = Operator("read", "m n^ -> m n^", (whole(Y),), (whole(Tensor("loss", (8, 4))),))


def computed(operators, inputs):
    """What the pieces compute together: each multiplies its views, and parts of sums are added."""
    tensors = {name: np.array(value, float) for name, value in inputs.items()}
    for operator in operators:
        (a, b), out = operator.reads, operator.writes[0]
        shaped = tensors.setdefault(out.tensor.name, np.zeros(out.tensor.shape))
        shaped[at(out)] += tensors[a.tensor.name][at(a)] @ tensors[b.tensor.name][at(b)]
    return tensors


def at(view):
    return tuple(slice(first, last) for first, last in view.box)


@pytest.mark.parametrize("up", ["m", "k", "f"])
@pytest.mark.parametrize("down", ["m", "f", "n"])
@pytest.mark.parametrize("pieces", [2, 4])
def test_pieces_compute_what_the_whole_does_and_wait_for_what_they_read(up, down, pieces):
    rng = np.random.default_rng(0)
    inputs = {t.name: rng.integers(0, 9, t.shape) for t in (X, W1, W2)}
    operators = [*split(UP, up, pieces), *split(DOWN, down, pieces)]
    np.testing.assert_array_equal(computed(operators, inputs)["y"], inputs["x"] @ inputs["w1"] @ inputs["w2"])
    found = {(i, j): elements for i, j, elements in dependencies(operators)}
    for j in range(pieces, 2 * pieces):
        for i in range(pieces):
            seen = np.zeros((2, *H.shape), bool)
            seen[0][at(operators[i].writes[0])] = seen[1][at(operators[j].reads[0])] = True
            assert found.get((i, j), 0) == (seen[0] & seen[1]).sum()


def test_megatron_reduces_once_and_data_parallelism_reduces_gradients():
    """Columns of one matrix, then rows of the next: nothing between them, one all-reduce behind, 2 (n - 1) / n."""
    up, down, read = split(UP, "f", 4), split(DOWN, "f", 4), replicate(READ, 4)
    assert layout_of([o.writes[0] for o in up]) == layout_of([o.reads[0] for o in down]) == (1, 1, 1, 4)
    start, end = layout_of([o.writes[0] for o in down]), layout_of([o.reads[0] for o in read])
    assert (start, end) == ((1, 4, 1, 1), (4, 1, 1, 1))
    way, cost = cheapest(start, end, Y.shape)
    assert ([step.primitive for step in way], cost) == (["all-reduce"], 1 + 2 * 3 / 4 * 32)
    gradient = Operator("dw", "m+ k, m+ f -> k f", (whole(X), whole(H)), (whole(Tensor("dw1", (4, 16))),))
    pieces = split(gradient, "m", 4)
    assert layout_of([o.writes[0] for o in pieces]) == (1, 4, 1, 1)
    assert layout_of([o.reads[1] for o in split(UP, "m", 4)]) == (4, 1, 1, 1)  # weights are replicated
    twice = [half for quarter in split(UP, "k", 2) for half in split(quarter, "m", 2)]
    assert layout_of([o.writes[0] for o in twice]) == (1, 2, 2, 1)


def test_a_pipeline_of_pieces_is_played():
    """Two microbatches over two devices: up takes 1, down 2, a message 0.5 for each; the second waits for the first."""
    operators = [*split(UP, "m", 2), *split(DOWN, "m", 2)]
    graph, order, messages = arrange(operators, [0, 0, 1, 1])
    assert list(messages) == [(0, 2, 64), (1, 3, 64)]
    costs = Costs(seconds=np.array([1.0, 1.0, 2.0, 2.0]), lags_s=np.array([0.5, 0.5]))
    found = run(graph, costs, Exact(np))
    assert dict(zip(order, found.ends_s.tolist(), strict=True)) == {0: 1.0, 1: 2.0, 2: 3.5, 3: 5.5}


def test_pieces_that_share_a_device_hold_less():
    """Co-shard: attention in four pieces one after the other on one device needs a quarter of its memory at a time."""
    scores = Operator("scores", "h m k+, h k+ n -> h m n", *_heads())
    peaks = []
    for pieces in (1, 4):
        operators = split(scores, "h", pieces)
        graph, *_ = arrange(operators, [0] * pieces)
        sizes = np.array([float(operator.writes[0].elements) for operator in operators])
        costs = Costs(seconds=np.ones(pieces), lags_s=np.zeros(0), taken_bytes=sizes, freed_bytes=sizes)
        peaks.append(run(graph, costs, Exact(np)).peak_bytes[0])
    assert peaks == [8 * 16 * 16, 2 * 16 * 16]


def _heads():
    query, key = Tensor("q", (8, 16, 4)), Tensor("k", (8, 4, 16))
    return (whole(query), whole(key)), (whole(Tensor("scores", (8, 16, 16))),)


def test_an_order_is_kept_and_a_wrong_one_is_named():
    operators = [*split(UP, "m", 2), *split(DOWN, "m", 2)]
    assert arrange(operators, [0] * 4)[1] == (0, 1, 2, 3)
    assert arrange(operators, [0] * 4, [(1, 0)])[1] == (1, 0, 2, 3)
    assert arrange(operators, [0] * 4, [(2, 1)])[1] == (0, 2, 1, 3)  # the first microbatch to its end
    with pytest.raises(ValueError, match="cycle: up.0 waits for down.0, down.0 waits for up.0"):
        arrange(operators, [0] * 4, [(2, 0)])
    with pytest.raises(ValueError, match="up.0 and down.1 are ordered; expected both on one device"):
        arrange(operators, [0, 0, 1, 1], [(0, 3)])
    with pytest.raises(ValueError, match="3 devices are given; expected one for each of 4 operators"):
        arrange(operators, [0, 0, 1])


@pytest.mark.parametrize(
    ("operator", "dimension", "pieces", "told"),
    [
        (UP, "m", 3, "operator up cannot be split by 'm' into 3; expected a divisor of 8, the length of it in x"),
        (UP, "z", 2, "operator up cannot be split by 'z', which it does not have: m k"),
        (READ, "n", 2, "operator read cannot be split by 'n', which stays whole"),
        (Operator("sum", "m n -> m", (whole(Y),), (whole(Tensor("s", (8,))),)), "n", 2, "'n', which no output has"),
    ],
)
def test_wrong_splits_are_one_line(operator, dimension, pieces, told):
    with pytest.raises(ValueError, match=told.replace("+", r"\+")):
        split(operator, dimension, pieces)


def test_uneven_pieces_are_no_layout():
    with pytest.raises(ValueError, match="the pieces of h form no layout"):
        layout_of([o.writes[0] for o in split(UP, "m", 2)] + [UP.writes[0]])


def test_parts_of_a_sum_meet_where_one_lies_in_the_other():
    quarters = [piece for half in split(DOWN, "f", 2) for piece in split(half, "f", 2)]
    assert [o.writes[0].part for o in quarters] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    half = Operator("half", "m n -> m n", (whole(Y)._replace(part=(1, 2)),), (whole(Tensor("z", (8, 4))),))
    other = half._replace(reads=(whole(Y)._replace(part=(3, 4)),))
    assert [producer for producer, _, _ in dependencies([*quarters, half])] == [2, 3]
    assert [producer for producer, _, _ in dependencies([*quarters, other])] == [3]
