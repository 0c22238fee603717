"""Transformer-1T on 1,024 accelerators: every (MP, DP), footprints by ZeRO stage, and a second memory.

MP is tensor ranks and nothing else, to all 1,024: beyond the number of heads as well, as the published code has it
(a layer is divided by columns, whatever its heads): heads are as many as accelerators here, with the same products. The
paper's table of its baseline was not found: the rates here are assumptions. All sequences of a rank pass at once, and
activations are not counted.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from costmodel import Plan, parts, prepare
from costmodel.evaluators import SUBGRADIENT, log_gradient
from costmodel.formulas import counts, step
from costmodel.inputs import Accelerator, Cluster, PlanPoint, Position, Stack, Tier, Workload
from costmodel.models import decoder
from experiments.cluster_design.simulator import IDEAL, SEM

ACCELERATORS, HBM_BYTES, ROOM_BYTES = 1024, 80e9, 8e9
"""`ROOM_BYTES` of HBM are left for activations and what they pass through."""
DEGREES = tuple(2**k for k in range(11))
STAGES = (0, 1, 2, 3)
RATES = ("FLOP/s", "HBM bandwidth", "pod bandwidth", "network bandwidth", "second memory bandwidth")
_PEAK, _POD, _NETWORK = 624e12, 300e9, 31.25e9


@functools.cache
def transformer() -> Workload:
    """12 x 128 x 25,600^2 parameters: no embedding, no norms."""
    sizes: dict[str, Any] = {
        "layers": 128,
        "hidden": 25600,
        "ffn": 102400,
        "vocabulary": 1,
        "sequence": 2048,
        "batch": ACCELERATORS,
    }
    full = decoder(heads=ACCELERATORS, **sizes)
    layer = next(block for block in full.blocks if block.position == Position.LAYER)
    matrices = tuple(op for op in layer.ops if op.kind in ("matmul", "attention", "sync"))
    return dataclasses.replace(full, blocks=(dataclasses.replace(layer, ops=matrices),))


def baseline(second_bytes_per_s: Any = 1.0) -> Cluster:
    """Pods of 8 accelerators of 80 GB; everything at its data sheet."""
    widths = {f"peak_{width}bit_flop_per_s": _PEAK for width in (32, 16, 8, 4)}
    memory = {"second_memory_bytes": 1e15, "second_memory_bytes_per_s": second_bytes_per_s}
    chip = Accelerator(name="assumed", hbm_bytes=HBM_BYTES, hbm_bytes_per_s=2.039e12, **widths, **memory)
    pod = Tier(name="pod", size=8.0, usable_size=8.0, bandwidth_bytes_per_s=_POD, latency_s=0.0)
    size = float(ACCELERATORS)
    network = Tier(name="network", size=size, usable_size=size, bandwidth_bytes_per_s=_NETWORK, latency_s=0.0)
    ideal = {**IDEAL, "hide_data": 1.0, "hide_offload": 1.0, "attention_size0": 0.0, "attention_backward_ratio": 2.0}
    stack = Stack(name="ideal", **ideal)
    return Cluster(name="baseline", accelerator=chip, tiers=(pod, network), accelerators=size, stack=stack)


def plan_of(degree: int, stage: int = 2, hidden: bool = True, **offloaded: Any) -> Plan:
    """MP `degree`, the rest DP; gradient traffic hidden behind compute or not."""
    types: dict[str, Any] = {"precision": "fp16", "gradient_dtype": "fp16", "zero_stage": stage, "overlap_data": hidden}
    return Plan(tensor=degree, data=ACCELERATORS // degree, microbatch=degree, **types, **offloaded)


@functools.cache
def _ready(plan: Plan) -> tuple[Workload, PlanPoint, float]:
    """What does not depend on rates: the workload and the plan as the formulas read them, and the footprint."""
    workload, machine, point = prepare(transformer(), baseline(), plan)
    held = parts(workload, machine, point, SEM).memory.first
    return workload, point, held.weights_bytes + held.gradients_bytes + held.optimizer_bytes


def footprint_bytes(plan: Plan) -> float:
    """Weights, gradients and states of one accelerator in HBM."""
    return _ready(plan)[2]


def step_s(plan: Plan, cluster: Cluster) -> float:
    """Seconds of a step."""
    workload, point, _ = _ready(plan)
    return float(step(counts(workload, point, SEM), point, cluster, SEM).step_s)


def footprints() -> dict[str, list[float]]:
    """GB by MP_DP, for the four stages."""
    return {
        f"{degree}_{ACCELERATORS // degree}": [footprint_bytes(plan_of(degree, stage)) / 1e9 for stage in STAGES]
        for degree in DEGREES
    }


def fits(plan: Plan) -> bool:
    """Whether HBM holds it, with room to work."""
    return footprint_bytes(plan) <= HBM_BYTES - ROOM_BYTES


def sweep() -> list[dict[str, Any]]:
    """Seconds by MP, ZeRO 2, gradient traffic hidden and exposed, in unlimited HBM; and whether 80 GB hold it."""
    return [
        {
            "tensor": degree,
            "data": ACCELERATORS // degree,
            "hidden_s": step_s(plan_of(degree), baseline()),
            "exposed_s": step_s(plan_of(degree, hidden=False), baseline()),
            "footprint_gb": footprint_bytes(plan_of(degree)) / 1e9,
            "fits": fits(plan_of(degree)),
        }
        for degree in DEGREES
    ]


def expanded(degree: int, hidden: bool = True) -> Iterator[Plan]:
    """Ways to put what HBM does not hold into the second memory: with states or gradients there or not, the least share
    of the weights that makes the rest fit. HBM keeps two layers of what streams, so the footprint is a line from there.
    """
    for states, gradients in itertools.product((0.0, 1.0), repeat=2):
        others = {"hidden": hidden, "offload_optimizer": states, "offload_gradients": gradients}
        half, all_of_them = (footprint_bytes(plan_of(degree, offload_weights=share, **others)) for share in (0.5, 1.0))
        excess = half - (HBM_BYTES - ROOM_BYTES)
        share = 0.5 + 0.5 * excess / (half - all_of_them)
        if share <= 1.0:
            yield plan_of(degree, offload_weights=max(share, 0.0), **others)


def expansion(degree: int, reference: int, bandwidths: tuple[float, ...], hidden: bool = True) -> dict[str, Any]:
    """Speed-up over MP `reference` in HBM alone, by bandwidth of the second memory: the fastest way of `expanded`.

    With it the bandwidths at which the speed-up is 1 and 1.4, and its elasticity by gradient.
    """
    plans, base_s = list(expanded(degree, hidden)), step_s(plan_of(reference, hidden=hidden), baseline())

    def gain(rate: float) -> float:
        return base_s / min(step_s(plan, baseline(rate)) for plan in plans)

    gains = [gain(rate) for rate in bandwidths]
    fastest = [min(plans, key=lambda plan, rate=rate: step_s(plan, baseline(rate))) for rate in bandwidths]
    return {
        "degree": degree,
        "bandwidth": list(bandwidths),
        "gain": gains,
        "elasticity": [elasticities(plan, rate)[RATES[-1]] for plan, rate in zip(fastest, bandwidths, strict=True)],
        "moved": [[p.offload_weights, p.offload_optimizer, p.offload_gradients] for p in fastest],
        "unlimited": base_s / step_s(plan_of(degree, hidden=hidden), baseline()),
        "breaks_even_at": _crossing(gain, 1.0),
        "gains_published_at": _crossing(gain, 1.4),
    }


def _crossing(gain: Callable[[float], float], target: float) -> float | None:
    """Bytes/s at which a gain that rises reaches `target`; None where it never does."""
    low, high = 1e8, 1e14
    if gain(high) < target:
        return None
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if gain(middle) < target else (low, middle)
    return high


def elasticities(plan: Plan, second_bytes_per_s: float = 1.0) -> dict[str, float]:
    """Per cent less time for one per cent more of each rate."""
    workload, point, _ = _ready(plan)
    counted, machine = counts(workload, point, SEM), baseline(second_bytes_per_s)

    def formula(at: Mapping[str, Any]) -> Any:
        return step(counted, point, scaled(machine, at), SUBGRADIENT).step_s

    slopes = log_gradient(formula, dict.fromkeys(RATES, 1.0))[1]
    return {name: abs(float(slope)) for name, slope in slopes.items()}


def scaled(cluster: Cluster, at: Mapping[str, Any]) -> Cluster:
    """The cluster with its rates multiplied by name."""
    chip, (pod, network) = cluster.accelerator, cluster.tiers
    peaks = {f"peak_{w}bit_flop_per_s": getattr(chip, f"peak_{w}bit_flop_per_s") * at["FLOP/s"] for w in (32, 16, 8, 4)}
    chip = dataclasses.replace(
        chip,
        **peaks,
        hbm_bytes_per_s=chip.hbm_bytes_per_s * at["HBM bandwidth"],
        second_memory_bytes_per_s=chip.second_memory_bytes_per_s * at["second memory bandwidth"],
    )
    tiers = tuple(
        dataclasses.replace(tier, bandwidth_bytes_per_s=tier.bandwidth_bytes_per_s * at[name])
        for tier, name in ((pod, "pod bandwidth"), (network, "network bandwidth"))
    )
    return dataclasses.replace(cluster, accelerator=chip, tiers=tiers)


REFERENCE = 64
"""The smallest MP that 80 GB hold."""
FACTORS = (0.5, 1.0, 2.0, 4.0, 8.0)


def scaling(second_bytes_per_s: float) -> list[dict[str, Any]]:
    """Speed-up of the best plan, with and without the second memory, as one rate alone is multiplied by `FACTORS`."""
    in_hbm = [plan_of(degree) for degree in DEGREES if fits(plan_of(degree))]
    beside = [plan for degree in (4, 8, 16, 32) for plan in expanded(degree)]
    machine, rows = baseline(second_bytes_per_s), []
    for name in RATES[:4]:
        faster = [scaled(machine, {**dict.fromkeys(RATES, 1.0), name: factor}) for factor in FACTORS]
        for words, plans in (("HBM alone", in_hbm), ("second memory", [*in_hbm, *beside])):
            times = [min(step_s(plan, cluster) for plan in plans) for cluster in faster]
            gains = [times[1] / seconds for seconds in times]
            rows.append({"rate": name, "memory": words, "factors": list(FACTORS), "gain": gains})
    return rows
