"""The experiments after papers: nothing outside its tolerance unexplained, the same numbers twice, figures by night."""

import importlib
import json

import pytest

from experiments import beside, runner

QUICK = {
    "comp_vs_comm": {"generations": ("h100",), "microbenchmarks": "nowhere.csv"},
    "scaling_returns": {"clusters": ("h100",), "models": ("llama2-7b",), "counts": (8, 64, 2048)},
    "cluster_design": {"clusters": ("h100",), "bandwidths_gb_per_s": (10, 100, 1000), "expanded": (8,), "proved": 3},
    "flexible_plans": {"families": ("gpt 2k",), "counts": (4,), "placements": ("V", "M", "NN"), "rates": False},
    "published_plans": {"most": 500, "runs": 2},
}


@pytest.fixture(scope="module", params=QUICK)
def ran(request, tmp_path_factory):
    """The module, its quick settings, its results without figures, and the folder that it wrote."""
    module, folder = runner.find(request.param), tmp_path_factory.mktemp(request.param)
    return module, QUICK[request.param], _without_figures(module, QUICK[request.param], folder), folder


def _without_figures(module, asked, folder):
    with pytest.MonkeyPatch.context() as patch:
        figures = importlib.import_module(module.__name__.replace(".experiment", ".figures"))
        patch.setattr(figures, "draw", lambda *_: None)
        return module.run(folder, lambda _: None, **asked)


def test_nothing_lies_outside_its_tolerance(ran):
    module, _, results, _ = ran
    assert module.failure(results) is None
    assert {line["trust"] for line in results["beside"]} <= set(beside.TRUST)
    for line in results["beside"]:
        assert line["verdict"] in ("", "holds") or (line["verdict"] == "explained" and line["note"])


def test_answers_in_three_sentences_and_tables(ran):
    module, _, results, _ = ran
    sentences = module.answer(results)
    assert module.answer(json.loads(json.dumps(results))) == sentences  # as pages of earlier results are made
    assert len(sentences) == 3
    assert all(each.endswith((".", "?")) for each in sentences)
    assert len(list(module.tables(results))) >= 2
    assert runner.question(module).endswith("?")


def test_a_second_run_gives_the_same_numbers(ran, tmp_path):
    module, asked, results, folder = ran
    again = _without_figures(module, asked, tmp_path)
    assert json.dumps(again, allow_nan=False) == json.dumps(results, allow_nan=False)
    for path in folder.glob("*.csv"):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", QUICK)
def test_whole_run_with_figures(name, tmp_path, monkeypatch):
    """Takes its time: by night."""
    monkeypatch.chdir(tmp_path)
    module = runner.find(name)
    result = runner.run(name, **QUICK[name])
    assert module.failure(result["results"]) is None
    drawn = {path.suffix for path in (tmp_path / "results" / name).iterdir()}
    assert {".png", ".svg", ".json"} <= drawn
