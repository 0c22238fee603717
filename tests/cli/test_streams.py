"""Where an answer cannot be written: one line that says why, the documented status, and no half file."""

import errno
import importlib
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from costmodel.specs import SpecError, load_stack, read_rows, write_file
from optimize import cli
from tests.cli.test_cli import EXPLAIN, refusal
from tests.support import ROOT
from tests.support.row_by_hand import ROW, table

COMMAND = f"{sys.executable} -m optimize.cli {' '.join(EXPLAIN)}"


@pytest.mark.parametrize(
    ("shell", "status", "said"),
    [
        (f"{COMMAND} > /dev/full", 2, "standard output: cannot be written (No space left on device)"),
        (f"{COMMAND} >&-", 2, "standard output: cannot be written (it is closed)"),
        (f"set -o pipefail; {COMMAND} | head -1", 0, ""),
        (f"{COMMAND} --tensro 2>&-", 2, ""),
    ],
)
def test_standard_streams(shell, status, said):
    told = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert told.returncode == status
    assert told.stderr == (f"equipoise: {said}\n" if said else "")


def test_a_full_disk_leaves_nothing(capsys, tmp_path, monkeypatch):
    """A file system that is full after the third file."""
    seen, write_bytes = [], Path.write_bytes

    def write(path, data):
        seen.append(path)
        if len(seen) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)
    told = refusal(capsys, *EXPLAIN, "--out", tmp_path / "result")
    assert "command line: `out` is" in told
    assert "No space left on device" in told
    assert len(seen) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("predict", "rows.csv", "--out"), ("calibrate", "rows.csv", "--out")])
def test_a_table_is_not_overwritten_by_what_it_is_read_for(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    path = table(tmp_path, [ROW])
    before = path.read_bytes()
    assert "`out` is './rows.csv', the file of `rows`; expected another" in refusal(capsys, *words, "./rows.csv")
    assert path.read_bytes() == before


def test_a_link_to_itself(capsys, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(link)
    assert "symbolic links" in refusal(capsys, *EXPLAIN, "--out", link)
    assert "symbolic links" in refusal(capsys, "predict", table(tmp_path, [ROW]), "--out", link)
    assert os.readlink(link) == str(link)


def test_a_table_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    write_file(path, b"first")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
    with pytest.raises(SpecError, match=r"table.csv: cannot be written \(Input/output error\)"):
        write_file(path, b"second")
    assert [path] == list(tmp_path.iterdir())
    assert path.read_bytes() == b"first"
    monkeypatch.undo()
    link = tmp_path / "link"
    link.symlink_to(path)
    write_file(link, b"third")
    assert (link.is_symlink(), path.read_bytes()) == (True, b"third")


def test_what_would_be_read_by_halves_is_refused(tmp_path):
    (tmp_path / "twice.csv").write_text("hardware,gpus,tp,tp\nH100,8,1,2\n")
    with pytest.raises(SpecError, match="column 'tp' stands twice"):
        read_rows(tmp_path / "twice.csv")
    (tmp_path / "empty.toml").write_text("# nothing\n")
    with pytest.raises(SpecError, match="no field of a stack"):
        load_stack(tmp_path / "empty.toml")
    (tmp_path / "other.toml").write_text("[stcak]\nmatmul_ceiling = 0.8\n")
    with pytest.raises(SpecError, match="`stcak` is a table that is not known here; expected the table `stack`"):
        load_stack(tmp_path / "other.toml")


def test_a_warning_is_one_line_and_said_once(capsys, monkeypatch):
    """As JAX gives one for each program that it cannot read in the folder of compiled ones."""

    def warn(*_: object) -> int:
        for name in ("first", "second"):
            warnings.warn(f"Error reading persistent compilation cache entry for '{name}':\n damaged", stacklevel=1)
        return 0

    monkeypatch.setattr(importlib.import_module("optimize.cli.run"), "run", warn)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with pytest.raises(SystemExit):
            cli.main(["models"])
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "it is compiled anew (delete the folder)" in err


def test_a_key_twice_in_yaml(capsys, tmp_path):
    plan = tmp_path / "config.yml"
    plan.write_text("ici_fsdp_parallelism: 8\nici_tensor_parallelism: 2\nici_tensor_parallelism: 4\n")
    told = refusal(capsys, "explain", "--model", "llama3-8b", "--cluster", "h100", "--plan", plan)
    assert "line 3: `ici_tensor_parallelism` is 2 and 4; expected it once" in told


def test_a_name_that_is_too_long(capsys, tmp_path):
    message = refusal(capsys, "predict", table(tmp_path, [ROW]), "--out", "1" * 400)
    assert "expected a name of a file that can be written (File name too long)" in message
