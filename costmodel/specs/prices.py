"""Prices and powers from tables: what is shipped, under what a cluster's file says, as three sets of numbers.

Any price may be one number, or a table of `low`, `base` and `high`: the cheap, the middle and the dear end. (Of a life
or a time between failures the long one is the cheap end.)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.inputs import PriceRange, Prices, TierPrices
from costmodel.specs.checks import AT_LEAST_ONE, NON_NEGATIVE, POSITIVE, POSITIVE_SHARE, SHARE, Check, convert, require
from costmodel.specs.files import SpecError, plain
from costmodel.specs.units import file_keys

CASES = ("low", "base", "high")
_BELOW_ONE = Check("a number >= 0 and < 1", lambda value: SHARE(value) and value < 1, keep=float)
_ACCELERATOR = {"price_usd": NON_NEGATIVE, "rental_usd_per_s": NON_NEGATIVE}
_CLUSTER = {
    "second_memory_usd_per_byte": NON_NEGATIVE,
    "server_factor": AT_LEAST_ONE,
    "network_share": _BELOW_ONE,
    "server_draw_factor": AT_LEAST_ONE,
    "training_draw": POSITIVE_SHARE,
    "idle_load": NON_NEGATIVE,
    "compute_load": NON_NEGATIVE,
    "hbm_load": NON_NEGATIVE,
    "link_load": NON_NEGATIVE,
    "idle_draw": SHARE,
    "network_draw_share": _BELOW_ONE,
    "idle_paid": SHARE,
    "facility_factor": AT_LEAST_ONE,
    "electricity_usd_per_j": NON_NEGATIVE,
    "service_life_s": POSITIVE,
    "carbon_g_per_j": NON_NEGATIVE,
    "accelerator_failure_s": POSITIVE,
    "job_failure_s": POSITIVE,
    "restart_s": NON_NEGATIVE,
    "checkpoint_bytes_per_s": POSITIVE,
    "checkpoint_stall": SHARE,
    "slow_accelerator_s": POSITIVE,
    "slow_for_s": NON_NEGATIVE,
    "slow_by": NON_NEGATIVE,
    "server_repair_s": NON_NEGATIVE,
    "spares_per_repair": NON_NEGATIVE,
}
PRICE_CHECKS: dict[str, Check] = _ACCELERATOR | _CLUSTER
TIER_PRICE_CHECKS: dict[str, Check] = dict.fromkeys(
    (
        *(f"{part}_usd_per_bytes_per_s" for part in ("link", "switch", "nic")),
        *(f"{part}_usd" for part in ("link", "switch", "nic")),
        "draw_w_per_bytes_per_s",
        "draw_w",
    ),
    NON_NEGATIVE,
)


_PRICE_KEYS = {
    "accelerator": {key for field in _ACCELERATOR for key in file_keys(field)},
    "tier": {key for field in TIER_PRICE_CHECKS for key in file_keys(field)},
}


def prices_in(table: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The prices that stand in the table of an `accelerator` or a `tier`."""
    return {key: value for key, value in table.items() if key in _PRICE_KEYS[part]}


def without_prices(table: Mapping[str, Any], part: str) -> dict[str, Any]:
    """What else stands there."""
    return {key: value for key, value in table.items() if key not in _PRICE_KEYS[part]}


def prices_from(
    shipped: Mapping[str, Any],
    accelerator: str,
    tiers: Sequence[tuple[str, Mapping[str, Any]]],
    own: Mapping[str, Any],
    where: str,
) -> PriceRange:
    """The three sets for a cluster of this accelerator: what is shipped, overridden by the cluster's `own` table.

    `tiers` gives the name of each level and the prices in its table. Levels without any are looked up by name; unless
    all are found, the network is priced as a share of the whole.
    """
    known = shipped.get("accelerators", {}).get(accelerator, {})
    layers = (
        (shipped["defaults"], "shipped prices"),
        (known, f'shipped prices of "{plain(accelerator)}"'),
        (own, f"{where}, prices"),
    )
    networks = shipped.get("networks", {})
    levels = [(table or networks.get(name), f"{where}, tier {plain(name)}") for name, table in tiers]

    def case(name: str) -> Prices:
        values: dict[str, Any] = {}
        for table, place in layers:
            values |= convert(pick(table, name, place), PRICE_CHECKS, place)
        require(values, _CLUSTER, PRICE_CHECKS, f"{where}, prices")
        listed = [
            TierPrices(**convert(pick(table, name, place), TIER_PRICE_CHECKS, place))
            for table, place in levels
            if table
        ]
        return Prices(**values, tiers=tuple(listed) if len(listed) == len(levels) else None)

    dated = own if "price_usd" in own else known
    date = dated.get("price_date", dated.get("rental_date", ""))
    return PriceRange(**{name: case(name) for name in CASES}, date=date if isinstance(date, str) else "")


def pick(table: Mapping[str, Any], case: str, where: str) -> dict[str, Any]:
    """One value of each price."""
    picked = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            if set(value) != set(CASES):
                raise SpecError(f"{where}: `{plain(key)}` has {', '.join(map(plain, value))}; expected low, base, high")
            value = value[case]
        picked[key] = value
    return picked
