"""`register_model`: a workload, or a function that builds one, under the name of a model."""

import dataclasses
import functools
import math
import re
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from costmodel.exact import Exact
from costmodel.formulas import counts
from costmodel.inputs import PIECES, Block, Kind, Plan, Position, Split, Workload, embed, layers, model_flop, parameters
from costmodel.pytree import map_leaves
from costmodel.register.tables import entered, refuse
from costmodel.specs import MODELS, SpecError, called, is_count, model_names, show

_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*")


def register_model(name: str, model: Workload | Callable[..., Workload]) -> ExitStack:
    """Add a model under a new name, which `load_workload`, every command and every file of jobs then know.

    A function must build it without arguments; where a user gives `sequence` or `batch`, it is called with them. Where
    it is used as a context, the model is gone after it. Raises a `ValueError` of one line unless it builds a `Workload`
    with layers and parameters, whose counts are finite and never negative and whose divided layers talk.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.endswith((".toml", ".json", ".py")):
        raise SpecError(f"model: the name is {show(name)}; expected letters, digits and . _ -, such as my-model")
    if name in model_names():
        raise SpecError(f"model: {show(name)} is there already; expected a new name")
    where, build = f'model "{name}"', _builder(model)
    _check(where, called(where, build))
    return entered(MODELS, "model", name, build)


def _builder(model: Workload | Callable[..., Workload]) -> Callable[..., Workload]:
    """A function of the batch for a workload, whose other sizes are what they are."""
    if not isinstance(model, Workload):
        return model
    return lambda batch=model.batch: dataclasses.replace(model, batch=batch)


def _check(where: str, workload: Any) -> None:
    if not isinstance(workload, Workload):
        refuse(where, "what it builds", workload, "a `Workload`")
    for field in ("sequence", "batch", "hidden"):
        if not is_count(getattr(workload, field)):
            refuse(where, f"`{field}`", getattr(workload, field), "an integer >= 1")
    if not any(block.position == Position.LAYER for block in workload.blocks) or not is_count(layers(workload)):
        refuse(where, "the number of its layers", layers(workload), "an integer >= 1")
    for what, count in (("its parameters", parameters(workload)), ("its FLOP", model_flop(workload))):
        if not (math.isfinite(count) and count > 0):
            refuse(where, f"the number of {what}", count, "a finite number > 0")
    _check_blocks(where, workload)


def _check_blocks(where: str, workload: Workload) -> None:
    """Divided layers talk, and every count of a block is a number."""
    counted = called(where, counts, workload, embed(Plan(), workload, 1.0), Exact(math))
    for block, own in zip(workload.blocks, counted.blocks, strict=True):
        here = f'{where}, block "{block.name}"'
        _check_syncs(here, block, workload)
        map_leaves(functools.partial(_check_count, here), own)


def _check_syncs(where: str, block: Block, workload: Workload) -> None:
    """Layers that the tensor ranks divide talk to one another: without it they would divide for nothing.

    Pieces of a layer (`models.co_sharded`) do so in the block of what is left of it.
    """
    divided = (size for op in block.ops for size in (*op.groups, *op.inner, *op.columns) if Split.TENSOR in size.split)
    whole = block.name.partition(PIECES)[0]
    alike = (each for each in workload.blocks if each.name in (block.name, whole))
    talks = any(op.kind == Kind.SYNC for each in alike for op in each.ops)
    if block.position == Position.LAYER and not talks and next(divided, None) is not None:
        raise SpecError(
            f"{where}: tensor ranks divide its sizes, but it has no `sync`; expected one at each edge of them"
        )


def _check_count(where: str, count: Any) -> Any:
    if not (math.isfinite(count) and count >= 0):
        refuse(where, "one of its counts", float(count), "a finite number >= 0")
    return count
