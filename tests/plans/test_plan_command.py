"""`equipoise plan` as a user and as a program meet it: keys, tables, figures, refusals, and how soon it answers."""

import csv
import dataclasses
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys

import pytest

from costmodel.formulas import STATE_BYTES, elapsed
from costmodel.inputs import parameters
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from optimize import cli
from optimize.lattice.enumeration import count
from optimize.plans.exhaustive import COMPILE_FROM
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.status import CommandError, Status
from tests.support import ROOT
from tests.support.commands import answer, ask

PLAN = ("plan", "--model", "llama3-8b", "--cluster", "h100", "--accelerators", "16", "--batch", "64", "--any")
QUICK = (*PLAN, "--fix", "schedule=one_f_one_b,recompute=none")
ROOMY = (*QUICK, "--margin", "0.8")
"""Where memory does not decide between plans that are equally fast."""


def test_json_keys(capsys):
    told = answer(capsys, *PLAN)
    assert {"schema", "status", "message", "inputs", "versions", "seconds"} <= told.keys()
    assert {"plan", "step_s", "lower_bound_s", "gap", "plans", "evaluations", "elasticities"} <= told.keys()
    assert all({"plan", "step_s", "mfu", "peak_bytes"} <= plan.keys() for plan in told["plans"])
    assert (told["schema"], told["status"], told["gap"]) == (1, "ok", 0)
    assert told["plan"] == told["plans"][0]["plan"]
    assert told["lower_bound_s"] == pytest.approx(told["step_s"], rel=1e-14)
    assert len(told["plans"]) == 10
    seconds = [plan["step_s"] for plan in told["plans"]]
    assert seconds == sorted(seconds)
    assert told["evaluations"] == told["plans_in_lattice"] > told["fitting"] > 0
    assert told["validation"]["fits"] is True
    assert told["validation"]["violations"] == []
    assert told["restriction"] is None
    assert any("recompute of other shares" in words for words in told["not_searched"])


def test_the_answer_is_a_plan_that_explain_takes(capsys, tmp_path):
    told = answer(capsys, *PLAN, "--top", "1")
    (tmp_path / "answer.json").write_text(json.dumps(told))
    again = answer(capsys, "explain", *PLAN[1:-1], "--plan", tmp_path / "answer.json")
    assert again["step_s"] == pytest.approx(told["step_s"], rel=1e-12)
    assert again["memory"]["fits"] is True


def test_what_is_fixed_is_kept_and_its_cost_told(capsys):
    told = answer(capsys, *PLAN, "--fix", "tensor=8, schedule=one_f_one_b,sequence-parallel=off,stage_layers=20:12")
    plan = told["plan"]
    assert (plan["tensor"], plan["sequence_parallel"], plan["stage_layers"]) == (8, False, [20, 12])
    best = answer(capsys, *PLAN)
    assert told["restriction"] == pytest.approx(told["step_s"] / best["step_s"] - 1, rel=1e-9)
    assert told["restriction"] > 0


def test_what_no_search_would_change_is_no_restriction(capsys):
    """Another precision is another problem: there is nothing to compare with."""
    assert answer(capsys, *QUICK[:-1], "precision=fp8_block", "--top", "1")["restriction"] is None
    told = answer(capsys, *QUICK[:-1], "precision=fp8_block,tensor=8", "--top", "1")
    assert told["restriction"] > 0


def test_help_has_examples(capsys):
    assert cli.run(["plan", "--help"]) == 0
    told = capsys.readouterr().out
    assert "examples:" in told
    assert "nanotron, xla, xla-gpu, or" in " ".join(told.replace("│", " ").split())
    assert "  equipoise plan --model llama3-405b --cluster h100 --accelerators 16384 --batch 2048" in told


@pytest.mark.parametrize(("fixed", "said"), [({"tensr": 8}, "did you mean tensor"), ({"tensor": 0}, "`tensor` is 0")])
def test_fixed_fields_are_checked_in_python_too(fixed, said):
    with pytest.raises(SpecError, match=said):
        find_in_lattice(load_workload("llama3-8b"), load_cluster("h100", 8), fixed=fixed)


def test_the_table(capsys):
    status, out, err = ask(capsys, *ROOMY, "--top", "3")
    assert (status, err) == (0, "")
    for words in ("step", "MFU", "gap", "its time: ", "best plan: ", "all were evaluated", "wins with", "fixed"):
        assert words in out
    assert max(map(len, out.splitlines())) <= 100


def test_out_writes_tables_and_figures(capsys, tmp_path):
    told = answer(capsys, *QUICK, "--out", tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    drawn = ("plan_space", "elasticities", "step_and_memory", "timeline")
    figures = {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")}
    assert names == {"index.html", "result.json", "plans.csv.gz", "trace.json", *figures}
    with gzip.open(tmp_path / "out" / "plans.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    assert told["table"] == {"file": "plans.csv.gz", "rows": len(rows), "of": len(rows)}
    assert len(rows) >= told["evaluations"]  # those without the restriction stand there too
    fitting = [float(row["step_s"]) for row in rows[: told["evaluations"]] if row["fits"] == "1"]
    assert len(fitting) == told["fitting"]
    assert min(fitting) == pytest.approx(told["step_s"], rel=1e-5)


def test_every_objective(capsys):
    """At one number of accelerators and one size of domains time and money agree on the plan, and so do energy and CO2
    on one that is no faster; their values are consistent."""
    plain, chosen = answer(capsys, *ROOMY), {}
    tokens = 64 * 8192
    for name, options in {
        "time_s": ("--tokens", "1e12"),
        "cost_usd": ("--tokens", "1e12"),
        "energy_j": ("--tokens", "1e12"),
        "carbon_g": ("--tokens", "1e12"),
        "tokens_per_usd": (),
        "tokens_per_j": (),
    }.items():
        told = answer(capsys, *ROOMY, "--objective", name, *options)
        chosen[name] = told["plan"]
        assert told["step_s"] >= plain["step_s"]
        assert told["gap"] == 0
        if name == "time_s":
            state_bytes = STATE_BYTES * parameters(load_workload("llama3-8b"))
            prices = load_cluster("h100").prices
            assert prices is not None
            slower = elapsed(prices.base, 16.0, state_bytes)
            assert told["value"] == pytest.approx(plain["step_s"] * 1e12 / tokens * slower)
        if name == "tokens_per_usd":
            assert told["value"] * answer(capsys, *ROOMY, "--objective", "cost_usd", "--tokens", "1e12")[
                "value"
            ] == pytest.approx(1e12)
    assert chosen["time_s"] == chosen["cost_usd"] == chosen["tokens_per_usd"] == plain["plan"]
    assert chosen["energy_j"] == chosen["carbon_g"] == chosen["tokens_per_j"]


def test_a_function_of_a_breakdown():
    """The plan with the least of whatever it returns; here: bytes first, whatever they cost in time."""

    def memory(breakdown):
        return breakdown.memory.peak_bytes

    workload, machine = load_workload("llama3-8b", batch=16), load_cluster("h100", 8)
    fixed = {"schedule": "one_f_one_b", "context": 1, "recompute": "full", "recompute_share": 1.0}
    found = find_in_lattice(workload, machine, fixed=fixed, objective=memory)
    fastest = find_in_lattice(workload, machine, fixed=fixed)
    assert found.objective == "memory"
    assert found.plans[0].peak_bytes < fastest.plans[0].peak_bytes
    assert found.value == pytest.approx(found.plans[0].peak_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--fix", "tensro=8"), ("`fix`", "did you mean tensor")),
        (("--fix", "tensor"), ("`fix`", "'tensor'", "field=value")),
        (("--fix", "tensor=eight"), ("`fix`", "`tensor`", "'eight'", "an integer")),
        (("--fix", "tensor=0"), ("`fix`", "`tensor`", "'0'", "an integer")),
        (("--fix", "schedule=1f1b"), ("`fix`", "`schedule`", "'1f1b'", "one_f_one_b")),
        (("--fix", "tensor=2,tensor=4"), ("`fix`", "twice")),
        (("--fix", "sequence_parallel=maybe"), ("`fix`", "'maybe'", "true or false")),
        (("--fix", ""), ("`fix`",)),
        (("--fix", "tensor=7"), ("`tensor` is 7",)),
        (("--fix", "zero_stage=0,data_shard=4"), ("`data_shard`",)),
        (("--fix", "precision=nvfp4"), ("nvfp4",)),
        (("--objective", "speed"), ("`objective` is 'speed'", "tokens_per_usd")),
        (("--objective", "cost_usd"), ("`tokens`", "missing")),
        (("--tokens", "-1"), ("`tokens` is -1", "> 0")),
        (("--top", "0"), ("`top` is 0",)),
        (("--only", "vllm"), ("`only` is 'vllm'",)),
        (("--processes", "2"), ("`process` is missing", "--process 0")),
        (("--processes", "2", "--process", "1"), ("`coordinator` is missing",)),
        (("--processes", "2", "--process", "2", "--coordinator", "h:1"), ("`process` is 2", "0 to 1")),
        (("--processes", "2", "--process", "1", "--coordinator", "host"), ("`coordinator` is 'host'", "host:port")),
        (("--out", __file__), ("`out`", "a directory")),
        (("--checkpoint", __file__), ("`checkpoint`", "a directory")),
        (("--batch", "1000000000000"), ("`batch` is 1000000000000", "at most")),
        (("--accelerators", "1000000000001"), ("`accelerators` is 1000000000001", "at most")),
        (("--batch", "7", "--fix", "tensor=1,pipeline=1,context=1"), ("7 sequences",)),
    ],
)
def test_refusals(capsys, words, said):
    status, out, err = ask(capsys, *PLAN, *words)
    assert (status, out) == (2, ""), err
    assert err.count("\n") == 1
    assert err.startswith("equipoise: ")
    for word in said:
        assert word in err


def test_nothing_fits(capsys):
    """By how much memory is short, and two changes that make room: each does."""
    small = ("plan", "--model", "llama3-70b", "--cluster", "h100", "--accelerators", "4", "--batch", "64")
    status, out, err = ask(capsys, *small)
    assert (status, out) == (3, "")
    for words in ("does not fit on 4 h100", "too much", "more memory on each accelerator"):
        assert words in err, err
    workload, accelerators = load_workload("llama3-70b", batch=64), int(err.rpartition("--accelerators ")[2])
    found = find_in_lattice(workload, load_cluster("h100", accelerators))
    assert violations(found.plan, workload, load_cluster("h100", accelerators)) == ()
    share = float(re.findall(r"([0-9.]+) % too much", err)[0]) / 100
    chip = load_cluster("h100", 4).accelerator
    for more, status in ((share + 1e-3, Status.ok), (share - 1e-3, Status.infeasible)):
        larger = dataclasses.replace(chip, hbm_bytes=chip.hbm_bytes * (1 + more))
        machine = dataclasses.replace(load_cluster("h100", 4), accelerator=larger)
        if status is Status.ok:
            assert find_in_lattice(workload, machine).status is status
        else:
            with pytest.raises(CommandError, match="does not fit"):
                find_in_lattice(workload, machine)


def test_an_interruption_prints_the_best_so_far(tmp_path):
    """Ctrl-C in the middle: a table with a status and a bound. What is written is whole."""
    script = (
        "import sys, optimize.plans.exhaustive as e\n"
        "make = e.evaluator\n"
        "def slow(whole):\n"
        "    seen, evaluate = [], make(whole)\n"
        "    def one(chunk):\n"
        "        if len(seen) == 2: print('two', file=sys.stderr, flush=True); __import__('time').sleep(60)\n"
        "        seen.append(chunk); return evaluate(chunk)\n"
        "    return one\n"
        "e.evaluator, e.CHUNK = slow, 4096\n"
        "import optimize.cli; optimize.cli.main(sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", script, *PLAN, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "two\n"
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
    told = json.loads(out)
    assert (running.returncode, told["status"], told["evaluations"]) == (130, "incomplete", 2 * 4096)
    assert 0 < told["lower_bound_s"] < told["step_s"]
    assert told["gap"] > 0


# how soon it answers: processor time, which other work on the machine does not change much

_BIG = (
    "plan",
    "--model",
    "gpt3-175b",
    "--cluster",
    "h100",
    "--accelerators",
    "4096",
    "--batch",
    "2048",
    "--any",
    "--json",
)


def _processor_s(*arguments: str, cache: str | None) -> float:
    """User and system seconds of a new process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {} if cache is None else {"XDG_CACHE_HOME": cache}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def test_it_answers_within_times_of_import_jax(tmp_path):
    """A 175B model on 4,096 accelerators, all of its plans: 8 imports of JAX with a warm cache, 12 without."""
    assert count(load_workload("gpt3-175b", batch=2048), load_cluster("h100", 4096), {}) > COMPILE_FROM
    cache, command = str(tmp_path), ("-m", "optimize.cli", *_BIG)
    measured = {"import": min(_processor_s("-c", "import jax", cache=None) for _ in range(3))}
    measured |= {name: _processor_s(*command, cache=cache) for name in ("cold", "warm")}  # the first fills the cache
    assert measured["warm"] < 8 * measured["import"], measured
    assert measured["cold"] < 12 * measured["import"], measured
