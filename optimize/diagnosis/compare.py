"""Two answers to one question side by side: another plan on the same cluster, or the same plan on another cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimize.diagnosis.explain import Explanation

if TYPE_CHECKING:
    from costmodel.measured import Comparison


Difference = tuple[str, float, float]
"""One quantity of both answers: its name, the first and the second."""


def largest_first(first: Mapping[str, float], second: Mapping[str, float]) -> list[Difference]:
    """Every name of either, by the size of its change."""
    names = dict.fromkeys((*first, *second))
    differences = [(name, first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    return sorted(differences, key=lambda difference: -abs(difference[2] - difference[1]))


def times(first: Explanation, second: Explanation) -> list[Difference]:
    """Exposed seconds of each term."""
    seconds = [{term.name: float(term.exposed_s) for term in each.breakdown.terms} for each in (first, second)]
    return largest_first(*seconds)


def memories(first: Explanation, second: Explanation) -> list[Difference]:
    """Bytes of each term on the fullest stage."""
    return largest_first(first.fullest.terms, second.fullest.terms)


def comparison_of(first: Explanation, second: Explanation) -> "Comparison":
    """How sure it is which of the two is faster."""
    from costmodel.measured import compare

    a, b = ((each.inputs.workload, each.inputs.cluster, each.inputs.plan) for each in (first, second))
    return compare(a, b)


def differences_json(first: Explanation, second: Explanation) -> dict[str, Any]:
    """How sure the first is faster, and the two lists.

    The first value is that of the plan and cluster asked about, the second that of the other.
    """
    sure = comparison_of(first, second)
    return {
        "log_ratio": sure.log_ratio,
        "log_ratio_sd": sure.log_sd,
        "probability_faster": sure.probability_faster,
        "log_ratio_sd_apart": sure.whole_log_sd,
        "probability_faster_apart": sure.probability_apart,
        "terms": [{"name": name, "exposed_s": [a, b], "change_s": b - a} for name, a, b in times(first, second)],
        "memory": [{"name": name, "bytes": [a, b], "change_bytes": b - a} for name, a, b in memories(first, second)],
    }
