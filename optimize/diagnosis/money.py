"""Money and energy of an answer as plain data: the base prices, the low and the high ones beside them."""

from typing import Any

from costmodel.formulas import Bill, Draw, Economics, EconomicsRange
from costmodel.inputs import Cluster


def economics_json(economics: EconomicsRange | None, cluster: Cluster) -> dict[str, Any] | None:
    """The base figures by name, and the same under `low` and `high`. None stands where a price is not known."""
    if economics is None:
        return None
    ends = {"low": _figures(economics.low), "high": _figures(economics.high)}
    date = cluster.prices.date if cluster.prices else ""
    return {**_figures(economics.base), **ends, "prices_date": date or None, "missing": missing(cluster)}


def missing(cluster: Cluster) -> list[str]:
    """The fields that nobody gave, and without which a part is None."""
    prices = cluster.prices
    if prices is None:
        return ["prices"]
    known = {
        "price_usd": prices.base.price_usd,
        "rental_usd_per_hour": prices.base.rental_usd_per_s,
        "power_w": cluster.accelerator.power_w,
    }
    return [name for name, value in known.items() if value is None]


def _figures(case: Economics) -> dict[str, Any]:
    owned = case.owned_usd is not None
    return {
        "usd_per_step": case.usd_per_step,
        "usd_per_token": case.usd_per_token,
        "joule_per_step": case.joule_per_step,
        "joule_per_token": case.joule_per_token,
        "basis": "owned" if owned else "rented" if case.rental_usd is not None else None,
        "owned_usd_per_step": case.owned_usd,
        "capital_usd_per_step": case.capital_usd,
        "energy_usd_per_step": case.energy_usd,
        "rental_usd_per_step": case.rental_usd,
        "goodput": 1.0 / case.elapsed,
        "carbon_g_per_step": case.carbon_g,
        "purchase_usd": None if case.bill is None else case.bill.usd,
        "meter_w": None if case.draw is None else case.draw.meter_w,
        "bill": None if case.bill is None else _bill(case.bill),
        "draw": None if case.draw is None else _draw(case.draw),
    }


def _bill(bill: Bill) -> dict[str, Any]:
    parts = ("link_usd", "switch_usd", "nic_usd")
    return {
        "servers_usd": bill.servers_usd,
        "second_memory_usd": bill.second_memory_usd,
        "network": [{"name": item.name} | {part: getattr(item, part) for part in parts} for item in bill.network],
        "unlisted_network_usd": bill.unlisted_network_usd,
    }


def _draw(draw: Draw) -> dict[str, Any]:
    return {
        "servers_w": draw.servers_w,
        "servers_full_w": draw.full_w,
        "idle_w": draw.idle_w,
        "network_w": list(draw.network_w),
        "facility_factor": draw.facility_factor,
    }
