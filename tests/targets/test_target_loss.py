"""A target loss: tokens that suffice, pairs of shape and batch, bounds, prices, and what is impossible."""

import dataclasses
import json
import math

import numpy as np
import pytest

from costmodel.formulas import STATE_BYTES, elapsed
from costmodel.inputs import parameters
from costmodel.specs import anchored, load_cluster, load_curves, load_workload
from costmodel.target import LAWS, floor_of, loss, tokens_at_batch, tokens_for
from optimize import cli
from optimize.clusters import evolved
from optimize.question import Job, Limits, Objective
from optimize.status import CommandError
from optimize.targets import bound, jobs_of, least_loss, shapes, sure_tokens
from optimize.targets.design_for import asker, choose, prices

TARGET = {"loss": 2.2, "law": "besiroglu-2024", "confidence": 0.9}
EVEN = TARGET | {"confidence": 0.5}
TEMPLATE = load_cluster("h100")
CURVES = anchored(load_curves(), TEMPLATE)
LIMITS = Limits(budget_usd=3e6)


def ask(job, objective=Objective.time, **limits):
    own = dataclasses.replace(LIMITS, **limits)
    return asker(TEMPLATE, CURVES, "base", limits=own, objective=objective, fixed={"schedule": "one_f_one_b"})(job)


def test_at_even_odds_tokens_are_those_of_the_law():
    law = LAWS["besiroglu-2024"]
    assert sure_tokens(EVEN, 8e9, 2e6, 0.0) == pytest.approx(tokens_at_batch(tokens_for(law, 8e9, 2.2), 2e6, 2.2))


@pytest.mark.parametrize("size", [4e9, 8e9, 1e11])
def test_more_certainty_and_less_loss_take_more_tokens(size):
    odds = [sure_tokens(TARGET | {"confidence": c}, size, 2e6, 0.1) for c in (0.1, 0.6, 0.9, 0.99)]
    losses = [sure_tokens(TARGET | {"loss": value}, size, 2e6, 0.1) for value in (2.6, 2.4, 2.25)]
    assert odds == sorted(odds)
    assert losses == sorted(losses)
    assert sure_tokens(TARGET, size, 2e6, 0.3) > sure_tokens(TARGET, size, 2e6, 0.0)


def test_the_tokens_suffice_as_often_as_asked():
    from costmodel.target import sampled

    tokens = sure_tokens(TARGET, 8e9, 1.0, 0.0)
    reached = [loss(law, 8e9, tokens) <= 2.2 for law in sampled("besiroglu-2024", 1000)]
    assert np.mean(reached) == pytest.approx(0.9, abs=0.002)


def test_pairs_reach_the_loss_fewest_flop_first():
    pairs = jobs_of(EVEN, list(shapes(EVEN)), None, 0.0)
    assert len({job.workload.name for job in pairs}) > 5
    assert len({job.workload.batch for job in pairs}) == 4
    law = LAWS["besiroglu-2024"]
    for job in pairs[::7]:
        small_steps = job.tokens / tokens_at_batch(1.0, float(job.workload.batch * job.workload.sequence), 2.2)
        assert loss(law, float(parameters(job.workload)), small_steps) == pytest.approx(2.2, rel=1e-9)
    best = float(parameters(pairs[0].workload))
    assert 0.4 < best / 8.0e9 < 2.5  # flat, about the size that takes the fewest FLOP


def test_what_is_impossible_is_told_with_the_nearest():
    for target, workloads in ((TARGET | {"loss": 1.7}, None), (TARGET | {"loss": 1.98}, [load_workload("llama3-8b")])):
        with pytest.raises(CommandError, match="target-loss [0-9.]+ is possible") as raised:
            jobs_of(target, list(shapes(target)) if workloads is None else workloads, None, 0.0)
        assert raised.value.status.exit_status == 3
        nearest = float(str(raised.value).split("--target-loss ")[1].split()[0])
        size = float(parameters(workloads[0])) if workloads else 1e15
        assert math.isfinite(sure_tokens(target | {"loss": nearest}, size, 1e6, 0.0))
        assert least_loss(target, size) > floor_of(LAWS["besiroglu-2024"], size)


def test_no_cluster_is_below_the_bound_of_a_pair():
    """What evolution finds, for time and for money; the bound is that of its products."""
    job = Job(workload=load_workload("llama3-8b", sequence=2048, batch=64), tokens=1e11)
    for objective in (Objective.time, Objective.cost):
        found = evolved(ask(job, objective), 0)
        assert bound(ask(job, objective)) < found[0].log_value < bound(ask(job, objective)) + math.log(30)


def test_the_best_of_pairs_is_looked_at_and_the_others_are_told():
    pairs = [Job(workload=load_workload("llama3-8b", sequence=2048, batch=64), tokens=t) for t in (6e11, 1e11, 9e12)]
    best, rows = choose(pairs, ask, 60.0)
    assert best is pairs[1]
    assert [row["value"] is None for row in rows] == [True, False, True]  # dismissed by their bounds


def test_failures_reach_the_question_of_a_pair():
    job = Job(workload=load_workload("llama3-8b", sequence=2048, batch=64), tokens=1e11)
    steps = [
        asker(TEMPLATE, CURVES, case, limits=LIMITS)(job).steps_on(job, 1024.0) for case in ("none", "base", "high")
    ]
    assert steps[0] == job.steps
    assert steps == sorted(steps)
    assert TEMPLATE.prices is not None
    slower = elapsed(TEMPLATE.prices.base, 1024.0, STATE_BYTES * float(parameters(job.workload)))
    assert steps[1] == pytest.approx(job.steps * slower)


def test_the_price_of_a_hundredth_of_loss():
    """Seconds by the tokens that it takes; the sum of the parts on the way is the whole."""
    workload = load_workload("llama3-8b", sequence=2048, batch=64)
    (job,) = jobs_of(TARGET, [workload], 64, 0.1)

    class _Answer:  # what `prices` reads of one
        jobs = (type("J", (), {"job": job})(),)
        quantities = type("Q", (), {"train_s": 1e6, "usd_per_s": 2.0})()
        shadow_prices = {"budget_usd": {"value_per_limit": 0.5}}

    found = prices(TARGET, ask(job), _Answer(), 0.1)  # pyright: ignore[reportArgumentType]
    lower = sure_tokens(TARGET | {"loss": 2.19}, float(parameters(workload)), 64.0 * 2048, 0.1)
    assert found["hundredth_of_loss_s"] == pytest.approx(1e6 * (lower / job.tokens - 1))
    assert found["hundredth_of_loss_usd"] == pytest.approx(2e6 * (lower / job.tokens - 1))
    assert found["day_sooner_usd"] == pytest.approx(3e6 / (0.5 * 1e6 / 86400))


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("design --target-loss 1.6 --budget-usd 5e7", 3, "--target-loss 1.88 is possible"),
        ("design --target-loss 2.1 --deadline-days 1e-9", 3, "--deadline-days 0.0"),
        ("design --target-loss 2.1 --tokens 1e12 --budget-usd 5e7", 2, "`tokens` is given beside `target_loss`"),
        ("design --confidence 0.9 --model llama3-8b --tokens 1e12 --budget-usd 5e7", 2, "without `target_loss`"),
        ("design --target-loss 2.1 --confidence 1.5 --budget-usd 5e7", 2, "`confidence` is 1.5"),
        ("design --target-loss -1 --budget-usd 5e7", 2, "`target_loss` is -1"),
        ("design --model llama3-8b --tokens 1e12 --budget-usd 5e7 --failures often", 2, "none, low, base, high"),
        ("explain --model llama3-8b --cluster h100 --accelerators 64 --target-loss 1.5", 3, "--target-loss 2.01"),
        ("explain --model llama3-8b --cluster h100 --target-loss 2.2 --tokens 1e12", 2, "beside `target_loss`"),
        ("explain --model llama3-8b --cluster h100 --deadline-days 3", 2, "without `tokens` or `target_loss`"),
        ("explain --model llama3-8b --cluster h100 --tokens 1e12 --failures often", 2, "none, low, base, high"),
    ],
)
def test_refusals(capsys, words, status, message):
    assert cli.run(words.split()) == status
    assert message in capsys.readouterr().err


def test_explain_tells_the_time_to_a_target(capsys):
    words = "explain --model llama3-8b --cluster h100 --accelerators 64 --batch 512 --target-loss 2.1".split()
    assert cli.run([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = told["time_to_target"]
    assert found["train_s"] == pytest.approx(found["steps"] * told["step_s"] / found["goodput"])
    assert found["goodput"] == pytest.approx(told["economics"]["goodput"])
    assert found["usd"] == pytest.approx(found["steps"] * told["economics"]["usd_per_step"])
    assert found["carbon_g"] == pytest.approx(found["joule"] / 3.6e6 * 481, rel=1e-9)
    assert cli.run(words) == 0
    assert "loss 2.1" in capsys.readouterr().out


def test_explain_tells_how_likely_a_deadline_is(capsys):
    """At the predicted time even odds, at its 90th percentile nine in ten; less sure of a loss than of tokens."""
    words = "explain --model llama3-8b --cluster h100 --accelerators 64 --batch 512 --json".split()

    def told(*more):
        assert cli.run([*words, *more]) == 0
        return json.loads(capsys.readouterr().out)

    def odds(days, *target):
        return told(*target, "--deadline-days", str(days))["time_to_target"]["deadline_probability"]

    tokens, target = ("--tokens", "1e12"), ("--target-loss", "2.2")
    first, other = told(*tokens), told(*target)
    assert first["time_to_target"]["deadline_probability"] is None
    days, spread = first["time_to_target"]["train_s"] / 86400, first["step_s_p90"] / first["step_s"]
    np.testing.assert_allclose([odds(days * f, *tokens) for f in (1 / spread, 1, spread)], (0.1, 0.5, 0.9), atol=1e-6)
    even = other["time_to_target"]["train_s"] / 86400
    early, middle, late = (odds(even * factor, *target) for factor in (1 / spread, 1, spread))
    assert 0.1 < early < middle < late < 0.9
    assert middle == pytest.approx(0.5, abs=0.1)
    spared = told("--tokens", "1e12", "--repair-days", "3")
    assert spared["economics"]["purchase_usd"] > first["economics"]["purchase_usd"]
    assert told("--tokens", "1e12", "--failures", "none")["time_to_target"]["goodput"] == 1


def test_plan_tells_what_explain_tells_of_its_best(capsys, tmp_path):
    few = "tensor=2,pipeline=1,context=1,microbatch=1,zero_stage=1,schedule=one_f_one_b"
    job = "--model llama3-8b --cluster h100 --accelerators 16 --batch 64 --tokens 1e11 --deadline-days 9 --json".split()
    assert cli.run(["plan", *job, "--fix", few]) == 0
    best = capsys.readouterr().out
    (tmp_path / "plan.json").write_text(best)
    assert cli.run(["explain", *job, "--plan", str(tmp_path / "plan.json")]) == 0
    told, explained = (json.loads(text)["time_to_target"] for text in (best, capsys.readouterr().out))
    assert [told.pop(name) for name in ("loss", "law")] == [explained.pop(name) for name in ("loss", "law")]
    assert told == pytest.approx(explained, rel=1e-6)
    assert 0 < told["deadline_probability"] < 1


@pytest.mark.parametrize("limit", [("--budget-usd", "3e6"), ("--deadline-days", "90")])
def test_from_a_loss_to_a_cluster(capsys, limit):
    """Shape, batch, tokens, plan and cluster; the answer ends in time, and the other pairs are told."""
    assert cli.run(["design", "--target-loss", "2.3", *limit, "--seconds", "60", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    target, job = told["target"], told["jobs"][0]
    assert job["train_s"] == pytest.approx(target["steps"] * job["step_s"] / job["goodput"], rel=1e-9)
    assert job["tokens"] == target["tokens"]
    assert target["hundredth_of_loss_s"] > 0
    assert len(target["pairs"]) > 10
    if limit[0] == "--deadline-days":
        assert job["train_s"] <= 90 * 86400 * (1 + 1e-9)
        assert told["objective"] == "cost_usd"
