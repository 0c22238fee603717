"""Orders that repeat: placements of blocks on devices, periods of least bubble, warm-up, cool-down, bounds."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.graph.search.bounds import least_makespan_s as least_makespan_s
    from costmodel.graph.search.bounds import least_period_s as least_period_s
    from costmodel.graph.search.placements import LIMITS as LIMITS
    from costmodel.graph.search.placements import PlacedBlock as PlacedBlock
    from costmodel.graph.search.placements import Placement as Placement
    from costmodel.graph.search.placements import chain as chain
    from costmodel.graph.search.placements import placements as placements
    from costmodel.graph.search.repeating import Repeat as Repeat
    from costmodel.graph.search.repeating import repeat as repeat
    from costmodel.graph.search.schedules import found_schedule as found_schedule
    from costmodel.graph.search.search import search as search
    from costmodel.graph.search.unrolled import Operation as Operation
    from costmodel.graph.search.unrolled import Unrolled as Unrolled
    from costmodel.graph.search.unrolled import in_order as in_order
    from costmodel.graph.search.unrolled import unroll as unroll

door.hang(__name__)
