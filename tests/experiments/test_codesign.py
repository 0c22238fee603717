"""The `codesign` experiment on a small model and few accelerators: its numbers hang together, its files are there."""

import csv
import json
import math
from collections.abc import Mapping
from typing import Any

import pytest

from costmodel.formulas.curves import hardware_of
from costmodel.specs.curves import anchored
from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster, load_curves
from experiments import commands as command
from experiments import runner as _runner
from experiments.codesign import experiment as codesign
from experiments.codesign.frontier import LIMIT, _carried
from optimize.clusters.frontier import FACTORS

SMALL = {
    "tokens": 1e11, "budget_usd": 1.5e6, "power_mw": 0.05, "template": "h100", "sequence": 2048, "batch": 32,
    "accelerators": 32, "fix": "schedule=one_f_one_b,context=1,zero_stage=1,microbatch=1",
}  # fmt: skip
FILES = {"result.json", "frontier.csv", "frontier.png", "frontier.svg", "money.png", "money.svg",
         "robustness.png", "robustness.svg"}  # fmt: skip


def shown(table) -> str:
    """The words of a table."""
    return " ".join(str(cell) for column in table.columns for cell in (column.header, *column.cells))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of a tiny run, and the folder that it wrote."""
    folder = tmp_path_factory.mktemp("codesign")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        config = {"models": ("llama3-8b",), "seconds": 90.0, "draws": 12, **SMALL}
        return _runner.run("codesign", **config)["results"], folder / "results" / "codesign"


def test_both_answers_keep_the_limits_and_carry_a_certificate(results):
    model = results[0]["models"]["llama3-8b"]
    for answer in (model["continuous"], model["catalogue"]):
        assert answer["cluster"]["capital_usd"] <= 1.5e6 * (1 + 1e-9)
        assert answer["cluster"]["meter_w"] <= 5e4 * (1 + 1e-9)
        assert 0 < answer["lower_bound"] <= answer["value"]
        assert answer["gap"] == pytest.approx(answer["value"] / answer["lower_bound"] - 1)
        assert answer["jobs"][0]["validation"]["fits"]
        assert answer["value"] == pytest.approx(
            answer["jobs"][0]["step_s"] * 1e11 / (32 * 2048) / answer["jobs"][0]["goodput"]
        )
    assert {"budget_usd", "power_w"} <= model["continuous"]["shadow_prices"].keys()


def test_parts_of_the_money_are_its_sum_and_follow_the_curves(results):
    model = results[0]["models"]["llama3-8b"]
    for answer in (model["continuous"], model["catalogue"]):
        assert sum(answer["money_usd"].values()) == pytest.approx(answer["cluster"]["capital_usd"], rel=1e-9)
    template = load_cluster("h100")
    curves, cluster = anchored(load_curves(), template).base, model["continuous"]["cluster"]
    law = curves.flop_usd
    each = law.amount * (cluster["flop_per_s"] / law.reference) ** law.exponent
    expected = curves.server_factor * each * cluster["accelerators"]
    assert model["continuous"]["money_usd"]["FLOP/s"] == pytest.approx(expected)
    second_usd = curves.second_memory_usd(hardware_of(template).second_memory_bytes)
    assert model["continuous"]["money_usd"]["second memory"] == pytest.approx(second_usd * cluster["accelerators"])


def test_the_frontier_has_every_budget_and_falls(results):
    points = results[0]["models"]["llama3-8b"]["frontier"]
    assert [point[LIMIT] for point in points] == pytest.approx(sorted(1.5e6 * factor for factor in (1.0, *FACTORS)))
    values = [point["value"] for point in points if point["value"] is not None]
    assert len(values) >= 3
    assert values == sorted(values, reverse=True)
    for point in points:
        if point["value"] is not None:
            assert point["lower_bound"] <= point["value"] * (1 + 1e-12)
            assert math.isfinite(point["gap"])


def test_files_and_tables(results):
    found, folder = results
    assert {path.name for path in folder.iterdir()} == FILES
    points = [point for point in found["models"]["llama3-8b"]["frontier"] if point["value"] is not None]
    with (folder / "frontier.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["days"]) for row in rows] == pytest.approx([point["value"] / 86400 for point in points])
    told = " ".join(
        shown(table) for table in codesign.tables(json.loads((folder / "result.json").read_text())["results"])
    )
    prices = found["models"]["llama3-8b"]["continuous"]["shadow_prices"].values()
    for words in ("days to train", "rates of any size", "microbatch=1", "gap", *(price["words"] for price in prices)):
        assert words in told


def test_nothing_feasible_is_told_and_not_raised(tmp_path):
    asked = {"models": ("llama3-8b",), "quick": True, **SMALL, "budget_usd": 100.0}
    found = codesign.run(tmp_path, lambda _: None, **asked)
    assert found["models"]["llama3-8b"]["continuous"] is None
    assert "--budget-usd" in " ".join(shown(table) for table in codesign.tables(found))


def test_the_frontier_holds_the_answer_and_bounds_that_fall(results):
    model = results[0]["models"]["llama3-8b"]
    asked = next(point for point in model["frontier"] if point[LIMIT] == 1.5e6)
    assert asked["value"] <= model["continuous"]["value"]
    bounds = [point["lower_bound"] for point in model["frontier"] if point["value"] is not None]
    assert bounds == sorted(bounds, reverse=True)


def test_the_choice_is_judged_by_draws(results):
    judged = results[0]["models"]["llama3-8b"]["robustness"]
    assert judged["draws"] == len(judged["losses"]["loss_of_plan"]) == 12
    assert 0 <= judged["same_plan"] <= judged["same_count"] <= 1
    assert sum(each["share"] for each in judged["winners"]) == pytest.approx(1)
    assert judged["unproved"] < 0.05
    for losses in judged["losses"].values():
        assert min(losses) >= 0
        assert losses.count(0) > 0


def test_a_bound_is_carried_to_less_money_only():
    points: list[Mapping[str, Any]] = [{LIMIT: budget, "value": value, "lower_bound": bound, "gap": value / bound - 1}
              for budget, value, bound in ((1.0, 9.0, 4.0), (2.0, 8.0, 6.0), (3.0, 7.0, 5.0))]  # fmt: skip
    points.insert(0, {LIMIT: 0.5, "value": None, "lower_bound": None, "gap": None})
    carried = _carried(points)
    assert [point["lower_bound"] for point in carried] == [None, 6.0, 6.0, 5.0]
    assert [point["gap"] for point in carried[1:]] == pytest.approx([0.5, 2 / 6, 0.4])


def test_a_wrong_value_is_one_line_and_status_2(capsys):
    assert command.main(["run", "codesign", "--power-mw", "-1"]) == 2
    shown_error = capsys.readouterr().err
    assert "`power_mw` is -1.0" in shown_error
    assert shown_error.count("\n") == 1


def test_a_wrong_value_is_refused_before_any_search(tmp_path):
    with pytest.raises(SpecError, match="`power_mw` is -1"):
        codesign.run(tmp_path, lambda _: None, models=("llama3-8b",), power_mw=-1.0)
    assert not list(tmp_path.iterdir())
