r"""Elasticities: $d \log T / d \log x$ of the step with respect to hardware and fitted software parameters.

One call of `cost.cost` on NumPy float64: every parameter has three columns of its own on one broadcast axis, in which
it is multiplied by $e^{-h}$, $e^{h}$ and by a tenth to the better. Where left and right differ the step has a kink,
and both are told.

The relative step is $h = 10^{-5}$: rounding of the logarithms (some $10^{-15}$) leaves $10^{-10}$, curvature leaves
$h/2$ times the second derivative (below 1 in logs) on one side and $h^2$ in the mean of both. So the sides of a smooth
point differ by less than $10^{-5}$, and a difference above `KINK` = $10^{-4}$ is a kink within $10^{-5}$ of the point.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from costmodel import Exact, Scalar
from costmodel.evaluators import prepare
from costmodel.formulas import cost
from costmodel.inputs import PRECISIONS, Cluster, Plan, Workload

STEP = 1e-5
KINK = 1e-4
NOISE = 1e-9  # of an elasticity
_EXACT = Exact(np)
_STACK_RATES = {
    "matmul_ceiling": "share of peak that large matmuls reach",
    "attention_ceiling": "share of peak that attention reaches",
    "hbm_ceiling": "share of HBM bandwidth that kernels reach",
    "link_ceiling": "share of the inner network's bandwidth that messages reach",
    "network_ceiling": "share of the outer networks' bandwidth that collectives reach",
    "peer_ceiling": "share of the outer networks' bandwidth that messages to one peer reach",
    "scale_up_ceiling": "share of the inner network that is left beside compute",
    "scale_out_ceiling": "share of the outer networks that is left beside compute",
    "hide_data": "share of data traffic that can hide",
    "hide_context": "share of context traffic that can hide",
}
_STACK_COSTS = {
    "matmul_size0": "size at which a matmul reaches half its speed (of an A100)",
    "attention_size0": "keys at which attention reaches half its speed",
    "contention": "slowdown of compute beside traffic",
    "chunk_fill": "share of a collective in which networks take turns",
    "regather_exposed": "share of second gathers that nothing hides",
    "congestion": "slowdown of the outer networks by each doubling of domains",
    "update_passes": "passes of the optimizer through memory",
}
_STACK_OVERHEADS = [
    ("kernel_s", "kernel launch time", False),
    ("collective_s", "collective start-up time", False),
    ("ring_step_s", "network start-up time of a ring's step", False),
    ("step_s", "processor time per step", False),
    ("microbatch_s", "processor time per microbatch", False),
    ("host_kernel_s", "processor time to issue a kernel", False),
    ("sync_rank_s", "processor time per rank of a tensor collective", False),
    ("routing_s", "processor time per pass over experts", False),
    ("jitter_s", "wait for the slowest rank", False),
]
_OTHERS = {
    "matmul_8bit_ceiling": "share of their peak that matmuls in 8 bits reach",
    "matmul_4bit_ceiling": "share of their peak that matmuls in 4 bits reach",
    "attention_2_ceiling": "share of peak that FlashAttention-2 reaches",
    "unfused_touches": "passes through memory of unfused norms over those of fused ones",
    "cast_passes": "share of casts that no other kernel does",
    "slow_microbatch_s": "processor time per microbatch of slow software",
    **{f"hide_{kind}": f"share of {kind} traffic that can hide" for kind in ("tensor", "expert", "pipeline")},
}


def constant_words(name: str) -> str:
    """A constant of a stack as people read it."""
    words = _STACK_RATES | _STACK_COSTS | _OTHERS | {own: told for own, told, _ in _STACK_OVERHEADS}
    return words.get(name, name.replace("_", " "))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Leaf:
    """One leaf of a cluster: how to find it, and what to call it."""

    path: str  # with tiers by index, as `with_leaves` takes it
    key: str  # with tiers by name, as JSON tells it
    words: str
    rate: bool  # more is better
    hardware: bool  # of the machine or an overhead in seconds, not a fitted share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Elasticity:
    """How the step answers to one parameter."""

    parameter: Leaf
    left: float
    right: float
    tenth: float  # relative change of the step where the parameter is 10 % better: more of a rate, less of a cost

    @property
    def value(self) -> float | list[float]:
        """One number, or `[left, right]` at a kink."""
        if abs(self.left - self.right) > KINK:
            return [self.left, self.right]
        return (self.left + self.right) / 2


def parameters(cluster: Cluster, plan: Plan) -> tuple[Leaf, ...]:
    """The parameters that may bear on a step; HBM bytes have no part in time."""
    fitted = [(name, words, True) for name, words in _STACK_RATES.items()]
    fitted += [(name, words, False) for name, words in _STACK_COSTS.items()]
    return tuple(
        Leaf(path=f"{part}.{name}", key=f"{label}.{name}", words=words, rate=rate, hardware=hardware)
        for part, label, hardware, leaves in (
            ("accelerator", "accelerator", True, _accelerator_leaves(plan)),
            *(
                (f"tiers.{i}", label, True, _tier_leaves(words))
                for i, (label, words) in enumerate(_tier_names(cluster))
            ),
            ("stack", "stack", True, _STACK_OVERHEADS),
            ("stack", "stack", False, fitted),
        )
        for name, words, rate in leaves
    )


def _accelerator_leaves(plan: Plan) -> list[tuple[str, str, bool]]:
    """The peaks that the precision uses; attention computes in 16 bits unless everything is in 32."""
    row = PRECISIONS[plan.precision]
    used = {32: row.at_32bit, 16: 1 - row.at_32bit, 8: row.at_8bit, 4: row.at_4bit}
    peaks = [(f"peak_{width}bit_flop_per_s", f"{width}-bit FLOP/s", True) for width in used if used[width]]
    second = [("second_memory_bytes_per_s", "second memory bandwidth", True)] if plan.offloads else []
    second += [("host_bytes_per_s", "host memory bandwidth", True)] if plan.offload_optimizer else []
    return [*peaks, ("hbm_bytes_per_s", "HBM bandwidth", True), *second]


def _tier_names(cluster: Cluster) -> list[tuple[str, str]]:
    names = [tier.name for tier in cluster.tiers]
    return [(f"tiers.{name if names.count(name) == 1 else i}", name) for i, name in enumerate(names)]


def _tier_leaves(name: str) -> list[tuple[str, str, bool]]:
    return [("bandwidth_bytes_per_s", f"{name} bandwidth", True), ("latency_s", f"{name} latency", False)]


def read_leaf(cluster: Cluster, path: str) -> Scalar:
    """The leaf at a path such as `tiers.0.latency_s`."""
    part, *rest = path.split(".")
    holder = getattr(cluster, part)
    return getattr(holder[int(rest[0])] if part == "tiers" else holder, rest[-1])


def with_leaves(cluster: Cluster, leaves: Mapping[str, Scalar]) -> Cluster:
    """The cluster with the leaves at these paths replaced."""

    def own(part: str) -> dict[str, Scalar]:
        return {path.removeprefix(f"{part}."): leaf for path, leaf in leaves.items() if path.startswith(f"{part}.")}

    return dataclasses.replace(
        cluster,
        accelerator=dataclasses.replace(cluster.accelerator, **own("accelerator")),
        tiers=tuple(dataclasses.replace(tier, **own(f"tiers.{i}")) for i, tier in enumerate(cluster.tiers)),
        stack=dataclasses.replace(cluster.stack, **own("stack")),
    )


def elasticities(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[Elasticity, ...]:
    """Elasticities of the step's seconds, for all `parameters`."""
    wanted = parameters(cluster, plan)
    workload, cluster, point = prepare(workload, cluster, plan)
    columns = 3 * len(wanted) + 1
    leaves = {}
    for index, parameter in enumerate(wanted):
        factors = np.ones(columns)
        factors[3 * index : 3 * index + 3] = np.exp(-STEP), np.exp(STEP), 1.1 if parameter.rate else 0.9
        leaves[parameter.path] = factors * read_leaf(cluster, parameter.path)
    step_s = cost(workload, with_leaves(cluster, leaves), point, _EXACT).step_s
    low, high, better = np.log(step_s[:-1] / step_s[-1]).reshape(-1, 3).T
    return tuple(
        Elasticity(parameter=parameter, left=_clean(-a / STEP), right=_clean(b / STEP), tenth=_clean(np.expm1(c)))
        for parameter, a, b, c in zip(wanted, low, high, better, strict=True)
    )


def _clean(value: float) -> float:
    """Zero where only rounding is left."""
    return float(value) if abs(value) > NOISE else 0.0


def largest(elasticities: tuple[Elasticity, ...], count: int) -> tuple[Elasticity, ...]:
    """The parameters of the machine that a tenth more or less of would help most."""
    helpful = sorted((e for e in elasticities if e.parameter.hardware and e.tenth < 0), key=lambda e: e.tenth)
    return tuple(helpful[:count])


def by_resource(elasticities: tuple[Elasticity, ...]) -> tuple[Elasticity, ...]:
    """One of those that the step answers to alike, as to a bandwidth and to the share of it that is reached: the first,
    which is the machine's where one of them is."""
    ordered = sorted(elasticities, key=lambda e: not e.parameter.hardware)
    distinct: dict[tuple[float, ...], Elasticity] = {}
    for each in ordered:
        distinct.setdefault((round(each.left, 5), round(each.right, 5)), each)
    return tuple(distinct.values())
