r"""Descent over plan and hardware together: many starts in one batch, by Adam in logarithms, with dual numbers.

Relaxed: tensor, context, pipeline, data, microbatch, virtual stages (log2), the share of layers that recompute, and the
four rates (natural logarithms). Enumerated, one for each group of starts: schedule and ZeRO stage. HBM bytes are what
the plan needs, and the rates are moved onto the limits inside the loss: the factor $s$ of all rates solves
$\sum_k a_k (s x_k)^{\alpha_k} = $ what is left, and one Newton step in dual numbers from the solution carries its
exact derivative. No compilation: a step of some hundred starts takes milliseconds.

What comes out is a relaxed point: 20 % below any plan that can be launched, and never reported as an answer.
"""

import dataclasses
import enum
from typing import Any, NamedTuple

import numpy as np

from costmodel.cost import as_floats
from costmodel.counts import OpCounts, counts
from costmodel.curves import hardware_of, with_hardware
from costmodel.dual import Dual, DualNumbers
from costmodel.memory import memory
from costmodel.options import RECOMPUTES, SCHEDULES, ZERO_STAGES, RecomputeRow
from costmodel.plan import Plan, PlanPoint, embed, layers
from costmodel.roofline import rates
from costmodel.schedule import step_time
from costmodel.semantics import Scalar
from costmodel.timing import timing
from optimize.lattice import OVERLAPS
from optimize.legality import rules
from optimize.objective import Objective
from optimize.problem import Problem
from optimize.space import RATES
from optimize.tangents import money

DEGREES = ("tensor", "context", "pipeline", "data", "microbatch", "virtual_stages", "expert")
VARIABLES = (*DEGREES, "recompute_share", *RATES)
STEPS = 64
LEARNING_RATE = 0.35
_BETA1, _BETA2, _EPSILON = 0.9, 0.99, 1e-12
PENALTY = 20.0  # of the logarithm by which memory is above what can be bought, or the limits are missed
STATIONARY = 0.02  # a projected gradient (change of the logarithm for a factor of e) below it counts as an optimum
_SUBGRADIENT = DualNumbers()


class Outcome(enum.Enum):
    """How one start ended. The values are the messages."""

    optimum = "a relaxed optimum: no direction inside the ranges lowers it"
    moving = "stopped while still falling"
    infeasible = "it misses a limit or has no memory"


class Starts(NamedTuple):
    """The enumerated options of each start, as rows."""

    schedule: np.ndarray
    zero: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class Relaxed:
    """Where each start ended, best first. `path` is the value of the best so far at each step (logarithms)."""

    x: dict[str, np.ndarray]  # degrees, share and rates, not logarithms
    starts: Starts
    log_value: np.ndarray
    outcome: tuple[Outcome, ...]
    path: np.ndarray
    evaluations: int

    @property
    def accelerators(self) -> np.ndarray:
        return self.x["tensor"] * self.x["context"] * self.x["pipeline"] * self.x["data"]


def descend(problem: Problem, seed: int = 0, each: int = 16, steps: int = STEPS) -> Relaxed:
    """From `each` random starts for each pair of schedule and ZeRO stage."""
    generator = np.random.default_rng(seed)
    pairs = [(s, z) for s in ("interleaved", "one_f_one_b") for z in (1, 3)]
    starts = Starts(*(np.repeat(np.array(column), each) for column in zip(*pairs, strict=True)))
    low, high = _ranges(problem)
    z = low + (high - low) * generator.uniform(0.1, 0.9, (len(VARIABLES), len(starts.zero)))
    return _adam(problem, starts, z, steps, LEARNING_RATE)


def again(problem: Problem, relaxed: Relaxed | None, seed: int = 0, most: int = 24, steps: int = 40) -> Relaxed:
    """From where a descent with other limits ended: its best points, in fewer and smaller steps."""
    if relaxed is None:
        return descend(problem, seed)
    starts = Starts(relaxed.starts.schedule[:most], relaxed.starts.zero[:most])
    x = np.stack([relaxed.x[name][:most] for name in VARIABLES])
    n = len(DEGREES)
    z = np.concatenate([np.log2(x[:n]), x[n : n + 1], np.log(x[n + 1 :])])
    return _adam(problem, starts, np.clip(z, *_ranges(problem)), steps, 0.5 * LEARNING_RATE)


def _adam(problem: Problem, starts: Starts, z: np.ndarray, steps: int, learning_rate: float) -> Relaxed:
    low, high = _ranges(problem)
    model, n = _Model(problem, starts), len(starts.zero)
    first, second = np.zeros_like(z), np.zeros_like(z)
    best_z, best, path = z.copy(), np.full(n, np.inf), []
    for step in range(steps):
        value, slope = model.loss(z)
        better = value < best
        best, best_z = np.where(better, value, best), np.where(better, z, best_z)
        path.append(best.min())
        first = _BETA1 * first + (1 - _BETA1) * slope
        second = _BETA2 * second + (1 - _BETA2) * slope**2
        scaled = first / (1 - _BETA1 ** (step + 1)) / (np.sqrt(second / (1 - _BETA2 ** (step + 1))) + _EPSILON)
        rate = 0.5 * learning_rate * (1 + np.cos(np.pi * step / steps))
        z = np.clip(z - rate * scaled, low, high)
    value, slope = model.loss(best_z)
    return _result(model, starts, best_z, (low, high), value, slope, np.array(path), n * (steps + 1))


def _result(
    model: "_Model",
    starts: Starts,
    z: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    value: np.ndarray,
    slope: np.ndarray,
    path: np.ndarray,
    evaluations: int,
) -> Relaxed:
    order = np.argsort(value, kind="stable")
    inward = np.where((z <= ends[0] + 1e-9) & (slope > 0) | (z >= ends[1] - 1e-9) & (slope < 0), 0.0, slope)
    residual, missed = np.abs(inward).max(axis=0), model.missed(z)
    outcome = [
        Outcome.infeasible if missed[i] > 1e-3 else Outcome.optimum if residual[i] < STATIONARY else Outcome.moving
        for i in order
    ]
    x = dict(zip(VARIABLES, _natural(z)[:, order], strict=True))
    for name, column in zip(RATES, model.rates(z)[:, order], strict=True):
        x[name] = column
    return Relaxed(
        x=x,
        starts=Starts(starts.schedule[order], starts.zero[order]),
        log_value=value[order],
        outcome=tuple(outcome),
        path=path,
        evaluations=evaluations,
    )


def _natural(z: np.ndarray) -> np.ndarray:
    """Degrees from log2, the share as it is, rates from natural logarithms."""
    n = len(DEGREES)
    return np.concatenate([2.0 ** z[:n], z[n : n + 1], np.exp(z[n + 1 :])])


def _ranges(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Of every variable, as columns."""
    workload, space = problem.job.workload, problem.space
    depth, domain = layers(workload), float(space.template.tiers[0].usable_size)
    experts = max([1, *(value for name, value in rules(workload, space.template).expert_divides if name == "expert")])
    tops = (min(domain, 64.0), min(16.0, workload.sequence), depth, workload.batch, 8.0, max(1.0, depth / 4), experts)
    low = np.concatenate([np.zeros(len(DEGREES)), [0.0], np.log(space.ranges.low)])
    high = np.concatenate([np.log2(tops), [1.0], np.log(space.ranges.high)])
    return low[:, None], np.maximum(high, low + 1e-6)[:, None]


class _Laid(NamedTuple):
    """A batch of relaxed points with their hardware."""

    rates: list[Any]
    point: PlanPoint
    counted: OpCounts
    need_bytes: Any


class _Model:
    """The loss of a batch of starts, with its gradient."""

    def __init__(self, problem: Problem, starts: Starts) -> None:
        self.problem, self.starts = problem, starts
        self.workload = as_floats(problem.job.workload)
        self.priced = money(problem.space, float(problem.space.template.tiers[0].usable_size))
        names = [f.name for f in dataclasses.fields(Plan) if isinstance(f.default, bool | str)]
        fixed = {name: problem.fixed[name] for name in names if isinstance(problem.fixed.get(name), bool | str)}
        plain = Plan(**(dict.fromkeys(OVERLAPS, True) | fixed))
        self.point = embed(plain, problem.job.workload, float(problem.space.template.tiers[0].usable_size))
        self.schedule, self.zero = (
            _rows(table, chosen) for table, chosen in ((SCHEDULES, starts.schedule), (ZERO_STAGES, starts.zero))
        )

    def loss(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the minimised quantity with penalties, and their gradients: variables x starts."""
        natural, chain = _natural(z), np.ones_like(z)
        n = len(DEGREES)
        chain[:n], chain[n + 1 :] = np.log(2.0) * natural[:n], natural[n + 1 :]
        seeds = np.eye(len(VARIABLES))[:, :, None] * chain[:, None, :]
        values = {name: Dual(natural[i], {"all": seeds[i]}) for i, name in enumerate(VARIABLES)}
        result, excess = self._evaluate(values)
        slope = result.parts["all"] / result.value
        for part in excess:  # logarithms that should be at most 0
            over = np.maximum(np.log(part.value), 0.0)
            slope = slope + PENALTY * (over > 0) * part.parts["all"] / part.value
            result = Dual(result.value * np.exp(PENALTY * over), result.parts)
        return np.log(result.value), np.nan_to_num(slope)

    def missed(self, z: np.ndarray) -> np.ndarray:
        """By how much (a logarithm) each start misses memory or a limit."""
        natural = _natural(z)
        values = {name: Dual(natural[i], {"all": np.zeros((1, z.shape[1]))}) for i, name in enumerate(VARIABLES)}
        _, excess = self._evaluate(values)
        return np.max([np.log(part.value) for part in excess], axis=0)

    def rates(self, z: np.ndarray) -> np.ndarray:
        """Those of the loss: on the limits."""
        natural = _natural(z)
        values = {name: Dual(natural[i], {"all": np.zeros((1, z.shape[1]))}) for i, name in enumerate(VARIABLES)}
        return np.stack([np.broadcast_to(rate.value, z.shape[1]) for rate in self._hardware(values)[0].rates])

    def _point(self, v: dict[str, Any]) -> PlanPoint:
        """Virtual stages are 1 where the schedule does not interleave; no stage has less than a layer."""
        interleaves, depth = self.schedule.interleaves, float(layers(self.problem.job.workload))
        virtual = _SUBGRADIENT.maximum(_SUBGRADIENT.minimum(v["virtual_stages"], depth / v["pipeline"]), 1.0)
        full, none, share = RECOMPUTES["full"], RECOMPUTES["none"], v["recompute_share"]
        mixed = {
            f.name: share * getattr(full, f.name) + (1.0 - share) * getattr(none, f.name)
            for f in dataclasses.fields(RecomputeRow)
        }
        data = self._data(v)
        ranks = v["tensor"] * v["context"] * data
        return dataclasses.replace(
            self.point,
            accelerators=v["tensor"] * v["context"] * v["pipeline"] * data,
            tensor=v["tensor"],
            context=v["context"],
            pipeline=v["pipeline"],
            microbatch=self._microbatch(v, data),
            virtual_stages=interleaves * virtual + (1.0 - interleaves),
            expert=_SUBGRADIENT.minimum(v["expert"], ranks),
            sequence_parallel=1.0,
            schedule=self.schedule,
            zero=self.zero,
            recompute=RecomputeRow(**mixed),
        )

    def _data(self, v: dict[str, Any]) -> Scalar:
        """No more accelerators than are allowed."""
        most = self.problem.limits.accelerators
        inside = v["tensor"] * v["context"] * v["pipeline"]
        return v["data"] if most is None else _SUBGRADIENT.minimum(v["data"], float(most) / inside)

    def _microbatch(self, v: dict[str, Any], data: Scalar) -> Scalar:
        """At least one microbatch on every pipeline."""
        return _SUBGRADIENT.minimum(v["microbatch"], float(self.problem.job.workload.batch) / data)

    def _hardware(self, v: dict[str, Any]) -> tuple["_Laid", list[Any]]:
        """The point with rates on the limits, and the ratios that should be at most 1."""
        problem, point = self.problem, self._point(v)
        counted = counts(self.workload, point, _SUBGRADIENT)
        need = memory(counted, point, problem.space.template.stack, _SUBGRADIENT).peak_bytes
        excess = [need / problem.space.ranges.most_hbm_bytes]
        raw = [v[name] for name in RATES]
        scales = []
        for law, exponent, spare in self._limits(point, need):
            least = float((law * np.exp(exponent * np.log(problem.space.ranges.low))).sum())
            excess.append(1.05 * least / _SUBGRADIENT.maximum(spare, 1e-3 * least))
            scales.append(_scale(raw, law, exponent, _SUBGRADIENT.maximum(spare, 1.05 * least), problem))
        if not problem.fill:
            scales.append(Dual(np.ones(len(self.starts.zero)), {}))
        factor = _SUBGRADIENT.minimum(*scales) if len(scales) > 1 else scales[0]
        ends = zip(problem.space.ranges.low, problem.space.ranges.high, strict=True)
        clipped = [
            _SUBGRADIENT.minimum(_SUBGRADIENT.maximum(rate * factor, float(low)), float(high))
            for rate, (low, high) in zip(raw, ends, strict=True)
        ]
        return _Laid(clipped, point, counted, need), excess

    def _limits(self, point: PlanPoint, need: Any) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        """Amounts, exponents and what is left of money and of watts, for one accelerator."""
        limits, laws, found = self.problem.limits, self.priced.laws, []
        if limits.budget_usd is not None and not limits.rent:
            hbm_usd = self.priced.hbm_usd * need**self.priced.hbm_exponent
            found.append((laws.usd, laws.usd_exponent, limits.budget_usd / point.accelerators - hbm_usd))
        if limits.power_w is not None:
            found.append((laws.watt, laws.watt_exponent, limits.power_w / point.accelerators))
        return found

    def _evaluate(self, v: dict[str, Any]) -> tuple[Any, list[Any]]:
        problem, template = self.problem, self.problem.space.template
        laid, excess = self._hardware(v)
        own = dict(zip(RATES, laid.rates, strict=True))
        machine = with_hardware(template, dataclasses.replace(hardware_of(template), **own))
        times = timing(laid.counted, laid.point, machine, machine.stack, _SUBGRADIENT)
        speed = rates(machine.accelerator, laid.point, machine.stack)
        step_s = step_time(laid.counted, times, laid.point, machine.stack, speed, _SUBGRADIENT).step_s
        value = step_s * (1.0 if problem.objective is Objective.step else problem.job.steps)
        return value * self._price(laid), excess

    def _price(self, laid: "_Laid") -> Any:
        """Dollars a second, watts, or 1."""
        if self.problem.fill:
            return 1.0
        rates, point, need = laid.rates, laid.point, laid.need_bytes
        laws, priced = self.priced.laws, self.priced
        watt = sum(a * x**e for a, e, x in zip(laws.watt, laws.watt_exponent, rates, strict=True))
        if self.problem.objective.watt_power:
            return point.accelerators * watt
        usd = sum(a * x**e for a, e, x in zip(laws.usd, laws.usd_exponent, rates, strict=True))
        usd = usd + priced.hbm_usd * need**priced.hbm_exponent
        return point.accelerators * (priced.usd_per_capital_s * usd + priced.usd_per_joule * watt)


def _scale(rates: list[Any], law: np.ndarray, exponent: np.ndarray, spare: Any, problem: Problem) -> Any:
    """The factor of all rates that spends what is spare, with its exact derivative; rates stay in their ranges."""
    low, high = problem.space.ranges.low[:, None], problem.space.ranges.high[:, None]
    x = np.stack([np.broadcast_to(rate.value, np.shape(spare.value)) for rate in rates])
    a, e = law[:, None], exponent[:, None]
    bottom, top = np.full(x.shape[1], -12.0), np.full(x.shape[1], 12.0)
    for _ in range(40):
        middle = 0.5 * (bottom + top)
        fits = (a * np.clip(x * np.exp(middle), low, high) ** e).sum(0) <= spare.value
        bottom, top = np.where(fits, middle, bottom), np.where(fits, top, middle)
    s = np.exp(bottom)
    inside = (x * s > low) & (x * s < high)
    steep = (inside * a * e * (x * s) ** e).sum(0) / s
    spent = sum(
        float(a_k) * (rate * s) ** float(e_k) * inside_k + 0.0
        for a_k, e_k, rate, inside_k in zip(law, exponent, rates, inside, strict=True)
    )
    missing = spare - spent  # its value is what the rates at their ends cost: a constant here
    parts = {name: part / np.maximum(steep, 1e-300) * (steep > 0) for name, part in missing.parts.items()}
    return Dual(s, parts)


def _rows(table: Any, chosen: np.ndarray) -> Any:
    """Rows of one table of options as arrays in the fields."""
    rows = [table[name.item()] for name in chosen]
    names = [f.name for f in dataclasses.fields(rows[0])]
    return type(rows[0])(**{name: np.array([getattr(row, name) for row in rows]) for name in names})
