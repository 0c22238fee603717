"""Bytes on one accelerator of each pipeline stage: its terms, of which stages.py takes the peak.

Weights, gradients and optimizer states after Rajbhandari et al. 2020 (ZeRO); activations after Korthikanti et al.
2022, counted operator by operator (workload.Saved); microbatches in flight by the schedule's row. What lies outside
tensors (context, workspace, communicator buffers, fragmentation) are fitted leaves of the Stack. Shares that the plan
offloads (offload.py) lie in the second memory; HBM keeps two layers of what streams, or those that there are.
"""

from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import divided, kept_bytes, sharding, share
from costmodel.formulas.memory.layers import BlockQuantity, Layers, StageKind
from costmodel.formulas.memory.stages import MemoryUse, StageMemory, peak
from costmodel.formulas.modules import by_module
from costmodel.formulas.offload import layer_gradients_bytes, layer_states_bytes, layer_weights_bytes
from costmodel.inputs import Cluster, Offload, PlanPoint, Position, Stack
from costmodel.semantics import Scalar, Semantics, total


def memory(counted: OpCounts, point: PlanPoint, stack: Stack, sem: Semantics) -> MemoryUse:
    """Memory of the stages that can need most."""
    single = point.single_stage(sem)
    both_ends = sem.maximum(single, point.schedule.both_ways)
    first = StageKind(remaining=point.pipeline, first=1.0, last=both_ends, extra_layers=point.extra_layers_first)
    second = StageKind(
        remaining=sem.maximum(point.pipeline - 1, 1.0),
        first=0.0,
        last=0.0,
        extra_layers=point.extra_layers_middle,
    )
    head = 1 - point.schedule.folds
    last = StageKind(remaining=1.0, first=point.schedule.both_ways, last=head, extra_layers=point.extra_layers_last)
    stages = [stage_memory(counted, point, kind, stack, sem) for kind in (first, second, last)]
    # where the first stage holds both ends it is the fullest or the only one: its equals would share the gradient
    others = 1 - single
    beyond = ((others, stages[1]), (others * (1 - point.schedule.both_ways), stages[2]))
    peak_bytes = sem.maximum(peak(stages[0], sem), *(there * peak(stage, sem) for there, stage in beyond))
    second_bytes = sem.maximum(stages[0].second_bytes, *(there * stage.second_bytes for there, stage in beyond))
    return MemoryUse(
        first=stages[0],
        second=stages[1],
        last=stages[2],
        peak_bytes=peak_bytes,
        needed_bytes=stack.memory_margin * peak_bytes,
        second_bytes=second_bytes,
    )


def limit_bytes(cluster: Cluster) -> Scalar:
    """Peak that a stage may be predicted to have: the accelerator's memory over the stack's margin."""
    return cluster.accelerator.hbm_bytes / cluster.stack.memory_margin


def in_flight(point: PlanPoint, microbatches: Scalar, remaining: Scalar, sem: Semantics) -> Scalar:
    """Microbatches whose activations a stage holds at its peak, in units of the whole stage."""
    row = point.schedule
    inverse = 1.0 / point.virtual_stages
    chunks = row.depth_in_flight * remaining + row.stages_in_flight * point.pipeline + row.extra_in_flight
    earlier = row.virtual_in_flight * point.pipeline * (1 - inverse)
    return row.all_in_flight * microbatches + sem.minimum(microbatches, chunks * inverse + earlier)


def stage_memory(counted: OpCounts, point: PlanPoint, kind: StageKind, stack: Stack, sem: Semantics) -> StageMemory:
    """Bytes of one stage, term by term."""
    layers = Layers(counted, point, kind)
    held, trained = layers.elements(sem), layers.trained_elements(sem)
    live = in_flight(point, counted.microbatches, kind.remaining, sem)
    working = layers.largest(working_bytes(point), sem)
    gathered = layers.largest(gathered_bytes(point, stack), sem)
    head = total(b.saved.input + b.saved.rest for b in counted.blocks if b.position == Position.LAST)
    logits = total(b.logits for b in counted.blocks if b.position == Position.LAST)
    copies = (1 - point.zero.weights) * point.precision.copy_bytes * layers.matrices(sem)
    row = point.optimizer
    states = row.states * point.state_bytes + point.master_bytes + row.own_bytes + point.kept_copy_bytes
    states = states + (0.0 if point.method is None else point.method.state_bytes)
    updated = divided(trained, point.zero.states)
    edges = layers.trained_edges(sem) * share(point.zero.states, point.data_shard)
    states_bytes = states * updated + row.edge_states * point.state_bytes * edges
    buffers, second = _buffers(states, layers, sem), _second(states_bytes, updated, live, layers, sem)
    added_to = divided(layers.trained_elements(sem, 1 - layers.offload.gradients), sharding(point, sem).gradients)
    gradients = (point.gradient_bytes + point.gradient_copy_bytes) * added_to
    early = stack.early_gradients + (1 - stack.early_gradients) * sem.minimum(1.0, counted.microbatches - 1)
    idle = stack.idle_gradients * point.precision.weight_bytes * layers.largest(_matrices(sem), sem)
    kept = live * layers.saved_bytes() + buffers.activations
    return StageMemory(
        weights_bytes=point.precision.weight_bytes * divided(held, point.zero.weights) + copies + buffers.weights,
        gradients_bytes=early * gradients + idle + buffers.gradients,
        optimizer_bytes=(1 - layers.offload.optimizer) * states_bytes,
        activations_bytes=kept + kind.last * head,
        logits_bytes=kind.last * _loss_bytes(logits, counted, point, stack, sem),
        working_bytes=working,
        gathered_bytes=gathered,
        buffers_bytes=stack.communicator_bytes * communicators(point, sem),
        fragmentation_bytes=stack.fragmentation * (kept + kind.last * head + working),
        late_bytes=(1 - early) * gradients,
        update_bytes=4.0 * (stack.update_copies + point.widened) * updated + buffers.optimizer,
        outside_bytes=stack.context_bytes + stack.workspace_bytes,
        second_weights_bytes=second.weights,
        second_optimizer_bytes=second.optimizer,
        second_activations_bytes=second.activations,
        second_gradients_bytes=second.gradients,
    )


def _loss_bytes(logits: Scalar, counted: OpCounts, point: PlanPoint, stack: Stack, sem: Semantics) -> Scalar:
    """What head and loss hold at their peak, beside the activations of the head.

    Under ZeRO 3 the head's weights are gathered; when its own gradient is reduced, a 16-bit gradient of the logits is
    what is left of the loss.
    """
    row, inputs = point.loss, counted.boundary_bytes / point.precision.activation_bytes
    loss = (row.own * stack.logit_bytes + row.logit_bytes) * logits + row.input_bytes * inputs
    head = total(b.head_parameters for b in counted.blocks if b.position == Position.LAST)
    weights, gathered = point.precision.weight_bytes, point.zero.weights * head
    left = sem.minimum(loss, point.precision.activation_bytes * logits)
    return sem.maximum(loss + weights * gathered, left + (2.0 * weights + point.gradient_bytes) * gathered)


def _second(states_bytes: Scalar, updated: Scalar, live: Scalar, layers: "Layers", sem: Semantics) -> Offload:
    """Bytes in the second memory. The host has the gradients of what it updates, if only for the update."""
    point = layers.point
    if point.offload is None:
        return Offload()
    sums = divided(layers.offloaded_gradients(sem), sharding(point, sem).gradients)
    return Offload(
        weights=point.precision.weight_bytes * divided(layers.offloaded_elements(sem), point.zero.weights),
        optimizer=point.offload.optimizer * states_bytes,
        activations=live * layers.offloaded_bytes(),
        gradients=point.gradient_bytes * sem.maximum(sums, point.offload.on_host * updated),
    )


def _buffers(states: Scalar, layers: "Layers", sem: Semantics) -> Offload:
    """Bytes in HBM of the layers that stream: the share of them that does. `states` are bytes of one element."""
    point, counted, shares = layers.point, layers.counted, layers.point.offload
    if shares is None:
        return Offload()
    return Offload(
        weights=shares.weights * layers.buffer(lambda block: layer_weights_bytes(block, counted, point, sem), sem),
        optimizer=(shares.optimizer - shares.on_host)
        * layers.buffer(lambda block: layer_states_bytes(block, states, counted, point, sem), sem),
        activations=shares.activations * layers.buffer(lambda block: kept_bytes(block, point), sem),
        gradients=shares.gradients
        * layers.buffer(lambda block: layer_gradients_bytes(block, counted, point, sem), sem),
    )


def communicators(point: PlanPoint, sem: Semantics) -> Scalar:
    """Groups of more than one rank that each accelerator belongs to."""
    degrees = (point.tensor, point.context, point.data, point.pipeline, point.expert, point.expert_tensor)
    return total(sem.minimum(1.0, degree - 1) for degree in degrees)


def working_bytes(point: PlanPoint) -> BlockQuantity:
    """What a block needs while its backward pass runs: activations that come back, gradients of activations."""
    row = point.recompute

    def working_bytes(block: BlockCounts) -> Scalar:
        whole = row.working_core * block.saved.core + row.working_rest * block.saved.rest
        dropped = by_module(lambda dropped, size_bytes: dropped * size_bytes, point.modules, block.saved.modules)
        return whole + dropped + block.flowing_bytes

    return working_bytes


def gathered_bytes(point: PlanPoint, stack: Stack) -> BlockQuantity:
    """What a block gathers under ZeRO 3: its weights and the next block's, and its gradient, whole, in their type and
    in that of its reduction (FSDP2's `foreach_reduce` copies it)."""
    weights, gradients = 2.0 * point.precision.weight_bytes, point.precision.weight_bytes + point.gradient_bytes
    copies, gathered = point.precision.copy_bytes, point.zero.weights * stack.gathered_share

    def gathered_bytes(block: BlockCounts) -> Scalar:
        trained = block.trained_parameters + block.trained_expert_parameters
        cast = copies * (block.matrix_parameters + block.expert_parameters)
        return gathered * (weights * (block.parameters + block.expert_parameters) + gradients * trained + cast)

    return gathered_bytes


def _matrices(sem: Semantics) -> BlockQuantity:
    """Elements of a layer's weights, of its experts' of one: copies of one shape are one. Transformer Engine makes them
    (`get_dummy_wgrad`) where it adds gradients to those of the optimizer itself."""

    def matrices(block: BlockCounts) -> Scalar:
        one = sem.minimum(block.experts, 1.0) / sem.maximum(block.experts, 1.0)
        return block.matrix_parameters + one * block.expert_parameters

    return matrices
