"""The runner of experiments, the parts of `speed` that could be wrong unnoticed, and the compiled evaluators."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from costmodel.evaluators import compiled
from costmodel.exact import Exact
from costmodel.formulas.cost import cost
from costmodel.inputs.embedding import embed
from costmodel.pytree import as_floats, map_leaves
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from experiments import commands as command
from experiments import runner as _runner
from experiments.speed import bars, machine, processes, startup
from experiments.speed import experiment as speed
from experiments.speed.clock import best_sum_s
from experiments.speed.operations import operations
from experiments.speed.subject import LAYOUTS, Pool, cast, grid, random_plans, subject
from tests.support import GOLDEN, ROOT

BATCH = 256


def test_list_names_each_experiment_and_its_question(capsys):
    assert command.main(["list"]) == 0
    shown = capsys.readouterr().out
    assert "speed" in shown
    assert "How fast" in shown


@pytest.mark.parametrize("words", [["run", "sped"], ["run", "_runner"], ["run"], ["walk", "speed"], ["list", "all"]])
def test_wrong_words_give_one_line_and_status_2(words, capsys):
    assert command.main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.count("\n") == 1


def test_an_unknown_name_is_answered_with_the_nearest(capsys):
    command.main(["run", "sped"])
    assert capsys.readouterr().err == "experiments: no experiment is called 'sped'; the nearest: speed\n"


def test_results_are_replaced_only_when_an_experiment_has_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(speed, "run", lambda folder, say, *, seed: {"answer": seed})
    _runner.run("speed", seed=1)

    def fail(folder, say, *, seed):
        (folder / "half.csv").write_text("1")
        raise OSError("disk full")

    monkeypatch.setattr(speed, "run", fail)
    with pytest.raises(OSError, match="disk full"):
        _runner.run("speed", seed=2)
    assert json.loads(Path("results/speed/result.json").read_text())["results"] == {"answer": 1}
    assert [path.name for path in Path("results").iterdir()] == ["speed"]
    monkeypatch.setattr(speed, "run", lambda folder, say, *, seed: {"answer": seed})
    _runner.run("speed", seed=3)
    assert json.loads(Path("results/speed/result.json").read_text())["results"] == {"answer": 3}
    assert [path.name for path in Path("results").iterdir()] == ["speed"]


@pytest.mark.slow
def test_speed_runs_and_says_where_its_figures_come_from(tmp_path):
    words = [sys.executable, "-m", "experiments", "run", "speed", "--quick"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""  # no progress: not a terminal
    assert "Bars" in done.stdout
    _is_complete(tmp_path / "results" / "speed")


def test_speed_tells_and_draws_what_its_processes_measured(tmp_path, monkeypatch, capsys):
    """With the answers of a run by night (golden), and the memory of ten thousand plans measured anew."""
    answers = json.loads((GOLDEN / "speed_answers.json").read_text())
    measure = processes.measure

    def measured(role, on, **order):
        return answers[role] if role in answers else measure(role, on, **order)

    monkeypatch.setattr(processes, "measure", measured)
    monkeypatch.setattr(processes, "two_cores", lambda *order: answers["two_cores"])
    monkeypatch.setattr(startup, "seconds", lambda *order: answers["startup"])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    assert command.main(["run", "speed", "--quick", "--plans", "10000"]) == 0
    shown = capsys.readouterr()
    assert "Bars" in shown.out
    assert shown.err == ""
    assert _is_complete(tmp_path / "results" / "speed")["memory"]["plans"] == 10_000


def _is_complete(folder: Path) -> dict:
    """The results in a folder of `speed`, which holds all of them, where they come from, and the figures."""
    result = json.loads((folder / "result.json").read_text())
    assert {"experiment", "question", "inputs", "date", "versions", "git_commit", "machine", "seconds"} <= set(result)
    assert result["inputs"]["quick"] is True
    assert {"startup", "one_core", "structures", "two_cores", "memory", "bars"} == set(result["results"])
    assert {"throughput", "grid", "compile", "limit"} == set(result["results"]["one_core"])
    assert result["results"]["memory"]["finite"]
    for name in ("throughput.png", "throughput.svg", "throughput.csv", "startup.png", "startup.svg"):
        assert (folder / name).stat().st_size > 100
    # the bar with the widest margin, and far below the one of gradients: this machine may be busy
    bars = {bar["name"]: bar for bar in result["results"]["bars"]}
    assert bars["values, one core, over Python floats"]["passed"]
    assert bars["gradients by the plan over Python floats' values"]["value"] > 150
    return result["results"]


X, Y = np.ones(8, np.float32), np.full(8, 2.0, np.float32)
S = np.float32(3.0)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x, y, s: x + y, {"add_multiply": 1}),
        (lambda x, y, s: x * y + y * x, {"add_multiply": 2}),  # the product once
        (lambda x, y, s: (x - y) + (y - x), {"add_multiply": 3}),  # differences do not commute
        (lambda x, y, s: x + 0.0 * s, {"add_multiply": 1}),  # work on numbers alone is free
        (lambda x, y, s: 1.0 * x + 0.0 - 0.0, {}),
        (lambda x, y, s: x / 1.0, {}),
        (lambda x, y, s: x / 4.0, {"add_multiply": 1}),  # an exact reciprocal
        (lambda x, y, s: x / 3.0, {"divide": 1}),
        (lambda x, y, s: x / y + x / y + x / (2 * y), {"divide": 2, "add_multiply": 3}),
        (lambda x, y, s: (x / y, x)[1] * y, {"add_multiply": 1}),  # dead code
        (lambda x, y, s: x**5, {"add_multiply": 3}),
        (lambda x, y, s: x**2 + x * x, {"add_multiply": 2}),
        (lambda x, y, s: x**0.5 + jax.numpy.sqrt(x) + x**y, {"square_root": 1, "exp_log": 1, "add_multiply": 2}),
        (lambda x, y, s: jax.numpy.maximum(x, y) + jax.numpy.minimum(y, x), {"max_min": 2, "add_multiply": 1}),
        (lambda x, y, s: jax.numpy.maximum(x, y) + jax.numpy.maximum(y, x), {"max_min": 1, "add_multiply": 1}),
        (lambda x, y, s: jax.numpy.sqrt(x) + jax.numpy.exp(y), {"square_root": 1, "exp_log": 1, "add_multiply": 1}),
        (lambda x, y, s: jax.vmap(jax.grad(lambda a: a**0.5))(x), {"square_root": 1, "add_multiply": 1}),
        (lambda x, y, s: jax.jit(lambda a: a * y)(x) + x * y, {"add_multiply": 2}),  # through calls
        (lambda x, y, s: jax.numpy.log(s) * x, {"add_multiply": 1}),
    ],
)
def test_operations_are_counted_once(function, expected):
    counted = operations(function, X, Y, S)
    assert {kind: count for kind, count in counted.items() if count} == expected


def test_an_operation_on_a_shorter_axis_counts_by_its_share():
    rows, columns = np.ones((4, 1), np.float32), np.ones((1, 5), np.float32)
    counted = operations(lambda r, c: (r * r) * (c * c), rows, columns)
    assert counted["add_multiply"] == pytest.approx(1 + 4 / 20 + 5 / 20)


def test_equal_operations_on_different_axes_are_different():
    x = np.ones(4, np.float32)
    counted = operations(lambda x, y: (x[:, None] * y) + (x[None, :] * y), x, np.ones((4, 4), np.float32))
    assert counted["add_multiply"] == 3


def test_an_operation_without_a_kind_is_an_error():
    with pytest.raises(ValueError, match="sin"):
        operations(jax.numpy.sin, X)


def test_the_limit_adds_the_kinds():
    assert machine.limit_s({"divide": 2.0, "max_min": 3.0}, {"divide": 4.0, "max_min": 6.0}) == 1.0


def test_the_best_of_each_part_is_summed():
    calls = []
    assert best_sum_s([lambda: calls.append(0), lambda: calls.append(1)], 0.0, least=2) >= 0
    assert calls == [0, 1] * 3  # one round to warm up


def test_a_bar_is_passed_failed_or_not_measured():
    assert bars.bar("fast", 5.0, 4.0, True, "x")["passed"] is True
    assert bars.bar("slow", 5.0, 4.0, False, "x")["passed"] is False
    assert bars.bar("missing", None, 4.0, False, "x")["passed"] is None


def test_a_failed_measuring_process_is_reported():
    with pytest.raises(RuntimeError, match="KeyError"):
        processes.measure("no such role", [])


def test_every_field_of_a_batch_is_an_array_and_all_options_are_mixed():
    points = Pool(256, seed=1).batch(1000)
    leaves = jax.tree.leaves(points)
    assert {leaf.shape for leaf in leaves} == {(1000,)}
    absent = {"expert", "expert_tensor", "dispatcher"}  # dense
    absent |= {"offload", "modules", "method", "whole_inputs"}  # structures of their own; of software
    absent |= {"masters", "loss", "gate_inputs", "gradient_copy_bytes", "update_copy_bytes", "widens"}  # as usual
    constant = absent | {"accelerators", "domain", "extra_layers_first", "extra_layers_middle", "extra_layers_last"}
    varied = {f.name for f in dataclasses.fields(points)} - constant
    for name in varied:
        assert any(np.unique(leaf).size > 1 for leaf in jax.tree.leaves(getattr(points, name))), name
    assert min(getattr(points, name).min() for name in ("tensor", "context", "pipeline", "virtual_stages", "data")) > 1


def test_both_layouts_hold_the_same_plans():
    workload, cluster = subject()
    base = embed(random_plans(1, 0)[0], workload, 8.0)
    workload, cluster = cast(workload), cast(cluster)
    values = [cost(workload, cluster, grid(base, *layout), Exact(np)).step_s.ravel() for layout in LAYOUTS.values()]
    np.testing.assert_allclose(np.sort(values[0]), np.sort(values[1]), rtol=1e-5)


@pytest.fixture
def traces(monkeypatch):
    """Counts how often the cost is traced by evaluators that are made anew."""
    counted = []

    def counting(evaluate):
        def counted_once_more(*arguments):
            counted.append(1)
            return evaluate(*arguments)

        return counted_once_more

    for name in ("cost", "cost_by_kinds"):
        monkeypatch.setattr(compiled, name, counting(getattr(compiled, name)))
    for made in (compiled.value, compiled._gradient):
        made.cache_clear()
    yield counted
    for made in (compiled.value, compiled._gradient):
        made.cache_clear()


MACHINES = [("llama3-8b", "h100"), ("llama3-405b", "a100-80gb"), ("llama2-70b", "gb200-nvl72")]


def test_one_trace_serves_all_plans_option_rows_models_clusters_and_lengths(traces):
    pool = Pool(64, seed=2)
    for (model, machine_name), length in zip(MACHINES, (1, BATCH, 3 * BATCH + 5), strict=True):
        result = compiled.batch_cost(load_workload(model), load_cluster(machine_name), pool.batch(length), BATCH)
        assert result.step_s.shape == (length,)
        assert np.isfinite(result.step_s).all()
    assert len(traces) == 1


def test_one_trace_serves_all_gradients(traces):
    pool = Pool(64, seed=3)
    jitted: Any = compiled.gradient(hardware=True)
    for model, machine_name in MACHINES:
        workload, cluster = load_workload(model), load_cluster(machine_name)
        numbers = cast((compiled.anonymous(workload), compiled.anonymous(cluster)))
        jitted.lower(*numbers, pool.batch(BATCH))  # traces, and does not compile
    assert len(traces) == 1


def test_batches_equal_plain_floats():
    workload, cluster = subject()
    pool = Pool(64, seed=4)
    points = map_leaves(np.asarray, pool.batch(2 * BATCH + 3, np.float64))
    result = compiled.batch_cost(workload, cluster, points, BATCH)
    for index in range(0, 2 * BATCH + 3, 37):
        point = map_leaves(lambda leaf, index=index: float(leaf[index]), points)
        expected = cost(workload, cluster, point, Exact(math))
        assert result.step_s[index] == pytest.approx(expected.step_s, rel=1e-5)
        assert result.peak_bytes[index] == pytest.approx(expected.peak_bytes, rel=1e-5)


def test_numbers_among_the_arrays_are_spread_over_the_batch():
    workload, cluster = subject()
    points = Pool(64, seed=5).batch(7)
    mixed = dataclasses.replace(points, microbatch=2)
    spread = dataclasses.replace(points, microbatch=np.full(7, 2.0))
    given, expected = (compiled.batch_cost(workload, cluster, p, BATCH).step_s for p in (mixed, spread))
    np.testing.assert_array_equal(given, expected)


def test_arrays_of_different_lengths_are_refused():
    workload, cluster = subject()
    points = dataclasses.replace(Pool(4).batch(7), tensor=np.ones(6))
    with pytest.raises(ValueError, match="one length"):
        compiled.batch_cost(workload, cluster, points)


def test_gradients_of_batches_lie_between_one_sided_differences():
    """Whole degrees often sit on a kink, where any slope between the left and the right one is a subgradient."""
    workload, cluster = subject()
    points = Pool(8, seed=6).batch(64, np.float64)
    found = compiled.batch_gradient(workload, cluster, points, ("microbatch", "copies"), batch=64)
    for name, slope in found.plan.items():
        x = getattr(points, name)
        moved = [dataclasses.replace(points, **{name: x * (1 + sign * 1e-5)}) for sign in (-1, 0, 1)]
        sides = np.diff([np.log(cost(workload, cluster, point, Exact(np)).step_s) for point in moved], axis=0) / 1e-5
        elasticity = slope * x / found.value
        assert (elasticity >= sides.min(0) - 2e-4).all(), name
        assert (elasticity <= sides.max(0) + 2e-4).all(), name


def test_a_maximum_gives_its_derivative_to_one_side_and_never_nan():
    semantics = compiled.in_jax()
    slopes = jax.grad(lambda x, y: semantics.maximum(x, y), (0, 1))
    assert slopes(2.0, 1.0) == (1.0, 0.0)
    assert slopes(1.0, 2.0) == (0.0, 1.0)
    assert slopes(0.0, 0.0) == (1.0, 0.0)
    assert jax.grad(lambda x: semantics.minimum(1.0, x))(2.0) == 0.0
    assert math.isnan(semantics.maximum(float("nan"), 1.0))


def test_names_do_not_enter_a_trace():
    workload, cluster = load_workload("llama3-8b"), load_cluster("h100")
    bare = compiled.anonymous(cluster)
    assert (compiled.anonymous(workload).name, bare.name, bare.stack.name, bare.accelerator.name) == ("",) * 4
    assert as_floats(bare).accelerator.hbm_bytes == cluster.accelerator.hbm_bytes
