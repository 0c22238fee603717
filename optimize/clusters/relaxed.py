"""The relaxed problem of a descent: plans of one job or more, and one hardware, as dual numbers."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from costmodel import Scalar, as_floats, total
from costmodel.evaluators import SUBGRADIENT, Dual
from costmodel.formulas import OpCounts, counts, memory, timed
from costmodel.inputs import RECOMPUTES, ZERO_STAGES, Plan, PlanPoint, RecomputeRow, Split, embed, layers
from costmodel.specs import demands
from optimize.lattice import OVERLAPS
from optimize.question import RATES, Job, Money, Objective, PowerSum, Problem, at_rates

DEGREES = ("tensor", "context", "pipeline", "data", "microbatch", "virtual_stages", "expert")
OF_JOB = (*DEGREES, "recompute_share")
PENALTY = 20.0  # of the logarithm by which memory is above what can be bought, or the limits are missed


Starts = tuple[np.ndarray, np.ndarray]
"""The enumerated options of each start: names of schedules, and ZeRO stages."""


def natural(z: np.ndarray, jobs: int) -> np.ndarray:
    """Variables from `z` (variables x starts): degrees from log2, rates from natural logarithms, shares as they are."""
    x, k = np.exp(z), len(OF_JOB)
    for i in range(jobs):
        degrees = slice(i * k, i * k + len(DEGREES))
        x[degrees], x[i * k + k - 1] = 2.0 ** z[degrees], z[i * k + k - 1]
    return x


def logarithms(x: np.ndarray, jobs: int) -> np.ndarray:
    """Variables as they are searched: the inverse of `natural`."""
    z, k = np.log(np.maximum(x, 1e-300)), len(OF_JOB)
    for i in range(jobs):
        degrees = slice(i * k, i * k + len(DEGREES))
        z[degrees], z[i * k + k - 1] = np.log2(x[degrees]), x[i * k + k - 1]
    return z


def ranges(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """The least and the most of every variable, as columns."""
    low, high = [], []
    for job in problem.jobs:
        workload, depth = job.workload, layers(job.workload)
        divided = demands(workload, problem.machine).expert_divides
        experts = max([1, *(size for name, size, _ in divided if name == Split.EXPERT)])
        tops = (
            min(float(problem.domain), 64.0),
            min(16.0, workload.sequence),
            depth,
            workload.batch,
            8.0,
            max(1.0, depth / 4),
        )
        low += [0.0] * len(OF_JOB)
        high += [*np.log2([*tops, experts]), 1.0]
    ends = [np.concatenate([degrees, rates]) for degrees, rates in zip((low, high), problem.ends, strict=True)]
    return ends[0][:, None], np.maximum(ends[1], ends[0] + 1e-6)[:, None]


class _Laid(NamedTuple):
    """A batch of relaxed points with their hardware."""

    rates: list[Any]
    points: list[PlanPoint]
    counted: list[OpCounts]
    accelerators: Scalar
    need_bytes: Any


class RelaxedModel:
    """The loss of a batch of starts, with its gradient."""

    def __init__(self, problem: Problem, starts: Starts) -> None:
        self.problem, self.starts, self.money = problem, starts, problem.money
        self.workloads = [as_floats(job.workload) for job in problem.jobs]
        plain = Plan(**_switches(problem))
        habits = problem.machine.stack.habits
        self.plain = [embed(plain, job.workload, float(problem.domain), habits) for job in problem.jobs]
        self.schedule, self.zero = (
            _rows(table, chosen) for table, chosen in ((habits.schedule_rows(), starts[0]), (ZERO_STAGES, starts[1]))
        )

    def loss(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logarithms of the minimised quantity with penalties, and their gradients: variables x starts."""
        x, jobs = natural(z, len(self.workloads)), len(self.workloads)
        chain, k = x.copy(), len(OF_JOB)
        for i in range(jobs):
            chain[i * k : i * k + k - 1] *= np.log(2.0)
            chain[i * k + k - 1] = 1.0
        seeds = np.eye(len(z))[:, :, None] * chain[:, None, :]
        result, excess = self._evaluate([Dual(row, {"all": seed}) for row, seed in zip(x, seeds, strict=True)])
        value, slope = np.log(result.value), result.parts["all"] / result.value
        for part in excess:  # ratios that should be at most 1
            over = np.maximum(np.log(part.value), 0.0)
            slope = slope + PENALTY * (over > 0) * part.parts["all"] / part.value
            value = value + PENALTY * over
        return value, np.nan_to_num(slope)

    def ending(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rates on the limits, and by how much (a logarithm) each start misses memory or a limit."""
        nothing = {"all": np.zeros((1, z.shape[1]))}
        laid, excess = self._hardware([Dual(row, nothing) for row in natural(z, len(self.workloads))])
        own = np.stack([np.broadcast_to(rate.value, z.shape[1]) for rate in laid.rates])
        return own, np.max([np.log(part.value) for part in excess], axis=0)

    def _point(self, i: int, v: dict[str, Any]) -> PlanPoint:
        """Virtual stages are 1 where the schedule does not interleave; each pipeline has a microbatch."""
        interleaves, job = self.schedule.interleaves, self.problem.jobs[i]
        sem, most = SUBGRADIENT, self.problem.limits.accelerators
        inside = v["tensor"] * v["context"] * v["pipeline"]
        data = v["data"] if most is None else sem.minimum(v["data"], float(most) / inside)
        virtual = sem.maximum(sem.minimum(v["virtual_stages"], float(layers(job.workload)) / v["pipeline"]), 1.0)
        return dataclasses.replace(
            self.plain[i],
            accelerators=inside * data,
            tensor=v["tensor"],
            context=v["context"],
            pipeline=v["pipeline"],
            microbatch=sem.minimum(v["microbatch"], float(job.workload.batch) / data),
            virtual_stages=interleaves * virtual + (1.0 - interleaves),
            expert=sem.minimum(v["expert"], v["tensor"] * v["context"] * data),
            sequence_parallel=1.0,
            schedule=self.schedule,
            zero=self.zero,
            recompute=_recompute(v["recompute_share"]),
        )

    def _hardware(self, variables: list[Any]) -> tuple[_Laid, list[Any]]:
        """Points with rates on the limits, and the ratios that should be at most 1. All jobs share the hardware."""
        problem, k, sem = self.problem, len(OF_JOB), SUBGRADIENT
        named: list[dict[str, Any]] = [
            dict(zip(OF_JOB, variables[i * k :], strict=False)) for i in range(len(self.workloads))
        ]
        points = [self._point(i, v) for i, v in enumerate(named)]
        counted = [counts(w, point, sem) for w, point in zip(self.workloads, points, strict=True)]
        stack = problem.machine.stack
        needs = [memory(c, point, stack, sem).needed_bytes for c, point in zip(counted, points, strict=True)]
        need, count = sem.maximum(*needs), sem.maximum(*(point.accelerators for point in points))
        excess, scales, raw = [need / problem.most_hbm_bytes], [], variables[-len(RATES) :]
        for law, spare in self._limits(count, need):
            least = float(law(problem.ends[0]))
            excess.append(1.05 * least / sem.maximum(spare, 1e-3 * least))
            scales.append(_scale(raw, law, sem.maximum(spare, 1.05 * least), problem))
        if not problem.spends_all or not scales:
            scales.append(Dual(np.ones(len(self.starts[0])), {}))
        factor = sem.minimum(*scales)
        ends = zip(*problem.rate_ends, strict=True)
        clipped = [
            sem.minimum(sem.maximum(rate * factor, float(low)), float(high))
            for rate, (low, high) in zip(raw, ends, strict=True)
        ]
        return _Laid(clipped, points, counted, count, need), excess

    def _limits(self, count: Any, need: Any) -> list[tuple[PowerSum, Any]]:
        """The laws of money and of watts, and what is left of each for one accelerator."""
        limits, pairs = self.problem.limits, []
        if limits.budget_usd is not None and not limits.rent:
            pairs.append((self.money.usd, limits.budget_usd / count - self.money.hbm(need)))
        if limits.power_w is not None:
            pairs.append((self.money.watt, limits.power_w / count))
        return pairs

    def _evaluate(self, variables: list[Any]) -> tuple[Any, list[Any]]:
        laid, excess = self._hardware(variables)
        machine = at_rates(self.problem.machine, laid.rates)
        times = [self._times(i, laid, machine) for i in range(len(self.workloads))]
        seconds, drawn = total(first for first, _ in times), total(second for _, second in times)
        carbon, worth = self.problem.carbon, (1.0, 0.0)
        if carbon is not None:
            ratio = _worth(_seconds(carbon, laid), seconds, drawn) * laid.accelerators
            excess.append(ratio / float(np.exp(self.problem.log_carbon_g)))
        if not self.problem.fill:
            worth = _seconds(self.money, laid)
            seconds, drawn = seconds * laid.accelerators, drawn * laid.accelerators
        return _worth(worth, seconds, drawn), excess

    def _times(self, i: int, laid: _Laid, machine: Any) -> tuple[Any, Any]:
        """Weighted seconds of one job, and those at the usual power."""
        counted, point, loads = laid.counted[i], laid.points[i], self.problem.loads
        steps = _steps(self.problem, self.problem.jobs[i], laid.accelerators)
        step_s, *drawn_s = timed(counted, point, machine, loads, SUBGRADIENT)
        return steps * step_s, steps * drawn_s[0] if drawn_s else 0.0


def _worth(price: tuple[Any, Any], seconds: Any, drawn: Any) -> Any:
    return price[0] * seconds + price[1] * drawn


def _seconds(money: Money, laid: _Laid) -> tuple[Any, Any]:
    """`Money.seconds` as dual numbers."""
    price, aside = (
        _sum(money.watt._replace(amounts=weights * money.watt.amounts), laid.rates)
        for weights in (money.per_watt, money.aside)
    )
    if money.per_usd:
        price = price + money.per_usd * (_sum(money.usd, laid.rates) + money.hbm(laid.need_bytes))
    return (aside, price) if money.of_drawn else (price, aside)


def _sum(law: PowerSum, rates: list[Any]) -> Any:
    """A sum of power laws as dual numbers."""
    return total(float(a) * x ** float(e) for a, e, x in zip(law.amounts, law.exponents, rates, strict=True))


def _steps(problem: Problem, job: Job, accelerators: Any) -> Any:
    return 1.0 if problem.objective is Objective.step else job.weight * problem.steps_on(job, accelerators)


def _switches(problem: Problem) -> dict[str, Any]:
    """Options that are the same in all starts: everything overlaps, unless it is fixed."""
    names = [f.name for f in dataclasses.fields(Plan) if isinstance(f.default, bool | str)]
    fixed = {name: problem.fixed[name] for name in names if isinstance(problem.fixed.get(name), bool | str)}
    return dict.fromkeys(OVERLAPS, True) | fixed


def _recompute(share: Any) -> RecomputeRow:
    """Full recompute of a share of the layers."""
    full, none = RECOMPUTES["full"], RECOMPUTES["none"]
    names = [f.name for f in dataclasses.fields(RecomputeRow)]
    return RecomputeRow(**{name: share * getattr(full, name) + (1.0 - share) * getattr(none, name) for name in names})


def _scale(rates: list[Any], law: PowerSum, spare: Any, problem: Problem) -> Any:
    """The factor of all rates that spends what is spare, with its exact derivative; rates stay in their ranges."""
    low, high = (end[:, None] for end in problem.rate_ends)
    x = np.stack([np.broadcast_to(rate.value, np.shape(spare.value)) for rate in rates])
    a, e = law.amounts[:, None], law.exponents[:, None]
    bottom, top = np.full(x.shape[1], -12.0), np.full(x.shape[1], 12.0)
    for _ in range(40):
        middle = 0.5 * (bottom + top)
        fits = (a * np.clip(x * np.exp(middle), low, high) ** e).sum(0) <= spare.value
        bottom, top = np.where(fits, middle, bottom), np.where(fits, top, middle)
    s = np.exp(bottom)
    inside = (x * s > low) & (x * s < high)
    steep = (inside * a * e * (x * s) ** e).sum(0) / s
    spent = total(
        float(a_k) * (rate * s) ** float(e_k) * inside_k
        for a_k, e_k, rate, inside_k in zip(*law, rates, inside, strict=True)
    )
    missing = spare - spent  # its value is what the rates at their ends cost: a constant here
    parts = {name: part / np.maximum(steep, 1e-300) * (steep > 0) for name, part in missing.parts.items()}
    return Dual(s, parts)


def _rows(table: Any, chosen: np.ndarray) -> Any:
    """Rows of one table of options as arrays in the fields."""
    rows = [table[name.item()] for name in chosen]
    names = [f.name for f in dataclasses.fields(rows[0])]
    return type(rows[0])(**{name: np.array([getattr(row, name) for row in rows]) for name in names})
