"""Evolution beside a search: a process of its own that goes on where the first left off, and ends with the search.

Each runs in a program without JAX, as the search does: where JAX is loaded there is no fork.
"""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from optimize import cores
from optimize.beside import beside
from optimize.clusters.evolution import FirstAnswers
from tests.clusters.test_joint import problem
from tests.support import ROOT

BEGIN = """
import sys, time
from experiments.search_quality.suite import draw, problem_of
from optimize import beside
from optimize.clusters import evolution, one_job, search_mix
from optimize.clusters.mixes import answers

def asked(kind="joint"):
    return problem_of(draw(0, (kind,), 3)[2]).problem

def first():
    found = evolution.FirstAnswers(asked(), 0, lambda _: None)
    found.run(3000)
    return found
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux" or cores.usable() < 2, reason="no second core, or no safe fork")


def printed(script: str) -> list[str]:
    """What a program of its own prints."""
    whole = BEGIN + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", whole], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr == ""
    return done.stdout.split()


def test_it_finds_what_the_first_would_have_found_later():
    script = """
    one, told = first(), []
    own = beside.beside(one, time.monotonic() + 60.0)
    one.told = lambda found: told.append(found.log_value)
    one.run(8000)
    heard, end = [], time.monotonic() + 30.0
    while len(heard) < len(told) and time.monotonic() < end:
        heard += [found.log_value for found in own.heard()]
    own.close()
    print(len(told), heard[:len(told)] == told, list(own.heard()) == [], own._child.is_alive())
    """
    count, *rest = printed(script)
    assert int(count) > 2
    assert rest == ["True", "True", "False"]


def test_what_it_finds_counts_only_where_the_time_is_up():
    """The same answer with it and without it, and a better one than the search's own where the time is up."""
    script = """
    one_job.EVOLVED = 3000
    found = one_job.search(asked(), 600.0, tolerance=0.4)
    print(found.late, found.beside)
    one_job.beside = lambda first, end: None
    alone = one_job.search(asked(), 600.0, tolerance=0.4)
    print((alone.best.log_value, alone.log_bound) == (found.best.log_value, found.log_bound))
    late = one_job.Progress(asked(), best=alone.best)
    late.note(one_job.best_of(late.problem, first().values.found(*first().kept()[0])))
    late.ahead.__dict__["log_value"] = alone.best.log_value - 1.0
    late.close(take=True)
    print(late.best is late.ahead)
    """
    assert printed(script) == ["False", "None", "True", "True"]


def test_a_mix_hears_it_and_ends_it():
    script = """
    made, kept, answers.EVOLVED = [], beside.beside, 3000
    answers.beside = lambda first, end: made.append(kept(first, end)) or made[0]
    found = search_mix(asked("mix"), 2.5)
    print(found.best is not None, found.beside, len(made), made[0]._child.is_alive())
    """
    assert printed(script) == ["True", "None", "1", "False"]


def test_it_ends_with_its_parent_and_at_the_end_of_its_time():
    script = """
    import os
    own = beside.beside(first(), time.monotonic() + float(sys.argv[1] if sys.argv[1:] else 60.0))
    print(own._child.pid, flush=True)
    time.sleep(60.0)
    """
    for seconds, killed in (("60", True), ("0.1", False)):
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(script), seconds]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            child, end = int(program.stdout.readline()), time.monotonic() + 20.0
            if killed:
                program.send_signal(signal.SIGKILL)
                program.wait()
            while _running(child) and time.monotonic() < end:
                time.sleep(0.05)
            assert not _running(child)
            program.kill()


def test_it_ends_with_its_parent_while_it_waits_for_room():
    """What it tells fills the pipe: nobody listens."""
    script = """
    class Much:
        def run(self, evaluations):
            self.told(b" " * 100_000)

    own = beside.beside(Much(), time.monotonic() + 60.0)
    print(own._child.pid, flush=True)
    time.sleep(60.0)
    """
    command = [sys.executable, "-c", BEGIN + textwrap.dedent(script)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        child, end = int(program.stdout.readline()), time.monotonic() + 20.0
        time.sleep(0.3)
        assert _running(child)
        program.kill()
        program.wait()
        while _running(child) and time.monotonic() < end:
            time.sleep(0.05)
        assert not _running(child)


def test_what_goes_wrong_in_it_is_not_told_twice():
    script = """
    class Wrong:
        def run(self, evaluations):
            raise ValueError

    own = beside.beside(Wrong(), time.monotonic() + 60.0)
    own._child.join(20.0)
    print(list(own.heard()), own._child.is_alive())
    own.close()
    """
    assert printed(script) == ["[]", "False"]


def _running(process: int) -> bool:
    """Whether it is there and has not ended (one that nobody has asked about since is a zombie)."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_there_is_none_where_a_fork_would_not_be_safe(monkeypatch):
    first, end = FirstAnswers(problem(), 0, lambda _: None), time.monotonic() + 1.0
    monkeypatch.setitem(sys.modules, "jax", sys.modules.get("jax", sys))
    assert beside(first, end) is None


def test_there_is_none_where_the_system_has_no_room(monkeypatch):
    def fork() -> int:
        raise BlockingIOError

    monkeypatch.delitem(sys.modules, "jax", raising=False)
    monkeypatch.setattr(os, "fork", fork)
    assert beside(FirstAnswers(problem(), 0, lambda _: None), time.monotonic() + 1.0) is None
