"""The screen: nothing wraps, nothing is cut off, numbers read well. And the figures are what they say."""

import dataclasses
import io
import re
from types import SimpleNamespace
from typing import Any, cast

import pytest
from matplotlib.figure import Figure

from optimize import units
from optimize.cli.explain import resolve
from optimize.diagnosis.explain import explain_inputs
from optimize.question import Objective
from optimize.report.drawing import figures_of, headline, log_axis
from optimize.report.explain import show_explanation
from optimize.report.figures_design import tornado_of
from optimize.report.figures_explain import draw_comparison, draw_explanation
from optimize.report.plan import worth_words
from optimize.report.words import reason_words
from tests.diagnosis.test_explain import PLANS

CLUSTERS = {"one accelerator": "a100-80gb", "pipeline": "gb200-nvl72"}


@pytest.fixture(scope="module")
def explanations():
    return {name: explain_inputs(resolve({"cluster": CLUSTERS.get(name, "h100"), **PLANS[name]})) for name in PLANS}


def shown(capsys, monkeypatch, explanation, width: int) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    show_explanation(explanation)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("name", PLANS)
def test_one_screen(capsys, monkeypatch, explanations, name, width):
    text = shown(capsys, monkeypatch, explanations[name], width)
    lines = text.splitlines()
    assert len(lines) <= 50
    assert all(len(line) <= width for line in lines)
    assert "…" not in text
    assert not re.search(r"\bnan\b|\binf\b|-0\.0+\b|\be[+-]\d\d", text)
    assert "\x1b" not in text
    for word in (
        "plan data=",
        "MFU",
        "tokens/s",
        "matmuls",
        "FLOP/s",
        "weights",
        "peak",
        "margin to",
        "would make the",
    ):
        assert word in text
    assert text.count("would make the") == 3


def test_the_second_memory_is_shown(capsys, monkeypatch, explanations):
    text = shown(capsys, monkeypatch, explanations["offload"], 100)
    assert "second memory" in text
    assert "margin there to 232.83" in text
    assert re.search(r"^offload +[\d.]+ +[\d.]+ .*second memory bandwidth", text, re.M)
    assert "second memory" not in shown(capsys, monkeypatch, explanations["pipeline"], 100)
    breakdown = dataclasses.replace(explanations["offload"].breakdown, second_limit_bytes=1e9)
    small = dataclasses.replace(explanations["offload"], breakdown=breakdown)
    assert "the second memory is too small by" in shown(capsys, monkeypatch, small, 100)


def test_does_not_fit(capsys, monkeypatch):
    explanation = explain_inputs(resolve({"model": "llama3-70b", "cluster": "h100", "tensor": 8, "pipeline": 1}))
    text = shown(capsys, monkeypatch, explanation, 100)
    assert "does not fit in memory: the peak, in the loss, is" in text
    assert "over the limit" in text


def test_says_what_was_chosen(capsys, monkeypatch):
    explanation = explain_inputs(resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 16}))
    text = shown(capsys, monkeypatch, explanation, 100)
    told = " ".join(text.split())
    assert "chosen here: the fastest of all tensor degrees, each with the least pipeline degree that fits in" in told


def test_says_what_stands_idle(capsys, monkeypatch):
    explanation = explain_inputs(resolve({"model": "llama3-8b", "cluster": "h100", "accelerators": 20, "batch": 80}))
    told = " ".join(shown(capsys, monkeypatch, explanation, 100).split())
    assert "5 used of every nvlink domain of 8: 4 domains, 12 more stand idle" in told
    whole = explain_inputs(resolve({"model": "llama3-8b", "cluster": "gb200-nvl72", "accelerators": 72, "batch": 72}))
    assert "stand idle" not in shown(capsys, monkeypatch, whole, 100)


def test_utilisation_with_recompute(capsys, monkeypatch, explanations):
    assert "HFU" in shown(capsys, monkeypatch, explanations["full recompute"], 100)
    assert "HFU" not in shown(capsys, monkeypatch, explanations["pipeline"], 100)


def test_plain_letters_where_there_are_no_others(monkeypatch, explanations):
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", narrow)
    monkeypatch.setenv("COLUMNS", "100")  # at 80 a bar has six cells
    show_explanation(explanations["pipeline"])
    narrow.flush()
    assert "#####" in narrow.buffer.getvalue().decode("ascii")  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["one accelerator", "pipeline", "heavy late"])
def test_figures(explanations, name):
    files = draw_explanation(explanations[name])
    drawn = [f"{n}.{k}" for n in ("memory", "roofline", "step_time", "timeline") for k in ("png", "svg")]
    assert sorted(files) == [*drawn, "trace.json"]
    assert all(files[name].startswith(b"\x89PNG" if name.endswith("png") else b"<?xml") for name in drawn)
    again = draw_explanation(explanations[name])
    assert {name for name in files if files[name] != again[name]} == set()


@pytest.mark.parametrize("name", [*PLANS])
def test_nothing_of_a_figure_is_cut_off(explanations, name):
    """No word and no line lies beyond the edges, whatever the plan, its terms and its memories are called."""
    for title, figure in figures_of(lambda: draw_explanation(explanations[name])).items():
        drawn, (wide, high) = figure.get_tightbbox(), figure.get_size_inches()
        assert min(drawn.x0, drawn.y0) >= 0, title
        assert drawn.x1 <= wide, title
        assert drawn.y1 <= high, title


def test_two_answers_are_drawn_side_by_side(explanations):
    first, second = explanations["full recompute"], explanations["unfused"]
    (figure,) = figures_of(lambda: draw_comparison(first, second)).values()
    (axes,) = figure.axes
    figure.draw_without_rendering()  # which lays it out
    drawn, (wide, _) = figure.get_tightbbox(), figure.get_size_inches()
    assert drawn.x0 >= 0
    assert drawn.x1 <= wide
    shown = [bar.get_width() for bar in axes.patches]  # pyright: ignore[reportAttributeAccessIssue]
    half = len(shown) // 2
    assert sum(shown[:half]) == pytest.approx(first.breakdown.step_s, rel=5e-3)
    assert sum(shown[half:]) == pytest.approx(second.breakdown.step_s, rel=5e-3)
    apart = [abs(a - b) for a, b in zip(shown[:half], shown[half:], strict=True)]
    assert apart == sorted(apart, reverse=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.fixed(0.0, 3), "0.000"),
        (units.fixed(-0.0, 3), "0.000"),
        (units.fixed(-1e-12, 3), "0.000"),
        (units.fixed(0.0001, 3), "<0.001"),
        (units.fixed(-1285.27, 2), "-1285.27"),
        (units.between(0.723, 1.13, units.SECONDS), "0.723 to 1.13 s"),
        (units.fixed(18.2634, units.decimals_of(18.2634)), "18.26"),
        (units.fixed(0.9058, units.decimals_of(0.9058)), "0.9058"),
        (units.fixed(1234.5, units.decimals_of(1234.5)), "1234"),
        (reason_words("host 3.1 %, matmuls 60.0 %"), "processor overhead 3.1 %, matmuls 60.0 %"),
        (units.significant(588123.0), "588,000"),
        (units.significant(7.1314, 4), "7.131"),
        (units.significant(0.0), "0"),
        (units.significant(99.99), "100"),
        (units.significant(1234567.0, 4), "1,235,000"),
        (units.significant(0.00123), "0.00123"),
        (units.significant(1e-9), "1.00e-09"),
        (units.scaled(0.159, units.SECONDS), "159 ms"),
        (units.scaled(80 * 2.0**30, units.BYTES), "80.0 GiB"),
        (units.rate(989e12, "FLOP/s"), "989 TFLOP/s"),
        (units.percent(0.00001), "<0.1 %"),
        (units.percent(0.5), "50.0 %"),
        (units.shorten_runs("1,2,2,2,12,12,1"), "1,2x3,12x2,1"),
        (units.bar(0.5, 4, "#", ""), "##"),
        (units.bar(0.3, 4, "█", "▏▎▍▌▋▊▉"), "█▎"),
        (units.bar(2.0, 4, "#", ""), "####"),
    ],
)
def test_numbers(text, expected):
    assert text == expected


def test_every_objective_is_told_in_words_with_its_unit():
    told = {each.key: worth_words(each.key, 3e9) for each in Objective if each is not Objective.step}
    assert told["cost_usd"] == "cost of training: 3,000 M USD"
    assert told["energy_j"] == "energy to train: 0.833 MWh"
    assert all(": " in words for words in told.values())


def test_what_would_shorten_the_step_of_a_design(explanations):
    """Bars of both answers to the right, in words, nothing cut or over another."""
    names = ("designed from gb200-nvl72", "mi300x, infiniband 800 Gb/s")
    answers = [
        SimpleNamespace(name=name, elasticities=explanations[plan].elasticities)
        for name, plan in zip(names, ("pipeline", "full recompute"), strict=True)
    ]
    jobs = tuple(SimpleNamespace(workload=SimpleNamespace(name=name), tokens=1e12) for name in ("8b", "70b"))
    asked = {"continuous": answers[0], "catalogue": answers[1]}
    figure = tornado_of(cast(Any, SimpleNamespace(**asked, jobs=jobs)))
    alone = tornado_of(cast(Any, SimpleNamespace(**asked, jobs=jobs[:1])))
    heads = [each._suptitle.get_text() for each in (figure, alone)]  # pyright: ignore[reportAttributeAccessIssue]
    assert [head.splitlines()[-1] for head in heads] == ["8b, 70b", "8b, 1.00 T tokens"]
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert axes.patches
    assert all(bar.get_width() >= -1e-9 for bar in axes.patches)  # pyright: ignore[reportAttributeAccessIssue]
    assert all(label.get_text().startswith("10 % ") for label in axes.get_yticklabels())
    told = [text.get_text() for text in figure.legends[0].get_texts()]
    assert told == [*names, "pale: what software reaches of the machine"]
    whole = figure.bbox
    for text in (*axes.get_yticklabels(), axes.xaxis.label, *figure.legends[0].get_texts()):
        inside = text.get_window_extent()
        assert whole.x0 <= inside.x0
        assert inside.x1 <= whole.x1


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ((0.9, 45.0), ["1", "2", "5", "10", "20"]),
        ((2.95, 2.96), ["2.95", "2.96"]),
        ((1.1, 9.0), ["1.5", "2", "3", "4", "5", "7"]),
        ((700.0, 2e6), ["1,000", "3,000", "10,000", "30,000", "100,000", "300,000", "1 M"]),
        ((1e-8, 1e-1), ["1e-08", "1e-07", "1e-06", "1e-05", "0.0001", "0.001", "0.01", "0.1"]),
        ((1e-12, 1e12), None),
    ],
)
def test_a_logarithmic_axis_says_so_with_round_numbers(ends, expected):
    """Ticks inside the axis, of few digits, no two alike, and no more than there is room for."""
    axes = Figure().add_subplot()
    axes.set_xlim(ends)
    log_axis(axes.xaxis, "step, s")
    told = [label.get_text() for label in axes.get_xticklabels()]
    assert (axes.get_xlabel(), axes.get_xscale()) == ("step, s (log scale)", "log")
    assert len(set(told)) == len(told) <= 8
    assert all(ends[0] * (1 - 1e-6) <= tick <= ends[1] * (1 + 1e-6) for tick in axes.get_xticks())
    assert len(told) > 1
    assert expected is None or told == expected


def test_a_headline_is_no_wider_than_its_figure():
    figure = Figure(figsize=(7.5, 4.5))
    headline(figure, "a title", "data=32 tensor=4 pipeline=4 virtual_stages=20 microbatch=1 sequence_parallel=on " * 4)
    figure.draw_without_rendering()
    text: Any = figure._suptitle  # pyright: ignore[reportAttributeAccessIssue]
    assert text.get_window_extent().x1 <= figure.bbox.x1
    assert text.get_text().count("\n") == 2
    assert text.get_text().endswith("...")
