"""The two runs of the authors' own simulator, their network bill and byte counts, by this model without overheads."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from costmodel import Exact, Plan, evaluate, load_cluster, parts, prepare
from costmodel.formulas import BlockCounts, counts
from costmodel.inputs import Block, Cluster, Kind, Op, Position, Size, Split, Workload, embed
from costmodel.models import decoder

SOURCE = Path(__file__).with_name("comet.toml")
TABLE: Mapping[str, Any] = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
SYSTEM = TABLE["system"]
RUNS = ("run_1", "run_2")
SEM = Exact(math)
IDEAL = {
    "matmul_ceiling": 1.0, "matmul_size0": 0.0, "attention_ceiling": 1.0, "hbm_ceiling": 1.0, "link_ceiling": 1.0,
    "network_ceiling": 1.0, "all_gather": "nested",
    "kernel_s": 0.0, "step_s": 0.0, "collective_s": 0.0, "all_reduce_tree": 0.0, "chunk_fill": 0.0, "contention": 0.0,
    "hide_tensor": 1.0, "host_kernel_s": 0.0, "microbatch_s": 0.0, "jitter_s": 0.0, "update_passes": 1.0,
    "scale_up_ceiling": 1.0, "scale_out_ceiling": 1.0, "congestion": 0.0, "sync_rank_s": 0.0, "ring_step_s": 0.0,
}  # fmt: skip
"""A stack on which everything reaches its data sheet."""
PLAN = Plan(
    tensor=128, data=8, zero_stage=0, precision="fp16", gradient_dtype="fp16", optimizer="sgd", overlap_tensor=True
)


def cluster(folder: Path, run: Mapping[str, Any]) -> Cluster:
    """The simulated cluster, from a file as a user would write it."""
    stack = IDEAL | {"hide_data": run["hides_gradients"]}
    if "given_compute_us" in run:
        flop = 2.0 * run["tokens"] * run["hidden"] * run["columns"]
        stack["matmul_ceiling"] = flop / (run["given_compute_us"] * 1e-6) / (SYSTEM["peak_tflop_per_s"] * 1e12)
    lines = [
        f"accelerators = {SYSTEM['accelerators']}",
        "[accelerator]",
        'types = ["fp16"]',
        f"peak_16bit_tflop_per_s = {SYSTEM['peak_tflop_per_s']}",
        "hbm_gib = 32",
        f"hbm_gb_per_s = {SYSTEM['memory_gb_per_s']}",
        "price_usd = 0",  # the published bill is the network's
        "[stack]",
        *(f"{name} = {value!r}" for name, value in stack.items()),
    ]
    for i, size in enumerate(SYSTEM["domains"]):
        prices = {name: SYSTEM[name][i] for name in SYSTEM if name.endswith("usd_per_gib_per_s")}
        lines += [
            "[[tiers]]",
            f"size = {size}",
            f"bandwidth_gib_per_s = {SYSTEM['links'][i] * SYSTEM['link_gib_per_s'][i]}",
            f"latency_ns = {SYSTEM['latency_ns']}",
            *(f"{name} = {value}" for name, value in prices.items()),
        ]
    path = folder / "comet.toml"
    path.write_text("\n".join(lines))
    return load_cluster(path)


def one_product(run: Mapping[str, Any]) -> Workload:
    """One matmul, divided by columns, whose input gradients are summed over the tensor ranks."""
    rows, inner = (Size(value=run["tokens"], split=(Split.CONTEXT,)),), (Size(value=run["hidden"]),)
    columns = (Size(value=run["columns"] * SYSTEM["tensor"], split=(Split.TENSOR,)),)
    product = Op(name="product", kind=Kind.MATMUL, rows=rows, inner=inner, columns=columns)
    edge = Op(name="edge", kind=Kind.SYNC, rows=rows, columns=inner, forward=False)
    block = Block(name="layer", ops=(product, edge))
    batch = SYSTEM["accelerators"] // SYSTEM["tensor"]
    return Workload(name="comet", blocks=(block,), sequence=run["tokens"], batch=batch, hidden=run["hidden"])


def published(run: Mapping[str, Any]) -> dict[str, float]:
    """What the simulator printed, in microseconds and MiB."""
    times = ("compute_us", "tensor_us", "data_us", "exposed_us", "total_us")
    return {name: run.get(name, run.get(f"given_{name}")) for name in (*times, "inner_mib", "outer_mib")}


def ours(run: Mapping[str, Any], folder: Path) -> dict[str, float]:
    """The same of this model."""
    workload, hardware = one_product(run), cluster(folder, run)
    found = evaluate(workload, hardware, PLAN)
    terms = {term.name: term for term in found.terms}
    _, machine, point = prepare(workload, hardware, PLAN)
    done = parts(*prepare(workload, hardware, PLAN), SEM)
    layer, laws = done.times.blocks[0], done.times.laws
    gradients = done.counts.blocks[0].parameters * point.gradient_bytes
    payload = [
        (laws.sync.by_tier[i] * done.counts.blocks[0].backward_sync_bytes + laws.replica.by_tier[i] * gradients)
        * machine.tiers[i].bandwidth_bytes_per_s
        for i in range(2)
    ]
    return {
        "compute_us": 1e6 * layer.forward.matmul_s,
        "tensor_us": 1e6 * layer.backward.sync_s,
        "data_us": 1e6 * done.step.work.gradient_traffic_s,
        "exposed_us": 1e6 * terms["tensor traffic"].exposed_s,
        "total_us": 1e6 * found.step_s,
        "inner_mib": payload[0] / 2**20,
        "outer_mib": payload[1] / 2**20,
    }


def network_usd(folder: Path) -> float:
    """Our bill of the network of both runs."""
    economics = evaluate(one_product(TABLE["run_1"]), cluster(folder, TABLE["run_1"]), PLAN).economics
    assert economics is not None
    assert economics.base.bill is not None
    return float(economics.base.bill.usd)


def layer_of_the_trillion() -> tuple[BlockCounts, float, float]:
    """Counts of one layer under the template's plan, bytes of a gradient, and of the activation of all tensor ranks."""
    golden = TABLE["transformer_1t"]
    sizes = {name: golden[name] for name in ("hidden", "heads", "ffn", "sequence")}
    microbatch = golden["tokens"] // golden["sequence"]
    workload = decoder(layers=1, vocabulary=1, batch=microbatch, **sizes)
    plan = Plan(tensor=golden["tensor"], microbatch=microbatch, precision="fp16", gradient_dtype="fp16", zero_stage=0)
    point = embed(plan, workload, domain=16.0)
    layer = next(block for block in counts(workload, point, SEM).blocks if block.position == Position.LAYER)
    return layer, point.gradient_bytes, golden["tokens"] * golden["hidden"] * point.precision.activation_bytes


def byte_counts() -> dict[str, tuple[float, float]]:
    """Published and our bytes of one layer: each all-reduce, the rank's slice, gradients of each matrix and of all."""
    golden, (layer, gradient_bytes, whole) = TABLE["transformer_1t"], layer_of_the_trillion()
    matrices = {count.name: count.weight_elements * gradient_bytes for count in layer.matmuls}
    out = next(count for count in layer.matmuls if count.name == "attention out")
    return {
        "each all-reduce": (golden["sync_bytes"], layer.sync_bytes / layer.syncs),
        "slice of a rank": (golden["slice_bytes"], out.operand_bytes - whole),
        "gradients of Q, K, V": (3 * golden["projection_bytes"], matrices["qkv"]),
        "gradients of the output": (golden["projection_bytes"], matrices["attention out"]),
        "gradients of FFN 1": (golden["ffn_bytes"], matrices["ffn up"]),
        "gradients of FFN 2": (golden["ffn_bytes"], matrices["ffn down"]),
        "gradients of a layer": (golden["layer_bytes"], layer.matrix_parameters * gradient_bytes),
    }
