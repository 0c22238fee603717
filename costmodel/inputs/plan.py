"""How the work is laid out: `Plan` (what people write) and `PlanPoint` (what formulas read)."""

import dataclasses
from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

from costmodel.calls import strict
from costmodel.inputs import options
from costmodel.inputs.schedules import ScheduleRow
from costmodel.inputs.workload import Position, Workload, are_pieces
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics


@strict
@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan that can be launched: integers and names only. `violations.violations` says whether it is legal.

    accelerators = tensor x context x data x pipeline; microbatches = batch / (data x microbatch).
    """

    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    expert: int = 1
    expert_tensor: int = 1
    virtual_stages: int = 1
    microbatch: int = 1  # sequences
    domain: int | None = None  # accelerators used of each innermost domain; None: the tier's usable size
    data_shard: int | None = None  # ranks that share weights under ZeRO; None: all of data x context
    zero_stage: int = 1
    sequence_parallel: bool = False
    context_kind: str = "ring"
    schedule: str = "one_f_one_b"
    recompute: str = "none"
    recompute_share: float = 1.0  # share of the blocks that `recompute` applies to
    stage_layers: tuple[int, ...] | None = None
    overlap_data: bool = True
    overlap_tensor: bool = False
    overlap_context: bool = True
    overlap_expert: bool = False
    overlap_pipeline: bool = False
    precision: str = "bf16"
    gradient_dtype: str = "fp32"  # commands and searches have what the software sums (`Habits.with_precision`)
    state_dtype: str = "fp32"
    master_weights: bool = (
        True  # float32 copies of weights in fewer bits; without them, training is in those bits alone
    )
    optimizer: str = "adam"
    attention: str = "flash"
    fused_kernels: bool = True
    gates_in_8bit: bool = False  # inputs of activation functions wait for the backward pass in 8 bits
    dispatcher: str = "usual"  # of tokens to experts
    loss: str = "usual"  # as the software computes it, or in a kernel that keeps fewer logits
    pieces: int = 1  # of each layer's attention and feed-forward, one after another (co-shard)
    # shares of what a rank holds that lie in the accelerator's second memory (offload.py)
    offload_weights: float = 0.0  # of the layers
    offload_optimizer: float = 0.0
    offload_activations: float = 0.0  # of the layers
    offload_gradients: float = 0.0  # of the layers

    def __post_init__(self) -> None:
        """Raise `ValueError` for a value of another type or below 0: where it is written, not where it is used."""
        for name, (is_right, words) in _OF_TYPE.items():
            if not is_right(value := getattr(self, name)):
                raise ValueError(f"Plan: `{name}` is {value!r}; expected {words}")

    @property
    def accelerators(self) -> int:
        """Accelerators that the plan uses, all of them."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def offloads(self) -> bool:
        """Whether anything lies in the second memory."""
        shares = (self.offload_weights, self.offload_optimizer, self.offload_activations, self.offload_gradients)
        return max(shares) > 0

    def microbatches(self, batch: int) -> float:
        """Microbatches of each pipeline in a step of `batch` sequences."""
        return batch / (self.data * self.microbatch)

    def __str__(self) -> str:
        """One line: what differs from the defaults, degrees first."""
        shown = [f"{f.name}={_show(getattr(self, f.name))}" for f in dataclasses.fields(self) if _differs(self, f)]
        return " ".join(shown)


def _is_count(value: Any) -> bool:
    """From 0: ZeRO stages begin there, and a degree of 0 is a plan that breaks rules."""
    return type(value) is not bool and isinstance(value, Integral) and int(value) >= 0


_KINDS: dict[Any, tuple[Callable[[Any], bool], str]] = {
    int: (_is_count, "an integer >= 0"),
    int | None: (lambda value: value is None or _is_count(value), "an integer >= 0, or None"),
    tuple[int, ...] | None: (
        lambda value: value is None or (isinstance(value, tuple) and all(map(_is_count, value))),
        "a tuple of integers, or None",
    ),
    float: (lambda value: isinstance(value, Real) and not isinstance(value, bool), "a number"),
    str: (lambda value: isinstance(value, str), "a name"),
    bool: (lambda value: type(value).__name__ in ("bool", "bool_"), "True or False"),  # Python's and NumPy's
}
_OF_TYPE = {field.name: _KINDS[field.type] for field in dataclasses.fields(Plan)}
_ALWAYS_SHOWN = ("data", "tensor", "pipeline", "microbatch")


def _differs(plan: Plan, field: dataclasses.Field[Any]) -> bool:
    return field.name in _ALWAYS_SHOWN or getattr(plan, field.name) != field.default


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@pytree
class Offload:
    """Shares of what a rank holds that lie in the accelerator's second memory."""

    weights: Scalar = 0.0  # of the layers
    optimizer: Scalar = 0.0
    activations: Scalar = 0.0  # of the layers
    gradients: Scalar = 0.0  # of the layers
    host: Scalar = 0.0  # 1 where the host's processors make the update; 0: states stream past the accelerator

    @property
    def on_host(self) -> Scalar:
        """Share of the update that the host makes."""
        return self.host * self.optimizer


@pytree
class PlanPoint:
    """A plan as numbers, relaxed or not: degrees, and the rows of its options. Every field may be an array."""

    accelerators: Scalar
    tensor: Scalar
    context: Scalar
    pipeline: Scalar
    virtual_stages: Scalar
    microbatch: Scalar
    domain: Scalar
    copies: Scalar = 1.0  # groups of data ranks that each hold all weights (hybrid sharding); see `data_shard`
    expert: Scalar = 1.0
    expert_tensor: Scalar = 1.0
    sequence_parallel: Scalar
    context_ring: Scalar  # 1: keys and values travel round a ring; 0: all-to-all over heads
    extra_layers_first: Scalar = 0.0  # layers of that stage above the mean over stages
    extra_layers_middle: Scalar = 0.0  # of the heaviest stage between the first and the last
    extra_layers_last: Scalar = 0.0
    gradient_bytes: Scalar = 4.0
    gradient_copy_bytes: Scalar = 0.0  # of gradients in the weights' own type, beside their sums
    update_copy_bytes: Scalar = 0.0  # under ZeRO: of gradients in 32 bits, beside the states of what a rank updates
    widens: Scalar = 0.0  # 1 where the update makes 32-bit copies of narrower gradients, unless these lie there
    state_bytes: Scalar = 4.0
    masters: Scalar = 1.0  # 0 where there are no 32-bit copies of the weights
    fused_kernels: Scalar = 1.0
    whole_inputs: Scalar = 0.0  # 1 where inputs of column-parallel layers are kept as they were gathered
    modules: options.ModuleRow | None = None  # None where none is computed again alone: a trace of its own
    method: options.MethodRow | None = None  # None: gradients are summed in every step
    offload: Offload | None = None  # None where nothing is: a trace of its own, without the sums of these shares
    schedule: ScheduleRow
    zero: options.ZeroRow
    recompute: options.RecomputeRow
    precision: options.PrecisionRow
    optimizer: options.OptimizerRow
    attention: options.AttentionRow
    loss: options.LossRow = options.LOSSES["usual"]
    gate_inputs: Scalar = 1.0  # share of their own bytes in which inputs of activation functions wait
    dispatcher: options.DispatcherRow = options.DISPATCHERS["usual"]
    overlap: options.OverlapRow

    @property
    def data(self) -> Scalar:
        """Data-parallel degree, derived from the others."""
        return self.accelerators / (self.tensor * self.context * self.pipeline)

    @property
    def master_bytes(self) -> Scalar:
        """Bytes of the 32-bit copy of a weight beside the weight; less where the weight itself is a part of it."""
        row = self.precision
        return self.masters * (row.master_bytes - row.shared_master * self.zero.weights * row.weight_bytes)

    @property
    def kept_copy_bytes(self) -> Scalar:
        """Bytes of 32-bit copies of gradients that lie beside the states of what a rank updates: under ZeRO alone."""
        return self.update_copy_bytes * self.zero.states

    @property
    def widened(self) -> Scalar:
        """1 where the update makes 32-bit copies of narrower gradients, and drops them."""
        return self.widens * (1 - self.kept_copy_bytes / 4.0)

    @property
    def data_shard(self) -> Scalar:
        """Ranks that share weights: all of data x context by default, so it follows them; 1 under ZeRO 0."""
        return (1 - self.zero.shards) + self.zero.shards * self.accelerators / (
            self.tensor * self.pipeline * self.copies
        )

    def single_stage(self, sem: Semantics) -> Scalar:
        """Whether the same stage holds embedding and head: without a pipeline, or where the schedule folds it."""
        return sem.maximum(2 - self.pipeline, self.schedule.folds)


def layers(workload: Workload) -> int:
    """Repeated blocks that the pipeline divides."""
    return sum(int(b.repeats) for b in workload.blocks if b.position == Position.LAYER and not are_pieces(b.name))
