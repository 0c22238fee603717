"""Seconds of the optimizer's update on the heaviest stage: what streams through memory, and the optimizer's matmuls."""

from collections.abc import Callable

from costmodel.formulas import offload
from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import held_on_heaviest_stage, on_rank, share
from costmodel.formulas.pipeline import Streams
from costmodel.formulas.roofline import Rates
from costmodel.inputs import Accelerator, PlanPoint, Position, Stack
from costmodel.semantics import Scalar, Semantics, total


def optimizer_s(
    counted: OpCounts, point: PlanPoint, accelerator: Accelerator, stack: Stack, speed: Rates, sem: Semantics
) -> Scalar:
    """The update on the accelerator, and the share of it that the host makes, one after the other.

    Matmuls of the optimizer are the accelerator's in any case.
    """
    if point.offload is None:
        return accelerator_update_s(counted, point, stack, speed, sem)
    own_s = (1 - point.offload.on_host) * streamed_update_s(counted, point, stack, speed, sem)
    host_s = host_update_s(counted, point, accelerator, stack, sem)
    return own_s + orthogonal_s(counted, point, speed, sem) + host_s


def accelerator_update_s(counted: OpCounts, point: PlanPoint, stack: Stack, speed: Rates, sem: Semantics) -> Scalar:
    """All of the update on the accelerator: what streams through memory, and the optimizer's matmuls.

    Where the optimizer makes matrices orthogonal, ranks that divide its states divide these products too, each whole
    matrix on one rank (its gradient is gathered with the traffic that is there already).
    """
    return streamed_update_s(counted, point, stack, speed, sem) + orthogonal_s(counted, point, speed, sem)


def streamed_update_s(counted: OpCounts, point: PlanPoint, stack: Stack, speed: Rates, sem: Semantics) -> Scalar:
    """States and master weights in and out, gradients in, weights out; in several kernels, `Stack.update_passes` times.

    Weights that products read in a format of fewer bits are cast after it, each rank all that it computes with.
    """
    moved_s = speed.memory_s_per_byte * update_bytes(counted, point, sem)
    casts_bytes = (1 - point.zero.weights) * point.precision.weight_cast_bytes * _matrices(counted, point, sem)
    moved_s = moved_s + speed.memory_s_per_byte * casts_bytes
    return stack.update_passes * moved_s


def update_bytes(counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    """Bytes that the update of one rank's elements reads and writes, wherever it is made. Where it works on copies of
    gradients in 32 bits, they are written too."""
    row, (elements, edges) = point.optimizer, _updated(counted, point, sem)
    states_bytes = 2.0 * (row.states * point.state_bytes + point.master_bytes + row.own_bytes)
    copied_bytes = point.widened * (point.gradient_bytes + 4.0)
    read_bytes = row.gradient_reads * ((1 - point.widened) * point.gradient_bytes + 4.0 * point.widened)
    per_element = states_bytes + copied_bytes + read_bytes + point.precision.weight_bytes
    return per_element * elements + 2.0 * row.edge_states * point.state_bytes * edges


def host_update_s(
    counted: OpCounts, point: PlanPoint, accelerator: Accelerator, stack: Stack, sem: Semantics
) -> Scalar:
    """The host's share of the update, at what its processors reach of their memory's bandwidth. A part of
    `optimizer_s`. Source of the form: Ren et al. 2021 (ZeRO-Offload), whose CPU-Adam is bound by memory."""
    if point.offload is None:
        return 0.0
    s_per_byte = 1.0 / (stack.host_ceiling * accelerator.host_bytes_per_s)
    return point.offload.on_host * s_per_byte * update_bytes(counted, point, sem)


def update_traffic_s(counted: OpCounts, moved: Streams | None, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds of the update's traffic with the second memory."""
    if moved is None:
        return 0.0
    row, (elements, edges) = point.optimizer, _updated(counted, point, sem)
    per_element = row.states * point.state_bytes + point.master_bytes + row.own_bytes
    states_bytes = per_element * elements + row.edge_states * point.state_bytes * edges
    gradients_bytes, weights_bytes = point.gradient_bytes * elements, point.precision.weight_bytes * elements
    return offload.update_s(moved, states_bytes, gradients_bytes, weights_bytes, point, sem)


def _updated(counted: OpCounts, point: PlanPoint, sem: Semantics) -> tuple[Scalar, Scalar]:
    """Elements that one rank of the heaviest stage updates, and those of them in embedding and head."""
    divided, copies = point.zero.states, 1 + point.schedule.both_ways

    def held(quantity: Callable[[BlockCounts], Scalar]) -> Scalar:
        return held_on_heaviest_stage(counted, quantity, point, sem)

    experts = held(lambda block: block.trained_expert_parameters) if counted.has_experts else 0.0
    elements = on_rank(held(lambda block: block.trained_parameters), experts, divided, counted, point, sem, copies)
    return elements, held(_edge_parameters) * share(divided, copies * point.data_shard)


def orthogonal_s(counted: OpCounts, point: PlanPoint, speed: Rates, sem: Semantics) -> Scalar:
    """Matmuls of the optimizer, a part of `accelerator_update_s`."""
    return speed.update_s_per_flop * point.optimizer.orthogonalisations * _orthogonal_flop(counted, point, sem)


def _edge_parameters(block: BlockCounts) -> Scalar:
    return 0.0 if block.position == Position.LAYER else block.trained_parameters


def _matrices(counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    return held_on_heaviest_stage(counted, lambda block: block.matrix_parameters + block.expert_parameters, point, sem)


def _orthogonal_flop(counted: OpCounts, point: PlanPoint, sem: Semantics) -> Scalar:
    """Of one iteration over the matrices of a plain stage's layers. Embedding and head are left out."""
    dense = total(b.repeats * b.orthogonal_flop for b in counted.layers)
    experts = total(b.repeats * b.expert_orthogonal_flop for b in counted.layers)
    return on_rank(dense, experts, point.zero.states, counted, point, sem) / point.pipeline
