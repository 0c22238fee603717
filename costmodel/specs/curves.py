"""Price and power curves from tables, as three sets of numbers (see `_specs_prices.py`)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.formulas import CurveRange, Curves, PowerLaw
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
