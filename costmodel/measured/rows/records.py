"""What is read off one measured row: its machine, and the whole of it as the model sees it."""

import dataclasses
from collections.abc import Mapping

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs import die_of


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A cluster, the family that its parameters are fitted by, and its fabric between domains."""

    cluster: Cluster
    family: str
    fabric: str
    domain: int  # accelerators used of each innermost domain
    slice_size: int  # accelerators inside the torus (TPU), or in the whole cluster
    assumed: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A row as the model sees it. Leaves are floats. `cluster.stack` has the habits of its software:
    a fitted stack replaces the fields that are times and keeps those."""

    row: Mapping[str, str]
    source: str
    family: str  # accelerators whose parameters are fitted together
    fabric: str  # node | infiniband | roce | efa | slingshot | ethernet | ici | datacentre
    stack: str  # software class (`costmodel.inputs.SOFTWARE`)
    workload: Workload
    cluster: Cluster
    plan: Plan
    facts: Mapping[str, float]
    assumed: tuple[str, ...]
    open: tuple[str, ...]  # what the row leaves open and `readings.settle` decides
    measured_step_s: float | None
    measured_mem_bytes: float | None
    oom: bool

    @property
    def die(self) -> str:
        """The silicon, which accelerators of several memories share."""
        return die_of(self.family)

    @property
    def product_bits(self) -> int:
        """Of the numbers that the products of this plan take."""
        precision = self.plan.precision
        return {"nvfp4": 4, "fp32": 32}.get(precision, 8 if "fp8" in precision else 16)

    def peak_flop_per_s(self, bits: int) -> float:
        """Of one accelerator, in products of numbers of so many bits."""
        return float(getattr(self.cluster.accelerator, f"peak_{bits}bit_flop_per_s"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A row that cannot be modelled, and why."""

    row: Mapping[str, str]
    reason: str
