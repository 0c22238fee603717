"""From measurements to a cluster: rates of the accelerator, its tier, and the constants of the stack.

A chip that is known keeps the peaks of its data sheet. Of any other the peaks are the best measured rates over
`HEADROOM`, so that the ceilings, which are fitted, stay shares. What a node does not show (what hides behind what on
other fabrics, memory outside tensors) keeps the shipped value of JAX's software.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from costmodel.inputs import Accelerator, Cluster, Stack, Tier
from costmodel.measured.collective_fit import fit_collectives, log_errors
from costmodel.measured.node.devices import Node
from costmodel.measured.node.observations import Observation, observation
from costmodel.measured.node.table import LINEAR, Measured
from costmodel.measured.rows import known_cluster
from costmodel.pytree import as_floats
from costmodel.specs import CollectiveRow, constant_group, read_tables, stack_values

HEADROOM = 0.8
"""Best measured rate over the peak that an unknown accelerator is given."""
FIELDS = {
    "matmul_ceiling": (0.02, 1.0), "matmul_size0": (1.0, 1e5), "attention_ceiling": (0.002, 1.0),
    "attention_size0": (1.0, 4000.0), "unfused_touches": (0.2, 100.0), "update_passes": (0.2, 100.0),
}  # fmt: skip
"""Constants of compute that are fitted, and where they may lie."""
PULL, KNEE = 0.02, 0.1  # as in collective_fit.py
_SOFTWARE = "xla"  # what JAX compiles to, whatever the device
_LAW_OF = {"alltoall": "all_to_all", "sendrecv": "neighbour"}
_PEAKS = {"fp32": "peak_32bit_flop_per_s", "bf16": "peak_16bit_flop_per_s"}
# XLA's runtime for processors runs collectives in the order of the program, beside nothing; no driver holds memory, and
# the loss is not fused: logits and their gradient are there in 32 bits
_ON_PROCESSORS = {
    "hide_tensor": 0.0, "hide_context": 0.0, "hide_expert": 0.0, "hide_data": 0.0, "hide_pipeline": 0.0,
    "context_bytes": 0.0, "workspace_bytes": 0.0, "logit_bytes": 8.0,
}  # fmt: skip
# what is measured inside one compiled program, on all devices at once, is in the other constants already
_INSIDE = {
    "host_kernel_s": 0.0, "microbatch_s": 0.0, "jitter_s": 0.0, "congestion": 0.0,
    "sync_rank_s": 0.0, "ring_step_s": 0.0,
    "scale_up_ceiling": 1.0, "scale_out_ceiling": 1.0,
}  # fmt: skip


def fit_node(measured: Sequence[Measured], node: Node) -> tuple[Cluster, np.ndarray]:
    """The cluster of this node with a stack fitted to what was measured on it.

    And how well its constants repeat each measurement, collectives last: log of predicted over measured.
    """
    cluster = _unfitted(measured, node)
    seen = [(each, seen) for each in _telling(measured) if (seen := observation(each)) is not None]
    stack = _fitted(seen, cluster)
    errors = [float(np.log(predicted_s(cluster, stack) / each.seconds)) for each, predicted_s in seen]
    calls = _calls(measured)
    if calls:
        stack = fit_collectives(calls, dataclasses.replace(cluster, stack=stack))
        errors += [float(x) for x in log_errors(calls, cluster, stack)]
    return dataclasses.replace(cluster, stack=stack), np.array(errors)


def _telling(measured: Sequence[Measured]) -> list[Measured]:
    """Products as a step has them, gradients among them, where they were measured: single ones only say the peak."""
    layers = any(each.op == LINEAR for each in measured)
    return [each for each in measured if not (layers and each.kind == "gemm" and each.op != LINEAR)]


def _unfitted(measured: Sequence[Measured], node: Node) -> Cluster:
    known = known_cluster(node.kind, node.devices, node.per_node)
    accelerator = _accelerator(measured, node) if known is None else known.accelerator
    tiers = _tiers(measured, node) if known is None else known.tiers
    stack = _start(measured, node, accelerator)
    name = f"measured {node.kind}"
    return as_floats(Cluster(name=name, accelerator=accelerator, tiers=tiers, accelerators=node.devices, stack=stack))


def _start(measured: Sequence[Measured], node: Node, accelerator: Accelerator) -> Stack:
    """The shipped constants of JAX's software, and those that a measurement is, or the platform decides."""
    shipped = stack_values(read_tables("stacks"), constant_group(accelerator.name, _SOFTWARE))
    own: dict[str, Any] = _INSIDE | {"kernel_s": _least(measured, "kernel"), "step_s": _least(measured, "call")}
    own["hbm_ceiling"] = min(1.0, _stream(measured) / accelerator.hbm_bytes_per_s)
    if node.platform == "cpu":
        own |= _ON_PROCESSORS
    values: dict[str, Any] = shipped | {"name": "measured"} | own
    return Stack(**values)


def _least(measured: Sequence[Measured], op: str) -> float:
    return min(each.seconds for each in measured if each.kind == "overhead" and each.op == op)


def _stream(measured: Sequence[Measured]) -> float:
    return max(each.work / each.seconds for each in measured if each.kind == "hbm")


def _accelerator(measured: Sequence[Measured], node: Node) -> Accelerator:
    """One that no data sheet here describes. A width that was not measured runs at the rate of the next wider one."""
    best: dict[str, float] = {}
    for each in measured:
        if each.kind == "gemm":
            best[each.dtype] = max(best.get(each.dtype, 0.0), each.work / each.seconds)
    peaks = {_PEAKS[name]: rate / HEADROOM for name, rate in best.items()}
    wide = peaks.get("peak_32bit_flop_per_s") or peaks["peak_16bit_flop_per_s"]
    narrow = peaks.get("peak_16bit_flop_per_s") or wide
    return Accelerator(
        name=node.kind,
        widths=("32bit", "16bit"),
        types=tuple(best),
        peak_32bit_flop_per_s=wide,
        peak_16bit_flop_per_s=narrow,
        peak_8bit_flop_per_s=narrow,
        peak_4bit_flop_per_s=narrow,
        hbm_bytes=node.memory_bytes,
        hbm_bytes_per_s=_stream(measured) / HEADROOM,
    )


def _tiers(measured: Sequence[Measured], node: Node) -> tuple[Tier, ...]:
    """Devices of one process, and beyond them those of all. A tier that nothing crosses has the memory's rate."""
    sizes = (node.per_node, node.devices) if node.nodes > 1 else (node.devices,)
    return tuple(_tier(measured, level, size) for level, size in enumerate(sizes))


def _tier(measured: Sequence[Measured], level: int, size: int) -> Tier:
    own = [each for each in measured if each.kind == "collective" and (each.nodes > 1) == (level > 0)]
    rate = max((each.bus_bytes_per_s for each in own), default=_stream(measured))
    latency_s = min((each.seconds for each in own), default=1e-6)
    return Tier(
        name=("node", "network")[level],
        size=size,
        usable_size=size,
        bandwidth_bytes_per_s=rate / HEADROOM,
        latency_s=0.5 * latency_s,
    )


def _calls(measured: Sequence[Measured]) -> list[CollectiveRow]:
    return [
        CollectiveRow(op=_LAW_OF.get(each.op, each.op), payload_bytes=each.work, ranks=each.ranks, time_s=each.seconds)
        for each in measured
        if each.kind == "collective"
    ]


def _fitted(seen: Sequence[tuple[Measured, Observation]], cluster: Cluster) -> Stack:
    from scipy.optimize import least_squares

    names, bounds = list(FIELDS), np.log(np.array(list(FIELDS.values())))
    start = np.clip(np.log([getattr(cluster.stack, name) for name in names]), bounds[:, 0], bounds[:, 1])
    took = np.log([each.seconds for each, _ in seen])

    def stack_of(free: np.ndarray) -> Stack:
        values = {name: min(float(np.exp(x)), FIELDS[name][1]) for name, x in zip(names, free, strict=True)}
        return dataclasses.replace(cluster.stack, **values)

    def residuals(free: np.ndarray) -> np.ndarray:
        stack = stack_of(free)
        said = np.log([predicted_s(cluster, stack) for _, predicted_s in seen])
        return np.concatenate([said - took, PULL * (free - start)])

    return stack_of(least_squares(residuals, start, bounds=bounds.T, loss="cauchy", f_scale=KNEE).x)
