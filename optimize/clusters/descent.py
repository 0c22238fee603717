r"""Descent over plan and hardware together: many starts in one batch, by Adam in logarithms, with dual numbers.

Relaxed: tensor, context, pipeline, data, microbatch, virtual stages (log2), the share of layers that recompute, and the
four rates (natural logarithms). Enumerated, one for each group of starts: schedule and ZeRO stage. HBM bytes are what
the plan needs, and the rates are moved onto the limits inside the loss: the factor $s$ of all rates solves
$\sum_k a_k (s x_k)^{\alpha_k} = $ what is left, and one Newton step in dual numbers from the solution carries its
exact derivative. No compilation: a step of some hundred starts takes milliseconds.

What comes out is a relaxed point: 20 % below any plan that can be launched, and never reported as an answer. From it
to plans: rounding each degree by itself fails, since the degrees must multiply to a count, divide heads, layers and
batch, and nest in the domains. So the lattice is enumerated and all of its points are compared, by distance in log2 of
the degrees, several for each mode.
"""

import numpy as np

from costmodel.inputs import SCHEDULES as NAMED
from optimize.clusters.progress import Relaxed
from optimize.clusters.relaxed import OF_JOB, RelaxedModel, Starts, natural, ranges
from optimize.lattice import Families
from optimize.question import RATES, Problem

STEPS = 64
LEARNING_RATE = 0.35
_BETA1, _BETA2, _EPSILON = 0.9, 0.99, 1e-12
WEIGHTS = {"tensor": 2.0, "context": 1.0, "pipeline": 1.0, "data": 1.0, "microbatch": 0.5, "virtual_stages": 0.3}
"""How much a factor of two off counts; one in `expert` counts 1."""
NEAREST = 8  # plans for each relaxed point
MODES = 3  # relaxed points of each schedule and ZeRO stage
SCHEDULES, ZEROS = ("interleaved", "one_f_one_b"), (1, 3)  # of which a group of starts each is made


def descend(problem: Problem, seed: int = 0, each: int = 16, steps: int = STEPS) -> Relaxed:
    """The ends of a descent from `each` random starts for each pair of schedule and ZeRO stage."""
    generator = np.random.default_rng(seed)
    pairs = [(schedule, zero) for schedule in SCHEDULES for zero in ZEROS]
    schedule, zero = (np.repeat(np.array(column), each) for column in zip(*pairs, strict=True))
    low, high = ranges(problem)
    z = low + (high - low) * generator.uniform(0.1, 0.9, (len(low), len(zero)))
    return _adam(problem, (schedule, zero), z, steps, LEARNING_RATE)


def _adam(problem: Problem, starts: Starts, z: np.ndarray, steps: int, learning_rate: float) -> Relaxed:
    low, high = ranges(problem)
    model, n = RelaxedModel(problem, starts), len(starts[0])
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
    return _result(model, best_z, np.array(path), n * (steps + 1))


def _result(model: RelaxedModel, z: np.ndarray, path: np.ndarray, evaluations: int) -> Relaxed:
    value, _ = model.loss(z)
    order, (rates, missed) = np.argsort(value, kind="stable"), model.ending(z)
    jobs, k = len(model.workloads), len(OF_JOB)
    x = natural(z, jobs)[:, order]
    return Relaxed(
        jobs=tuple(dict(zip(OF_JOB, x[i * k :], strict=False)) for i in range(jobs)),
        rates=dict(zip(RATES, rates[:, order], strict=True)),
        schedule=model.starts[0][order],
        zero=model.starts[1][order],
        log_value=value[order],
        feasible=~(missed[order] > 1e-3),
        path=path,
        evaluations=evaluations,
    )


def modes(relaxed: Relaxed, each: int = MODES) -> np.ndarray:
    """The best relaxed points of each schedule and ZeRO stage that meet the limits, best first."""
    seen: dict[tuple[str, int], int] = {}
    chosen = []
    for i, feasible in enumerate(relaxed.feasible):
        mode = (relaxed.schedule[i].item(), int(relaxed.zero[i]))
        if not feasible or seen.get(mode, 0) >= each:
            continue
        seen[mode] = seen.get(mode, 0) + 1
        chosen.append(i)
    return np.array(chosen, int)


def nearest(
    families: Families, relaxed: Relaxed, chosen: np.ndarray, each: int = NEAREST, job: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Families of one lattice near relaxed points, and for each the relaxed point that it is near to."""
    first = families.first(0, len(families))
    if not len(first) or not len(chosen):
        return np.zeros(0, int), np.zeros(0, int)
    columns = families.lattice.columns(first)
    plans, near = [], []
    for i in chosen:
        distance = _distance(columns, relaxed, int(i), job)
        closest = np.argpartition(distance, min(each, len(distance) - 1))[:each]
        plans.append(first[closest])
        near.append(np.full(len(closest), i))
    kept, place = np.unique(np.concatenate(plans), return_index=True)
    return kept, np.concatenate(near)[place]


def _distance(columns: dict[str, np.ndarray], relaxed: Relaxed, i: int, job: int) -> np.ndarray:
    """Squared, over all plans; another schedule or ZeRO stage counts as a factor of two."""
    total = np.zeros(len(columns["tensor"]))
    for name, weight in (*WEIGHTS.items(), ("expert", 1.0)):
        total += weight * (np.log2(columns[name]) - np.log2(relaxed.jobs[job][name][i])) ** 2
    total += columns["schedule"] != list(NAMED).index(relaxed.schedule[i].item())
    return total + (columns["zero_stage"] != relaxed.zero[i]) + 1.0 * (columns["data_shard"] > 0)
