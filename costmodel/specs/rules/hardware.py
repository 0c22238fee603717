"""Rules of what a plan uses of the hardware: accelerators of each domain, number formats, the second memory."""

from collections.abc import Iterator
from typing import Any

from costmodel.inputs import PRECISION_TYPES
from costmodel.specs.files import show
from costmodel.specs.rules.demands import Demands, Rule, domain_of


def domain(d: Demands) -> Iterator[Rule]:
    """Within the innermost tier, and dividing the accelerators where they fill more than one."""
    inner = d.cluster.tiers[0]
    yield Rule(
        ("domain",),
        lambda p: domain_of(d, p) <= inner.size,
        lambda p: (
            f"`domain` is {show(domain_of(d, p))}; expected at most the {inner.size} accelerators of the tier "
            f"{inner.name}"
        ),
    )
    yield Rule(
        ("domain", "accelerators"),
        lambda p: (
            (domain_of(d, p) > inner.size)
            | (p.accelerators <= domain_of(d, p))
            | (p.accelerators % domain_of(d, p) == 0)
        ),
        lambda p: (
            f"`domain` is {show(domain_of(d, p))}; expected a divisor of the {show(p.accelerators)} accelerators, "
            f"because they fill more than one (such as {_divisor(p.accelerators, domain_of(d, p))})"
        ),
    )


def _divisor(count: Any, most: Any) -> int:
    """The largest divisor that is no larger."""
    return max(size for size in range(1, int(most) + 1) if int(count) % size == 0)


def precision(d: Demands) -> Iterator[Rule]:
    """The matmul units have the number format."""
    chip = d.cluster.accelerator
    yield Rule(
        ("precision",),
        lambda p: PRECISION_TYPES[p.precision] in chip.types,
        lambda p: f"`precision` is {p.precision}; expected a type that {chip.name} has: {', '.join(chip.types)}",
    )


def second_memory(d: Demands) -> Iterator[Rule]:
    """What is offloaded has somewhere to go."""
    chip = d.cluster.accelerator
    for name in ("offload_weights", "offload_optimizer", "offload_activations", "offload_gradients"):
        yield Rule(
            (name,),
            lambda p, name=name: (chip.second_memory_bytes > 0) | (getattr(p, name) <= 0),
            lambda p, name=name: (
                f"`{name}` is {show(getattr(p, name))}; expected 0, because {chip.name} has no `second_memory_bytes`"
            ),
        )
