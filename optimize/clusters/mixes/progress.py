"""What a search for a mix of jobs knows: answers by count, bounds by count."""

import dataclasses
import math

import numpy as np

from costmodel.inputs import Plan
from optimize.beside import Beside
from optimize.question import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixed:
    """One cluster within the limits, with a plan for each job."""

    accelerators: int
    plans: tuple[Plan, ...]
    y: np.ndarray  # logarithms of the rates
    hbm_bytes: float
    log_value: float  # of the minimised value


@dataclasses.dataclass(kw_only=True)
class MixProgress:
    """What a search for several jobs knows so far."""

    problem: Problem
    best: Mixed | None = None
    answers: dict[int, Mixed] = dataclasses.field(default_factory=dict)  # the best by count
    log_bounds: dict[int, float] = dataclasses.field(default_factory=dict)  # by count
    evaluations: int = 0
    interrupted: bool = False
    beside: Beside | None = None  # evolution that goes on while bounds are raised

    @property
    def finished(self) -> bool:
        """Whether everything was looked at: without an answer, there is none."""
        return not any(np.isfinite(list(self.log_bounds.values())))

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of accelerators that the bound is about."""
        return tuple(sorted(self.log_bounds))

    @property
    def log_bound(self) -> float:
        """The logarithm that nothing is below: the least over all counts."""
        return min([*self.log_bounds.values(), math.inf if self.best is None else self.best.log_value])

    def offer(self, mixed: Mixed) -> None:
        """Keep an answer if it is the best so far, or the best of its count."""
        known = self.answers.get(mixed.accelerators)
        if known is None or mixed.log_value < known.log_value:
            self.answers[mixed.accelerators] = mixed
        if self.best is None or mixed.log_value < self.best.log_value:
            self.best = mixed

    def hear(self) -> None:
        """Offer what evolution has found beside the search."""
        for found in self.beside.heard() if self.beside is not None else ():
            self.offer(Mixed(**found._asdict()))

    def close(self) -> None:
        """Hear the last of it, and end it."""
        if self.beside is not None:
            self.hear()
            self.beside.close()
            self.beside = None
