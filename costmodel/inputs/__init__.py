"""What a step is made of: workload, cluster, stack, plan, the rows of its options, prices. Plain data."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.inputs import options as options
    from costmodel.inputs.cluster import Cluster as Cluster
    from costmodel.inputs.embedding import embed as embed
    from costmodel.inputs.embedding import extra_layers as extra_layers
    from costmodel.inputs.hardware import PRECISION_WIDTHS as PRECISION_WIDTHS
    from costmodel.inputs.hardware import Accelerator as Accelerator
    from costmodel.inputs.hardware import Tier as Tier
    from costmodel.inputs.options import MODULES as MODULES
    from costmodel.inputs.options import PRECISION_TYPES as PRECISION_TYPES
    from costmodel.inputs.options import PRECISIONS as PRECISIONS
    from costmodel.inputs.options import RECOMPUTES as RECOMPUTES
    from costmodel.inputs.options import ZERO_STAGES as ZERO_STAGES
    from costmodel.inputs.options import AttentionRow as AttentionRow
    from costmodel.inputs.options import MethodRow as MethodRow
    from costmodel.inputs.options import ModuleRow as ModuleRow
    from costmodel.inputs.options import OverlapRow as OverlapRow
    from costmodel.inputs.options import RecomputeRow as RecomputeRow
    from costmodel.inputs.options import ZeroRow as ZeroRow
    from costmodel.inputs.options import modules_of as modules_of
    from costmodel.inputs.plan import Offload as Offload
    from costmodel.inputs.plan import Plan as Plan
    from costmodel.inputs.plan import PlanPoint as PlanPoint
    from costmodel.inputs.plan import layers as layers
    from costmodel.inputs.prices import PriceRange as PriceRange
    from costmodel.inputs.prices import Prices as Prices
    from costmodel.inputs.prices import TierPrices as TierPrices
    from costmodel.inputs.schedules import OWN_SCHEDULES as OWN_SCHEDULES
    from costmodel.inputs.schedules import SCHEDULES as SCHEDULES
    from costmodel.inputs.schedules import Schedule as Schedule
    from costmodel.inputs.schedules import ScheduleRow as ScheduleRow
    from costmodel.inputs.schedules import schedule_rows as schedule_rows
    from costmodel.inputs.software import ALSO_KNOWN_AS as ALSO_KNOWN_AS
    from costmodel.inputs.software import COMPILED as COMPILED
    from costmodel.inputs.software import DEEPSPEED_BUCKETS as DEEPSPEED_BUCKETS
    from costmodel.inputs.software import EAGER_NORM_BYTES as EAGER_NORM_BYTES
    from costmodel.inputs.software import GATHERED_LOSS_BYTES as GATHERED_LOSS_BYTES
    from costmodel.inputs.software import NEVER_MEASURED as NEVER_MEASURED
    from costmodel.inputs.software import SOFTWARE as SOFTWARE
    from costmodel.inputs.software import XLA_OFFLOADED as XLA_OFFLOADED
    from costmodel.inputs.software import XLA_SELECTIVE as XLA_SELECTIVE
    from costmodel.inputs.stack import Habits as Habits
    from costmodel.inputs.stack import Stack as Stack
    from costmodel.inputs.turns import Turn as Turn
    from costmodel.inputs.turns import Turns as Turns
    from costmodel.inputs.workload import LOGITS as LOGITS
    from costmodel.inputs.workload import PIECES as PIECES
    from costmodel.inputs.workload import AttentionKernel as AttentionKernel
    from costmodel.inputs.workload import Block as Block
    from costmodel.inputs.workload import Kind as Kind
    from costmodel.inputs.workload import Module as Module
    from costmodel.inputs.workload import Op as Op
    from costmodel.inputs.workload import Position as Position
    from costmodel.inputs.workload import Role as Role
    from costmodel.inputs.workload import Saved as Saved
    from costmodel.inputs.workload import Size as Size
    from costmodel.inputs.workload import Sizes as Sizes
    from costmodel.inputs.workload import Split as Split
    from costmodel.inputs.workload import Workload as Workload
    from costmodel.inputs.workload import active_parameters as active_parameters
    from costmodel.inputs.workload import are_pieces as are_pieces
    from costmodel.inputs.workload import is_expert as is_expert
    from costmodel.inputs.workload import model_flop as model_flop
    from costmodel.inputs.workload import parameters as parameters
    from costmodel.inputs.workload import whole as whole

door.hang(__name__)
