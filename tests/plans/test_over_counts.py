"""Ranges of accelerators and batches against a loop over all of them; what is told near an answer; who can launch."""

import dataclasses
import json
import math

import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from optimize.cli.plan_ranges import RANGE
from optimize.lattice.enumeration import lattice
from optimize.launch.frameworks import FRAMEWORKS, launch, names_on
from optimize.plans import find_in_lattice, find_plan_for, over_counts
from optimize.plans.bounded import best_below, least, ordered
from optimize.plans.launchable import best_for_each, find_launchable, launchers, parts_of, refusals
from optimize.plans.nearby import near_batches, nearby
from optimize.plans.over_counts import Question, best_on, best_over
from optimize.plans.plan_values import plan_value
from optimize.question.clusters import sized
from optimize.status import CommandError, Status
from tests.cli.test_cli import answer, ask, refusal
from tests.support.builders import accelerator, cluster, small_decoder

FIXED = {"recompute": "none", "context": 1}
MACHINE = dataclasses.replace(cluster(16, domain=4), accelerator=accelerator(hbm_bytes=5.5 * 2**30))
COUNTS, BATCHES = range(1, 17), (12, 16)


def question(**changes) -> Question:
    asked = {"fixed": FIXED, "most": 16, "workload": small_decoder(batch=16), "machine": lambda n: sized(MACHINE, n)}
    return Question(**{**asked, **changes})


def brute_force(own: Question, only: str | None = None, counts=COUNTS, batches=BATCHES) -> dict[tuple[int, int], float]:
    """The least step of every pair on which something is legal and fits, each by a search of its own."""
    found = {}
    for count in counts:
        for batch in batches:
            workload, machine = own.job(count, batch)
            options = {"fixed": own.fixed_on(count), "top": 1, "margin": 0.5}
            try:
                if only is None:
                    found[count, batch] = find_in_lattice(workload, machine, **options).value
                else:
                    found[count, batch] = find_plan_for(only, workload, machine, **options)[0].value
            except CommandError:
                continue
    return found


def test_the_best_pair_is_that_of_all_pairs():
    own = question(by_sequence=True)
    every = brute_force(own)
    best = min(every, key=lambda pair: every[pair] / pair[1])
    found = best_over(own, COUNTS, BATCHES)
    assert found["best"]["compared"] == pytest.approx(every[best] / best[1], rel=1e-9)
    assert found["best"]["step_s"] == pytest.approx(every[found["best"]["accelerators"], found["best"]["batch"]])
    assert found["complete"]
    assert found["gap"] == 0
    assert found["pairs"] == len(COUNTS) * len(BATCHES)
    assert len(every) <= found["possible"] < found["pairs"]  # 13 divides nothing
    for row in found["rows"]:
        if row["outcome"] in ("no plan", "no memory"):
            assert (row["accelerators"], row["batch"]) not in every


@pytest.mark.parametrize("after", [19, 20])
def test_a_gap_holds_for_the_pair_that_was_interrupted(after, monkeypatch):
    """One that was not looked at to its end may still be the best, as the last is here."""
    own = question(by_sequence=True)
    best = best_over(own, COUNTS, BATCHES)["best"]["compared"]
    usual, looked = over_counts._look, []

    def interrupted(*asked):
        looked.append(asked[1])
        if len(looked) == after:
            raise KeyboardInterrupt
        return usual(*asked)

    monkeypatch.setattr(over_counts, "_look", interrupted)
    found = best_over(own, COUNTS, BATCHES)
    assert not found["complete"]
    assert found["best"]["compared"] > best * (1 + 1e-6)
    lowest = found["best"]["compared"] / (1 + found["gap"])
    assert lowest <= min(best, looked[-1].bound) * (1 + 1e-12)


def test_many_pairs_have_an_answer_soon(monkeypatch):
    """That of one pair, which is as good as its gap says; and the same in the end."""
    own = question(by_sequence=True)
    best, looked = best_over(own, COUNTS, BATCHES)["best"], []
    monkeypatch.setattr(over_counts, "_MANY", 8)
    usual = over_counts._look

    def interrupted(*asked):
        looked.append(asked[1])
        if len(looked) == 4:  # that pair takes two
            raise KeyboardInterrupt
        return usual(*asked)

    assert best_over(own, COUNTS, BATCHES)["best"] == best
    monkeypatch.setattr(over_counts, "_look", interrupted)
    found = best_over(own, COUNTS, BATCHES)
    assert not found["complete"]
    assert found["best"]["compared"] / (1 + found["gap"]) <= best["compared"] * (1 + 1e-12)


def test_the_fewest_are_the_least_count_of_all_that_have_a_plan():
    large = small_decoder(batch=16, hidden=2048, ffn=8192)
    small = dataclasses.replace(MACHINE, accelerator=accelerator(hbm_bytes=4.2 * 2**30))
    own = question(workload=large, machine=lambda n: sized(small, n))
    every = brute_force(own)
    fewest = best_over(own, COUNTS, BATCHES, fewest=True)["best"]
    assert fewest["accelerators"] == min(count for count, _ in every) > 1  # one accelerator is too small
    tokens = 1e6 * 16 * own.workload.sequence
    deadline_s = 1e6 * sorted(every[count, 16] for count, batch in every if batch == 16)[2] * (1 + 1e-6)
    in_time = [count for (count, batch), step_s in every.items() if step_s * 16 / batch * 1e6 <= deadline_s]
    own = dataclasses.replace(own, tokens=tokens)
    assert best_over(own, COUNTS, BATCHES, fewest=True, deadline_s=deadline_s)["best"]["accelerators"] == min(in_time)
    timed = dataclasses.replace(own, objective="time_s")
    found = best_over(timed, COUNTS, BATCHES, fewest=True, deadline_s=deadline_s)["best"]
    assert (found["accelerators"], found["value"] <= deadline_s) == (min(in_time), True)
    with pytest.raises(CommandError, match="days on none of") as refused:
        best_over(own, COUNTS, BATCHES, fewest=True, deadline_s=deadline_s / 1e6)
    assert refused.value.status is Status.infeasible


def test_a_deadline_holds_failures():
    """As `time_s`, `explain` and `design` have it: the least count on which training ends in time with them."""
    prices = load_cluster("h100").prices
    assert prices is not None
    often = dataclasses.replace(prices, base=dataclasses.replace(prices.base, accelerator_failure_s=1e5))
    own = question(tokens=1e9, machine=lambda n: dataclasses.replace(sized(MACHINE, n), prices=often))
    train_s = {n: best_on(dataclasses.replace(own, objective="time_s"), n, 16) for n in (2, 4, 8)}
    for most_s in (row["value"] for row in train_s.values()):
        for asked in (own, dataclasses.replace(own, objective="time_s")):
            found = best_over(asked, (2, 4, 8), (16,), fewest=True, deadline_s=most_s * (1 + 1e-9))["best"]
            assert found["accelerators"] == min(n for n, row in train_s.items() if row["value"] <= most_s)
    steps = 1e9 / (16 * own.workload.sequence)
    assert train_s[8]["value"] > 1.01 * steps * train_s[8]["step_s"]


def test_the_best_pair_that_a_framework_can_launch():
    own = question(names=("torchtitan",))
    every = brute_force(own, "torchtitan", range(10, 17), (16,))
    best = best_over(own, range(10, 17), (16,))["best"]
    assert best["compared"] == pytest.approx(min(every.values()))
    assert "torchtitan" in launchers(best["plan"], own.workload, MACHINE)
    assert best_on(own, best["accelerators"], 16)["value"] == pytest.approx(best["value"])


def test_where_nothing_is_legal_or_fits_it_is_said():
    with pytest.raises(CommandError, match="no plan of .* is legal on 13 ") as refused:
        best_over(question(), (13,), (16,))
    assert refused.value.status is Status.bad_input
    small = dataclasses.replace(MACHINE, accelerator=accelerator(hbm_bytes=2**28))
    with pytest.raises(CommandError, match="no plan of .* fits on 1 to 2 ") as refused:
        best_over(question(machine=lambda n: sized(small, n)), (1, 2), (16,))
    assert refused.value.status is Status.infeasible


def test_no_more_domains_are_used_than_there_are():
    own = question(most=10)  # three domains of four
    assert own.fixed_on(9)["domain"] == frozenset({3})
    assert own.fixed_on(8)["domain"] == frozenset({4})
    assert own.fixed_on(10)["domain"] == frozenset()
    assert own.fixed_on(3)["domain"] == frozenset({4})
    assert question(fixed={"domain": 2}).fixed_on(8)["domain"] == 2


@pytest.mark.parametrize("fixed", [FIXED, FIXED | {"schedule": frozenset(("zb_v", "one_f_one_b"))}])
def test_bounded_search_finds_the_best_of_a_lattice(fixed):
    workload = small_decoder(batch=16)
    result = find_in_lattice(workload, MACHINE, fixed=fixed, margin=0.5, top=2)
    whole = lattice(workload, MACHINE, fixed)
    value = plan_value("step_s", workload, MACHINE, sorted(set(whole.rows["domain"].tolist())))
    found, unseen = best_below(whole, value)
    assert found is not None
    assert (found[0], unseen) == (pytest.approx(result.value, rel=1e-12), math.inf)
    assert least(whole, value) <= result.value
    assert best_below(whole, value, result.value)[0] is None
    worse, _ = best_below(whole, value, keeps=lambda plan: plan != found[1])
    assert worse is not None
    assert worse[0] == pytest.approx(result.plans[1].value, rel=1e-12)
    assert best_below(whole, value, most=0) == (None, pytest.approx(least(whole, value)))


def test_the_best_that_some_framework_can_launch():
    """Against a search for each of the frameworks alone; what is behind is a plan of theirs, and fits."""
    workload, fixed = small_decoder(batch=16), FIXED | {"microbatch": 1, "zero_stage": frozenset((1, 3))}
    alone, best_of_all = {}, None
    for name in FRAMEWORKS:
        result, best_of_all = find_plan_for(name, workload, MACHINE, fixed=fixed, margin=0.5, top=2)
        alone[name] = result.value
    found, each = find_launchable(workload, MACHINE, fixed=fixed, margin=0.5, top=2)
    assert found.value == pytest.approx(min(alone.values()), rel=1e-9)
    assert best_of_all is not None
    assert found.value >= best_of_all.value * (1 - 1e-12)
    assert ["+" in ranked.reason for ranked in found.plans] == [False, True]  # two terms, then what is lost to them
    assert found.restriction is not None
    assert each.keys() == alone.keys()
    for name, (value, plan) in each.items():
        assert value >= alone[name] * (1 - 1e-9)
        assert FRAMEWORKS[name].can(plan, workload)
        assert violations(plan, workload, MACHINE) == ()
        score = evaluate(workload, MACHINE, plan)
        assert (float(score.step_s), bool(score.fits)) == (pytest.approx(value), True)
    assert all(launchers(ranked.plan, workload, MACHINE) for ranked in found.plans)


def test_where_nobody_can_launch_what_is_fixed_all_plans_are_searched():
    workload, fixed = small_decoder(batch=16), FIXED | {"schedule": "zb_h1", "pipeline": 2}
    found, each = find_launchable(workload, MACHINE, fixed=fixed, margin=0.5, top=1)
    assert (each, found.plan.schedule) == ({}, "zb_h1")
    assert launchers(found.plan, workload, MACHINE) == ()
    assert refusals(found.plan, workload, MACHINE).keys() == FRAMEWORKS.keys()


def test_frameworks_run_where_they_are_made_for():
    assert [len(names_on(load_cluster(name))) for name in ("h100", "mi300x", "tpu-v5p", "trainium2")] == [5, 5, 1, 0]
    job = load_workload("llama3-8b", batch=64), load_cluster("tpu-v5p", 16)
    usable = int(job[1].tiers[0].usable_size)
    found, each = find_launchable(*job, fixed={"recompute": "none", "domain": frozenset({usable})}, top=2)
    assert list(each) == ["maxtext"]
    heads = {name: "is not made for tpu-v5p" in launch(name, found.plan, *job) for name in FRAMEWORKS}
    assert [name for name, said in heads.items() if not said] == ["maxtext"]
    assert found.value == pytest.approx(each["maxtext"][0])


def test_the_answer_is_that_of_the_framework_whose_own_plan_is_best():
    """Of two that can be told it, one sums gradients in another format by itself; the usual domain has no number."""
    fixed = {"domain": 8, "pipeline": 1, "context": 1, "data_shard": 4, "zero_stage": 2}
    found, each = find_launchable(small_decoder(batch=32), load_cluster("h100", 16), fixed=fixed, top=1)
    assert found.value == pytest.approx(min(value for value, _ in each.values()), rel=1e-12)
    assert found.plan.gradient_dtype == "bf16"


def test_bounds_of_all_plans_hold_for_the_parts():
    workload = small_decoder(batch=16)
    whole = ordered(lattice(workload, MACHINE, FIXED))
    for parts in parts_of(whole).values():
        for fields, part in parts:
            own = ordered(lattice(workload, MACHINE, fields))
            assert part.floor_s is not None
            assert own.floor_s is not None
            assert len(part) == len(own)
            assert all(part.floor_s <= own.floor_s * (1 + 1e-9))
    value = plan_value("step_s", workload, MACHINE, [4])
    assert list(best_for_each({}, value, {})) == []


def test_what_is_told_nearby_is_a_plan_that_does_it():
    workload = small_decoder(batch=16)
    machine = sized(MACHINE, 12)
    plan = find_in_lattice(workload, machine, margin=0.5).plan
    less, other = nearby(workload, machine, {}, plan)
    own_s = float(evaluate(workload, machine, plan).step_s)
    for row in filter(None, (less, other)):
        workload_of, machine_of = dataclasses.replace(workload, batch=row["batch"]), sized(machine, row["accelerators"])
        told = evaluate(workload_of, machine_of, row["plan"])
        assert (float(told.step_s), bool(told.fits)) == (pytest.approx(row["step_s"]), True)
        assert row["step_s"] / row["batch"] < own_s / 16
    assert near_batches(512, 24) == [504, 528, 516, 510]
    assert near_batches(512, 512) == []


@pytest.mark.parametrize(
    ("value", "kept"),
    [(8, (8, 8)), ("8", (8, 8)), ("400:512", (400, 512)), ("512:400", None), ("1:2:3", None), (True, None), (8.5, None),
     ("a", None), ("0:4", None), (None, None), ("", None), ("8:", None), (-3, None)],
)  # fmt: skip
def test_a_number_or_a_range(value, kept):
    assert (RANGE.keep(value) if RANGE(value) else None) == kept


# as a user meets it

JOB = ("plan", "--model", "llama3-8b", "--cluster", "h100")
QUICK = ("--fix", "schedule=one_f_one_b,recompute=none,context=1,zero_stage=1", "--top", "2")


def test_a_range_on_the_command_line(capsys):
    told = answer(capsys, *JOB, *QUICK, "--at-most", "24", "--batch", "48")
    assert told["range"]["best"]["accelerators"] == 24
    assert told["inputs"]["accelerators"] == 24
    assert told["step_s"] == pytest.approx(told["range"]["best"]["step_s"], rel=1e-9)
    assert told["step_s_p10"] < told["step_s"] < told["step_s_p90"]
    seconds = [row["step_s"] for row in told["range"]["curve"]]
    assert min(seconds) == pytest.approx(told["step_s"])
    assert told["launch_by"]["megatron"]["can"] is True
    alone = answer(capsys, *JOB, *QUICK, "--accelerators", "24", "--batch", "48", "--any")
    assert alone["step_s"] <= told["step_s"] * (1 + 1e-9)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_the_screen_of_a_range(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, err = ask(capsys, *JOB, *QUICK, "--accelerators", "16:24", "--batch", "48:50")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= int(columns)
    assert "…" not in out
    for words in ("searched: 16 to 24 accelerators with batches of 48 to 50", "times the best", "what can launch it"):
        assert words in " ".join(out.split())


def test_a_count_that_nothing_divides_is_answered_with_what_works(capsys):
    message = refusal(capsys, *JOB, "--accelerators", "500", "--batch", "512")
    assert "`data` x `microbatch` is 500" in message
    assert "384 accelerators take " in message
    assert "--batch 496 on 496 accelerators takes " in message
    assert "--at-most 500 and --batch 496:528 searches all of them" in message


@pytest.mark.parametrize("frameworks", [("megatron", "torchtitan"), ("torchtitan",), ("maxtext",)])
def test_what_is_told_nearby_can_be_launched(frameworks):
    workload, machine = load_workload("mixtral-8x7b", batch=512), load_cluster("h100", accelerators=500)
    told = nearby(workload, machine, {}, frameworks=frameworks)
    for row in told:
        assert row is not None
        own = dataclasses.replace(workload, batch=row["batch"])
        found = launchers(row["plan"], own, sized(machine, row["accelerators"]))
        assert set(found) & set(frameworks)
    other = nearby(workload, machine, {"overlap_expert": True})[0]
    assert other is not None
    assert other["plan"].overlap_expert


def test_fewer_accelerators_and_other_batches_are_told_where_they_are_better(capsys):
    fixed = (*JOB, "--accelerators", "24", "--fix", "schedule=one_f_one_b,recompute=none", "--top", "1")
    told = answer(capsys, *fixed, "--batch", "512")["nearby"]
    assert told["fewer"] is None
    assert told["batch"]["batch"] == 516
    assert json.dumps(told)
    assert answer(capsys, *fixed, "--batch", "504")["nearby"] == {"fewer": None, "batch": None}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--at-most", "8", "--accelerators", "4"), "`at_most` is given beside `accelerators`"),
        (("--accelerators", "9:8"), "`accelerators` is '9:8'; expected an integer"),
        (("--batch", "8:x"), "`batch` is '8:x'; expected an integer"),
        (("--deadline-days", "3"), "`tokens` is missing with `deadline_days`"),
        (("--fewest", "--deadline-days", "3"), "`tokens` is missing with `deadline_days`"),
        (
            ("--fewest", "--objective", "cost_usd", "--tokens", "1e9"),
            "`objective` is 'cost_usd'; expected step_s or time_s",
        ),
        (("--at-most", "2000000"), "expected at most 1,000,000 pairs"),
        (("--at-most", "8", "--processes", "2", "--process", "1", "--coordinator", "h:1"), "`processes` is given with"),
    ],
)
def test_ranges_that_make_no_sense(capsys, words, said):
    assert said in refusal(capsys, *JOB, *words)
