"""The parts of a cluster as the model sees them. SI units; the suffix of a name is its unit."""

from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar

PRECISION_WIDTHS = ("32bit", "16bit", "8bit", "4bit")


@pytree
class Accelerator:
    """One accelerator. Peaks are dense; one that the chip lacks holds the rate at which it would be emulated.

    `hbm_bytes` is what the driver reports (81,559 MiB for an H100 80GB), not the label.
    """

    name: str = static()
    widths: tuple[str, ...] = static(default=PRECISION_WIDTHS)  # those the matmul units have
    types: tuple[str, ...] = static(default=("fp32", "fp16", "bf16"))  # number formats the matmul units have
    peak_32bit_flop_per_s: Scalar
    peak_16bit_flop_per_s: Scalar
    peak_8bit_flop_per_s: Scalar
    peak_4bit_flop_per_s: Scalar
    hbm_bytes: Scalar
    hbm_bytes_per_s: Scalar
    sustained_clock: Scalar = 1.0  # share of the peaks that a power cap below the rated power leaves
    second_memory_bytes: Scalar = 0.0  # of the host or of an expansion, for what is offloaded
    second_memory_bytes_per_s: Scalar = 1.0  # per direction
    host_bytes_per_s: Scalar = 1.0  # one accelerator's part of the memory bandwidth of the host's processors
    power_w: Scalar | None = None  # rated, or capped; None: not published


@pytree
class Tier:
    """One network level, per accelerator and direction. `size` counts the accelerators inside one of its domains.

    A torus is one tier for each axis, the first axis innermost: `size` is the product of the axes so far, and
    `bandwidth_bytes_per_s` is that of both links of an accelerator along the axis together, because a ring collective
    sends half of its chunks each way round (an axis that does not close on itself has one way: half). Groups that span
    several axes go at the pace of the busiest axis, the innermost; algorithms that start different chunks on different
    axes are up to as many times faster as there are axes. All-to-all along an axis takes n / 4 times longer than here.
    """

    name: str = static()
    size: Scalar
    usable_size: Scalar
    bandwidth_bytes_per_s: Scalar
    latency_s: Scalar
    oversubscription: Scalar = 1.0
    in_network_reduction: Scalar = 0.0  # rate of all-reduces in the switches, as a share of the links'; 0: none
