"""The experiment of independent subnetworks: every check holds, and the diagrams keep what the theory says."""

import pytest

from experiments import runner
from experiments.independent_subnets import experiment
from experiments.independent_subnets.checks import rows


def test_a_quick_run(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "RESULTS", tmp_path / "results")
    results = runner.run("independent_subnets", quick=True, model="llama3-8b", workers=(4, 8, 32))["results"]
    assert experiment.failure(results) is None
    assert set(results["diagrams"]) == {"8", "32"}
    for diagram in results["diagrams"].values():
        assert diagram["won_below_bias"] == 0
        assert "subnetworks" in diagram["soonest"][0]
        assert diagram["meeting_bytes_per_s"][-1] is None
    assert results["diagrams"]["32"]["meeting_bytes_per_s"][2] < 1e12  # a bandwidth above which it does not pay
    written = {path.name for path in (tmp_path / "results" / "independent_subnets").iterdir()}
    assert written == {"result.json", "checks.csv", "phases.png", "phases.svg"}
    assert len(experiment.tables(results)) == 2


def test_a_check_that_does_not_hold_is_a_failure():
    checked = rows(100)
    assert {row["trust"] for row in checked} == {"paper", "independent", "this package"}
    broken = {"checks": [checked[0] | {"holds": False}], "diagrams": {}}
    assert experiment.failure(broken) == checked[0]["what"]


@pytest.mark.parametrize("target", ["1e-2", "1e-4"])
def test_where_they_meet_is_told_in_words(target):
    diagram = {"targets": [1e-2, 1e-4], "bandwidths": [1e6, 1e12], "meeting_bytes_per_s": [1e12, None]}
    told = experiment._up_to(diagram, float(target))
    assert told == ("at any bandwidth" if target == "1e-2" else "never")
