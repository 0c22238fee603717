"""The search_quality experiment: its baselines on known functions, its vectors against single plans, a quick run."""

import dataclasses
import functools
import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from costmodel.specs.loading import load_cluster, load_curves
from costmodel.specs.rules import violations
from costmodel.specs.workloads import load_workload
from experiments.search_quality import experiment, summary
from experiments.search_quality.black_boxes import scipy_differential
from experiments.search_quality.differential import differential
from experiments.search_quality.greedy import bottleneck_greedy
from experiments.search_quality.recorder import Recorder
from experiments.search_quality.score import score_design
from experiments.search_quality.suite import EXPERTS, KINDS, MODELS, Question, draw, problem_of
from optimize.clusters import one_job as joint
from optimize.clusters.evolution import EVOLVED, evolve
from optimize.clusters.genes import DECODED, Genes, Values, reflected
from optimize.clusters.valued import INFEASIBLE
from optimize.lattice.enumeration import lattice
from optimize.question.asked import design_problem
from optimize.question.clusters import sized
from optimize.question.objective import Limits, Objective
from optimize.question.quantities import Job
from tests.support import ROOT


def rastrigin(x: np.ndarray) -> np.ndarray:
    """Least, 0, at 0.3 in every direction, with 8 local minima along each."""
    z = 8 * (x - 0.3)
    return (z**2 - 2 * np.cos(2 * np.pi * z) + 2).sum(axis=-1)


def least(search, function, genes: int, evaluations: int, seed: int = 0) -> float:
    """What a search finds."""
    found, used = [math.inf], [0]

    def values(x: np.ndarray) -> np.ndarray:
        assert ((x >= 0) & (x <= 1)).all()
        used[0] += len(x)
        result = function(x)
        found.append(float(result.min()))
        return result

    search(values, genes, seed, lambda: used[0] < evaluations)
    assert used[0] <= evaluations + 1000  # it stops when it is told
    return min(found)


@pytest.mark.parametrize(("search", "most"), [(evolve, 1e-2), (differential, 1e-2), (scipy_differential, 1e-2)])
def test_global_baselines_find_the_least_among_many_minima(search, most):
    assert least(search, rastrigin, 5, 40_000) < most


def test_greedy_descends_a_bowl():
    assert least(bottleneck_greedy, lambda x: ((x - 0.7) ** 2).sum(axis=-1), 6, 20_000) < 1e-3


def test_reflected_stays_inside():
    x = np.linspace(-3, 3, 601)
    assert ((reflected(x) >= 0) & (reflected(x) <= 1)).all()
    np.testing.assert_allclose(reflected(np.array([-0.25, 0.5, 1.25])), [0.25, 0.5, 0.75])


def question(**changes) -> Question:
    """Two small models on 64 accelerators at most."""
    template, curves = load_cluster("h100"), load_curves()
    jobs = tuple(
        Job(workload=load_workload(name, sequence=2048, batch=64), tokens=1e11) for name in ("llama3-8b", "gpt-1.7b")
    )
    limits = Limits(budget_usd=1.5e6, power_w=60e3, accelerators=64)
    fields = {"jobs": jobs, "limits": limits, "objective": Objective.cost} | changes
    case = dataclasses.replace(draw(0, ("joint",), 1)[0], objective="cost")
    return Question(case, design_problem(template, curves, **fields), template, curves)


def test_every_vector_is_a_legal_plan_and_its_value_is_the_exact_score():
    """Decoded, evaluated in a batch; then each alone through validation, with all limits."""
    asked = question()
    genes = Genes(asked.problem)
    values = Values(genes)
    found = values(np.random.default_rng(0).random((200, len(genes))))
    plans = [values.found(found, i).plans for i in range(200)]
    for count, own in zip(found.accelerators, plans, strict=True):
        whole = sized(asked.template, int(count))
        assert not any(violations(plan, job.workload, whole) for plan, job in zip(own, asked.problem.jobs, strict=True))
    feasible = np.flatnonzero(found.log_value < INFEASIBLE)
    assert 10 < len(feasible) < 200
    for i in feasible[:8]:
        own = int(found.accelerators[i]), np.exp(found.y[i]), float(found.hbm_bytes[i]), list(plans[i])
        value = score_design(asked, *own)
        assert value == pytest.approx(math.exp(found.log_value[i]), rel=1e-9)
    beyond = values.found(found, int(feasible[0]))
    assert score_design(asked, beyond.accelerators, 3 * np.exp(beyond.y), beyond.hbm_bytes, list(beyond.plans)) is None


def test_every_plan_of_the_lattices_has_a_vector():
    """Degrees in the middle of their cells: no plan is out of the baselines' reach."""
    asked = question()
    encoding = Genes(asked.problem)
    job, counts = encoding.jobs[0], encoding.counts
    whole = [
        lattice(asked.workload, sized(asked.problem.machine, int(n)), {"domain": 8}, every_shard=False) for n in counts
    ]
    assert len(job.lattice) == sum(map(len, whole))
    rows = np.random.default_rng(1).integers(len(job.accelerators), size=300)
    logs = np.stack([np.log2(job.lattice.rows[name][rows]) for name in DECODED], axis=-1)
    genes = np.concatenate([logs / np.maximum(job.top, 1e-9), np.zeros((300, 4))], axis=1)
    row, _ = job.lattice.select(job.decode(np.searchsorted(counts, job.accelerators[rows]), genes))
    np.testing.assert_array_equal(row, rows)


def test_strong_baselines_reach_the_certified_optimum_of_a_joint_problem():
    """In the median of seeds: evolution within the evaluations of a design, of five; differential evolution of three.

    A problem like that of section 4.2 of the feasibility study: 175B; rates, degrees and options; money limited.
    """
    workload = load_workload("gpt3-175b", batch=1024)
    limits = Limits(budget_usd=125e6, accelerators=4096)
    asked = question(jobs=(Job(workload=workload, tokens=1e12),), limits=limits, objective=Objective.time)
    certified = joint.search(asked.problem, 60.0)
    assert certified.best is not None
    assert certified.best.log_value - certified.log_bound < 1e-3
    values = Values(Genes(asked.problem))
    by_count = functools.partial(evolve, groups=values.genes.counts_of)
    for search, evaluations, seeds in ((by_count, EVOLVED, 5), (differential, 60_000, 3)):
        found = [
            least(search, lambda x: values(x).log_value, len(values.genes), evaluations, seed) for seed in range(seeds)
        ]
        assert np.median(found) <= certified.best.log_value + 1e-3


def test_the_suite_is_drawn_from_the_seed():
    first, again, more = draw(3, KINDS, 2), draw(3, KINDS, 2), draw(3, ("joint", "mix"), 6)
    assert first == again
    assert [case for case in more if case.name in ("joint-0", "joint-1")] == [c for c in first if c.kind == "joint"]
    assert draw(4, KINDS, 2) != first
    names = {job["model"] for case in more for job in case.jobs}
    assert names <= set(MODELS)
    assert names & set(EXPERTS)
    assert json.loads(json.dumps([vars(case) for case in first]))
    for case in first:
        if case.kind != "layers":
            assert problem_of(case).problem.jobs


def run_of(value, seconds, bound=None):
    """One run as a worker reports it."""
    trace = [] if value is None else [[seconds, seconds, 100, math.log(value)]]
    return {"at": {"5": value}, "trace": trace, "log_bound": bound, "evaluations": 100, "wall_s": 5.0, "cpu_s": 5.0}


def test_the_judge_says_who_is_ahead_and_what_is_not_met():
    cases = draw(0, ("joint",), 2)
    runs = {("joint-0", "equipoise"): run_of(1.0, 4.0, math.log(0.9995)), ("joint-0", "evolution"): run_of(1.0, 1.0)}
    runs |= {("joint-1", "equipoise"): run_of(1.02, 4.0, math.log(1.0)), ("joint-1", "evolution"): run_of(1.0, 1.0)}
    found = summary.judge(cases, runs, 5.0, "wall")
    assert found["by_kind"]["joint"]["equipoise"]["worst_gap"] == pytest.approx(0.02)
    assert found["by_kind"]["joint"]["evolution"]["to_0.1_percent_s"] == 1.0
    met = {target["target"]: target["met"] for target in found["targets"]}
    assert met == {
        "no method is below any bound": True,
        "joint: certified gap at most 0.1 % on 80 %": False,
        "joint: certified gap at most 1 %, all": False,
        "joint: at most 0.1 % behind the best other method at 5 s": False,
    }
    assert len(found["losses"]) == 2  # one later, one worse


def test_no_answer_is_not_a_good_answer():
    cases = draw(0, ("mix",), 1)
    runs = {("mix-0", "equipoise"): run_of(None, 0.0), ("mix-0", "evolution"): run_of(2.0, 1.0)}
    found = summary.judge(cases, runs, 5.0, "wall")
    assert found["by_kind"]["mix"]["equipoise"]["answered"] == 0
    assert not any(target["met"] for target in found["targets"][1:])


def test_a_bound_that_is_refuted_fails_loudly():
    runs = {("joint-0", "equipoise"): run_of(1.02, 4.0, math.log(1.01)), ("joint-0", "evolution"): run_of(1.0, 1.0)}
    found = summary.judge(draw(0, ("joint",), 1), runs, 5.0, "wall")
    assert found["targets"][0]["met"] is False
    assert experiment.failure(found) == "joint-0: evolution is 1 % below the bound of equipoise"
    runs["joint-0", "equipoise"]["log_bound"] = math.log(1.0 + 1e-7)
    assert experiment.failure(summary.judge(draw(0, ("joint",), 1), runs, 5.0, "wall")) is None


def test_the_recorder_keeps_improvements_and_stops():
    recorder = Recorder(started=0.0, seconds=1e12, evaluations=10)
    for value in (3.0, 4.0, math.inf, 2.0):
        recorder.offer(value, lambda value=value: value)
    assert [found.candidate for found in recorder.improvements] == [3.0, 2.0]
    assert recorder.go()
    recorder.evaluations = 10
    assert not recorder.go()


def test_a_run_is_not_taken_up_after_its_code_changed(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment, "RUNS", tmp_path)
    answers = iter(('{"at": 1}', '{"at": 2}'))

    def done(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess([], 0, next(answers), "")

    monkeypatch.setattr(experiment.subprocess, "run", done)
    (case,) = draw(0, ("plan",), 1)
    found = [experiment.once(case, "exhaustive", {"seed": 0}) for _ in range(2)]
    monkeypatch.setattr(experiment, "digest_of_sources", lambda: "another code")
    found += [experiment.once(case, "exhaustive", {"seed": 0}) for _ in range(2)]
    assert [each["at"] for each in found] == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_quick_run_reports_and_is_taken_up_again(tmp_path):
    words = [
        sys.executable,
        "-m",
        "experiments",
        "run",
        "search_quality",
        "--quick",
        "--clock",
        "cpu",
        "--seconds",
        "30",
    ]
    words += ["--kinds", "plan", "hardware", "--methods", "equipoise", "exhaustive"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    kept = []
    for _ in range(2):
        done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "What it must show" in done.stdout
        kept.append({path: path.stat().st_mtime_ns for path in (tmp_path / "results/search_quality_runs").iterdir()})
    assert kept[0] == kept[1]  # the second time nothing was run again
    result = json.loads((tmp_path / "results/search_quality/result.json").read_text())
    rows = {(row["kind"], row["method"]): row for row in result["results"]["rows"]}
    assert set(rows) == {("plan", "equipoise"), ("plan", "exhaustive"), ("hardware", "equipoise")}
    assert all(row["failed"] is None for row in rows.values())
    assert all(target["met"] for target in result["results"]["targets"])
    for name in ("search_quality.png", "search_quality.svg", "runs.csv"):
        assert (tmp_path / "results/search_quality" / name).stat().st_size > 100


def test_cells_are_short():
    shown = [summary.per_cent(share) for share in (None, 0.0, 1e-8, 2e-7, 5.6e-3, 0.43)]
    assert shown == ["-", "0", "0", "<.001", "0.56", "43"]
