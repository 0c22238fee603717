"""`equipoise design` as a user and as a program meet it: keys, files, refusals, and what nothing feasible tells."""

import dataclasses
import importlib
import json
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest

from costmodel.specs.loading import load_curves
from optimize import cli, clusters
from optimize.cli.design import resolve_design
from optimize.clusters import notes
from optimize.clusters.notes import missed
from optimize.question.objective import Limits, Objective
from tests.clusters import test_joint as joint

MODEL = "layers = 4\nhidden = 512\nheads = 8\nffn = 2048\nvocabulary = 4096\nsequence = 512\nbatch = 32\n"
KEYS = {
    "schema", "status", "message", "inputs", "versions", "seconds", "cluster", "jobs", "objective", "value",
    "lower_bound", "gap", "shadow_prices", "elasticities", "frontier", "evaluations", "catalogue",
}  # fmt: skip
ANSWER = {"cluster", "jobs", "value", "lower_bound", "gap", "shadow_prices", "elasticities", "evaluations"}
FEW = ("--fix", "schedule=one_f_one_b,context=1,zero_stage=1")  # plans
PICTURES = {f"{name}.{kind}" for name in ("frontier", "elasticities", "trajectory") for kind in ("png", "svg")}


@pytest.fixture
def model(tmp_path) -> str:
    path = tmp_path / "model.toml"
    path.write_text(MODEL)
    return str(path)


def ask(capsys, *words: str) -> tuple[int, str, str]:
    status = cli.run(["design", *words])
    return status, *capsys.readouterr()


def test_the_deadline_of_the_only_job_is_that_of_the_cluster():
    """It is met and in the way; the answer is as good, and as well proved."""
    found, job, plans = [], joint.JOB, {**joint.FIXED, "zero_stage": 1, "microbatch": 1, "recompute": "none"}
    for own_s, whole_s in ((4e5, None), (None, 4e5)):
        jobs = [dataclasses.replace(job, deadline_s=own_s)]
        limits = Limits(budget_usd=1.5e6, accelerators=16, deadline_s=whole_s)
        asked = {"template": joint.TEMPLATE, "curves": load_curves(), "objective": Objective.cost, "tolerance": 0.01}
        answer = clusters.design(jobs, limits, **asked, fixed=plans, sweep="", seconds=600.0)
        assert answer.continuous is not None
        assert 0.9 * 4e5 < answer.continuous.quantities.train_s <= 4e5 * (1 + 1e-6)
        found.append((answer.continuous.value, answer.continuous.lower_bound))
    assert found[0] == pytest.approx(found[1], rel=1e-9)


def test_python_has_the_prices_of_the_command(monkeypatch):
    """Where nobody says which: those of the level of the template, not of the parts that curves were derived from."""

    def told(template, curves, *_, **__):
        seen.append((template.prices, curves))
        raise InterruptedError  # no search

    seen, module = [], importlib.import_module("optimize.clusters.design")
    monkeypatch.setattr(module, "design_problem", told)
    inputs = resolve_design({"model": "llama3-8b", "tokens": 1e12, "budget_usd": 1e7})
    asked: list[dict[str, Any]] = [{}, {"curves": inputs.curves}]
    for own in asked:
        with pytest.raises(InterruptedError):
            clusters.design(inputs.jobs, inputs.limits, template=inputs.template, **own)
    assert seen[0] == seen[1]
    assert seen[0][1] != load_curves()


def test_keys_and_files(capsys, tmp_path, model):
    out = tmp_path / "out"
    words = (
        "--model",
        model,
        "--tokens",
        "1e9",
        "--budget-usd",
        "3e5",
        "--power-mw",
        "0.05",
        "--accelerators",
        "8",
        *FEW,
    )
    status, text, err = ask(capsys, *words, "--cluster", "h100", "--out", str(out), "--json", "--seconds", "600")
    assert (status, err) == (0, "")
    told = json.loads(text)
    assert told.keys() >= KEYS
    assert told["catalogue"].keys() >= ANSWER
    assert told["inputs"]["budget_is"] == "capital"
    assert "meter" in told["inputs"]["power_is"]
    for answer in (told, told["catalogue"]):
        assert answer["lower_bound"] <= answer["value"]
        assert answer["gap"] == pytest.approx(answer["value"] / answer["lower_bound"] - 1, abs=1e-12)
        assert 0 <= answer["gap"] < 1e-3
        assert answer["cluster"]["capital_usd"] <= 3e5 * (1 + 1e-9)
        assert answer["cluster"]["meter_w"] <= 5e4 * (1 + 1e-9)
        assert all(residual <= 1e-9 for residual in answer["residuals"].values())
        job = answer["jobs"][0]
        assert job["validation"]["fits"]
        assert answer["value"] == pytest.approx(job["step_s"] * 1e9 / (32 * 512) / job["goodput"])
    assert all(other["worse_by"] >= 0 for other in told["runners_up"])
    budgets = [point["budget_usd"] for point in told["frontier"]]
    values = [point["value"] for point in told["frontier"]]
    own = next(point for point in told["frontier"] if point["budget_usd"] == told["inputs"]["budget_usd"])
    assert [own[name] for name in ("value", "lower_bound", "gap")] == [
        told[name] for name in ("value", "lower_bound", "gap")
    ]
    assert budgets == sorted(budgets)
    assert values == sorted(values, reverse=True)
    assert {path.name for path in out.iterdir()} == PICTURES | {"index.html", "result.json"}
    assert json.loads((out / "result.json").read_text())["value"] == told["value"]


def test_a_limit_of_co2_and_spares(capsys, model):
    """About half of what the fastest emits: met, dearer in days, with its price; below the least, the least is told."""
    words = ("--model", model, "--tokens", "1e10", "--budget-usd", "4e5", "--accelerators", "8", "--cluster", "h100")
    words = (*words, *FEW, "--seconds", "600", "--json")
    status, text, _ = ask(capsys, *words, "--repair-days", "3")
    free = json.loads(text)
    assert status == 0
    assert free["cluster"]["spares"] == pytest.approx(free["cluster"]["accelerators"] * 12 * 3 * 24 / 60000)
    assert free["cluster"]["capital_usd"] <= 4e5 * (1 + 1e-9)
    half_t = 0.53e-6 * free["cluster"]["carbon_g"]
    status, text, _ = ask(capsys, *words, "--repair-days", "3", "--carbon-t", str(half_t), "--sweep", "carbon_g")
    told = json.loads(text)
    assert status == 0
    assert told["inputs"]["carbon_t"] == pytest.approx(half_t)
    assert told["inputs"]["repair_days"] == 3
    assert told["value"] > free["value"]
    for answer in (told, *([told["catalogue"]] if told["catalogue"] else [])):
        assert answer["cluster"]["carbon_g"] <= 1e6 * half_t * (1 + 1e-9)
        assert answer["gap"] < 1e-3
    price = told["shadow_prices"]["carbon_g"]
    assert price["value_per_limit"] > 0
    assert "CO2 allowed buys" in price["words"]
    values = [point["value"] for point in told["frontier"] if point["value"] is not None]
    assert values == sorted(values, reverse=True)
    status, _, err = ask(capsys, *words, "--carbon-t", str(0.01 * half_t))
    assert status == 3
    assert err.count("\n") == 1
    least_t = float(err.split("--carbon-t ")[1].split()[0])
    assert 0.5 * half_t < least_t <= half_t * 1.01
    days = 0.6 * free["value"] / 86400
    status, _, err = ask(capsys, *words, "--objective", "cost_usd", "--deadline-days", str(days))
    assert status == 3
    assert float(err.split("--deadline-days ")[1].split()[0]) == pytest.approx(free["value"] / 86400, rel=0.01)


def test_a_limit_that_is_missed_is_told_with_one_that_is_met():
    of = SimpleNamespace(train_s=3.21 * 86_400, carbon_g=2.5e6)
    late = cast(Any, SimpleNamespace(name="mine", residuals={"deadline_s": 0.1, "power_w": -0.1}, quantities=of))
    assert missed(late) == ["mine: `deadline_s` is missed by 10.5 %; --deadline-days 3.3 is met"]
    dirty = cast(Any, SimpleNamespace(name="mine", residuals={"carbon_g": 0.2}, quantities=of))
    assert missed(dirty) == ["mine: `carbon_g` is missed by 22.1 %; --carbon-t 2.5 is met"]


def test_the_least_of_one_job_is_not_told_of_several(monkeypatch):
    monkeypatch.setattr(notes, "search_one", lambda *_: pytest.fail("one of several jobs was searched alone"))
    jobs, limits = (joint.JOB, joint.JOB), Limits(accelerators=32, deadline_s=1.0)
    assert notes._too_low(joint.problem(jobs=jobs, limits=limits)) == ""


def test_several_jobs_and_the_screen(capsys, tmp_path, model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    jobs = tmp_path / "jobs.toml"
    one = f'[[jobs]]\nmodel = "{model}"\ntokens = 1e9\n'
    jobs.write_text(one + one.replace("1e9", "2e9") + "weight = 2.0\nbatch = 16\n")
    words = ("--jobs", str(jobs), "--budget-usd", "2e5", "--accelerators", "8", "--cluster", "h100", *FEW)
    status, text, _ = ask(capsys, *words, "--seconds", "600")
    assert status == 0
    for word in ("days to train", "nothing is better by more than", "what more would buy", "capital"):
        assert word in text
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "2.00 B tokens, 2 times" in text
    first, second, both = (
        [float(cell) for cell in line.split()[-2:]] for line in text.splitlines() if "days" in line[:5]
    )
    assert both == pytest.approx([a + 2 * b for a, b in zip(first, second, strict=True)], rel=1e-3)


def test_rent_from_end_to_end(capsys, model):
    """The least rent without a budget, by both prices; and the fastest for a little more than it."""
    words = ("--model", model, "--tokens", "1e10", "--accelerators", "2", "--rent", "--seconds", "600", "--json", *FEW)
    least = {}
    for rental in ("reserved", "on_demand"):
        status, text, _ = ask(capsys, *words, "--objective", "cost_usd", "--rental", rental)
        told = json.loads(text)
        assert status == 0
        assert told["value"] is None  # rates of any size have no rental price
        assert told["inputs"]["rental"] == rental
        found = told["catalogue"]
        least[rental] = found["value"]
        assert found["gap"] == pytest.approx(0, abs=1e-9)
        assert found["value"] == pytest.approx(found["cluster"]["usd_per_s"] * found["jobs"][0]["train_s"])
    assert least["reserved"] < least["on_demand"]
    status, text, _ = ask(capsys, *words, "--rental", "reserved", "--budget-usd", str(1.05 * least["reserved"]))
    fastest = json.loads(text)["catalogue"]
    assert status == 0
    assert fastest["cluster"]["usd_per_s"] * fastest["value"] <= 1.05 * least["reserved"] * (1 + 1e-9)
    status, _, err = ask(capsys, *words, "--rental", "reserved", "--budget-usd", str(0.5 * least["reserved"]))
    assert status == 3
    assert "rental price is known" in err
    status, text, _ = ask(capsys, *[word for word in words if word != "--json"], "--objective", "cost_usd")
    assert status == 0
    assert re.search(r"rent +[\d,.]+ (M )?USD", text)


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("--budget-usd", "1", "--rental", "reserved", "--tokens", "1e9"), 2, "`rental` is given without `rent`"),
        (("--tokens", "1e9"), 2, "`budget_usd` is missing"),
        (("--budget-usd", "1e6"), 2, "`tokens` is missing"),
        (("--budget-usd", "0", "--tokens", "1e9"), 2, "`budget_usd` is 0.0; expected a number > 0"),
        (
            ("--budget-usd", "1e6", "--tokens", "1e300"),
            2,
            "`tokens` is 1e+300; expected a number > 0 and at most 1e+24",
        ),
        (("--power-mw", "1", "--tokens", "1e9", "--rent"), 2, "`rent` is given without `budget_usd`"),
        (("--power-mw", "lots", "--tokens", "1e9"), 2, "`--power-mw` is 'lots'; expected a number"),
        (("--budget-usd", "1e6", "--tokens", "1e9", "--objective", "speed"), 2, "expected one of time_s, step_s"),
        (("--budget-usd", "1e6", "--tokens", "1e9", "--cluster", "h1"), 2, "`cluster` is 'h1'"),
        (("--budget-usd", "1e6", "--tokens", "1e9", "--jobs", "jobs.toml"), 2, "is given beside `jobs`"),
        (("--budget-usd", "100", "--tokens", "1e9"), 3, "--budget-usd"),
        (
            ("--budget-usd", "1e6", "--tokens", "1e9", "--carbon-t", "-3"),
            2,
            "`carbon_t` is -3.0; expected a number > 0",
        ),
        (("--budget-usd", "1e6", "--tokens", "1e9", "--carbon-t", "little"), 2, "`--carbon-t` is 'little'; expected a"),
        (("--budget-usd", "1e6", "--tokens", "1e9", "--sweep", "carbon_g"), 2, "without `carbon_t`; expected both"),
        (
            ("--budget-usd", "1e6", "--tokens", "1e9", "--repair-days", "0"),
            2,
            "`repair_days` is 0.0; expected a number",
        ),
    ],
)
def test_refusals(capsys, model, words, status, told):
    found, out, err = ask(capsys, "--model", model, *words)
    assert (found, out) == (status, "")
    assert told in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("tokens = 3\n", "`jobs` is None; expected a list"),
        ("[[jobs]]\ntokens = 3\n", "`model` is missing"),
        ('[[jobs]]\nmodel = "llama3-8b"\n', "`tokens` is missing"),
        ('[[jobs]]\nmodel = "llama3-8b"\ntokens = -1\n', "`tokens` is -1"),
        ('[[jobs]]\nmodel = "llama9"\ntokens = 1\n', "`model` is 'llama9'"),
        ('[[jobs]]\nmodel = "llama3-8b"\ntokens = 1\nspeed = 2\n', "`speed` is not a field"),
        ('seed = 1\n[[jobs]]\nmodel = "llama3-8b"\ntokens = 1\n', "`seed` is not a field"),
    ],
)
def test_wrong_jobs(capsys, tmp_path, content, told):
    path = tmp_path / "jobs.toml"
    path.write_text(content)
    status, _, err = ask(capsys, "--jobs", str(path), "--budget-usd", "1e6")
    assert status == 2
    assert told in err
    assert "jobs.toml" in err
    assert err.count("\n") == 1
