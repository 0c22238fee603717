"""The experiment of the joint answer: tables of what it found, and one small run by night."""

from costmodel import load_cluster
from experiments.time_to_target import experiment
from optimize.question import Job
from tests.support.builders import small_decoder

ROW = {
    "budget_usd": 1e6,
    "target": {"loss": 2.4},
    "in_turn": {"days": 1.5},
    "together": {"any_rates": {"days": 0.5, "gap": 0.01}, "real_parts": None, "pairs": 48},
    "late": [],
    "seconds": 50.0,
}


def test_the_table_tells_the_factor():
    table = experiment.tables({"rows": [ROW, ROW | {"in_turn": None}]})[0]
    factors = list(table.columns[6].cells)
    assert factors == ["3.00", ""]
    assert "3.00 times sooner" in experiment.answer({"rows": [ROW]})[0]
    assert experiment.answer({"rows": [ROW | {"late": ["time was up"]}]})[-1] == "With 1 M USD, time was up."


def test_one_after_the_other():
    """What the budget buys of the template, and a plan on it that fits."""
    jobs = [Job(workload=small_decoder(batch=b), tokens=1e9) for b in (16, 32, 64, 128)]
    found = experiment.in_turn(load_cluster("h100"), jobs, 4e5)
    assert found is not None
    assert found["batch"] == 64
    assert found["accelerators"] == 8
    assert found["days"] > 0


def test_together_is_sooner(tmp_path):
    row = experiment.run(tmp_path, lambda _: None, quick=True)["rows"][0]
    assert row["together"]["any_rates"]["days"] < row["in_turn"]["days"]
    assert row["together"]["any_rates"]["gap"] <= 0.001
    assert row["together"]["pairs"] > 10
    assert not row["late"]
    again = experiment.run(tmp_path, lambda _: None, quick=True)["rows"][0]
    assert {**again, "seconds": 0} == {**row, "seconds": 0}
