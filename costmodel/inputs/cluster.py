"""A cluster: its hardware, the software on it, and its prices."""

from costmodel.inputs.hardware import Accelerator, Tier
from costmodel.inputs.prices import PriceRange
from costmodel.inputs.stack import Stack
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar


@pytree
class Cluster:
    """Accelerators of one kind behind nested tiers, from the inside out, and the fitted software stack on them."""

    name: str = static()
    accelerator: Accelerator
    tiers: tuple[Tier, ...]
    accelerators: Scalar
    stack: Stack
    prices: PriceRange | None = None  # money and power; nothing in `cost` reads them
    partial_domains: bool = static(default=False)  # groups may straddle domains unevenly
