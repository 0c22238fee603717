"""`real_steps`: the program does the work that the model counts, divided programs train as whole ones do."""

import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from costmodel.evaluators.evaluate import evaluate
from costmodel.exact import Exact
from costmodel.formulas import counts
from costmodel.inputs.embedding import embed
from costmodel.inputs.workload import parameters
from costmodel.measured.node.own import COMMON
from costmodel.pytree import as_floats
from costmodel.specs.loading import load_cluster
from experiments.real_steps import prediction
from experiments.real_steps.layouts import MODELS, Layout, Model, layouts
from tests.support import ROOT

SMALL = Model(name="s", layers=2, hidden=64, heads=4, ffn=160, vocabulary=512, sequence=64, batch=4, gated=True)
_PROGRAM = """
import json, sys, jax, numpy as np
from experiments.real_steps.layouts import Layout, Model
from experiments.real_steps.training import program
from experiments.real_steps.worker import _counted
for order in json.loads(sys.argv[1]):
    layout = Layout(**{**order, "model": Model(**order["model"])})
    step, state = program(layout)
    compiled = step.lower(*state).compile()
    own, adam, tokens = state
    losses = []
    for _ in range(3):
        own, adam, loss = compiled(own, adam, tokens)
        losses.append(float(loss))
    elements = sum(int(np.prod(w.shape)) for w in jax.tree.leaves(own))
    print(json.dumps({"losses": losses, "parameters": elements, **_counted(compiled)}))
"""


def _trained(*chosen: Layout) -> list[dict]:
    """Losses, and what XLA counts, of each layout, in a process with two devices."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0",
    }
    order = json.dumps([dataclasses.asdict(layout) for layout in chosen])
    command = [sys.executable, "-c", _PROGRAM, order]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _counted_flop(layout: Layout) -> float:
    """Matmuls and scores of one rank and microbatch: twice the forward work backward, and once more if redone.

    XLA drops what is redone for nothing: the last product of a layer, whose result no backward pass asks for.
    """
    work = as_floats(layout.model.workload)
    counted = counts(work, embed(layout.plan, work, 1.0), Exact(np))
    total = 0.0
    for block in counted.blocks:
        again = 1.0 if layout.recompute and block.name == "layer" else 0.0
        products = sum(m.flop * (3.0 + again * (m.name != "ffn down")) for m in block.matmuls)
        total += block.repeats * (products + sum(a.flop * (3.0 + again) for a in block.attentions))
    return total


WIDE = dataclasses.replace(SMALL, hidden=128, ffn=320, vocabulary=1024)
LAYOUTS = {
    "whole": Layout(model=WIDE),
    "recomputed": Layout(model=WIDE, recompute=True),
    "data": Layout(model=WIDE, data=2),
    "tensor": Layout(model=WIDE, tensor=2),
    "accumulated": Layout(model=WIDE, microbatches=2),
    "not gated": Layout(model=dataclasses.replace(WIDE, gated=False)),
}


@pytest.fixture(scope="module")
def trained() -> dict[str, dict]:
    return dict(zip(LAYOUTS, _trained(*LAYOUTS.values()), strict=True))


@pytest.mark.slow
def test_the_compiled_step_does_what_the_model_counts(trained):
    """XLA counts elementwise operations too, which the model does not: a few per cent at these sizes."""
    for name in LAYOUTS.keys() - {"accumulated"}:  # XLA counts what is in a loop once
        ratio = trained[name]["flop"] / _counted_flop(LAYOUTS[name])
        assert 1.0 < ratio < 1.15, f"{name}: {ratio:.3f}"
    assert trained["whole"]["parameters"] == parameters(WIDE.workload)


def test_divided_programs_train_as_the_whole_one_does(trained):
    whole, tensor = trained["whole"]["losses"], trained["tensor"]["losses"]
    for name in ("data", "accumulated", "recomputed"):
        np.testing.assert_allclose(trained[name]["losses"], whole, rtol=2e-4)
    # ranks take their share of the columns, so heads and gates are other ones: the first loss is that of chance alone
    assert tensor[0] == pytest.approx(whole[0], rel=0.01)
    assert tensor[-1] < tensor[0]


def test_there_are_sixteen_layouts_or_more_of_models_from_1_to_100_million():
    known = layouts()
    assert len(known) >= 16
    assert len({layout.name for layout in known}) == len(known)
    sizes = [parameters(model.workload) for model in MODELS]
    assert min(sizes) < 1.5e6
    assert 90e6 < max(sizes) <= 100e6
    for layout in known:
        assert layout.microbatch * layout.data * layout.microbatches == layout.model.batch
        assert layout.model.heads % layout.tensor == 0


def _clusters() -> dict:
    base = load_cluster("h100", software="xla")
    return {n: dataclasses.replace(base, accelerators=float(n), prices=None) for n in (1, 2)}


def test_three_rows_teach_a_machine_that_is_uniformly_slower():
    clusters = _clusters()
    known = [layout for layout in layouts() if layout.model.name in ("50M", "98M")]
    measured = {layout.name: 1.2 * prediction.predicted(layout, clusters[layout.devices])[0] for layout in known}
    moved = prediction.after(known[:3], measured, clusters)
    errors = [np.log(prediction.predicted(x, moved[x.devices])[0] / measured[x.name]) for x in known[3:]]
    assert np.median(np.abs(errors)) < 0.5 * np.log(1.2)
    assert COMMON > 0


def test_predictions_are_those_of_evaluate():
    layout, cluster = layouts()[0], _clusters()[1]
    found = evaluate(layout.model.workload, cluster, layout.plan)
    assert prediction.predicted(layout, cluster) == (found.step_s, found.memory.peak_bytes)


def test_kendall_tau():
    assert prediction.kendall_tau([1, 2, 3], [10, 20, 30]) == 1.0
    assert prediction.kendall_tau([1, 2, 3], [30, 20, 10]) == -1.0
    assert prediction.kendall_tau([], []) == 0.0


def test_draws_differ_and_come_back_with_their_seed():
    first = prediction.subsets(layouts(), 3, 6, seed=1)
    assert len(set(first)) == 6
    assert first == prediction.subsets(layouts(), 3, 6, seed=1)


@pytest.mark.slow
def test_a_quick_run_writes_what_the_readme_needs(tmp_path, monkeypatch):
    from experiments import runner
    from experiments.real_steps.experiment import tables

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    result = runner.run("real_steps", quick=True)
    names = {path.name for path in (tmp_path / "results" / "real_steps").iterdir()}
    assert names >= {"result.json", "rows.csv", "steps.png", "steps.svg", "node_1.toml", "node_2.toml"}
    assert len(result["results"]["rows"]) == 4
    assert all(row["predicted_s"] > 0 and row["bytes"] > 0 for row in result["results"]["rows"])
    assert tables(result["results"])
