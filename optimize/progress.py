"""How far a search is, on standard error where that is a terminal: a bar with the time left, which goes at the end."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_AFTER_S = 1.0
"""Before, nobody wonders."""


@contextlib.contextmanager
def bar(words: str, total: float) -> Iterator[Callable[..., None]]:
    """`step(done)` or `step(done, words)` inside says how much of the total is done, and what is going on."""
    start, shown = time.monotonic(), []

    def step(done: float, now: str = words) -> None:
        if not sys.stderr.isatty() or time.monotonic() < start + _AFTER_S:
            return
        if not shown:
            shown.append(_started(words, total))
        live = shown[0]
        live.update(live.task_ids[0], completed=min(done, total), description=now)
        live.refresh()

    try:
        yield step
    finally:
        for live in shown:
            live.stop()


def _started(words: str, total: float) -> Any:
    """Drawn when something is said alone: no thread of its own draws it, which a signal could meet."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("equipoise: {task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    live = Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)
    live.start()
    live.add_task(words, total=total)
    return live


@contextlib.contextmanager
def clock(words: str, seconds: float) -> Iterator[Callable[[str], None]]:
    """The same over time that is given: what is called inside says what is going on."""
    start = time.monotonic()
    with bar(words, seconds) as step:
        yield lambda now: step(time.monotonic() - start, now)


def lines(command: str, every_s: float = 2.0) -> Callable[[str], None]:
    """What is called says on a line of its own what a search of unknown length is at, now and then."""
    last = time.monotonic() + _AFTER_S - every_s

    def say(words: str) -> None:
        nonlocal last
        if sys.stderr.isatty() and time.monotonic() > last + every_s:
            last = time.monotonic()
            print(f"equipoise {command}: {words}", file=sys.stderr)

    return say
