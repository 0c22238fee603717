"""The question of a design: jobs under limits, and what may be bought and planned."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from optimize.question.objective import Job, Limits, Objective
from optimize.question.space import Space


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem:
    """Jobs, one after another on one cluster, under limits; and what may be bought and planned."""

    jobs: tuple[Job, ...]
    limits: Limits
    objective: Objective
    space: Space
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of `Plan` that are not searched

    @property
    def job(self) -> Job:
        """The first, and mostly the only one."""
        return self.jobs[0]

    @property
    def fill(self) -> bool:
        """Whether more hardware is never worse."""
        return not self.objective.priced
