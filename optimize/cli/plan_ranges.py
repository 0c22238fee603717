"""`equipoise plan` over ranges: `--accelerators 400:512`, `--at-most 512`, `--batch 480:544`, `--fewest`."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from costmodel import evaluate
from costmodel.inputs import Cluster, Workload
from costmodel.measured import with_margin
from costmodel.specs import COUNT, Check, SpecError, fail
from optimize.cli.inputs import Given, named_cluster
from optimize.plans import PlanInputs, PlanResult, Question, best_on, best_over, can_launch
from optimize.progress import lines
from optimize.question import SECONDS_A_DAY

MOST_PAIRS = 1_000_000
SPREAD = 7  # counts that are told beside the best
_ALL_TOKENS = 1e6  # dollars are told by so many

Span = tuple[int, int]


def _span(value: Any) -> Span | None:
    """The range that a number, `"512"` or `"400:512"` says; None for what is none."""
    parts = [value] if isinstance(value, int) and not isinstance(value, bool) else str(value).split(":")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        return None
    if len(numbers) > 2 or isinstance(value, bool | float) or not all(map(COUNT, numbers)):
        return None
    return (numbers[0], numbers[-1]) if numbers[0] <= numbers[-1] else None


RANGE = Check("an integer from 1 to 10**18, or a range such as 400:512", lambda value: _span(value) is not None, _span)
"""Check of a number that may be a range, kept as its ends."""


def ranges(given: Given) -> tuple[Given, dict[str, Any]]:
    """What was given with single numbers, the largest of each range; and the ranges as fields of `PlanInputs`."""
    values, found = dict(given.values), dict[str, Any]()
    counts, batches = values.get("accelerators"), values.get("batch")
    if "at_most" in values:
        if counts is not None:
            told = "expected one of them"
            raise SpecError(f"{given.place('at_most')}: `at_most` is given beside `accelerators`; {told}")
        counts = (1, values["at_most"])
    fewest, days = values.get("fewest", False), values.get("deadline_days")
    if days is not None and "tokens" not in values:
        raise SpecError(f"{given.place('deadline_days')}: `tokens` is missing with `deadline_days`")
    if fewest and values.get("objective", "step_s") not in ("step_s", "time_s"):
        fail(given.place("objective"), "objective", values["objective"], "step_s or time_s with `fewest`")
    if counts is not None:
        values["accelerators"] = counts[1]
        found["counts"] = (1, counts[1]) if fewest and counts[0] == counts[1] else counts
    if batches is not None:
        values["batch"] = batches[1]
        found["batches"] = batches
    found |= {"fewest": fewest, "deadline_s": None if days is None else days * SECONDS_A_DAY}
    found = {name: value for name, value in found.items() if not isinstance(value, tuple) or value[0] < value[1]}
    if (fewest or found.keys() & {"counts", "batches"}) and values.get("processes", 1) > 1:
        raise SpecError(f"{given.place('processes')}: `processes` is given with a range; expected one number of each")
    return dataclasses.replace(given, values=values), found


def with_machine(inputs: PlanInputs, given: Given, framework: str | None) -> PlanInputs:
    """The inputs of a question over ranges, with what makes the cluster of every count."""
    if not (inputs.fewest or inputs.counts or inputs.batches):
        return inputs
    name, margin = given.values["cluster"], inputs.margin

    @functools.cache
    def machine(accelerators: int) -> Cluster:
        return with_margin(named_cluster(given, name, accelerators, framework), margin)

    most = int(inputs.cluster.accelerators)
    counts = inputs.counts or ((1, most) if inputs.fewest else (most, most))
    batches = inputs.batches or (int(inputs.workload.batch),) * 2
    pairs = (counts[1] - counts[0] + 1) * (batches[1] - batches[0] + 1)
    if pairs > MOST_PAIRS:
        told = f"expected at most {MOST_PAIRS:,} pairs of accelerators and batch, not {pairs:,}"
        raise SpecError(f"{given.place('accelerators', 'at_most', 'batch')}: {told}")
    return dataclasses.replace(inputs, counts=counts, batches=batches, machine=machine)


def search_ranges(inputs: PlanInputs) -> tuple[PlanInputs, dict[str, Any]]:
    """The best pair as inputs of its own, and what became of all of them, with a few counts beside the best."""
    assert inputs.machine is not None
    assert inputs.counts is not None
    assert inputs.batches is not None
    names = None if inputs.every else can_launch(inputs.fixed, inputs.cluster) or None
    if inputs.only is not None:
        names = (inputs.only,)
    question = Question(
        workload=inputs.workload,
        machine=inputs.machine,
        most=inputs.counts[1],
        fixed=inputs.fixed,
        objective=inputs.objective,
        tokens=inputs.tokens,
        names=names,
        by_sequence=inputs.batches[0] < inputs.batches[1],
    )
    counts, batches = (range(low, high + 1) for low, high in (inputs.counts, inputs.batches))
    tell = lines("plan")
    found = best_over(question, counts, batches, fewest=inputs.fewest, deadline_s=inputs.deadline_s, tell=tell)
    best = found["best"]
    count, batch = best["accelerators"], best["batch"]
    own = (
        question
        if names is None or best["framework"] is None
        else dataclasses.replace(question, names=(best["framework"],))
    )
    found["curve"] = [_told(own, best)] if not found["complete"] else _curve(own, found, batch, tell)
    found["fixed"] = question.fixed_on(count)
    workload, cluster = question.job(count, batch)
    return dataclasses.replace(inputs, workload=workload, cluster=cluster), found


def _curve(question: Question, found: dict[str, Any], batch: int, tell: Callable[[str], None]) -> list[dict[str, Any]]:
    """The best of some counts with the best batch, of those that divide best, the answer's among them."""
    best, rows = found["best"], {}
    possible = [count for count in found["counts"] if count != best["accelerators"]]
    for count in sorted(possible, key=lambda count: (_odd_part(count), -count))[:SPREAD]:
        tell(f"the curve: {count:,} accelerators")
        row = best_on(question, count, batch)
        if row["outcome"] == "found":
            rows[count] = row
    rows[best["accelerators"]] = best
    return [_told(question, rows[count]) for count in sorted(rows)]


def _odd_part(count: int) -> int:
    """The count without its factors of two: the smaller, the more ways there are to divide a job over it."""
    return count // (count & -count)


def with_best(own: PlanInputs, found: dict[str, Any], result: PlanResult) -> dict[str, Any]:
    """The range, its best pair as the whole search on it found it, which tries options that compare no counts."""
    best, step_s, plan = found["best"], result.plans[0].step_s, result.plan
    if own.objective != "step_s" or step_s >= best["step_s"]:
        return found
    new = {"plan": plan, "step_s": step_s, "value": step_s, "compared": best["compared"] * step_s / best["step_s"]}
    same = [row["accelerators"] == best["accelerators"] for row in found["curve"]]
    told = _told_on(own.workload, own.cluster, best | new)
    return found | {"best": told, "curve": [told if at else row for row, at in zip(found["curve"], same, strict=True)]}


def _told(question: Question, row: dict[str, Any]) -> dict[str, Any]:
    return _told_on(*question.job(row["accelerators"], row["batch"]), row)


def _told_on(workload: Workload, cluster: Cluster, row: dict[str, Any]) -> dict[str, Any]:
    """A row with what people ask for: tokens per second, MFU, dollars."""
    tokens = float(workload.batch * workload.sequence)
    found = evaluate(workload, cluster, row["plan"], checked=False).economics
    usd = None if found is None else found.base.usd_per_token
    money = None if usd is None else float(usd) * _ALL_TOKENS
    return row | {"tokens_per_s": tokens / row["step_s"], "usd_per_million_tokens": money}
