"""What each field of a plan accepts, and plans from dictionaries."""

import numbers
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import SCHEDULES, Plan, options
from costmodel.specs.checks import COUNT, FLAG, SHARE, Check, convert, is_count, one_of
from costmodel.specs.files import SpecError, show

_OPTIONAL_COUNT = Check(COUNT.expected, is_count, keep=int, optional=True)
_STAGE_LAYERS = Check(
    "a list of integers >= 1, one for each stage",
    lambda value: isinstance(value, (list, tuple)) and len(value) > 0 and all(map(is_count, value)),
    keep=tuple,
    optional=True,
)
_ZERO_STAGE = Check(
    "one of 0, 1, 2, 3",
    lambda value: isinstance(value, numbers.Integral) and not isinstance(value, bool) and 0 <= int(value) <= 3,
    keep=int,
)

_RECOMPUTE = Check(
    f"one of {', '.join(options.RECOMPUTES)}, or some of {', '.join(options.MODULES)} joined by +",
    lambda value: isinstance(value, str) and (value in options.RECOMPUTES or bool(options.modules_of(value))),
)

PLAN_CHECKS: dict[str, Check] = {
    "data": COUNT,
    "tensor": COUNT,
    "context": COUNT,
    "pipeline": COUNT,
    "expert": COUNT,
    "expert_tensor": COUNT,
    "virtual_stages": COUNT,
    "microbatch": COUNT,
    "domain": _OPTIONAL_COUNT,
    "data_shard": _OPTIONAL_COUNT,
    "zero_stage": _ZERO_STAGE,
    "sequence_parallel": FLAG,
    "context_kind": one_of(("ring", "all_to_all")),
    "schedule": one_of(SCHEDULES),
    "recompute": _RECOMPUTE,
    "recompute_share": SHARE,
    "stage_layers": _STAGE_LAYERS,
    "overlap_data": FLAG,
    "overlap_tensor": FLAG,
    "overlap_context": FLAG,
    "overlap_expert": FLAG,
    "overlap_pipeline": FLAG,
    "precision": one_of(options.PRECISIONS),
    "gradient_dtype": one_of(options.DTYPE_BYTES),
    "state_dtype": one_of(options.DTYPE_BYTES),
    "master_weights": FLAG,
    "optimizer": one_of(options.OPTIMIZERS),
    "attention": one_of(options.ATTENTIONS),
    "fused_kernels": FLAG,
    "gates_in_8bit": FLAG,
    "dispatcher": one_of(options.DISPATCHERS),
    "loss": one_of(options.LOSSES),
    "pieces": COUNT,
    **dict.fromkeys(("offload_weights", "offload_optimizer", "offload_activations", "offload_gradients"), SHARE),
}


def plan_from(mapping: Mapping[str, Any], where: str = "plan") -> Plan:
    """A plan from a dictionary of its fields, or from an answer that holds one under `plan`."""
    fields = mapping["plan"] if "plan" in mapping else mapping
    if not isinstance(fields, Mapping):
        raise SpecError(f"{where}: `plan` is {show(fields)}; expected an object of the fields of a plan")
    return Plan(**convert(fields, PLAN_CHECKS, where))
