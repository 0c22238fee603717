"""What one search needs, and what is told of it."""

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from costmodel.inputs import Cluster, Workload
from costmodel.measured import FITS
from optimize.others import Sharding
from optimize.question import SECONDS_A_DAY


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanInputs:
    """What one search needs, resolved."""

    model: str
    workload: Workload
    cluster: Cluster
    fixed: Mapping[str, Any]
    objective: str
    tokens: float | None
    top: int
    out: Path | None
    sharding: Sharding = Sharding()
    only: str | None = None  # a framework whose launcher the plans must suit
    launch: str | None = None  # a framework whose launch file is asked for
    framework_version: str | None = None  # of the framework; None: the one that it is written for
    margin: float = FITS  # the probability that a plan must fit with
    layers: bool = False  # whether the layers of the best plans are placed one by one
    every: bool = False  # whether plans that no framework can launch are searched too
    counts: tuple[int, int] | None = None  # a range of accelerators
    batches: tuple[int, int] | None = None  # a range of batches
    fewest: bool = False  # whether the least count is asked for
    deadline_s: float | None = None  # with `fewest`: of all tokens
    machine: Callable[[int], Cluster] | None = None  # with a range: the cluster with so many accelerators

    def as_json(self) -> dict[str, Any]:
        """Enough to ask again."""
        return {
            "model": self.model,
            "cluster": self.cluster.name,
            "software": self.cluster.stack.software,
            "accelerators": self.cluster.accelerators,
            "sequence": self.workload.sequence,
            "batch": self.workload.batch,
            "objective": self.objective,
            "tokens": self.tokens,
            "top": self.top,
            "fix": dict(self.fixed),
            "margin": self.margin,
            "only": self.only,
            "launch": self.launch,
            "framework_version": self.framework_version,
            "layers": self.layers,
            "any": self.every,
            "accelerators_range": None if self.counts is None else list(self.counts),
            "batch_range": None if self.batches is None else list(self.batches),
            "fewest": self.fewest,
            "deadline_days": None if self.deadline_s is None else self.deadline_s / SECONDS_A_DAY,
        }
