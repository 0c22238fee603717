r"""The ends of all operations, level by level, and the way back along the longest path.

Tables of seconds have a class 0 for idle cells; those of lags a class 0 for no input, and 1 for no lag. Batches are the
last axes. NumPy loops over the levels, JAX scans them; what one level does is said once (`_level`).
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from costmodel.graph.graph import Graph

_NEVER_S = -1e30  # when what nobody waits for arrives


def tables(seconds: Any, lags_s: Any, library: Any) -> tuple[Any, Any]:
    """Both with their first classes, and the same batch."""
    batch = library.zeros_like(seconds[:1])
    lags_s = lags_s.reshape(*lags_s.shape, *(1,) * (seconds.ndim - lags_s.ndim)) + batch
    return library.concatenate([batch, seconds]), library.concatenate([batch + _NEVER_S, batch, lags_s])


def sweep(graph: Graph, seconds: Any, lags_s: Any, library: Any, *, keep: bool = True) -> tuple[Any, Any]:
    """Play all levels: the ends in all cells (None unless they are kept), and when each device is done.

    What is looked up again lies in a ring of the last levels.
    """
    levels, devices = graph.shape
    ring, free = (library.zeros((n, *seconds.shape[1:]), seconds.dtype) for n in (graph.reach * devices, devices))
    firsts = np.arange(levels, dtype=np.int32) % graph.reach * devices
    steps = (firsts, graph.kinds, graph.sources % (graph.reach * devices), graph.lags)
    return (_sweep_numpy if library is np else _sweep_jax)(steps, seconds, lags_s, (ring, free), keep)


def _level(free: Any, near: Any, lags_s: Any, seconds: Any, library: Any) -> Any:
    """An operation starts when its device is free and all that it waits for is there."""
    arrived = near + lags_s
    return library.maximum(free, arrived[0] if len(arrived) == 1 else arrived.max(0)) + seconds


def _sweep_numpy(steps: tuple[Any, ...], seconds: Any, lags_s: Any, start: tuple[Any, Any], keep: bool) -> Any:
    ring, free = start
    ends_s = np.empty((len(steps[0]) if keep else 0, *free.shape), seconds.dtype)
    firsts, kinds, sources, ways = steps
    single = seconds.ndim == 1  # looked up for all levels at once: a batch would take its size times as much memory
    rows = (firsts, seconds[kinds] if single else kinds, sources, lags_s[ways] if single else ways)
    for level, (first, work, near, way) in enumerate(zip(*rows, strict=True)):
        free = _level(free, ring[near], way if single else lags_s[way], work if single else seconds[work], np)
        ring[first : first + len(free)] = free
        if keep:
            ends_s[level] = free
    return ends_s if keep else None, free


def _sweep_jax(steps: tuple[Any, ...], seconds: Any, lags_s: Any, start: tuple[Any, Any], keep: bool) -> Any:
    import jax

    def level(ends: tuple[Any, Any], step: tuple[Any, ...]) -> tuple[tuple[Any, Any], Any]:
        ring, free = ends
        first, kinds, sources, ways = step
        near, lag_s, s = (_at(table, at) for table, at in ((ring, sources), (lags_s, ways), (seconds, kinds)))
        free = _level(free, near, lag_s, s, jax.numpy)
        return (jax.lax.dynamic_update_slice_in_dim(ring, free, first, 0), free), free if keep else None

    (_, done), ends_s = jax.lax.scan(level, start, steps)
    return ends_s, done


def _at(table: Any, places: Any) -> Any:
    return table.at[places].get(mode="promise_in_bounds")


@functools.cache
def makespan_of() -> Callable[[Graph, Any, Any], Any]:
    """The makespan in JAX: values keep no ends, gradients all.

    At a tie the path stays on its device: one of the subgradients.
    """
    import jax

    @jax.custom_vjp
    def makespan_s(graph: Graph, seconds: Any, lags_s: Any) -> Any:
        return sweep(graph, seconds, lags_s, jax.numpy, keep=False)[1].max(0)

    def forward(graph: Graph, seconds: Any, lags_s: Any) -> tuple[Any, Any]:
        ends_s, done_s = sweep(graph, seconds, lags_s, jax.numpy)
        return done_s.max(0), (graph, seconds, lags_s, ends_s.reshape(-1, *seconds.shape[1:]))

    def backward(kept: tuple[Graph, Any, Any, Any], slope: Any) -> tuple[None, Any, Any]:
        counts = path_counts(*kept)
        return None, counts[0] * slope, counts[1] * slope

    makespan_s.defvjp(forward, backward)
    return makespan_s


def path_counts(graph: Graph, seconds: Any, lags_s: Any, ends_s: Any) -> tuple[Any, Any]:
    """How often the longest path runs through each class of operation and of lag, for every member of a batch."""
    import jax

    shapes = seconds.shape, lags_s.shape
    if len(shapes[0]) == 1:
        return _walk(graph, seconds, lags_s, ends_s)
    flat = (array.reshape(len(array), -1) for array in (seconds, lags_s, ends_s))
    counts = jax.vmap(functools.partial(_walk, graph), in_axes=-1, out_axes=-1)(*flat)
    return counts[0].reshape(shapes[0]), counts[1].reshape(shapes[1])


def _walk(graph: Graph, seconds: Any, lags_s: Any, ends_s: Any) -> tuple[Any, Any]:
    """From the last end back, a cell at a time."""
    import jax
    from jax import numpy as jnp

    levels, devices = graph.shape
    kinds, sources, ways = map(jnp.asarray, (graph.kinds, graph.sources, graph.lags))

    def back(state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
        cell, through, over = state
        level, device = cell // devices, cell % devices
        own_s = jnp.where(level > 0, ends_s[cell - devices], 0.0)
        far_s = ends_s[sources[level, :, device]] + lags_s[ways[level, :, device]]
        which = far_s.argmax()
        leaves = far_s[which] > own_s
        way = jnp.where(leaves, ways[level, which, device], 0)
        before = jnp.where(leaves, sources[level, which, device], cell - devices)
        return before, through.at[kinds[level, device]].add(1.0), over.at[way].add(1.0)

    last = (levels - 1) * devices + ends_s[(levels - 1) * devices :].argmax()
    start = (last.astype(jnp.int32), jnp.zeros_like(seconds), jnp.zeros_like(lags_s))
    return jax.lax.while_loop(lambda state: state[0] >= 0, back, start)[1:]
