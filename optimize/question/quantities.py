"""Jobs, what objectives and limits read of them on a cluster, and by how much an answer breaks a limit.

A limit is a signed residual in logarithms, `log(value / limit)`: at most 0 where it is met, 0.01 where it is missed by
one per cent.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping

from costmodel import Scalar, as_floats, strict
from costmodel.formulas import STATE_BYTES, Hardware, elapsed, rates
from costmodel.inputs import Cluster, PlanPoint, PriceRange, Workload, model_flop, parameters
from costmodel.specs import LEAVES, an, check_fields
from optimize.question.objective import Limits, Objective

_OF_JOB = {"workload": an(Workload, 'load_workload("llama3-8b")'), "tokens": LEAVES, "weight": LEAVES}
_OF_JOB |= {"deadline_s": dataclasses.replace(LEAVES, optional=True)}


@strict
@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One model to train. With several on one cluster, they run one after the other."""

    workload: Workload
    tokens: float
    weight: float = 1.0  # of its seconds (dollars, joules) in the sum over jobs
    deadline_s: float | None = None  # for this job alone

    def __post_init__(self) -> None:
        """Raise `SpecError` for a value that no job has."""
        check_fields("Job", self, _OF_JOB)

    @property
    def steps(self) -> float:
        """Steps that the tokens take."""
        return self.tokens / (self.workload.batch * self.workload.sequence)

    @functools.cached_property
    def floats(self) -> Workload:
        """The workload with every number a float, as formulas read it."""
        return as_floats(self.workload)

    @functools.cached_property
    def state_bytes(self) -> float:
        """Bytes of a checkpoint."""
        return STATE_BYTES * float(parameters(self.workload))

    def steps_on(self, accelerators: Scalar, prices: PriceRange | None) -> Scalar:
        """Steps that fit into the seconds of the clock: with what failures of so many accelerators cost."""
        return self.steps if prices is None else self.steps * elapsed(prices.base, accelerators, self.state_bytes)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantities:
    """What objectives and limits read: of one cluster with the plans of its jobs, or of arrays of them.

    A residual of one's own may also read the hardware, and the seconds of a step of each job.
    """

    train_s: Scalar  # all jobs, one after the other, by weight
    usd_per_s: Scalar
    meter_w: Scalar  # the mean of a step, by how busy the units are
    capital_usd: Scalar
    accelerators: Scalar  # bought, but for spares
    usual_w: Scalar  # with servers at what is usual in training: what a limit is of
    carbon_g_per_j: Scalar = 0.0  # of the grid
    spares: Scalar = 0.0  # bought beside the accelerators
    hardware: Hardware | None = None
    step_s: tuple[Scalar, ...] = ()

    @property
    def carbon_g(self) -> Scalar:
        """Grams of CO2 of the electricity of all jobs."""
        return self.train_s * self.meter_w * self.carbon_g_per_j

    def minimised(self, objective: Objective, steps: float) -> Scalar:
        """The quantity whose logarithm a search minimises."""
        seconds = self.train_s / steps if objective is Objective.step else self.train_s
        return seconds * objective.price(self.usd_per_s, self.meter_w, self.carbon_g_per_j)


def residuals(limits: Limits, of: Quantities, peak_bytes: float, hbm_bytes: float) -> dict[str, float]:
    """`log(value / limit)` by the name of the limit, those that are set."""
    spent_usd = of.usd_per_s * of.train_s if limits.rent else of.capital_usd
    pairs: Mapping[str, tuple[float, float | None]] = {
        "memory": (peak_bytes, hbm_bytes),
        "budget_usd": (spent_usd, limits.budget_usd),
        "power_w": (of.usual_w, limits.power_w),
        "accelerators": (of.accelerators, limits.accelerators),
        "deadline_s": (of.train_s, limits.deadline_s),
        "carbon_g": (of.carbon_g, limits.carbon_g),
    }
    return {name: math.log(value / limit) for name, (value, limit) in pairs.items() if limit is not None and value > 0}


def products_s(workload: Workload, cluster: Cluster, point: PlanPoint) -> float:
    """Seconds in which one accelerator could do the products of a step at the best rate of a kernel.

    In the precision of the point; no plan on `n` accelerators takes less than an `n`th of it.
    """
    speed = rates(as_floats(cluster.accelerator), point, cluster.stack)
    fastest = min(speed.matmul_s_per_flop, speed.attention_s_per_flop)
    return float(model_flop(workload) * workload.batch * fastest)
