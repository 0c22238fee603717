"""Sums and maxima over the blocks of one pipeline stage."""

from collections.abc import Callable

from costmodel.formulas.counted import BlockCounts, OpCounts
from costmodel.formulas.held import Held, divided, expert_shard, kept_bytes
from costmodel.inputs import Offload, PlanPoint, Position
from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics, total

BlockQuantity = Callable[[BlockCounts], Scalar]

BUFFERED_LAYERS = 2.0
"""Of what streams, the layers that HBM holds: the one in use and the one on its way."""


@pytree
class StageKind:
    """A stage by its place: stages from it to the end, itself included, and what else it holds. (Or several stages.)"""

    remaining: Scalar
    first: Scalar  # 1: holds the embedding
    last: Scalar  # 1: holds the head
    extra_layers: Scalar = 0.0


class Layers:
    """Sums and maxima over the blocks of one stage. Holds no state of its own."""

    def __init__(self, counted: OpCounts, point: PlanPoint, kind: StageKind) -> None:
        self.counted, self.point, self.kind = counted, point, kind
        self.offload = point.offload or Offload()
        self.blocks = counted.layers

    def _stage_share(self) -> Scalar:
        """Of all layers, the share that this stage holds."""
        return 1.0 / self.point.pipeline + self.kind.extra_layers / self.counted.layer_count

    def elements(self, sem: Semantics) -> Held:
        """Parameters in HBM before ZeRO. A tied head is a copy of its own where there is a pipeline, and so is the
        embedding of a stage that looks it up again (Megatron-Core's `multi_token_prediction.py`)."""
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
        copied = self.counted.embeds_again * (1 - self.kind.first) * first
        return self.kind.first * first, self.kind.last * (last - shared + copied)

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
