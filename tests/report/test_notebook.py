"""Every result shows itself in a notebook: as HTML that closes its tags, and as a figure that needs no pyplot."""

import dataclasses

import jax
import numpy as np
import pytest

import costmodel
from costmodel.measured import Case
from optimize import explain, find_layers, find_plan, predict
from optimize.cli.explain import resolve
from tests.report.test_page import Checked
from tests.support.measured_rows import made

FIRST = {"evaluate": "step_time", "explain": "step_time", "find_plan": "plan_space", "predict": "predictions"}


@pytest.fixture(scope="module")
def results():
    inputs = resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 16, "batch": 32})
    asked = inputs.workload, inputs.cluster, inputs.plan
    measured: Case = dataclasses.replace(made(), measured_step_s=2.0)
    return {
        "evaluate": costmodel.evaluate(*asked),
        "explain": explain(*asked),
        "find_plan": find_plan(*asked[:2], fixed={"schedule": "one_f_one_b", "context": 1, "recompute": "none"}, top=3),
        "predict": predict([measured, made(tp=8, dp=8)]),
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("evaluate", ("matmuls", "exposed", "MFU", "in memory")),
        ("explain", ("matmuls", "peak", "would make the step")),
        ("find_plan", ("t,c,p,d", "best plan", "plans evaluated")),
        ("predict", ("2 of 2 rows", "beside 1 measured")),
    ],
)
@pytest.mark.parametrize("columns", [80, 100])
def test_results_show_themselves(results, name, words, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    html = results[name]._repr_html_()
    seen = Checked(html.encode())
    assert "table" in seen.tags
    told = " ".join(seen.words)
    assert all(word in told for word in words), told
    printed = str(results[name])
    assert all(word in " ".join(printed.split()) for word in words), printed
    assert max(map(len, printed.splitlines())) <= columns
    assert "…" not in printed
    figure = results[name].plot()
    assert figure.axes
    assert figure._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=f"`name` is 'nothing'; expected one of {FIRST[name]}"):
        results[name].plot("nothing")


def test_other_figures_by_name(results):
    assert results["explain"].plot("memory").axes
    assert results["find_plan"].plot("timeline").axes


def test_layers_show_themselves(small_decoder, two_tiers):
    found = find_layers(small_decoder, two_tiers, costmodel.Plan(data=8, tensor=2, pipeline=4))
    seen = found._repr_html_()
    assert "recompute of each layer" in seen
    assert "8 x none" in seen
    assert len(found.plot().axes[0].patches) == 4


def test_showing_adds_no_field_and_changes_no_answer(results):
    answer = results["evaluate"]
    assert not {"_repr_html_", "plot"} & {field.name for field in dataclasses.fields(answer)}
    assert isinstance(results["predict"], tuple)
    assert predict([]) == ()


def test_what_holds_arrays_or_is_traced_is_printed_as_it_is(results):
    found, shown = results["evaluate"], []
    assert str(jax.tree.map(lambda leaf: np.array([leaf, leaf]), found)).startswith("Breakdown(")
    jax.make_jaxpr(lambda traced: shown.append(str(traced)))(found)
    assert shown[0].startswith("Breakdown(")
