"""Measurements as observations of the constants: each is predicted by the same formulas that predict a step."""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping

from costmodel.exact import Exact
from costmodel.formulas import OpCounts, accelerator_update_s, counts, rates, timing
from costmodel.inputs import Block, Cluster, Op, Plan, PlanPoint, Position, Size, Stack, Workload, embed
from costmodel.measured.node.table import LINEAR, Measured
from costmodel.models import Heads, activation, core, head, linear, norm

_SEM = Exact(math)
_ALONE = {"overlap_data": False, "overlap_context": False, "gradient_dtype": "fp32", "zero_stage": 0}


Asked = Callable[[OpCounts, PlanPoint, Cluster, Stack], float]
Observation = Callable[[Cluster, Stack], float]
"""What the formulas say that one measurement takes under these constants."""


def observation(measured: Measured) -> Observation | None:
    """What a row says of products, attention, moves and updates; None for what a constant is read from directly."""
    build = _BUILDERS.get(measured.kind)
    if build is None:
        return None
    op, tokens, asked = build(measured, {name: float(value) for name, value in measured.sizes})
    block = dataclasses.replace(op, position=Position.LAYER) if isinstance(op, Block) else Block(name="one", ops=(op,))
    workload = Workload(name=measured.op, blocks=(block,), sequence=tokens, batch=1.0, hidden=1.0)
    plan = Plan(
        precision="fp32" if measured.dtype == "fp32" else "bf16",
        attention="unfused" if measured.plain else "flash",
        fused_kernels=not measured.plain,
        **_ALONE,
    )
    point = embed(plan, workload, 1.0)
    return functools.partial(asked, counts(workload, point, _SEM), point)


Sizes = Mapping[str, float]
Built = tuple[Op | Block, float, Asked]


def _sum_of(*names: str) -> Asked:
    """Parts of the passes over the one block, each named by pass and kind of operator."""

    def asked(counted: OpCounts, point: PlanPoint, cluster: Cluster, stack: Stack) -> float:
        machine = dataclasses.replace(cluster, stack=stack)
        passes = timing(counted, point, machine, _SEM).blocks[0]
        parts = (name.split(".") for name in names)
        return sum(getattr(getattr(passes, each), part) for each, part in parts)

    return asked


def _update_s(counted: OpCounts, point: PlanPoint, cluster: Cluster, stack: Stack) -> float:
    speed = rates(cluster.accelerator, point, stack)
    return float(accelerator_update_s(counted, point, stack, speed, _SEM))


def _product(measured: Measured, sizes: Sizes) -> Built:
    op = linear("product", sizes["m"], (Size(value=sizes["k"]),), (Size(value=sizes["n"]),))
    passes = ("forward.matmul_s", "backward.matmul_s", "weights.matmul_s")[: 3 if measured.op == LINEAR else 1]
    return op, sizes["m"], _sum_of(*passes)


def _attention(measured: Measured, sizes: Sizes) -> Built:
    """Batch and heads are alike: so many independent heads."""
    tokens, heads = sizes["seq"], sizes["batch"] * sizes["heads"]
    looks = Heads(heads=heads, key_value_heads=heads, head_size=sizes["headdim"], keys=tokens, density=0.5)

    passes = ("forward.attention_s", "backward.attention_s")[: 1 + ("bwd" in measured.op)]
    return core("attention", tokens, looks, dropout=False), tokens, _sum_of(*passes)


def _moving(measured: Measured, sizes: Sizes) -> Built:
    rows, width = sizes["rows"], sizes["width"]
    columns = (Size(value=width),)
    opened = (Size(value=2.0 * width),)
    op = {
        "rms_norm": lambda: norm("norm", rows, width, False),
        "gelu": lambda: activation("activation", rows, columns, columns, 1.0),
        "swiglu": lambda: activation("activation", rows, columns, opened, 2.0),
        "cross_entropy": lambda: head((), rows, 1.0, width),
    }[measured.op.split()[0]]()
    return op, rows, _sum_of("forward.memory_s", "backward.memory_s")


def _update(_: Measured, sizes: Sizes) -> Built:
    op = linear("weights", 1.0, (Size(value=sizes["parameters"]),), (Size(value=1.0),))
    return op, 1.0, _update_s


_BUILDERS: Mapping[str, Callable[[Measured, Sizes], Built]] = {
    "gemm": _product,
    "attention": _attention,
    "elementwise": _moving,
    "optimizer": _update,
}
