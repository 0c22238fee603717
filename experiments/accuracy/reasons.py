"""Why a row is far off, as far as the model can tell: its group, its regime, what it leaves open, its largest term."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel import Exact
from costmodel.formulas import breakdown, parts
from costmodel.measured import Case, posterior, slow_probability, stacked

WORST = 20
_SHARED = 0.5  # share of an error that its whole group has


def worst(cases: Sequence[Case], errors: np.ndarray, groups: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with the largest errors, each with a reason."""
    names = np.array(groups)
    bias = {name: float(np.median(errors[names == name])) for name in set(groups)}
    order: list[int] = np.argsort(-np.abs(errors))[:WORST].tolist()
    slow = slow_probability(posterior.shipped().regime_weights, [cases[i] for i in order])
    listed = []
    for k, i in enumerate(order):
        case = cases[i]
        listed.append(
            {
                "source": case.source,
                "row": f"{case.row.get('model', '')} on {case.row.get('gpus', '')} {case.row.get('hardware', '')}",
                "plan": str(case.plan),
                "measured_s": case.measured_step_s,
                "error": float(errors[i]),
                "reason": _reason(case, float(errors[i]), bias[groups[i]], float(slow[k])),
            }
        )
    return listed


def _reason(case: Case, error: float, bias: float, slow: float) -> str:
    if slow > 0:
        named = "slow" if slow > 0.5 else "ordinary"
        return f"one of two regimes that the row does not tell apart: taken for {named} (probability {slow:.0%})"
    if bias * error > 0 and abs(bias) > _SHARED * abs(error):
        return f"its whole group is off by {bias:+.2f}: software that was never measured"
    share, term = _largest_term(case)
    largest = f"{share:.0%} of the prediction is {term}"
    return f"left open: {', '.join(case.assumed)}; {largest}" if case.assumed else largest


def _largest_term(case: Case) -> tuple[float, str]:
    (batch,) = stacked([case])
    inputs = batch.workload, batch.cluster, batch.point
    step = breakdown(*inputs, parts(*inputs, Exact(np)), Exact(np))
    term = max(step.terms, key=lambda term: float(np.ravel(term.exposed_s)[0]))
    return float(np.ravel(term.exposed_s)[0] / np.ravel(step.step_s)[0]), term.name
