r"""What is asked of a cluster and its plans: jobs, an objective, limits; and by how much an answer breaks a limit.

Every objective is a product of powers of three quantities, which are log-convex in the hardware at fixed plans:
seconds $T$ to train, dollars a second $K$ (the purchase written off over its busy life, and electricity) and watts $P$
at the meter. So one tangent in logarithms bounds them all.

    time $T$    cost $T K$    energy $T P$    tokens a dollar $D / (T K)$    tokens a joule $D / (T P)$

A limit is a signed residual in logarithms, `log(value / limit)`: at most 0 where it is met, 0.01 where it is missed by
one per cent.
"""

import dataclasses
import enum
import math
from collections.abc import Mapping

from costmodel import Scalar
from costmodel.inputs import Workload

SECONDS_A_DAY = 86_400.0


class Objective(enum.Enum):
    """What is best. The values are what an answer's `value` is, in words."""

    time = "seconds to train the tokens"
    step = "seconds of a step"
    cost = "dollars to train the tokens: purchase written off, and electricity"
    energy = "joules to train the tokens, at the meter"
    tokens_per_usd = "tokens for a dollar"
    tokens_per_joule = "tokens for a joule at the meter"

    @property
    def key(self) -> str:
        """The name on the command line and in JSON, with its unit; `plan_values.OBJECTIVES` has the same ones."""
        return {"time": "time_s", "step": "step_s", "cost": "cost_usd", "energy": "energy_j"}.get(
            self.name, self.name.replace("joule", "j")
        )

    @property
    def maximised(self) -> bool:
        return self in (Objective.tokens_per_usd, Objective.tokens_per_joule)

    @property
    def usd_power(self) -> float:
        """Power of dollars a second in what is minimised."""
        return float(self in (Objective.cost, Objective.tokens_per_usd))

    @property
    def watt_power(self) -> float:
        """Power of watts at the meter in what is minimised."""
        return float(self in (Objective.energy, Objective.tokens_per_joule))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One model to train. With several on one cluster, they run one after the other."""

    workload: Workload
    tokens: float
    weight: float = 1.0  # of its seconds (dollars, joules) in the sum over jobs
    deadline_s: float | None = None  # for this job alone

    @property
    def steps(self) -> float:
        return self.tokens / (self.workload.batch * self.workload.sequence)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the cluster may cost, draw and hold. None: not limited."""

    budget_usd: float | None = None
    rent: bool = False  # the budget is spent while training; else it is the purchase
    power_w: float | None = None  # at the facility's meter
    accelerators: int | None = None
    deadline_s: float | None = None  # for all jobs together


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantities:
    """What objectives and limits read: of one cluster with the plans of its jobs, or of arrays of them."""

    train_s: Scalar  # all jobs, one after the other, by weight
    usd_per_s: Scalar
    meter_w: Scalar
    capital_usd: Scalar
    accelerators: Scalar


def minimised(objective: Objective, found: Quantities, steps: float) -> Scalar:
    """The quantity whose logarithm a search minimises."""
    if objective is Objective.step:
        return found.train_s / steps
    if objective.usd_power:
        return found.train_s * found.usd_per_s
    if objective.watt_power:
        return found.train_s * found.meter_w
    return found.train_s


def told(objective: Objective, least: float, tokens: float) -> float:
    """What is reported for a minimised quantity: itself, or tokens over it."""
    return tokens / least if objective.maximised else least


def residuals(limits: Limits, found: Quantities, peak_bytes: float, hbm_bytes: float) -> dict[str, float]:
    """`log(value / limit)` by the name of the limit, those that are set."""
    spent_usd = found.usd_per_s * found.train_s if limits.rent else found.capital_usd
    pairs: Mapping[str, tuple[float, float | None]] = {
        "memory": (peak_bytes, hbm_bytes),
        "budget_usd": (spent_usd, limits.budget_usd),
        "power_w": (found.meter_w, limits.power_w),
        "accelerators": (found.accelerators, limits.accelerators),
        "deadline_s": (found.train_s, limits.deadline_s),
    }
    return {name: math.log(value / limit) for name, (value, limit) in pairs.items() if limit is not None and value > 0}
