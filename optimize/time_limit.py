"""Ends what takes too long: an exception at a moment, whatever Python code runs then."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Never


class TimeUpError(Exception):
    """The moment has come. What a search knows by then is its answer."""


@contextlib.contextmanager
def until(end: float) -> Iterator[None]:
    """Leave the body at that moment of `time.monotonic`, as if it had ended.

    By a signal, which only the main thread hears, where a system has timers: elsewhere the body must look at the clock.
    What it changes must be true after every step, as for an interruption by the user.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> Never:
        raise TimeUpError

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(1e-3, end - time.monotonic()))
        yield
    except TimeUpError:
        pass
    finally:
        with contextlib.suppress(TimeUpError):
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
