"""The best repeating order of a placement, whatever its spans: on grids that grow finer, played on its own seconds."""

import time

from costmodel.graph.search.placements import Placement, check, check_limit
from costmodel.graph.search.repeating import Repeat, repeat
from costmodel.graph.search.unrolled import unroll

UNITS = (6, 10, 16, 24, 40)
"""Units of the least period in each grid, where spans are no whole numbers."""

_PLAYED = 24  # periods after which a played order is steady, and as many to see its pace


def search(
    placement: Placement,
    limit: float,
    *,
    transfer_s: float = 0.0,
    copies: int = 1,
    shortest: bool = True,
    deadline_s: float = 10.0,
) -> Repeat | None:
    """The order of least period within the live microbatches that each device may hold; None if none was found.

    The `shortest` of these waits least from a microbatch's start to its end, and so holds least: as time allows.
    """
    check(placement, transfer_s)
    check_limit(limit)
    begun, best = time.monotonic(), None
    grids = _grids_s(placement, transfer_s)
    for place, unit_s in enumerate(grids):
        left_s = deadline_s - (time.monotonic() - begun)
        ways = {"transfer_s": transfer_s, "copies": copies, "deadline_s": left_s / (len(grids) - place)}
        order = repeat(placement, limit, unit_s=unit_s, shortest=shortest, **ways)
        if order is None:
            continue
        order = order._replace(period_s=_period_s(placement, order, transfer_s))
        if best is None or order.period_s < best.period_s:
            best = order
        if best.bubble < 1e-9:
            break
    return None if best is None else best._replace(seconds=time.monotonic() - begun)


def _grids_s(placement: Placement, transfer_s: float) -> tuple[float, ...]:
    """The unit itself for whole spans."""
    spans = [*(block.seconds for block in placement), transfer_s]
    if all(abs(span - round(span)) < 1e-9 for span in spans):
        return (1.0,)
    busiest_s = max(sum(b.seconds for b in placement if d in b.devices) for b in placement for d in b.devices)
    return tuple(busiest_s / units for units in UNITS)


def _period_s(placement: Placement, order: Repeat, transfer_s: float) -> float:
    """Seconds from one microbatch to the next in the steady state."""
    count = _PLAYED * order.copies
    short, long = (unroll(placement, order, m, transfer_s=transfer_s).makespan_s for m in (count, 2 * count))
    return (long - short) / count
