"""Orders that repeat: the published placements, enumerations of small ones, and every order played out."""

import itertools
import math

import numpy as np
import pytest

import costmodel
from costmodel.graph import play
from costmodel.graph.search import (
    PlacedBlock,
    chain,
    found_schedule,
    in_order,
    least_makespan_s,
    least_period_s,
    placements,
    repeat,
    search,
    unroll,
)
from costmodel.graph.search.bounds import holders, work_s
from costmodel.graph.search.nested import least_wait, nested
from costmodel.graph.search.placements import LIMITS
from costmodel.graph.search.repeating import _Tries
from costmodel.inputs import SCHEDULES
from tests.oracles.orders import played

PERIODS = {"V": 4, "X": 8, "M": 6, "NN": 8, "NN eager": 8, "mllm": 8, "K": 6, "alphafold": 4}
MEMORY = {"V": (4, 3, 2, 1), "M": (6, 4, 2, 1), "K": (3, 2, 3, 2), "alphafold": (3, 2, 1, 1)}
QUICK_S = 0.6


def alone(placement, order, transfer_s=0.0):
    """A placement's operations played one at a time: a block on several devices starts when all of them are free."""
    waiting, ends, free, at = True, {}, [0.0] * len(order), [0] * len(order)
    while waiting:
        waiting = False
        for row in order:
            for m, i in row:
                block = placement[i]
                ready = all((m, j) in ends for j in block.after)
                heads = all(order[d][at[d] : at[d] + 1] == ((m, i),) for d in block.devices)
                if (m, i) in ends or not (ready and heads):
                    continue
                lags = [transfer_s * (not set(placement[j].devices) & set(block.devices)) for j in block.after]
                inputs = [ends[m, j] + lag for j, lag in zip(block.after, lags, strict=True)]
                ends[m, i] = max([*inputs, *(free[d] for d in block.devices)]) + block.seconds
                for d in block.devices:
                    free[d], at[d] = ends[m, i], at[d] + 1
                waiting = True
    return ends


def check_starts(found, limit):
    """No overlap on a device, everything in its order, memory: from the definitions, without the search."""
    placement, period = found.placement, found.period
    for device in work_s(placement):
        own = [i for i, block in enumerate(placement) if device in block.devices]
        units = [(found.starts[i] + u) % period for i in own for u in range(int(placement[i].seconds))]
        assert len(units) == len(set(units))
        rounds, last = range(-60, 60), max(found.starts)
        held = sorted((found.starts[i] + period * m, placement[i].held) for i in own for m in rounds)
        live = np.cumsum([change for _, change in held])
        before = [n for (at, _), n in zip(held, live, strict=True) if 0 <= at <= last + period]
        assert max(before) <= limit
        assert max(before) == found.peak[device]
    for i, block in enumerate(placement):
        assert all(found.starts[i] >= found.starts[j] + placement[j].seconds for j in block.after)


@pytest.mark.parametrize("name", PERIODS)
def test_the_published_placements_repeat_without_a_bubble(name):
    """Periods of Tessel's, and 4 for alphafold, whose search stopped at 5; 32 and 64 microbatches with both ends."""
    placement, limit = placements(4)[name], LIMITS[name]
    found = search(placement, limit, shortest=False)
    assert found is not None
    assert found.period_s == found.least_period_s == max(work_s(placement).values()) == PERIODS[name]
    check_starts(found, limit)
    short, long = (unroll(placement, found, m) for m in (32, 64))
    assert long.makespan_s - short.makespan_s == 32 * PERIODS[name]
    assert max(short.peak) <= limit
    assert short.makespan_s == max(alone(placement, short.order).values())
    assert 32 * PERIODS[name] <= short.least_makespan_s <= short.makespan_s <= 32 * PERIODS[name] + 40
    assert short.gap == short.makespan_s / short.least_makespan_s - 1


@pytest.mark.parametrize("name", MEMORY)
def test_the_published_placements_hold_little(name):
    found = search(placements(4)[name], LIMITS[name], deadline_s=4)
    assert found is not None
    assert tuple(found.peak.values()) == MEMORY[name]


def random_chain(rng):
    """A few blocks on two devices, of which one pair holds something."""
    links = []
    for i in range(int(rng.integers(3, 5))):
        devices = [0, 1] if rng.random() < 0.2 else [int(rng.integers(0, 2))]
        links.append([f"{i}", devices, float(rng.integers(1, 3)), 0.0])
    first, last = sorted(rng.choice(len(links), 2, replace=False))
    links[last][1] = links[first][1]
    links[first][3], links[last][3] = 1.0, -1.0
    return chain(tuple(link) for link in links)


def least_period_enumerated(placement, limit):
    """Every wait of every block, at every period from the work bound on."""

    def orders(period):
        for waits in itertools.product(range(period), repeat=len(placement) - 1):
            spans = [int(block.seconds) + wait for block, wait in zip(placement, waits, strict=False)]
            yield list(itertools.accumulate(spans, initial=0))

    periods = itertools.count(int(max(work_s(placement).values())))
    return next(p for p in periods if any(fits(placement, starts, p, limit) for starts in orders(p)))


def fits(placement, starts, period, limit):
    for device, pairs in holders(placement).items():
        own = [i for i, block in enumerate(placement) if device in block.devices]
        units = [(starts[i] + u) % period for i in own for u in range(int(placement[i].seconds))]
        if len(units) != len(set(units)):
            return False
        for i, j in pairs:
            if max(sum(starts[i] <= t + period * m < starts[j] for m in range(-40, 40)) for t in range(period)) > limit:
                return False
    return True


def test_no_shorter_period_exists_than_the_search_finds():
    rng = np.random.default_rng(0)
    for _ in range(25):
        placement, limit = random_chain(rng), int(rng.integers(1, 3))
        found = repeat(placement, limit, deadline_s=20)
        assert found is not None
        assert found.proved
        assert found.period == least_period_enumerated(placement, limit)
        assert least_period_s(placement, limit) <= found.period
        check_starts(found, limit)


def test_pipelines_down_and_back_are_solved_exactly():
    """Two devices, with a block of both in front, between or not at all: the least period of all waits, enumerated."""
    for shared, spans, limit in (
        ((), (1, 2, 1, 2), 1),
        ((), (2, 1, 1, 1), 2),
        ((0,), (1, 1, 2, 1), 2),
        ((2,), (1, 2, 1, 1), 2),
    ):
        rows = zip((0, 1, 1, 0), spans, (1.0, 1.0, -1.0, -1.0), strict=True)
        links = [(f"{i}", [d], float(s), h) for i, (d, s, h) in enumerate(rows)]
        for place in shared:
            links.insert(place, ("all", [0, 1], 1.0, 0.0))
        placement = chain(links)
        assert nested(placement) is not None
        found = repeat(placement, limit, shortest=False)
        assert found is not None
        assert found.proved
        assert found.period == least_period_enumerated(placement, limit)
        check_starts(found, limit)


@pytest.mark.parametrize("name", PERIODS)
def test_eight_devices_repeat_without_a_bubble(name):
    """Twice the devices within twice the live microbatches; the published search takes minutes for four."""
    placement, limit = placements(8)[name], 2 * LIMITS[name]
    found = search(placement, limit, shortest=False, deadline_s=20)
    assert found is not None
    assert found.period_s == max(work_s(placement).values()) == PERIODS[name]
    check_starts(found, limit)
    short, long = (unroll(placement, found, m) for m in (32, 64))
    assert long.makespan_s - short.makespan_s == 32 * PERIODS[name]
    assert max(short.peak) <= limit


def test_too_little_memory_costs_time():
    """One microbatch at a time takes all its work: three passes of 1 and three of 3."""
    found = repeat(placements(3)["V"], 1, shortest=False)
    assert found is not None
    assert (found.period, found.proved) == (12, True)
    check_starts(found, 1)


@pytest.mark.parametrize("name", ["V", "M", "K", "alphafold"])
def test_spans_that_are_no_whole_numbers_and_transfers(name):
    """Cut to a grid the order is found; on its own seconds it takes no more than the work of its busiest device."""
    placement = placements(4, forward_s=1.07, backward_s=2.31, shared_s=0.63)[name]
    for transfer_s, limit in ((0.0, LIMITS[name]), (0.1, LIMITS[name] + 3)):
        found = search(placement, limit, transfer_s=transfer_s, shortest=False)
        assert found is not None
        short, long = (unroll(placement, found, m, transfer_s=transfer_s) for m in (40, 80))
        assert (long.makespan_s - short.makespan_s) / 40 == pytest.approx(found.least_period_s)
        assert found.bubble == pytest.approx(0.0, abs=1e-9)
        assert max(short.peak) <= limit
        np.testing.assert_allclose(short.makespan_s, max(alone(placement, short.order, transfer_s).values()))


def test_two_microbatches_of_a_double_period():
    """Three stages that hold two microbatches: 8 seconds for each if they repeat one by one, 6 in pairs."""
    placement = placements(3)["V"]
    one, two = repeat(placement, 2, shortest=False), repeat(placement, 2, copies=2, periods=[12], shortest=False)
    assert one is not None
    assert two is not None
    assert (one.period, one.proved, two.period, two.copies) == (8, True, 12, 2)
    check_starts(two, 2)
    short, long = (unroll(placement, two, m) for m in (20, 40))
    assert long.makespan_s - short.makespan_s == 10 * two.period == 20 * 6
    assert max(short.peak) <= 2


def test_a_second_copy_that_is_of_no_use_is_left_out():
    found = repeat(placements(2)["V"], 2, copies=2, deadline_s=QUICK_S)
    assert found is not None
    assert (found.copies, found.period) == (1, 4)


def test_no_order_is_shorter_than_its_bound():
    """1F1B is the best order of V: the bound is its makespan, which `play` gives."""
    for stages, microbatches in itertools.product((2, 4, 6), (1, 3, 16)):
        made = play("one_f_one_b", stages, microbatches, forward_s=1, backward_s=3).makespan_s
        assert least_makespan_s(placements(stages)["V"], microbatches) == made


def test_an_order_that_was_found_is_a_schedule_like_any_other():
    found = found_schedule(lambda stages: stages, splits=False)
    with costmodel.register_schedule("found", found):
        for stages, microbatches in ((2, 4), (4, 9), (5, 12)):
            alike = [
                play(name, stages, microbatches, forward_s=1, backward_s=2, transfer_s=0.1)
                for name in ("found", "one_f_one_b")
            ]
            assert alike[0].order == alike[1].order


@pytest.mark.parametrize(("name", "depth"), [("zb_h1", 1), ("zb_h2", 2)])
def test_the_search_finds_what_was_published(name, depth):
    """ZB-H1 and ZB-H2 by their memory alone: as long, holding as much, and with their coefficients."""
    found = found_schedule(lambda stages: depth * stages - (depth - 1))
    assert {field: value or 0.0 for field, value in vars(found.row).items()} == vars(SCHEDULES[name].row)
    with costmodel.register_schedule("found", found):
        for stages, microbatches, transfer_s in ((2, 4, 0.0), (4, 9, 0.1), (6, 24, 0.0)):
            ways = {"forward_s": 1, "backward_s": 1, "weight_s": 1, "transfer_s": transfer_s}
            ours, published = (play(each, stages, microbatches, **ways) for each in ("found", name))
            assert ours.makespan_s == pytest.approx(published.makespan_s)
            assert ours.in_flight == published.in_flight


def test_memory_between_two_published_orders_is_of_use():
    """Two live microbatches more than ZB-H1 holds, of the five that ZB-H2 does, gain some of what those gain."""
    with costmodel.register_schedule("between", found_schedule(lambda stages: stages + 2)):
        ways = {"forward_s": 1, "backward_s": 1.2, "weight_s": 0.8}
        played = [play(name, 6, 24, **ways) for name in ("zb_h1", "between", "zb_h2")]
    assert played[0].makespan_s > played[1].makespan_s + 0.5 > played[2].makespan_s
    assert [max(each.in_flight) for each in played] == [6, 8, 11]


def test_an_order_that_cannot_be_found_is_one_line():
    with pytest.raises(ValueError, match="no order of 2 stages holds at most 0 microbatches; expected more"):
        found_schedule(lambda stages: stages - 2)


A, B = PlacedBlock("a", (0,), 1.0, 1.0, ()), PlacedBlock("b", (0,), 1.0, -1.0, (0,))
WRONG = (
    ((), "a placement has no blocks; expected one at least"),
    ((A._replace(after=(1,)), B), r"block a waits for blocks \(1,\); expected those before it, below 0"),
    ((A, B._replace(after=(5,))), r"block b waits for blocks \(5,\); expected those before it, below 1"),
    ((A, B._replace(held=0.0)), "what block a takes on device 0 no block frees; expected one behind it"),
    ((A._replace(devices=()), B), r"block a runs on devices \(\); expected one or more, from 0 on"),
    ((A._replace(seconds=math.nan), B), "block a takes nan s; expected a finite number >= 0"),
    ((A._replace(seconds=0.0), B._replace(seconds=0.0)), "blocks a to b take no time; expected some that do"),
)


@pytest.mark.parametrize(("placement", "told"), WRONG)
def test_a_wrong_placement_is_one_line_that_names_the_block(placement, told):
    with pytest.raises(ValueError, match=told):
        search(placement, 2, deadline_s=0.1)


def test_an_order_without_what_it_waits_for_names_both():
    with pytest.raises(ValueError, match="F1 of microbatch 0 waits for F0, which is not in the order"):
        in_order(placements(2)["V"], [(0, 1)])


def test_blocks_play_as_the_oracle_of_orders_plays_them():
    """On single devices: both oracles of these tests agree."""
    placement = (*chain([("a", [0], 2.0, 1.0), ("b", [1], 1.0, 0.0)]), PlacedBlock("c", (0,), 1.0, -1.0, (1,)))
    found = repeat(placement, 2, deadline_s=QUICK_S)
    assert found is not None
    order = unroll(placement, found, 6).order
    waits = {(m, i): [((m, j), 0.0) for j in placement[i].after] for m in range(6) for i in range(3)}
    times = played(order, lambda o: placement[o[1]].seconds, waits.__getitem__)
    assert {o: end for o, (_, end) in times.items()} == alone(placement, order)


def test_without_memory_only_what_holds_nothing_can_run():
    """A block that takes memory on one of two devices; without it the bound is the work."""
    holds = chain([("a", [0], 2.0, 1.0), ("b", [1], 3.0, 0.0), ("c", [0], 2.0, -1.0)])
    assert least_period_s(holds, 0) == math.inf
    assert least_period_s(holds, 1) == 2 + 3  # from the start of a to that of c
    assert least_period_s(chain([("a", [0], 2.0, 0.0), ("b", [1], 3.0, 0.0)]), 0) == 3.0


def test_one_microbatch_leaves_all_devices_but_one_idle():
    assert in_order(placements(4)["V"], [(0, i) for i in range(8)]).idle == 3 / 4


ALIKE = [
    (2, "M", 2, 5),
    (2, "M", 3, 6),
    (2, "mllm", 2, 8),
    (2, "NN eager", 2, 8),
    (3, "V", 3, 4),
    (3, "M", 4, 6),
    (3, "V", 2, 4),
]


@pytest.mark.parametrize(("devices", "name", "limit", "period"), ALIKE)
def test_the_least_wait_is_that_of_the_search_over_all_blocks(devices, name, limit, period):
    """Dynamic programming over devices, and depth first over blocks: two ways to the shortest stay of a microbatch."""
    placement = placements(devices, backward_s=2.0)[name]
    chained = nested(placement)
    assert chained is not None
    starts, ended = least_wait(chained, period, limit, 0, math.inf, False)
    others, tried = _Tries(placement, period, limit, 0).best(math.inf, True)
    assert ended
    assert tried
    assert (starts is None) == (others is None)
    if starts is not None and others is not None:
        assert starts[-1] - starts[0] == others[-1] - others[0]


def test_two_branches_wait_for_the_joint_and_for_the_way_back():
    """By hand, of four devices: two forward chains, a block on all after both, its gradient, and both chains back."""
    blocks = {block.name: block for block in placements(4)["K"]}
    names = list(blocks)
    after = {name: [names[i] for i in block.after] for name, block in blocks.items()}
    assert (after["F0"], after["F2"], after["J"], after["J'"]) == ([], [], ["F1", "F3"], ["J"])
    assert (after["B3"], after["B1"], after["B2"], after["B0"]) == (["J'"], ["J'"], ["B3"], ["B1"])
