"""The bar: on a terminal, after a second, with the time left; otherwise nothing."""

import io
import sys

from optimize import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_says_what_and_how_long(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    with progress.bar("3 plans", 3) as step:
        step(1)
        assert sys.stderr.getvalue() == ""  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with progress.bar("3 plans", 3) as step:
        step(1)
        step(2, "the last")
    told = sys.stderr.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "equipoise: 3 plans" in told
    assert "equipoise: the last" in told
    assert "0:00" in told


def test_nothing_elsewhere(monkeypatch, capsys):
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    with progress.clock("design", 1.0) as told:
        told("real parts")
    assert capsys.readouterr() == ("", "")
