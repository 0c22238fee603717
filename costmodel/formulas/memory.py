"""Bytes on one accelerator of each pipeline stage, at the peak of the backward pass and inside the optimizer step.

Weights, gradients and optimizer states after Rajbhandari et al. 2020 (ZeRO); activations after Korthikanti et al.
2022, counted operator by operator (workload.Saved); microbatches in flight by the schedule's row. What lies outside
tensors (context, workspace, communicator buffers, fragmentation) are fitted leaves of the Stack. Shares that the plan
offloads (offload.py) lie in the second memory; HBM keeps two layers of what streams, or those that there are.
"""

import dataclasses
from collections.abc import Callable

from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import Held, divided, expert_shard, kept_bytes, sharding, share
from costmodel.formulas.modules import by_module
from costmodel.formulas.offload import (
    BUFFERED_LAYERS,
    layer_gradients_bytes,
    layer_states_bytes,
    layer_weights_bytes,
)
from costmodel.inputs import Cluster, Offload, PlanPoint, Position, Stack
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total

BlockQuantity = Callable[[BlockCounts], Scalar]


@pytree
class StageKind:
    """A stage by its place: stages from it to the end, itself included, and what else it holds. (Or several stages.)"""

    remaining: Scalar
    first: Scalar  # 1: holds the embedding
    last: Scalar  # 1: holds the head
    extra_layers: Scalar = 0.0


@pytree
class StageMemory:
    """Bytes of one stage. `backward_bytes` and `optimizer_bytes` are the two candidates of its peak."""

    weights_bytes: Scalar
    gradients_bytes: Scalar
    optimizer_bytes: Scalar
    activations_bytes: Scalar
    logits_bytes: Scalar  # of head and loss, before the backward passes of the layers begin
    working_bytes: Scalar  # of one block while its backward pass runs: dropped activations, gradients of activations
    gathered_bytes: Scalar  # ZeRO 3: the weights of this block and the next, and one block's whole gradient
    buffers_bytes: Scalar  # of communicators
    fragmentation_bytes: Scalar
    late_bytes: Scalar  # gradients that only come with the backward pass, as activations go
    update_bytes: Scalar  # temporary copies inside the optimizer step
    outside_bytes: Scalar  # context and workspace
    second_weights_bytes: Scalar  # in the second memory
    second_optimizer_bytes: Scalar
    second_activations_bytes: Scalar
    second_gradients_bytes: Scalar

    @property
    def held_bytes(self) -> Scalar:
        """What is there at every moment."""
        held = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        return held + self.buffers_bytes + self.outside_bytes

    @property
    def second_bytes(self) -> Scalar:
        """What lies in the second memory."""
        states = self.second_weights_bytes + self.second_optimizer_bytes
        return states + self.second_activations_bytes + self.second_gradients_bytes


@pytree
class MemoryUse:
    """The first, the second and the last stage: with uniform layers no other stage needs more."""

    first: StageMemory
    second: StageMemory
    last: StageMemory
    peak_bytes: Scalar
    needed_bytes: Scalar  # with the stack's margin: what is compared with the memory that there is
    second_bytes: Scalar  # of the second memory, on the stage that has most there


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


def passing_bytes(stage: StageMemory, sem: Semantics) -> Scalar:
    """What comes and goes with forward and backward passes, at its peak: in the loss, or in the first block after it.

    Measured with PyTorch's tracker of tensors (2.15, `FSDPMemTracker`): a block's recomputation begins when logits and
    their gradients are gone.
    """
    kept = stage.activations_bytes + stage.fragmentation_bytes
    return kept + sem.maximum(stage.logits_bytes, stage.working_bytes + stage.gathered_bytes)


def peak(stage: StageMemory, sem: Semantics) -> Scalar:
    """The largest of the passes, their end and the optimizer step."""
    end_bytes = stage.late_bytes + sem.maximum(stage.working_bytes + stage.gathered_bytes, stage.update_bytes)
    return stage.held_bytes + sem.maximum(passing_bytes(stage, sem), end_bytes)


def device_bytes(stage: StageMemory, stack: Stack, sem: Semantics) -> Scalar:
    """What the device shows at the peak: also what the allocator keeps, unused, of other moments.

    Of two that follow one another the smaller, as far as its pieces do not serve the larger. A plan does not need it:
    PyTorch's allocator gives it back before it says that memory is out.
    """
    block_bytes = stage.working_bytes + stage.gathered_bytes
    idle_bytes = sem.minimum(stage.logits_bytes, block_bytes) + sem.minimum(stage.activations_bytes, stage.late_bytes)
    return peak(stage, sem) + stack.cached * idle_bytes


def reserved_bytes(stage: StageMemory, stack: Stack, sem: Semantics) -> Scalar:
    """What the framework's allocator holds at the peak: all but the context and the communicators."""
    return device_bytes(stage, stack, sem) - stack.context_bytes - stage.buffers_bytes


def allocated_bytes(stage: StageMemory, stack: Stack, sem: Semantics) -> Scalar:
    """What of that is in tensors and workspaces: without what is lost between allocations."""
    whole = dataclasses.replace(stage, fragmentation_bytes=0.0)
    return peak(whole, sem) - stack.context_bytes - stage.buffers_bytes


def in_flight(point: PlanPoint, microbatches: Scalar, remaining: Scalar, sem: Semantics) -> Scalar:
    """Microbatches whose activations a stage holds at its peak, in units of the whole stage."""
    row = point.schedule
    inverse = 1.0 / point.virtual_stages
    chunks = row.depth_in_flight * remaining + row.stages_in_flight * point.pipeline + row.extra_in_flight
    earlier = row.virtual_in_flight * point.pipeline * (1 - inverse)
    return row.all_in_flight * microbatches + sem.minimum(microbatches, chunks * inverse + earlier)


def stage_memory(counted: OpCounts, point: PlanPoint, kind: StageKind, stack: Stack, sem: Semantics) -> StageMemory:
    """Bytes of one stage, term by term."""
    layers = _Layers(counted, point, kind)
    held, trained = layers.elements(sem), layers.trained_elements(sem)
    live = in_flight(point, counted.microbatches, kind.remaining, sem)
    working = layers.largest(working_bytes(point), sem)
    gathered = layers.largest(gathered_bytes(point, stack), sem)
    head = total(b.saved.input + b.saved.rest for b in counted.blocks if b.position == Position.LAST)
    logits = total(b.logits for b in counted.blocks if b.position == Position.LAST)
    copies = (1 - point.zero.weights) * point.precision.copy_bytes * layers.matrices(sem)
    row = point.optimizer
    states = row.states * point.state_bytes + point.master_bytes + row.own_bytes + point.update_copy_bytes
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
        update_bytes=4.0 * stack.update_copies * updated + buffers.optimizer,
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


def _second(states_bytes: Scalar, updated: Scalar, live: Scalar, layers: "_Layers", sem: Semantics) -> Offload:
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


def _buffers(states: Scalar, layers: "_Layers", sem: Semantics) -> Offload:
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


class _Layers:
    """Sums and maxima over the blocks of one stage. Holds no state of its own."""

    def __init__(self, counted: OpCounts, point: PlanPoint, kind: StageKind) -> None:
        self.counted, self.point, self.kind = counted, point, kind
        self.offload = point.offload or Offload()
        self.blocks = counted.layers

    def _stage_share(self) -> Scalar:
        """Of all layers, the share that this stage holds."""
        return 1.0 / self.point.pipeline + self.kind.extra_layers / self.counted.layer_count

    def elements(self, sem: Semantics) -> Held:
        """Parameters in HBM before ZeRO. A tied head is a copy of its own where there is a pipeline."""
        return self._held(
            lambda block: block.parameters,
            lambda block: block.head_parameters,
            lambda block: block.expert_parameters,
            sem,
            kept=1 - self.offload.weights,
        )

    def offloaded_elements(self, sem: Semantics) -> Held:
        """Parameters of layers in the second memory before ZeRO."""
        kept = self.offload.weights
        dense, experts = self._in_layers(lambda block: block.parameters, lambda block: block.expert_parameters, kept)
        return self._meshes(dense, experts, sem)

    def trained_elements(self, sem: Semantics, kept: Scalar = 1.0) -> Held:
        """Those with a gradient and optimizer states, of layers the share `kept`."""
        return self._held(
            lambda block: block.trained_parameters,
            lambda block: block.trained_head_parameters,
            lambda block: block.trained_expert_parameters,
            sem,
            kept=kept,
        )

    def offloaded_gradients(self, sem: Semantics) -> Held:
        """Gradients of layers in the second memory before ZeRO."""
        kept = self.offload.gradients
        return self._meshes(
            *self._in_layers(lambda b: b.trained_parameters, lambda b: b.trained_expert_parameters, kept), sem
        )

    def matrices(self, sem: Semantics) -> Scalar:
        """Elements of all that enter a product, on one rank before ZeRO; a tied head is one of them."""
        held = self._held(
            lambda block: block.matrix_parameters, lambda _: 0.0, lambda block: block.expert_parameters, sem
        )
        return divided(held, 0.0)

    def trained_edges(self, sem: Semantics) -> Scalar:
        """Those of `trained_elements` that belong to the embedding and the head."""
        first, last = self._edges(
            lambda block: block.trained_parameters, lambda block: block.trained_head_parameters, sem
        )
        return first + last

    def _edges(self, own: BlockQuantity, tied: BlockQuantity, sem: Semantics) -> tuple[Scalar, Scalar]:
        first = total(own(block) for block in self.counted.blocks if block.position == Position.FIRST)
        last = total(own(block) for block in self.counted.blocks if block.position == Position.LAST)
        heads = total(tied(block) for block in self.counted.blocks if block.position == Position.LAST)
        shared = self.counted.tied * self.point.single_stage(sem) * heads
        return self.kind.first * first, self.kind.last * (last - shared)

    def _held(
        self, own: BlockQuantity, tied: BlockQuantity, expert: BlockQuantity, sem: Semantics, kept: Scalar = 1.0
    ) -> Held:
        """Of layers the share `kept`; embedding and head are always whole."""
        first, last = self._edges(own, tied, sem)
        dense, experts = self._in_layers(own, expert, kept)
        return self._meshes(dense + first + last, experts, sem)

    def _in_layers(self, own: BlockQuantity, expert: BlockQuantity, kept: Scalar) -> tuple[Scalar, Scalar]:
        share_kept = (1 + self.point.schedule.both_ways) * self._stage_share() * kept
        dense, experts = (
            share_kept * total(block.repeats * quantity(block) for block in self.blocks) for quantity in (own, expert)
        )
        return dense, experts

    def _meshes(self, dense: Scalar, experts: Scalar, sem: Semantics) -> Held:
        copies = 1 + self.point.schedule.both_ways  # of every layer, which share their shards
        if not self.counted.has_experts:
            return ((dense, copies * self.point.data_shard),)
        return ((dense, copies * self.point.data_shard), (experts, copies * expert_shard(self.point, sem)))

    def saved_bytes(self) -> Scalar:
        """Activations of one microbatch that stay in HBM."""
        first = total(b.saved.input + b.saved.rest for b in self.counted.blocks if b.position == Position.FIRST)
        return self._kept_in_layers() * (1 - self.offload.activations) + self.kind.first * first

    def offloaded_bytes(self) -> Scalar:
        """Those of them in the second memory."""
        return self._kept_in_layers() * self.offload.activations

    def _kept_in_layers(self) -> Scalar:
        return self._stage_share() * total(block.repeats * kept_bytes(block, self.point) for block in self.blocks)

    def buffer(self, quantity: BlockQuantity, sem: Semantics) -> Scalar:
        """The layers of what streams that HBM holds at a time."""
        held = sem.minimum(BUFFERED_LAYERS, self._stage_share() * self.counted.layer_count)
        return held * self.largest(quantity, sem)

    def largest(self, quantity: BlockQuantity, sem: Semantics) -> Scalar:
        """The largest of a quantity over the kinds of layer."""
        return sem.maximum(*(quantity(block) for block in self.blocks))
