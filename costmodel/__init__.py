"""Equipoise's cost model: what a training step costs, as a differentiable function of plan and hardware.

Importing it does not import JAX; the classes become pytrees as soon as JAX is in the process.
"""

from costmodel.breakdown import Breakdown as Breakdown
from costmodel.cluster import Accelerator as Accelerator
from costmodel.cluster import Cluster as Cluster
from costmodel.cluster import Tier as Tier
from costmodel.cost import Cost as Cost
from costmodel.cost import as_floats as as_floats
from costmodel.cost import cost as cost
from costmodel.cost import parts as parts
from costmodel.evaluate import evaluate as evaluate
from costmodel.evaluate import memory_by_stage as memory_by_stage
from costmodel.evaluate import prepare as prepare
from costmodel.plan import Plan as Plan
from costmodel.plan import PlanPoint as PlanPoint
from costmodel.plan import embed as embed
from costmodel.semantics import Exact as Exact
from costmodel.semantics import Smooth as Smooth
from costmodel.specs import load_cluster as load_cluster
from costmodel.specs import load_plan as load_plan
from costmodel.specs import load_workload as load_workload
from costmodel.stack import Stack as Stack
from costmodel.violations import violations as violations
from costmodel.workload import Workload as Workload
from costmodel.workload import model_flop as model_flop
from costmodel.workload import parameters as parameters
