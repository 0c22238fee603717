"""What a search for a plan compares: seconds of a step, or the time, money or energy of so many tokens.

At a fixed number of accelerators all of them are the step times a factor that only the domain's size changes (idle
accelerators are paid for), so they mostly agree on the best plan. A function of your own may be anything.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.formulas import Breakdown, Cost, as_floats, breakdown, economics, parts
from costmodel.inputs import Cluster, Workload
from optimize.lattice import Chunk
from optimize.status import CommandError, Status

_UNITS = {
    "step_s": "s",
    "time_s": "s",
    "cost_usd": "USD",
    "energy_j": "J",
    "tokens_per_usd": "tokens/USD",
    "tokens_per_j": "tokens/J",
}
OBJECTIVES = tuple(_UNITS)
MAXIMISED = ("tokens_per_usd", "tokens_per_j")
_NEEDS_TOKENS = ("time_s", "cost_usd", "energy_j")
_EXACT = Exact(np)

UserObjective = Callable[[Breakdown], Any]


@dataclasses.dataclass(frozen=True)
class PlanValue:
    """The value of plans, less being better; `factors` by domain, what one second of a step is worth."""

    name: str
    factors: Mapping[int, float]
    function: UserObjective | None = None

    def __call__(self, chunk: Chunk, found: Cost) -> np.ndarray:
        """Of each plan, from its cost."""
        if self.function is not None:
            return self._own(chunk, self.function)
        if len(self.factors) == 1:
            return found.step_s * next(iter(self.factors.values()))
        domains = sorted(self.factors)
        factors = np.array([self.factors[domain] for domain in domains], np.asarray(found.step_s).dtype)
        return found.step_s * factors[np.searchsorted(domains, chunk.columns["domain"])]

    def _own(self, chunk: Chunk, function: UserObjective) -> np.ndarray:
        workload = as_floats(chunk.lattice.workload)
        cluster = as_floats(dataclasses.replace(chunk.lattice.cluster, prices=None))
        points = chunk.lattice.points(chunk.indices, np.float64)
        found = function(breakdown(workload, cluster, points, parts(workload, cluster, points, _EXACT), _EXACT))
        return np.broadcast_to(np.asarray(found, float), len(chunk))

    def shown(self, value: float) -> float:
        """What is reported: the reciprocal where more is better."""
        return 1.0 / value if self.name in MAXIMISED else value

    @property
    def unit(self) -> str:
        return _UNITS.get(self.name, "")


def plan_value(
    objective: str | UserObjective,
    workload: Workload,
    cluster: Cluster,
    domains: list[int],
    tokens: float | None = None,
) -> PlanValue:
    """The value by name, or of a function of a `Breakdown` (less is better)."""
    if not isinstance(objective, str):
        return PlanValue(getattr(objective, "__name__", "objective"), {}, objective)
    if objective in _NEEDS_TOKENS and tokens is None:
        raise CommandError(Status.bad_input, f"`tokens` is missing; expected the tokens to train for `{objective}`")
    return PlanValue(objective, {domain: _factor(objective, workload, cluster, domain, tokens) for domain in domains})


def _factor(objective: str, workload: Workload, cluster: Cluster, domain: int, tokens: float | None) -> float:
    """The value of a step of one second."""
    each = float(workload.batch * workload.sequence)
    steps = (tokens or each) / each
    if objective in ("step_s", "time_s"):
        return 1.0 if objective == "step_s" else steps
    if cluster.prices is None:
        raise _unknown(objective, cluster)
    found = economics(cluster, cluster.prices.base, cluster.accelerators, domain, 1.0, each)
    value = found.usd_per_step if objective in ("cost_usd", "tokens_per_usd") else found.joule_per_step
    if value is None:
        raise _unknown(objective, cluster)
    return float(value) / each if objective in MAXIMISED else float(value) * steps


def _unknown(objective: str, cluster: Cluster) -> CommandError:
    what = "prices" if objective in ("cost_usd", "tokens_per_usd") else "prices and `power_w`"
    message = f"`objective` is {objective}; expected a cluster with {what}, which {cluster.name} does not have"
    return CommandError(Status.bad_input, message)
