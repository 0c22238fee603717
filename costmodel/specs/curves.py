"""Price and power curves: read from tables as three sets of numbers (prices.py), and set beside a cluster's prices."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.formulas import (
    CurveRange,
    Curves,
    Hardware,
    PowerLaw,
    bill,
    capital_usd,
    chip_usd,
    chip_w,
    draw,
    hardware_of,
    meter_w,
    with_hardware,
)
from costmodel.inputs import Cluster, PriceRange, Prices, TierPrices
from costmodel.specs.checks import AT_LEAST_ONE, NON_NEGATIVE, POSITIVE, POSITIVE_SHARE, SHARE, Check, convert, require
from costmodel.specs.files import SpecError, plain, show
from costmodel.specs.prices import CASES, pick

_FACTORS: dict[str, Check] = {
    "server_factor": AT_LEAST_ONE,
    "server_draw_factor": AT_LEAST_ONE,
    "training_draw": POSITIVE_SHARE,
    "idle_draw": SHARE,
    "facility_factor": AT_LEAST_ONE,
}
_QUANTITIES = {
    "flop": "flop_per_s",
    "hbm": "bytes",
    "hbm_rate": "bytes_per_s",
    "scale_up": "bytes_per_s",
    "scale_out": "bytes_per_s",
    "second_memory": "bytes",
}
"""Unit of what each law takes, by its name without `_usd` or `_w`."""
_LAWS = [field.name for field in dataclasses.fields(Curves) if field.name not in _FACTORS]  # pyright: ignore[reportArgumentType]


def curves_from(table: Mapping[str, Any], where: str, name: str) -> CurveRange:
    """Low, base and high curves from one table."""
    sections = {key: value for key, value in table.items() if isinstance(value, Mapping) and set(value) != set(CASES)}
    for key in sections:
        if key not in _LAWS:
            raise SpecError(f"{where}: `{plain(key)}` is not a curve; expected one of {', '.join(_LAWS)}")
    for key in _LAWS:
        if key not in sections:
            raise SpecError(f"{where}: `{key}` is {show(table.get(key))}; expected a table of amount and reference")
    own = {key: value for key, value in table.items() if key not in sections}

    def case(end: str) -> Curves:
        values = convert(pick(own, end, where), _FACTORS, where)
        require(values, _FACTORS, _FACTORS, where)
        return Curves(**values, **{key: _law(key, pick(sections[key], end, where), where) for key in _LAWS})

    return CurveRange(name=name, **{end: case(end) for end in CASES})


def _law(name: str, table: Mapping[str, Any], where: str) -> PowerLaw:
    here, reference = f"{where}, {name}", f"reference_{_QUANTITIES[name.rpartition('_')[0]]}"
    checks = {"amount": NON_NEGATIVE, reference: POSITIVE, "exponent": POSITIVE}
    values = convert(table, checks, here)
    require(values, ("amount", reference), checks, here)
    return PowerLaw(amount=values["amount"], reference=values[reference], exponent=values.get("exponent", 1.0))


def priced(template: Cluster, hardware: Hardware, curves: CurveRange) -> Cluster:
    """`with_hardware`, with prices and power by which `economics` agrees with `capital_usd` and `meter_w`.

    Rentals are not known for parts that do not exist. The rest (life, electricity, ...) is the template's.
    """
    if template.prices is None:
        raise ValueError(f"cluster {template.name!r} has no prices; expected one that `specs.load_cluster` read")
    cluster, known = with_hardware(template, hardware), template.prices
    accelerator = dataclasses.replace(cluster.accelerator, power_w=chip_w(hardware, curves.base))
    cases = {name: _prices(getattr(known, name), hardware, getattr(curves, name), len(cluster.tiers)) for name in CASES}
    prices = PriceRange(date=known.date, **cases)
    return dataclasses.replace(cluster, accelerator=accelerator, prices=prices)


def anchored(curves: CurveRange, template: Cluster) -> CurveRange:
    """The curves at the level of a template: at its own hardware they cost and draw what it does, where that is known.

    The curves' shape is that of the parts they were derived from; other vendors and racks sell the same rates for half
    as much. What an accelerator costs (and draws) is multiplied by one factor; networks and second memories keep
    their prices.
    """
    if template.prices is None:
        return curves
    known = template.prices
    cases = {name: _anchored(getattr(curves, name), getattr(known, name), template) for name in CASES}
    return CurveRange(name=f"{curves.name}, level of {template.name}", **cases)


def _anchored(curves: Curves, prices: Prices, template: Cluster) -> Curves:
    hardware, laws = hardware_of(template), {}
    count = hardware.accelerators
    if prices.price_usd is not None:
        parts_usd = count * curves.server_factor * chip_usd(hardware, curves)
        around_usd = capital_usd(hardware, curves) - parts_usd
        left_usd = bill(template, prices, count).usd - around_usd
        laws |= _scaled(curves, ("flop_usd", "hbm_usd", "hbm_rate_usd"), left_usd / parts_usd)
    if template.accelerator.power_w is not None:
        network_w = curves.facility_factor * count * curves.scale_out_w(hardware.scale_out_bytes_per_s)
        left_w = draw(template, prices, count, 0.0).meter_w - network_w
        laws |= _scaled(curves, ("flop_w", "hbm_rate_w"), left_w / (meter_w(hardware, curves) - network_w))
    return dataclasses.replace(curves, **laws)


def _scaled(curves: Curves, names: tuple[str, ...], factor: float) -> dict[str, PowerLaw]:
    """Laws with their amounts times a factor; as they are where the factor makes no sense."""
    if factor <= 0:
        return {}
    laws = {name: getattr(curves, name) for name in names}
    return {name: dataclasses.replace(law, amount=factor * law.amount) for name, law in laws.items()}


def _prices(known: Prices, hardware: Hardware, curves: Curves, tiers: int) -> Prices:
    bytes_2 = hardware.second_memory_bytes
    inner = TierPrices(link_usd=curves.scale_up_usd(hardware.scale_up_bytes_per_s))
    outer = TierPrices(
        link_usd=curves.scale_out_usd(hardware.scale_out_bytes_per_s),
        draw_w=curves.scale_out_w(hardware.scale_out_bytes_per_s),
    )
    return dataclasses.replace(
        known,
        price_usd=chip_usd(hardware, curves),
        rental_usd_per_s=None,
        second_memory_usd_per_byte=curves.second_memory_usd(bytes_2) / bytes_2 if bytes_2 else 0.0,
        server_factor=curves.server_factor,
        tiers=(inner, *(TierPrices() for _ in range(tiers - 2)), outer),
        server_draw_factor=curves.server_draw_factor,
        training_draw=curves.training_draw,
        idle_draw=curves.idle_draw,
        facility_factor=curves.facility_factor,
    )
