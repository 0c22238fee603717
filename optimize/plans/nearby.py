"""Beside an answer on all accelerators: whether fewer of them, or a batch nearby, would be better, with a plan that is.

Cheap: rows of degrees of every count at once under a few plain options, so that what is told is a plan, not the best
one. `over_counts` searches them all.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from costmodel import Exact, as_floats
from costmodel.evaluators import evaluate
from costmodel.formulas import cost
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import violations
from optimize.lattice import Lattice, divisors, lattice_of_rows, rows_of_counts, usual_formats
from optimize.launch import FRAMEWORKS
from optimize.plans.over_counts import Row
from optimize.plans.restricted import narrowed
from optimize.plans.runner_ups import fits_by_stage
from optimize.question import sized

BETTER = 0.02  # of the time: less is not worth a word
NEAR = 0.125  # of the batch
_BATCHES = 4  # that are tried
_TRIED = 16  # plans of each, until one keeps all rules, fits and can be launched
_PLAIN: dict[str, Any] = {
    "schedule": "one_f_one_b",
    "virtual_stages": 1,
    "zero_stage": frozenset((1, 3)),
    "recompute": frozenset(("none", "full")),
    "recompute_share": 1.0,
    "context_kind": "ring",
    "expert_tensor": 1,
    "overlap_pipeline": False,  # what launchers can do under 1F1B
    "overlap_expert": False,
}


def nearby(
    workload: Workload,
    cluster: Cluster,
    fixed: Mapping[str, Any],
    plan: Plan | None = None,
    priced: bool = False,
    frameworks: Collection[str] = (),
) -> tuple[Row | None, Row | None]:
    """A plan on fewer accelerators, and one on all of them (or of their whole domains) with another batch nearby.

    Without `plan`, of a question that no plan answers, they are the fastest; else those that are better than it by
    `BETTER`: in time, `priced` in time by accelerators, and in tokens per second. One of the `frameworks`, if any are
    named, can launch them.
    """
    count, batch = int(cluster.accelerators), int(workload.batch)
    usable = int(cluster.tiers[0].usable_size)
    whole = count if count < usable or plan is not None else count // usable * usable
    best = functools.partial(_best, tables=_tables(workload, cluster, fixed, plan, frameworks), frameworks=frameworks)
    less = best(workload, cluster, most=count - 1, exactly=False, priced=priced)
    other = _near_batch(workload, sized(cluster, whole), best)
    if plan is None:
        return less, other
    own_s = float(evaluate(workload, cluster, plan).step_s)
    share = 1.0 if less is None or not priced else less["accelerators"] / count
    less = less if less is not None and share * less["step_s"] < (1 - BETTER) * own_s else None
    faster = other is not None and other["step_s"] / other["batch"] < (1 - BETTER) * own_s / batch
    return less, other if faster else None


def _near_batch(workload: Workload, cluster: Cluster, best: Callable[..., Row | None]) -> Row | None:
    """The nearest batch of those whose plain plans have most tokens per second, within `BETTER`."""
    found, count = [], int(cluster.accelerators)
    for batch in near_batches(int(workload.batch), count):
        row = best(dataclasses.replace(workload, batch=batch), cluster, most=count, exactly=True)
        found += [] if row is None else [row]
    each_s = [row["step_s"] / row["batch"] for row in found]
    near = [row for row, own_s in zip(found, each_s, strict=True) if own_s <= (1 + BETTER) * min(each_s)]
    return min(near, key=lambda row: abs(row["batch"] - int(workload.batch)), default=None)


def near_batches(batch: int, accelerators: int) -> list[int]:
    """The nearest batches that share most divisors with the number of accelerators: multiples of its largest parts."""
    near: dict[int, None] = {}
    for part in reversed(divisors(accelerators)):
        for multiple in (part * (batch // part), part * -(-batch // part)):
            if multiple != batch and 0 < abs(multiple - batch) <= NEAR * batch:
                near.setdefault(multiple)
    return list(near)[:_BATCHES]


def _tables(
    workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], plan: Plan | None, frameworks: Collection[str]
) -> list[dict[str, Any]]:
    """What each lattice fixes: plain options, for one framework as its alternatives have them."""
    usual = usual_formats(cluster, fixed)
    given = usual | {"domain": int(cluster.tiers[0].usable_size)} | _narrow(plan) | dict(fixed)
    given = {**{name: value for name, value in _PLAIN.items() if name not in fixed}, **given}
    if not isinstance(given["domain"], int):
        return []
    if len(frameworks) != 1:
        return [given]
    (only,) = frameworks
    return narrowed(FRAMEWORKS[only], given, usual, workload)


def _best(
    workload: Workload,
    cluster: Cluster,
    *,
    tables: Iterable[dict[str, Any]],
    frameworks: Collection[str],
    most: int,
    exactly: bool,
    priced: bool = False,
) -> Row | None:
    """The best on up to `most` accelerators and at least half of them, or `exactly` on so many."""
    found = list[Row]()
    for given in tables if most >= 1 else ():
        rows = rows_of_counts(workload, cluster, given, most)
        kept = rows["accelerators"] >= (most if exactly else most / 2)
        rows = {name: column[kept] for name, column in rows.items()}
        if not len(rows["tensor"]):
            continue
        sizes = [m for m in (1, 2, 4) if int(workload.batch) % m == 0]
        rows = {name: np.tile(column, len(sizes)) for name, column in rows.items()}
        rows["microbatch"] = np.repeat(sizes, len(rows["tensor"]) // len(sizes))
        whole = (int(workload.batch) // rows["data"]) % rows["microbatch"] == 0
        rows = {name: column[whole] for name, column in rows.items()}
        plans = lattice_of_rows(workload, cluster, given, rows)
        row = _first(workload, cluster, plans, rows["accelerators"], priced, frameworks) if len(plans) else None
        found += [] if row is None else [row]
    return min(found, key=lambda row: row["step_s"] * (row["accelerators"] if priced else 1), default=None)


def _narrow(plan: Plan | None) -> dict[str, Any]:
    """What is taken from the answer, so that there are few plans."""
    if plan is None:
        return {"context": 1}
    own = {"zero_stage": 3 if plan.zero_stage == 3 else 1, "recompute": "none" if plan.recompute == "none" else "full"}
    return own | {name: frozenset((1, getattr(plan, name))) for name in ("context", "expert")}


def _first(
    workload: Workload,
    cluster: Cluster,
    plans: Lattice,
    accelerators: np.ndarray,
    priced: bool,
    frameworks: Collection[str],
) -> Row | None:
    """The best of the plans that fit and can be launched; `accelerators` by row."""
    indices = np.arange(len(plans))
    row, _ = plans.select(indices)
    points = dataclasses.replace(plans.points(indices, np.float64), accelerators=accelerators[row].astype(float))
    costs = cost(as_floats(plans.workload), as_floats(dataclasses.replace(cluster, prices=None)), points, Exact(np))
    fits = np.broadcast_to(costs.peak_bytes, len(plans)) <= float(cluster.accelerator.hbm_bytes)
    step_s = np.where(fits, costs.step_s, np.inf)
    for index in np.argsort(step_s * accelerators[row] if priced else step_s, kind="stable")[:_TRIED]:
        count, plan = int(accelerators[row[index]]), plans.plan(int(index))
        job = workload, sized(cluster, count)
        if not np.isfinite(step_s[index]) or violations(plan, *job) or not fits_by_stage(*job, plan):
            continue
        if not frameworks or any(FRAMEWORKS[name].can(plan, *job) for name in frameworks):
            return {
                "accelerators": count,
                "batch": int(workload.batch),
                "plan": plan,
                "step_s": float(step_s[index]),
            }
    return None
