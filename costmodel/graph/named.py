"""Named plans that stand in no table of schedules: orders of microbatches on devices, to be played by `play` and `run`.

GPipe, 1F1B, interleaved, ZB-H1, ZB-H2, ZB-V and DualPipe are schedules of `Plan` (`costmodel.inputs.SCHEDULES`).
"""

from collections.abc import Iterator

from costmodel.graph.search import Operation, Placement, chain
from costmodel.inputs import Schedule, ScheduleRow, Turns


def _chimera_order(stages: int, microbatches: int, _: int, device: int) -> Iterator[Turns]:
    """Units of as many microbatches as stages, half of them down and half up, which never want one slot.

    In slots of equal length microbatch i of a way is on the s-th stage that it meets in slots 2i + s and 2(i + p) - s.
    """
    slots = []
    for chunk, met in ((device, device), (2 * stages - 1 - device, stages - 1 - device)):
        for i in range(stages // 2):
            slots += [(2 * i + met, "F", chunk), (2 * i + 2 * stages - 1 - met, "B", chunk)]
    for _unit in range(microbatches // stages):
        yield from ((kind, chunk) for _, kind, chunk in sorted(slots))


CHIMERA = Schedule(row=ScheduleRow(both_ways=1.0), order=_chimera_order, short="Chimera")
"""Chimera's direct schedule (Li and Hoefler 2021): an even number of stages, microbatches a multiple of it."""


def with_shared_blocks(placement: Placement, microbatches: int) -> list[Operation]:
    """1F1B of a placement whose first or inner blocks all devices share: each shared block is a row of its own.

    On 1F1B's grid stage s of p runs F of microbatch m in row s + 2m and B in row 2m + 2p - 1 - s; a shared forward
    block comes just before the forward pass that waits for it, a backward one just after the pass that it waits for.
    Source: the baseline of Tessel (Lin et al. 2024).
    """
    stages = max(max(block.devices) for block in placement) + 1
    follower = {j: i for i, block in enumerate(placement) for j in block.after}

    def row(m: int, i: int) -> tuple[float, int]:
        block = placement[i]
        if len(block.devices) == 1:
            forward = block.held > 0
            return (block.devices[0] + 2 * m if forward else 2 * m + 2 * stages - 1 - block.devices[0]), 0
        near = follower.get(i)
        if near is not None and placement[near].held > 0:
            return row(m, near)[0], -1
        return row(m, block.after[0])[0], 1

    listed = sorted((row(m, i), m, i) for m in range(microbatches) for i in range(len(placement)))
    return [(m, i) for _, m, i in listed]


def recycled(stages: int, forward_s: float, backward_s: float, passes: int = 2) -> Placement:
    """A microbatch of AlphaFold2: forward passes that keep nothing, one that does, and its backward pass.

    A pass does not wait for the one before it: as in its authors' runtime, which feeds it other data meanwhile.
    """
    blocks: Placement = ()
    for r in range(passes + 1):
        blocks = chain([(f"F{r}.{d}", [d], forward_s, float(r == passes)) for d in range(stages)], blocks)
    back = [(f"B{d}", [d], backward_s, -1.0) for d in reversed(range(stages))]
    return chain(back, blocks, (len(blocks) - 1,))


def n_forwards_one_backward(stages: int, microbatches: int, passes: int = 2) -> list[Operation]:
    """3F1B (for two passes that keep nothing): operations of `recycled`, device by device.

    Forwards of the first passes warm up, each pass one microbatch behind the one before it; then in turn a forward of
    each pass, the last one for the training, and a backward that trails by the stages behind. Source: nnScaler's.
    """
    listed: list[Operation] = []
    for s in range(stages):
        forward = [r * stages + s for r in range(passes + 1)]
        backward = (passes + 1) * stages + stages - 1 - s
        turns = [(k, forward[r - k]) for r in range(passes) for k in range(r + 1)]
        for m in range(microbatches + stages - 1 - s):
            turns += [(m + passes - r, forward[r]) for r in reversed(range(passes + 1))][1:]
            turns += [(m, forward[passes]), (m - (stages - 1 - s), backward)]
        listed += [(m, i) for m, i in turns if 0 <= m < microbatches]
    return listed
