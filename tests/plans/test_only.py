"""`equipoise plan --only` and `--launch`: the search against enumeration, and the way back through explain."""

import dataclasses
import itertools
import json

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.inputs.plan import Plan
from costmodel.specs.rules import violations
from optimize.cli.plan import resolve
from optimize.cli.plan_json import Answer, as_json
from optimize.lattice.enumeration import lattice
from optimize.launch.frameworks import FRAMEWORKS, canonical
from optimize.plans import exhaustive
from optimize.plans.checkpoint import _named
from optimize.plans.find_in_lattice import find_plan_for
from optimize.plans.launchable import find_launchable
from optimize.plans.restricted import narrow
from optimize.plans.result import restriction_cost
from optimize.status import CommandError, Status
from tests.cli.test_cli import answer, ask, refusal
from tests.support.builders import accelerator, cluster, small_decoder, small_moe

JOB = ("--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "32")


def variants(plan: Plan):
    """The plan with each kind of overlap that does anything on and off."""
    names = ("overlap_tensor", "overlap_pipeline", "overlap_expert", "overlap_context", "overlap_data")
    for values in itertools.product((True, False), repeat=len(names)):
        yield canonical(dataclasses.replace(plan, **dict(zip(names, values, strict=True))))


def best_told_s(name, workload, machine, fixed):
    """By enumeration: every plan of the lattice with every overlap, those that the framework can be told."""
    whole = lattice(workload, machine, fixed)
    plans = dict.fromkeys(plan for index in range(len(whole)) for plan in variants(whole.plan(index)))
    told = [plan for plan in plans if not FRAMEWORKS[name].cannot(plan, workload)]
    scores = [evaluate(workload, machine, plan) for plan in told if not violations(plan, workload, machine)]
    return min(float(score.step_s) for score in scores if score.fits)


@pytest.mark.parametrize("name", FRAMEWORKS)
@pytest.mark.parametrize("experts", [False, True])
def test_the_best_of_what_can_be_told_is_that_of_all_plans_that_can(name, experts):
    workload = small_moe(batch=4, layers=2) if experts else small_decoder(batch=4, layers=2, sequence=1024)
    machine = dataclasses.replace(cluster(4, domain=4), accelerator=accelerator(hbm_bytes=5.5 * 2**30))
    fixed = {"microbatch": 1, "recompute": "none"} | ({"zero_stage": frozenset((1, 3))} if experts else {})
    best_s = best_told_s(name, workload, machine, fixed)
    result, best_of_all = find_plan_for(name, workload, machine, fixed=fixed, top=3)
    assert result.value == pytest.approx(best_s, rel=1e-6)
    assert all(FRAMEWORKS[name].cannot(ranked.plan, workload) == () for ranked in result.plans)
    assert result.gap == pytest.approx(0, abs=1e-6)
    cost = restriction_cost(result, best_of_all)
    assert cost is not None
    assert cost >= -1e-9


@pytest.mark.parametrize("kept", [{"schedule": "one_f_one_b"}, {"recompute": "full", "schedule": "interleaved"}])
def test_where_a_rule_refuses_hidden_traffic_of_experts_the_best_plan_without_it_is_found(kept):
    """Megatron hides it under virtual stages and without full recompute only; the rest of the lattice is its own."""
    workload = small_moe(batch=8, layers=4)
    machine = dataclasses.replace(cluster(8, domain=4), accelerator=accelerator(hbm_bytes=16 * 2**30))
    fixed = {"microbatch": 1, "pipeline": 2, "expert": 2, "recompute": "none", "zero_stage": 1, "context": 1, **kept}
    best_s = best_told_s("megatron", workload, machine, fixed)
    found, each = find_launchable(workload, machine, fixed=fixed)
    assert each["megatron"][0] == pytest.approx(best_s, rel=1e-6)
    assert not each["megatron"][1].overlap_expert
    assert found.gap == pytest.approx(0, abs=1e-6)
    assert found.fitting <= found.evaluations <= found.plans_in_lattice
    assert found.cells.keys() <= found.legal_cells


def test_what_is_fixed_stays_fixed():
    allowed = {"schedule": ("gpipe", "one_f_one_b"), "zero_stage": (3,), "overlap_pipeline": (False,)}

    def narrowed(**fixed):
        return narrow(fixed, allowed, {}) or {}

    assert narrowed(tensor=8)["tensor"] == 8
    assert narrowed(schedule="gpipe")["schedule"] == "gpipe"
    assert narrowed(schedule=frozenset({"gpipe", "zb_h1"}))["schedule"] == "gpipe"
    assert narrowed()["schedule"] == frozenset(allowed["schedule"])
    assert (narrowed()["zero_stage"], narrowed()["overlap_pipeline"]) == (3, False)
    assert narrow({"schedule": "zb_h1"}, allowed, {}) is None
    assert narrow({"overlap_pipeline": True}, allowed, {}) is None


def test_a_plan_that_the_launcher_cannot_run_is_refused():
    with pytest.raises(CommandError) as refused:
        find_plan_for("megatron", small_decoder(batch=8), cluster(4, domain=4), fixed={"schedule": "zb_h1"})
    assert refused.value.status is Status.infeasible
    assert refused.value.message.startswith("for Megatron-LM: ")


def test_what_a_launcher_has_no_word_for_is_said_to_be_none():
    plan = Plan(pipeline=2, stage_layers=(3, 5))
    assert "`stage_layers` is (3, 5); MaxText can be told none" in FRAMEWORKS["maxtext"].cannot(plan)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_best_plan_as_a_launch_file_is_explained_alike(capsys, tmp_path, name):
    told = answer(capsys, "plan", *JOB, "--only", name, "--launch", name, "--top", "2", "--out", tmp_path / "out")
    assert told["only"]["framework"] == name
    assert told["only"]["cost"] >= 0
    assert told["launch_cannot"] == []
    file = next(path for path in (tmp_path / "out").iterdir() if path.name.startswith("launch"))
    assert file.read_text() == told["launch"]
    asked = ("--plan", file, "--accelerators", "16")
    explained = answer(capsys, "explain", "--model", "llama3-8b", "--cluster", "h100", *asked)
    assert explained["step_s"] == pytest.approx(told["step_s"], rel=1e-12)
    assert explained["inputs"]["batch"] == 32
    assert explained["inputs"]["plan_not_read"] == []


def test_the_launch_file_alone_goes_to_standard_output(capsys):
    status, out, err = ask(capsys, "plan", *JOB, "--only", "megatron", "--launch", "megatron", "--top", "2")
    assert "only what Megatron-LM can be told: " in err
    assert status == 0
    assert out.startswith(
        "# equipoise: llama3-8b on h100, 16 accelerators, for Megatron-LM\n# written for Megatron-LM core "
    )
    assert "best plan: " in err
    assert "--global-batch-size 32 \\\n" in out


def test_options_that_are_not_read_are_told(capsys, tmp_path):
    file = tmp_path / "train.sh"
    file.write_text("--tensor-model-parallel-size 2 --micro-batch-size 1 --bf16 --moe-expert-capacity-factor 1.25")
    words = ("explain", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "8", "--plan", file)
    assert answer(capsys, *words)["inputs"]["plan_not_read"] == ["moe-expert-capacity-factor"]
    assert "not read, and may change the cost: moe-expert-capacity-factor" in ask(capsys, *words)[1]
    against = ask(capsys, "explain", *JOB, "--against", file)
    assert against[0] == 0


def test_wrong_launch_files_are_refused_in_one_line(capsys, tmp_path):
    file = tmp_path / "train.sh"
    file.write_text("--tensor-model-parallel-size 2 --micro-batch-size 0")
    words = ("explain", "--model", "llama3-8b", "--cluster", "h100", "--plan", file)
    assert f"plan ({file}): `micro-batch-size` is 0; expected an integer >= 1" in refusal(capsys, *words)
    file.write_text("--tensor-model-parallel-size 2 --num-layers 80")
    assert "`num-layers` is 80; expected the 32 layers of the model" in refusal(capsys, *words)
    assert "`only` is 'megatro'; expected one of megatron, " in refusal(capsys, "plan", *JOB, "--only", "megatro")


def test_restrictions_are_tables_of_plain_values():
    for framework in FRAMEWORKS.values():
        table: dict[str, tuple] = {}
        for alternative in framework.alternatives:
            table |= {name: (*table.get(name, ()), *values) for name, values in alternative.items()}
        assert set(table) <= {field.name for field in dataclasses.fields(Plan)}
        json.dumps(table)


def test_an_interrupted_search_tells_what_it_found():
    """The second alternative is stopped: its best so far stands beside the first one's, and no more is searched."""
    asked = []

    def search(whole, value, top):
        asked.append(len(whole))
        found = exhaustive.search(whole, value, top)
        return found if len(asked) == 1 else dataclasses.replace(found, unseen=found.top[0].value / 2)

    workload, machine = small_decoder(batch=8), cluster(4, domain=4)
    result, best_of_all = find_plan_for("megatron", workload, machine, top=2, search=search)
    assert len(asked) == 2
    assert result.status is Status.incomplete
    assert result.lower_bound <= result.value
    assert (best_of_all, restriction_cost(result, best_of_all)) == (None, None)
    inputs = resolve({"model": "llama3-8b", "cluster": "h100", "only": "megatron"})
    only = as_json(inputs, Answer(result, best_of_all, None, None))["only"]
    assert only == {"framework": "megatron", "cost": None, "best_of_all": None}


def test_fixed_sets_are_named_alike_in_every_process():
    first, second = (frozenset(names) for names in (("gpipe", "interleaved"), ("interleaved", "gpipe")))
    assert _named(("schedule", first)) == _named(("schedule", second)) == "schedule=['gpipe', 'interleaved']"
