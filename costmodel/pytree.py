"""Dataclasses that JAX can look into, without importing JAX.

The command line answers with NumPy alone, so importing `costmodel` must not cost an `import jax`.
Classes wait here and are registered with `jax.tree_util` as soon as JAX is in the process: at once
where it is imported already, otherwise by an import hook when it arrives.
"""

import dataclasses
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from numbers import Real
from types import ModuleType
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")

_waiting: list[tuple[type, tuple[str, ...], tuple[str, ...]]] = []


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
    if _complete(sys.modules.get("jax")):
        _register_waiting()
    return cls


def map_leaves(function: Callable[[Any], Any], tree: T) -> T:
    """`tree` with `function` applied to every leaf: `jax.tree.map` for the classes here, without JAX."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]
        return dataclasses.replace(tree, **{name: map_leaves(function, getattr(tree, name)) for name in fields})
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, item) for item in tree)  # pyright: ignore[reportReturnType]
    return None if tree is None else function(tree)  # pyright: ignore[reportReturnType]


def as_float(leaf: Any) -> Any:
    """A number as a Python float; arrays and traced values as they are."""
    return float(leaf) if isinstance(leaf, Real) else leaf


def _complete(module: ModuleType | None) -> bool:
    return module is not None and hasattr(module, "tree_util") and hasattr(module, "jit")


def _register_waiting() -> None:
    import jax

    while _waiting:
        cls, data, meta = _waiting.pop()
        jax.tree_util.register_dataclass(cls, data_fields=list(data), meta_fields=list(meta))


class _WhenJaxArrives(importlib.abc.MetaPathFinder):
    """Finds `jax` as every other finder would, and registers the waiting classes once it is loaded."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "jax":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_register(module: ModuleType) -> None:
            execute(module)
            _register_waiting()

        spec.loader.exec_module = execute_and_register  # pyright: ignore[reportAttributeAccessIssue]
        return spec


if "jax" not in sys.modules:
    sys.meta_path.insert(0, _WhenJaxArrives())
