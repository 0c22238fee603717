"""A search that goes on in a process of its own, on a core that another one leaves free: evolution beside bounds.

It is a fork, which has all that the search has, models and schedules of users among it, and needs no start. A program
that has loaded JAX has threads that a fork would lack, and one core gains nothing from two processes: there is none
then, and the search does without. What is found depends on how fast a machine is, so that a search which ends by its
gap takes up none of it (`clusters.one_job`), and one that ends by the clock does (`clusters.mixes`).
"""

import contextlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from multiprocessing import Pipe, current_process, get_context
from multiprocessing.connection import Connection
from typing import Any, Protocol

from optimize import cores

LONGER_S = 1.0  # than the search, after which it ends by itself
_BEHIND = 5  # of the nice values: whatever else runs goes first


class Goes(Protocol):
    """What goes on by itself, and tells of what it finds."""

    told: Any  # a function of what is found

    def run(self, evaluations: int) -> None:
        """Go on for so many evaluations, or a few more."""


class Beside:
    """`first` goes on elsewhere from where it is, until `end` of `time.monotonic` at most."""

    def __init__(self, first: Goes, end: float) -> None:
        self._reading, writing = Pipe(duplex=False)
        self._whole = True  # whether no message was left half read
        arguments = (first, writing, self._reading, end + LONGER_S, os.getpid())
        self._child = get_context("fork").Process(target=_go_on, args=arguments, daemon=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy's threads, which forks do without
            self._child.start()
        writing.close()

    def heard(self) -> Iterator[Any]:
        """What it has found since it was last asked, each better than the one before."""
        with contextlib.suppress(EOFError, OSError):
            while self._whole and self._reading.poll():
                self._whole = False
                found = self._reading.recv()
                self._whole = True
                yield found

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.join()
        self._reading.close()


def beside(first: Goes, end: float) -> Beside | None:
    """None where there is no second core, a fork would not be safe, or the system has no room for one."""
    alone = sys.platform != "linux" or "jax" in sys.modules or current_process().daemon
    if alone or cores.usable() < 2:
        return None
    try:
        return Beside(first, end)
    except OSError:
        return None


def _go_on(first: Goes, writing: Connection, reading: Connection, end: float, parent: int) -> None:
    """Tell of every improvement while anyone listens. What goes wrong here is told where the search meets it, too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    reading.close()  # the parent's: without it nobody listens
    with contextlib.suppress(Exception):
        os.nice(_BEHIND)
        first.told = writing.send
        while time.monotonic() < end and os.getppid() == parent:
            first.run(1)  # one generation
    os._exit(0)
