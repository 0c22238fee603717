"""Dataclasses that JAX can look into, without importing JAX.

The command line answers with NumPy alone, so importing `costmodel` must not cost an `import jax`.
A class is registered with `jax.tree_util` when it is made, where JAX is in the process by then. Otherwise
it waits for `register_pytrees`, which `load_workload`, `load_cluster`, `prepare`, `map_leaves`, `as_floats` and
`Exact(jax.numpy)` call.
"""

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable
from numbers import Real
from typing import Any, TypeVar, TypeVarTuple, dataclass_transform

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_waiting: list[tuple[type, tuple[str, ...], tuple[str, ...]]] = []
_lock = threading.Lock()
_PLAIN = frozenset((float, int, bool, str, type(None)))


def static(**keywords: Any) -> Any:
    """A field that is part of the traced program's structure: hashable, compared, never differentiated."""
    return dataclasses.field(metadata={"static": True}, **keywords)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(static, dataclasses.field))
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen, keyword-only dataclass whose non-static fields are leaves or subtrees for JAX."""
    cls = dataclasses.dataclass(frozen=True, kw_only=True)(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    meta = tuple(f.name for f in fields if f.metadata.get("static"))
    data = tuple(f.name for f in fields if f.name not in meta)
    _waiting.append((cls, data, meta))
    register_pytrees()
    return cls


def register_pytrees() -> None:
    """All classes made here as pytrees of JAX; nothing happens where JAX is not imported.

    To be called by code that hands such objects to `jax.tree` or `jax.jit` when it imported JAX after making them and
    has called nothing of `costmodel` since that knows JAX (see above).
    """
    jax = sys.modules.get("jax") if _waiting else None
    if jax is None or not (hasattr(jax, "tree_util") and hasattr(jax, "jit")):  # half of JAX: it is being imported
        return
    with _lock:
        while _waiting:
            cls, data, meta = _waiting[-1]
            jax.tree_util.register_dataclass(cls, data_fields=list(data), meta_fields=list(meta))
            _waiting.pop()


def map_leaves(function: Callable[[Any], Any], tree: T) -> T:
    """`tree` with `function` applied to every leaf: `jax.tree.map` for the classes here, without JAX."""
    register_pytrees()
    return _mapped(function, tree)


def _mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    kind = type(tree)
    if (names := _fields_of(kind)) is not None:
        found = object.__new__(kind)
        for name, is_leaf in names:
            value = getattr(tree, name)
            object.__setattr__(found, name, _mapped(function, value) if is_leaf else value)
        return found
    if isinstance(tree, tuple):
        return tuple(_mapped(function, item) for item in tree)
    return None if tree is None else function(tree)


@functools.cache
def _fields_of(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Names of a dataclass's fields, and whether each holds leaves."""
    if not dataclasses.is_dataclass(kind):
        return None
    return tuple((field.name, not field.metadata.get("static")) for field in dataclasses.fields(kind))


def by_identity(most: int) -> Callable[[Callable[[*Ts], T]], Callable[[*Ts], T]]:
    """Of a function of frozen objects: what it made of the last ones, as long as these very objects are asked for.

    They are kept, so that no other object has their identity; `most` of them, and then it forgets all. Nothing is kept
    of objects that hold arrays, which may change, or traced values, which must not outlive their trace.
    """

    def decorate(make: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
        known: dict[tuple[int, ...], tuple[Any, T]] = {}

        @functools.wraps(make)
        def found(*given: *Ts) -> T:
            key = tuple(map(id, given))
            if (hit := known.get(key)) is not None:
                return hit[1]
            made = make(*given)
            if all(map(_never_changes, given)):
                if len(known) >= most:
                    known.clear()
                known[key] = given, made
            return made

        return found

    return decorate


def _never_changes(tree: Any) -> bool:
    """Whether all leaves are numbers, words or types."""
    if (kind := type(tree)) in _PLAIN:
        return True
    if (names := _fields_of(kind)) is not None:
        return all([_never_changes(getattr(tree, name)) for name, is_leaf in names if is_leaf])
    if isinstance(tree, tuple):
        return all(map(_never_changes, tree))
    return isinstance(tree, (Real, type))


def as_float(leaf: Any) -> Any:
    """A number as a Python float; arrays and traced values as they are."""
    return float(leaf) if isinstance(leaf, Real) else leaf


def as_floats(tree: T) -> T:
    """Every number among the leaves as a Python float: files give integers, and integers overflow where floats do not.

    Arrays and traced values pass unchanged.
    """
    return map_leaves(as_float, tree)
