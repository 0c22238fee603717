"""What each term of the model buys: the errors without it.

A term is dropped by making it cost nothing (bandwidths and ceilings a million times larger, host work a millionth,
narrow formats at the rate of 16 bits, nothing recomputed). Then one factor for all rows, chosen on calibration rows,
takes up what it was worth on average: the other constants are not fitted again, so the figures are upper bounds of
what a term buys.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Cluster, Tier
from costmodel.measured import Case, evaluated

_NOTHING = 1e6
Change = Callable[[Case], Case]


def _stack(**factors: float) -> Change:
    def change(case: Case) -> Case:
        stack = case.cluster.stack
        own: dict[str, Any] = {name: factor * getattr(stack, name) for name, factor in factors.items()}
        return _with_cluster(case, dataclasses.replace(case.cluster, stack=dataclasses.replace(stack, **own)))

    return change


def _with_cluster(case: Case, cluster: Cluster) -> Case:
    return dataclasses.replace(case, cluster=cluster)


def _tiers(inner: bool) -> Change:
    def free(tier: Tier) -> Tier:
        faster: Any = _NOTHING * tier.bandwidth_bytes_per_s
        return dataclasses.replace(tier, bandwidth_bytes_per_s=faster, latency_s=0.0)

    def change(case: Case) -> Case:
        tiers = tuple(free(t) if (i == 0) == inner else t for i, t in enumerate(case.cluster.tiers))
        return _with_cluster(case, dataclasses.replace(case.cluster, tiers=tiers))

    return change


def _memory_bound(case: Case) -> Case:
    chip = case.cluster.accelerator
    chip = dataclasses.replace(chip, hbm_bytes_per_s=_NOTHING * chip.hbm_bytes_per_s)  # pyright: ignore[reportArgumentType]
    return _with_cluster(case, dataclasses.replace(case.cluster, accelerator=chip))


def _narrow(case: Case) -> Case:
    chip = case.cluster.accelerator
    same = chip.peak_16bit_flop_per_s
    chip = dataclasses.replace(chip, peak_8bit_flop_per_s=same, peak_4bit_flop_per_s=same)
    return _with_cluster(case, dataclasses.replace(case.cluster, accelerator=chip))


def _recompute(case: Case) -> Case:
    return dataclasses.replace(case, plan=dataclasses.replace(case.plan, recompute="none"))


_LITTLE = 1 / _NOTHING
DROPPED: Mapping[str, Change] = {
    "attention": _stack(attention_ceiling=_NOTHING, attention_2_ceiling=_NOTHING),
    "8- and 4-bit rates": _narrow,
    "recompute": _recompute,
    "sizes of matmuls": _stack(matmul_size0=_LITTLE),
    "memory-bound work": _memory_bound,
    "launches of kernels": _stack(kernel_s=_LITTLE),
    "host work": _stack(
        host_kernel_s=_LITTLE,
        sync_rank_s=_LITTLE,
        routing_s=_LITTLE,
        microbatch_s=_LITTLE,
        step_s=_LITTLE,
        jitter_s=_LITTLE,
    ),
    "scale-up traffic": _tiers(inner=True),
    "scale-out traffic": _tiers(inner=False),
    "starts of collectives": _stack(collective_s=_LITTLE, ring_step_s=_LITTLE),
    "congestion": _stack(congestion=_LITTLE),
    "contention": _stack(contention=_LITTLE, expert_contention=_LITTLE),
}


def without(cases: Sequence[Case], name: str) -> np.ndarray:
    """Seconds of each case without a term."""
    return evaluated([DROPPED[name](case) for case in cases]).step_s
