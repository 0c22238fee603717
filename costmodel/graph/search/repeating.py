"""Orders that repeat: when each block of a microbatch starts, if every microbatch starts one period after the last.

Microbatch m runs block j at s_j + P m. On a device no two blocks may overlap modulo P, and what it holds stays within
its limit. Pipelines that go down their devices and back are solved exactly (`nested`), others depth first over the
blocks, each on its neighbours in the chain and a wait below P later; orders of little waiting come first. Leaving out
what lies before the first and after the last microbatch gives warm-up and cool-down. Spans are cut to a grid of units.
"""

import math
import time
from collections.abc import Iterable, Iterator
from itertools import count, takewhile
from typing import NamedTuple

from costmodel.graph.search.bounds import distance_s, holders, least_distances_s, least_period_s, peak
from costmodel.graph.search.nested import least_wait, nested
from costmodel.graph.search.placements import Placement, check, check_limit


class Repeat(NamedTuple):
    """An order that repeats. Starts and period are in units of the grid; `copies` microbatches start in each period."""

    placement: Placement  # of all microbatches of a period, in units of the grid
    copies: int
    starts: tuple[int, ...]
    period: int
    unit_s: float
    least_period_s: float  # for each microbatch; no order is better
    proved: bool  # that no order of this grid and as many copies has a shorter period
    peak: dict[int, float]  # what each device holds
    seconds: float  # of the search
    period_s: float  # for each microbatch: on the grid, or, of `search`, as played on its own seconds

    @property
    def bubble(self) -> float:
        """How much longer a period is than the work that bounds it."""
        return self.period_s / self.least_period_s - 1


def repeat(
    placement: Placement,
    limit: float,
    *,
    unit_s: float = 1.0,
    transfer_s: float = 0.0,
    copies: int = 1,
    periods: Iterable[int] | None = None,
    shortest: bool = True,
    deadline_s: float = 10.0,
) -> Repeat | None:
    """The repeating order of least period, and of these the least waiting that time allows; None if there is none.

    `periods` are tried in turn (units; by default all from the bound on), and the time for `shortest` ways if wanted.
    Several `copies` share a period where that is shorter for each than one alone. Where blocks form neither chains nor
    trees, an order may be missed.
    """
    check(placement, transfer_s)
    check_limit(limit)
    if copies < 1 or not 0 < unit_s < math.inf:
        raise ValueError(f"`copies` is {copies!r}, `unit_s` {unit_s!r}; expected 1 or more, and a number above 0")
    begun, alone = time.monotonic(), None
    if copies > 1 and periods is None:
        alone = repeat(placement, limit, transfer_s=transfer_s, unit_s=unit_s, deadline_s=0.5 * deadline_s)
    cut, lag = _copied(_cut(placement, unit_s), copies), math.ceil(transfer_s / unit_s - 1e-9)
    bound_s = least_period_s(placement, limit, transfer_s)
    if bound_s == math.inf:
        return None
    least = math.ceil(least_period_s(cut, limit, lag) - 1e-9)
    longest = sum(int(block.seconds) + lag for block in cut) if alone is None else copies * alone.period - 1
    proved, left_s = True, deadline_s - (time.monotonic() - begun)
    chain = nested(cut)
    for period in periods or range(least, longest + 1):
        until = time.monotonic() + 0.5 * left_s
        starts, ended = (None, False) if chain is None else least_wait(chain, period, limit, lag, until, not shortest)
        if starts is None and not ended:
            starts, ended = _Tries(cut, period, limit, lag).best(max(until, time.monotonic() + 0.1 * left_s), shortest)
        left_s = deadline_s - (time.monotonic() - begun)
        if starts is not None:
            held = peak(cut, starts, period)
            period_s, spent_s = period * unit_s / copies, deadline_s - left_s
            return Repeat(cut, copies, starts, period, unit_s, bound_s, proved, held, spent_s, period_s)
        proved = proved and ended
    return alone


def _cut(placement: Placement, unit_s: float) -> Placement:
    """Spans in units, the fewest that hold them."""
    return tuple(block._replace(seconds=max(1, math.ceil(block.seconds / unit_s - 1e-9))) for block in placement)


def _copied(placement: Placement, copies: int) -> Placement:
    """As many microbatches side by side."""
    size, blocks = len(placement), []
    for copy in range(copies):
        blocks += [block._replace(after=tuple(i + copy * size for i in block.after)) for block in placement]
    return tuple(blocks)


_FIRST_NODES = 20_000
"""Blocks placed in a first try that may wait for as long as it likes: most orders are found within a few hundred."""

_Span = tuple[int, int, float, bool]
"""From when to when a device holds how much, and whether its start is placed already."""


class _Tries:
    """One depth-first search at one period."""

    def __init__(self, placement: Placement, period: int, limit: float, lag: int) -> None:
        self.placement, self.period, self.limit, self.lag = placement, period, limit, lag
        self.turns = _turns(placement)
        self.pairs, self.far = holders(placement), least_distances_s(placement, lag)
        self.devices = {device: k for k, device in enumerate(self.pairs)}
        order = [turn[0] for turn in self.turns]
        self.later = [self._spans(order[i:]) for i in range(len(order) + 1)]
        self.packed: dict[tuple[tuple[int, ...], tuple[int, ...]], bool] = {}
        self.until = self.left = math.inf

    def best(self, until: float, shortest: bool) -> tuple[tuple[int, ...] | None, bool]:
        """The order of least waiting in the time that there is, and whether the search came to its end."""
        self.until, found, ended = until, None, True
        most = (self.period - 1) * len(self.placement)
        rising = takewhile(lambda budget: budget < most, (self.period << n for n in count()))
        for budget, nodes in ((most, _FIRST_NODES), *((budget, math.inf) for budget in (*rising, most))):
            found, ended = self._tried(budget, nodes)
            if found is not None or (not ended and nodes == math.inf):
                break
        if found is None:
            return None, ended
        for budget in range(self._waiting(found) * shortest):
            shorter, ended = self._tried(budget, math.inf)
            if shorter is not None or not ended:
                return shorter or found, ended
        return found, True

    def _tried(self, budget: int, nodes: float) -> tuple[tuple[int, ...] | None, bool]:
        """The first order that waits for no more than the budget, and whether all were tried for it."""
        self.left = nodes
        try:
            return self._within(budget), True
        except TimeoutError:
            return None, False

    def _within(self, budget: int) -> tuple[int, ...] | None:
        """The first order that waits for no more than the budget in all."""
        starts = self._deeper(0, {}, [0] * len(self.devices), budget)
        if starts is None:
            return None
        first = min(starts.values())
        return tuple(starts[i] - first for i in range(len(self.placement)))

    def _deeper(self, depth: int, at: dict[int, int], busy: list[int], left: int) -> dict[int, int] | None:
        self.left -= 1
        if self.left < 0 or time.monotonic() > self.until:
            raise TimeoutError
        if depth == len(self.turns):
            return dict(at)
        number = self.turns[depth][0]
        for start, waits in self._starts(depth, at, left):
            taken = self._taken(number, start, busy, depth)
            if taken is None:
                continue
            at[number] = start
            if self._holds(at):
                found = self._deeper(depth + 1, at, taken, left - waits)
                if found is not None:
                    return found
            del at[number]
        return None

    def _starts(self, depth: int, at: dict[int, int], left: int) -> Iterator[tuple[int, int]]:
        """Starts of a block with their waits: after what it waits for, or before what waits for it."""
        number, parent = self.turns[depth]
        if parent is None:
            yield from ((start, 0) for start in range(self.period if depth else 1))
            return
        forward = parent in self.placement[number].after
        ends = [
            at[i] + self._distance(i, number) if forward else at[i] - self._distance(number, i)
            for i in (self.placement[number].after if forward else at)
            if i in at and (forward or number in self.placement[i].after)
        ]
        for wait in range(min(self.period - 1, left) + 1):
            yield (max(ends) + wait if forward else min(ends) - wait), wait

    def _distance(self, producer: int, consumer: int) -> int:
        return round(distance_s(self.placement, producer, consumer, self.lag))

    def _taken(self, number: int, start: int, busy: list[int], depth: int) -> list[int] | None:
        """Devices with the block; None where it overlaps, or leaves no holes for what is still to come."""
        block, taken = self.placement[number], list(busy)
        mask = _mask(int(block.seconds), start % self.period, self.period)
        for device in block.devices:
            place = self.devices[device]
            if mask is None or busy[place] & mask:
                return None
            taken[place] |= mask
            if not self._packs(_holes(taken[place], self.period), self.later[depth + 1][place]):
                return None
        return taken

    def _packs(self, holes: tuple[int, ...], spans: tuple[int, ...]) -> bool:
        """Whether spans fit into holes, longest first."""
        if not spans:
            return True
        key = (holes, spans)
        if key not in self.packed:
            self.packed[key] = any(
                self._packs(tuple(sorted((*holes[:k], hole - spans[0], *holes[k + 1 :]))), spans[1:])
                for k, hole in enumerate(holes)
                if hole >= spans[0] and hole not in holes[:k]
            )
        return self.packed[key]

    def _holds(self, at: dict[int, int]) -> bool:
        """Whether memory stays within the limit: a pair of which one end is placed counts with its least distance."""
        for pairs in self.pairs.values():
            known = [self._span(i, j, at) for i, j in pairs if i in at or j in at]
            most = (self._live(known, taken) if placed else 0.0 for taken, _, _, placed in known)
            alone = (-(-(freed - taken) // self.period) * held for taken, freed, held, _ in known)
            if max(*most, *alone, 0.0, 0.0) > self.limit:
                return False
        return True

    def _span(self, taker: int, freer: int, at: dict[int, int]) -> _Span:
        least = round(self.far[taker][freer])
        taken, freed = at.get(taker, at.get(freer, 0) - least), at.get(freer, at.get(taker, 0) + least)
        return taken, freed, self.placement[taker].held, taker in at

    def _live(self, spans: list[_Span], when: int) -> float:
        period = self.period
        return sum(held * ((when - taken) // period - (when - freed) // period) for taken, freed, held, _ in spans)

    def _spans(self, numbers: list[int]) -> list[tuple[int, ...]]:
        """Spans still to come on each device, longest first."""
        blocks = [self.placement[i] for i in numbers]
        return [tuple(sorted((int(b.seconds) for b in blocks if d in b.devices), reverse=True)) for d in self.devices]

    def _waiting(self, starts: tuple[int, ...]) -> int:
        """What all blocks wait together, beyond what they wait for."""
        return sum(self._gap(number, parent, starts) for number, parent in self.turns if parent is not None)

    def _gap(self, number: int, parent: int, starts: tuple[int, ...]) -> int:
        if parent in self.placement[number].after:
            ends = [starts[i] + self._distance(i, number) for i in self.placement[number].after]
            return starts[number] - max(ends)
        return starts[parent] - self._distance(number, parent) - starts[number]


def _turns(placement: Placement) -> list[tuple[int, int | None]]:
    """Blocks with the neighbour that each hangs on, from where chains join outwards; another chain hangs on none."""
    size = len(placement)
    root = max(range(size), key=lambda i: (len(placement[i].after), -i))
    root = root if len(placement[root].after) > 1 else 0
    turns: list[tuple[int, int | None]] = [(root, None)]
    seen, at = {root}, 0
    while len(turns) < size:
        if at == len(turns):
            turns.append((next(i for i in range(size) if i not in seen), None))
            seen.add(turns[-1][0])
        here = turns[at][0]
        near = [i for i in range(size) if i not in seen and (here in placement[i].after or i in placement[here].after)]
        turns += [(i, here) for i in near]
        seen.update(near)
        at += 1
    return turns


def _mask(span: int, start: int, period: int) -> int | None:
    """The units of a period that a block takes, as bits."""
    if span > period:
        return None
    bits = ((1 << span) - 1) << start
    return (bits | bits >> period) & ((1 << period) - 1)


def _holes(busy: int, period: int) -> tuple[int, ...]:
    """Lengths of the free stretches of a period, round and round."""
    if not busy:
        return (period,)
    first = next(unit for unit in range(period) if busy >> unit & 1)
    free = "".join("x" if busy >> (first + unit) % period & 1 else "." for unit in range(period))
    return tuple(sorted(len(hole) for hole in free.split("x") if hole))
