r"""One transformer layer on one rank: its FLOP, its bytes and their seconds, as functions of sizes and of hardware.

The counts and times are those of `costmodel.formulas`; sizes may be floats, arrays or dual numbers. With $T$ tokens,
width $H$, sequence $S$, tensor degree $t$ and 2 bytes an element, forward and backward:
compute $3 (24 H^2 + 4 S H) T / t$ FLOP, serialized $8 H T$ bytes in four all-reduces, overlapped $24 H^2 / t$ bytes of
gradients beside $48 H^2 T / t$ FLOP of backward products. So edge $= (9 H + 1.5 S) / t$ and slack $= 2 T$ FLOP a byte.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel import Scalar, Semantics, total
from costmodel.formulas import BlockCounts, OpTimes, counts, timing
from costmodel.inputs import Accelerator, Block, Cluster, Plan, Position, Stack, Tier, Workload, embed
from costmodel.models import decoder

HEAD = 128.0  # elements of a head
Sizes = Mapping[str, Scalar]
"""hidden, sequence, batch (sequences of one rank), tensor, data."""

PEAKS = ("peak_32bit_flop_per_s", "peak_16bit_flop_per_s", "peak_8bit_flop_per_s", "peak_4bit_flop_per_s")
PEAK, RING = 181e12, 150e9
"""AMD's data sheet of the MI210: FLOP/s of 16-bit matrices, and three links of 50 GB/s in each direction."""


def one_layer(sizes: Sizes) -> Workload:
    """A layer of GPT's shape (4 H in the feed-forward, nothing masked) without embedding and head."""
    hidden, sequence = sizes["hidden"], sizes["sequence"]
    common: dict[str, Any] = {"layers": 1.0, "vocabulary": 1.0, "batch": 1.0, "causal_density": 1.0}
    whole = decoder(hidden=hidden, heads=hidden / HEAD, head_size=HEAD, ffn=4.0 * hidden, sequence=sequence, **common)
    layer = tuple(block for block in whole.blocks if block.position == Position.LAYER)
    return dataclasses.replace(whole, blocks=layer)


def bare(workload: Workload) -> Workload:
    """The same without what only moves data: products, attention and their communication."""
    keep = ("matmul", "attention", "sync")
    blocks = tuple(Block(name=b.name, ops=tuple(op for op in b.ops if op.kind in keep)) for b in workload.blocks)
    return dataclasses.replace(workload, blocks=blocks)


def elementary(evolved: Scalar = 1.0) -> Cluster:
    """MI210-class accelerators on one ring: 60 % of the peak, 80 % of the links, nothing else costs anything.

    `evolved` is by how much FLOP/s have grown over the bandwidth of the links (the memory keeps pace).
    """
    peak = PEAK * evolved
    peaks = dict.fromkeys(PEAKS, peak)
    accelerator = Accelerator(name="mi210-class", hbm_bytes=68.7e9, hbm_bytes_per_s=1.638e12 * evolved, **peaks)
    tier = Tier(name="ring", size=4096.0, usable_size=4096.0, bandwidth_bytes_per_s=RING, latency_s=0.0)
    free = dict.fromkeys(("kernel_s", "step_s", "collective_s", "contention", "chunk_fill", "attention_size0"), 0.0)
    stack = Stack(
        name="elementary",
        matmul_ceiling=0.6,
        attention_ceiling=0.6,
        link_ceiling=0.8,
        hbm_ceiling=1.0,
        matmul_size0=0.0,
        all_reduce_tree=0.0,
        attention_backward_ratio=2.0,
        **free,
    )
    return Cluster(name="elementary", accelerator=accelerator, tiers=(tier,), accelerators=4096.0, stack=stack)


def counted(workload: Workload, cluster: Cluster, sizes: Sizes, sem: Semantics) -> tuple[BlockCounts, OpTimes]:
    """Counts and times of the layer; all data ranks hold all of their weights."""
    plan = Plan(zero_stage=0, gradient_dtype="bf16", overlap_data=False, precision="bf16")
    model = dataclasses.replace(workload, batch=sizes["batch"] * sizes["data"])
    fixed = one_layer({"hidden": 4096.0, "sequence": 1024.0})  # rows of options do not depend on the sizes
    point = dataclasses.replace(
        embed(plan, fixed, float(cluster.tiers[0].usable_size), cluster.stack.habits),
        tensor=sizes["tensor"],
        accelerators=sizes["tensor"] * sizes["data"],
        microbatch=sizes["batch"],
    )
    found = counts(model, point, sem)
    return found.blocks[0], timing(found, point, cluster, sem)


def edge(layer: BlockCounts) -> Scalar:
    """FLOP of forward and backward over serialized bytes."""
    products = 3.0 * total(each.flop for each in layer.matmuls)
    scores = 3.0 * total(each.flop for each in layer.attentions)
    return (products + scores) / (layer.sync_bytes + layer.backward_sync_bytes)


def slack(layer: BlockCounts) -> Scalar:
    """FLOP of the backward products over bytes of gradients."""
    return 2.0 * total(each.flop for each in layer.matmuls) / (2.0 * layer.matrix_parameters)


def compute_s(times: OpTimes) -> Scalar:
    """Forward and backward, without communication."""
    return total(k * (each.matmul_s + each.attention_s + each.memory_s) for k, each in times.blocks[0].passes)


def serialized_s(times: OpTimes) -> Scalar:
    """The all-reduces of the tensor ranks."""
    return total(k * each.sync_s for k, each in times.blocks[0].passes)


def share(times: OpTimes) -> Scalar:
    """Serialized communication over compute and serialized communication."""
    sent_s = serialized_s(times)
    return sent_s / (compute_s(times) + sent_s)


def overlapped(layer: BlockCounts, times: OpTimes) -> Scalar:
    """Gradient traffic of the data ranks over the backward products that can hide it."""
    law, size_bytes = times.laws.replica, 2.0 * layer.matrix_parameters
    products_s = times.blocks[0].backward.matmul_s + times.blocks[0].weights.matmul_s
    return (law.seconds_per_byte * size_bytes + law.latency_s + law.ramp * size_bytes**0.5) / products_s


def evolved(cluster: Cluster, factor: Scalar) -> Cluster:
    """The cluster with `factor` times the FLOP/s and the memory bandwidth, and the links it has."""
    chip = cluster.accelerator
    faster = {name: getattr(chip, name) * factor for name in (*PEAKS, "hbm_bytes_per_s")}
    return dataclasses.replace(cluster, accelerator=dataclasses.replace(chip, **faster))


def arranged(**sizes: Any) -> Sizes:
    """Sizes with the defaults of this experiment."""
    return {"batch": 1.0, "tensor": 1.0, "data": 1.0, **sizes}
