"""`equipoise predict`: columns, order, notes, intervals, statuses."""

import csv
import json
import math

import pytest

from costmodel.measured.rows import Case, Unreadable, alternatives, case, doubts, evaluated, settle
from optimize import cli
from optimize.diagnosis.predict import Prediction, errors_of, open_log_sd, predict, readings_s, worst_first
from tests.support.row_by_hand import ROW, needs_bulk, read, table

COLUMNS = ["predicted_step_s", "predicted_step_s_p10", "predicted_step_s_p90", "predicted_mem_bytes", "fits", "note"]


def ask(capsys, *words) -> tuple[int, str, str]:
    status = cli.run(["predict", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def predictions(path) -> list[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_one_row_for_each_in_order(tmp_path, capsys):
    rows = [ROW, ROW | {"layers": "x"}, ROW | {"micro_batch": "4"}, ROW | {"hidden": "24576", "ffn_hidden": "98304"}]
    status, out, err = ask(capsys, table(tmp_path, rows), "--out", tmp_path / "out.csv")
    assert (status, err) == (0, "")
    assert "3 of 4 rows" in out
    found = predictions(tmp_path / "out.csv")
    assert list(found[0]) == COLUMNS
    assert [row["fits"] for row in found] == ["1", "", "1", "0"]
    assert found[1] == dict.fromkeys(COLUMNS, "") | {"note": "`layers` is 'x'; expected a number or nothing"}
    for row in (found[0], found[2], found[3]):
        low, middle, high = (float(row[name]) for name in (COLUMNS[1], COLUMNS[0], COLUMNS[2]))
        assert 0 < low < middle < high
        assert float(row["predicted_mem_bytes"]) > 1e9
        assert row["note"].startswith("megatron-2022 on a100-80gb")


def test_outcomes_may_be_absent_and_are_never_read(tmp_path, capsys):
    measured = {"measured_step_s": "1e-3", "measured_mem_GB": "x", "oom": "1", "flops_convention": "y"}
    plain, told = tmp_path / "plain.csv", tmp_path / "told.csv"
    for out, row in ((plain, ROW), (told, ROW | measured)):
        path = tmp_path / "in.csv"
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(row))
            writer.writeheader()
            writer.writerow(row)
        assert ask(capsys, path, "--out", out)[0] == 0
    assert plain.read_text() == told.read_text()


def test_json_and_a_stack_of_your_own(tmp_path, capsys):
    slow = tmp_path / "slow.toml"
    slow.write_text("[cluster]\nname = 'mine'\n[stack]\nmatmul_ceiling = 0.2\n")
    rows = table(tmp_path, [ROW, ROW | {"seq": "long"}])
    status, out, err = ask(capsys, rows, "--out", tmp_path / "a.csv", "--json")
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert {"schema", "status", "message", "inputs", "versions", "seconds"} <= told.keys()
    assert (told["rows"], told["predicted"]) == (2, 1)
    assert told["unreadable"] == [{"row": 2, "note": "`seq` is 'long'; expected a number or nothing"}]
    assert ask(capsys, "--rows", rows, "--stack", slow, "--out", tmp_path / "b.csv")[0] == 0
    fast_s, slow_s = (float(predictions(tmp_path / f"{name}.csv")[0][COLUMNS[0]]) for name in "ab")
    assert slow_s > 2 * fast_s


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "`rows` is missing"),
        (("rows.csv",), "`out` is missing"),
        (("absent.csv", "--out", "x.csv"), "no such file"),
        (("rows.csv", "--out"), "`--out` has no value"),
        (("rows.csv", "--out", "no/such/folder/x.csv"), "cannot be written"),
        (("rows.csv", "--out", "x.csv", "--stack", "rows.csv"), "not valid TOML"),
        (("rows.csv", "--out", "x.csv", "--stack", "nope"), "command line: `stack`: nope: no such file"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, capsys, monkeypatch, words, said):
    table(tmp_path, [ROW])
    monkeypatch.chdir(tmp_path)
    status, out, err = ask(capsys, *words)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert said in err


@needs_bulk
def test_a_calibration_set_is_predicted(tmp_path, capsys):
    from tests.support.row_by_hand import BULK

    assert BULK is not None
    status, _, _ = ask(capsys, BULK / "calibration.csv", "--out", tmp_path / "out.csv")
    found = predictions(tmp_path / "out.csv")
    assert status == 0
    assert len(found) == len(predictions(BULK / "calibration.csv"))
    assert sum(row["predicted_step_s"] != "" for row in found) > 0.99 * len(found)


def test_a_table_without_rows_is_an_empty_answer():
    assert predict([]) == ()
    assert [told.note for told in predict([Unreadable(row={}, reason="spoilt")])] == ["spoilt"]


# one row, and what rows are


def test_a_row_is_explained_as_it_is_predicted(tmp_path, capsys):
    rows = table(tmp_path, [ROW | {"micro_batch": "4"}, ROW | {"notes": "kernel=torch", "zero_stage_or_fsdp": ""}])
    assert ask(capsys, rows, "--out", tmp_path / "out.csv")[0] == 0
    predicted_s = float(predictions(tmp_path / "out.csv")[1][COLUMNS[0]])
    status, out, err = ask(capsys, rows, "--explain", "2", "--json")
    told = json.loads(out)
    assert (status, err, told["row"]["number"]) == (0, "", 2)
    assert told["step_s"] == pytest.approx(predicted_s, rel=1e-6)
    assert sum(term["exposed_s"] for term in told["terms"]) == pytest.approx(told["step_s"], rel=1e-9)
    assert told["row"]["read"]["hardware"] == ROW["hardware"]
    assert told["row"]["assumed"] == ["ZeRO 0", "gradients in fp16"]
    assert told["row"]["words"]["unfused_attention"] == 1
    status, out, _ = ask(capsys, rows, "--explain", "2")
    assert status == 0
    for word in ("row 2", "assumed: ZeRO 0", "GPT 22B: 64 sequences of 2,048 tokens", "limited by", "margin to"):
        assert word in out


@needs_bulk
def test_layouts_that_break_rules_are_explained_too(capsys):
    from tests.support.row_by_hand import BULK

    status, out, err = ask(capsys, f"{BULK}/calibration.csv", "--explain", "1700", "--json")
    assert (status, err) == (0, ""), err
    assert json.loads(out)["row"]["number"] == 1700


def test_software_of_rows_that_do_not_say_theirs(tmp_path, capsys):
    rows = table(tmp_path, [ROW | {"source": "somebody"}, ROW])
    notes = {}
    for name in ("", "torchtitan", "deepspeed"):
        words = (rows, "--out", tmp_path / "out.csv", *(("--software", name) if name else ()))
        assert ask(capsys, *words)[0] == 0
        notes[name] = [row["note"].split(" on ")[0] for row in predictions(tmp_path / "out.csv")]
    assert notes == {
        "": ["megatron-2022", "megatron-2022"],
        "torchtitan": ["fsdp", "megatron-2022"],
        "deepspeed": ["deepspeed", "megatron-2022"],
    }


def test_rows_keep_their_names(tmp_path, capsys):
    path = tmp_path / "named.csv"
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", *ROW])
        writer.writeheader()
        writer.writerows([ROW | {"id": "first"}, ROW | {"id": "x,y", "hardware": "abacus"}])
    assert ask(capsys, path, "--out", tmp_path / "out.csv")[0] == 0
    found = predictions(tmp_path / "out.csv")
    assert list(found[0]) == ["id", *COLUMNS]
    assert [row["id"] for row in found] == ["first", "x,y"]


def test_no_row_predicted_is_no_answer(tmp_path, capsys):
    rows = table(tmp_path, [ROW | {"hardware": "abacus"}])
    status, out, _ = ask(capsys, rows, "--out", tmp_path / "out.csv", "--json")
    assert (status, json.loads(out)["status"]) == (3, "infeasible")
    assert len(predictions(tmp_path / "out.csv")) == 1
    status, _, err = ask(capsys, rows, "--explain", "1")
    assert (status, err.count("\n"), "`hardware` is 'abacus'" in err) == (3, 1, True)
    assert ask(capsys, rows, "--explain", "2")[0] == 2
    assert ask(capsys, rows, "--software", "lightning", "--out", tmp_path / "out.csv")[0] == 2


def test_columns_are_documented(capsys):
    status, out, err = ask(capsys, "--columns", "--json")
    told = json.loads(out)["columns"]
    assert (status, err) == (0, "")
    assert set(ROW) <= told.keys()
    status, out, _ = ask(capsys, "--columns")
    assert all(name in out for name in told)


@needs_bulk
def test_every_published_column_is_documented(capsys):
    from tests.support.row_by_hand import bulk_rows

    told = json.loads(ask(capsys, "--columns", "--json")[1])["columns"]
    assert set(bulk_rows("calibration")[0]) <= told.keys()


def test_errors_are_those_of_the_rows_that_were_measured():
    """By hand: 1 s for 1.1 s that were measured, inside its interval; 2 s for 1 s, beyond; a row without a time."""
    told = [
        Prediction(note="", step_s=1.0, step_s_p10=0.8, step_s_p90=1.25, measured_step_s=1.1),
        Prediction(note="cannot be read"),
        Prediction(note="", step_s=2.0, step_s_p10=1.9, step_s_p90=2.1, measured_step_s=1.0),
    ]
    found = errors_of(told)
    assert found is not None
    assert (found["rows"], found["inside_interval"]) == (2, 0.5)
    assert found["worst"] == {"row": 3, "error": pytest.approx(1.0)}
    assert found["median_error"] == pytest.approx((1.0 + (1 - 1 / 1.1)) / 2)
    assert [row for row, _ in worst_first(told)] == [3, 1]
    slow = [Prediction(note="", step_s=s, step_s_p10=s, step_s_p90=s, measured_step_s=1.0) for s in (1.45, 0.6)]
    found = errors_of(slow)  # the worst of the sentence is the first of the table
    assert found is not None
    assert found["worst"] == {"row": 2, "error": pytest.approx(-0.4)}


# what a row leaves open


def test_what_a_row_leaves_open_widens_its_interval():
    closed = {"hardware": "H100", "source": "NeMo", "precision": "bf16"}
    opened = {"recompute": {"recompute": ""}, "precision": {"precision": ""}, "layout": {"tp": "", "pp": "", "dp": ""}}
    opened |= {"batch": {"global_batch_sequences": ""}}
    rows = [read(**closed), *(read(**(closed | blank)) for blank in opened.values())]
    assert rows[0].open == ()
    spreads = open_log_sd(rows, readings_s(rows))
    assert spreads[0] == 0
    assert (spreads[1:] > 0.01).all(), dict(zip(opened, spreads[1:], strict=True))
    certain, doubtful = widths([rows[0], rows[1]])
    assert doubtful > certain
    own_s = float(evaluated([rows[1]]).step_s[0])
    apart = [(weight, math.log(float(evaluated([other]).step_s[0]) / own_s)) for weight, other in doubts(rows[1])]
    assert spreads[1] == pytest.approx(math.sqrt(sum(weight * log**2 for weight, log in apart)))


@needs_bulk
def test_open_readings_have_probabilities_and_keep_to_the_batch():
    from tests.support.row_by_hand import bulk_rows

    found = [row for row in map(case, bulk_rows("calibration")[1970:2080]) if isinstance(row, Case)]
    other = [(row, weight, reading) for row in settle(found) for weight, reading in doubts(row)]
    assert len(other) > 40
    for row, weight, reading in other:
        assert 0 < weight < 0.5
        assert reading.plan.accelerators == row.plan.accelerators
        assert reading.plan.data <= reading.workload.batch
    for row in found:
        assert sum(weight for weight, _ in doubts(row)) < 1


def test_the_mean_over_microbatches_widens_the_interval():
    """Three sizes of the microbatch of plain data ranks, and the spread between their times."""
    row = ROW | {"tp": "1", "pp": "1", "dp": "64", "micro_batch": "", "global_batch_sequences": "512", "hidden": "1024"}
    row |= {"ffn_hidden": "4096", "heads": "16", "layers": "12", "zero_stage_or_fsdp": "", "recompute": "none"}
    open_row, printed = (case(one) for one in (row, row | {"micro_batch": "4"}))
    assert not isinstance(open_row, Unreadable)
    assert len(alternatives(open_row)) > 1
    wide, narrow = widths([open_row, printed])
    assert wide > narrow * (1 + 1e-6)


def widths(rows):
    """Logarithms of the upper end of each interval over its lower end."""
    told = [(one.step_s_p90, one.step_s_p10) for one in predict(rows)]
    return [math.log(high / low) for high, low in told if high and low]


def test_columns_that_begin_as_one_that_is_missing_are_told(tmp_path, capsys):
    """Not those of which the row has what they could mean, nor names of one's own."""
    rows = tmp_path / "rows.csv"
    rows.write_text("model,hardware,gpus,precisions,layers_all,model_id,site\nLlama-3-8B,H100-80GB,8,bf16,32,7,here\n")
    assert cli.run(["predict", str(rows), "--out", str(tmp_path / "out.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["columns_not_read"]
    assert told == ["precisions (did you mean precision?)", "layers_all (did you mean layers?)"]
