"""Two answers side by side, and the money and energy of one: on the screen, as JSON, and what is refused."""

import copy
import itertools
import json

import pytest

from optimize.cli import lists as catalogue
from tests.cli.test_cli import EXPLAIN, answer, ask, refusal

WIDTHS = pytest.mark.parametrize("columns", ["80", "100"])


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "other.toml"
    path.write_text("tensor = 4\npipeline = 1\nzero_stage = 3\n")
    return path


@pytest.fixture
def cluster_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'accelerators = 64\naccelerator = "a100-80gb"\n[[tiers]]\nsize = 64\nbandwidth_gb_per_s = 100\nlatency_us = 2\n'
        "link_usd_per_gb_per_s = 5\nswitch_usd = { low = 1000, base = 2000, high = 4000 }\n"
        "[prices]\nprice_usd = 9000\n"
    )
    return path


def check_differences(told):
    other, terms = told["against"]["answer"], told["against"]["differences"]["terms"]
    exposed = [{term["name"]: term["exposed_s"] for term in each["terms"]} for each in (told, other)]
    for term in terms:
        assert term["exposed_s"] == [each[term["name"]] for each in exposed]
        assert term["change_s"] == term["exposed_s"][1] - term["exposed_s"][0]
    changes = [abs(term["change_s"]) for term in terms]
    assert changes == sorted(changes, reverse=True)
    assert sum(term["change_s"] for term in terms) == pytest.approx(
        other["step_s"] - told["step_s"], rel=1e-9, abs=1e-9
    )
    sizes = told["against"]["differences"]["memory"]
    peaks = [each["memory"]["peak_bytes"] for each in (told, other)]
    assert [sum(term["bytes"][i] for term in sizes) for i in (0, 1)] == pytest.approx(peaks)


def test_another_cluster_by_name_with_the_plan_that_was_given(capsys):
    told = answer(capsys, *EXPLAIN, "--tensor", "2", "--pipeline", "2", "--against", "b200")
    check_differences(told)
    other = told["against"]["answer"]
    assert (other["inputs"]["cluster"], other["inputs"]["accelerators"], other["plan"]) == ("b200", 64, told["plan"])


def test_a_plan_that_is_chosen_is_chosen_for_each_cluster(capsys):
    """With what was given of it, and with the failures that were asked for."""
    job = ("--model", "llama3-70b", "--accelerators", "256", "--batch", "512", "--zero-stage", "3", "--tokens", "1e12")
    job = (*job, "--failures", "high", "--repair-days", "5")
    both = answer(capsys, "explain", "--cluster", "h100", *job, "--against", "b200")
    alone = answer(capsys, "explain", "--cluster", "b200", *job)
    check_differences(both)
    other = both["against"]["answer"]
    assert other["plan"] == alone["plan"] != both["plan"]
    assert other["economics"] == alone["economics"]
    assert other["time_to_target"] == alone["time_to_target"]


def test_a_cluster_on_which_the_plan_is_illegal_gets_its_own(capsys):
    told = answer(capsys, *EXPLAIN, "--against", "v100")
    check_differences(told)
    assert (told["plan"]["precision"], told["against"]["answer"]["plan"]["precision"]) == ("bf16", "fp16")


def test_what_is_illegal_there_is_left_out_and_said(capsys):
    """Alone: what else was given stays."""
    given = ("--tensor", "2", "--zero-stage", "2", "--precision", "fp8_tensor")
    told = answer(capsys, *EXPLAIN, *given, "--against", "a100-80gb")
    other = told["against"]["answer"]
    assert [other["plan"][name] for name in ("tensor", "zero_stage", "precision")] == [2, 2, "bf16"]
    assert "without precision=fp8_tensor, which no plan there has" in other["inputs"]["plan_chosen"]
    both = ("--cluster", "gb200-nvl72", "--tensor", "4", "--pipeline", "2", "--data", "8", "--domain", "64")
    told = answer(capsys, "explain", "--model", "llama3-8b", *both, "--recompute", "full", "--against", "h100")
    other = told["against"]["answer"]
    assert [other["plan"][name] for name in ("tensor", "pipeline", "data", "recompute")] == [4, 2, 8, "full"]
    assert "without domain=64" in other["inputs"]["plan_chosen"]


def test_another_plan(capsys, plan_file):
    told = answer(capsys, *EXPLAIN, "--tensor", "1", "--pipeline", "2", "--against", str(plan_file))
    check_differences(told)
    assert [told["against"]["answer"]["plan"][name] for name in ("tensor", "pipeline", "data", "zero_stage")] == [
        4, 1, 16, 3
    ]  # fmt: skip


def test_an_answer_of_explain_is_a_plan_too(capsys, tmp_path):
    saved = tmp_path / "answer.json"
    saved.write_text(json.dumps(answer(capsys, *EXPLAIN, "--tensor", "8", "--pipeline", "1")))
    told = answer(capsys, *EXPLAIN, "--tensor", "1", "--pipeline", "2", "--against", str(saved))
    assert told["against"]["answer"]["plan"]["tensor"] == 8


def test_a_cluster_file_with_its_own_prices(capsys, cluster_file):
    told = answer(capsys, *EXPLAIN, "--against", str(cluster_file))
    check_differences(told)
    money = told["against"]["answer"]["economics"]
    assert money["bill"]["servers_usd"] == pytest.approx(64 * 9000 * 1.66)
    assert [money[case]["bill"]["network"][0]["switch_usd"] for case in ("low", "high")] == [64_000, 256_000]
    assert money["bill"]["network"][0]["link_usd"] == pytest.approx(64 * 500)


@WIDTHS
def test_the_screen_of_two(capsys, monkeypatch, plan_file, columns):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, err = ask(capsys, *EXPLAIN, "--tensor", "1", "--pipeline", "2", "--against", str(plan_file))
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert "…" not in out
    for word in ("A  64 h100", "B  64 h100", "B / A", "B - A", "owned, USD a million tokens", "step", "peak"):
        assert word in out
    start = next(i for i, line in enumerate(lines) if line.startswith("time,")) + 1
    rows = list(itertools.takewhile(str.strip, lines[start:]))
    changes = [abs(float(row.split()[-3])) for row in rows[:-1]]
    assert rows[-1].startswith("step")
    assert changes == sorted(changes, reverse=True)


@WIDTHS
@pytest.mark.parametrize("cluster", ["h100", "gb200-nvl72", "mi300x", "tpu-v5p", "v100"])
def test_money_takes_five_lines_at_most(capsys, monkeypatch, columns, cluster):
    monkeypatch.setenv("COLUMNS", columns)
    status, out, err = ask(capsys, "explain", "--model", "llama3-8b", "--cluster", cluster, "--accelerators", "64")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    start = next(i for i, line in enumerate(lines) if "goodput " in line)
    part = list(itertools.takewhile(str.strip, lines[start:]))
    assert len(part) <= 5
    assert max(map(len, part)) <= int(columns)


@pytest.mark.parametrize("cluster", ["h100", "tpu-v5p", "v100"])
def test_economics_in_json(capsys, cluster):
    told = answer(capsys, "explain", "--model", "llama3-8b", "--cluster", cluster, "--accelerators", "64")
    money, tokens = told["economics"], told["tokens_per_s"] * told["step_s"]
    assert {"usd_per_step", "usd_per_token", "joule_per_token", "low", "high", "missing"} <= money.keys()
    if cluster == "h100":
        assert money["missing"] == []
        assert money["usd_per_step"] == pytest.approx(money["capital_usd_per_step"] + money["energy_usd_per_step"])
        assert money["usd_per_token"] * tokens == pytest.approx(money["usd_per_step"])
        assert money["joule_per_token"] * tokens == pytest.approx(money["meter_w"] * told["step_s"] / money["goodput"])
        assert money["low"]["usd_per_step"] < money["usd_per_step"] < money["high"]["usd_per_step"]
    else:
        assert money["usd_per_step"] is None
        assert set(money["missing"]) & {"price_usd", "power_w"}


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("h10", "`against` is 'h10', which is neither a cluster nor a file; did you mean h100"),
        ("none.toml", "none.toml: no such file"),
        ("", "`against`"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_one_line(capsys, other, message):
    assert message in refusal(capsys, *EXPLAIN, "--against", other)


def test_a_plan_for_another_number_of_accelerators_is_refused(capsys, tmp_path):
    path = tmp_path / "large.toml"
    path.write_text("tensor = 8\npipeline = 4\ndata = 8\n")
    assert "256" in refusal(capsys, *EXPLAIN, "--against", str(path))


def test_a_cluster_that_lacks_a_number_is_listed_and_refused_by_its_field(capsys, monkeypatch, tmp_path):
    from costmodel.specs import loading

    shipped = loading.read_tables

    def with_a_gap(kind):
        tables = copy.deepcopy(shipped(kind))
        if kind == "accelerators":
            tables["h200"].pop("hbm_tb_per_s")
        return tables

    monkeypatch.setattr(loading, "read_tables", with_a_gap)
    monkeypatch.setattr(catalogue, "read_tables", with_a_gap)
    listed = {cluster["name"]: cluster for cluster in answer(capsys, "clusters")["clusters"]}
    assert "`hbm_bytes_per_s` is missing" in listed["h200"]["missing"]
    assert listed["h100"]["missing"] is None
    status, out, _ = ask(capsys, "clusters")
    assert (status, "`hbm_bytes_per_s` is missing" in out) == (0, True)
    words = ("explain", "--model", "llama3-8b", "--cluster", "h200", "--accelerators", "8")
    assert "`hbm_bytes_per_s` is missing" in refusal(capsys, *words)
