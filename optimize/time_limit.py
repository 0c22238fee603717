"""Ends what takes too long: an exception at a moment, whatever Python code runs then; and what the user interrupts."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")
AGAIN_S = 0.2  # after which it rings again


class TimeUpError(Exception):
    """The moment has come. What a search knows by then is its answer."""


@contextlib.contextmanager
def until(end: float) -> Iterator[None]:
    """Leave the body at that moment of `time.monotonic`, as if it had ended.

    By a signal, which only the main thread hears, where a system has timers: elsewhere the body must look at the clock.
    What it changes must be true after every step, as for an interruption by the user. It rings until it is heard: what
    is raised inside a destructor or a callback of the garbage collector is lost.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    left: list[bool] = []

    def ring(*_: object) -> None:
        if not left:
            raise TimeUpError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, end - time.monotonic()), AGAIN_S)
        yield
    except TimeUpError:
        pass
    finally:
        left.append(True)
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def or_else(make: Callable[[], T], instead: T, heard: list[bool]) -> T:
    """What is made; where the user interrupts that, something else, and a note in `heard`. An answer stands already."""
    try:
        return make()
    except KeyboardInterrupt:
        heard.append(True)
        return instead
