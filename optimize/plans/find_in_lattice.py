"""The best plan of a workload on a cluster: the whole lattice evaluated, the best few validated and explained.

Also of the plans that one launcher can run: each of its alternatives is a lattice of its own (`restricted`).
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.measured import FITS, with_margin
from costmodel.specs import SpecError, nearest
from optimize.diagnosis import Validation, elasticities, validate
from optimize.lattice import CHUNK, SEARCHED, Lattice, lattice, usual_formats
from optimize.launch import FRAMEWORKS, Framework, canonical, framework_at
from optimize.plans import exhaustive
from optimize.plans.best import Best, Entry, cell_degrees, cells_of
from optimize.plans.infeasible import nothing_fits, nothing_fits_in_order, nothing_legal
from optimize.plans.plan_values import PlanValue, UserObjective, value_on
from optimize.plans.restricted import Search, narrowed, search_tellable
from optimize.plans.result import PlanResult, Ranked, compared, incomplete, merged
from optimize.plans.row_bounds import in_order_of_bounds
from optimize.plans.runner_ups import fits_by_stage, runner_ups
from optimize.status import CommandError, Status, unless_refused
from optimize.time_limit import or_else
from optimize.versions import versions

ENUMERATED = 2 * CHUNK
"""Plans up to which all are evaluated; beyond, as many as the proof needs (`row_bounds`)."""
AMONG = (1, 8, 64)
"""Plans that are checked for each one told, more and more until there are as many that fit in every stage."""


def find_in_lattice(
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    objective: str | UserObjective = "step_s",
    tokens: float | None = None,
    top: int = 10,
    search: Search = exhaustive.sooner,
    unrestricted: bool = False,
    margin: float = FITS,
    among: Lattice | None = None,
    earlier: Sequence[PlanResult] = (),
) -> PlanResult:
    """The best of all plans of the lattice that fit in memory, as `find_plan` asks.

    No part of a lattice are single modules computed again and what lies in the second memory, unless they are fixed.
    `among` is the lattice of these plans in the order of bounds, where somebody has made it; what would not be told
    beside `earlier` answers (`merged`) is left out.
    """
    start, cluster = time.perf_counter(), with_margin(cluster, margin)
    asked = usual_formats(cluster, fixed or {}) | dict(fixed or {})
    whole = among if among is not None and len(among) > ENUMERATED else lattice(workload, cluster, asked)
    value = value_on(whole, objective, tokens)
    if not len(whole):
        raise nothing_legal(workload, cluster, dict(fixed or {}))
    whole = _ordered(whole, value)
    heard: list[bool] = []  # whether the user interrupted what is told beside the best plans
    known = merged(list(earlier), top) if earlier else None
    below = math.inf if known is None else _last(known, top)
    best, kept, checked = _search(whole, value, top, search, heard, below)
    bound = min(best.top[0].value, best.unseen)
    ranked = _ranked(value, kept, checked, bound)
    whole_answer = unrestricted and fixed and best.unseen == math.inf
    restriction = or_else(lambda: _restriction(whole, value, search, best), None, heard) if whole_answer else None
    simplest, sensitive, others = None, (), ()
    if known is None or kept[0].value < compared(known, known.value):
        simplest = or_else(lambda: _simplest(whole, value, best, bound, ranked[0]), None, heard)
        sensitive = or_else(lambda: elasticities(workload, cluster, ranked[0].plan), (), heard)
        others = or_else(lambda: runner_ups(whole, best), (), heard)
    status = Status.ok if best.unseen == math.inf and not heard else Status.incomplete
    return PlanResult(
        status=status,
        message=status.value,
        objective=value.name,
        unit=value.unit,
        maximised=value.maximised,
        value=ranked[0].value,
        lower_bound=value.shown(bound),
        lower_bound_s=ranked[0].step_s * bound / kept[0].value,
        gap=kept[0].value / bound - 1,
        plans=ranked,
        simplest=simplest,
        elasticities=sensitive,
        plans_in_lattice=len(whole),
        evaluations=best.evaluated,
        fitting=best.fitting,
        runner_ups=others,
        cells={cell_degrees(cell): value.shown(entry.value) for cell, entry in best.cells.items()},
        legal_cells=cells_of(whole),
        restriction=restriction,
        seconds=time.perf_counter() - start,
        seed=0,
        versions=versions(),
        workload=workload,
        cluster=cluster,
        fixed=dict(fixed or {}),
        margin=margin,
    )


def find_plan_for(
    name: str,
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    top: int = 10,
    search: Search = exhaustive.sooner,
    version: str | None = None,
    better: Callable[[Mapping[str, Any], float], bool] | None = None,
    parts: Sequence[tuple[Mapping[str, Any], Lattice]] = (),
    earlier: Sequence[PlanResult] = (),
    **options: Any,
) -> tuple[PlanResult, PlanResult | None]:
    """The answer of `find_in_lattice` for plans that the framework can be told; and that for all, unless it was
    stopped.

    With `better`, whether plans that keep some fields are below a value, alternatives that are not are left out, those
    after the first; and the second answer is None. `parts` are lattices of such fields, in the order of bounds, and are
    searched as they stand; with `earlier` answers of the framework's, where they are better.
    """
    if name not in FRAMEWORKS:
        raise SpecError(f"`only` is {name!r}; {nearest(name, FRAMEWORKS)}")
    framework, given = framework_at(name, version), dict(fixed or {})
    results, why = list(earlier), None
    asked = parts or [(fields, None) for fields in narrowed(framework, given, usual_formats(cluster, given), workload)]
    for fields, part in asked:
        if results and better is not None and not better(fields, _last(merged(results, top), top)):
            continue
        tellable = search_tellable(framework, workload, cluster, search)
        known = {"among": part, "earlier": results}
        try:
            results.append(
                find_in_lattice(workload, cluster, fixed=fields, top=top, search=tellable, **known, **options)
            )
        except CommandError as error:
            why = error if why is None or error.status is Status.infeasible else why
        if results and results[-1].status is Status.incomplete:
            break  # interrupted: what is known so far is the answer
    if not results:
        message = f"no plan that keeps what is fixed{_excluded(framework, given)}" if why is None else why.message
        raise CommandError(Status.infeasible, f"for {framework.title}: {message}")
    result = _reasoned(merged(results, top))
    if better is not None or result.status is not Status.ok:
        return result, None
    return _beside_all(result, lambda: find_in_lattice(workload, cluster, fixed=given, top=1, search=search, **options))


def _beside_all(result: PlanResult, ask: Callable[[], PlanResult]) -> tuple[PlanResult, PlanResult | None]:
    """An answer beside that for all plans; alone, where the user interrupts that."""
    heard = list[bool]()
    every = or_else(ask, None, heard)
    if every is None or every.status is Status.incomplete:
        return (incomplete(result) if heard else result), None
    return result, every


def _excluded(framework: Framework, given: Mapping[str, Any]) -> str:
    """The first fixed field that a framework cannot be told, in words."""
    single = {name: value for name, value in given.items() if not isinstance(value, set | frozenset)}
    told = framework.cannot(Plan(**single))
    return next((f": {each}" for each in told if each.split("`")[1:2] and each.split("`")[1] in given), "")


def _reasoned(result: PlanResult) -> PlanResult:
    """With the reasons of all plans against the best of all, not that of their own search."""
    first = result.plans[0].validation
    plans = (dataclasses.replace(ranked, reason=_reason(ranked.validation, first)) for ranked in result.plans)
    return dataclasses.replace(result, plans=tuple(plans))


def _last(result: PlanResult, top: int) -> float:
    """What a plan must be below to be among the best ones."""
    return math.inf if len(result.plans) < top else compared(result, result.plans[-1].value)


def _ordered(whole: Lattice, value: PlanValue) -> Lattice:
    """Large lattices in the order of their bounds, so that most of them need not be evaluated."""
    wanted = len(whole) > ENUMERATED and value.function is None and whole.floor_s is None
    return in_order_of_bounds(whole) if wanted else whole


def _restriction(whole: Lattice, value: PlanValue, search: Search, best: Best) -> float | None:
    """What the fixed fields cost: the best value over that of all plans, minus one."""
    kept = {name: v for name, v in whole.fixed.items() if name not in SEARCHED}  # what no search would change
    if kept.keys() == whole.fixed.keys():
        return None
    free = unless_refused(lambda: lattice(whole.workload, whole.cluster, kept))
    of_all = None if free is None else search(_ordered(free, value), value, 1)
    return None if of_all is None or of_all.unseen < math.inf else best.top[0].value / of_all.top[0].value - 1


def _search(
    whole: Lattice, value: PlanValue, top: int, search: Search, heard: list[bool], below: float
) -> tuple[Best, list[Entry], list[Validation]]:
    """The best few whose stages all fit, each with the kinds of layer that it holds in the model's order.

    Those that are not `below` a value are left out, but for the best. The search spreads every kind evenly over the
    stages, so that a plan near the limit may fail here. It stays part of the lower bound.
    """
    best, kept, tried = Best(), dict[Plan, tuple[Entry, Validation]](), set[int]()
    for times in AMONG:
        best = search(whole, value, times * top)
        if not best.top or not math.isfinite(best.top[0].value):
            raise nothing_fits(whole, best)
        for entry in (entry for entry in best.top if entry.index not in tried):
            if heard or len(kept) >= top or (kept and entry.value >= below):
                break
            tried.add(entry.index)
            _keep(whole, entry, kept, heard)
        all_seen = len(best.top) < times * top or best.unseen < math.inf
        if heard or all_seen or len(kept) >= top or (kept and best.top[-1].value >= below):
            break
    if not kept:
        raise nothing_fits_in_order(whole, len(best.top))
    entries, checked = zip(*kept.values(), strict=True)
    return best, list(entries), list(checked)


def _keep(whole: Lattice, entry: Entry, kept: dict[Plan, tuple[Entry, Validation]], heard: list[bool]) -> None:
    """Keep a plan that fits in every stage, unless it differs from one that is kept in idle options alone."""
    plan = whole.plan(entry.index)
    if canonical(plan) in kept or not fits_by_stage(whole.workload, whole.cluster, plan):
        return
    checking = functools.partial(validate, whole.workload, whole.cluster, plan)
    validation = or_else(checking, None, heard) if kept else checking()
    if validation is not None and validation.passes:
        kept[canonical(plan)] = entry, validation


def _ranked(value: PlanValue, kept: list[Entry], checked: list[Validation], bound: float) -> tuple[Ranked, ...]:
    return tuple(
        _rank(value, entry, bound, validation, checked[0]) for entry, validation in zip(kept, checked, strict=True)
    )


def _rank(value: PlanValue, entry: Entry, bound: float, validation: Validation, first: Validation) -> Ranked:
    breakdown = validation.breakdown
    assert breakdown is not None, validation.violations  # the lattice is legal: tests compare it with `violations`
    return Ranked(
        plan=validation.plan,
        value=value.shown(entry.value),
        gap=entry.value / bound - 1,
        step_s=float(breakdown.step_s),
        mfu=float(breakdown.mfu),
        peak_bytes=validation.peak_bytes,
        reason=_reason(validation, first),
        validation=validation,
    )


_SEEN = 5e-4  # of the step: less is no reason


def _reason(validation: Validation, first: Validation) -> str:
    """The two terms that the time of the best plan goes to, or what another one loses to it."""
    own, best = _terms(validation), _terms(first)
    if validation is first:
        most = sorted(own, key=lambda name: -own[name])[:2]
        return ", ".join(f"{name} {100 * own[name]:.1f} %" for name in most)
    step_s = first.breakdown.step_s if first.breakdown else math.nan
    scale = validation.breakdown.step_s / step_s if validation.breakdown else math.nan
    more = {name: own[name] * scale - best.get(name, 0.0) for name in own}
    most = max(more, key=lambda name: more[name])
    return f"{most} {100 * more[most]:+.1f} %" if more[most] >= _SEEN else "as fast as the best"


def _terms(validation: Validation) -> dict[str, float]:
    """Exposed shares of the step."""
    score = validation.breakdown
    return {} if score is None else {term.name: float(term.exposed_s / score.step_s) for term in score.terms}


def _simplest(whole: Lattice, value: PlanValue, best: Best, bound: float, first: Ranked) -> Ranked | None:
    """The plan that makes use of least among those within 1 % of the best."""
    reached = best.top[0].value * (1 + exhaustive.SIMPLER_WITHIN)
    level = min((level for level, entry in best.levels.items() if entry.value <= reached), default=None)
    if level is None or best.levels[level].index == best.top[0].index:
        return None
    validation = validate(whole.workload, whole.cluster, whole.plan(best.levels[level].index))
    return _rank(value, best.levels[level], bound, validation, first.validation) if validation.passes else None
