r"""Hardware as variables: what a cluster with any rates would cost and draw.

$$\text{capital} = N \big(s\,(c_F F^{a_F} + c_M M^{a_M} + c_B B^{a_B}) + c_u u^{a_u} + c_o o^{a_o} + c_2 M_2\big)$$

with $F$ the 16-bit peak, $M$ and $B$ bytes and bandwidth of the HBM, $u$ and $o$ the bandwidths inside and between
scale-up domains, $M_2$ a second memory, $s$ the price of a server over that of the accelerators in it. Power has the
same form. Both are posynomials: their logarithms are convex in the logarithms of the hardware, whatever the exponents.

Latencies and sizes of domains have no price here: they stay those of the template cluster.
"""

import dataclasses

from costmodel.inputs import Cluster
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar

_WIDTHS = ("32bit", "8bit", "4bit")


@pytree
class Hardware:
    """One accelerator of a cluster, and how many are bought."""

    flop_per_s: Scalar  # dense 16-bit peak
    hbm_bytes: Scalar
    hbm_bytes_per_s: Scalar
    scale_up_bytes_per_s: Scalar  # of the innermost tier; those between it and the outermost keep their ratio to it
    scale_out_bytes_per_s: Scalar  # of the outermost tier
    second_memory_bytes: Scalar = 0.0
    second_memory_bytes_per_s: Scalar = 1.0
    accelerators: Scalar


@pytree
class PowerLaw:
    """`amount * (x / reference) ** exponent`: dollars or watts of one quantity of an accelerator."""

    amount: Scalar
    reference: Scalar
    exponent: Scalar = 1.0

    def __call__(self, quantity: Scalar) -> Scalar:
        return self.amount * (quantity / self.reference) ** self.exponent


@pytree
class Curves:
    """Prices and powers of an accelerator by its rates and sizes, and what stands around it."""

    flop_usd: PowerLaw
    hbm_usd: PowerLaw
    hbm_rate_usd: PowerLaw
    scale_up_usd: PowerLaw
    scale_out_usd: PowerLaw
    second_memory_usd: PowerLaw
    flop_w: PowerLaw
    hbm_rate_w: PowerLaw
    scale_out_w: PowerLaw
    server_factor: Scalar  # price of a server, without its scale-up network, over that of its accelerators
    server_draw_factor: Scalar
    training_draw: Scalar
    idle_draw: Scalar
    facility_factor: Scalar


@pytree
class CurveRange:
    """Three sets, as in `prices.PriceRange`: the cheap, the middle and the dear one."""

    name: str = static(default="")
    low: Curves
    base: Curves
    high: Curves


def chip_usd(hardware: Hardware, curves: Curves) -> Scalar:
    """One accelerator with its HBM."""
    memory = curves.hbm_usd(hardware.hbm_bytes) + curves.hbm_rate_usd(hardware.hbm_bytes_per_s)
    return curves.flop_usd(hardware.flop_per_s) + memory


def chip_w(hardware: Hardware, curves: Curves) -> Scalar:
    """Its rated power, the scale-up links included."""
    return curves.flop_w(hardware.flop_per_s) + curves.hbm_rate_w(hardware.hbm_bytes_per_s)


def capital_usd(hardware: Hardware, curves: Curves) -> Scalar:
    """The purchase of the whole cluster. (Which has a second memory where its bytes are above zero.)"""
    network = curves.scale_up_usd(hardware.scale_up_bytes_per_s) + curves.scale_out_usd(hardware.scale_out_bytes_per_s)
    memory = curves.second_memory_usd(hardware.second_memory_bytes)
    return hardware.accelerators * (curves.server_factor * chip_usd(hardware, curves) + network + memory)


def meter_w(hardware: Hardware, curves: Curves, idle: Scalar = 0.0, load: Scalar = 1.0) -> Scalar:
    """Mean power at the facility's meter while training; `idle` of the accelerators that are bought do not train.

    The others draw `load` of what is usual in training (economics.py).
    """
    busy = load * (hardware.accelerators - idle)
    working = busy * curves.training_draw + idle * curves.idle_draw
    servers_w = working * curves.server_draw_factor * chip_w(hardware, curves)
    network_w = hardware.accelerators * curves.scale_out_w(hardware.scale_out_bytes_per_s)
    return curves.facility_factor * (servers_w + network_w)


def hardware_of(cluster: Cluster) -> Hardware:
    """The hardware that a cluster has."""
    chip = cluster.accelerator
    return Hardware(
        flop_per_s=chip.peak_16bit_flop_per_s,
        hbm_bytes=chip.hbm_bytes,
        hbm_bytes_per_s=chip.hbm_bytes_per_s,
        scale_up_bytes_per_s=cluster.tiers[0].bandwidth_bytes_per_s,
        scale_out_bytes_per_s=cluster.tiers[-1].bandwidth_bytes_per_s,
        second_memory_bytes=chip.second_memory_bytes,
        second_memory_bytes_per_s=chip.second_memory_bytes_per_s,
        accelerators=cluster.accelerators,
    )


def with_hardware(template: Cluster, hardware: Hardware) -> Cluster:
    """The template with other rates and sizes; peaks of other widths and tiers in between keep their ratios.

    A template has two tiers or more. Its prices are those of other parts and are dropped: `specs.priced` sets new ones.
    """
    chip = template.accelerator
    faster = hardware.flop_per_s / chip.peak_16bit_flop_per_s
    wider = hardware.scale_up_bytes_per_s / template.tiers[0].bandwidth_bytes_per_s
    peaks = {f"peak_{width}_flop_per_s": faster * getattr(chip, f"peak_{width}_flop_per_s") for width in _WIDTHS}
    accelerator = dataclasses.replace(
        chip,
        **peaks,
        peak_16bit_flop_per_s=hardware.flop_per_s,
        hbm_bytes=hardware.hbm_bytes,
        hbm_bytes_per_s=hardware.hbm_bytes_per_s,
        second_memory_bytes=hardware.second_memory_bytes,
        second_memory_bytes_per_s=hardware.second_memory_bytes_per_s,
    )
    rates = (
        hardware.scale_up_bytes_per_s,
        *(wider * tier.bandwidth_bytes_per_s for tier in template.tiers[1:-1]),
        hardware.scale_out_bytes_per_s,
    )
    tiers = tuple(
        dataclasses.replace(tier, bandwidth_bytes_per_s=rate) for tier, rate in zip(template.tiers, rates, strict=True)
    )
    return dataclasses.replace(
        template, accelerator=accelerator, tiers=tiers, accelerators=hardware.accelerators, prices=None
    )
