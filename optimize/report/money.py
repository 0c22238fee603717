"""The part of a screen that tells money and energy."""

from collections.abc import Callable

from rich.table import Table

from costmodel import Scalar
from costmodel.formulas import Economics, EconomicsRange
from costmodel.inputs import Cluster
from optimize import units
from optimize.diagnosis import missing
from optimize.report.screen import new_table

_MILLION = 1e6
_ROWS: tuple[tuple[str, Callable[[Economics], Scalar], bool], ...] = (
    ("owned, USD a million tokens", lambda case: case.owned_usd, True),
    ("rented, USD a million tokens", lambda case: case.rental_usd, True),
    ("energy, J a token", lambda case: case.joule_per_token, False),
)
_WHERE = {"price_usd": "prices", "rental_usd_per_hour": "prices", "power_w": "accelerator"}


def money_table(economics: EconomicsRange, date: str) -> Table:
    """What a token costs at the base prices and at either end; rows of what is not known are left out."""
    dated = f"prices of {date}, " if date else ""
    table = new_table(f"{dated}goodput {units.percent(1.0 / economics.base.elapsed)}", "base", "low", "high")
    for label, value, for_step in _ROWS:
        scale = _MILLION / economics.base.tokens if for_step else 1.0
        cases = [value(case) for case in (economics.base, economics.low, economics.high)]
        if None not in cases:
            table.add_row(label, *(units.significant(scale * case) for case in cases))
    return table


def money_lines(economics: EconomicsRange, cluster: Cluster) -> list[str]:
    """The purchase and the power, and which numbers nobody gave."""
    known = ", ".join(words for words in (_purchase(economics), _power(economics)) if words)
    gaps = [name for name in missing(cluster) if name != "rental_usd_per_hour" or economics.base.owned_usd is None]
    where = ", ".join(f"`{name}` (table `{_WHERE[name]}`)" for name in gaps)
    return [line for line in (known, f"not known, for a cluster file to give: {where}" if gaps else "") if line]


def _purchase(economics: EconomicsRange) -> str:
    bill = economics.base.bill
    if bill is None or bill.usd == 0:
        return ""
    parts = [("servers", bill.servers_usd), ("second memory", bill.second_memory_usd)]
    parts += [(item.name, item.usd) for item in bill.network] + [("network", bill.unlisted_network_usd)]
    shares = ", ".join(f"{name} {units.percent(usd / bill.usd)}" for name, usd in parts if usd > 0)
    return f"purchase {units.dollars(bill.usd)} ({shares})"


def _power(economics: EconomicsRange) -> str:
    return "" if economics.base.draw is None else f"{units.rate(economics.base.draw.meter_w, 'W')} at the meter"
