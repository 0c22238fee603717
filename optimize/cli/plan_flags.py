"""The fields of a plan as options of the command line: one flag for each field of `Plan`, with its help."""

import dataclasses
from typing import Annotated, Any, Literal, get_type_hints

from costmodel.inputs import SCHEDULES, Plan, options
from optimize.cli.command import Told

_SEVERAL = " or ".join(name for name, schedule in SCHEDULES.items() if schedule.interleaves)
_PLAN_HELP = {
    "data": "data-parallel degree; derived from --accelerators when not given",
    "tensor": "tensor-parallel degree; chosen when not given",
    "context": "ranks that share one sequence",
    "pipeline": "pipeline stages; chosen when not given",
    "expert": "ranks over which whole experts are divided",
    "expert_tensor": "ranks that share each expert",
    "virtual_stages": f"chunks of layers on each stage, with --schedule {_SEVERAL}",
    "microbatch": "sequences of one microbatch",
    "domain": "accelerators used of each innermost domain; the usable size of the tier",
    "data_shard": "ranks that share weights under ZeRO; all of data x context",
    "zero_stage": "0 nothing, 1 optimizer states, 2 and gradients, 3 and weights divided over data ranks",
    "sequence_parallel": "divide activations between tensor-parallel regions too",
    "context_kind": "how context ranks exchange keys and values",
    "schedule": "pipeline schedule",
    "recompute": "activations that the backward pass computes again: none, selective, full, or modules joined by + "
    "(norms, gates, latent, feed_forward)",
    "recompute_share": "share of the blocks that --recompute applies to, 0 to 1",
    "stage_layers": "layers of each stage, where they differ",
    "overlap_data": "gradient and weight traffic beside compute",
    "overlap_tensor": "tensor-parallel traffic beside compute",
    "overlap_context": "context-parallel traffic beside compute",
    "overlap_expert": "tokens to experts and back beside compute",
    "overlap_pipeline": "stage-to-stage transfers beside compute",
    "precision": "number format of the matmuls",
    "gradient_dtype": "number format of the gradients",
    "state_dtype": "number format of the optimizer states",
    "optimizer": "optimizer",
    "attention": "fused or materialised attention",
    "fused_kernels": "fused norms and activations",
    "master_weights": "32-bit copies of weights in fewer bits",
    "gates_in_8bit": "inputs of activation functions wait for the backward pass in 8 bits",
    "pieces": "pieces of each layer's attention and feed-forward, one after another (co-shard; with recompute full)",
    "dispatcher": "how tokens go to their experts: as the software's users run it, or as named",
    "loss": "kernels of the loss: as the software has them, PyTorch's (framework), Megatron's (vocab_parallel), fused "
    "with its gradient, or head and loss in chunks (Liger)",
    "offload_weights": "share of the layers' weights in the second memory, 0 to 1",
    "offload_optimizer": "share of the optimizer states in the second memory, 0 to 1",
    "offload_activations": "share of the layers' activations in the second memory, 0 to 1",
    "offload_gradients": "share of the layers' gradients in the second memory, 0 to 1",
}
_CHOICES: dict[str, Any] = {
    "zero_stage": Literal[0, 1, 2, 3],
    "context_kind": Literal["ring", "all_to_all"],
    "schedule": Literal[*SCHEDULES],
    "precision": Literal[*options.PRECISIONS],
    "gradient_dtype": Literal[*options.DTYPE_BYTES],
    "state_dtype": Literal[*options.DTYPE_BYTES],
    "optimizer": Literal[*options.OPTIMIZERS],
    "attention": Literal[*options.ATTENTIONS],
    "loss": Literal[*options.LOSSES],
    "dispatcher": Literal[*options.DISPATCHERS],
}


def _plan_flags() -> type:
    """A dataclass with every field of `Plan`, None where it is not given."""
    hints = get_type_hints(Plan)
    fields = []
    for field in dataclasses.fields(Plan):
        kind: Any = _CHOICES.get(field.name, hints[field.name]) | None
        default = f"(default: {_show(field.default)})" if _has_default(field) else ""
        several = "INT INT ..." if field.name == "stage_layers" else None
        told = Told(_PLAN_HELP[field.name], default, several)
        fields.append((field.name, Annotated[kind, told], dataclasses.field(default=None)))
    return dataclasses.make_dataclass("PlanFlags", fields, frozen=True, kw_only=True)


def _has_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is not None and field.name not in ("data", "tensor", "pipeline")


def _show(value: Any) -> str:
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


PlanFlags = _plan_flags()
