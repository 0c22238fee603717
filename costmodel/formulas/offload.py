r"""Traffic with the second memory: what a plan keeps there streams past the accelerator, one layer at a time.

Weights are read once in every forward and once in every backward pass; activations leave in forward and come back in
backward; optimizer states come in for the update and leave after it, with the weights that it made. The link has its
rate in each direction: in forward, weights come in while activations leave; in backward both come in. Traffic of $c$
seconds hides behind the share $h$ of the same pass (or update) of $t$ seconds: $\max(t, c + (1-h) t)$.

The pass is that of a plain stage: layers of different sizes prefetch across each other. A backward pass hides traffic
with its recompute and its weight gradients, unless the schedule runs those on their own. Gradients leave in every
microbatch, and the sums so far come back to be added to, because DeepSpeed adds on the accelerator (`stage3.py`,
`partition_grads`). Embedding and head stay in HBM, and so do the cast copies of 8- and 4-bit formats.

Optimizer states are updated on the accelerator, past which they stream, or by the host's processors (ZeRO-Offload, Ren
et al. 2021; Megatron-Core's hybrid optimizer; FSDP's CPUOffload): then gradients leave and weights come back, and the
update takes what the host's memory needs for the bytes that pass. Other sources: Rajbhandari et al. 2021
(ZeRO-Infinity) for the streams; Isaev et al. 2023 (Calculon) for two layers in HBM and for what shares a direction.
"""

from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import kept_bytes, on_rank, sharding
from costmodel.formulas.pipeline import Streams
from costmodel.inputs import Accelerator, Offload, PlanPoint, Stack
from costmodel.semantics import Scalar, Semantics, total


def streams(
    counted: OpCounts, point: PlanPoint, accelerator: Accelerator, stack: Stack, sem: Semantics
) -> Streams | None:
    """What the plan's shares move; None where it has none."""
    shares = point.offload
    if shares is None:
        return None
    layers = counted.layers
    weights = [block.repeats * layer_weights_bytes(block, counted, point, sem) for block in layers]
    reads = total(block.forwards * size_bytes for block, size_bytes in zip(layers, weights, strict=True))
    kept = total(block.repeats * kept_bytes(block, point) for block in layers)
    gradients = total(block.repeats * layer_gradients_bytes(block, counted, point, sem) for block in layers)
    s_per_byte = 1.0 / accelerator.second_memory_bytes_per_s
    stage_s_per_byte = s_per_byte / point.pipeline
    gradients_s = stage_s_per_byte * shares.gradients * gradients
    return Streams(
        reads_s=stage_s_per_byte * shares.weights * reads,
        weights_s=stage_s_per_byte * shares.weights * total(weights),
        activations_s=stage_s_per_byte * shares.activations * kept,
        gradients_s=gradients_s,
        sums_s=gradients_s * (1 - 1.0 / counted.microbatches),
        s_per_byte=s_per_byte,
        hidden=stack.hide_offload,
        layers=counted.layer_count / point.pipeline,
    )


def update_s(
    moved: Streams,
    states_bytes: Scalar,
    gradients_bytes: Scalar,
    weights_bytes: Scalar,
    point: PlanPoint,
    sem: Semantics,
) -> Scalar:
    """Once a step, the busier direction. Updated on the accelerator, states leave, with the new weights, beside others
    that come in with their gradients; updated on the host, gradients leave that are not there, and weights come back.
    """
    shares = point.offload or Offload()
    here, there = 1 - shares.on_host, shares.on_host
    states = (1 - shares.host) * shares.optimizer * states_bytes
    out_bytes = states + there * (1 - shares.gradients) * gradients_bytes
    in_bytes = states + here * shares.gradients * gradients_bytes + there * weights_bytes
    return sem.maximum(here * moved.weights_s + moved.s_per_byte * out_bytes, moved.s_per_byte * in_bytes)


def layer_weights_bytes(block: BlockCounts, counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    """Weights of one layer that a rank holds: under ZeRO 3 its share of them."""
    elements = on_rank(block.parameters, block.expert_parameters, point.zero.weights, counted, point, sem)
    return point.precision.weight_bytes * elements


def layer_gradients_bytes(block: BlockCounts, counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    """Gradients of one layer that a rank holds."""
    return point.gradient_bytes * _trained(block, sharding(point, sem).gradients, counted, point, sem)


def layer_states_bytes(
    block: BlockCounts, per_element: Scalar, counted: OpCounts, point: PlanPoint, sem: Semantics
) -> Scalar:
    """Optimizer states of one layer that a rank holds."""
    return per_element * _trained(block, point.zero.states, counted, point, sem)


def _trained(block: BlockCounts, divided: Scalar, counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    return on_rank(block.trained_parameters, block.trained_expert_parameters, divided, counted, point, sem)
