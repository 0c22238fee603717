"""The played-out schedules: small cases by hand, validity of every order, and counts known from the literature."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.graph.play import Played, Task, order, play
from costmodel.inputs.schedules import SCHEDULES
from tests.oracles.orders import producers

DURATIONS = [(1, 1, 1), (1, 1.2, 0.8), (1, 2, 1), (2, 1, 1), (1, 0.7, 0.5), (1, 0.9, 1.3), (1, 1.3, 1.3), (1, 2.5, 1.2)]


@st.composite
def legal_shapes(draw):
    schedule = draw(st.sampled_from(list(SCHEDULES)))
    stages, virtual = draw(st.integers(1, 6)), 1
    microbatches = draw(st.integers(1, 14))
    if SCHEDULES[schedule].interleaves:
        virtual, microbatches = draw(st.integers(1, 4)), stages * draw(st.integers(1, 4))
    if SCHEDULES[schedule].folds:
        virtual = 2
    if SCHEDULES[schedule].ways > 1:
        stages, microbatches = 2 * draw(st.integers(1, 3)), 2 * draw(st.integers(6, 9))
    return schedule, stages, microbatches, virtual


def spans(played: Played) -> dict[Task, tuple[float, float]]:
    rows = zip(played.order, played.starts_s, played.ends_s, strict=True)
    return {task: (a, b) for row in rows for task, a, b in zip(*row, strict=True)}


def ends(played: Played, device: int) -> dict[str, float]:
    names = [f"{task.kind}{task.microbatch}.{task.chunk}" for task in played.order[device]]
    return dict(zip(names, played.ends_s[device], strict=True))


@pytest.mark.parametrize("schedule", [name for name, entry in SCHEDULES.items() if entry.ways == 1])
def test_one_stage_is_busy_all_the_time(schedule):
    # 3 x (1 + 2 + 0.5); no transfer, for there is no other device
    virtual = SCHEDULES[schedule].chunks(1)
    played = play(schedule, 1, 3, virtual, forward_s=1, backward_s=2, weight_s=0.5, transfer_s=7)
    assert played.makespan_s == 10.5
    assert played.in_flight == ((3.0,) if schedule == "gpipe" else (1.0,))


def test_gpipe_by_hand():
    played = play("gpipe", 2, 2, forward_s=1, backward_s=1.5, weight_s=0.5, transfer_s=0.5)
    # device 1 gets F0 at 1.5; it ends F0 at 2.5, F1 at 3.5, and has B+W of 2 s each until 5.5 and 7.5
    assert ends(played, 1) == {"F0.1": 2.5, "F1.1": 3.5, "B0.1": 5.5, "B1.1": 7.5}
    # device 0 gets the gradients at 6 and 8, and is then busy until 10 = (2+2-1)(1+2) + 2*0.5
    assert ends(played, 0) == {"F0.0": 1, "F1.0": 2, "B0.0": 8, "B1.0": 10}


def test_one_f_one_b_by_hand():
    played = play("one_f_one_b", 2, 2, forward_s=1, backward_s=1.5, weight_s=0.5, transfer_s=0.5)
    # device 1: F0 from 1.5, then B0 at once, then F1 (there since 2.5), B1
    assert ends(played, 1) == {"F0.1": 2.5, "B0.1": 4.5, "F1.1": 5.5, "B1.1": 7.5}
    # device 0: the gradients arrive at 5 and at 8
    assert ends(played, 0) == {"F0.0": 1, "F1.0": 2, "B0.0": 7, "B1.0": 10}


def test_interleaved_by_hand():
    played = play("interleaved", 2, 2, 2, forward_s=2, backward_s=2)  # one second a chunk
    # device 0 warms up with all four chunks, without a gap
    first = {"F0.0": 1, "F1.0": 2, "F0.2": 3, "F1.2": 4, "B0.2": 6, "B1.2": 8, "B0.0": 9, "B1.0": 10}
    assert ends(played, 0) == first
    # device 1 starts at 1, warms up with three; its backwards of chunk 1 follow those of chunk 3 without a gap
    last = {"F0.1": 2, "F1.1": 3, "F0.3": 4, "B0.3": 5, "F1.3": 6, "B1.3": 7, "B0.1": 8, "B1.1": 9}
    assert ends(played, 1) == last


def test_zb_h1_by_hand():
    played = play("zb_h1", 2, 2, forward_s=1, backward_s=1, weight_s=1)
    # device 1 puts W off by one microbatch, so that B0 reaches device 0 at 3 and B1 at 5; both end at 7 (1F1B: 9)
    assert ends(played, 1) == {"F0.1": 2, "B0.1": 3, "F1.1": 4, "B1.1": 5, "W0.1": 6, "W1.1": 7}
    assert ends(played, 0) == {"F0.0": 1, "F1.0": 2, "B0.0": 4, "W0.0": 5, "B1.0": 6, "W1.0": 7}


def test_zb_h2_by_hand():
    played = play("zb_h2", 2, 3, forward_s=1, backward_s=1, weight_s=1)
    # device 0 has a third F in flight and never waits; device 1 starts at 1 and never waits
    first = {"F0.0": 1, "F1.0": 2, "F2.0": 3, "B0.0": 4, "W0.0": 5, "B1.0": 6, "W1.0": 7, "B2.0": 8, "W2.0": 9}
    assert ends(played, 0) == first
    last = {"F0.1": 2, "B0.1": 3, "F1.1": 4, "B1.1": 5, "F2.1": 6, "B2.1": 7, "W0.1": 8, "W1.1": 9, "W2.1": 10}
    assert ends(played, 1) == last


def test_durations_of_single_chunks_by_hand():
    # GPipe, forwards 1 and 3, backwards 2 and 1: device 1 has F until 4 and 7, B until 8 and 9; device 0 B until 10, 12
    played = play("gpipe", 2, 2, forward_s=[1, 3], backward_s=[2, 1])
    assert played.makespan_s == 12


@given(
    shape=legal_shapes(),
    seconds=st.tuples(*[st.floats(0.01, 100)] * 3),
    transfer_s=st.floats(0, 100),
)
def test_orders_are_valid(shape, seconds, transfer_s):
    schedule, stages, microbatches, virtual = shape
    forward_s, backward_s, weight_s = seconds
    ways, device_of = SCHEDULES[schedule].ways, SCHEDULES[schedule].device_of
    chunks = stages * virtual * ways
    played = play(*shape, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s, transfer_s=transfer_s)
    time = spans(played)
    kinds = "FBW" if SCHEDULES[schedule].splits else "FB"
    own = {c: c * ways // chunks for c in range(chunks)}  # the way of a chunk
    grid = {
        Task(k, m, c) for k in kinds for m in range(microbatches) for c in own if m * ways // microbatches == own[c]
    }
    assert set(time) == grid
    assert sum(map(len, played.order)) == len(grid)
    for device, tasks in enumerate(played.order):
        assert all(device_of(task.chunk, stages) == device for task in tasks)
        assert all(time[a][1] <= time[b][0] or time[a] == time[b] for a, b in pairwise(tasks))
    for task, (start_s, _) in time.items():
        for needed in producers(task, chunks, ways):
            if time[task] == time[needed]:  # parts of one operation
                continue
            away = device_of(needed.chunk, stages) != device_of(task.chunk, stages)
            assert start_s >= time[needed][1] + transfer_s * away
    assert played.makespan_s == max(end for _, end in time.values())


def test_producers_are_those_of_a_chain():
    def task(kind, chunk):
        return Task(kind=kind, microbatch=5, chunk=chunk)

    assert producers(task("F", 0), 4) == ()
    assert producers(task("F", 2), 4) == (task("F", 1),)
    assert producers(task("B", 3), 4) == (task("F", 3),)
    assert set(producers(task("B", 2), 4)) == {task("F", 2), task("B", 3)}
    assert producers(task("W", 2), 4) == (task("B", 2),)


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (2, 1), (2, 2), (4, 2), (4, 4), (4, 16), (7, 12), (8, 32)])
def test_activations_in_flight(shape):
    p, m = shape

    def peaks(schedule):
        played = play(schedule, p, m, forward_s=1, backward_s=1, weight_s=1)
        return list(played.in_flight), list(played.in_flight_until_b)

    one_f_one_b = [min(p - i, m) for i in range(p)]
    assert peaks("gpipe") == ([m] * p, [m] * p)
    assert peaks("one_f_one_b") == (one_f_one_b, one_f_one_b)
    # Qi et al. 2023, table 2: every device within the p of 1F1B, and within 2p - 1
    assert peaks("zb_h1") == ([min(p, m)] * p, one_f_one_b)
    assert peaks("zb_h2") == ([min(2 * p - 1, m)] * p, [min(2 * (p - i) - 1, m) for i in range(p)])


@pytest.mark.parametrize("virtual", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 3), (2, 2), (2, 8), (4, 4), (4, 8), (8, 24)])
def test_activations_in_flight_interleaved(shape, virtual):
    # Narayanan et al. 2021: warm-up of (v-1)p + 2(p-1-i) chunks, and one more
    p, m = shape
    played = play("interleaved", p, m, virtual, forward_s=1, backward_s=2)
    chunks = [min((virtual - 1) * p + 2 * (p - 1 - i) + 1, m * virtual) for i in range(p)]
    assert played.in_flight == pytest.approx([c / virtual for c in chunks])


@pytest.mark.parametrize(("forward_s", "backward_s", "weight_s"), DURATIONS)
@pytest.mark.parametrize(("schedule", "spare"), [("zb_h1", 1), ("zb_h2", 2)])
def test_zero_bubble_attains_its_known_makespan(schedule, spare, forward_s, backward_s, weight_s):
    # Qi et al. 2023: bubbles of (p-1)(F+B-W) and (p-1)(F+B-2W); never less than the last device's start, (p-1)F, nor
    # (for W > F) than what the first device waits for its first gradient with p or 2p-1 forwards done
    work_s = forward_s + backward_s + weight_s
    for p in (1, 2, 3, 5, 8):
        for m in (spare * (p - 1) + 1, 2 * p, 21):
            wait_s = backward_s - (spare - 1) * forward_s
            bubble_s = (p - 1) * max(forward_s + backward_s - spare * weight_s, forward_s, wait_s)
            played = play(schedule, p, m, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s)
            assert played.makespan_s == pytest.approx(m * work_s + bubble_s, rel=1e-12)


def test_zb_v_by_hand():
    # one second a chunk: down on 0 and 1, back on 1 without a transfer, then on 0
    played = play("zb_v", 2, 3, 2, forward_s=2, backward_s=2, weight_s=2, transfer_s=0)
    first, last = ends(played, 0), ends(played, 1)
    assert [first[name] for name in ("F0.0", "F1.0", "F2.0", "F0.3", "B0.3", "W0.3")] == [1, 2, 3, 4, 5, 6]
    assert [last[name] for name in ("F0.1", "F0.2", "F1.1", "F1.2", "B0.2", "W0.2")] == [2, 3, 4, 5, 6, 7]
    assert played.makespan_s == 3 * 6 + 1


@pytest.mark.parametrize("p", [1, 2, 3, 4, 8])
def test_zb_v_of_equal_passes(p):
    # Qi et al. 2024: no bubble but the way of the first microbatch through half stages; the activations of 1F1B
    for m in (2 * p - 1, 2 * p, 21):
        played = play("zb_v", p, m, 2, forward_s=1, backward_s=1, weight_s=1)
        assert played.makespan_s == pytest.approx(3 * m + (p - 1) / 2, rel=1e-12)
        assert played.in_flight == (p,) * p


@pytest.mark.parametrize(("forward_s", "backward_s", "weight_s"), DURATIONS)
def test_zb_v_of_unequal_passes(forward_s, backward_s, weight_s):
    # what a closed form of plain stages would be, for a later row of options: -2 % to +5 %
    slopes = (forward_s / 2, backward_s / 2, weight_s / 2, backward_s - weight_s, forward_s - backward_s / 2)
    for p in (1, 2, 3, 4, 8):
        for m in (2 * p - 1, 2 * p, 4 * p + 1):
            played = play("zb_v", p, m, 2, forward_s=forward_s, backward_s=backward_s, weight_s=weight_s)
            closed_s = m * (forward_s + backward_s + weight_s) + (p - 1) * max(slopes)
            assert 0.98 * played.makespan_s <= closed_s <= 1.05 * played.makespan_s


def test_dualpipe_by_hand():
    """Two devices, four microbatches: 0 and 1 go down over chunks 0, 1; 2 and 3 up over 2, 3. F&B takes 2.5 s."""
    played = play("dualpipe", 2, 4, forward_s=1, backward_s=1, weight_s=1, hidden_s=0.5)
    # device 0: F of both ways, F alone and B with W alone (not overlapped at first), then F with B and W, B with W, ...
    first = {"F0.0": 1, "F2.3": 2, "F1.0": 3, "B2.3": 5, "W2.3": 5, "F3.3": 7.5, "B0.0": 7.5, "W0.0": 7.5}
    first |= {"B3.3": 9.5, "W3.3": 9.5, "B1.0": 10.5, "W1.0": 11.5}
    assert ends(played, 0) == first
    assert set(ends(played, 1).values()) == set(first.values())  # its mirror image


PUBLISHED = [(2, 4), (2, 16), (4, 8), (4, 20), (6, 12), (6, 32), (8, 16), (8, 32)]


@pytest.mark.parametrize(("stages", "microbatches"), PUBLISHED)
@pytest.mark.parametrize("hidden", [0.0, 0.25, 1.0])
def test_dualpipe_has_its_published_bubble_and_activations(stages, microbatches, hidden):
    """DeepSeek-V3 2024, table 2, for the passes of its figure: (PP/2 - 1)(F&B + B - 3W) idle, PP + 1 activations."""
    both_s = 3.0 - hidden
    played = play("dualpipe", stages, microbatches, forward_s=1, backward_s=1, weight_s=1, hidden_s=hidden)
    for device in (stages // 2 - 1, stages // 2):  # those in the middle overlap as many as there are
        spans_s = set(zip(played.starts_s[device], played.ends_s[device], strict=True))
        idle_s = played.makespan_s - sum(b - a for a, b in spans_s)
        assert idle_s == pytest.approx((stages / 2 - 1) * (both_s + 2.0 - 3.0))
    assert played.in_flight == (stages + 1.0,) * stages


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("dualpipe", 3, 8), "even"),
        (("dualpipe", 4, 9), "even"),
        (("1f1b", 2, 2), "schedule"),
        (("gpipe", 0, 2), "degrees"),
        (("one_f_one_b", 2, 2, 2), "virtual_stages"),
        (("interleaved", 4, 6, 2), "multiple"),
        (("zb_v", 4, 8), "virtual_stages"),
    ],
)
def test_illegal_shapes_are_named(arguments, word):
    with pytest.raises(ValueError, match=word):
        order(*arguments)


def test_wrong_number_of_durations_is_named():
    with pytest.raises(ValueError, match="4 chunks"):
        play("interleaved", 2, 4, 2, forward_s=[1, 2], backward_s=1)
