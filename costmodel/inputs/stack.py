"""The fitted parameters of the software: what neither the data sheet nor the plan says."""

from costmodel.inputs.software import Habits
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar


@pytree
class Stack:
    """Efficiencies, overheads and memory outside tensors. Every number is a leaf: it can be fitted or swept."""

    name: str = static(default="default")
    software: str = static(default="")  # class of software whose habits these are (`software.SOFTWARE`)
    habits: Habits = static(default=Habits())  # applied where a plan becomes a point (`evaluators.prepare`)
    # algorithm of each kind of collective: a name in `collectives.COLLECTIVES`
    all_reduce: str = static(default="nested")
    all_gather: str = static(default="ring")  # and of reduce-scatters
    all_to_all: str = static(default="direct")
    neighbour: str = static(default="direct")  # messages to the next rank: of pipelines and of the context ring
    # compute
    matmul_ceiling: Scalar = 0.80  # share of peak of a large matmul
    matmul_8bit_ceiling: Scalar = 1.0  # of products in 8 bits: share of their peak over `matmul_ceiling`
    matmul_4bit_ceiling: Scalar = 1.0
    matmul_size0: Scalar = 200.0  # elements: a dimension of this size costs as much again (see roofline.py)
    attention_ceiling: Scalar = 0.50  # share of peak of the fused attention's matmuls, forward
    attention_2_ceiling: Scalar = 0.50  # the same of FlashAttention-2's kernels
    attention_backward_ratio: Scalar = 2.5  # FLOP of the fused backward over those of the forward (scores recomputed)
    attention_size0: Scalar = 512.0  # keys
    context_imbalance: Scalar = 0.0  # 1 where context ranks hold one contiguous chunk each; 0: paired chunks (zigzag)
    unfused_touches: Scalar = 2.0  # passes of unfused norms and activations over those of fused ones
    cast_passes: Scalar = 1.0  # share of the casts to narrow formats that no other kernel does on its way
    hbm_ceiling: Scalar = 0.85  # share of the memory bandwidth that streams reach
    kernel_s: Scalar = 4e-6  # launch and drain of one kernel
    host_kernel_s: Scalar = 0.0  # host work to issue one kernel, ahead of the accelerator: no block takes less
    routing_s: Scalar = 0.0  # host work of one pass over a block of experts that nothing hides
    microbatch_s: Scalar = 0.0  # host work of one microbatch on one stage that nothing hides
    step_s: Scalar = 5e-3  # host work of a step that nothing hides
    jitter_s: Scalar = 0.0  # wait for the slowest rank, for each doubling of their number
    update_passes: Scalar = 1.0  # passes of the optimizer step through memory over those of a fused one
    # collectives
    link_ceiling: Scalar = 0.82  # share of the innermost tier's bandwidth that large messages reach
    network_ceiling: Scalar = 0.82  # the same of the other tiers, for gathers and reductions
    peer_ceiling: Scalar = 0.82  # the same of the other tiers, for all-to-alls and messages to neighbours
    scale_up_ceiling: Scalar = 1.0  # share of that which the first tier reaches in training, beside compute
    scale_out_ceiling: Scalar = 1.0  # of tiers beyond the first: share of all that which they reach in training
    congestion: Scalar = 0.0  # additional seconds per byte on them, for each doubling of the domains of a job
    collective_s: Scalar = 8e-6  # start of one collective
    all_reduce_tree: Scalar = 1.0  # share of all-reduces whose latency grows with the logarithm of the ranks
    tree_hop: Scalar = 1.0  # what one level of a tree costs, in hops of its tier: copies and reductions add to the wire
    collective_ramp: Scalar = 0.0  # weight of sqrt(latency * traffic): messages of middling size (collectives.py)
    chunk_fill: Scalar = 0.05  # share of a hierarchical collective in which its tiers do not overlap
    contention: Scalar = 0.10  # share of overlapped communication that slows the compute it hides behind
    regather_exposed: Scalar = 0.3  # share of the gathers for weight gradients that nothing hides
    sent_once: Scalar = 1.0  # share of dispatchers that send a token to each domain once, not to each of its experts
    # share of the compute beside it that can hide communication, where the plan overlaps it
    hide_tensor: Scalar = 0.5
    hide_context: Scalar = 0.9
    hide_expert: Scalar = 0.5
    hide_data: Scalar = 0.9
    hide_pipeline: Scalar = 0.9
    hide_offload: Scalar = 0.9
    # memory outside tensors
    context_bytes: Scalar = 1.0e9
    workspace_bytes: Scalar = 0.5e9
    communicator_bytes: Scalar = 0.25e9  # buffers of one communicator
    fragmentation: Scalar = 0.03  # share of activations lost between allocations
    logit_bytes: Scalar = 8.0  # bytes of one logit at the peak of the loss: float32 values and their gradient
    update_copies: Scalar = 0.0  # float32 copies of a rank's updated weights held inside the optimizer step
