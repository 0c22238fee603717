"""The habits of the software of one row: those of its class, with what the row's words say otherwise."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from costmodel.inputs import DEEPSPEED_BUCKETS, EAGER_NORM_BYTES, SOFTWARE, XLA_OFFLOADED, XLA_SELECTIVE, Habits
from costmodel.measured.rows.choices import folded
from costmodel.measured.rows.columns import Columns
from costmodel.measured.rows.sharding import own_zero

_NORM_COPIES_BYTES = 10.0  # of norms said not to be fused: input and normalised input in 32 bits, and in 16 (V)


def habits_of(columns: Columns, facts: Mapping[str, float], software: str) -> Habits:
    """What the row says of kernels, recompute and offload, over what its class of software does."""
    usual = SOFTWARE[software]
    own = usual.deepspeed_zero or own_zero(columns, facts, software)
    prints_kernels = "unfused_attention" in facts  # the mark of eager software (evidence V: accuracy.md, section 6)
    fused = bool(facts.get("compiled") or facts.get("fused_layers"))
    said: dict[str, Any] = {
        "eager": (usual.eager or prints_kernels) and not fused,
        "norms_alone_fused": facts.get("fused_norms") == 1.0,
        "rotation_passes": prints_kernels or bool(facts.get("eager")),
        "gathered_loss": prints_kernels,
        "loss": "framework" if prints_kernels else usual.loss,
        "softmax_in_32_bits": bool(facts.get("framework_attention")),
        "deepspeed_zero": own,
        "gathers_8bit_weights": bool(facts.get("gathers_8bit")),
        "folded": folded(columns),
        "drops_inputs": bool(facts.get("offloaded_projections")),
        "offloaded_activations": _offloaded(columns, facts),
        "captured": facts.get("cuda_graphs", usual.captured),
        "captured_iteration": bool(facts.get("captured_iteration", usual.captured_iteration)),
    }
    if said["captured_iteration"] and columns.count("experts"):  # K: Megatron-Bridge's recipes with such graphs
        said |= {"eager_experts": False, "overlap_expert": True}
    if "fused_kernels" in facts or facts.get("compiled"):
        said["fused_kernels"] = bool(facts.get("fused_kernels", 1.0))
    said["norm_copies_bytes"] = _norm_copies_bytes(columns, facts, fused, usual)
    if own:  # with the buckets of its reductions
        said["memory"] = tuple((dict(usual.memory) | DEEPSPEED_BUCKETS | {"adds_apart": 1.0}).items())
    if not said["eager"]:
        said["rotation_copies"] = 0.0
    if usual.selective is XLA_SELECTIVE and facts.get("offloaded_projections"):
        said["selective"] = XLA_OFFLOADED
    return dataclasses.replace(usual, **said)


def _norm_copies_bytes(columns: Columns, facts: Mapping[str, float], fused: bool, usual: Habits) -> float | None:
    """What eager norms keep beside their input: nothing where selective recompute drops it; None: they are fused."""
    apart = facts.get("fused_norms") == 0.0
    if apart or facts.get("eager"):
        kept_bytes = _NORM_COPIES_BYTES if apart else EAGER_NORM_BYTES
        return 0.0 if columns.text("recompute").lower() == "selective" else kept_bytes
    if fused or facts.get("fused_norms"):
        return None
    return EAGER_NORM_BYTES if usual.eager and facts.get("hugging_face") else usual.norm_copies_bytes


def _offloaded(columns: Columns, facts: Mapping[str, float]) -> float:
    """Share of the layers of a stage whose activations wait in the host's memory: all where no number is said."""
    own = (columns.count("layers") or 1) / (columns.count("pp") or 1)
    return min(1.0, facts.get("offload_layers", own * facts.get("offloaded_activations", 0.0)) / own)
