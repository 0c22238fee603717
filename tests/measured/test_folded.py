"""Variants of ZB-V in rows, which hold fewer microbatches: against their patterns, played out."""

import pytest

from costmodel.inputs import SCHEDULES, Habits
from tests.support.row_by_hand import read


def starts(name, stages, stage):
    """When a stage begins both forwards and both backwards of its first microbatch: Qi et al. 2024, as sail-sg's
    `zero-bubble` and Primus' `zbv_greedy.py` have them. Each takes one slot, and microbatches follow after six."""
    if name == "v_half":
        wait = 3 * (stages % 2 == 0)
        forwards = 2 * stage, 3 * stages - stage - 2
        return forwards, (3 * stages + wait + 2 * stage - 1, 6 * stages + wait - stage - 2)
    wait = 2 * (stages % 3 == 0)
    return (stage, 2 * stages - stage - 1), (2 * stages + wait + stage, 4 * stages + wait - stage - 1)


def held_stages(name, stages, stage, microbatches=40):
    """The most microbatches that a stage holds, in units of both its chunks; weight gradients take the slots left."""
    forwards, backwards = (
        {begin + 6 * i for i in range(microbatches) for begin in chunks} for chunks in starts(name, stages, stage)
    )
    held = waiting = most = 0
    for slot in range(max(backwards) + 1):
        held += slot in forwards
        waiting += slot in backwards
        if waiting and slot not in forwards | backwards:
            waiting, held = waiting - 1, held - 1
        most = max(most, held)
    return most / 2


@pytest.mark.parametrize(
    ("name", "stages", "within"),
    [("v_half", n, 0.5 * (n % 2)) for n in (2, 4, 5, 8, 16)]
    + [("v_min", n, (n % 3 > 0) / 3) for n in (3, 4, 6, 8, 12, 16)],
)
def test_what_variants_of_zb_v_hold(name, stages, within):
    row = Habits(folded=name).schedule_row("zb_v")
    most = max(held_stages(name, stages, stage) for stage in range(stages))
    assert row.stages_in_flight * stages + row.extra_in_flight == pytest.approx(most, abs=within + 1e-9)


def test_other_schedules_are_as_they_were():
    for name, schedule in SCHEDULES.items():
        assert Habits().schedule_row(name) == schedule.row
        assert name == "zb_v" or Habits(folded="v_min").schedule_row(name) == schedule.row


@pytest.mark.parametrize(
    ("words", "variant", "assumed"),
    [
        ("ZB-V", "", False),
        ("V-Half schedule", "v_half", True),
        ("zero bubble, v-min", "v_min", True),
        ("1F1B", "", False),
    ],
)
def test_variants_are_read(words, variant, assumed):
    row = read(pp="4", tp="1", dp="16", vpp="", notes=words)
    assert row.cluster.stack.habits.folded == variant
    assert (row.plan.schedule == "zb_v") == (words != "1F1B")
    assert any("ZB-V" in each for each in row.assumed) == assumed
