"""What parts cost and draw and how they fail: one set of numbers for a cluster, in cheap, middle and dear versions."""

from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar


@pytree
class TierPrices:
    """One network level, per accelerator: what grows with its bandwidth in one direction, and what is bought by port.

    Links and NICs carry the bandwidth of the accelerator, switches what oversubscription leaves of it.
    """

    link_usd_per_bytes_per_s: Scalar = 0.0
    switch_usd_per_bytes_per_s: Scalar = 0.0
    nic_usd_per_bytes_per_s: Scalar = 0.0
    link_usd: Scalar = 0.0
    switch_usd: Scalar = 0.0
    nic_usd: Scalar = 0.0
    draw_w_per_bytes_per_s: Scalar = 0.0
    draw_w: Scalar = 0.0


@pytree
class Prices:
    """Money and power around one kind of accelerator. None: not known, and what needs it is not known either.

    A network whose tiers have no prices (`tiers` is None) takes `network_share` of the price of the whole cluster and
    `network_draw_share` of its power.
    """

    price_usd: Scalar | None = None  # one accelerator
    rental_usd_per_s: Scalar | None = None  # one accelerator with its share of everything, power included
    second_memory_usd_per_byte: Scalar = 0.0
    server_factor: Scalar  # price of a server over that of its accelerators
    network_share: Scalar
    tiers: tuple[TierPrices, ...] | None = None
    server_draw_factor: Scalar  # rated power of a server over that of its accelerators
    training_draw: Scalar  # mean power in training over the rated one
    # shares of it that are drawn whatever runs, and by each kind of unit that is busy all the time
    idle_load: Scalar
    compute_load: Scalar
    hbm_load: Scalar
    link_load: Scalar
    idle_draw: Scalar  # mean power of an idle server over the rated one
    network_draw_share: Scalar
    idle_paid: Scalar  # share of the accelerators left idle by plans that is bought and powered
    facility_factor: Scalar  # power at the meter over that of the machines (PUE)
    electricity_usd_per_j: Scalar
    service_life_s: Scalar  # over which the purchase is written off
    carbon_g_per_j: Scalar  # of electricity, in grams of CO2 equivalent
    # how it fails: goodput.py
    accelerator_failure_s: Scalar  # mean time between failures of one accelerator with all around it
    job_failure_s: Scalar  # between interruptions of a job besides
    restart_s: Scalar  # from a failure until training goes on
    checkpoint_bytes_per_s: Scalar  # written by one accelerator
    checkpoint_stall: Scalar  # share of the writing for which training waits
    slow_accelerator_s: Scalar  # mean time between slow spells of one accelerator
    slow_for_s: Scalar  # how long one lasts
    slow_by: Scalar  # how much longer all steps are meanwhile
    server_repair_s: Scalar  # from a failure until what failed is back; 0: spares are not bought
    spares_per_repair: Scalar  # spare accelerators for each failure that is under repair in the mean

    @property
    def loads(self) -> tuple[Scalar, Scalar, Scalar, Scalar]:
        """Shares of the draw in training: whatever runs, and of busy arithmetic units, HBM and links."""
        return self.idle_load, self.compute_load, self.hbm_load, self.link_load


@pytree
class PriceRange:
    """Three sets: in `low` and `high` every number at once is at the end that makes a step cheaper or dearer."""

    date: str = static(default="")  # of the accelerator's price
    low: Prices
    base: Prices
    high: Prices
