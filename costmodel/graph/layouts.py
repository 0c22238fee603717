r"""How a tensor lies on devices, and the cheapest communication that turns one layout into another.

A layout of a tensor of k dimensions on n devices is $(R, V, D_1 \ldots D_k)$: replicas, value splits (partial sums) and
splits of each dimension, whose product is n. One step lets one of them fall by a factor c and one other rise by it; the
cheapest way is a shortest path over layouts. Between two groups of devices the path leaves the producer's layouts for
the consumer's in one step that changes at most one of the numbers.

Source: nnScaler's `rvd/intra.py` and `rvd/inter.py` (Lin et al. 2024); its search settles layouts out of order, which
is not copied.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from costmodel.exact import Exact
from costmodel.formulas import COLLECTIVES, ranks_by_tier
from costmodel.inputs import Cluster

Layout = tuple[int, ...]
"""Replicas, value splits, and splits by dimension."""


class Step(NamedTuple):
    """One communication, and the layout that it leads to."""

    primitive: str
    factor: int  # ranks that take part in each group of it
    elements: float  # that each device has before it
    devices: int
    layout: Layout
    crosses: bool = False  # between the two groups of devices


Way = tuple[tuple[Step, ...], float]
"""A path from one layout to another, and what it costs."""

Cost = Callable[[Step], float]
"""What a step costs: elements that a device moves (`moved`), or seconds (`seconds_on`)."""

_KINDS = {("R", "V"): "value chunk", ("R", "D"): "chunk", ("V", "R"): "all-reduce", ("V", "D"): "reduce-scatter"}
_KINDS |= {("D", "R"): "all-gather", ("D", "D"): "all-to-all"}

_CROSSING = {
    ("R", True): "broadcast",
    ("R", False): "move from one",
    ("V", True): "value scatter",
    ("V", False): "value gather",
    ("D", True): "scatter",
    ("D", False): "gather",
}


def layouts(devices: int, shape: Sequence[int]) -> list[Layout]:
    """Every layout of a tensor on so many devices: splits divide their dimension."""
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    found = product(divisors, divisors, *([d for d in divisors if n % d == 0] for n in shape))
    return [layout for layout in found if math.prod(layout) == devices]


def elements(layout: Layout, shape: Sequence[int]) -> float:
    """Elements of a tensor that each device has."""
    return math.prod(shape) / math.prod(layout[2:])


def steps(layout: Layout, shape: Sequence[int]) -> Iterator[Step]:
    """All that one communication inside a group of devices leads to."""
    size, devices = elements(layout, shape), math.prod(layout)
    for fall, value in enumerate(layout):
        for factor in (c for c in range(2, value + 1) if value % c == 0):
            for rise in range(len(layout)):
                primitive = _KINDS.get((_letter(fall), _letter(rise)))
                if rise == fall or primitive is None:
                    continue
                after = _changed(layout, fall, value // factor, rise, layout[rise] * factor)
                if all(n % d == 0 for n, d in zip(shape, after[2:], strict=True)):
                    yield Step(primitive, factor, size, devices, after)


def crossings(layout: Layout, others: Sequence[Layout], shape: Sequence[int]) -> Iterator[Step]:
    """The same from one group of devices to another one, whose layouts are `others`."""
    size, devices = elements(layout, shape), math.prod(layout)
    for after in others:
        changed = [i for i, (a, b) in enumerate(zip(layout, after, strict=True)) if a != b]
        if len(changed) > 1:
            continue
        at = changed[0] if changed else 0
        larger, smaller = max(layout[at], after[at]), min(layout[at], after[at])
        if larger % smaller:
            continue
        primitive = _CROSSING[_letter(at), after[at] > layout[at]] if changed else "move"
        received = math.prod(after) * elements(after, shape)
        sent = devices * size if primitive in ("value scatter", "value gather") else received
        yield Step(primitive, larger // smaller, sent / devices, devices, after, crosses=True)


def moved(step: Step) -> float:
    """Elements that each device moves, and one for the step itself; between groups all that crosses their link."""
    c, size = step.factor, step.elements
    inside = {
        "all-gather": (c - 1) * size,
        "all-reduce": 2 * (c - 1) * size / c,
        "reduce-scatter": (c - 1) * size / c,
        "all-to-all": (c - 1) * size / c,
    }
    return 1 + (step.devices * size if step.crosses else inside.get(step.primitive, 0.0))


def seconds_on(cluster: Cluster, element_bytes: float, stride: int = 1) -> Cost:
    """Seconds of a step by the cluster's own laws, whose groups lie `stride` apart: so that it sees the tiers.

    Between two groups of devices all that crosses passes the outermost tier, shared by the devices that send.
    """
    sem, tiers, stack = Exact(math), cluster.tiers, cluster.stack
    chosen = {"all-gather": ("all_gather", stack.all_gather), "reduce-scatter": ("all_gather", stack.all_gather)}
    chosen |= {"all-reduce": ("all_reduce", stack.all_reduce), "all-to-all": ("all_to_all", stack.all_to_all)}

    def seconds(step: Step) -> float:
        if step.crosses:
            return tiers[-1].latency_s + step.elements * element_bytes / tiers[-1].bandwidth_bytes_per_s
        if step.primitive not in chosen:
            return 0.0
        kind, name = chosen[step.primitive]
        ranks = ranks_by_tier(float(step.factor), float(stride), tiers, float(tiers[0].usable_size), sem)
        law = COLLECTIVES[kind][name](ranks, tiers, stack, sem)
        whole_bytes = element_bytes * step.elements * (step.factor if step.primitive == "all-gather" else 1)
        return law.seconds_per_byte * whole_bytes + law.latency_s + law.ramp * whole_bytes**0.5

    return seconds


def cheapest(start: Layout, end: Layout, shape: Sequence[int], cost: Cost = moved) -> Way:
    """The cheapest way inside a group of devices. Raises a `ValueError` where there is none."""
    _check((start, end), shape)
    return _path(start, end, lambda layout: steps(layout, shape), cost)


def cheapest_across(start: Layout, end: Layout, shape: Sequence[int], cost: Cost = moved) -> Way:
    """The cheapest way from one group of devices to another one."""
    _check((start, end), shape)
    others = layouts(math.prod(end), shape)

    def onward(node: tuple[int, Layout]) -> Iterator[tuple[Step, tuple[int, Layout]]]:
        side, layout = node
        yield from ((step, (side, step.layout)) for step in steps(layout, shape))
        if side == 0:
            yield from ((step, (1, step.layout)) for step in crossings(layout, others, shape))

    return _search((0, start), (1, end), onward, cost)


def _check(given: Sequence[Layout], shape: Sequence[int]) -> None:
    """Layouts of this tensor, whose splits divide its dimensions."""
    for layout in given:
        fits = len(layout) == 2 + len(shape) and all(isinstance(each, int) and each >= 1 for each in layout)
        if not fits or any(n % d for n, d in zip(shape, layout[2:], strict=True)):
            told = f"replicas, value splits and a divisor of each of {tuple(shape)}"
            raise ValueError(f"{tuple(layout)} is no layout of a tensor of {tuple(shape)}; expected {told}")


def _path(start: Layout, end: Layout, onward: Callable[[Layout], Iterator[Step]], cost: Cost) -> Way:
    return _search((0, start), (0, end), lambda node: ((step, (0, step.layout)) for step in onward(node[1])), cost)


def _search(
    start: tuple[int, Layout],
    end: tuple[int, Layout],
    onward: Callable[[tuple[int, Layout]], Iterator[tuple[Step, tuple[int, Layout]]]],
    cost: Cost,
) -> Way:
    """Dijkstra: layouts are settled in the order of what they cost."""
    queue: list[tuple[float, int, tuple[int, Layout], tuple[Step, ...]]] = [(0.0, 0, start, ())]
    settled, number = set(), 0
    while queue:
        spent, _, node, taken = heapq.heappop(queue)
        if node == end:
            return taken, spent
        if node in settled:
            continue
        settled.add(node)
        for step, after in onward(node):
            if after not in settled:
                number += 1
                heapq.heappush(queue, (spent + cost(step), number, after, (*taken, step)))
    raise ValueError(f"no communication turns layout {start[1]} into {end[1]}; expected one of the same tensor")


def _letter(place: int) -> str:
    return "RV"[place] if place < 2 else "D"


def _changed(layout: Layout, fall: int, fallen: int, rise: int, risen: int) -> Layout:
    after = list(layout)
    after[fall], after[rise] = fallen, risen
    return tuple(after)
