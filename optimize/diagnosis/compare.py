"""Two answers to one question side by side: another plan on the same cluster, or the same plan on another cluster."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from optimize.diagnosis.explain import Explanation

if TYPE_CHECKING:
    from costmodel.measured import Comparison


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One quantity of both answers."""

    name: str
    first: float
    second: float

    @property
    def change(self) -> float:
        """The second over the first, as a difference."""
        return self.second - self.first


def largest_first(first: Mapping[str, float], second: Mapping[str, float]) -> list[Difference]:
    """Every name of either, by the size of its change."""
    names = dict.fromkeys((*first, *second))
    differences = [Difference(name=name, first=first.get(name, 0.0), second=second.get(name, 0.0)) for name in names]
    return sorted(differences, key=lambda difference: -abs(difference.change))


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
        "terms": [
            {"name": d.name, "exposed_s": [d.first, d.second], "change_s": d.change} for d in times(first, second)
        ],
        "memory": [
            {"name": d.name, "bytes": [d.first, d.second], "change_bytes": d.change} for d in memories(first, second)
        ],
    }
