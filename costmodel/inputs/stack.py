"""The software: its habits by class, and its fitted parameters, which neither the data sheet nor the plan says."""

import dataclasses

from costmodel.inputs import options
from costmodel.inputs.options import AttentionRow, LossRow, PrecisionRow, RecomputeRow
from costmodel.inputs.schedules import FOLDED, SCHEDULES, ScheduleRow
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Habits:
    """What a class of software does. The first block are defaults of a plan; the others are physics of any plan.

    The defaults change nothing: operators and option rows are those of the tables.
    """

    # fields of `Plan`, where whoever reads or asks says nothing
    zero_stage: int = 1
    sequence_parallel: bool = True  # where tensor > 1
    recompute: str | None = None  # None: the least that fits in memory
    gradient_dtype: str = "fp32"
    fp16_gradients: bool = False  # those of fp16 weights in fp16, whatever others are in
    overlap_data: bool = True
    overlap_tensor: bool = False
    overlap_pipeline: bool = False
    overlap_expert: bool = False
    always_recomputes: bool = False  # K: MaxText's and Pax's own configurations set a policy other than none
    weighs_head: bool = False  # stages are cut by cost, the head among them
    # option rows
    attention: str = "flash_3"  # what "flash" means: the latest kernel of the die, or FlashAttention-2
    selective: RecomputeRow | None = None  # what "selective" means; None: as in Megatron, the attention's core
    loss: str = "usual"  # what "usual" means: a row of `options.LOSSES`
    offloaded_activations: float = 0.0  # share of the kept activations that waits in the host's memory, beside compute
    keeps_32bit_weights: bool = False  # the weights themselves are the optimizer's 32-bit copy (FSDP, MaxText)
    gathers_8bit_weights: bool = False  # such weights are cast before they are gathered, not after
    keeps_8bit_weights: bool = False  # under 8-bit precisions weights are held, gathered, and inputs saved, in 8 bits
    # DeepSpeed's ZeRO: gradients in the weights' own type beside sums in 32 bits, and those of a rank's part of the
    # update in 32 bits. K: `stage_1_and_2.py`, `bf16_optimizer.py`; C: what BLOOM's rows lack is a third of the states
    deepspeed_zero: bool = False
    whole_inputs: bool = False  # without a pipeline, inputs of column-parallel layers are kept as they were gathered
    fused_kernels: bool = True  # norms and activations in one kernel each, where the plan wants them
    folded: str = ""  # what a schedule that folds is, of `schedules.FOLDED`
    # operators (models.variants)
    eager: bool = False  # gates are kept after their activation too
    rotation_copies: float = 0.0  # of queries, in their own width, that an eager rotation leaves for the backward pass
    rotation_passes: bool = False  # the rotation is a chain of kernels
    norm_copies_bytes: float | None = None  # of unfused norms in 32 bits, per element; None: norms are one kernel
    norms_alone_fused: bool = False  # one kernel for each norm, beside other operators that are not fused
    gathered_loss: bool = False  # every tensor rank computes the loss on all logits
    softmax_in_32_bits: bool = False
    widens_gradients: bool = False  # the update makes 32-bit copies of gradients in fewer bits, and drops them
    drops_inputs: bool = False  # what recompute starts from waits in the host's memory
    eager_experts: bool = False  # biases and clamped gates of experts are computed by the framework's own operators
    # the host
    updates_on_host: bool = False  # optimizer states in the host's memory are updated by its processors
    waits_for_ranks: float = 0.0  # 1: in pipelines over domains hosts wait at each tensor collective, by its ranks
    captured: float = 0.0  # share of the kernels that CUDA graphs hold: the host does not issue them again
    captured_iteration: bool = False  # a graph holds the whole step: no host work for experts, microbatches or the step
    # the model
    dropout: bool = False  # in models of GPT's kind
    memory: tuple[tuple[str, float], ...] = ()  # fields of the Stack that hold bytes outside tensors

    @property
    def host_shares(self) -> dict[str, float]:
        """What is left of the Stack's host work, by field: what a graph holds is not issued again.

        Graphs of parts of a layer hold its kernels and not the products of experts, whose sizes the host reads.
        """
        beside = float(not self.captured_iteration)
        return {"host_kernel_s": 1.0 - self.captured} | dict.fromkeys(("routing_s", "microbatch_s", "step_s"), beside)

    def with_precision(self, precision: str | None) -> dict[str, str]:
        """Fields of a plan that go with its precision, where nobody asks otherwise."""
        return {"gradient_dtype": "fp16"} if precision == "fp16" and self.fp16_gradients else {}

    def gradients_in(self, precision: str) -> str:
        """The format in which runs of this software sum and send gradients of weights in this precision."""
        return self.with_precision(precision).get("gradient_dtype", self.gradient_dtype)

    def precision_row(self, name: str) -> PrecisionRow:
        """The row of a precision as this software has it."""
        row = options.PRECISIONS[name]
        if self.keeps_8bit_weights and row.copy_bytes > 0:
            return dataclasses.replace(row, weight_bytes=1.0, copy_bytes=row.copy_bytes - 1.0, saved_inputs=0.5)
        if self.keeps_32bit_weights and row.master_bytes > 0:
            narrow = self.gathers_8bit_weights and row.at_8bit > 0
            gathered = {"weight_bytes": 1.0, "weight_cast_bytes": row.copy_bytes} if narrow else {}  # only turned over
            return dataclasses.replace(row, shared_master=1.0, **gathered)
        return row

    def attention_row(self, name: str) -> AttentionRow:
        """The row of an attention kernel; `flash` is the one that this software calls."""
        return options.ATTENTIONS[self.attention if name == "flash" else name]

    def schedule_row(self, name: str) -> ScheduleRow:
        """The row of a pipeline schedule; of ZB-V that of the variant which this software runs."""
        return FOLDED[self.folded] if name == "zb_v" else SCHEDULES[name].row

    def schedule_rows(self) -> dict[str, ScheduleRow]:
        """The row of each pipeline schedule by its name."""
        return {name: self.schedule_row(name) for name in SCHEDULES}

    def loss_row(self, name: str) -> LossRow:
        """The row of a loss; of the usual one the passes of this software's, and the bytes of its Stack."""
        row = options.LOSSES[self.loss if name == "usual" else name]
        return dataclasses.replace(row, own=1.0, logit_bytes=0.0) if name == "usual" else row

    def recompute_rows(self) -> dict[str, RecomputeRow]:
        """The rows of all modes as this software has them."""
        rows = options.RECOMPUTES | ({} if self.selective is None else {"selective": self.selective})
        left = 1.0 - self.offloaded_activations
        if left == 1.0:
            return rows
        kept = ("keep_core", "keep_rest")
        return {
            mode: dataclasses.replace(row, **{name: left * getattr(row, name) for name in kept})
            for mode, row in rows.items()
        }


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
    matmul_size0: Scalar = 200.0  # elements: a dimension of this size costs as much again (roofline.py)
    sized_at_flop_per_s: Scalar = 312e12  # on units of this peak (A100); larger by the root on faster ones
    attention_ceiling: Scalar = 0.50  # share of peak of the fused attention's matmuls, forward
    attention_2_ceiling: Scalar = 0.50  # the same of FlashAttention-2's kernels
    attention_backward_ratio: Scalar = 2.5  # FLOP of the fused backward over those of the forward (scores recomputed)
    attention_size0: Scalar = 512.0  # keys
    context_imbalance: Scalar = 0.0  # 1 where context ranks hold one contiguous chunk each; 0: paired chunks (zigzag)
    unfused_touches: Scalar = 2.0  # passes of unfused norms and activations over those of fused ones
    cast_passes: Scalar = 1.0  # share of the casts to narrow formats that no other kernel does on its way
    hbm_ceiling: Scalar = 0.85  # share of the memory bandwidth that streams reach
    sums_exposed: Scalar = 0.0  # share of a weight gradient's passes over its sum that its product does not hide
    adds_apart: Scalar = 0.0  # 1 where a kernel of its own adds each weight gradient to its sum (roofline.py)
    kernel_s: Scalar = 4e-6  # launch and drain of one kernel
    host_kernel_s: Scalar = 0.0  # host work to issue one kernel, beside the accelerator (timing.py)
    sync_rank_s: Scalar = 0.0  # host's wait at a tensor collective for each of its ranks, where `waits_for_ranks`
    routing_s: Scalar = 0.0  # host work of a pass over a block with eleven experts on a rank (traffic.py), unhidden
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
    ring_step_s: Scalar = 0.0  # of each step of an all-gather's ring over several domains: the host's proxies
    all_reduce_tree: Scalar = 1.0  # share of all-reduces whose latency grows with the logarithm of the ranks
    tree_hop: Scalar = 1.0  # what one level of a tree costs, in hops of its tier: copies and reductions add to the wire
    network_hop: Scalar = 10.0  # the same of tiers beyond the first, whose hops go through proxies and adapters
    collective_ramp: Scalar = 0.0  # weight of sqrt(latency * traffic): messages of middling size (collectives.py)
    chunk_fill: Scalar = 0.05  # share of a hierarchical collective in which its tiers do not overlap
    contention: Scalar = 0.10  # share of overlapped communication that slows the compute it hides behind
    # the same of tokens to experts: units that a dispatcher's kernels take. K: 32 of 148 (HybridEP in Megatron-Bridge's
    # recipes), 20 of 132 (DeepEP in Megatron-Core; DeepSeek-AI 2024, V3, section 3.2.2)
    expert_contention: Scalar = 0.2
    regather_exposed: Scalar = 0.3  # share of the gathers for weight gradients that nothing hides
    sent_once: Scalar = 1.0  # share of dispatchers that send a token to each domain once, not to each of its experts
    # share of the compute beside it that can hide communication, where the plan overlaps it
    hide_tensor: Scalar = 0.5
    hide_context: Scalar = 0.9
    hide_expert: Scalar = 0.5
    hide_data: Scalar = 0.9
    hide_pipeline: Scalar = 0.9
    hide_offload: Scalar = 0.9
    # of the host's memory bandwidth, the share that an optimizer on its processors reaches, all ranks at once. C: the
    # steps of ml-engineering's H200 at 8k and 32k tokens (DeepSpeed's CPUAdam) leave 1.9 s for 1.0e9 parameters a rank
    host_ceiling: Scalar = 0.2
    # memory outside tensors
    context_bytes: Scalar = 1.0e9
    workspace_bytes: Scalar = 0.5e9
    communicator_bytes: Scalar = 0.25e9  # buffers of one communicator
    fragmentation: Scalar = 0.03  # share of what tensors hold that lies idle between allocations
    cached: Scalar = 0.0  # of what other moments than the peak hold, the share that the allocator keeps beside it
    logit_bytes: Scalar = 8.0  # bytes of one logit at the peak of the loss: float32 values and their gradient
    memory_log_sd: Scalar = 0.0  # standard deviation of log(measured / predicted) bytes of this software
    memory_margin: Scalar = 1.0  # bytes that a plan is taken to need over those predicted (measured.certainty)
    gathered_share: Scalar = 1.0  # of a block under ZeRO 3, what is gathered at a time
    early_gradients: Scalar = 1.0  # 0 where gradients are freed after the update: a first backward pass makes them anew
    idle_gradients: Scalar = 0.0  # copies of one layer's weights that stand for gradients added elsewhere
    update_copies: Scalar = 0.0  # float32 copies of a rank's updated weights held inside the optimizer step
