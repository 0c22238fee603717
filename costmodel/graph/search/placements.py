"""What one microbatch does and where: blocks on devices, in chains that may join.

The named placements are those of Tessel (Lin et al. 2024, HPCA; the authors' code): forward passes of 1, backward
passes of 3, blocks that all devices share of 1, and activations held from F to B.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import NamedTuple


class PlacedBlock(NamedTuple):
    """One operation of a microbatch, on one device or at the same time on several."""

    name: str
    devices: tuple[int, ...]
    seconds: float
    held: float  # what each of its devices holds more from its start on; negative where it frees
    after: tuple[int, ...]  # numbers of the blocks that it waits for


Placement = tuple[PlacedBlock, ...]


def check(placement: Placement, transfer_s: float = 0.0) -> None:
    """Raise a `ValueError` that names the block which no device can run, or which waits for what comes later."""
    if not _number(transfer_s, 0.0):
        raise ValueError(f"`transfer_s` is {transfer_s!r}; expected a finite number >= 0")
    if not placement:
        raise ValueError("a placement has no blocks; expected one at least")
    for i, block in enumerate(placement):
        wrong = [
            (not _places(block.devices), f"runs on devices {block.devices}", "one or more, from 0 on"),
            (not _number(block.seconds, 0.0), f"takes {block.seconds!r} s", "a finite number >= 0"),
            (not _number(block.held), f"holds {block.held!r}", "a finite number"),
            (not set(block.after) <= set(range(i)), f"waits for blocks {block.after}", f"those before it, below {i}"),
        ]
        for _, told, expected in (each for each in wrong if each[0]):
            raise ValueError(f"block {block.name} {told}; expected {expected}")
    if not any(block.seconds for block in placement):
        raise ValueError(f"blocks {placement[0].name} to {placement[-1].name} take no time; expected some that do")


def check_limit(limit: float) -> None:
    """Raise a `ValueError` for what is no number of live microbatches."""
    if not isinstance(limit, Real) or math.isnan(limit):
        raise ValueError(f"`limit` is {limit!r}; expected the live microbatches that a device may hold")


def _number(value: object, least: float = -math.inf) -> bool:
    return isinstance(value, Real) and math.isfinite(value) and float(value) >= least


def _places(devices: Sequence[int]) -> bool:
    return bool(devices) and all(isinstance(each, Integral) and each >= 0 for each in devices)


Link = tuple[str, Sequence[int], float, float]
"""A block of a chain: name, devices, seconds, and what is held."""


def chain(links: Iterable[Link], before: Placement = (), after: tuple[int, ...] = ()) -> Placement:
    """Blocks that follow one another, behind those that are there; the first one waits for `after`."""
    blocks = list(before)
    for name, devices, seconds, held in links:
        blocks.append(PlacedBlock(name, tuple(devices), seconds, held, after))
        after = (len(blocks) - 1,)
    return tuple(blocks)


def placements(devices: int = 4, *, forward_s: float = 1.0, backward_s: float = 3.0, shared_s: float = 1.0):
    """The named placements of training on so many devices."""
    everyone, half = range(devices), devices // 2

    def forward(stages: Iterable[int], tag: str = "") -> list[Link]:
        return [(f"F{tag}{d}", [d], forward_s, 1.0) for d in stages]

    def backward(stages: Iterable[int], tag: str = "") -> list[Link]:
        return [(f"B{tag}{d}", [d], backward_s, -1.0) for d in stages]

    def shared(name: str, held: float = 0.0) -> list[Link]:
        return [(name, everyone, shared_s, held)]

    down, up = forward(everyone), backward(reversed(everyone))
    first, second = forward(everyone[:half]), forward(everyone[half:])
    back_second, back_first = backward(reversed(everyone[half:])), backward(reversed(everyone[:half]))
    found: dict[str, Placement] = {
        "V": chain(down + up),
        "X": chain(forward(reversed(everyone), "x") + backward(everyone, "x"), chain(down + up)),
        "M": chain(shared("A") + down + up + shared("A'")),
        "NN": chain(
            shared("E") + first + shared("D") + second + back_second + shared("D'") + back_first + shared("E'")
        ),
        "NN eager": chain(shared("E") + shared("D") + down + up + shared("D'") + shared("E'")),
        "mllm": chain(shared("E") + down + shared("T") + shared("T'") + up + shared("E'")),
        "K": _branches(first, second, shared("J", 1.0) + shared("J'", -1.0), back_second, back_first),
        "alphafold": chain(_recycled(everyone, forward_s)),
    }
    return found


def _branches(
    first: list[Link], second: list[Link], joint: list[Link], back_second: list[Link], back_first: list[Link]
) -> Placement:
    """Two branches that blocks on all devices join, and back."""
    blocks = chain(second, chain(first))
    blocks = chain(joint, blocks, (len(first) - 1, len(blocks) - 1))
    turn = (len(blocks) - 1,)
    return chain(back_first, chain(back_second, blocks, turn), turn)


def _recycled(devices: Sequence[int], forward_s: float) -> list[Link]:
    """Three forward passes through all stages, of which the last one keeps activations, and one backward pass."""
    forwards: list[Link] = [(f"F{r}{d}", [d], forward_s, float(r == 3)) for r in (1, 2, 3) for d in devices]
    return forwards + [(f"B{d}", [d], forward_s, -1.0) for d in reversed(devices)]


LIMITS: Mapping[str, float] = {
    "V": 4,
    "X": 4,
    "M": 6,
    "NN": 6,
    "NN eager": 6,
    "mllm": 6,
    "K": 6,
    "alphafold": 8,
}
"""Live microbatches of each device, on four devices, within which Tessel's orders were searched."""
