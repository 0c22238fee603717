"""Leaves of dataclasses by path, and back: the named arguments of cost functions."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from costmodel.inputs.plan import Offload, PlanPoint
from tests.support.strategies import (
    Array,
)


def flatten(tree: Any, prefix: str = "") -> dict[str, Array]:
    """Leaves by path. The last part of a path is the name of the field, and so carries the unit."""
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = [f.name for f in dataclasses.fields(tree) if not f.metadata.get("static")]
        return _merge(flatten(getattr(tree, name), f"{prefix}.{name}") for name in fields)
    if isinstance(tree, tuple):
        return _merge(flatten(item, f"{prefix}.{i}") for i, item in enumerate(tree))
    return {} if tree is None else {prefix.lstrip("."): tree}


def unflatten(template: Any, values: Mapping[str, Any], prefix: str = "") -> Any:
    """`template` with its leaves replaced by `values` of the same paths."""
    if dataclasses.is_dataclass(template) and not isinstance(template, type):
        fields = [f.name for f in dataclasses.fields(template) if not f.metadata.get("static")]
        new = {name: unflatten(getattr(template, name), values, f"{prefix}.{name}") for name in fields}
        return dataclasses.replace(template, **new)
    if isinstance(template, tuple):
        return tuple(unflatten(item, values, f"{prefix}.{i}") for i, item in enumerate(template))
    return template if template is None else values[prefix.lstrip(".")]


def _merge(parts_: Any) -> dict[str, Array]:
    return dict(itertools.chain.from_iterable(part.items() for part in parts_))


def with_offload(point: PlanPoint) -> PlanPoint:
    """The point with its shares of offload, zero where it has none: for points that are stacked with others' shares."""
    return dataclasses.replace(point, offload=point.offload or Offload())
