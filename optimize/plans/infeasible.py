"""Where no plan is the answer: which rule or how much memory is in the way, and the smallest change that helps."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from costmodel.formulas import limit_bytes
from costmodel.inputs import Cluster, Workload
from costmodel.specs import SpecError
from optimize import units
from optimize.lattice import Lattice, choose_plan, enlarged, lattice
from optimize.plans.best import Best
from optimize.plans.evaluation import MARGIN, bytes_of, exactly
from optimize.plans.row_bounds import least_s, row_bytes
from optimize.status import CommandError, Status

_LEAST_MEMORY = {"recompute": "full", "recompute_share": 1.0, "zero_stage": 3, "microbatch": 1}
_PIECES = (2, 4, 8)
_TIMES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 64)


def nothing_legal(workload: Workload, cluster: Cluster, fixed: Mapping[str, Any]) -> CommandError:
    """The first rule that the closest plan with the fixed fields breaks."""
    single = {name: value for name, value in fixed.items() if not isinstance(value, set | frozenset)}
    try:
        choose_plan(single, workload, cluster)
    except CommandError as error:
        if error.status is Status.bad_input:
            return error
    except SpecError as error:
        return CommandError(Status.bad_input, str(error))
    kept = ", ".join(f"`{name}` {_show(value)}" for name, value in fixed.items()) or "all rules"
    message = (
        f"plan: none of {workload.name} on {cluster.accelerators:,} {cluster.name} keeps {kept}; expected fewer fixed "
        "fields, or a batch and a number of accelerators with more common divisors"
    )
    return CommandError(Status.bad_input, message)


def _show(value: Any) -> str:
    return " or ".join(map(str, sorted(value, key=str))) if isinstance(value, set | frozenset) else str(value)


def nothing_fits(whole: Lattice, best: Best) -> CommandError:
    """The error of memory that no plan fits in."""
    if best.cells or best.top or not np.isfinite(least_s(whole, np.array([0]))).all():
        told = "the seconds of a step are not finite; expected hardware and sizes of a physical magnitude"
        return CommandError(Status.bad_input, told)
    return CommandError(Status.infeasible, functools.partial(_too_much, whole))


def _too_much(whole: Lattice) -> str:
    """By how much memory is short for the least of all plans, and what makes room."""
    index = leanest(whole)
    workload, cluster, plan = whole.workload, whole.cluster, whole.plan(index)
    exact = float(_needed(whole, np.array([index]))[0])
    allowed_bytes = float(limit_bytes(cluster))
    needs, allowed = (units.scaled(size_bytes, units.BYTES) for size_bytes in (exact * allowed_bytes, allowed_bytes))
    message = (
        f"memory: {workload.name} does not fit on {cluster.accelerators:,} {cluster.name}; of {len(whole):,} legal "
        f"plans{_offloading(whole)} the one that needs least needs {needs} of {allowed}{_margin(cluster)}, "
        f"{_by(exact, 'too much', 'as much')} ({units.shorten_runs(str(plan))})"
    )
    return f"{message}; {_change(whole, exact)}"


def _offloading(whole: Lattice) -> str:
    """What plans of a lattice leave out that might need less: the second memory, which is asked of beside it."""
    there = float(whole.cluster.accelerator.second_memory_bytes) > 0
    return (
        " that offload nothing"
        if there and not any(whole.fixed[name] for name in whole.fixed if name.startswith("offload_"))
        else ""
    )


def leanest(whole: Lattice) -> int:
    """The first plan that needs least memory. Rows are looked at in the order of what they need at least."""
    rows, chip = np.arange(len(whole.ends)), whole.cluster.accelerator
    bounds = row_bytes(whole, rows) / float(chip.hbm_bytes)
    order, starts = np.argsort(bounds, kind="stable"), whole.ends - np.diff(whole.ends, prepend=0)
    best, at, count = (np.inf, -1), 0, 1
    while at < len(order) and bounds[order[at]] <= best[0] * (1 + MARGIN):
        some = order[at : at + count]
        parts = [np.arange(int(starts[row]), int(whole.ends[row])) for row in some]
        indices = np.sort(np.concatenate(parts))
        cost = bytes_of(whole, indices, whole.points, np.float32)
        share = whole.needed(cost.peak_bytes, cost.second_bytes)
        least = int(np.argmin(share))
        best = min(best, (float(share[least]), int(indices[least])))
        at, count = at + count, 2 * count
    return best[1]


def _margin(cluster: Cluster) -> str:
    """How the limit follows from the memory that there is, where it is not all of it."""
    if cluster.stack.memory_margin == 1.0:
        return ""
    return (
        f" ({units.scaled(float(cluster.accelerator.hbm_bytes), units.BYTES)} less the margin that `margin` asks for)"
    )


def nothing_fits_in_order(whole: Lattice, count: int) -> CommandError:
    """Plans fit with every kind of layer spread evenly, none with the layers in the order of the model."""
    message = (
        f"memory: the {count} best plans of {whole.workload.name} fit on {whole.cluster.accelerators:,} "
        f"{whole.cluster.name} with every kind of layer spread evenly over the stages, but not in the order of the "
        "model; expected more accelerators, or other `stage_layers`"
    )
    return CommandError(Status.infeasible, message)


def _by(times: float, more: str, much: str) -> str:
    """Such as `7.4 % too much`, or `33.6 times as much`."""
    return f"{units.percent(times - 1)} {more}" if times < 10 else f"{units.significant(times)} times {much}"


def _change(whole: Lattice, exact: float) -> str:
    """More memory, by exactly so much; layers in pieces; or the first multiple of the accelerators where one fits."""
    more, given = f"it fits with {_by(exact, 'more', 'the')} memory on each accelerator", dict(whole.fixed)
    for pieces in _PIECES if "pieces" not in given else ():
        if _may_fit(whole.workload, whole.cluster, {**given, "pieces": pieces}):
            more += f", with --fix pieces={pieces},recompute=full (co-shard)"
            break
    for times in _TIMES:
        if _may_fit(whole.workload, enlarged(whole.cluster, times), given):
            return f"{more}, or with --accelerators {whole.cluster.accelerators * times}"
    return f"{more}; {_TIMES[-1]} times as many accelerators are not enough, a smaller sequence would need less"


def _may_fit(workload: Workload, cluster: Cluster, given: Mapping[str, Any]) -> bool:
    """Whether one of the plans that save memory fits."""
    saving = {name: value for name, value in _LEAST_MEMORY.items() if name not in given}
    whole = lattice(workload, cluster, {**given, **saving})
    return len(whole) > 0 and bool(_needed(whole, np.array([leanest(whole)]))[0] <= 1)


def _needed(whole: Lattice, indices: np.ndarray) -> np.ndarray:
    exact = exactly(whole, indices)
    return whole.needed(exact.peak_bytes, exact.second_bytes)
