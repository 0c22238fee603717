"""The launch file of `equipoise plan --launch`: which plan it holds, and its text."""

from costmodel.inputs import Plan
from optimize.launch import Framework, framework_at, launch
from optimize.layers import ImprovedLayers
from optimize.plans import PlanInputs, PlanResult


def chosen_framework(inputs: PlanInputs) -> Framework:
    """The framework of `--launch`, in the version that was asked for."""
    return framework_at(str(inputs.launch), inputs.framework_version)


def launched(inputs: PlanInputs, result: PlanResult, layers: ImprovedLayers | None) -> Plan:
    """The plan of the launch file: the best one, or with `--layers` the best placement, as far as it can be told."""
    framework, among = chosen_framework(inputs), () if layers is None else layers.launched(inputs.workload)
    told = (plan for plan in among if not framework.cannot(plan, inputs.workload, inputs.cluster))
    return next(told, result.plan)


def launch_text(inputs: PlanInputs, result: PlanResult, layers: ImprovedLayers | None) -> str:
    """The text of the launch file, with a word at its head where a placement is not the one that is written."""
    plan, exact = launched(inputs, result, layers), () if layers is None else layers.launched(inputs.workload)
    said = ()
    if exact and plan == exact[-1] != exact[0]:
        said = ("every layer is computed again below, which takes longer than the placement of --layers and fits",)
    elif exact and plan not in exact:
        said = ("the placement of --layers is not said below, which is the best plan without it",)
    return launch(str(inputs.launch), plan, inputs.workload, inputs.cluster, inputs.framework_version, said)
