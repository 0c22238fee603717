"""From `Plan` to `PlanPoint`: degrees as numbers, options as the rows that the software of a stack has of them."""

import dataclasses

from costmodel.inputs import options
from costmodel.inputs.plan import Offload, Plan, PlanPoint, layers
from costmodel.inputs.stack import Habits
from costmodel.inputs.workload import Kind, Workload, whole


def embed(plan: Plan, workload: Workload, domain: float, habits: Habits = Habits()) -> PlanPoint:  # noqa: B008
    """The point of a plan: degrees as floats, options as the rows that its software has of them.

    `domain` is the cluster's usable domain, `habits` are those of its stack.
    """
    extra = extra_layers(plan.stage_layers, layers(workload) / plan.pipeline)
    shard = plan.data_shard or plan.data * plan.context
    return PlanPoint(
        accelerators=float(plan.accelerators),
        tensor=float(plan.tensor),
        context=float(plan.context),
        pipeline=float(plan.pipeline),
        virtual_stages=float(plan.virtual_stages),
        microbatch=float(plan.microbatch),
        domain=float(plan.domain or domain),
        copies=plan.data * plan.context / shard,
        expert=float(plan.expert),
        expert_tensor=float(plan.expert_tensor),
        sequence_parallel=float(plan.sequence_parallel),
        context_ring=float(plan.context_kind == "ring"),
        extra_layers_first=extra[0],
        extra_layers_middle=extra[1],
        extra_layers_last=extra[2],
        gradient_bytes=options.DTYPE_BYTES[plan.gradient_dtype],
        gradient_copy_bytes=_gradient_copy_bytes(plan, habits),
        update_copy_bytes=4.0 * float(habits.deepspeed_zero),
        widens=float(_widens(plan, habits)),
        state_bytes=options.DTYPE_BYTES[plan.state_dtype],
        masters=float(plan.master_weights),
        fused_kernels=float(plan.fused_kernels and habits.fused_kernels),
        whole_inputs=float(habits.whole_inputs),
        offload=_offload(plan, habits),
        schedule=habits.schedule_row(plan.schedule),
        zero=options.ZERO_STAGES[plan.zero_stage],
        recompute=_recompute_row(plan, habits),
        modules=_modules(plan),
        precision=habits.precision_row(plan.precision),
        optimizer=options.OPTIMIZERS[plan.optimizer],
        attention=_attention_row(plan, workload, habits),
        loss=habits.loss_row(plan.loss),
        gate_inputs=0.5 if plan.gates_in_8bit else 1.0,
        dispatcher=options.DISPATCHERS[plan.dispatcher],
        overlap=options.OverlapRow(
            tensor=float(plan.overlap_tensor),
            context=float(plan.overlap_context),
            expert=float(plan.overlap_expert),
            data=float(plan.overlap_data),
            pipeline=float(plan.overlap_pipeline),
        ),
    )


def extra_layers(held: tuple[int, ...] | None, mean: float) -> tuple[float, float, float]:
    """Layers of the first, the fullest middle and the last stage above the mean over stages, of what stages hold (None:
    as many each)."""
    if held is None:
        return (0.0, 0.0, 0.0)
    middle = max(held[1:-1] or (held[0], held[-1]))
    return (held[0] - mean, middle - mean, held[-1] - mean)


def _attention_row(plan: Plan, workload: Workload, habits: Habits) -> options.AttentionRow:
    """The row of the kernel for the model's heads, of the slowest size where it has several."""
    row = habits.attention_row(plan.attention)
    cores = [op for block in workload.blocks for op in block.ops if op.kind == Kind.ATTENTION]
    slowest = max((options.alignment_work(row, float(whole(op.inner))) for op in cores), default=1.0)
    return row if slowest == 1.0 else dataclasses.replace(row, work=slowest * row.work)


def _gradient_copy_bytes(plan: Plan, habits: Habits) -> float:
    """Where sums are wider than the weights, software may hold the gradients of one microbatch beside them."""
    own = float(options.PRECISIONS[plan.precision].weight_bytes)
    return own if habits.deepspeed_zero and options.DTYPE_BYTES[plan.gradient_dtype] > own else 0.0


def _widens(plan: Plan, habits: Habits) -> bool:
    """Whether the update works on 32-bit copies of gradients; an optimizer with narrow states reads them as they are
    (K: Megatron-Core's precision-aware optimizer)."""
    narrow = options.DTYPE_BYTES[plan.gradient_dtype] < options.DTYPE_BYTES["fp32"]
    return habits.widens_gradients and narrow and plan.master_weights and plan.state_dtype == "fp32"


def _offload(plan: Plan, habits: Habits) -> Offload | None:
    names = ("weights", "optimizer", "activations", "gradients")
    shares = {name: float(getattr(plan, f"offload_{name}")) for name in names}
    return Offload(**shares, host=float(habits.updates_on_host)) if any(shares.values()) else None


def _modules(plan: Plan) -> options.ModuleRow | None:
    """Modules that are computed again alone, in `recompute_share` of the blocks."""
    chosen = options.modules_of(plan.recompute)
    return options.ModuleRow(**dict.fromkeys(chosen, plan.recompute_share)) if chosen else None


def _recompute_row(plan: Plan, habits: Habits) -> options.RecomputeRow:
    """The row of the mode on `recompute_share` of the blocks and of none on the others."""
    rows = habits.recompute_rows()
    chosen, none = rows[plan.recompute if plan.recompute in rows else "none"], rows["none"]
    share = plan.recompute_share
    mixed = {
        f.name: share * getattr(chosen, f.name) + (1 - share) * getattr(none, f.name)
        for f in dataclasses.fields(options.RecomputeRow)
        if not f.name.startswith("working")
    }
    working = float(share > 0)
    return options.RecomputeRow(
        **mixed, working_core=working * chosen.working_core, working_rest=working * chosen.working_rest
    )
