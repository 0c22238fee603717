"""Layouts of tensors and the communication between them: published values, and another shortest path."""

import itertools
import math

import numpy as np
import pytest

from costmodel.graph.layouts import cheapest, cheapest_across, elements, layouts, seconds_on
from costmodel.specs import load_cluster

SQUARE = (1024, 1024)  # 2^20 elements

PUBLISHED = {  # on four devices, each step one more: nnScaler's edge costs
    ((1, 4, 1, 1), (4, 1, 1, 1)): (1_572_865, ["all-reduce"]),
    ((1, 1, 4, 1), (4, 1, 1, 1)): (786_433, ["all-gather"]),
    ((1, 4, 1, 1), (1, 1, 4, 1)): (786_433, ["reduce-scatter"]),
    ((1, 1, 4, 1), (1, 1, 1, 4)): (196_609, ["all-to-all"]),
    ((4, 1, 1, 1), (1, 1, 4, 1)): (1, ["chunk"]),
    ((1, 2, 2, 1), (4, 1, 1, 1)): (1_048_578, None),
    ((1, 1, 2, 2), (1, 1, 4, 1)): (131_073, ["all-to-all"]),
    ((2, 1, 2, 1), (1, 1, 1, 4)): (131_074, None),
}


@pytest.mark.parametrize(("start", "end"), PUBLISHED)
def test_published_costs(start, end):
    cost, primitives = PUBLISHED[start, end]
    way, spent = cheapest(start, end, SQUARE)
    assert spent == cost
    if primitives is not None:
        assert [step.primitive for step in way] == primitives
    assert way[-1].layout == end


@pytest.mark.parametrize(("devices", "dimensions", "count"), [(8, 2, 20), (8, 3, 35), (32, 3, 126)])
def test_published_numbers_of_layouts(devices, dimensions, count):
    assert len(layouts(devices, (1024,) * dimensions)) == count


def test_a_slow_link_is_crossed_once_by_every_element():
    """Four copies for four readers would cross it four times: each sends a quarter, and the readers gather."""
    way, spent = cheapest_across((4, 1, 1, 1), (4, 1, 1, 1), SQUARE)
    whole = 2**20
    assert [step.primitive for step in way] == ["chunk", "move", "all-gather"]
    assert [step.elements * step.devices for step in way if step.crosses] == [whole]
    assert spent == 3 + whole + 3 * whole / 4


def edges(shape, nodes):
    """Costs between all layouts by the rules of the table, pair by pair."""
    size = math.prod(shape)
    for a, b in itertools.permutations(nodes, 2):
        changed = [i for i in range(len(a)) if a[i] != b[i]]
        if len(changed) != 2:
            continue
        down, up = changed if a[changed[0]] > b[changed[0]] else changed[::-1]
        if a[down] % b[down] or b[up] % a[up] or a[down] * a[up] != b[down] * b[up]:
            continue
        c, x = a[down] // b[down], size / math.prod(a[2:])
        if down >= 2 and up == 1:
            continue
        if down == 0:
            yield a, b, 1.0
        elif up == 0:
            yield a, b, 1 + ((c - 1) * x if down >= 2 else 2 * (c - 1) * x / c)
        else:
            yield a, b, 1 + (c - 1) * x / c


def all_costs(shape, nodes):
    """Floyd and Warshall."""
    index = {node: i for i, node in enumerate(nodes)}
    cost = np.full((len(nodes), len(nodes)), np.inf)
    np.fill_diagonal(cost, 0.0)
    for a, b, value in edges(shape, nodes):
        cost[index[a], index[b]] = value
    for k in range(len(nodes)):
        cost = np.minimum(cost, cost[:, k, None] + cost[None, k])
    return cost


def test_what_is_no_layout_is_named():
    for start in ((1, 1, 3, 1), (1, 4, 1), (0, 1, 1, 1)):
        with pytest.raises(ValueError, match=r"is no layout of a tensor of \(8, 8\); expected replicas"):
            cheapest(start, (4, 1, 1, 1), (8, 8))


def test_a_thousand_random_ways_are_shortest():
    rng, cases = np.random.default_rng(0), 0
    while cases < 1000:
        devices = int(rng.choice([2, 4, 6, 8, 12, 16]))
        shape = tuple(int(2 ** rng.integers(0, 6) * rng.choice([1, 3])) for _ in range(rng.integers(1, 4)))
        nodes = layouts(devices, shape)
        expected = all_costs(shape, nodes)
        for i, j in rng.integers(0, len(nodes), (50, 2)).tolist():
            if np.isfinite(expected[i, j]):
                assert cheapest(nodes[i], nodes[j], shape)[1] == pytest.approx(expected[i, j], rel=1e-12)
            else:
                with pytest.raises(ValueError, match="no communication turns layout"):
                    cheapest(nodes[i], nodes[j], shape)
            cases += 1


def test_layouts_hold_the_tensor():
    for layout in layouts(12, (6, 4)):
        assert math.prod(layout) == 12
        assert all(n % d == 0 for n, d in zip((6, 4), layout[2:], strict=True))
        assert elements(layout, (6, 4)) * math.prod(layout[2:]) == 24


def test_a_way_in_seconds_sees_the_tiers():
    """Eight ranks of one machine, or of eight."""
    cluster = load_cluster("h100", accelerators=64)
    inside, across = (seconds_on(cluster, 2.0, stride) for stride in (1, 8))
    start, end = (1, 1, 8, 1), (8, 1, 1, 1)
    assert cheapest(start, end, (8192, 8192), across)[1] > 3 * cheapest(start, end, (8192, 8192), inside)[1]
    assert cheapest(end, start, (8192, 8192), across)[1] == 0.0  # every rank has its part already
    _, reduced = cheapest((1, 8, 1, 1), end, (8192, 8192), inside)
    assert reduced <= sum(inside(step) for step in cheapest((1, 8, 1, 1), end, (8192, 8192))[0])


def test_gathering_takes_what_scattering_the_same_sums_takes():
    """Each rank sends and receives seven eighths of the whole tensor, either way."""
    seconds = seconds_on(load_cluster("h100", accelerators=64), 2.0)
    gathered = cheapest((1, 1, 8, 1), (8, 1, 1, 1), (8192, 8192), seconds)[1]
    scattered = cheapest((1, 8, 1, 1), (1, 1, 8, 1), (8192, 8192), seconds)[1]
    assert gathered == pytest.approx(scattered)
    assert gathered > 7 / 8 * 8192**2 * 2.0 / 450e9  # over NVLink's 450 GB/s in each direction
