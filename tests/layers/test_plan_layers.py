"""`equipoise plan --layers`: the section of the answer, and the line below the table."""

import dataclasses
import json

import pytest

from optimize import cli
from optimize.layers.improved import improve_layers
from optimize.layers.own_schedule import played_step_s, with_own_schedule
from optimize.plans.find_in_lattice import find_in_lattice
from tests.support.builders import cluster, small_decoder

PLAN = ("plan", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64", "--layers")


def test_layers_of_the_best_plans_in_the_answer(capsys):
    cli.run([*PLAN, "--fix", "pipeline=4,tensor=1,context=1", "--json"])
    told = json.loads(capsys.readouterr().out)
    found = told["layers"]
    assert told["inputs"]["layers"] is True
    assert sum(found["stage_layers"]) == len(found["recompute_by_block"]) == 32
    assert found["plan"]["stage_layers"] in (None, found["stage_layers"])
    assert found["plan"]["pipeline"] == 4
    if found["gap"] is not None:
        assert found["gap"] == pytest.approx(found["step_s"] / found["lower_bound_s"] - 1)
    played_s = told["validation"]["played_step_s"]
    assert found["gain"] == pytest.approx(1 - found["step_s"] / played_s)
    assert found["gain"] >= 0


@pytest.mark.parametrize("schedule", ["interleaved", "zb_h1"])
def test_the_schedule_of_the_best_plan_is_kept_and_nothing_slower_comes_back(schedule):
    """Memory is short: whole layers of recompute, fewer than a quarter, make it faster under its own schedule."""
    workload, machine = small_decoder(layers=16, batch=32), cluster(4, domain=2)
    fixed = {"pipeline": 4, "tensor": 1, "context": 1, "schedule": schedule, "microbatch": 1}
    roomy = find_in_lattice(workload, machine, fixed=fixed | {"recompute": "none"}, top=1).plans[0]
    tight = dataclasses.replace(
        machine, accelerator=dataclasses.replace(machine.accelerator, hbm_bytes=0.999 * roomy.peak_bytes)
    )
    best = find_in_lattice(workload, tight, fixed=fixed, top=3)
    found, evaluations = with_own_schedule(workload, tight, best.plan)
    assert found.passes
    assert found.plan.schedule == schedule
    assert evaluations > 0
    assert played_step_s(found) <= played_step_s(best.plans[0].validation)
    improved = improve_layers(workload, tight, best)
    assert improved.gain >= 0
    assert improved.best["step_s"] <= played_step_s(found)


def test_layers_below_the_table(capsys):
    cli.run([*PLAN, "--fix", "pipeline=4,tensor=1,context=1"])
    last = " ".join(capsys.readouterr().out.partition("layers: t,c,p,d ")[2].split())
    assert last.startswith("1,1,4,4, ")
    assert ", layers of each stage " in last
    assert "than the best plan's" in last or "that of the best plan" in last


def test_without_a_pipeline_it_is_said(capsys):
    cli.run([*PLAN, "--fix", "pipeline=1"])
    assert "no plan told has a pipeline" in capsys.readouterr().out
