"""What a search for a plan compares: seconds of a step, or the time, money or energy of so many tokens.

At a fixed number of accelerators time is the step times a factor. Money and energy count how busy the units are
(`costmodel.formulas.timed`): a second of the step is worth one factor and a second at the usual power another, which
only the domain's size changes (idle accelerators are paid for). A function of your own may be anything.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from costmodel import Exact, Scalar, as_floats
from costmodel.evaluators import prepare
from costmodel.formulas import Breakdown, Cost, breakdown, counts, parts, step, timed
from costmodel.inputs import Cluster, Plan, PlanPoint, Workload
from costmodel.specs import called
from optimize.lattice import Chunk, Lattice
from optimize.question import CLEAN, Job, Objective, second_of
from optimize.status import CommandError, Status

_EXACT = Exact(np)
_NEAR = 1.01  # of what memory there is: far above the error of float32
_BLOCK = 8_192  # points of one NumPy evaluation

UserObjective = Callable[[Breakdown], Any]


@dataclasses.dataclass(frozen=True)
class PlanValue:
    """The value of plans, less being better; `factors` by domain, what one second of a step is worth at least.

    Of that, `drawn` are for each second at the usual power, where busy units are paid for.
    """

    name: str
    factors: Mapping[int, float]
    drawn: Mapping[int, float] = dataclasses.field(default_factory=dict)
    loads: tuple[float, float, float, float] | None = None
    objective: Objective | None = None
    function: UserObjective | None = None  # of your own, where it is not in the table

    def __call__(self, chunk: Chunk, cost: Cost) -> np.ndarray:
        """The value of each plan, from its cost."""
        if self.function is not None:
            return self._own(chunk, self.function)
        if self.loads is not None:
            return self._paid(chunk, cost)
        domain = chunk.columns["domain"] if len(self.factors) > 1 else 0.0
        return cost.step_s * _by_domain(self.factors, domain, np.asarray(cost.step_s).dtype)

    def least(self, step_s: Scalar, products_s: float) -> Any:
        """What no plan is worth less than that takes so long, its products alone `products_s` on every accelerator."""
        return self.least_busy(step_s, 0.0 if self.loads is None else self.loads[1] * products_s)

    def least_busy(self, step_s: Scalar, drawn_s: Scalar) -> Any:
        """The same where busy units draw as much as so many seconds at the usual power."""
        return step_s * min(self.factors.values()) + drawn_s * min(self.drawn.values(), default=0.0)

    def of_plan(self, workload: Workload, cluster: Cluster, plan: Plan) -> float:
        """The value of one plan, by the objectives of the table."""
        return float(self.of_points(*prepare(workload, cluster, plan)))

    def _paid(self, chunk: Chunk, cost: Cost) -> np.ndarray:
        """With the draw of busy units, in float64; infinite for what is far from fitting."""
        assert self.loads is not None
        own, found = chunk.lattice, np.full(len(chunk), np.inf)
        near = np.flatnonzero(own.needed(cost.peak_bytes, cost.second_bytes) <= _NEAR)
        for start in range(0, len(near), _BLOCK):
            here = near[start : start + _BLOCK]
            found[here] = self.of_points(own.workload, own.cluster, own.points(chunk.indices[here], np.float64))
        return found

    def of_points(self, workload: Workload, cluster: Cluster, points: PlanPoint) -> np.ndarray:
        """The value of points, arrays in float64, by the objectives of the table."""
        numbers, machine = as_floats(workload), as_floats(dataclasses.replace(cluster, prices=None))
        counted, second, loads = counts(numbers, points, _EXACT), _by_domain(self.factors, points.domain), self.loads
        with np.errstate(all="ignore"):
            if loads is None:
                return second * step(counted, points, machine, _EXACT).step_s
            step_s, drawn_s = timed(counted, points, machine, loads, _EXACT)
        return second * step_s + _by_domain(self.drawn, points.domain) * (drawn_s - loads[0] * step_s)

    def least_of_points(self, workload: Workload, cluster: Cluster, points: PlanPoint) -> np.ndarray:
        """What no plan is worth less than that differs from one of these points, which recompute and offload nothing,
        in that alone: whatever is done besides takes longer and keeps units busy. The update may be the host's, so that
        it counts for nothing here."""
        stack = dataclasses.replace(cluster.stack, update_passes=0.0)
        return self.of_points(workload, dataclasses.replace(cluster, stack=stack), points)

    def _own(self, chunk: Chunk, function: UserObjective) -> np.ndarray:
        workload = as_floats(chunk.lattice.workload)
        cluster = as_floats(dataclasses.replace(chunk.lattice.cluster, prices=None))
        points = chunk.lattice.points(chunk.indices, np.float64)
        found = breakdown(workload, cluster, points, parts(workload, cluster, points, _EXACT), _EXACT)
        values = called("objective", lambda: np.asarray(function(found), float))
        return np.broadcast_to(values, len(chunk))

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


def value_on(whole: Lattice, objective: str | UserObjective, tokens: float | None) -> PlanValue:
    """What the plans of a lattice are compared by."""
    return plan_value(objective, whole.workload, whole.cluster, sorted(set(whole.rows["domain"].tolist())), tokens)


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
    second = {domain: _factor(own, workload, cluster, domain, tokens, 0.0) for domain in domains}
    if not own.priced or cluster.prices is None:
        return PlanValue(objective, second, objective=own)
    usual = {domain: _factor(own, workload, cluster, domain, tokens, 1.0) for domain in domains}
    drawn, loads = {domain: usual[domain] - second[domain] for domain in domains}, as_floats(cluster.prices.base).loads
    least = {domain: second[domain] + loads[0] * drawn[domain] for domain in domains}
    return PlanValue(objective, least, drawn, loads if any(drawn.values()) else None, own)


def _by_key(key: str) -> Objective:
    table = {objective.key: objective for objective in Objective}
    if key not in table:
        raise CommandError(Status.bad_input, f"`objective` is {key}; expected one of {', '.join(table)}, or a function")
    return table[key]


def _by_domain(table: Mapping[int, float], domain: Any, dtype: Any = np.float64) -> Any:
    """A number of each plan, by its domain."""
    if len(table) == 1:
        return next(iter(table.values()))
    domains = sorted(table)
    return np.array([table[each] for each in domains], dtype)[np.searchsorted(domains, domain)]


def _factor(
    objective: Objective, workload: Workload, cluster: Cluster, domain: int, tokens: float | None, load: float
) -> float:
    """The value of a step of one second in which servers draw `load` of what is usual, with what failures add."""
    each = float(workload.batch * workload.sequence)
    if objective is Objective.step:
        return 1.0
    steps = Job(workload=workload, tokens=tokens or each).steps_on(cluster.accelerators, cluster.prices)
    if not objective.priced:
        return steps
    if cluster.prices is None:
        raise _unknown(objective, cluster)
    if objective.emits and not cluster.prices.base.carbon_g_per_j:
        raise CommandError(Status.bad_input, f"`objective` is {objective.key}; {CLEAN}")
    bill = second_of(cluster, domain, load)
    price = objective.price(bill.usd_per_step, bill.joule_per_step, cluster.prices.base.carbon_g_per_j)
    if price is None:
        raise _unknown(objective, cluster)
    return float(price) * steps / (tokens or each) if objective.maximised else float(price) * steps


def _unknown(objective: Objective, cluster: Cluster) -> CommandError:
    what = "prices" if objective.usd_power else "prices and `power_w`"
    message = f"`objective` is {objective.key}; expected a cluster with {what}, which {cluster.name} does not have"
    return CommandError(Status.bad_input, message)
