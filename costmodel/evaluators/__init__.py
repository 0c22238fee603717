"""Ways to evaluate the formulas: one plan exactly, compiled batches, dual numbers."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.evaluators import compiled as compiled
    from costmodel.evaluators import dual as dual
    from costmodel.evaluators.compiled import batch_cost as batch_cost
    from costmodel.evaluators.dual import DIRECTIONAL as DIRECTIONAL
    from costmodel.evaluators.dual import SUBGRADIENT as SUBGRADIENT
    from costmodel.evaluators.dual import Dual as Dual
    from costmodel.evaluators.dual import DualNumbers as DualNumbers
    from costmodel.evaluators.dual import log_gradient as log_gradient
    from costmodel.evaluators.dual import one_sided as one_sided
    from costmodel.evaluators.evaluate import evaluate as evaluate
    from costmodel.evaluators.numbering import FREE as FREE
    from costmodel.evaluators.numbering import numbered as numbered
    from costmodel.evaluators.prepare import prepare as prepare
    from costmodel.evaluators.programs import COMPILER_OPTIONS as COMPILER_OPTIONS
    from costmodel.evaluators.programs import anonymous as anonymous
    from costmodel.evaluators.programs import in_jax as in_jax
    from costmodel.evaluators.stage_memory import memory_by_stage as memory_by_stage

door.hang(__name__)
