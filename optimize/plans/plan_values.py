"""What a search for a plan compares: seconds of a step, or the time, money or energy of so many tokens.

At a fixed number of accelerators all of them are the step times a factor that only the domain's size changes (idle
accelerators are paid for), so they mostly agree on the best plan. A function of your own may be anything.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel import Exact, as_floats
from costmodel.formulas import Breakdown, Cost, breakdown, economics, parts
from costmodel.inputs import Cluster, Workload
from optimize.lattice import Chunk
from optimize.question import Job, Objective
from optimize.status import CommandError, Status

_EXACT = Exact(np)

UserObjective = Callable[[Breakdown], Any]


@dataclasses.dataclass(frozen=True)
class PlanValue:
    """The value of plans, less being better; `factors` by domain, what one second of a step is worth."""

    name: str
    factors: Mapping[int, float]
    objective: Objective | None = None
    function: UserObjective | None = None  # of your own, where it is not in the table

    def __call__(self, chunk: Chunk, cost: Cost) -> np.ndarray:
        """The value of each plan, from its cost."""
        if self.function is not None:
            return self._own(chunk, self.function)
        if len(self.factors) == 1:
            return cost.step_s * next(iter(self.factors.values()))
        domains = sorted(self.factors)
        factors = np.array([self.factors[domain] for domain in domains], np.asarray(cost.step_s).dtype)
        return cost.step_s * factors[np.searchsorted(domains, chunk.columns["domain"])]

    def _own(self, chunk: Chunk, function: UserObjective) -> np.ndarray:
        workload = as_floats(chunk.lattice.workload)
        cluster = as_floats(dataclasses.replace(chunk.lattice.cluster, prices=None))
        points = chunk.lattice.points(chunk.indices, np.float64)
        values = function(breakdown(workload, cluster, points, parts(workload, cluster, points, _EXACT), _EXACT))
        return np.broadcast_to(np.asarray(values, float), len(chunk))

    @property
    def maximised(self) -> bool:
        """Whether a larger value is better, as it is shown."""
        return self.objective is not None and self.objective.maximised

    def shown(self, value: float) -> float:
        """What is reported: the reciprocal where more is better."""
        return value if self.objective is None else self.objective.reported(value, 1.0)

    @property
    def unit(self) -> str:
        """Unit of the value as it is shown."""
        return "" if self.objective is None else self.objective.unit


def plan_value(
    objective: str | UserObjective,
    workload: Workload,
    cluster: Cluster,
    domains: list[int],
    tokens: float | None = None,
) -> PlanValue:
    """The value by the key of an `Objective`, or of a function of a `Breakdown` (less is better)."""
    if not isinstance(objective, str):
        return PlanValue(getattr(objective, "__name__", "objective"), {}, function=objective)
    own = _by_key(objective)
    if tokens is None and own is not Objective.step and not own.maximised:
        raise CommandError(Status.bad_input, f"`tokens` is missing; expected the tokens to train for `{objective}`")
    return PlanValue(objective, {domain: _factor(own, workload, cluster, domain, tokens) for domain in domains}, own)


def _by_key(key: str) -> Objective:
    table = {objective.key: objective for objective in Objective}
    if key not in table:
        raise CommandError(Status.bad_input, f"`objective` is {key}; expected one of {', '.join(table)}, or a function")
    return table[key]


def _factor(objective: Objective, workload: Workload, cluster: Cluster, domain: int, tokens: float | None) -> float:
    """The value of a step of one second, with what failures add to the clock."""
    each = float(workload.batch * workload.sequence)
    if objective is Objective.step:
        return 1.0
    steps = Job(workload=workload, tokens=tokens or each).steps_on(cluster.accelerators, cluster.prices)
    if not objective.priced:
        return steps
    if cluster.prices is None:
        raise _unknown(objective, cluster)
    bill = economics(cluster, cluster.prices.base, cluster.accelerators, domain, 1.0, each)
    price = objective.price(bill.usd_per_step, bill.joule_per_step, cluster.prices.base.carbon_g_per_j)
    if price is None:
        raise _unknown(objective, cluster)
    return float(price) * steps / (tokens or each) if objective.maximised else float(price) * steps


def _unknown(objective: Objective, cluster: Cluster) -> CommandError:
    what = "prices" if objective.usd_power else "prices and `power_w`"
    message = f"`objective` is {objective.key}; expected a cluster with {what}, which {cluster.name} does not have"
    return CommandError(Status.bad_input, message)
