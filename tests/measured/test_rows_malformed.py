"""Malformed rows: each costs itself alone and says why; and how long a table of thousands takes."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.measured.rows import (
    Case,
    Unreadable,
    case,
    evaluated,
    lightened,
    read_cases,
    settle,
)
from costmodel.specs.files import SpecError
from costmodel.specs.rows import read_rows
from tests.support.row_by_hand import ROW, refused, table


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"layers": "many"}, "`layers` is 'many'"),
        ({"layers": "1e400"}, "`layers` is '1e400'"),
        ({"hidden": "-5"}, "`hidden` is '-5'"),
        ({"gpus": "0"}, "`gpus` is '0'"),
        ({"gpus": "8.5"}, "`gpus` is '8.5'"),
        ({"gpus": "8"}, "`tp` x `cp` x `pp` is 16"),
        ({"hardware": "abacus"}, "`hardware` is 'abacus'"),
        ({"precision": "roman"}, "`precision` is 'roman'"),
        ({"recompute": "perhaps"}, "`recompute` is 'perhaps'"),
        ({"gated_ffn": "x"}, "`gated_ffn` is 'x'"),
        ({"pp": "49", "tp": "1", "gpus": "49", "dp": "1"}, "`pp` is 49"),
    ],
)
def test_a_malformed_row_says_why(changes, said):
    assert said in refused(**changes)


def test_a_malformed_line_costs_that_row_alone(tmp_path):
    good = table(tmp_path, [ROW]).read_text().splitlines()[1] + "\n"
    broken = ["a,b\n", '"opened and never closed\n', good, "\n", good.replace("6144", "\0"), good]
    found = read_cases(table(tmp_path, [ROW], *broken))
    assert [isinstance(entry, Case) for entry in found] == [True, False, False, True, False, True]
    quoted = ROW | {"notes": "two\nlines, and a comma"}
    assert [entry.row["notes"] for entry in read_cases(table(tmp_path, [quoted, ROW]))] == [quoted["notes"], ""]


def test_a_file_of_something_else_is_one_error(tmp_path):
    for content in (b"", b"name,age\nx,3\n", b"\xff\xfe\x00"):
        path = tmp_path / "other.csv"
        path.write_bytes(content)
        with pytest.raises(SpecError, match="expected column names"):
            read_rows(path)
    with pytest.raises(SpecError, match="no such file"):
        read_rows(tmp_path / "absent.csv")


_CELLS = st.one_of(
    st.sampled_from(
        ["", "0", "1", "2", "8", "1e9", "-1", "inf", "full", "none", "fp8", "FSDP", "H100", "TPU v5p", "ZeRO-1"]
    ),
    st.text(max_size=12),
)


@given(st.dictionaries(st.sampled_from(list(ROW) + ["experts", "topk", "ep"]), _CELLS, max_size=6))
def test_any_row_is_read_or_refused(changes):
    found = case(ROW | changes)
    if isinstance(found, Unreadable):
        assert found.reason
        return
    figures = evaluated(lightened(settle([found])))
    assert figures.step_s[0] > 0 or not np.isfinite(figures.step_s[0])


def test_ten_thousand_rows_take_seconds(tmp_path):
    """1,000 distinct rows in 2 s of processor time: 10,000 in 20."""
    rows = [
        ROW
        | {
            "layers": str(2 * (8 + i % 50)),
            "micro_batch": str(1 + i % 2),
            "tp": str(2 ** (i % 4)),
            "dp": "",
            "recompute": "",
        }
        for i in range(1000)
    ]
    path = table(tmp_path, rows)
    start = time.process_time()
    cases = [entry for entry in read_cases(path) if isinstance(entry, Case)]
    figures = evaluated(settle(cases))
    assert time.process_time() - start < 2.0
    assert np.isfinite(figures.step_s).all()
    assert len(cases) == 1000
