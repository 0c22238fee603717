"""`equipoise plan --layers`: the section of the answer, and the line below the table."""

import json

import pytest

from optimize import cli

PLAN = ("plan", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64", "--layers")


def test_layers_of_the_best_plans_in_the_answer(capsys):
    cli.run([*PLAN, "--fix", "pipeline=4,tensor=1,context=1", "--json"])
    told = json.loads(capsys.readouterr().out)
    found = told["layers"]
    assert told["inputs"]["layers"] is True
    assert sum(found["stage_layers"]) == len(found["recompute_by_block"]) == 32
    assert found["plan"]["stage_layers"] == found["stage_layers"]
    assert found["plan"]["pipeline"] == 4
    assert found["lower_bound_s"] <= found["step_s"]
    assert found["gap"] == pytest.approx(found["step_s"] / found["lower_bound_s"] - 1)
    played_s = told["validation"]["played_step_s"]
    assert found["gain"] == pytest.approx(1 - found["step_s"] / played_s)


def test_layers_below_the_table(capsys):
    cli.run([*PLAN, "--fix", "pipeline=4,tensor=1,context=1"])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("layers: t,c,p,d 1,1,4,4, 1F1B, layers of each stage ")
    assert "than the best plan's" in last


def test_without_a_pipeline_it_is_said(capsys):
    cli.run([*PLAN, "--fix", "pipeline=1"])
    assert "no plan told has a pipeline" in capsys.readouterr().out
