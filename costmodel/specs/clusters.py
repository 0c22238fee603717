"""Clusters from tables: the accelerator, the nested tiers, the stack."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.formulas import COLLECTIVES
from costmodel.inputs import PRECISION_TYPES, PRECISION_WIDTHS, Accelerator, Cluster, PriceRange, Stack, Tier
from costmodel.specs.checks import (
    AT_LEAST_ONE,
    COUNT,
    FLAG,
    NON_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    TEXT,
    Check,
    convert,
    fail,
    nearest,
    one_of,
    require,
    some_of,
)
from costmodel.specs.files import SpecError, plain, show
from costmodel.specs.prices import prices_from, prices_in, without_prices
from costmodel.specs.stacks import chosen_software, constant_group, stack_values

_CLUSTER_CHECKS: dict[str, Check] = {
    "name": TEXT,
    "accelerators": COUNT,
    "partial_domains": FLAG,
    "software": TEXT,
}
_TIER_CHECKS: dict[str, Check] = {
    "name": TEXT,
    "size": COUNT,
    "usable_size": COUNT,
    "bandwidth_bytes_per_s": POSITIVE,
    "latency_s": NON_NEGATIVE,
    "oversubscription": AT_LEAST_ONE,
    "in_network_reduction": SHARE,
}
_PARTS = ("accelerator", "tiers", "stack", "prices")
_SECOND_MEMORY = ("second_memory_bytes", "second_memory_bytes_per_s")
_PEAKS = {width: f"peak_{width}_flop_per_s" for width in PRECISION_WIDTHS}
_ACCELERATOR_CHECKS: dict[str, Check] = {
    "name": TEXT,
    "widths": some_of(PRECISION_WIDTHS),
    "types": some_of(dict.fromkeys(PRECISION_TYPES.values())),
    **dict.fromkeys(_PEAKS.values(), POSITIVE),
    "hbm_bytes": POSITIVE,
    "hbm_bytes_per_s": POSITIVE,
    "sustained_clock": POSITIVE_SHARE,
    "second_memory_bytes": NON_NEGATIVE,
    "second_memory_bytes_per_s": POSITIVE,
    "host_bytes_per_s": POSITIVE,
    "power_w": POSITIVE,
}
_TYPES_OF_WIDTH = {"32bit": ("fp32",), "16bit": ("fp16", "bf16"), "8bit": ("fp8",), "4bit": ("nvfp4",)}


def cluster_from(
    table: Mapping[str, Any],
    known_accelerators: Mapping[str, Any],
    shipped_prices: Mapping[str, Any],
    *,
    name: str,
    where: str,
    accelerators: int | None = None,
    software: str | None = None,
    fitted: Mapping[str, Any] | None = None,
    own_first: bool = True,
) -> Cluster:
    """A cluster from its table, or from one with the tables `cluster` and `stack` (as `calibrate` writes).

    `fitted` holds the constants that were fitted to measurements, `software` the class that they are taken of, before
    the one that the table names. A file's own fields come before them (`own_first`); in the shipped tables stand first
    values, and what no measured row decides.
    """
    table = _unwrap(table, where)
    own = {key: value for key, value in table.items() if key not in _PARTS}
    values = {"name": name, **convert(own, _CLUSTER_CHECKS, where)}
    if accelerators is not None:
        values["accelerators"] = accelerators
    require(values, ("accelerators",), _CLUSTER_CHECKS, where)
    for part, expected in (("accelerator", "a name or a table"), ("tiers", "a list of tables")):
        if part not in table:
            raise SpecError(f"{where}: `{part}` is missing; expected {expected}")
    accelerator = _accelerator(table["accelerator"], known_accelerators, where)
    named = values.pop("software", None) or _named_software(table.get("stack"))
    software, _ = chosen_software(accelerator.name, software or named, where)
    group = constant_group(accelerator.name, software)
    tiers = _tiers(table["tiers"], values["accelerators"], where)
    return Cluster(
        **values,
        accelerator=accelerator,
        tiers=tiers,
        stack=_stack(table.get("stack", {}), where, group, fitted, own_first),
        prices=_prices(table, shipped_prices, accelerator, tiers, where),
    )


def _prices(
    table: Mapping[str, Any],
    shipped: Mapping[str, Any],
    accelerator: Accelerator,
    tiers: tuple[Tier, ...],
    where: str,
) -> PriceRange:
    """Those in the table `prices`, in that of the accelerator and in those of the tiers, over the shipped ones."""
    own = table.get("prices", {})
    if not isinstance(own, Mapping):
        fail(where, "prices", own, "a table of prices")
    if isinstance(table["accelerator"], Mapping):
        own = {**prices_in(table["accelerator"], "accelerator"), **own}
    levels = [(tier.name, prices_in(level, "tier")) for tier, level in zip(tiers, table["tiers"], strict=True)]
    return prices_from(shipped, accelerator.name, levels, own, where)


def _unwrap(table: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    inner = table.get("cluster")
    if not isinstance(inner, Mapping):
        return table
    for key in table:
        if key not in ("cluster", "stack", "deviations"):
            raise SpecError(
                f"{where}: `{plain(key)}` stands beside the table `cluster`; expected it inside, or only `stack`"
            )
    return {**inner, **{key: value for key, value in table.items() if key == "stack"}}


def _named_software(stack: Any) -> Any:
    """The software that the table of a stack names, as `calibrate` writes it."""
    return stack.get("software") if isinstance(stack, Mapping) else None


def _stack(
    table: Any, where: str, group: Mapping[str, str], fitted: Mapping[str, Any] | None, own_first: bool
) -> Stack:
    """The habits of the software, the constants that were fitted to it and the fields that the table gives."""
    own, values = stack_fields(table, where), stack_values(fitted, group) if fitted else {}
    named = {"software": group["stack"]}
    return Stack(**({**values, **own, **named} if own_first else {**own, **values}))


def stack_fields(table: Any, where: str) -> dict[str, Any]:
    """Those fields of the Stack that a table gives, checked."""
    if not isinstance(table, Mapping):
        fail(where, "stack", table, "a table of stack parameters")
    return convert(table, _stack_checks(), f"{where}, stack")


def _stack_checks() -> dict[str, Check]:
    def check(field: dataclasses.Field[Any]) -> Check:
        if field.name in COLLECTIVES:
            return one_of(COLLECTIVES[field.name])
        if isinstance(field.default, str):
            return TEXT
        return POSITIVE_SHARE if field.name.endswith("_ceiling") else NON_NEGATIVE

    fields = [field for field in dataclasses.fields(Stack) if field.name != "habits"]  # pyright: ignore[reportArgumentType]
    return {field.name: check(field) for field in fields}


def _accelerator(value: Any, known: Mapping[str, Any], where: str) -> Accelerator:
    if isinstance(value, str) and value in known:
        where, value = f'accelerator "{value}"', {"name": value, **known[value]}
    elif isinstance(value, str):
        raise SpecError(f"{where}: `accelerator` is {show(value)}, which is not a known name; {nearest(value, known)}")
    elif not isinstance(value, Mapping):
        fail(where, "accelerator", value, "a name or a table")
    else:
        where = f"{where}, accelerator"
    values = {"name": "custom", **convert(without_prices(value, "accelerator"), _ACCELERATOR_CHECKS, where)}
    without_32bit = "fp32" not in values.get("types", ("fp32",))
    required = (_PEAKS["16bit" if without_32bit else "32bit"],)
    if values.keys() & set(_SECOND_MEMORY):
        required += _SECOND_MEMORY
    require(values, (*required, "hbm_bytes", "hbm_bytes_per_s"), _ACCELERATOR_CHECKS, where)
    if "second_memory_bytes_per_s" in values:  # of an unknown host: what its link carries is the least that it can do
        values.setdefault("host_bytes_per_s", values["second_memory_bytes_per_s"])
    return Accelerator(**_with_emulated(values))


def _with_emulated(values: dict[str, Any]) -> dict[str, Any]:
    """A width without a peak runs at the rate of the next wider one; types and widths follow from those given.

    A chip whose `types` lack fp32 may lack the 32-bit peak too: no plan can ask for it, and 16 bits stand in.
    """
    widths = values.get("widths") or tuple(width for width, peak in _PEAKS.items() if peak in values)
    types = values.get("types") or tuple(name for width in widths for name in _TYPES_OF_WIDTH[width])
    peaks: dict[str, float] = {}
    rate = values[_PEAKS["32bit"] if _PEAKS["32bit"] in values else _PEAKS["16bit"]]
    for peak in _PEAKS.values():
        rate = peaks[peak] = values.get(peak, rate)
    return {**values, **peaks, "widths": widths, "types": types}


def _tiers(tables: Any, accelerators: int, where: str) -> tuple[Tier, ...]:
    if not isinstance(tables, list) or not tables or not all(isinstance(table, Mapping) for table in tables):
        fail(where, "tiers", tables, "a list of one table or more, from the inside out")
    tiers: list[Tier] = []
    for index, table in enumerate(tables):
        label = table.get("name", f"tier{index + 1}")
        here = f"{where}, tier {index + 1}" + (f" ({plain(label)})" if isinstance(label, str) else "")
        values = {"name": label, **convert(without_prices(table, "tier"), _TIER_CHECKS, here)}
        if index == len(tables) - 1 and "size" not in values:
            values |= _as_large_as(accelerators, tiers)
        required = ("size", "bandwidth_bytes_per_s", "latency_s")
        require(values, required, _TIER_CHECKS, here)
        tiers.append(_tier(values, tiers, here))
    if accelerators > tiers[-1].usable_size:
        allowed = f"at most {tiers[-1].usable_size}, the usable size of the last tier"
        fail(where, "accelerators", accelerators, allowed)
    return tuple(tiers)


def _as_large_as(accelerators: int, tiers: list[Tier]) -> dict[str, int]:
    """A last tier without a size holds the cluster: as many domains as it needs."""
    if not tiers:
        return {"size": accelerators}
    domains = -(-accelerators // tiers[-1].usable_size)
    return {"size": domains * tiers[-1].size}


def _tier(values: dict[str, Any], inner: list[Tier], where: str) -> Tier:
    size = values["size"]
    inner_size, inner_usable = (inner[-1].size, inner[-1].usable_size) if inner else (1, 1)
    if size % inner_size:
        fail(where, "size", size, f"a multiple of {inner_size}, the size of the tier inside it")
    most = size // inner_size * inner_usable
    usable = values.setdefault("usable_size", most)
    if usable > most or usable % inner_usable:
        fail(where, "usable_size", usable, f"at most {most}" + (f", a multiple of {inner_usable}" if inner else ""))
    return Tier(**values)
