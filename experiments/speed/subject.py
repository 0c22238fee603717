"""What the speed experiment evaluates: a large decoder on a large cluster, and plans with everything switched on."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from costmodel import as_floats, map_leaves
from costmodel.inputs import SCHEDULES, Cluster, Kind, Plan, PlanPoint, Workload, embed, options, schedule_rows
from costmodel.specs import load_cluster, load_workload

T = TypeVar("T")

ACCELERATORS = 16_384


def subject(model: str = "llama3-405b") -> tuple[Workload, Cluster]:
    """Llama 3 405B, or another model, on 16,384 H100, with Python floats for leaves."""
    workload = load_workload(model, batch=2048)
    return as_floats(workload), as_floats(load_cluster("h100", accelerators=ACCELERATORS))


def cast(tree: T, dtype: Any = np.float32) -> T:
    """Every leaf in one dtype, once, before anything is timed."""
    return map_leaves(lambda leaf: np.asarray(leaf, dtype)[()], tree)


def random_plans(count: int, seed: int) -> list[Plan]:
    """Plans that mix every option row, with all degrees above 1."""
    random = np.random.default_rng(seed)

    def pick(values: Any) -> Any:
        return list(values)[random.integers(len(values))]

    def plan() -> Plan:
        tensor, context, pipeline = pick((2, 4, 8)), pick((2, 4)), pick((2, 4, 8, 16))
        data = ACCELERATORS // (tensor * context * pipeline)
        return Plan(
            data=data,
            tensor=tensor,
            context=context,
            pipeline=pipeline,
            virtual_stages=pick((2, 3, 7)),
            microbatch=pick((1, 2, 4)),
            data_shard=pick((None, 8, data)),
            zero_stage=pick(options.ZERO_STAGES),
            sequence_parallel=pick((False, True)),
            context_kind=pick(("ring", "all_to_all")),
            schedule=pick(SCHEDULES),
            recompute=pick(options.RECOMPUTES),
            recompute_share=pick((0.25, 0.5, 1.0)),
            overlap_data=pick((False, True)),
            overlap_tensor=pick((False, True)),
            overlap_context=pick((False, True)),
            overlap_pipeline=pick((False, True)),
            precision=pick(options.PRECISIONS),
            gradient_dtype=pick(("fp32", "bf16")),
            state_dtype=pick(("fp32", "bf16")),
            optimizer=pick(options.OPTIMIZERS),
            attention=pick(options.ATTENTIONS),
            fused_kernels=pick((False, True)),
        )

    return [plan() for _ in range(count)]


EXPERTS: tuple[dict[str, Any], ...] = (
    {"expert": 8},
    {"expert": 16, "expert_tensor": 2},
    {"expert": 32, "overlap_expert": True},
)
"""What plans have besides where a model sends tokens to experts."""


class Pool:
    """Different plans, embedded; batches of any length draw from it, every field an array of its own."""

    def __init__(self, count: int = 512, seed: int = 0, model: str = "llama3-405b") -> None:
        workload, cluster = subject(model)
        domain = float(cluster.tiers[0].usable_size)
        plans = random_plans(count, seed)
        if any(op.kind == Kind.EXCHANGE for block in workload.blocks for op in block.ops):
            plans = [dataclasses.replace(plan, **EXPERTS[index % len(EXPERTS)]) for index, plan in enumerate(plans)]
        self.points = [embed(plan, workload, domain) for plan in plans]
        self.rows = np.array([_leaves(point) for point in self.points])
        self._random = np.random.default_rng(seed)

    def batch(self, length: int, dtype: Any = np.float32) -> PlanPoint:
        """A random batch of `length` plans."""
        drawn = self._random.integers(len(self.points), size=length)
        columns = iter(self.rows.T.astype(dtype))
        return map_leaves(lambda _: next(columns)[drawn], self.points[0])

    def batches(self, length: int, batch: int) -> Iterator[PlanPoint]:
        """Batches of `batch` plans, `length` in all."""
        for start in range(0, length, batch):
            yield self.batch(min(batch, length - start))


def _leaves(tree: Any) -> list[float]:
    leaves: list[float] = []
    map_leaves(leaves.append, tree)
    return leaves


AXES = {
    "tensor": (1, 2, 4, 8, 16, 32),
    "context": (1, 2, 4, 8),
    "pipeline": (1, 2, 4, 8, 16, 32, 64, 128),
    "microbatch": (1, 2, 4, 8, 16),
    "virtual_stages": (1, 2, 3, 4),
    "schedule": tuple(schedule_rows().values()),
    "zero": tuple(options.ZERO_STAGES.values()),
    "recompute": tuple(options.RECOMPUTES.values()),
    "precision": tuple(options.PRECISIONS[name] for name in ("fp32", "bf16", "fp8_block", "nvfp4")),
}
"""A grid of 921,600 plans: 3,840 combinations of degrees under 240 of options. Everything else is switched on."""

LAYOUTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "axes": (
        ("precision", "recompute", "tensor", "microbatch", "context", "zero", "schedule", "virtual_stages", "pipeline"),
        (),
    ),
    "lattice": (
        ("virtual_stages", "precision", "schedule", "recompute", "zero"),
        ("context", "pipeline", "microbatch", "tensor"),
    ),
}
"""Axes of their own, then degrees that share the last axis. Each library has a layout that suits it."""


def grid(base: PlanPoint, order: Sequence[str], joint: Sequence[str] = ()) -> PlanPoint:
    """The grid with one axis for each name of `order` and, last, one axis for all combinations of `joint`.

    A tuple of joint degrees on one axis is how an enumerated lattice lies, since not all combinations are legal.
    """
    shape = tuple(len(AXES[name]) for name in order)
    counts = [len(AXES[name]) for name in joint]
    combined = np.unravel_index(np.arange(int(np.prod(counts))), counts) if joint else ()

    def lay(name: str, values: Sequence[float]) -> np.ndarray:
        column = np.asarray(values, np.float32)
        if name in joint:
            return column[combined[joint.index(name)]].reshape((1,) * len(shape) + (-1,))
        sides = [1] * len(shape) + [1] * bool(joint)
        sides[order.index(name)] = -1
        return column.reshape(sides)

    def field(name: str) -> Any:
        values = AXES[name]
        if not dataclasses.is_dataclass(values[0]):
            return lay(name, values)  # pyright: ignore[reportArgumentType]
        columns = zip(*map(_leaves, values), strict=True)
        return map_leaves(lambda _: lay(name, next(columns)), values[0])

    fields = {name: field(name) for name in AXES}
    return dataclasses.replace(cast(base), **fields)
