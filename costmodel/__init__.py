"""Equipoise's cost model: what a training step costs, as a differentiable function of plan and hardware.

Importing it loads nothing, and nothing in it imports JAX before it is needed; see `costmodel.pytree`.
"""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.calls import strict as strict
    from costmodel.evaluators import evaluate as evaluate
    from costmodel.evaluators import memory_by_stage as memory_by_stage
    from costmodel.evaluators import prepare as prepare
    from costmodel.exact import Exact as Exact
    from costmodel.formulas import Breakdown as Breakdown
    from costmodel.formulas import Cost as Cost
    from costmodel.formulas import cost as cost
    from costmodel.formulas import parts as parts
    from costmodel.inputs import Accelerator as Accelerator
    from costmodel.inputs import Cluster as Cluster
    from costmodel.inputs import Plan as Plan
    from costmodel.inputs import PlanPoint as PlanPoint
    from costmodel.inputs import Stack as Stack
    from costmodel.inputs import Tier as Tier
    from costmodel.inputs import Workload as Workload
    from costmodel.inputs import embed as embed
    from costmodel.inputs import model_flop as model_flop
    from costmodel.inputs import parameters as parameters
    from costmodel.measured import calibrate as calibrate
    from costmodel.pytree import as_floats as as_floats
    from costmodel.pytree import by_identity as by_identity
    from costmodel.pytree import map_leaves as map_leaves
    from costmodel.pytree import register_pytrees as register_pytrees
    from costmodel.register import register_collective as register_collective
    from costmodel.register import register_model as register_model
    from costmodel.register import register_schedule as register_schedule
    from costmodel.semantics import Scalar as Scalar
    from costmodel.semantics import Semantics as Semantics
    from costmodel.semantics import total as total
    from costmodel.shown import Shown as Shown
    from costmodel.specs import load_cluster as load_cluster
    from costmodel.specs import load_plan as load_plan
    from costmodel.specs import load_workload as load_workload
    from costmodel.specs import violations as violations

door.hang(__name__)
