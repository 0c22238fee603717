"""The best plan over ranges of accelerators and batches: every pair of them looked at, or bounded from below.

Pairs wait in the order of what nothing on them is below: at first the FLOP of a step at the best rate of a kernel, then
the least bound of their rows of degrees, then that of the rows which may fit, then their best plan, at last the best
that some framework can launch. The search ends when the next in line is no better than what is found, which is proved
over all pairs then.
"""

import dataclasses
import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from costmodel import evaluate
from costmodel.inputs import Cluster, Plan, Workload, embed
from optimize.lattice import SEARCHED, Lattice, lattice, possible_counts, usual_formats
from optimize.plans.best_beside import all_besides, best_beside, least_beside
from optimize.plans.bounded import best_below, least, least_of_any, ordered
from optimize.plans.launchable import best_of_any, parts_of
from optimize.plans.plan_values import PlanValue, plan_value
from optimize.question import Job, products_s
from optimize.status import CommandError, Status

_SAFE = 1.0 - 1e-9  # for the rounding of sums
_MANY = 64  # pairs, of which one has its plan at once: an answer for whoever interrupts
OUTCOMES = ("found", "bounded", "no plan", "no memory")

Row = dict[str, Any]
"""One pair: `accelerators`, `batch`, `outcome`, and where it is "found" `plan`, `framework`, `value`, `step_s`."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of every pair of a count and a batch.

    Plans on more than one domain use more than half of each, and no more domains than `most` accelerators fill.
    """

    workload: Workload
    machine: Callable[[int], Cluster]  # the cluster with so many accelerators
    most: int  # accelerators that there are
    fixed: Mapping[str, Any]
    objective: str = "step_s"
    tokens: float | None = None
    names: tuple[str, ...] | None = None  # frameworks of which one must be able to launch the plan; None: any plan
    by_sequence: bool = False  # whether seconds of a step are compared by sequence, as those of several batches are

    def fixed_on(self, accelerators: int) -> dict[str, Any]:
        """The fields that are not searched, and the domains that are there."""
        return dict(self.fixed) if self.fixed.get("domain") else {**self.fixed, "domain": self._domains(accelerators)}

    def _domains(self, accelerators: int) -> frozenset[int]:
        inner = self.machine(self.most).tiers[0]
        usable, size = int(inner.usable_size), int(inner.size)
        if accelerators <= usable:
            return frozenset((usable,))
        there, sizes = -(-self.most // usable), {usable, *range(size // 2 + 1, size + 1)}
        return frozenset(n for n in sizes if accelerators % n == 0 and accelerators // n <= there)

    def job(self, accelerators: int, batch: int) -> tuple[Workload, Cluster]:
        """Model and cluster of one pair."""
        return dataclasses.replace(self.workload, batch=batch), self.machine(accelerators)

    def value(self, accelerators: int, batch: int) -> PlanValue:
        """What plans of one pair are compared by."""
        given = self.fixed_on(accelerators)["domain"]
        domains = sorted(given) if isinstance(given, set | frozenset) else [given]
        return plan_value(self.objective, *self.job(accelerators, batch), domains, self.tokens)

    def scale(self, batch: int) -> float:
        """What values are multiplied with before pairs are compared."""
        return 1.0 / batch if self.by_sequence and self.objective == "step_s" else 1.0


class _Pair(NamedTuple):
    """A pair in the queue: `rank` is its count where the fewest are asked for; nothing on it is below `bound`."""

    rank: int
    bound: float
    stage: int
    accelerators: int
    batch: int


def best_over(
    question: Question,
    counts: Sequence[int],
    batches: Sequence[int],
    *,
    fewest: bool = False,
    deadline_s: float | None = None,
    tell: Callable[[str], None] = lambda words: None,
) -> dict[str, Any]:
    """The `best` row, the `rows` that were looked at, and how many pairs had which outcome.

    `fewest`: of the least count that has a plan, with `deadline_s` one that trains the tokens in that time, failures
    included. Raises `CommandError` where there is none.
    """
    queue = _queue(question, counts, batches, fewest)
    heapq.heapify(queue)
    listed = {pair.accelerators for pair in queue}
    rows, best, complete, possible = list[Row](), None, True, len(queue)
    try:
        if len(queue) > _MANY and not fewest and deadline_s is None:
            first = _promising(queue)
            rows.append(best_on(question, first.accelerators, first.batch))
            best = rows[0] if rows[0]["outcome"] == "found" else None
            queue.remove(first)
            heapq.heapify(queue)
        while queue and not _ended(queue[0], best):
            pair = queue[0]  # where it stays while it is looked at: its bound holds if that is interrupted
            tell(f"{pair.accelerators:,} accelerators, batch {pair.batch:,}; {len(queue) - 1:,} more may be better")
            found = _look(question, pair, best["compared"] if best else _limit(question, pair, deadline_s))
            if isinstance(found, _Pair):
                heapq.heapreplace(queue, found)
                continue
            rows.append(found)
            best = found if found["outcome"] == "found" else best
            heapq.heappop(queue)
    except KeyboardInterrupt:
        complete = False
    if best is None:
        raise _nothing(question, rows, counts, batches, deadline_s, complete)
    return {
        "best": best,
        "rows": rows,
        "pairs": len(counts) * len(batches),
        "possible": possible,
        "counts": sorted(listed),
        **{outcome: sum(row["outcome"] == outcome for row in rows) for outcome in OUTCOMES},
        "gap": 0.0 if complete else best["compared"] / min(best["compared"], *(pair.bound for pair in queue)) - 1,
        "complete": complete,
    }


def _promising(queue: Sequence[_Pair]) -> _Pair:
    """Of the count with the least bound the batch that divides best."""
    alike = (pair for pair in queue if pair.accelerators == queue[0].accelerators)
    return max(alike, key=lambda pair: math.gcd(pair.accelerators, pair.batch))


def best_on(question: Question, accelerators: int, batch: int) -> Row:
    """The row of one pair, whatever is known of others."""
    found: _Pair | Row = _Pair(0, 0.0, 0, accelerators, batch)
    while isinstance(found, _Pair):
        found = _look(question, found, math.inf)
    return found


def _ended(first: _Pair, best: Row | None) -> bool:
    """Whether no pair from the first of the queue on can be the answer."""
    if best is None:
        return False
    return (first.rank > best["accelerators"] > 0 and first.rank > 0) or first.bound >= best["compared"]


def _limit(question: Question, pair: _Pair, deadline_s: float | None) -> float:
    """The value that a plan of a pair may have at most, for the deadline, failures included."""
    if deadline_s is None:
        return math.inf
    if question.objective == "time_s":
        return deadline_s
    assert question.tokens is not None
    workload, cluster = question.job(pair.accelerators, pair.batch)
    steps = Job(workload=workload, tokens=question.tokens).steps_on(cluster.accelerators, cluster.prices)
    return float(deadline_s / steps * question.scale(pair.batch))


def _queue(question: Question, counts: Sequence[int], batches: Sequence[int], fewest: bool) -> list[_Pair]:
    """Pairs whose count is a product of legal degrees, bounded by the FLOP of a step at the best rate of a kernel."""
    own, whole = question.workload, question.machine(question.most)
    plain: dict[str, Any] = {**usual_formats(whole, question.fixed)}
    plain |= {n: v for n, v in question.fixed.items() if n not in SEARCHED and not isinstance(v, set | frozenset)}
    point = embed(Plan(**plain), own, 1.0, whole.stack.habits)
    each_s = _SAFE * products_s(own, dataclasses.replace(whole, prices=None), point) / int(own.batch)
    pairs, asked = [], set(counts)
    for batch in batches:
        workload = dataclasses.replace(own, batch=batch)
        for n in possible_counts(workload, whole, question.fixed, max(counts)).tolist():
            if n in asked and (question.fixed_on(n)["domain"]):
                step_s = each_s * batch / n
                bound = question.value(n, batch).least(step_s, step_s) * question.scale(batch)
                pairs.append(_Pair(n if fewest else 0, bound, 0, n, batch))
    return pairs


def _look(question: Question, pair: _Pair, reached: float) -> _Pair | Row:
    """The pair with a better bound, or what became of it: a plan below `reached`, or none."""
    row = {"accelerators": pair.accelerators, "batch": pair.batch}
    if pair.bound > reached:
        return row | {"outcome": "bounded", "bound": pair.bound}
    workload, cluster = question.job(pair.accelerators, pair.batch)
    value, scale = question.value(pair.accelerators, pair.batch), question.scale(pair.batch)
    fixed = usual_formats(cluster, question.fixed) | question.fixed_on(pair.accelerators)
    whole, names = lattice(workload, cluster, fixed), question.names or ()
    if pair.stage < 2:
        bound, stage = _bound(whole, names, value, soon=pair.stage == 0 and reached < math.inf)
        if bound == math.inf:
            return row | {"outcome": "no memory" if len(whole) else "no plan"}
        return pair._replace(bound=max(bound * scale, pair.bound), stage=stage)
    whole = ordered(whole)
    name, below = None, math.nextafter(reached / scale, math.inf)
    if pair.stage == 2:
        found, _ = best_below(whole, value, below)
        asked = [(whole, all_besides(whole, names), _any)]
        if (other := best_beside(asked, value, found[0] if found else below)) is not None:
            found = other[0]
        if found is not None and names:
            return pair._replace(bound=max(found[0] * scale, pair.bound), stage=3)
    else:
        name, found = best_of_any(parts_of(whole, names), whole.fixed, value, below) or (None, None)
    if found is None:
        return row | ({"outcome": "bounded", "bound": reached} if reached < math.inf else {"outcome": "no memory"})
    step_s = float(evaluate(workload, cluster, found[1], checked=False).step_s)
    told = {"plan": found[1], "framework": name, "value": found[0], "step_s": step_s}
    return row | {"outcome": "found", "compared": found[0] * scale, **told}


def _bound(whole: Lattice, names: Sequence[str], value: PlanValue, *, soon: bool) -> tuple[float, int]:
    """A value that no plan of a pair is below, and the next stage; `soon`: whether or not a plan fits."""
    if soon:
        return least_of_any(whole, value), 1
    return min(least(rows := ordered(whole), value), least_beside(rows, all_besides(rows, names), value)), 2


def _any(_: Plan) -> bool:
    return True


def _nothing(
    question: Question,
    rows: Sequence[Row],
    counts: Sequence[int],
    batches: Sequence[int],
    deadline_s: float | None,
    complete: bool,
) -> CommandError:
    """Why no pair is the answer."""
    if not complete:
        raise KeyboardInterrupt
    name, cluster = question.workload.name, question.machine(question.most).name
    where = f"{_range(counts)} {cluster} with a batch of {_range(batches)}"
    if not any(row["outcome"] in ("no memory", "bounded") for row in rows):
        message = f"plan: no plan of {name} is legal on {where}; expected a wider range of either"
        return CommandError(Status.bad_input, message)
    if deadline_s is not None and any(row["outcome"] == "bounded" for row in rows):
        days = f"{deadline_s / 86_400:.3g} days"
        message = (
            f"plan: {name} trains its tokens in {days} on none of {where}; expected more of them, or a later deadline"
        )
        return CommandError(Status.infeasible, message)
    names = question.names or ()
    told = "" if not names else f" that {names[0]} can launch" if len(names) == 1 else " that a framework can launch"
    return CommandError(Status.infeasible, f"memory: no plan of {name}{told} fits on {where}")


def _range(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
