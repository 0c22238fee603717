"""`explain --against`: the same job with another plan or on another cluster."""

import dataclasses

from costmodel.specs import SpecError, cluster_names, is_path, load_cluster, nearest, read_mapping, show, violations
from optimize.cli.inputs import COMMAND_LINE, placed, resolve
from optimize.diagnosis import Inputs
from optimize.lattice import choose_plan, plan_precision
from optimize.launch import is_launch_file


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
