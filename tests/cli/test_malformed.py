"""Whatever a file or the words hold, a command answers or says why not in one line: no traceback, no other status."""

import dataclasses
import re
import resource
from pathlib import Path

import pytest

from costmodel.specs import SpecError
from optimize import cli
from optimize.cli import calibrate, design, measure, plan
from tests.support import often
from tests.support.files.fuzz import cases, written

STATUSES = (0, 2, 3, 4)
LONGEST = 1_000  # characters of a message
EACH_S = 10.0  # of processor time


def processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def problem_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> str | None:
    """What is wrong with how a command took these words; None: nothing."""
    start = processor_s()
    try:
        status = cli.run(words)
    except SystemExit as ending:  # --help
        status = ending.code or 0
    except Exception as error:  # what a user would see as a traceback
        capsys.readouterr()
        return f"{type(error).__name__}: {error}"
    out, err = capsys.readouterr()
    if status not in STATUSES:
        return f"status {status}"
    if processor_s() - start > EACH_S:
        return f"{processor_s() - start:.0f} s"
    if status == 0:
        unsaid = re.search(r"(?<![\w.-])(nan|inf|None|NaN|Infinity)(?![\w.-])", out)
        return None if out and not err and not unsaid else f"status 0 with {err[:300]!r}, {unsaid}"
    one_line = err.startswith("equipoise: ") and err.count("\n") == 1 and err.strip().isprintable()
    if not one_line or len(err) > LONGEST or ("{" not in "".join(words) and out and "--json" not in words):
        return f"status {status} with {err[:300]!r}, {out[:100]!r}"
    return None


@pytest.fixture
def reading_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """`plan`, `design`, `measure` and `calibrate` read and check, and do not search, measure or fit."""

    def stop(*_: object) -> None:
        raise SpecError("it was read")

    for module, name in ((plan, "PLAN"), (design, "DESIGN"), (measure, "MEASURE")):
        monkeypatch.setattr(module, name, dataclasses.replace(getattr(module, name), run=stop))
    for name in ("fit_collectives", "calibrate_kernels", "calibrate"):
        monkeypatch.setattr(calibrate, name, stop)


def test_nothing_breaks(capsys, tmp_path: Path, monkeypatch, reading_only):
    monkeypatch.chdir(tmp_path)
    wrong = []
    for name, case in cases(seed=13, count=often(50, 2000)):
        found = problem_of(written(case, tmp_path), capsys)
        if found is not None:
            wrong.append(f"{name}: {found}")
    assert wrong == []
