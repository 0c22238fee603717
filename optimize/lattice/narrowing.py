"""Fewer plans where a lattice is too large for a design, which looks at many counts: what is left out is said."""

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.inputs import Cluster, Workload
from optimize.lattice.enumeration import lattice
from optimize.lattice.recompute_families import Families
from optimize.question import sized

LARGE = 600_000  # families of one count: a quarter of a second
TRIED = 32  # domains, where the lattice is counted
LONG = 16_384  # tokens from which more context ranks may be worth it
_STEPS: tuple[tuple[Mapping[str, Any], str], ...] = (
    ({"expert_tensor": 1}, "`expert_tensor` 1"),
    ({"context": {1, 2}}, "`context` 1 or 2"),
    ({"zero_stage": {1, 3}}, "`zero_stage` 1 or 3"),
    ({"sequence_parallel": True}, "`sequence_parallel` on"),
)


def thinned(
    workloads: Sequence[Workload], machine: Cluster, fixed: Mapping[str, Any]
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The fields to fix besides `fixed`, one after another until the lattice is small enough; and in words."""
    own, said = dict(fixed), []
    for step, words in _STEPS:
        if max(_families(workload, machine, own) for workload in workloads) <= LARGE:
            break
        name = next(iter(step))
        if name in own or (name == "context" and any(workload.sequence > LONG for workload in workloads)):
            continue
        own |= step
        said.append(words)
    return own, tuple(said)


def _families(workload: Workload, machine: Cluster, fixed: Mapping[str, Any]) -> int:
    domain = int(machine.tiers[0].usable_size)
    whole = lattice(workload, sized(machine, TRIED * domain), {**fixed, "domain": domain}, every_shard=False)
    return len(Families(whole))
