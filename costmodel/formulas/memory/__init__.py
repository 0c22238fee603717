"""Bytes on one accelerator of each pipeline stage: the terms, the moments at which they meet, the peak."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.formulas.memory.layers import StageKind as StageKind
    from costmodel.formulas.memory.stages import HELD as HELD
    from costmodel.formulas.memory.stages import MOMENTS as MOMENTS
    from costmodel.formulas.memory.stages import SECOND as SECOND
    from costmodel.formulas.memory.stages import MemoryUse as MemoryUse
    from costmodel.formulas.memory.stages import StageMemory as StageMemory
    from costmodel.formulas.memory.stages import allocated_bytes as allocated_bytes
    from costmodel.formulas.memory.stages import at_moment as at_moment
    from costmodel.formulas.memory.stages import device_bytes as device_bytes
    from costmodel.formulas.memory.stages import passing_bytes as passing_bytes
    from costmodel.formulas.memory.stages import peak as peak
    from costmodel.formulas.memory.stages import reserved_bytes as reserved_bytes
    from costmodel.formulas.memory.terms import gathered_bytes as gathered_bytes
    from costmodel.formulas.memory.terms import in_flight as in_flight
    from costmodel.formulas.memory.terms import limit_bytes as limit_bytes
    from costmodel.formulas.memory.terms import memory as memory
    from costmodel.formulas.memory.terms import stage_memory as stage_memory
    from costmodel.formulas.memory.terms import working_bytes as working_bytes

door.hang(__name__)
