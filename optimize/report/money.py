"""The part of a screen that tells money and energy. Used by `report.py` alone."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from costmodel import Scalar
from costmodel.formulas import Economics, EconomicsRange
from costmodel.inputs import Cluster
from optimize import units
from optimize.diagnosis import missing

if TYPE_CHECKING:
    from rich.table import Table

_MILLION = 1e6
_ROWS: tuple[tuple[str, Callable[[Economics], Scalar], bool], ...] = (
    ("owned, USD a million tokens", lambda case: case.owned_usd, True),
    ("rented, USD a million tokens", lambda case: case.rental_usd, True),
    ("energy, J a token", lambda case: case.joule_per_token, False),
)
_WHERE = {"price_usd": "prices", "rental_usd_per_hour": "prices", "power_w": "accelerator"}


def money_table(found: EconomicsRange, date: str, new_table: Callable[..., "Table"]) -> "Table":
    """What a token costs at the base prices and at either end; rows of what is not known are left out."""
    dated = f", prices of {date}" if date else ""
    table = new_table(f"money and energy{dated}", "base", "low", "high")
    for label, value, for_step in _ROWS:
        scale = _MILLION / found.base.tokens if for_step else 1.0
        cases = [value(case) for case in (found.base, found.low, found.high)]
        if None not in cases:
            table.add_row(label, *(units.significant(scale * case) for case in cases))
    return table


def money_lines(found: EconomicsRange, cluster: Cluster) -> list[str]:
    """The purchase and the power, and which numbers nobody gave."""
    told = ", ".join(words for words in (_purchase(found), _power(found)) if words)
    gaps = [name for name in missing(cluster) if name != "rental_usd_per_hour" or found.base.owned_usd is None]
    where = ", ".join(f"`{name}` (table `{_WHERE[name]}`)" for name in gaps)
    return [line for line in (told, f"not known, for a cluster file to give: {where}" if gaps else "") if line]


def _purchase(found: EconomicsRange) -> str:
    bill = found.base.bill
    if bill is None or bill.usd == 0:
        return ""
    parts = [("servers", bill.servers_usd), ("second memory", bill.second_memory_usd)]
    parts += [(item.name, item.usd) for item in bill.network] + [("network", bill.unlisted_network_usd)]
    shares = ", ".join(f"{name} {units.percent(usd / bill.usd)}" for name, usd in parts if usd > 0)
    return f"purchase {units.significant(bill.usd / _MILLION)} M USD ({shares})"


def _power(found: EconomicsRange) -> str:
    return "" if found.base.draw is None else f"{units.rate(found.base.draw.meter_w, 'W')} at the meter"
