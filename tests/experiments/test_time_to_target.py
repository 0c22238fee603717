"""The experiment of the joint answer: tables of what it found, and one small run by night."""

import contextlib

import pytest

from costmodel import load_cluster
from costmodel.measured import FITS
from experiments.time_to_target import experiment
from optimize import CommandError, find_plan
from optimize.question import SECONDS_A_DAY, Job, sized
from tests.support.builders import small_decoder

ROW = {
    "budget_usd": 1e6,
    "target": {"loss": 2.4},
    "in_turn": {"days": 1.5},
    "together": {"any_rates": {"days": 0.5, "gap": 0.01}, "real_parts": None, "pairs": 48},
    "asked_gap": 0.02,
    "late": [],
    "seconds": 50.0,
}


def test_the_table_tells_the_factor():
    table = experiment.tables({"rows": [ROW, ROW | {"in_turn": None}]})[0]
    assert list(table.columns[6].cells) == ["3.00 x", ""]
    assert "0.500 (3.00 times sooner) with rates" in experiment.answer({"rows": [ROW]})[0]
    assert experiment.answer({"rows": [ROW | {"late": ["time was up"]}]})[-1] == "With 1 M USD, time was up."


def test_what_is_not_proved_or_not_sooner_fails():
    assert experiment.failure({"rows": [ROW]}) is None
    open_gap, late = ROW | {"asked_gap": 0.001}, ROW | {"in_turn": {"days": 0.4}}
    assert "1.00% after all evaluations" in (experiment.failure({"rows": [open_gap]}) or "")
    assert experiment.failure({"rows": [open_gap | {"late": ["time was up"]}]}) is None
    assert "not sooner" in (experiment.failure({"rows": [late]}) or "")


def test_one_after_the_other():
    """The fastest plan of all counts that the budget buys of the template: by brute force over these counts."""
    jobs = [Job(workload=small_decoder(batch=b), tokens=1e9) for b in (16, 32, 64, 128)]
    template, affordable = load_cluster("h100"), 9
    found = experiment.in_turn(template, jobs, 4e5)
    assert found is not None
    assert found["affordable"] == affordable
    assert found["batch"] == 64
    days = {}
    for count in range(1, affordable + 1):
        with contextlib.suppress(CommandError):
            step_s = find_plan(jobs[2].workload, sized(template, count), margin=FITS).plans[0].step_s
            days[count] = float(jobs[2].steps_on(float(count), template.prices)) * step_s / SECONDS_A_DAY
    assert found["days"] == pytest.approx(min(days.values()), rel=1e-9)
    assert found["accelerators"] == min(days, key=lambda count: days[count])


def test_together_is_sooner(tmp_path):
    row = experiment.run(tmp_path, lambda _: None, quick=True)["rows"][0]
    assert row["together"]["any_rates"]["days"] < row["in_turn"]["days"]
    assert row["together"]["any_rates"]["gap"] <= 0.001
    assert row["together"]["pairs"] > 10
    assert not row["late"]
    again = experiment.run(tmp_path, lambda _: None, quick=True)["rows"][0]
    assert {**again, "seconds": 0} == {**row, "seconds": 0}
