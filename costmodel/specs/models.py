"""Models from tables: the family's builder says by its signature which fields there are."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

from costmodel.inputs import Workload
from costmodel.models import (
    Latent,
    decoder,
    dlrm,
    encoder,
    encoder_decoder,
    evoformer,
    freeze,
    low_rank,
    moe_decoder,
    swin,
    weighted,
)
from costmodel.specs.checks import (
    COUNT,
    FLAG,
    POSITIVE,
    POSITIVE_SHARE,
    TEXT,
    Check,
    called,
    convert,
    fail,
    is_count,
    nearest,
    one_of,
    require,
)
from costmodel.specs.files import SpecError, plain, show

FAMILIES: dict[str, Callable[..., Workload]] = {
    "decoder": decoder,
    "moe": moe_decoder,
    "encoder": encoder,
    "encoder_decoder": encoder_decoder,
    "swin": swin,
    "evoformer": evoformer,
    "dlrm": dlrm,
}
"""Builders by the `family` of a model's table (`decoder` where it says none)."""

MODELS: dict[str, Callable[..., Workload]] = {}
"""Models that a user has added under a name (`costmodel.register_model`): functions that build them."""

COUNTS = Check(
    "a list of integers >= 1, one for each stage, table or layer",
    lambda value: isinstance(value, list | tuple) and 0 < len(value) <= 4096 and all(map(is_count, value)),
    keep=tuple,
)
NAMES = Check(
    "a list of names of operators",
    lambda value: isinstance(value, list) and value != [] and all(isinstance(item, str) for item in value),
    keep=tuple,
)
_RANKS = tuple(field.name for field in dataclasses.fields(Latent))
LATENT = Check(
    f"a table of integers >= 1: {', '.join(_RANKS[1:])}, and {_RANKS[0]} where queries have one",
    lambda value: (
        isinstance(value, Mapping)
        and sorted({*value, _RANKS[0]}) == sorted(_RANKS)
        and all(map(is_count, value.values()))
    ),
    keep=lambda value: Latent(**{_RANKS[0]: None, **value}),
)
_ADAPTERS: dict[str, Check] = {"frozen": NAMES, "adapter_rank": COUNT, "adapter_targets": NAMES}


def registered(name: str, given: Mapping[str, Any], where: str) -> Workload:
    """A workload that a user's function builds; `given` (sequence, batch) are its arguments."""
    taken = inspect.signature(MODELS[name]).parameters
    for field, value in given.items():
        if field not in taken and not any(each.kind == each.VAR_KEYWORD for each in taken.values()):
            fail(where, field, value, "none: its function has no such argument")
    return called(where, MODELS[name], **given)


def workload_from(table: Mapping[str, Any], given: Mapping[str, Any], where: str) -> Workload:
    """A workload from a table of its family's fields; `given` (sequence, batch) replaces the table's own."""
    own = {key: value for key, value in table.items() if key != "family"}
    builder = _builder(table.get("family", "decoder"), where)
    checks, required = _fields(builder)
    for field, value in given.items():
        if field not in checks:
            fail(where, field, value, f"none: the family {builder.__name__} has no such field")
    values = convert(own, checks | _ADAPTERS, where) | dict(given)
    require(values, required, checks, where)
    check_sizes(values, where)
    changes = {field: values.pop(field) for field in _ADAPTERS if field in values}
    return _adapted(builder(**values), changes, where)


def _builder(family: Any, where: str) -> Callable[..., Workload]:
    if not isinstance(family, str) or family not in FAMILIES:
        said = nearest(family, FAMILIES) if isinstance(family, str) else one_of(FAMILIES).expected
        raise SpecError(f"{where}: `family` is {show(family)}, which is not a known family; {said}")
    return FAMILIES[family]


@functools.cache
def _fields(builder: Callable[..., Workload]) -> tuple[dict[str, Check], tuple[str, ...]]:
    """Checks of a builder's parameters by their annotations, and those without a default."""
    given = inspect.signature(builder).parameters.values()
    return {p.name: _check(p) for p in given}, tuple(p.name for p in given if p.default is p.empty)


def _check(parameter: inspect.Parameter) -> Check:
    kind = parameter.annotation
    if get_origin(kind) is tuple:
        return COUNTS
    if Latent in get_args(kind):
        return LATENT
    if kind is float:
        return POSITIVE_SHARE if parameter.name.endswith("_density") else POSITIVE
    return {bool: FLAG, str: TEXT}.get(kind, COUNT)


def _adapted(workload: Workload, changes: Mapping[str, Any], where: str) -> Workload:
    """`workload` with the frozen weights and adapters that a table asks for."""
    known = weighted(workload), tuple(op.name for block in workload.blocks for op in block.ops)
    for field, names in (("adapter_targets", known[0]), ("frozen", known[1])):
        for name in changes.get(field, ()):
            if name not in names:
                raise SpecError(f"{where}: `{field}` has {plain(show(name))}; {nearest(name, names)}")
    if ("adapter_rank" in changes) != ("adapter_targets" in changes):
        missing = "adapter_targets" if "adapter_rank" in changes else "adapter_rank"
        raise SpecError(f"{where}: `{missing}` is missing; expected it beside the other of the two")
    if "frozen" in changes:
        workload = freeze(workload, changes["frozen"])
    return low_rank(workload, changes["adapter_rank"], changes["adapter_targets"]) if len(changes) > 1 else workload


def check_sizes(values: Mapping[str, Any], where: str) -> None:
    """Sizes that must divide one another, in every family that has them."""
    _check_heads(values, where)
    for heads, width in (("heads", "extra_hidden"), ("pair_heads", "pair_hidden")):
        if width in values and heads in values and values[width] % values[heads]:
            fail(where, heads, values[heads], f"a divisor of `{width}` ({values[width]})")
    for least, most in (("top_k", "experts"), ("dense_layers", "layers")):
        if values.get(least, 0) > values.get(most, math.inf):
            fail(where, least, values[least], f"at most `{most}` ({values[most]})")
    if "window" in values:
        _check_stages(values, where)
    if "bottom" in values and values["bottom"][-1] != values["hidden"]:
        fail(where, "bottom", list(values["bottom"]), f"a last width of `hidden` ({values['hidden']})")


def _check_heads(values: Mapping[str, Any], where: str) -> None:
    for field in ("heads", "decoder_heads"):
        heads = values.get(field)
        if is_count(heads) and "head_size" not in values and values["hidden"] % heads:
            fail(where, field, heads, f"a divisor of `hidden` ({values['hidden']}), or `head_size` beside it")
    if "key_value_heads" in values and values["heads"] % values["key_value_heads"]:
        fail(where, "key_value_heads", values["key_value_heads"], f"a divisor of `heads` ({values['heads']})")


def _check_stages(values: Mapping[str, Any], where: str) -> None:
    """Swin: lists of one length, windows that divide the sides, heads that divide the widths."""
    stages, image, patch = len(values["depths"]), values["image"], values.get("patch", 4)
    for field in ("heads", "window"):
        if len(values[field]) != stages:
            fail(where, field, list(values[field]), f"a list of {stages}, one for each of `depths`")
    if stages > 8 or image % (patch * 2 ** (stages - 1)):
        most = "at most 8 stages, and " if stages > 8 else ""
        fail(where, "image", image, f"{most}a multiple of `patch` ({patch}) times 2 for each stage but the first")
    for stage, (heads, window) in enumerate(zip(values["heads"], values["window"], strict=True)):
        side, width = image // patch // 2**stage, values["hidden"] * 2**stage
        if side % window:
            fail(
                where, "window", list(values["window"]), f"a divisor of the side of {side} tokens at stage {stage + 1}"
            )
        if width % heads:
            fail(where, "heads", list(values["heads"]), f"a divisor of the width of {width} at stage {stage + 1}")
