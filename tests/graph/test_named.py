"""Named plans against their published makespans, bubbles and live activations (papers_plans_and_ist.md, D3)."""

import pytest

from costmodel.graph import play
from costmodel.graph.named import CHIMERA, n_forwards_one_backward, recycled, with_shared_blocks
from costmodel.graph.search import in_order, placements


def bubble(played, devices):
    busy_s = sum(map(sum, played.ends_s)) - sum(map(sum, played.starts_s))
    return 1 - busy_s / (devices * played.makespan_s)


@pytest.mark.parametrize("schedule", ["gpipe", "one_f_one_b"])
@pytest.mark.parametrize(("backward", "makespan"), [(1, 22), (2, 33), (3, 44)])
def test_gpipe_and_1f1b_of_four_stages(schedule, backward, makespan):
    played = play(schedule, 4, 8, forward_s=1, backward_s=backward)
    assert played.makespan_s == makespan
    assert bubble(played, 4) == pytest.approx(3 / 11)  # 27.27 %
    assert played.in_flight == ((8, 8, 8, 8) if schedule == "gpipe" else (4, 3, 2, 1))


@pytest.mark.parametrize(("stages", "microbatches", "idle"), [(4, 16, 0.1579), (8, 32, 0.1795)])
def test_the_bubble_of_1f1b_shrinks(stages, microbatches, idle):
    assert round(bubble(play("one_f_one_b", stages, microbatches, forward_s=1, backward_s=2), stages), 4) == idle


def test_chimera_slot_by_slot():
    """d0: f0 . f1 f2 b2b2 f3 . b3b3 b0b0 . . b1b1, the others mirrored; a quarter of the slots is idle."""
    played = play(CHIMERA, 4, 4, forward_s=1, backward_s=2)
    assert played.makespan_s == 16
    assert bubble(played, 4) == 0.25
    slots = [f"{task.kind}{task.microbatch}" for task in played.order[0]]
    published = {"F0": 0, "F1": 2, "F2": 3, "B2": 4, "F3": 6, "B3": 8, "B0": 10, "B1": 14}
    assert slots == list(published)
    assert all(start <= slot for start, slot in zip(played.starts_s[0], published.values(), strict=True))
    for device in range(4):
        assert played.starts_s[device] == played.starts_s[3 - device]
        swapped = [(task.kind, (task.microbatch + 2) % 4) for task in played.order[3 - device]]
        assert [(task.kind, task.microbatch) for task in played.order[device]] == swapped


@pytest.mark.parametrize("stages", [2, 4, 6, 8])
def test_the_bubble_of_chimera(stages):
    """Li and Hoefler 2021: (p - 2) / (3n/2 + p - 2), n = p microbatches, backwards twice as long."""
    played = play(CHIMERA, stages, stages, forward_s=1, backward_s=2)
    assert bubble(played, stages) == pytest.approx((stages - 2) / (1.5 * stages + stages - 2))


SHARED = [("M", 1, 4, 4), ("M", 2, 6, 5), ("M", 3, 8, 6), ("NN", 1, 6, 6), ("NN", 2, 8, 7), ("NN", 3, 10, 8)]


@pytest.mark.parametrize(("name", "backward", "period", "work"), SHARED)
def test_1f1b_with_blocks_that_all_devices_share(name, backward, period, work):
    """Steady seconds of a microbatch and its work: 25 % idle on M and 20 % on NN where backwards take 3."""
    placement = placements(4, backward_s=backward)[name]
    short, long = (in_order(placement, with_shared_blocks(placement, m)) for m in (40, 80))
    assert long.makespan_s - short.makespan_s == 40 * period
    assert long.least_makespan_s - short.least_makespan_s == 40 * work


@pytest.mark.parametrize("backward", [1, 2, 3])
def test_three_forwards_one_backward(backward):
    """A period of 3f + b, and what 1F1B holds: at most as many microbatches as there are stages left."""
    placement = recycled(4, 1.0, backward)
    short, long = (in_order(placement, n_forwards_one_backward(4, m)) for m in (40, 80))
    assert long.makespan_s - short.makespan_s == 40 * (3 + backward)
    assert short.peak == (4, 3, 2, 1)
    assert sorted(o for row in short.order for o in row) == sorted((m, i) for m in range(40) for i in range(16))
