"""What streams past the layers of a stage from a second memory, and the passes that hide it (offload.py)."""

import dataclasses

from costmodel.pytree import pytree
from costmodel.semantics import Scalar, Semantics

_SECONDS = ("reads_s", "weights_s", "activations_s", "gradients_s", "sums_s")


@pytree
class Streams:
    """Seconds of a plain stage's traffic with the second memory, before any overlap."""

    reads_s: Scalar  # weights, in the forward passes of one microbatch
    weights_s: Scalar  # weights, once
    activations_s: Scalar  # of one microbatch, once
    gradients_s: Scalar  # of one microbatch, out of its backward pass
    sums_s: Scalar  # in the mean over microbatches, of the sums that they are added to: the first one finds none
    s_per_byte: Scalar  # each direction
    hidden: Scalar  # share of a pass that may hide them
    layers: Scalar  # of a plain stage

    def scaled(self, factor: Scalar) -> "Streams":
        """The streams of a stage with `factor` times the layers."""
        moved = {name: factor * getattr(self, name) for name in (*_SECONDS, "layers")}
        return dataclasses.replace(self, **moved)

    def backward_s(self, sem: Semantics) -> Scalar:
        """The stream of one microbatch's backward pass."""
        return sem.maximum(self.weights_s + self.activations_s + self.sums_s, self.gradients_s)

    def forward_s(self, sem: Semantics) -> Scalar:
        """The stream of one microbatch's forward pass."""
        return sem.maximum(self.reads_s, self.activations_s)


def streamed_s(compute_s: Scalar, traffic_s: Scalar, moved: Streams, sem: Semantics) -> Scalar:
    """Compute beside the traffic that a share of it may hide."""
    return sem.maximum(compute_s, traffic_s + (1 - moved.hidden) * compute_s)
