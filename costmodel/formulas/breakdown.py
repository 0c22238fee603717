"""One evaluation as named terms that add up: what is exposed, what is hidden, and which resource limits each.

Differences of times stand here only, for reports; nothing here enters `cost`.
"""

import dataclasses
from typing import NamedTuple

from costmodel.formulas.collectives import Law
from costmodel.formulas.cost import Parts
from costmodel.formulas.counts import OpCounts
from costmodel.formulas.economics import EconomicsRange
from costmodel.formulas.memory import MemoryUse
from costmodel.formulas.pipeline import Pipeline, pipeline_s
from costmodel.formulas.roofline import attention_roof, cast_s, matmul_roof, rates, score_s
from costmodel.formulas.schedule import hops, stages, update_traffic_s
from costmodel.inputs import Cluster, PlanPoint, Position, Workload, model_flop
from costmodel.pytree import pytree, static
from costmodel.semantics import Scalar, Semantics, Verdict, total

MFU_CONVENTION = "6 x matmul parameters per token + attention (causal halved), no recompute, over the dense 16-bit peak"


@pytree
class Term:
    """One part of the step. `limits` are the candidates of its maximum, in seconds, under `limit_names`."""

    name: str = static()
    limit_names: tuple[str, ...] = static()
    exposed_s: Scalar
    hidden_s: Scalar
    limits: tuple[Scalar, ...]


@pytree
class Breakdown:
    """Named terms in seconds that sum to `step_s`, memory by stage, and the work that was done."""

    terms: tuple[Term, ...]
    memory: MemoryUse
    limit_bytes: Scalar
    second_limit_bytes: Scalar
    model_flop: Scalar  # per accelerator and step, without recompute
    hardware_flop: Scalar  # with it
    peak_flop_per_s: Scalar
    tokens: Scalar  # per step, all accelerators
    economics: EconomicsRange | None = None  # where the cluster has prices

    @property
    def step_s(self) -> Scalar:
        return total(term.exposed_s for term in self.terms)

    @property
    def fits(self) -> Verdict:
        """Whether the fullest stage stays within the accelerator's memory, and what it offloads within the second."""
        in_hbm = self.memory.peak_bytes <= self.limit_bytes
        return in_hbm & (self.memory.second_bytes <= self.second_limit_bytes)

    @property
    def tokens_per_s(self) -> Scalar:
        return self.tokens / self.step_s

    @property
    def mfu(self) -> Scalar:
        """Model FLOP utilisation by `MFU_CONVENTION`; a ratio of per-accelerator figures (DESIGN 7)."""
        return self._utilisation(self.model_flop)

    @property
    def hfu(self) -> Scalar:
        """As `mfu`, with the FLOP that recompute repeats."""
        return self._utilisation(self.hardware_flop)

    def _utilisation(self, flop: Scalar) -> Scalar:
        """In units of 1e15 FLOP: the square of a peak times a step would leave float32, and its gradient vanish."""
        return (1e-15 * flop) / (1e-15 * self.peak_flop_per_s) / self.step_s


def breakdown(workload: Workload, cluster: Cluster, point: PlanPoint, done: Parts, sem: Semantics) -> Breakdown:
    """Name the parts of an evaluation."""
    flop = model_flop(workload) * workload.batch / point.accelerators
    pipe = _pipeline_parts(point, done, sem)
    return Breakdown(
        terms=_compute_terms(cluster, point, done)
        + _traffic_terms(cluster, point, done, pipe.transfers_s)
        + _other_terms(point, done, pipe, sem),
        memory=done.memory,
        limit_bytes=cluster.accelerator.hbm_bytes,
        second_limit_bytes=cluster.accelerator.second_memory_bytes,
        model_flop=flop,
        hardware_flop=flop + _repeated_flop(done.counts, point),
        peak_flop_per_s=cluster.accelerator.peak_16bit_flop_per_s,
        tokens=workload.batch * workload.sequence,
    )


def _repeated_flop(counted: OpCounts, point: PlanPoint) -> Scalar:
    """FLOP that recompute adds per accelerator and step."""
    row = point.recompute
    layers = [block for block in counted.blocks if block.position == Position.LAYER]
    core = total(b.repeats * total(a.flop for a in b.attentions) for b in layers)
    rest = total(b.repeats * total(a.flop for a in b.matmuls) for b in layers)
    return counted.microbatches / point.pipeline * (row.redo_core * core + row.redo_rest * rest)


class _OnStage:
    """Sums over the layers of a plain stage and all microbatches of a step."""

    def __init__(self, point: PlanPoint, done: Parts) -> None:
        self.layers = [block for block in done.times.blocks if block.position == Position.LAYER]
        self.per_step = done.counts.microbatches / point.pipeline

    def total_s(self, quantity) -> Scalar:
        return self.per_step * total(block.repeats * quantity(block) for block in self.layers)

    def passes_s(self, part: str) -> Scalar:
        return self.total_s(lambda b: total(getattr(p, part) for p in (b.forward, b.backward, b.weights)))


def _compute_terms(cluster: Cluster, point: PlanPoint, done: Parts) -> tuple[Term, ...]:
    stack, stage = cluster.stack, _OnStage(point, done)
    speed = rates(cluster.accelerator, point, stack)
    blocks = [block for block in done.counts.blocks if block.position == Position.LAYER]
    matmuls = [(b.repeats, matmul_roof(c, point, speed, stack)) for b in blocks for c in b.matmuls]
    casts = [b.repeats * cast_s(c, point, speed, stack) for b in blocks for c in b.matmuls]
    attentions = [(b.repeats, attention_roof(c, speed, stack)) for b in blocks for c in b.attentions]
    scores = [b.repeats * score_s(c, point, speed, stack) for b in blocks for c in b.attentions]
    touches = point.attention.score_touches_forward + point.attention.score_touches_backward
    kernels = total(b.repeats * len(b.matmuls) for b in blocks), total(b.repeats * len(b.attentions) for b in blocks)
    moved = total(b.repeats * len(b.memories) for b in blocks)
    names = ("FLOP/s", "HBM bandwidth", "kernel launch")
    times = stage.per_step

    def sides(roofs, passes: float, additional_s: Scalar, launches: Scalar) -> tuple[Scalar, ...]:
        compute_s = total(repeats * roof.compute_s for repeats, roof in roofs)
        memory_s = total(repeats * roof.memory_s for repeats, roof in roofs)
        launch_s = launches * stack.kernel_s
        return (times * passes * compute_s, times * (passes * memory_s + additional_s), times * launch_s)

    memory_s = stage.passes_s("memory_s")
    launch_s = times * 2.0 * moved * stack.kernel_s
    return (
        _term("matmuls", stage.passes_s("matmul_s"), names, sides(matmuls, 3.0, 2.0 * total(casts), 3.0 * kernels[0])),
        _term(
            "attention",
            stage.passes_s("attention_s"),
            names,
            sides(attentions, 1.0 + stack.attention_backward_ratio, touches * total(scores), 2.0 * kernels[1]),
        ),
        _term("norms, activations", memory_s, names[1:], (memory_s - launch_s, launch_s)),
        _recompute_term(stage, point),
    )


def _recompute_term(stage: _OnStage, point: PlanPoint) -> Term:
    """Forward work that is repeated: products, passes through memory, and the traffic that they wait for."""
    row, repeated_s = point.recompute, stage.total_s(lambda block: block.recompute_s)
    products_s = stage.total_s(
        lambda b: row.redo_core * b.compute.attention_forward_s + row.redo_rest * b.compute.matmul_forward_s
    )
    moved_s = row.redo_rest * stage.total_s(lambda b: b.compute.memory_forward_s)
    names = ("FLOP/s", "HBM bandwidth", "repeated traffic")
    return _term("recompute", repeated_s, names, (products_s, moved_s, repeated_s - products_s - moved_s))


def _traffic_terms(cluster: Cluster, point: PlanPoint, done: Parts, moved_s: Scalar) -> tuple[Term, ...]:
    stage, laws, counted, step = _OnStage(point, done), done.times.laws, done.counts, done.step
    zero = point.zero
    tensor_s = stage.total_s(lambda b: b.forwards * b.traffic.sync_forward_s + b.traffic.sync_backward_s)
    ring_s = stage.total_s(
        lambda b: (
            b.forwards * b.traffic.ring_forward_s + b.traffic.ring_backward_s + (b.forwards + 1) * b.traffic.exchange_s
        )
    )
    sharded_s = stage.total_s(
        lambda b: (
            0.5 * (b.forwards + 1) * zero.gathers_per_microbatch * b.traffic.gather_s
            + zero.reduces_per_microbatch * b.traffic.reduce_s
        )
    )
    data_exposed_s = stage.passes_s("data_s") + step.reduction_s
    data_s = sharded_s + step.gradient_traffic_s
    weights, experts = _largest_payload(counted, point), ()
    keys = total(a.ring_bytes for b in counted.blocks for a in b.attentions)
    if laws.experts is not None:
        sent_s = stage.total_s(lambda b: (b.forwards + 1) * b.traffic.expert_s)
        payload = total(b.exchange_bytes / b.exchanges for b in counted.blocks if b.exchanges)
        exposed_s = stage.passes_s("expert_s")
        experts = (_traffic("expert traffic", exposed_s, sent_s, cluster, laws.experts.exchange, payload),)
    return (
        _traffic("tensor traffic", stage.passes_s("tensor_s"), tensor_s, cluster, laws.sync, _sync_payload(counted)),
        _traffic("context traffic", stage.passes_s("context_s"), ring_s, cluster, laws.ring, keys),
        *experts,
        _traffic("data traffic", data_exposed_s, data_s, cluster, _data_law(point, laws.shard, laws.replica), weights),
        _traffic("pipeline transfers", moved_s, moved_s, cluster, laws.boundary, counted.boundary_bytes),
    )


class _PipelineParts(NamedTuple):
    """How a pipeline's passes grow from `microbatches x plain stage`, one cause after another."""

    bubble_s: Scalar  # the plain stages of the schedule
    uneven_s: Scalar  # then embedding, head and uneven layers
    transfers_s: Scalar  # then transfers between stages
    waits_s: Scalar  # then traffic with the second memory


def _pipeline_parts(point: PlanPoint, done: Parts, sem: Semantics) -> _PipelineParts:
    counted, pipe, hop = done.counts, stages(done.counts, done.times, point), hops(done.counts, done.times)
    m, still, nothing = counted.microbatches, hop.scaled(0.0), pipe.plain.scaled(0.0)
    even = Pipeline(plain=pipe.plain, first=nothing, middle=nothing, last=nothing)
    in_hbm = dataclasses.replace(pipe, streams=None)
    even_s, uneven_s, moved_s = (
        pipeline_s(stages_of, hop_of, m, point, sem)
        for stages_of, hop_of in ((even, still), (in_hbm, still), (in_hbm, hop))
    )
    return _PipelineParts(
        bubble_s=even_s - m * pipe.plain.seconds,
        uneven_s=uneven_s - even_s,
        transfers_s=moved_s - uneven_s,
        waits_s=done.step.passes_s - moved_s,
    )


def _other_terms(point: PlanPoint, done: Parts, pipe: _PipelineParts, sem: Semantics) -> tuple[Term, ...]:
    step = done.step
    issued_s = _OnStage(point, done).passes_s("host_s")
    microbatches_s = done.counts.microbatches * done.times.microbatch_s
    summed_s = step.passes_s + step.reduction_s + step.optimizer_s + step.optimizer_waits_s + step.host_s
    links_s = sem.maximum(0.0, step.links_s - summed_s)
    return (
        _term("pipeline bubble", pipe.bubble_s, ("pipeline depth",), (pipe.bubble_s,)),
        _term("embedding, head", pipe.uneven_s, ("first and last stage",), (pipe.uneven_s,)),
        _term(
            "optimizer",
            step.optimizer_s,
            ("HBM bandwidth", "FLOP/s"),
            (step.optimizer_s - step.orthogonal_s, step.orthogonal_s),
        ),
        _offload_term(point, done, pipe, sem),
        _term(
            "host",
            step.host_s + issued_s + microbatches_s,
            ("step", "issuing kernels", "microbatches"),
            (step.host_s, issued_s, microbatches_s),
        ),
        _term("shared links", links_s, ("link bandwidth",), (links_s,)),
    )


def _offload_term(point: PlanPoint, done: Parts, pipe: _PipelineParts, sem: Semantics) -> Term:
    """Traffic with the second memory: what passes and update wait for it, of what it takes alone."""
    moved, exposed_s = done.times.streams, pipe.waits_s + done.step.optimizer_waits_s
    alone_s = update_traffic_s(done.counts, done.times, point, sem)
    if moved is not None:
        alone_s = alone_s + done.counts.microbatches * (moved.forward_s(sem) + moved.backward_s)
    hidden_s = sem.maximum(alone_s - exposed_s, 0.0)  # a pipeline waits in its bubble too
    return Term(
        name="offload",
        limit_names=("second memory bandwidth",),
        exposed_s=exposed_s,
        hidden_s=hidden_s,
        limits=(alone_s,),
    )


def _term(name: str, exposed_s: Scalar, limit_names: tuple[str, ...], limits: tuple[Scalar, ...]) -> Term:
    return Term(name=name, limit_names=limit_names, exposed_s=exposed_s, hidden_s=0.0 * exposed_s, limits=limits)


def _traffic(name: str, exposed_s: Scalar, alone_s: Scalar, cluster: Cluster, law: Law, payload_bytes: Scalar) -> Term:
    """A term of communication: limited by the bandwidth of a tier or by latency, at the payload of one call."""
    names = tuple(f"{tier.name} bandwidth" for tier in cluster.tiers)
    limits = tuple(busy * payload_bytes for busy in law.by_tier)
    return Term(
        name=name,
        limit_names=(*names, "latency"),
        exposed_s=exposed_s,
        hidden_s=alone_s - exposed_s,
        limits=(*limits, law.latency_s),
    )


def _data_law(point: PlanPoint, shard: Law, replica: Law) -> Law:
    """Sharded and replicated traffic of one block's weights, as one law."""
    inverse = 1.0 / point.data_shard
    return Law(
        by_tier=tuple(a + inverse * b for a, b in zip(shard.by_tier, replica.by_tier, strict=True)),
        seconds_per_byte=shard.seconds_per_byte + inverse * replica.seconds_per_byte,
        latency_s=shard.latency_s + replica.latency_s,
        ramp=shard.ramp + inverse**0.5 * replica.ramp,
    )


def _sync_payload(counted: OpCounts) -> Scalar:
    layers = [b for b in counted.blocks if b.position == Position.LAYER and b.syncs + b.backward_syncs]
    return total((b.sync_bytes + b.backward_sync_bytes) / (b.syncs + b.backward_syncs) for b in layers)


def _largest_payload(counted: OpCounts, point: PlanPoint) -> Scalar:
    return point.gradient_bytes * total(b.trained_parameters for b in counted.blocks if b.position == Position.LAYER)
