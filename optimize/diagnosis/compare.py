"""Two answers to one question side by side: another plan on the same cluster, or the same plan on another cluster."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from costmodel.specs import SpecError, cluster_names, is_path, load_cluster, nearest, read_mapping, show
from costmodel.violations import violations
from optimize.default_plan import choose_plan
from optimize.explain import Explanation
from optimize.inputs import COMMAND_LINE, Inputs, placed, plan_precision, resolve
from optimize.plan_files import is_launch_file

if TYPE_CHECKING:
    from costmodel.comparison import Comparison


@dataclasses.dataclass(frozen=True, kw_only=True)
class Difference:
    """One quantity of both answers."""

    name: str
    first: float
    second: float

    @property
    def change(self) -> float:
        return self.second - self.first


def other_inputs(inputs: Inputs, other: str) -> Inputs:
    """The same job and number of accelerators, with the plan or the cluster that `other` names."""
    if other in cluster_names() or _is_cluster_file(other):
        return _on_cluster(inputs, other)
    sizes = {"sequence": inputs.workload.sequence, "batch": inputs.workload.batch}
    asked = {"model": inputs.model, "cluster": inputs.cluster_from, "accelerators": inputs.cluster.accelerators}
    return resolve({**asked, **sizes, "plan": other})


def _is_cluster_file(other: str) -> bool:
    if not is_path(other):
        hint = nearest(other, cluster_names())
        raise SpecError(f"{COMMAND_LINE}: `against` is {show(other)}, which is neither a cluster nor a file; {hint}")
    if placed(COMMAND_LINE, "against", is_launch_file, other):
        return False
    content = placed(COMMAND_LINE, "against", read_mapping, other)
    return "plan" not in content and not content.keys().isdisjoint(("accelerator", "tiers", "cluster"))


def _on_cluster(inputs: Inputs, other: str) -> Inputs:
    """With the same plan where that is legal there; where it is not, with one that is chosen anew."""
    cluster = placed(COMMAND_LINE, "against", load_cluster, other, inputs.cluster.accelerators)
    plan, chosen = inputs.plan, inputs.chosen
    if violations(plan, inputs.workload, cluster):
        plan, chosen = choose_plan(plan_precision(cluster), inputs.workload, cluster)
    return dataclasses.replace(inputs, cluster=cluster, cluster_from=other, plan=plan, chosen=chosen)


def largest_first(first: Mapping[str, float], second: Mapping[str, float]) -> list[Difference]:
    """Every name of either, by the size of its change."""
    names = dict.fromkeys((*first, *second))
    found = [Difference(name=name, first=first.get(name, 0.0), second=second.get(name, 0.0)) for name in names]
    return sorted(found, key=lambda difference: -abs(difference.change))


def times(first: Explanation, second: Explanation) -> list[Difference]:
    """Exposed seconds of each term."""
    seconds = [{term.name: float(term.exposed_s) for term in each.breakdown.terms} for each in (first, second)]
    return largest_first(*seconds)


def memories(first: Explanation, second: Explanation) -> list[Difference]:
    """Bytes of each term on the fullest stage."""
    return largest_first(first.fullest.terms, second.fullest.terms)


def comparison_of(first: Explanation, second: Explanation) -> "Comparison":
    """How sure it is which of the two is faster."""
    from costmodel.comparison import compare

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
