"""Pages of experiments: everything is in them, nothing is fetched, and `run all` goes on past what cannot run here."""

import io
import json
import re
import types

import pytest
from rich.console import Console

from costmodel.specs import SpecError
from experiments import beside, everything, pages, runner
from experiments import commands as command

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 16
LINES = [beside.line("a law", 2.0, "P", 2.2, allowed=(1.9, 2.3)), beside.line("another", None, "ours", 3.0)]


def module_of(results):
    return types.SimpleNamespace(
        __doc__="Does it hold?\n\nWords about it.",
        answer=lambda found: ["It does.", "So it is.", "That is all."],
        tables=lambda found: [beside.table(found["beside"]), beside.plain_table(("n",), [(7,)], "Numbers")],
        failure=lambda found: beside.failed(found["beside"]),
    )


@pytest.fixture
def ran(tmp_path):
    (tmp_path / "some_figure.png").write_bytes(PNG)
    common = {"experiment": "it", "question": "Does it hold?", "inputs": {"seed": 0}, "versions": {"python": "3"}}
    result = {**common, "date": "today", "seconds": 1.0, "git_commit": "abc", "results": {"beside": LINES}}
    return module_of(result), result, tmp_path


def test_a_page_holds_question_answer_comparison_figures_and_tables(ran):
    told = pages.of_one(*ran).decode()
    for words in ("Does it hold?", "So it is.", "a law", "1.1", "1.9 to 2.3", "some figure", "Numbers", "seed"):
        assert words in told, words
    assert told.count("data:image/png;base64,") == 1
    assert not re.search(r"(src|href)=.http", told)
    assert told.count("a law") == 1


def test_what_is_too_wide_for_a_terminal_is_not_cut():
    numbers = [f"{each},128,684" for each in range(10, 17)]
    console = Console(file=(screen := io.StringIO()), width=50)
    console.print(beside.plain_table([f"a heading {i}" for i in range(7)], [numbers], "Numbers"))
    told = screen.getvalue()
    assert "…" not in told
    columns = zip(*(line.split("│")[1:-1] for line in told.splitlines() if line.startswith("│")), strict=True)
    assert ["".join(each.strip() for each in column) for column in columns] == numbers


def test_the_page_of_all_counts_what_holds_and_says_what_was_left_out(ran):
    told = pages.of_all([ran], {"other": "no measurements"}).decode()
    assert "1 met" in told
    assert "other: no measurements" in told


@pytest.fixture
def several(ran, tmp_path, monkeypatch):
    """`run all` over experiments that are made up; the names of those that were run."""
    module, result, _ = ran
    monkeypatch.chdir(tmp_path)
    ways, called = {"bad": SpecError("no rows"), "broken": ValueError("a fault"), "good": 0, "wrong": 1}, []

    def run(name, fields):
        called.append(name)
        if isinstance(ways[name], BaseException):
            raise ways[name]
        folder = tmp_path / "results" / name
        folder.mkdir(exist_ok=True)
        (folder / "result.json").write_text(json.dumps({**result, "experiment": name}))
        return ways[name]

    monkeypatch.setattr(runner, "names", lambda: list(ways))
    monkeypatch.setattr(runner, "find", lambda name: module)
    monkeypatch.setattr(command, "_run", run)
    return ways, called, tmp_path / "results"


def test_run_all_goes_on(several, capsys):
    assert command.main(["run", "all"]) == 1
    told, said = (several[2] / "index.html").read_text(), capsys.readouterr().err
    assert "bad: no rows" in told
    assert "broken: broke down: ValueError" in told
    assert "good" in told
    assert "bad was left out" in said
    assert "3 of 4, good: Does it hold?" in said
    assert command.main(["run", "all"]) == 1  # a whole run leaves nothing to go on from
    assert several[1] == 2 * ["bad", "broken", "good", "wrong"]


def test_run_all_goes_on_where_it_was_interrupted(several, capsys, monkeypatch):
    ways, called, results = several
    ways["wrong"] = KeyboardInterrupt()
    assert command.main(["run", "all"]) == 130
    assert "wrong: not run yet" in (results / "index.html").read_text()
    assert "Traceback" not in capsys.readouterr().err.replace("Traceback", "", 1)  # of `broken` alone
    ways |= {"wrong": 0, "broken": 0}
    called.clear()
    assert command.main(["run", "all"]) == 1  # `broken` broke down the first time
    assert called == ["wrong"]
    assert {path.name for path in results.iterdir()} == {"good", "wrong", "index.html"}
    ways["wrong"] = KeyboardInterrupt()
    assert command.main(["run", "all"]) == 130
    monkeypatch.setattr(everything, "digest_of_sources", lambda: "a file was changed")
    called.clear()
    command.main(["run", "all"])
    assert called == ["bad", "broken", "good", "wrong"]


def test_ctrl_c_in_one_experiment_is_one_line(several, capsys):
    several[0]["good"] = KeyboardInterrupt()
    assert command.main(["run", "good"]) == 130
    assert capsys.readouterr().err == "experiments: interrupted; nothing was written\n"


def test_quick_forms_are_of_experiments_that_there_are():
    assert set(everything.QUICK) <= set(runner.names())
    for name, fields in everything.QUICK.items():
        for field in (field for field in fields if field.startswith("--")):
            asked = field.removeprefix("--").removeprefix("no-").replace("-", "_")
            assert asked in runner.settings(runner.find(name))


ANSWERED = (
    "accuracy", "budget_125m", "calibrate_defaults", "cluster_design", "codesign", "comp_vs_comm", "flexible_plans",
    "published_plans", "real_steps", "scaling_returns", "search_quality", "speed",
)  # fmt: skip


def test_every_experiment_asks_and_these_answer():
    assert set(ANSWERED) <= set(runner.names())
    for name in runner.names():
        module = runner.find(name)
        assert runner.question(module).endswith("?"), name
        assert name not in ANSWERED or callable(module.answer), name
