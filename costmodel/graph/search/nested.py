"""The best repeating order of a pipeline that goes down its devices and back, exactly: by dynamic programming.

Where every microbatch runs one block on each device in turn, then one on each in reverse, with blocks that all devices
share in between, the residues of the shared blocks modulo the period leave each device a few places for its two blocks.
Given these, a device's activations live for as long as those of the next one and the two ways to it and back; so the
least is found from the last device outwards. Shared blocks are enumerated.
"""

import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from costmodel.graph.search.placements import Placement

Place = tuple[int, int]
"""Residues of the two blocks of a device."""


class Nested(NamedTuple):
    """A chain of blocks as ways: the shared blocks in front of each block of one device, and behind the last."""

    placement: Placement
    down: tuple[int, ...]
    up: tuple[int, ...]  # on the same devices, from the last one back
    ways: dict[int, tuple[int, ...]]
    shared: tuple[int, ...]


def nested(placement: Placement) -> Nested | None:
    """A placement read as one, if it is one."""
    if any(block.after != ((i - 1,) if i else ()) for i, block in enumerate(placement)):
        return None
    everyone = {d for block in placement for d in block.devices}
    alone = [i for i, block in enumerate(placement) if len(block.devices) == 1]
    shared = tuple(i for i, block in enumerate(placement) if set(block.devices) == everyone and len(everyone) > 1)
    down, up = tuple(alone[: len(alone) // 2]), tuple(alone[len(alone) // 2 :])
    whole = len(alone) + len(shared) == len(placement) and len(down) == len(up) == len(everyone)
    matched = [placement[i].devices for i in down] == [placement[i].devices for i in reversed(up)]
    holding = all(placement[i].held == 0 for i in shared) and all(placement[i].held >= 0 for i in down)
    if not (whole and matched and holding):
        return None
    ways = {i: tuple(range(before + 1, i)) for before, i in itertools.pairwise((-1, *alone, len(placement)))}
    return Nested(placement, down, up, ways, shared)


def least_wait(
    found: Nested, period: int, limit: float, lag: int, until: float, first: bool
) -> tuple[tuple[int, ...] | None, bool]:
    """Starts of least time from a microbatch's first block to its last, and whether all was tried.

    The `first` order within the limit will do where least waiting is not asked for.
    """
    best: tuple[int, ...] | None = None
    for at in _shared(found, period):
        if time.monotonic() > until:
            return best, False
        starts = _from_inside(found, at, period, limit, lag)
        if starts is not None and (best is None or starts[-1] - starts[0] < best[-1] - best[0]):
            best = starts
            if first:
                break
    return best, True


def _shared(found: Nested, period: int) -> Iterator[dict[int, int]]:
    """Residues of the shared blocks that do not overlap; the first one stands at 0."""
    spans = [int(found.placement[i].seconds) for i in found.shared]
    for rest in itertools.product(range(period), repeat=max(0, len(spans) - 1)):
        residues = (0, *rest)[: len(spans)]
        taken = [(r + unit) % period for r, span in zip(residues, spans, strict=True) for unit in range(span)]
        if len(taken) == len(set(taken)):
            yield dict(zip(found.shared, residues, strict=True))


def _places(found: Nested, device: int, taken: set[int], period: int, alone: bool) -> list[Place]:
    """Where a device's two blocks do not overlap; where no block is shared, the first one stands at 0."""
    down, up = (int(found.placement[i].seconds) for i in (found.down[device], found.up[-1 - device]))
    places = []
    for first in range(1 if alone else period):
        own = {(first + unit) % period for unit in range(down)}
        if down > period or own & taken:
            continue
        for second in range(period if up <= period else 0):
            if not {(second + unit) % period for unit in range(up)} & (own | taken):
                places.append((first, second))
    return places


def _from_inside(found: Nested, at: dict[int, int], period: int, limit: float, lag: int) -> tuple[int, ...] | None:
    """The last device's blocks, then those of each one before it: for each place the least time that lies between."""
    taken = {(r + unit) % period for i, r in at.items() for unit in range(int(found.placement[i].seconds))}
    size, chosen = len(found.down), []
    for device in reversed(range(size)):
        down, up = found.down[device], found.up[-1 - device]
        inner = chosen[-1] if chosen else {}
        here: dict[Place, tuple[int, Place | None]] = {}
        for place in _places(found, device, taken, period, device == 0 and not found.shared):
            between: tuple[int, Place | None] = _way(found, down, up, place, at, period, 0)[0], None
            if device < size - 1:
                nearer, back = found.down[device + 1], found.up[-2 - device]
                there = {o: _way(found, down, nearer, (place[0], o[0]), at, period, lag)[0] for o in inner}
                home = {o: _way(found, back, up, (o[1], place[1]), at, period, lag)[0] for o in inner}
                between = min((there[o] + held + home[o], o) for o, (held, _) in inner.items())
            if found.placement[down].held * math.ceil(between[0] / period) <= limit:
                here[place] = between
        if not here:
            return None
        chosen.append(here)
    return _starts(found, at, chosen[::-1], period, lag)


def _way(
    found: Nested, start: int, end: int, residues: Place, at: dict[int, int], period: int, lag: int
) -> tuple[int, list[int]]:
    """From the start of a block to that of the next one of a device, by the shared blocks between; and their starts."""
    now, passed = residues[0] + int(found.placement[start].seconds), []
    for i in found.ways[end]:
        now += (at[i] - now) % period
        passed.append(now - residues[0])
        now += int(found.placement[i].seconds)
    now += 0 if found.ways[end] else lag
    return now + (residues[1] - now) % period - residues[0], passed


def _starts(
    found: Nested, at: dict[int, int], chosen: Sequence[dict[Place, tuple[int, Place | None]]], period: int, lag: int
) -> tuple[int, ...]:
    """All starts: the first device's best place, then inwards what it was reached from."""

    def ends_s(place: Place) -> int:
        """Seconds between the first block of the chain and the last one."""
        first, last = _outer(found, at, place, period)
        return first + chosen[0][place][0] + last

    place: Place | None = min(chosen[0], key=ends_s)
    places = []
    for here in chosen:
        assert place is not None
        places.append(place)
        place = here[place][1]
    blocks = [*found.down, *found.up]
    residues = [place[0] for place in places] + [place[1] for place in reversed(places)]
    starts = {blocks[0]: residues[0]}
    for (a, b), pair in zip(itertools.pairwise(blocks), itertools.pairwise(residues), strict=True):
        turn = found.placement[a].devices == found.placement[b].devices
        far, passed = _way(found, a, b, pair, at, period, 0 if turn else lag)
        starts |= {i: starts[a] + start for i, start in zip(found.ways[b], passed, strict=True)}
        starts[b] = starts[a] + far
    now = starts[blocks[0]]
    for i in reversed(found.ways[blocks[0]]):
        now -= int(found.placement[i].seconds)
        now -= (now - at[i]) % period
        starts[i] = now
    now = starts[blocks[-1]] + int(found.placement[blocks[-1]].seconds)
    for i in found.ways[len(found.placement)]:
        now += (at[i] - now) % period
        starts[i] = now
        now += int(found.placement[i].seconds)
    return tuple(starts[i] - min(starts.values()) for i in range(len(found.placement)))


def _outer(found: Nested, at: dict[int, int], place: Place, period: int) -> Place:
    """Time of the shared blocks in front of the first device's block, and behind its last one."""
    now = place[0]
    for i in reversed(found.ways[found.down[0]]):
        now -= int(found.placement[i].seconds)
        now -= (now - at[i]) % period
    end = place[1] + int(found.placement[found.up[-1]].seconds)
    for i in found.ways[len(found.placement)]:
        end += (at[i] - end) % period + int(found.placement[i].seconds)
    return place[0] - now, end - place[1]
