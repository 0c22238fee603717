"""One evaluation as named terms that add up: what is exposed, what is hidden, and which resource limits each.

Differences of times stand here only, for reports; nothing here enters `cost`.
"""

import dataclasses
from collections.abc import Callable

from costmodel.formulas.collectives import Law
from costmodel.formulas.cost import Parts
from costmodel.formulas.counted import OpCounts
from costmodel.formulas.economics import EconomicsRange
from costmodel.formulas.memory import MemoryUse, limit_bytes
from costmodel.formulas.pipeline import Pipeline, pipeline_s
from costmodel.formulas.roofline import Roof
from costmodel.formulas.roofs import redone, roofs
from costmodel.formulas.timing import BlockPasses, Pass, exposed_s
from costmodel.inputs import Cluster, PlanPoint, Workload, model_flop
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, Semantics, Verdict, total
from costmodel.shown import Shown

MFU_CONVENTION = "6 x matmul parameters per token + attention (causal halved), no recompute, over the dense 16-bit peak"


@pytree
class Term:
    """One part of the step. `limits` are the candidates of its maximum, in seconds, under `limit_names`."""

    name: str = static()
    limit_names: tuple[str, ...] = static()
    sends: bool = static(default=False)  # whether it is messages
    exposed_s: Scalar
    hidden_s: Scalar
    limits: tuple[Scalar, ...]


@pytree
class Breakdown(Shown):
    """Named terms in seconds that sum to `step_s`, memory by stage, and the work that was done."""

    terms: tuple[Term, ...]
    memory: MemoryUse
    limit_bytes: Scalar  # with the stack's margin off
    second_limit_bytes: Scalar
    model_flop: Scalar  # per accelerator and step, without recompute
    hardware_flop: Scalar  # with it
    peak_flop_per_s: Scalar
    tokens: Scalar  # per step, all accelerators
    economics: EconomicsRange | None = None  # where the cluster has prices

    @property
    def step_s(self) -> Scalar:
        """Seconds of a step: what all terms expose."""
        return total(term.exposed_s for term in self.terms)

    @property
    def fits(self) -> Verdict:
        """Whether the fullest stage stays within the accelerator's memory, and what it offloads within the second."""
        in_hbm = self.memory.peak_bytes <= self.limit_bytes
        return in_hbm & (self.memory.second_bytes <= self.second_limit_bytes)

    @property
    def tokens_per_s(self) -> Scalar:
        """Tokens a second, of the whole cluster."""
        return self.tokens / self.step_s

    @property
    def mfu(self) -> Scalar:
        """Model FLOP utilisation by `MFU_CONVENTION`; a ratio of per-accelerator figures (DESIGN 7)."""
        return self._utilisation(self.model_flop)

    @property
    def hfu(self) -> Scalar:
        """What `mfu` is with the FLOP that recompute repeats."""
        return self._utilisation(self.hardware_flop)

    def _utilisation(self, flop: Scalar) -> Scalar:
        """In units of 1e15 FLOP: the square of a peak times a step would leave float32, and its gradient vanish."""
        return (1e-15 * flop) / (1e-15 * self.peak_flop_per_s) / self.step_s


def breakdown(workload: Workload, cluster: Cluster, point: PlanPoint, done: Parts, sem: Semantics) -> Breakdown:
    """Name the parts of an evaluation."""
    flop = model_flop(workload) * workload.batch / point.accelerators
    bubble_s, uneven_s, transfers_s, waits_s = _pipeline_parts(point, done, sem)
    return Breakdown(
        terms=(
            *_compute_terms(cluster, point, done),
            *_traffic_terms(cluster, point, done, transfers_s, sem),
            _term("pipeline bubble", bubble_s, ("pipeline depth",), (bubble_s,)),
            _term("embedding, head", uneven_s, ("first and last stage",), (uneven_s,)),
            _optimizer_term(done),
            _offload_term(done, waits_s, sem),
            _host_term(point, done, sem),
            _links_term(done, sem),
        ),
        memory=done.memory,
        limit_bytes=limit_bytes(cluster),
        second_limit_bytes=cluster.accelerator.second_memory_bytes,
        model_flop=flop,
        hardware_flop=flop + _repeated_flop(done.counts, point),
        peak_flop_per_s=cluster.accelerator.peak_16bit_flop_per_s,
        tokens=workload.batch * workload.sequence,
    )


def _repeated_flop(counted: OpCounts, point: PlanPoint) -> Scalar:
    """FLOP that recompute adds per accelerator and step."""
    row = point.recompute
    core = total(b.repeats * total(a.flop for a in b.attentions) for b in counted.layers)
    rest = total(b.repeats * total(a.flop for a in b.matmuls) for b in counted.layers)
    alone = total(b.repeats * total(redone(c, point) * c.flop for c in b.matmuls) for b in counted.layers)
    return counted.microbatches / point.pipeline * (row.redo_core * core + row.redo_rest * rest + alone)


def _on_stage_s(point: PlanPoint, done: Parts, quantity: Callable[[BlockPasses], Scalar]) -> Scalar:
    """The sum over the layers of a plain stage and all microbatches of a step."""
    summed_s = total(block.repeats * quantity(block) for block in done.times.layers)
    return done.counts.microbatches / point.pipeline * summed_s


def _passes_s(point: PlanPoint, done: Parts, quantity: Callable[[Pass], Scalar]) -> Scalar:
    """The same of a quantity of each pass, over all passes."""
    return _on_stage_s(point, done, lambda block: total(times * quantity(each) for times, each in block.passes))


def _compute_terms(cluster: Cluster, point: PlanPoint, done: Parts) -> tuple[Term, ...]:
    names = ("FLOP/s", "HBM bandwidth", "kernel launch")
    matmuls, attentions, memories, recompute = _sides(cluster, point, done)
    return (
        _term("matmuls", _passes_s(point, done, lambda each: each.matmul_s), names, matmuls),
        _term("attention", _passes_s(point, done, lambda each: each.attention_s), names, attentions),
        _term("norms, activations", _passes_s(point, done, lambda each: each.memory_s), names[1:], memories[1:]),
        _recompute_term(point, done, names, recompute),
    )


def _sides(cluster: Cluster, point: PlanPoint, done: Parts) -> tuple[tuple[Scalar, ...], ...]:
    """Seconds that each kind of operator keeps the arithmetic units, the memory and the launches busy in a step."""
    per_step = done.counts.microbatches / point.pipeline
    speed, stack = done.times.rates, cluster.stack
    by_layer = [(block.repeats, roofs(block, point, speed, stack)) for block in done.counts.layers]

    def busy_s(kind: int, side: Callable[[Roof], Scalar]) -> Scalar:
        return per_step * total(n * total(k * side(roof) for k, roof in each[kind]) for n, each in by_layer)

    sides = (
        lambda roof: roof.compute_s,
        lambda roof: roof.memory_s + roof.aside_s,
        lambda roof: roof.launch_s + roof.casts_s,
    )
    return tuple(tuple(busy_s(kind, side) for side in sides) for kind in range(4))


def _recompute_term(point: PlanPoint, done: Parts, names: tuple[str, ...], sides: tuple[Scalar, ...]) -> Term:
    """Forward work that is repeated: operators, and the traffic that they wait for."""
    row, repeated_s = point.recompute, _on_stage_s(point, done, lambda block: block.recompute_s)
    if point.modules is not None:
        sent_s = point.modules.feed_forward * _on_stage_s(point, done, lambda block: block.forward.expert_s)
        return _term("recompute", repeated_s, (*names, "repeated traffic"), (*sides, sent_s))
    work_s = _on_stage_s(
        point,
        done,
        lambda block: (
            row.redo_core * block.forward.attention_s
            + row.redo_rest * (block.forward.matmul_s + block.forward.memory_s)
        ),
    )
    return _term("recompute", repeated_s, (*names, "repeated traffic"), (*sides, repeated_s - work_s))


def _traffic_terms(
    cluster: Cluster, point: PlanPoint, done: Parts, moved_s: Scalar, sem: Semantics
) -> tuple[Term, ...]:
    times, laws, counted = done.times, done.times.laws, done.counts

    def left_s(
        quantities: Callable[[Pass], tuple[Scalar, Scalar]], share: Scalar, contention: Scalar = times.contention
    ) -> Scalar:
        """What is exposed of traffic that runs beside compute."""
        return _passes_s(point, done, lambda each: exposed_s(*quantities(each), share, contention, sem))

    def context_s(each: Pass) -> Scalar:
        return exposed_s(each.attention_s, each.ring_s, times.hide.context, times.contention, sem) + each.exchange_s

    def alone_s(quantity: Callable[[BlockPasses], Scalar]) -> Scalar:
        return _on_stage_s(point, done, quantity)

    tensor_s = left_s(lambda each: (each.matmul_s, each.sync_s), times.hide.tensor)
    data_s = left_s(lambda each: (each.inside_s, each.data_s), times.hide.data) + done.step.reduction_s
    sent_s = alone_s(lambda b: b.forwards * b.forward.sync_s + b.backward.sync_s)
    ring_s = alone_s(
        lambda b: b.forwards * b.forward.ring_s + b.backward.ring_s + (b.forwards + 1) * b.forward.exchange_s
    )
    sharded_s = alone_s(lambda b: b.forwards * b.forward.data_s + b.backward.data_s + b.weights.data_s)
    gradients_s, experts = sharded_s + done.step.work.gradient_traffic_s, ()
    weights, keys = _largest_payload(counted, point), total(a.ring_bytes for b in counted.blocks for a in b.attentions)
    if laws.experts is not None:
        beside = times.hide.expert, times.expert_contention
        expert_s = left_s(lambda each: (each.products_s + each.core_s, each.expert_s), *beside)
        tokens_s = alone_s(lambda b: (b.forwards + 1) * b.forward.expert_s)
        payload = total(b.exchange_bytes / b.exchanges for b in counted.blocks if b.exchanges)
        experts = (_traffic("expert traffic", expert_s, tokens_s, cluster, laws.experts.exchange, payload),)
    law = _data_law(point, laws.shard, laws.replica, sem)
    return (
        _traffic("tensor traffic", tensor_s, sent_s, cluster, laws.sync, _sync_payload(counted)),
        _traffic("context traffic", _passes_s(point, done, context_s), ring_s, cluster, laws.ring, keys),
        *experts,
        _traffic("data traffic", data_s, gradients_s, cluster, law, weights),
        _traffic("pipeline transfers", moved_s, moved_s, cluster, laws.boundary, counted.boundary_bytes),
    )


def _pipeline_parts(point: PlanPoint, done: Parts, sem: Semantics) -> tuple[Scalar, ...]:
    """Seconds by which a pipeline's passes grow from `microbatches x plain stage`, one cause after another: the plain
    stages of the schedule; embedding, head and uneven layers; transfers; waits for the second memory."""
    pipe, hop, m = done.step.work.pipe, done.step.work.hops, done.counts.microbatches
    still, nothing = hop.scaled(0.0), pipe.plain.scaled(0.0)
    even = Pipeline(plain=pipe.plain, first=nothing, middle=nothing, last=nothing)
    in_hbm = dataclasses.replace(pipe, streams=None)
    even_s, uneven_s, moved_s = (
        pipeline_s(stages_of, hop_of, m, point, sem)
        for stages_of, hop_of in ((even, still), (in_hbm, still), (in_hbm, hop))
    )
    bubble_s = even_s - m * pipe.plain.seconds
    return bubble_s, uneven_s - even_s, moved_s - uneven_s, done.step.passes_s - moved_s


def _optimizer_term(done: Parts) -> Term:
    work = done.step.work
    streams_s = work.optimizer_s - work.host_update_s - work.orthogonal_s
    names = ("HBM bandwidth", "FLOP/s", "host memory bandwidth")
    return _term("optimizer", work.optimizer_s, names, (streams_s, work.orthogonal_s, work.host_update_s))


def _offload_term(done: Parts, waits_s: Scalar, sem: Semantics) -> Term:
    """Traffic with the second memory: what passes and update wait for it, of what it takes alone."""
    moved, exposed_s = done.times.streams, waits_s + done.step.optimizer_waits_s
    alone_s = done.step.work.update_traffic_s
    if moved is not None:
        alone_s = alone_s + done.counts.microbatches * (moved.forward_s(sem) + moved.backward_s(sem))
    hidden_s = sem.maximum(alone_s - exposed_s, 0.0)  # a pipeline waits in its bubble too
    return Term(
        name="offload",
        limit_names=("second memory bandwidth",),
        exposed_s=exposed_s,
        hidden_s=hidden_s,
        limits=(alone_s,),
    )


def _host_term(point: PlanPoint, done: Parts, sem: Semantics) -> Term:
    k = done.times.contention
    issued_s = _passes_s(point, done, lambda each: exposed_s(each.busy_s, each.issue_s, 1.0, k, sem))
    microbatches_s = done.counts.microbatches * done.times.microbatch_s
    names = ("step", "issuing kernels", "microbatches")
    parts_s = (done.step.host_s, issued_s, microbatches_s)
    return _term("host", done.step.host_s + issued_s + microbatches_s, names, parts_s)


def _links_term(done: Parts, sem: Semantics) -> Term:
    """What the busiest links add where they need longer than all the rest."""
    step = done.step
    summed_s = step.passes_s + step.reduction_s + step.work.optimizer_s + step.optimizer_waits_s + step.host_s
    links_s = sem.maximum(0.0, step.work.links_s - summed_s)
    return _term("shared links", links_s, ("link bandwidth",), (links_s,))


def _term(name: str, exposed_s: Scalar, limit_names: tuple[str, ...], limits: tuple[Scalar, ...]) -> Term:
    return Term(name=name, limit_names=limit_names, exposed_s=exposed_s, hidden_s=0.0 * exposed_s, limits=limits)


def _traffic(name: str, exposed_s: Scalar, alone_s: Scalar, cluster: Cluster, law: Law, payload_bytes: Scalar) -> Term:
    """A term of communication: limited by the bandwidth of a tier or by latency, at the payload of one call."""
    names = tuple(f"{tier.name} bandwidth" for tier in cluster.tiers)
    limits = tuple(busy * payload_bytes for busy in law.by_tier)
    return Term(
        name=name,
        limit_names=(*names, "latency"),
        sends=True,
        exposed_s=exposed_s,
        hidden_s=alone_s - exposed_s,
        limits=(*limits, law.latency_s),
    )


def _data_law(point: PlanPoint, shard: Law, replica: Law, sem: Semantics) -> Law:
    """Sharded and replicated traffic of one block's weights, as one law."""
    inverse = 1.0 / point.data_shard
    return Law(
        by_tier=tuple(a + inverse * b for a, b in zip(shard.by_tier, replica.by_tier, strict=True)),
        seconds_per_byte=shard.seconds_per_byte + inverse * replica.seconds_per_byte,
        latency_s=shard.latency_s + replica.latency_s,
        ramp=shard.ramp + sem.sqrt(inverse) * replica.ramp,
    )


def _sync_payload(counted: OpCounts) -> Scalar:
    layers = [b for b in counted.layers if b.syncs + b.backward_syncs]
    return total((b.sync_bytes + b.backward_sync_bytes) / (b.syncs + b.backward_syncs) for b in layers)


def _largest_payload(counted: OpCounts, point: PlanPoint) -> Scalar:
    return point.gradient_bytes * total(b.trained_parameters for b in counted.layers)
