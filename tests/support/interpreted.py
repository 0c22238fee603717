"""JAX programs run by NumPy, operation by operation: what JAX traced and differentiated, without compiling it.

A gradient of the whole cost is some ten thousand small operations: XLA compiles them for a minute, and runs them one by
one for ten seconds. NumPy takes a tenth of one.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend import core


def interpreted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of trees of arrays, traced by JAX at the first call and run by NumPy, at equal shapes again."""
    traced = functools.cache(lambda _: [])

    def run(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments)
        known = traced(jax.config.jax_enable_x64)
        if not known:
            known += jax.make_jaxpr(function, return_shape=True)(*arguments)
        closed, shape = known
        given = [np.asarray(leaf, v.aval.dtype) for leaf, v in zip(leaves, closed.jaxpr.invars, strict=True)]
        return jax.tree.unflatten(jax.tree.structure(shape), _results(closed, given))

    return run


def _results(closed: Any, given: list[np.ndarray]) -> list[np.ndarray]:
    values = dict(zip(closed.jaxpr.constvars, map(np.asarray, closed.consts), strict=True))
    values |= dict(zip(closed.jaxpr.invars, given, strict=True))

    def read(atom: Any) -> np.ndarray:
        return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else values[atom]

    for equation in closed.jaxpr.eqns:
        inputs = [read(atom) for atom in equation.invars]
        inner = next((equation.params[name] for name in _INNER if name in equation.params), None)
        results = _results(inner, inputs) if inner is not None else _own_results(equation, inputs)
        for variable, result in zip(equation.outvars, results, strict=True):
            assert result.shape == variable.aval.shape, equation
            values[variable] = result.astype(variable.aval.dtype, copy=False)
    return [read(atom) for atom in closed.jaxpr.outvars]


def _own_results(equation: Any, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = _OPERATIONS[equation.primitive.name](*inputs, **_named(equation))
    return list(map(np.asarray, results if equation.primitive.multiple_results else [results]))


def _named(equation: Any) -> dict[str, Any]:
    return {name: equation.params[name] for name in _PARAMETERS.get(equation.primitive.name, ())}


def _broadcast(x: np.ndarray, *, shape: tuple[int, ...], broadcast_dimensions: tuple[int, ...]) -> np.ndarray:
    kept = [1] * len(shape)
    for size, place in zip(x.shape, broadcast_dimensions, strict=True):
        kept[place] = size
    return np.broadcast_to(x.reshape(kept), shape)


def _slice(x: np.ndarray, *, start_indices: Any, limit_indices: Any, strides: Any) -> np.ndarray:
    return x[tuple(map(slice, start_indices, limit_indices, strides or [1] * x.ndim))]


def _pad(x: np.ndarray, value: np.ndarray, *, padding_config: Any) -> np.ndarray:
    assert all(inside == 0 for _, _, inside in padding_config)
    return np.pad(x, [(before, after) for before, after, _ in padding_config], constant_values=value)


_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # of a call inside a program
_PARAMETERS = {
    "broadcast_in_dim": ("shape", "broadcast_dimensions"),
    "reduce_sum": ("axes",),
    "squeeze": ("dimensions",),
    "reshape": ("new_sizes",),
    "integer_pow": ("y",),
    "concatenate": ("dimension",),
    "slice": ("start_indices", "limit_indices", "strides"),
    "pad": ("padding_config",),
    "stack": ("axis",),
    "unstack": ("axis",),
}
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "max": np.maximum,
    "min": np.minimum,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "pow": np.power,
    "square": np.square,
    "integer_pow": lambda x, *, y: x**y,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "select_n": lambda which, *cases: np.choose(which.astype(int), cases),
    "convert_element_type": lambda x: x,
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "broadcast_in_dim": _broadcast,
    "reduce_sum": lambda x, *, axes: x.sum(axis=axes),
    "squeeze": lambda x, *, dimensions: x.squeeze(axis=dimensions),
    "reshape": lambda x, *, new_sizes: x.reshape(new_sizes),
    "slice": _slice,
    "pad": _pad,
    "unstack": lambda x, *, axis: list(np.moveaxis(x, axis, 0)),
    "stack": lambda *parts, axis: np.stack(parts, axis=axis),
    "concatenate": lambda *parts, dimension: np.concatenate(parts, axis=dimension),
}
