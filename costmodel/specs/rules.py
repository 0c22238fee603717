"""The rules that a plan must keep to be launched, and which of them it breaks, in words."""

from collections.abc import Iterator

from costmodel.formulas import domain_sizes, nests
from costmodel.inputs import PRECISION_TYPES, SCHEDULES, Cluster, Kind, Plan, Position, Size, Split, Workload, layers
from costmodel.specs.checks import either
from costmodel.specs.expert_rules import expert_groups, expert_rules
from costmodel.specs.files import SpecError, show
from costmodel.specs.plans import PLAN_CHECKS

Rules = Iterator[str]


def violations(plan: Plan, workload: Workload, cluster: Cluster) -> tuple[str, ...]:
    """All broken rules, in words; empty for a plan that can be launched. Memory is not a rule (Breakdown says it).

    Fields of a wrong type or name are reported first, and then rules that read them are not judged.
    """
    unsound = {name for name, check in PLAN_CHECKS.items() if not check(getattr(plan, name))}
    broken = [
        f"`{name}` is {show(getattr(plan, name))}; expected {PLAN_CHECKS[name].expected}"
        for name in PLAN_CHECKS
        if name in unsound
    ]
    for rule, reads in _RULES:
        if unsound.isdisjoint(reads):
            broken += rule(plan, workload, cluster)
    return tuple(dict.fromkeys(broken))


def check_plan(plan: Plan, workload: Workload, cluster: Cluster) -> None:
    """Raise a `SpecError` of one line with all broken rules, if there are any."""
    broken = violations(plan, workload, cluster)
    if broken:
        raise SpecError("plan: " + "; ".join(broken))


def _divides(divisor: int, value: float) -> bool:
    return value % divisor == 0


def _accelerators(plan: Plan, _: Workload, cluster: Cluster) -> Rules:
    if plan.accelerators != cluster.accelerators:
        yield (
            f"`tensor` x `context` x `data` x `pipeline` is {show(plan.accelerators)}; "
            f"expected the cluster's {cluster.accelerators} accelerators"
        )


def _batch(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    if not _divides(plan.data * plan.microbatch, workload.batch):
        yield (
            f"`data` x `microbatch` is {show(plan.data * plan.microbatch)}; "
            f"expected a divisor of the batch of {workload.batch} sequences"
        )


def _tensor(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    """Heads and widths of the layers; the vocabulary may be padded, and scarce key-value heads are replicated."""
    undivided: dict[float, str] = {}
    for size, what in tensor_sizes(workload):
        if size.limit is not None:
            if not (_divides(plan.tensor, size.limit) or _divides(size.limit, plan.tensor)):
                yield f"`tensor` is {show(plan.tensor)}; expected a divisor or a multiple of the {size.limit} {what}"
        elif not _divides(plan.tensor, size.value):
            undivided.setdefault(size.value, what)
    for value, what in undivided.items():
        if not any(value > other and value % other == 0 for other in undivided):  # else mending that mends this
            yield f"`tensor` is {show(plan.tensor)}; expected a divisor of the {value} {what}"


def tensor_sizes(workload: Workload) -> Iterator[tuple[Size, str]]:
    """Each size of a layer that the tensor degree divides, and what it counts."""
    for op in (op for block in workload.blocks if block.position == Position.LAYER for op in block.ops):
        heads = "heads" if op.kind == Kind.ATTENTION else f"groups of `{op.name}`"
        for size in (*op.groups, *op.columns, *op.inner):
            if Split.TENSOR in size.split:
                what = "key-value heads" if size.limit is not None else f"elements of `{op.name}`"
                yield size, heads if size in op.groups else what


def _sequence(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    if plan.sequence_parallel and plan.tensor == 1:
        yield "`sequence_parallel` is true with `tensor` 1; expected `tensor` > 1"
    if not _divides(plan.context, workload.sequence):
        yield f"`context` is {show(plan.context)}; expected a divisor of the sequence of {workload.sequence} tokens"
    elif plan.sequence_parallel and not _divides(plan.tensor * plan.context, workload.sequence):
        yield (
            f"`tensor` x `context` is {show(plan.tensor * plan.context)}; expected a divisor of the sequence of "
            f"{workload.sequence} tokens, because `sequence_parallel` divides it by both"
        )


def _heads_over_context(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    if plan.context_kind != "all_to_all" or plan.context == 1:
        return
    for op in (op for block in workload.blocks for op in block.ops if op.kind == Kind.ATTENTION):
        for heads in (size.value for size in op.groups):
            if not _divides(plan.tensor * plan.context, heads):
                yield (
                    f"`tensor` x `context` is {show(plan.tensor * plan.context)}; expected a divisor of the {heads} "
                    "heads, which `context_kind` all_to_all divides by both"
                )


def _layers(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    count, schedule = layers(workload), SCHEDULES[plan.schedule]
    folded = schedule.folds
    stages = plan.pipeline * plan.virtual_stages * (2 if folded else 1)
    if plan.stage_layers is None:
        if folded and not _divides(stages, count):
            yield (
                f"`pipeline` is {show(plan.pipeline)} with {plan.schedule}; expected twice as many to divide "
                f"the {count} layers"
            )
        elif not _divides(stages, count):
            yield (
                f"`pipeline` x `virtual_stages` is {show(stages)}; expected a divisor of the {count} layers, or "
                "`stage_layers`"
            )
        return
    given = plan.stage_layers
    if len(given) != plan.pipeline or sum(given) != count:
        yield (
            f"`stage_layers` is {len(given)} stages of {show(sum(given))} layers together; expected "
            f"{show(plan.pipeline)} stages of {count}"
        )
    if schedule.splits:
        whole = either(name for name, other in SCHEDULES.items() if not other.splits)
        yield f"`stage_layers` is given with `schedule` {plan.schedule}; expected {whole}"
    elif min(given) < plan.virtual_stages:
        yield f"`stage_layers` has a stage of {show(min(given))}; expected at least `virtual_stages` layers in each"


def _schedule(plan: Plan, workload: Workload, _: Cluster) -> Rules:
    microbatches = plan.microbatches(int(workload.batch))
    said, schedule = f"there are {microbatches:g} microbatches", SCHEDULES[plan.schedule]
    if schedule.interleaves:
        if plan.virtual_stages < 2 or plan.pipeline < 2:
            yield f"`schedule` is {plan.schedule}; expected `virtual_stages` >= 2 and `pipeline` >= 2"
        if not _divides(plan.pipeline, microbatches):
            yield f"`schedule` is {plan.schedule} and {said}; expected a multiple of `pipeline` {show(plan.pipeline)}"
    elif plan.virtual_stages > 1:
        several = either(name for name, other in SCHEDULES.items() if other.interleaves)
        yield f"`virtual_stages` is {show(plan.virtual_stages)} with {plan.schedule}; expected 1, or {several}"
    if schedule.folds and plan.pipeline < 2:
        yield f"`schedule` is {plan.schedule}; expected `pipeline` >= 2"
    least = schedule.least_microbatches(plan.pipeline)
    if microbatches < least:
        yield f"`schedule` is {plan.schedule} and {said}; expected at least {show(least)}"


def _data_shard(plan: Plan, _: Workload, __: Cluster) -> Rules:
    if plan.data_shard is None:
        return
    ranks = plan.data * plan.context
    if not _divides(plan.data_shard, ranks):
        yield f"`data_shard` is {show(plan.data_shard)}; expected a divisor of `data` x `context` ({show(ranks)})"
    if plan.zero_stage == 0:
        yield f"`data_shard` is {show(plan.data_shard)} with `zero_stage` 0; expected `zero_stage` 1 to 3"


def _domain(plan: Plan, _: Workload, cluster: Cluster) -> Rules:
    inner = cluster.tiers[0]
    domain = inner.usable_size if plan.domain is None else plan.domain
    if domain > inner.size:
        yield f"`domain` is {show(domain)}; expected at most the {inner.size} accelerators of the tier {inner.name}"
    elif plan.accelerators > domain and not _divides(domain, plan.accelerators):
        yield (
            f"`domain` is {show(domain)}; expected a divisor of the {show(plan.accelerators)} accelerators, "
            "because they fill more than one"
        )


def _precision(plan: Plan, _: Workload, cluster: Cluster) -> Rules:
    needed, types = PRECISION_TYPES[plan.precision], cluster.accelerator.types
    if needed not in types:
        yield (
            f"`precision` is {plan.precision}; expected a type that {cluster.accelerator.name} has: {', '.join(types)}"
        )


def _second_memory(plan: Plan, _: Workload, cluster: Cluster) -> Rules:
    if cluster.accelerator.second_memory_bytes > 0:
        return
    for name in _OFFLOADS:
        if getattr(plan, name) > 0:
            yield (
                f"`{name}` is {show(getattr(plan, name))}; expected 0, because {cluster.accelerator.name} has no "
                "`second_memory_bytes`"
            )


def _placement(plan: Plan, _: Workload, cluster: Cluster) -> Rules:
    """Groups that do not nest in the domains: `ranks_by_tier` would only be a mean for them."""
    if cluster.partial_domains:
        return
    domain = cluster.tiers[0].usable_size if plan.domain is None else plan.domain
    for tier, size in list(zip(cluster.tiers, domain_sizes(cluster.tiers, domain), strict=True))[:-1]:
        for name, group, stride in groups(plan):
            if not nests(group, stride, size, plan.accelerators):
                yield (
                    f"the {name} group of {show(group)} ranks at stride {show(stride)} does not nest in the {size:g} "
                    f"accelerators of a domain of tier {tier.name}; expected degrees that fill it evenly, or "
                    "`partial_domains`"
                )


def groups(plan: Plan) -> tuple[tuple[str, int, int], ...]:
    """Name, size and stride of each group of ranks, from the inside out."""
    ranks = plan.data * plan.context
    shard = (plan.data_shard or ranks) if plan.zero_stage else 1
    return (
        ("tensor", plan.tensor, 1),
        ("context", plan.context, plan.tensor),
        ("data shard", shard, plan.tensor),
        ("replica", max(1, ranks // shard), plan.tensor * shard),
        ("pipeline", plan.pipeline, plan.tensor * ranks),
        *expert_groups(plan),
    )


_OFFLOADS = ("offload_weights", "offload_optimizer", "offload_activations")
_DEGREES = ("tensor", "context", "data", "pipeline")
_RULES = (
    (_accelerators, _DEGREES),
    (_batch, ("data", "microbatch")),
    (_tensor, ("tensor",)),
    (_sequence, ("tensor", "context", "sequence_parallel")),
    (_heads_over_context, ("tensor", "context", "context_kind")),
    (_layers, ("pipeline", "virtual_stages", "stage_layers", "schedule")),
    (_schedule, ("schedule", "pipeline", "virtual_stages", "data", "microbatch")),
    (_data_shard, ("data_shard", "data", "context", "zero_stage")),
    (_domain, ("domain", *_DEGREES)),
    (_precision, ("precision",)),
    (_second_memory, _OFFLOADS),
    (expert_rules, ("expert", "expert_tensor", "sequence_parallel", *_DEGREES)),
    (_placement, ("domain", "data_shard", "zero_stage", "expert", "expert_tensor", *_DEGREES)),
)
