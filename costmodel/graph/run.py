r"""An explicit order of operations played out: the longest path through its cells, one array program.

With $s$ the seconds of an operation, $l$ the lag of what comes from another device and $e$ the ends of all before,

$$e_i = s_i + \max(e_{\text{before it on its device}}, \max_j (e_j + l_{ij}))$$

level by level: a scan in JAX, a loop over the levels in NumPy. Costs are tables by class of operation and of lag, whose
last axes are a batch. The gradient of the makespan is the critical path: how often it runs through each class.
"""

from typing import Any, NamedTuple

import numpy as np

from costmodel.exact import Exact
from costmodel.graph.graph import Graph
from costmodel.graph.sweep import makespan_of, sweep, tables
from costmodel.pytree import pytree
from costmodel.semantics import Scalar


@pytree
class Costs:
    """What operations take, by class, and what is felt of the way between two devices, by class of lag."""

    seconds: Any
    lags_s: Any
    taken_bytes: Any = 0.0  # from the start of each operation
    freed_bytes: Any = 0.0  # at its end


class PlayedGraph(NamedTuple):
    """An order played out. Operations as `graph_of` got them; a device is busy or idle all the makespan."""

    makespan_s: Scalar
    starts_s: Scalar
    ends_s: Scalar
    busy_s: Scalar
    idle: tuple[Scalar, ...]  # before the first operation, until what is waited for is made, or comes, after the last
    held_bytes: Scalar  # by the operation's device, while it runs
    peak_bytes: Scalar  # of each device


def makespan_s(graph: Graph, costs: Costs, sem: Exact) -> Scalar:
    """Seconds from the first start to the last end anywhere; in JAX with its gradient in seconds and lags."""
    library = sem.library
    seconds, lags_s = _tables(graph, costs, library)
    if library is np:
        return sweep(graph, seconds, lags_s, np, keep=False)[1].max(0)
    return makespan_of()(graph, seconds, lags_s)


def run(graph: Graph, costs: Costs, sem: Exact) -> PlayedGraph:
    """Play an order out: every start and end, what each device waits for, and what it holds meanwhile."""
    library = sem.library
    seconds, lags_s = _tables(graph, costs, library)
    ends_s, done_s = sweep(graph, seconds, lags_s, library)
    before_s = library.concatenate([library.zeros_like(ends_s[:1]), ends_s[:-1]])
    near_s = ends_s.reshape(-1, *seconds.shape[1:])[graph.sources] + lags_s[graph.lags]
    starts_s = sem.maximum(before_s, near_s.max(1))
    whole_s = done_s.max(0) if library is np else makespan_of()(graph, seconds, lags_s)
    way_s = library.take_along_axis(lags_s[graph.lags], near_s.argmax(1)[:, None], axis=1)[:, 0]
    idle = _idle(graph, starts_s - before_s, way_s, whole_s - done_s, sem)
    held, peak = _memory(graph, costs, sem)
    return PlayedGraph(
        makespan_s=whole_s,
        starts_s=_of_operations(starts_s, graph),
        ends_s=_of_operations(ends_s, graph),
        busy_s=seconds[graph.kinds].sum(0),
        idle=idle,
        held_bytes=held,
        peak_bytes=peak,
    )


def _tables(graph: Graph, costs: Costs, library: Any) -> tuple[Any, Any]:
    """Seconds and lags by class, for a graph whose classes they have (of a traced one nobody can say)."""
    seconds, lags_s = library.asarray(costs.seconds), library.asarray(costs.lags_s)
    if isinstance(graph.kinds, np.ndarray):
        given = {"seconds": (len(seconds), graph.kinds.max(initial=0)), "lags_s": (len(lags_s), graph.lags.max() - 1)}
        held = {"taken_bytes": costs.taken_bytes, "freed_bytes": costs.freed_bytes}
        given |= {name: (len(each), len(seconds)) for name, each in held.items() if np.ndim(each)}
        for name, (there, needed) in given.items():
            if there < needed:
                raise ValueError(f"`{name}` has {there} classes; expected one for each of {needed} in the order")
    return tables(seconds, lags_s, library)


def _idle(graph: Graph, waits_s: Scalar, ways_s: Scalar, end_s: Scalar, sem: Exact) -> tuple[Scalar, ...]:
    """What comes late is under way for the last of the wait, and not yet made before."""
    there = graph.kinds > 0
    first = there & (there.cumsum(0) == 1)
    there, first = (mask.reshape(*mask.shape, *(1,) * (waits_s.ndim - 2)) for mask in (there, first))
    moved_s = sem.minimum(waits_s, sem.maximum(ways_s, 0.0 * ways_s))
    start_s, transfer_s = (waits_s * first).sum(0), (moved_s * (there & ~first)).sum(0)
    producer_s = ((waits_s - moved_s) * (there & ~first)).sum(0)
    return start_s, producer_s, transfer_s, end_s


def _memory(graph: Graph, costs: Costs, sem: Exact) -> tuple[Scalar, Scalar]:
    """A device does one thing at a time, so that its order alone decides what it holds."""
    library, shape = sem.library, np.shape(costs.seconds)[:1]

    def in_cells(by_class: Any) -> Any:
        given = library.asarray(by_class) * 1.0
        given = given if given.ndim else library.broadcast_to(given, shape)
        return library.concatenate([library.zeros_like(given[:1]), given])[graph.kinds]

    taken, freed = in_cells(costs.taken_bytes), in_cells(costs.freed_bytes)
    held = taken.cumsum(0) - freed.cumsum(0) + freed
    return _of_operations(held, graph), held.max(0)


def _of_operations(cells: Scalar, graph: Graph) -> Scalar:
    return cells.reshape(-1, *cells.shape[2:])[graph.cells]
