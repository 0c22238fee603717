"""What programs compiled by JAX share: its maxima, the compiler's options, and trees without names."""

import dataclasses
import functools
from typing import TypeVar

from costmodel.exact import Exact
from costmodel.inputs import Cluster, Habits, Workload

T = TypeVar("T")

COMPILER_OPTIONS: dict[str, dict[str, bool | str]] = {
    "value": {"xla_cpu_prefer_vector_width": "512"},
    "gradient": {"xla_cpu_prefer_vector_width": "512", "xla_disable_hlo_passes": "fusion"},
    "fused gradient": {"xla_cpu_prefer_vector_width": "512"},
}
"""By role; `python -m experiments run speed` compares them with others. Fusion emitters are on by default.

XLA fuses into one output alone, so that what gradients share is computed anew in each: without fusion they compile in a
tenth of the time and run three times as fast. Fused, they need the flag of `machine_code.py`.
"""


@functools.cache
def in_jax() -> Exact:
    """`Exact(jax.numpy)`."""
    from jax import numpy as jnp

    return Exact(jnp)


def anonymous(tree: T) -> T:
    """`tree` without the names of workload, cluster, accelerator, tiers and stack, which are part of a trace's key.

    Nor habits, which its point has taken up already, nor prices, which `cost` does not read.
    """
    if isinstance(tree, Workload):
        return dataclasses.replace(tree, name="")
    if not isinstance(tree, Cluster):
        return tree
    accelerator = dataclasses.replace(tree.accelerator, name="", widths=(), types=())
    tiers = tuple(dataclasses.replace(tier, name="") for tier in tree.tiers)
    stack = dataclasses.replace(tree.stack, name="", software="", habits=Habits())
    own = {"accelerator": accelerator, "tiers": tiers, "stack": stack}
    return dataclasses.replace(tree, name="", **own, prices=None, partial_domains=False)
