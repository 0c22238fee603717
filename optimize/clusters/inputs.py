"""What one design needs, and what is told of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel.formulas import CurveRange
from costmodel.inputs import Cluster
from costmodel.measured import FITS
from optimize.question import RENTALS, SECONDS_A_DAY, Job, Limits, Objective


@dataclasses.dataclass(frozen=True, kw_only=True)
class DesignInputs:
    """What one design needs, resolved."""

    jobs: tuple[Job, ...]
    models: tuple[str, ...]
    limits: Limits
    objective: Objective
    template: Cluster
    curves: CurveRange
    fixed: Mapping[str, Any]
    seconds: float
    seed: int
    sweep: str | None
    out: Path | None
    margin: float = FITS  # the probability that every plan must fit with
    failures: str = "base"  # the case of the prices by which parts fail
    repair_s: float | None = None  # until what failed is back, for which spares are bought
    target: Mapping[str, Any] | None = None  # loss, law and confidence, where tokens follow from them
    pairs: tuple[Job, ...] = ()  # of shape and batch that reach it

    def settings(self) -> dict[str, Any]:
        """The keywords of `design`, as these inputs set them."""
        names = ("template", "curves", "objective", "fixed", "seconds", "seed", "sweep", "margin")
        names = (*names, "failures", "repair_s")
        return {name: getattr(self, name) for name in names}

    def as_json(self) -> dict[str, Any]:
        """The question as plain data, enough to ask again; which of two meanings the limits have is said."""
        limits = self.limits
        return {
            "jobs": [
                {
                    "model": model,
                    "sequence": job.workload.sequence,
                    "batch": job.workload.batch,
                    "tokens": job.tokens,
                    "weight": job.weight,
                    "deadline_days": None if job.deadline_s is None else job.deadline_s / SECONDS_A_DAY,
                }
                for model, job in zip(self.models, self.jobs, strict=True)
            ],
            "objective": self.objective.key,
            "budget_usd": limits.budget_usd,
            "budget_is": "rent while training" if limits.rent else "capital",
            "rental": {price: name for name, price in RENTALS.items()}.get(limits.rental) if limits.rent else None,
            "power_mw": None if limits.power_w is None else limits.power_w / 1e6,
            "power_is": "mean power at the facility's meter while training, cooling and losses included",
            "accelerators": limits.accelerators,
            "deadline_days": None if limits.deadline_s is None else limits.deadline_s / SECONDS_A_DAY,
            "carbon_t": None if limits.carbon_g is None else limits.carbon_g / 1e6,
            "margin": self.margin,
            "failures": self.failures,
            "repair_days": None if self.repair_s is None else self.repair_s / SECONDS_A_DAY,
            "target": None if self.target is None else dict(self.target),
            "cluster": self.template.name,
            "software": self.template.stack.software,
            "curves": self.curves.name,
            "fix": dict(self.fixed),
            "seconds": self.seconds,
            "seed": self.seed,
            "sweep": self.sweep,
        }
