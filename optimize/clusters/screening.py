"""Step seconds of plans on hardware of their own each, with the gradient by the rates: some million a second.

One compiled program in float32 for each structure of operators, whatever the plans, the hardware and the sizes, kept in
the user's cache (costmodel/evaluators/machine_code.py). Its results bound and rank; what is reported is evaluated again
in float64 (`tangents_of` without compilation).
"""

import dataclasses
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from costmodel import Exact, as_floats, map_leaves
from costmodel.evaluators import anonymous, dual, in_jax, packed, stored
from costmodel.formulas import counts, hardware_of, memory, step, timed, with_hardware
from costmodel.inputs import RECOMPUTES, Cluster, Plan, PlanPoint, RecomputeRow, Workload, embed
from optimize.question import RATES, Problem, Tangents

BATCH = 32_768  # families that are looked at together
AT_ONCE = 4_096  # of which so many are evaluated at a time: what lies between the program's parts stays in the caches
FLOAT32_SLACK = (
    1e-4  # of a logarithm: rounding of values and of slopes over the whole box (tests/clusters/test_joint.py)
)
_COMPILING: list[threading.Thread] = []  # whoever needs the program waits for it instead of compiling it twice
_PROGRAMS: dict[Hashable, Callable[..., Any]] = {}
_FULL: RecomputeRow = RECOMPUTES["full"]

Loads = tuple[float, float, float, float] | None
"""What busy units draw (`Prices.loads`), where an objective pays for it: then seconds at the usual power count too."""


def _evaluate() -> Any:
    """The program: seconds of a step, their elasticities by the rates, bytes at the peak without and with recompute;
    and the seconds at the usual power with their elasticities, where there are loads."""
    import jax

    semantics = in_jax()

    def evaluate(
        workload: Workload, template: Cluster, point: PlanPoint, rates: tuple[Any, ...], loads: Any = None
    ) -> tuple[Any, ...]:
        def seconds(rates: tuple[Any, ...]) -> Any:
            return _seconds(workload, _with_rates(template, rates), point, loads, semantics)

        values, pull = jax.vjp(seconds, rates)
        found = []
        for i, value in enumerate(values):
            seeds = tuple(jax.numpy.full_like(each, float(i == j)) for j, each in enumerate(values))
            (slopes,) = pull(seeds)
            found.append((value, *(slope * rate / value for slope, rate in zip(slopes, rates, strict=True))))
        peaks = [
            memory(counts(workload, at, semantics), at, template.stack, semantics).needed_bytes
            for at in (point, dataclasses.replace(point, recompute=_FULL))
        ]
        return *found[0], *peaks, *(column for own in found[1:] for column in own)

    return evaluate


def _seconds(workload: Workload, machine: Cluster, point: PlanPoint, loads: Loads, sem: Any) -> tuple[Any, ...]:
    """Of a step, and with loads at the usual power."""
    counted = counts(workload, point, sem)
    if loads is None:
        return (step(counted, point, machine, sem).step_s,)
    return timed(counted, point, machine, loads, sem)


def _program(
    form: Hashable, workload: Workload, template: Cluster, points: PlanPoint, loads: Loads
) -> Callable[..., Any]:
    """The program of a structure of operators and tiers, found once in a process."""
    import jax

    key = form, jax.tree.structure(points), loads is None
    if key not in _PROGRAMS:
        batch = np.zeros(AT_ONCE, np.float32)
        trees: tuple[Any, ...] = workload, template, map_leaves(lambda _: batch, points), (batch,) * len(RATES)
        more = 0 if loads is None else 1 + len(RATES)
        if loads is not None:
            trees = *trees, tuple(map(np.float32, loads))
        _PROGRAMS[key] = stored(_evaluate, trees, (0.0,) * (3 + len(RATES) + more))
    return _PROGRAMS[key]


def _with_rates(template: Cluster, rates: Any) -> Cluster:
    return with_hardware(template, dataclasses.replace(hardware_of(template), **dict(zip(RATES, rates, strict=True))))


def screen(workload: Workload, machine: Cluster, points: PlanPoint, y: np.ndarray, loads: Loads = None) -> Tangents:
    """Tangents of one step of each plan of `points` (arrays of one length), at its own logarithms of the rates."""
    for thread in [] if threading.current_thread() in _COMPILING else _COMPILING:
        thread.join()
    workload, template = map_leaves(np.float32, anonymous(workload)), map_leaves(np.float32, anonymous(machine))
    (sizes, *form), (hardware, *of_template) = packed(workload), packed(template)
    program, leaves = _program((*form, *of_template), workload, template, points, loads), []
    drawn = () if loads is None else ([np.array(loads, np.float32)],)
    map_leaves(leaves.append, points)
    rows = np.array([np.broadcast_to(leaf, len(y)) for leaf in leaves], np.float32)
    rates, pieces = np.exp(y).T.astype(np.float32), []
    for start in range(0, len(y), AT_ONCE):
        parts = program(sizes, hardware, [_piece(rows, start)], [_piece(rates, start)], *drawn)
        pieces.append(np.stack([np.asarray(part, float) for part in parts])[:, : len(y) - start])
    columns = np.concatenate(pieces, axis=1)
    at = Tangents(np.log(columns[0]), columns[1:5].T, y, columns[5], np.minimum(columns[5], columns[6]))
    return at if loads is None else at._replace(log_drawn=np.log(columns[7]), drawn_slopes=columns[8:12].T)


def warm_up(problem: Problem) -> None:
    """Compile for every job on another core, while this one has other work. Whoever screens waits for it.

    An interpreter that ends while XLA compiles is aborted, so that it waits for the thread.
    """
    low, high = problem.rate_ends
    y = np.log(0.5 * (low + high))[None]

    def compile_all() -> None:
        for job in problem.jobs:
            plain = embed(Plan(), job.workload, 1.0, problem.machine.stack.habits)
            screen(job.workload, problem.machine, plain, y, problem.loads)

    _COMPILING[:] = [*(thread for thread in _COMPILING if thread.is_alive()), threading.Thread(target=compile_all)]
    _COMPILING[-1].start()


def _piece(rows: np.ndarray, start: int) -> np.ndarray:
    """Columns from `start` on, the last one repeated where they end."""
    part = rows[:, start : start + AT_ONCE]
    return np.ascontiguousarray(np.pad(part, ((0, 0), (0, AT_ONCE - part.shape[1])), "edge"))


def tangents_of(
    workload: Workload, machine: Cluster, points: PlanPoint, y: np.ndarray, loads: Loads = None
) -> Tangents:
    """Tangents of one step of few plans, in float64 by dual numbers."""
    at: dict[str, Any] = dict(zip(RATES, np.exp(y).T, strict=True))
    workload = as_floats(workload)

    def seconds(rates: dict[str, Any]) -> tuple[Any, ...]:
        own = _with_rates(machine, [rates[name] for name in RATES])
        return _seconds(workload, own, points, loads, dual.SUBGRADIENT)

    found = [
        (log_s, np.stack([slopes[name] for name in RATES], -1)) for log_s, slopes in dual.log_gradients(seconds, at)
    ]
    exact, stack = Exact(np), machine.stack
    peak = [
        np.broadcast_to(memory(counts(workload, at, exact), at, stack, exact).needed_bytes, len(y))
        for at in (points, dataclasses.replace(points, recompute=_FULL))
    ]
    return Tangents(*found[0], y, peak[0], np.minimum(*peak), *(column for pair in found[1:] for column in pair))


def values_of(workload: Workload, machine: Cluster, points: PlanPoint, plans: int, loads: Loads = None) -> Tangents:
    """One step of each plan on one cluster, in float64 and without slopes: nothing is compiled or differentiated."""
    workload, machine, exact = as_floats(workload), as_floats(machine), Exact(np)

    def column(value: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(value, float), plans)

    logs = [np.log(column(seconds)) for seconds in _seconds(workload, machine, points, loads, exact)]
    peak, least = (
        column(memory(counts(workload, at, exact), at, machine.stack, exact).needed_bytes)
        for at in (points, dataclasses.replace(points, recompute=_FULL))
    )
    nothing = np.zeros((plans, 0))
    at = Tangents(logs[0], nothing, nothing, peak, np.minimum(peak, least))
    return at if loads is None else at._replace(log_drawn=logs[1])
