"""`equipoise predict`: columns, order, notes, intervals, statuses."""

import csv
import json
import math

import pytest

from costmodel.measured.rows import Unreadable, alternatives, case
from optimize import cli
from optimize.diagnosis.predict import predict
from tests.support.row_by_hand import ROW, needs_bulk, table

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
    rows = table(tmp_path, [ROW, ROW | {"seq": ""}])
    status, out, err = ask(capsys, rows, "--out", tmp_path / "a.csv", "--json")
    told = json.loads(out)
    assert (status, err) == (0, "")
    assert {"schema", "status", "message", "inputs", "versions", "seconds"} <= told.keys()
    assert (told["rows"], told["predicted"]) == (2, 1)
    assert told["unreadable"] == [{"row": 2, "note": "`seq` is empty; expected an integer above 0"}]
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


def test_what_a_row_leaves_open_widens_its_interval():
    """Three sizes of the microbatch of plain data ranks, and the spread between their times."""
    row = ROW | {"tp": "1", "pp": "1", "dp": "64", "micro_batch": "", "global_batch_sequences": "512", "hidden": "1024"}
    row |= {"ffn_hidden": "4096", "heads": "16", "layers": "12", "zero_stage_or_fsdp": "", "recompute": "none"}
    open_row, printed = (case(one) for one in (row, row | {"micro_batch": "4"}))
    assert not isinstance(open_row, Unreadable)
    assert len(alternatives(open_row)) > 1
    wide, narrow = (
        math.log(one.step_s_p90 / one.step_s_p10)
        for one in predict([open_row, printed])
        if one.step_s_p90 and one.step_s_p10
    )
    assert wide > narrow * (1 + 1e-6)
