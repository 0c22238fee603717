"""What the money of an answer is spent on."""

from costmodel import as_floats
from costmodel.formulas import CurveRange, bill, hardware_of
from optimize.clusters import Answer

PARTS: tuple[str, ...] = (
    "FLOP/s",
    "HBM bytes",
    "HBM bandwidth",
    "servers",
    "second memory",
    "scale-up network",
    "scale-out network",
)
"""`servers`: accelerators, their HBM and what stands around them, where a price list does not divide them."""


def of_curves(answer: Answer, curves: CurveRange) -> dict[str, float]:
    """Dollars by part of a cluster of any rates: the terms of `curves.capital_usd`, a server's share on each."""
    c, have = as_floats(curves.base), hardware_of(as_floats(answer.cluster))
    each = {
        "FLOP/s": c.server_factor * c.flop_usd(have.flop_per_s),
        "HBM bytes": c.server_factor * c.hbm_usd(have.hbm_bytes),
        "HBM bandwidth": c.server_factor * c.hbm_rate_usd(have.hbm_bytes_per_s),
        "second memory": c.second_memory_usd(have.second_memory_bytes) if have.second_memory_bytes else 0.0,
        "scale-up network": c.scale_up_usd(have.scale_up_bytes_per_s),
        "scale-out network": c.scale_out_usd(have.scale_out_bytes_per_s),
    }
    return {name: float(answer.quantities.accelerators * usd) for name, usd in each.items() if usd}


def of_list(answer: Answer) -> dict[str, float]:
    """Dollars by part of a cluster of real parts, as its price list divides them."""
    assert answer.cluster.prices is not None
    cluster, prices = as_floats(answer.cluster), as_floats(answer.cluster.prices.base)
    total = bill(cluster, prices, answer.quantities.accelerators)
    inner = float(sum(item.usd for item in total.network[:-1]))
    outer = float(sum(item.usd for item in total.network[-1:])) + float(total.unlisted_network_usd)
    usd = {
        "servers": float(total.servers_usd),
        "second memory": float(total.second_memory_usd),
        "scale-up network": inner,
        "scale-out network": outer,
    }
    return {name: amount for name, amount in usd.items() if amount}
