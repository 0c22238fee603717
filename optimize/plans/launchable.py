"""Which frameworks can launch a plan, the best plan of all that some can, and of each: by the exporters' own rules.

A framework's plans are some lattices (`narrowed`), of which what lies beyond the table is left out one by one
(`Framework.cannot`). All have rows of degrees of the lattice of all plans, whose lower bounds hold for them too.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.measured import FITS, with_margin
from optimize.lattice import OVERLAPS, SEARCHED, Axis, Lattice, lattice, usual_formats, within
from optimize.launch import FRAMEWORKS, Framework, names_on
from optimize.plans import exhaustive
from optimize.plans.best import cells_of
from optimize.plans.best_beside import best_variant, find_plan, least_variant
from optimize.plans.bounded import Found, Known, best_below, glance, is_answer, least, ordered
from optimize.plans.find_in_lattice import find_in_lattice, find_plan_for
from optimize.plans.inputs import PlanInputs
from optimize.plans.plan_values import PlanValue, value_on
from optimize.plans.restricted import OFFLOADS, Part, its_own, members, narrowed, search_tellable, told_by
from optimize.plans.result import PlanResult, compared, incomplete, lowered, merged
from optimize.status import CommandError, Status, unless_refused
from optimize.time_limit import or_else

LOOK = 65_536  # plans of each lattice that are looked at for the best of a framework that is not the best of all


def launchers(plan: Plan, workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """Names of the frameworks whose launch files can say all of a plan, of those that run there."""
    return tuple(name for name in names_on(cluster) if FRAMEWORKS[name].can(plan, workload, cluster))


def can_launch(fixed: Mapping[str, Any], cluster: Cluster) -> tuple[str, ...]:
    """Names of the frameworks that run there of which some alternative keeps what is fixed."""
    usual = usual_formats(cluster, fixed)
    return tuple(name for name in names_on(cluster) if narrowed(FRAMEWORKS[name], fixed, usual))


def asked_of(inputs: PlanInputs) -> tuple[str, ...]:
    """Names of the frameworks of which one is to launch the plan; none where any plan is searched."""
    if inputs.only is not None:
        return (inputs.only,)
    return () if inputs.every else can_launch(inputs.fixed, inputs.cluster)


def refusals(plan: Plan, workload: Workload, cluster: Cluster) -> dict[str, str]:
    """Frameworks that cannot be told a plan, with the first thing of it that they cannot be told."""
    told = {name: framework.cannot(plan, workload, cluster) for name, framework in FRAMEWORKS.items()}
    return {name: why[0] for name, why in told.items() if why}


def parts_of(whole: Lattice, names: Iterable[str] | None = None) -> dict[str, list[Part]]:
    """The lattices of the frameworks' alternatives, the smallest first, one for all who share it.

    `whole` has the rows of all plans, `ordered`.
    """
    made: dict[str, Lattice | None] = {}
    axes: dict[Any, Axis] = {}
    chosen = names_on(whole.cluster) if names is None else names
    return {name: sorted(_parts(whole, FRAMEWORKS[name], made, axes), key=lambda part: len(part[1])) for name in chosen}


def _parts(
    whole: Lattice, framework: Framework, made: dict[str, Lattice | None], axes: dict[Any, Axis]
) -> Iterator[Part]:
    for fields in narrowed(framework, whole.fixed, usual_formats(whole.cluster, whole.fixed), whole.workload):
        key = repr(sorted((name, sorted(map(repr, members(asked)))) for name, asked in fields.items()))
        if key not in made:
            made[key] = _with_bounds(within(whole, fields, axes), whole)
        if (part := made[key]) is not None:
            yield fields, part


def best_for_each(parts: Mapping[str, list[Part]], value: PlanValue, known: Known) -> Iterator[dict[str, Found]]:
    """The best plan of each framework that has one, better and better. That of all is proved in the end; of another
    framework there may be a better one still.

    `known` holds what was evaluated.
    """
    found, asked = _glanced(parts, value)
    told = {name: functools.cache(told_by(name, own[0][1])) for name, own in parts.items() if own}
    if each := _of_each(found, told):
        yield each
    for name, part in asked:
        best = _of_each(found, {name: told[name]}).get(name)  # another one's plan may be the best of its own, too
        better = _best_of(name, [part], value, best[0] if best else math.inf, known, LOOK)
        if better is not None:
            found[name] = better
            yield _of_each(found, told)
    for name in sorted(parts, key=lambda name: len(parts[name])):
        reached = min((best[0] for best in found.values() if best is not None), default=math.inf)
        own = [part for other, part in asked if other == name]
        found[name] = _best_of(name, own, value, reached, known) or found.get(name)
        yield _of_each(found, told)


def _glanced(
    parts: Mapping[str, list[Part]], value: PlanValue
) -> tuple[dict[str, Found | None], list[tuple[str, Part]]]:
    """The best that a glance shows of each framework, and all lattices in the order of what it shows of them."""
    known = {id(part): part for own in parts.values() for _, part in own}
    seen = dict(zip(known, glance(list(known.values()), value), strict=True))
    asked = [(name, part) for name, own in parts.items() for part in own]
    asked.sort(key=lambda pair: seen[id(pair[1][1])][0])
    found: dict[str, Found | None] = dict.fromkeys(parts)
    for name, (_, part) in asked:
        best = seen[id(part)]
        if found[name] is None and best[0] < math.inf and is_answer(best[1], part, told_by(name, part)):
            found[name] = best
    return found, asked


def _of_each(found: Mapping[str, Found | None], told: Mapping[str, Callable[[Plan], bool]]) -> dict[str, Found]:
    """The best that each framework can be told of all that was found: another one's may be better than its own."""
    plans = sorted((best for best in found.values() if best is not None), key=lambda best: best[0])
    first = {name: next((best for best in plans if can(best[1])), None) for name, can in told.items()}
    return {name: best for name, best in first.items() if best is not None}


def best_of_any(
    parts: Mapping[str, list[Part]], fixed: Mapping[str, Any], value: PlanValue, reached: float
) -> tuple[str, Found] | None:
    """The best plan below `reached` that one of the frameworks can launch, and which of them."""
    known: Known = {}
    best: tuple[str, Found] | None = None
    for most in (LOOK, math.inf):
        for name in parts:
            found = _best_of(name, parts[name], value, reached, known, most)
            if found is not None:
                best, reached = (name, found), found[0]
    variant = best_variant(parts, fixed, value, reached, best and best[1][1])
    return best if variant is None else variant[:2]


def _best_of(
    name: str, parts: list[Part], value: PlanValue, reached: float, known: Known, most: float = math.inf
) -> Found | None:
    best: Found | None = None
    for _, part in parts:
        found, _ = best_below(part, value, reached, told_by(name, part), known, most)
        if found is not None:
            best, reached = found, found[0]
    return best


def _with_bounds(part: Lattice, whole: Lattice) -> Lattice | None:
    """The part with the bounds of the whole, where both compute alike; else with its own."""
    if not len(part):
        return None
    alike = part.floor_s is not None and _plain(part) == _plain(whole)
    return part if alike else ordered(lattice(part.workload, part.cluster, part.fixed))


def _plain(own: Lattice) -> dict[str, Any]:
    """What the bounds depend on beside the rows; overlap that is off is never faster."""
    left_out = {*SEARCHED, *OVERLAPS}
    given = {field.name: field.default for field in dataclasses.fields(Plan)} | usual_formats(own.cluster, own.fixed)
    given |= {name: asked for name, asked in own.fixed.items() if asked is not None}
    return {name: asked for name, asked in given.items() if name not in left_out}


def find_launchable(
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    objective: str = "step_s",
    tokens: float | None = None,
    margin: float = FITS,
    **options: Any,
) -> tuple[PlanResult, dict[str, Found]]:
    """The answer of `find_in_lattice` for plans that some framework can launch, and the value and best plan of each.

    The runners-up are those of the framework that has the best plan. Where none can launch anything with what is fixed,
    the answer is that of `find_plan`, and the second is empty.
    """
    given, machine = dict(fixed or {}), with_margin(cluster, margin)
    question: dict[str, Any] = {"objective": objective, "tokens": tokens, "margin": margin, **options}
    whole, value = _valued(workload, machine, usual_formats(cluster, given) | given, objective, tokens)
    parts, answer = parts_of(ordered(whole)) if len(whole) else {}, _NOTHING
    try:
        for better in _answers(whole, value, parts, (workload, cluster), question):
            answer = better
    except KeyboardInterrupt:
        if not answer[1]:
            raise
        return _stopped(answer, whole, value, parts, (workload, cluster), question)
    result, each = answer
    return (result or find_plan(workload, cluster, fixed=given, unrestricted=True, **question)), each


Answer = tuple[PlanResult | None, dict[str, Found]]
_NOTHING: Answer = None, {}


def _answers(
    whole: Lattice,
    value: PlanValue,
    parts: Mapping[str, list[Part]],
    job: tuple[Workload, Cluster],
    question: Mapping[str, Any],
) -> Iterator[Answer]:
    """The answer, better and better; nothing where no framework has a plan."""
    each, known = dict[str, Found](), Known()
    for each in best_for_each(parts, value, known):
        yield None, each
    result, each = _with_variants(None, each, parts, whole.fixed, value, question, job)
    if not each:
        return
    yield result, each
    winner = min(each, key=lambda name: (each[name][0], not its_own(each[name][1], parts[name])))
    own = sorted(parts[winner], key=lambda part: not its_own(each[winner][1], [part]))  # that of the best plan first

    def better(fields: Mapping[str, Any], reached: float) -> bool:
        part = next(part for asked, part in own if asked == fields)
        return best_below(part, value, reached, told_by(winner, part), known)[0] is not None

    if result is None or result.status is Status.ok:
        earlier = [] if result is None else [result]
        options = {"better": better, "parts": own, "earlier": earlier, **question}
        result, _ = find_plan_for(winner, *job, fixed=whole.fixed, **options)
        yield _with_others(result, parts, own, known), each
    free = {name: kept for name, kept in whole.fixed.items() if name not in SEARCHED}  # what no search would change
    if free.keys() != whole.fixed.keys() and result.status is Status.ok:
        asked = question["objective"], question["tokens"]
        freely = unless_refused(lambda: _valued(job[0], whole.cluster, free, *asked))
        if freely is None:
            return
        freer = best_of_any(parts_of(ordered(freely[0])), free, freely[1], each[winner][0])
        cost = 0.0 if freer is None else each[winner][0] / freer[1][0] - 1
        yield dataclasses.replace(result, restriction=cost), each


def _with_others(result: PlanResult, parts: Mapping[str, list[Part]], own: list[Part], known: Known) -> PlanResult:
    """With what was looked at of the other frameworks' lattices too, and the cells of all lattices of its own."""
    every = {id(part): part for each in parts.values() for _, part in each}
    for _, part in own:
        every.pop(id(part), None)
    looked = [best for (of, *_), (_, _, best) in known.items() if of in every]
    mine = [part for _, part in own]
    return dataclasses.replace(
        result,
        plans_in_lattice=sum(map(len, (*mine, *every.values()))),
        evaluations=result.evaluations + sum(best.evaluated for best in looked),
        fitting=result.fitting + sum(best.fitting for best in looked),
        legal_cells=result.legal_cells.union(*map(cells_of, mine)),
    )


def _stopped(
    answer: Answer,
    whole: Lattice,
    value: PlanValue,
    parts: Mapping[str, list[Part]],
    job: tuple[Workload, Cluster],
    question: Mapping[str, Any],
) -> tuple[PlanResult, dict[str, Found]]:
    """The answer where the user interrupts the search: the best so far, and a bound of all that is searched."""
    result, each = answer
    if result is None:
        _, plan = min(each.values(), key=lambda best: best[0])
        fixed = {name: kept for name, kept in dataclasses.asdict(plan).items() if kept is not None}
        result = find_in_lattice(*job, fixed=fixed, **{**question, "top": 1, "search": exhaustive.search})
        bounds = (least(part, value) for own in parts.values() for _, part in own)
        bound = min(*bounds, least_variant(parts, whole.fixed, value))
        result = dataclasses.replace(lowered(result, bound), simplest=None)
    return incomplete(result), each


def find_for(
    name: str,
    workload: Workload,
    cluster: Cluster,
    *,
    fixed: Mapping[str, Any] | None = None,
    version: str | None = None,
    **question: Any,
) -> tuple[PlanResult, PlanResult | None]:
    """The answer of `find_plan_for`, with what the framework takes beside the lattice where that is better."""
    result, every, why = None, None, None
    try:
        result, every = find_plan_for(name, workload, cluster, fixed=fixed, version=version, **question)
    except CommandError as error:
        if error.status is not Status.infeasible:
            raise
        why = error
    plain = version is None and isinstance(question.get("objective", "step_s"), str)
    if result is not None and (result.status is not Status.ok or not plain):
        return result, every
    heard = list[bool]()
    job, given = (workload, cluster), dict(fixed or {})
    other = or_else(lambda: _of_one(name, job, given, result, question), result, heard)
    if other is None:
        raise why or KeyboardInterrupt
    if heard:
        whole, value, parts = _lattices_of_one(name, job, given, question)
        other = incomplete(lowered(other, least_variant(parts, whole.fixed, value)))
    result = other
    if every is not None and compared(result, result.value) < compared(
        every, every.value
    ):  # a plan beside the lattice of all
        every = result
    return result, every


def _of_one(
    name: str,
    job: tuple[Workload, Cluster],
    fixed: dict[str, Any],
    result: PlanResult | None,
    question: Mapping[str, Any],
) -> PlanResult | None:
    """The answer for one framework with what it takes beside the lattice."""
    whole, value, parts = _lattices_of_one(name, job, fixed, question)
    each = {} if result is None else {name: (compared(result, result.value), result.plan)}
    return _with_variants(result, each, parts, whole.fixed, value, question, job)[0]


def _lattices_of_one(
    name: str, job: tuple[Workload, Cluster], fixed: dict[str, Any], question: Mapping[str, Any]
) -> tuple[Lattice, PlanValue, dict[str, list[Part]]]:
    """All plans, what they are compared by, and the lattices of one framework."""
    machine, asked = with_margin(job[1], question.get("margin", FITS)), usual_formats(job[1], fixed) | fixed
    of = question.get("objective", "step_s"), question.get("tokens")
    whole, value = _valued(job[0], machine, asked, *of)
    return whole, value, parts_of(ordered(whole), (name,)) if len(whole) else {}


def _with_variants(
    result: PlanResult | None,
    each: dict[str, Found],
    parts: Mapping[str, list[Part]],
    fixed: Mapping[str, Any],
    value: PlanValue,
    question: Mapping[str, Any],
    job: tuple[Workload, Cluster],
) -> tuple[PlanResult | None, dict[str, Found]]:
    """The answers with what frameworks take beside the lattice (`beside`), where it is better."""
    better = best_variant(
        parts, fixed, value, *min(each.values(), key=lambda found: found[0], default=(math.inf, None))
    )
    if better is None:
        return result, each
    name, found, (fields, part) = better
    own = {field: getattr(found[1], field) for field in ("recompute", *OFFLOADS)}
    fields = {**fields, **{field: kept for field, kept in own.items() if kept}}
    search = search_tellable(FRAMEWORKS[name], *job, question.get("search", exhaustive.sooner))
    among = None if any(own[field] for field in OFFLOADS) else within(part, fields, {})
    other = find_in_lattice(*job, fixed=fields, **{**question, "search": search}, among=among)
    answers = [other] if result is None else [other, result]
    return merged(answers, question.get("top", 10)), {**each, name: found}


def _valued(
    workload: Workload, cluster: Cluster, fixed: Mapping[str, Any], objective: str, tokens: float | None
) -> tuple[Lattice, PlanValue]:
    """All plans, and what they are compared by."""
    whole = lattice(workload, cluster, fixed)
    return whole, value_on(whole, objective, tokens)
