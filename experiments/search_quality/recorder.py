"""What a method found and when: seconds since its process was asked for, CPU seconds, evaluations, value."""

import dataclasses
import math
import os
import time
from collections.abc import Callable
from typing import Any


class OverTimeError(KeyboardInterrupt):
    """The time is up in the middle of a method; what it has found counts. The solver ends with its bound, as on ^C."""


@dataclasses.dataclass(frozen=True)
class Improvement:
    """One improvement; `log_value` is the method's own figure, `candidate` what is scored again."""

    wall_s: float
    cpu_s: float
    evaluations: int
    log_value: float
    candidate: Any


class Recorder:
    """Keeps every improvement of one run, and says when to stop."""

    def __init__(self, started: float, seconds: float, clock: str = "wall", evaluations: int = 0) -> None:
        self.started, self.seconds, self.clock = started, seconds, clock
        self.most_evaluations = evaluations or math.inf
        self.improvements: list[Improvement] = []
        self.evaluations = 0

    def elapsed_s(self) -> float:
        """Seconds by the clock of the run."""
        return self.cpu_s() if self.clock == "cpu" else self.wall_s()

    def wall_s(self) -> float:
        """Seconds since the parent asked for the process."""
        return time.time() - self.started

    def cpu_s(self) -> float:
        """Seconds of all threads, from the start of the process."""
        used = os.times()
        return used.user + used.system

    def go(self) -> bool:
        """Whether there is time for more."""
        return self.elapsed_s() < self.seconds and self.evaluations < self.most_evaluations

    def left_s(self) -> float:
        """Seconds left by the wall, for methods that watch it themselves; on a busy machine CPU seconds take longer."""
        share = 1.0 if self.clock == "wall" else max(1.0, self.wall_s() / max(self.cpu_s(), 0.1))
        return max(1.0, share * (self.seconds - self.elapsed_s()))

    def offer(self, log_value: float, candidate: Callable[[], Any]) -> None:
        """Kept if it is better than everything before."""
        if not math.isfinite(log_value) or self.improvements and log_value >= self.improvements[-1].log_value:
            return
        self.improvements.append(Improvement(self.wall_s(), self.cpu_s(), self.evaluations, log_value, candidate()))

    def until(self, seconds: float) -> Improvement | None:
        """The best that was known then."""
        own = [one for one in self.improvements if (one.cpu_s if self.clock == "cpu" else one.wall_s) <= seconds]
        return own[-1] if own else None
