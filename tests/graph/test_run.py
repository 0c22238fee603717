"""The longest path through an order: against operations played one at a time, finite differences and counts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from costmodel.exact import Exact
from costmodel.graph import Costs, graph_of, makespan_s, pipeline, run
from costmodel.graph.pipelines import orders
from costmodel.graph.play import order, play
from costmodel.inputs.schedules import SCHEDULES
from tests.graph.test_play import legal_shapes
from tests.oracles.orders import live, played, producers
from tests.support.strategies import double

NUMPY, JAX = Exact(np), Exact(jnp)


@given(shape=legal_shapes(), seed=st.integers(0, 1000), transfer_s=st.floats(0, 3), hidden=st.floats(0, 1))
def test_schedules_are_played_as_one_operation_at_a_time(shape, seed, transfer_s, hidden):
    """Every start and end, bit by bit, with chunks that all differ and two kinds of transfers."""
    schedule, stages, microbatches, virtual = shape
    assume(SCHEDULES[schedule].ways == 1)  # whose operations have several parts: below
    entry = SCHEDULES[schedule]
    chunks = stages * virtual
    seconds = dict(zip("FBW", np.random.default_rng(seed).uniform(0.5, 2, (3, chunks)).tolist(), strict=True))
    if not entry.splits:
        seconds["W"] = [0.0] * chunks
    steady_s = (1 - hidden) * transfer_s
    busy_s = steady_s if entry.interleaves and stages > 1 else 0.0  # such devices wait while they exchange

    def waits(task):
        lone = task.microbatch == {"F": 0, "B": microbatches - 1}.get(task.kind, -1)
        for needed in producers(task, chunks):
            away = entry.device_of(needed.chunk, stages) != entry.device_of(task.chunk, stages)
            yield needed, away * ((transfer_s if lone else steady_s) - busy_s)

    def takes(task):
        return seconds[task.kind][task.chunk] + (busy_s if task.kind in "FB" else 0.0)

    expected = played(order(*shape), takes, lambda t: tuple(waits(t)))
    passes = {"forward_s": seconds["F"], "backward_s": seconds["B"], "weight_s": seconds["W"]}
    found = play(*shape, **passes, transfer_s=transfer_s, steady_transfer_s=steady_s)
    for tasks, starts_s, ends_s in zip(found.order, found.starts_s, found.ends_s, strict=True):
        assert [expected[task] for task in tasks] == list(zip(starts_s, ends_s, strict=True))
    assert found.makespan_s == max(end for _, end in expected.values())


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 10), (6, 12)])
def test_operations_of_several_parts_wait_for_all_of_them(stages, microbatches):
    """DualPipe with chunks that all differ: what runs together starts when all its inputs are there."""
    rng, ways = np.random.default_rng(stages), 2
    seconds = dict(zip("FBW", rng.uniform(0.5, 2, (3, stages)).tolist(), strict=True))
    hidden, device_of = rng.uniform(0, 0.4, stages).tolist(), SCHEDULES["dualpipe"].device_of
    given_orders = orders("dualpipe", stages, microbatches)
    numbers, tasks = given_orders.operations, [t for own in order("dualpipe", stages, microbatches) for t in own]
    parts = {n: [t for t, i in zip(tasks, numbers, strict=True) if i == n] for n in numbers.tolist()}
    home = dict(zip(tasks, numbers.tolist(), strict=True))

    def seconds_of(number):
        kinds = {task.kind for task in parts[number]}
        whole_s = sum(seconds[t.kind][t.chunk % stages] for t in parts[number])
        both = [t.chunk % stages for t in parts[number] if t.kind in "FB"] if {"F", "B"} <= kinds else []
        return whole_s - sum(0.5 * hidden[chunk] for chunk in both)

    def waits(number):
        found = []
        for task in parts[number]:
            lone = task.microbatch % (microbatches // 2) == {"F": 0, "B": microbatches // 2 - 1}.get(task.kind, -1)
            for needed in producers(task, ways * stages, ways):
                away = device_of(needed.chunk, stages) != device_of(task.chunk, stages)
                if home[needed] != number:
                    found.append((home[needed], away * (0.3 if lone else 0.1)))
        return found

    listed = [np.unique(numbers[given_orders.devices == d]).tolist() for d in range(stages)]
    expected = played(listed, seconds_of, waits)
    passes = {"forward_s": seconds["F"], "backward_s": seconds["B"], "weight_s": seconds["W"]}
    found = play("dualpipe", stages, microbatches, **passes, hidden_s=hidden, transfer_s=0.3, steady_transfer_s=0.1)
    for own, starts_s, ends_s in zip(found.order, found.starts_s, found.ends_s, strict=True):
        times = list(zip(starts_s, ends_s, strict=True))
        np.testing.assert_allclose(times, [expected[home[task]] for task in own], rtol=1e-12)


def random_order(seed: int, devices: int = 5, count: int = 60):
    """Operations in a random order, each waiting for up to four earlier ones anywhere; as a graph and by name."""
    rng = np.random.default_rng(seed)
    device = np.sort(rng.integers(0, devices, count))
    device[:devices] = np.arange(devices)
    device.sort()
    rank = np.empty(count, int)
    for d in range(devices):  # numbers in time, which rise on each device
        rank[device == d] = np.sort(rng.uniform(0, 1e6, (device == d).sum()).astype(int))
    edges = []
    for i in range(count):
        earlier = np.flatnonzero(rank < rank[i])
        for j in rng.choice(earlier, min(len(earlier), rng.integers(0, 5)), replace=False):
            edges.append((j, i, 0 if device[i] == device[j] else rng.integers(0, 3)))
    rng.shuffle(edges)
    kinds = rng.integers(0, 7, count)
    built = graph_of(device, kinds, np.array(edges, int).reshape(-1, 3).T)
    return built, device, kinds, edges


def costs_of(rng, *batch):
    seconds, lags_s = rng.uniform(0.5, 2, (7, *batch)), rng.uniform(0.1, 1, (2, *batch))
    taken, freed = rng.uniform(0, 3, 7), rng.uniform(0, 3, 7)
    return Costs(seconds=seconds, lags_s=lags_s, taken_bytes=taken, freed_bytes=freed)


def expected_times(device, kinds, edges, costs):
    orders = [np.flatnonzero(device == d).tolist() for d in range(device.max() + 1)]
    lag_s = [0.0, *costs.lags_s.tolist()]
    waits = {i: [(j, lag_s[lag]) for j, k, lag in edges if k == i] for i in range(len(device))}
    return orders, played(orders, lambda i: costs.seconds[kinds[i]].item(), waits.__getitem__)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_played_as_one_operation_at_a_time(seed):
    built, device, kinds, edges = random_order(seed)
    costs = costs_of(np.random.default_rng(seed))
    orders, times = expected_times(device, kinds, edges, costs)
    found = run(built, costs, NUMPY)
    starts_s, ends_s = np.array([times[i] for i in range(len(device))]).T
    np.testing.assert_array_equal(found.starts_s, starts_s)
    np.testing.assert_array_equal(found.ends_s, ends_s)
    assert found.makespan_s == makespan_s(built, costs, NUMPY) == ends_s.max()
    held = [live(o, lambda i: costs.taken_bytes[kinds[i]], lambda i: costs.freed_bytes[kinds[i]]) for o in orders]
    np.testing.assert_allclose(found.held_bytes, np.concatenate(held), atol=1e-12)
    np.testing.assert_allclose(found.peak_bytes, [max(each) for each in held], atol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_a_device_is_busy_or_idle_for_a_cause(seed):
    built, device, kinds, edges = random_order(seed)
    costs = costs_of(np.random.default_rng(seed))
    orders, times = expected_times(device, kinds, edges, costs)
    found, lag_s = run(built, costs, NUMPY), [0.0, *costs.lags_s.tolist()]
    for d, own in enumerate(orders):
        transfer_s = producer_s = 0.0
        for before, i in zip(own, own[1:], strict=False):
            wait_s = times[i][0] - times[before][1]
            arrivals = [(times[j][1] + lag_s[lag], lag_s[lag]) for j, k, lag in edges if k == i and device[j] != d]
            under_way_s = min(wait_s, max(arrivals)[1]) if wait_s else 0.0
            transfer_s, producer_s = transfer_s + under_way_s, producer_s + wait_s - under_way_s
        causes = (times[own[0]][0], producer_s, transfer_s, found.makespan_s - times[own[-1]][1])
        np.testing.assert_allclose([each[d] for each in found.idle], causes, atol=1e-9)
        np.testing.assert_allclose(found.busy_s[d], sum(costs.seconds[kinds[i]] for i in own))
    np.testing.assert_allclose(found.busy_s + sum(found.idle), found.makespan_s)


def test_jax_gives_what_numpy_gives_and_a_batch_what_its_members_give():
    built, *_ = random_order(3)
    costs = costs_of(np.random.default_rng(0), 4)
    with double():
        together = run(built, costs, NUMPY), jax.jit(lambda g, c: run(g, c, JAX))(built, costs)
        for member in range(4):
            one = Costs(
                seconds=costs.seconds[:, member],
                lags_s=costs.lags_s[:, member],
                taken_bytes=costs.taken_bytes,
                freed_bytes=costs.freed_bytes,
            )
            alone = run(built, one, NUMPY)
            for found in together:
                for name in ("makespan_s", "starts_s", "ends_s", "busy_s"):
                    np.testing.assert_allclose(getattr(found, name)[..., member], getattr(alone, name), rtol=1e-12)
                np.testing.assert_allclose(found.peak_bytes, alone.peak_bytes, rtol=1e-12)
                for cause, expected in zip(found.idle, alone.idle, strict=True):
                    np.testing.assert_allclose(cause[..., member], expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_of_the_makespan_is_the_critical_path(seed):
    """Against finite differences in every duration and every lag; whole numbers, and they sum to the makespan."""
    built, *_ = random_order(seed)
    costs = costs_of(np.random.default_rng(seed), 3)

    def total_s(seconds, lags_s):
        return makespan_s(built, Costs(seconds=seconds, lags_s=lags_s), JAX)

    with double():
        slopes = jax.jit(jax.grad(lambda *x: total_s(*x).sum(), argnums=(0, 1)))(costs.seconds, costs.lags_s)
        for slope in slopes:
            np.testing.assert_array_equal(slope, np.round(slope))
        sums = sum((s * x).sum(0) for s, x in zip(slopes, (costs.seconds, costs.lags_s), strict=True))
        np.testing.assert_allclose(sums, total_s(costs.seconds, costs.lags_s), rtol=1e-12)
        for which, (given, slope) in enumerate(zip((costs.seconds, costs.lags_s), slopes, strict=True)):
            for place in np.ndindex(given.shape):
                ends = []
                for step in (1e-6, -1e-6):
                    moved = [costs.seconds.copy(), costs.lags_s.copy()]
                    moved[which][place] += step
                    ends.append(makespan_s(built, Costs(seconds=moved[0], lags_s=moved[1]), NUMPY)[place[1:]])
                np.testing.assert_allclose((ends[0] - ends[1]) / 2e-6, slope[place], atol=1e-6)


def test_the_critical_path_of_gpipe():
    """All forwards of the first stage, the way down, the way back: (m + p - 1)(f + b) and 2(p - 1) transfers."""
    costs = Costs(seconds=np.array([1.0] * 4 + [2.0] * 4 + [0.0] * 4), lags_s=np.array([0.1, 0.1]))
    built, _ = pipeline("gpipe", 4, 8)
    slopes = jax.grad(lambda s, t: makespan_s(built, Costs(seconds=s, lags_s=t), JAX), argnums=(0, 1))(
        jnp.asarray(costs.seconds), jnp.asarray(costs.lags_s)
    )
    assert [slopes[0][:4].sum(), slopes[0][4:8].sum(), slopes[1].sum()] == [11, 11, 6]


def cycle(first, second):
    """Two devices of two operations; the first of each waits for the second of the other."""
    edges = np.array([first, second])
    zeros = np.zeros(4, int)
    return graph_of(np.array([0, 0, 1, 1]), zeros, np.array([*edges.T, zeros[:2]]), name="abcd".__getitem__)


def test_a_cycle_is_named():
    told = "cycle: a waits for d, which its device runs after c, c waits for b, which its device runs after a"
    with pytest.raises(ValueError, match=told):
        cycle((3, 0), (1, 2))
    with pytest.raises(ValueError, match="device 0 runs a before b, whose result it reads"):
        cycle((1, 0), (1, 2))


def test_a_message_that_arrives_late_enough_is_waited_for():
    # a on 0 ends at 2; b on 1 starts at 2.5 and ends at 5.5
    built = graph_of(np.array([0, 1]), np.array([0, 1]), np.array([[0], [1], [1]]))
    found = run(built, Costs(seconds=np.array([2.0, 3.0]), lags_s=np.array([0.5])), NUMPY)
    assert found.ends_s.tolist() == [2.0, 5.5]
    assert [each.tolist() for each in found.idle] == [[0, 2.5], [0, 0], [0, 0], [3.5, 0]]


@pytest.mark.parametrize("seed", range(5))
def test_many_devices_are_laid_out_like_few(seed):
    """The two ways to levels, one for few devices and one for many, against the definition."""
    for devices in (3, 20):
        built, device, _, edges = random_order(seed, devices, 120)
        levels, furthest = built.cells // devices, 1
        before = {i: [j for j, k, _ in edges if k == i] for i in range(len(device))}
        for i in range(len(device)):
            own = [i - 1] if i and device[i - 1] == device[i] else []
            others = [j for j in before[i] if device[j] != device[i]]
            assert levels[i] == max([levels[j] + 1 for j in (*own, *others)] or [0])
            furthest = max([furthest, *(levels[i] - levels[j] for j in others)])
        assert built.shape == (max(levels) + 1, devices)
        assert furthest <= built.reach < 2 * furthest


def test_a_cycle_of_many_devices_is_named():
    devices = np.repeat(np.arange(20), 2)
    waits = np.array([(2 * d + 1, (2 * d + 2) % 40) for d in range(20)])
    with pytest.raises(ValueError, match="cycle: 0 waits for 39, which its device runs after 38, 38 waits for 37"):
        graph_of(devices, 0 * devices, np.array([*waits.T, np.zeros(20, int)]))
