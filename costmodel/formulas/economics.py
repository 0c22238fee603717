r"""Money, power and energy: the bill of a cluster, what it draws, and what a step and a token cost.

$$\text{step} = \frac{\text{purchase}}{\text{life}}\,T + P_\text{meter}\,T\,p_\text{electricity}
\quad\text{or}\quad \text{rental} \cdot N\,T$$

with $T$ seconds of the clock: those of the step times what failures add (goodput.py), where a job is known.

Servers that train draw $P\,(s_0 + \sum_u s_u b_u / T)$ with $P$ the usual power in training, $b_u$ the seconds in which
the units of a kind are busy (busy.py) and shares $s$ (`Prices`): objectives, bounds and reports count it alike.
`drawn_s` is $s_0 T + \sum_u s_u b_u$, the seconds at $P$ that take as much energy. A limit of the power is one of $P$
itself, what a site must provide: the mean of a step may be above it, and is no posynomial.

Arithmetic only. The bill is a posynomial in prices, the draw in powers, both in bandwidths; their products with the
time of a step, and so dollars and joules of a step, are generalized posynomials in prices, powers and rates: the joules
of busy units are sums of watts times busy seconds.
"""

from costmodel.formulas.goodput import elapsed, spare_share
from costmodel.inputs import Cluster, PriceRange, Prices, Tier, TierPrices
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, total


@pytree
class Busy:
    """Seconds of a step in which the units of an accelerator are busy, in the mean over the stages."""

    compute_s: Scalar
    hbm_s: Scalar
    links_s: Scalar  # messages are under way, of one kind or another


@pytree
class NetworkBill:
    """One network level for the whole cluster."""

    name: str = static()
    link_usd: Scalar
    switch_usd: Scalar
    nic_usd: Scalar

    @property
    def usd(self) -> Scalar:
        """All of it."""
        return self.link_usd + self.switch_usd + self.nic_usd


@pytree
class Bill:
    """The purchase of a cluster. Exactly one of `network` and `unlisted_network_usd` holds the network."""

    servers_usd: Scalar  # with their accelerators, the idle ones and the spares included
    second_memory_usd: Scalar
    network: tuple[NetworkBill, ...]
    unlisted_network_usd: Scalar

    @property
    def network_usd(self) -> Scalar:
        """The whole network, listed by level or not."""
        return total(item.usd for item in self.network) + self.unlisted_network_usd

    @property
    def usd(self) -> Scalar:
        """The whole purchase."""
        return self.servers_usd + self.second_memory_usd + self.network_usd


@pytree
class Draw:
    """Mean power while training."""

    servers_w: Scalar
    full_w: Scalar  # the same by `Prices.training_draw` alone: what limits count
    idle_w: Scalar  # servers of accelerators that the plan leaves idle, and of spares
    network_w: tuple[Scalar, ...]  # by tier; one number where tiers have no prices
    facility_factor: Scalar

    @property
    def machines_w(self) -> Scalar:
        """Servers, idle ones among them, and the network."""
        return self.servers_w + self.idle_w + total(self.network_w)

    @property
    def meter_w(self) -> Scalar:
        """Power at the facility's meter: cooling and losses included."""
        return self.facility_factor * self.machines_w

    @property
    def load(self) -> Scalar:
        """What the servers draw over what is usual in training."""
        return self.servers_w / self.full_w


@pytree
class Economics:
    """One step in money and energy. None where a price or a power that it needs is not known."""

    step_s: Scalar
    elapsed: Scalar  # seconds of the clock for one of training: failures, checkpoints, restarts
    tokens: Scalar
    bill: Bill | None
    draw: Draw | None
    capital_usd: Scalar | None  # of a step: its share of the purchase
    energy_usd: Scalar | None  # of a step
    rental_usd: Scalar | None  # of a step, instead of the other two
    carbon_g: Scalar | None  # of a step's electricity

    @property
    def owned_usd(self) -> Scalar | None:
        """Purchase written off, and electricity."""
        if self.capital_usd is None or self.energy_usd is None:
            return None
        return self.capital_usd + self.energy_usd

    @property
    def usd_per_step(self) -> Scalar | None:
        """Dollars of a step on an owned cluster; on a rented one where the price of owning is not known."""
        return self.rental_usd if self.owned_usd is None else self.owned_usd

    @property
    def usd_per_token(self) -> Scalar | None:
        """Dollars of a token on the same cluster as `usd_per_step`."""
        return None if self.usd_per_step is None else self.usd_per_step / self.tokens

    @property
    def joule_per_step(self) -> Scalar | None:
        """Energy at the meter, for as long as the clock takes for a step."""
        return None if self.draw is None else self.draw.meter_w * self.step_s * self.elapsed

    @property
    def joule_per_token(self) -> Scalar | None:
        """The same by token."""
        return None if self.joule_per_step is None else self.joule_per_step / self.tokens


@pytree
class EconomicsRange:
    """Economics by each of the three sets of prices."""

    low: Economics
    base: Economics
    high: Economics


def economics(
    cluster: Cluster,
    prices: Prices,
    accelerators: Scalar,
    domain: Scalar,
    step_s: Scalar,
    tokens: Scalar,
    busy: Busy | None = None,
    state_bytes: Scalar | None = None,
) -> Economics:
    """A step of `step_s` seconds and `tokens` on `accelerators`, `domain` of which are used of each innermost domain.

    Checkpoints hold `state_bytes`; None: the seconds are those of the clock, whatever fails. Without `busy` they draw
    what is usual in training. `cluster.accelerators` may be larger: what a plan does not use is another job's.
    """
    idle = prices.idle_paid * (accelerators / domain) * idle_per_domain(cluster, domain)
    idle = idle + accelerators * spare_share(prices)
    paid_for = accelerators + idle
    bought = None if prices.price_usd is None else bill(cluster, prices, paid_for)
    share = 1.0 if busy is None else drawn_s(prices.loads, busy, step_s) / step_s
    drawn = None if cluster.accelerator.power_w is None else draw(cluster, prices, accelerators, idle, share)
    rental = prices.rental_usd_per_s
    slower = 1.0 if state_bytes is None else elapsed(prices, accelerators, state_bytes)
    clock_s = step_s * slower
    joule = None if drawn is None else drawn.meter_w * clock_s
    return Economics(
        step_s=step_s,
        elapsed=slower,
        tokens=tokens,
        bill=bought,
        draw=drawn,
        capital_usd=None if bought is None else bought.usd * clock_s / prices.service_life_s,
        energy_usd=None if joule is None else joule * prices.electricity_usd_per_j,
        rental_usd=None if rental is None else rental * paid_for * clock_s,
        carbon_g=None if joule is None else joule * prices.carbon_g_per_j,
    )


def economics_range(
    cluster: Cluster,
    prices: PriceRange,
    accelerators: Scalar,
    domain: Scalar,
    step_s: Scalar,
    tokens: Scalar,
    busy: Busy | None = None,
    state_bytes: Scalar | None = None,
) -> EconomicsRange:
    """The same step under the low, the base and the high set."""
    asked = (accelerators, domain, step_s, tokens, busy, state_bytes)
    return EconomicsRange(
        low=economics(cluster, prices.low, *asked),
        base=economics(cluster, prices.base, *asked),
        high=economics(cluster, prices.high, *asked),
    )


def idle_per_domain(cluster: Cluster, domain: Scalar) -> Scalar:
    """Accelerators of one innermost domain that a plan of `domain` of each leaves idle (8 of 72 under 64)."""
    return cluster.tiers[0].size - domain


def bill(cluster: Cluster, prices: Prices, accelerators: Scalar) -> Bill:
    """The purchase of so many accelerators with servers, second memory and network."""
    servers_usd = accelerators * prices.price_usd * prices.server_factor
    memory_usd = accelerators * prices.second_memory_usd_per_byte * cluster.accelerator.second_memory_bytes
    share = prices.network_share
    listed = () if prices.tiers is None else tuple(zip(cluster.tiers, prices.tiers, strict=True))
    unlisted_usd = (servers_usd + memory_usd) * share / (1 - share) if prices.tiers is None else 0.0
    return Bill(
        servers_usd=servers_usd,
        second_memory_usd=memory_usd,
        network=tuple(network_bill(tier, price, accelerators) for tier, price in listed),
        unlisted_network_usd=unlisted_usd,
    )


def network_bill(tier: Tier, price: TierPrices, accelerators: Scalar) -> NetworkBill:
    """Links, switches and NICs of one tier, for so many accelerators."""
    speed, through = tier.bandwidth_bytes_per_s, tier.bandwidth_bytes_per_s / tier.oversubscription
    return NetworkBill(
        name=tier.name,
        link_usd=accelerators * (price.link_usd + price.link_usd_per_bytes_per_s * speed),
        switch_usd=accelerators * (price.switch_usd + price.switch_usd_per_bytes_per_s * through),
        nic_usd=accelerators * (price.nic_usd + price.nic_usd_per_bytes_per_s * speed),
    )


def drawn_s(loads: tuple[Scalar, Scalar, Scalar, Scalar], busy: Busy, step_s: Scalar) -> Scalar:
    """Seconds at the usual power in training that take as much energy as a step (`Prices.loads`): a posynomial."""
    whatever, compute, hbm, links = loads
    return whatever * step_s + compute * busy.compute_s + hbm * busy.hbm_s + links * busy.links_s


def draw(cluster: Cluster, prices: Prices, accelerators: Scalar, idle: Scalar, load: Scalar = 1.0) -> Draw:
    """Mean power of so many training accelerators and of the idle ones beside them."""
    server_w = cluster.accelerator.power_w * prices.server_draw_factor
    full_w, idle_w = accelerators * prices.training_draw * server_w, idle * prices.idle_draw * server_w
    share = prices.network_draw_share
    if prices.tiers is None:
        network_w = ((full_w + idle_w) * share / (1 - share),)
    else:
        network_w = tuple(
            (accelerators + idle) * (price.draw_w + price.draw_w_per_bytes_per_s * tier.bandwidth_bytes_per_s)
            for tier, price in zip(cluster.tiers, prices.tiers, strict=True)
        )
    facility = prices.facility_factor
    return Draw(servers_w=load * full_w, full_w=full_w, idle_w=idle_w, network_w=network_w, facility_factor=facility)
