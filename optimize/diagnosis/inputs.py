"""What one evaluation needs, and where each part of it was read."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one evaluation needs, resolved and legal."""

    workload: Workload
    cluster: Cluster
    plan: Plan
    model: str = ""  # name or file; empty where the workload itself was given
    cluster_from: str = ""  # name or file
    plan_from: str = "arguments"  # where the plan was read
    chosen: str = ""  # how the degrees that were not given were chosen; empty where all were
    out: Path | None = None
    against: "Inputs | None" = None  # what is put beside it
    unread: tuple[str, ...] = ()  # options of a launch file that may change the cost and were not read
    model_table: Mapping[str, Any] | None = None  # dimensions of a model that a launch file describes
    target_loss: float | None = None  # nats a token, whose time is told
    tokens: float | None = None  # whose time is told
    deadline_s: float | None = None  # of it, whose probability is told
    margin: float = 0.5  # the probability that it must fit in memory with; one half: as predicted
    fixed: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # fields of the plan that were given
    failures: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # how often parts fail, where that was given
    software_named: bool = False  # by a flag, a config or a launch file; else the accelerator's default

    def as_json(self) -> dict[str, Any]:
        """The resolved inputs, enough to ask again."""
        return {
            "model": self.model or self.workload.name,
            "cluster": self.cluster.name,
            "software": self.cluster.stack.software,
            "accelerators": self.cluster.accelerators,
            "sequence": self.workload.sequence,
            "batch": self.workload.batch,
            "margin": self.margin,
            "plan": dataclasses.asdict(self.plan),
            "plan_from": self.plan_from,
            "plan_chosen": self.chosen or None,
            "plan_not_read": list(self.unread),
        }
