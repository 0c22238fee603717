r"""Seconds of a step: the pipeline's closed forms, the heavier first and last stages, and the gradient traffic.

With $m$ microbatches, $p$ stages, $v$ virtual stages, and $F, B, W$ the seconds of a plain stage for one microbatch,

$$T = m (F + B + W) + (p-1)\max\left(\frac{F + B + i_W W}{v}, i_F F\right) + T_c
      + (m - 1)\,x + e + h$$

where the row of the schedule gives $i_W$ (1; -1 for ZB-H1; -2 for ZB-H2) and $i_F$ (0; 1 for zero bubble), $e$ and
$h$ are the seconds of embedding and head, and $x$ what the heaviest stage has above a plain one. Transfers of $c$
seconds each way add $T_c = 2c\,((pv - 1) + \lfloor (m-1)(p-1)/p \rfloor)$, the floor for schedules whose steady state
waits for them. Exact for GPipe and 1F1B, for interleaved ones while $c \le \min(F, B + W)/v$, and for ZB-H1
($m \ge p$) and ZB-H2 ($m \ge 2p - 1$) without transfers: `tests/test_schedule.py` plays them out.
Sources: Narayanan et al. 2021 (interleaving); Qi et al. 2023 (zero bubble).
"""

from collections.abc import Callable

from costmodel._pytree import pytree
from costmodel.collectives import Law, time_s
from costmodel.counts import BlockCounts, OpCounts
from costmodel.plan import PlanPoint
from costmodel.semantics import Scalar, Semantics, total
from costmodel.stack import Stack
from costmodel.timing import BlockPasses, OpTimes, overlapped_s
from costmodel.traffic import gradient_bytes, weight_bytes


@pytree
class Stage:
    """Seconds of a plain stage for one microbatch."""

    forward_s: Scalar
    backward_s: Scalar
    weights_s: Scalar

    @property
    def seconds(self) -> Scalar:
        return self.forward_s + self.backward_s + self.weights_s


@pytree
class StepTime:
    """The parts of a step that add up to `step_s`, before the bound of shared links."""

    stage: Stage
    steady_s: Scalar  # all microbatches on a plain stage, less what hides gradient traffic
    reduction_s: Scalar  # gradient traffic together with the compute it hides behind
    gradient_traffic_s: Scalar  # that traffic alone
    bubble_s: Scalar
    transfers_s: Scalar
    uneven_s: Scalar  # the heaviest stage's excess, and the first microbatch through embedding and head
    optimizer_s: Scalar
    host_s: Scalar
    links_s: Scalar  # the busiest tier's links: no step is shorter
    step_s: Scalar


def bubble_s(stage: Stage, point: PlanPoint, sem: Semantics) -> Scalar:
    """Idle seconds of one pipeline in one step."""
    row = point.schedule
    turn_s = (stage.forward_s + stage.backward_s + row.idle_weight * stage.weights_s) / point.virtual_stages
    return (point.pipeline - 1) * sem.maximum(turn_s, row.idle_forward * stage.forward_s)


def transfers_s(hop_s: Scalar, microbatches: Scalar, point: PlanPoint, hidden: Scalar, sem: Semantics) -> Scalar:
    """Seconds that stage-to-stage transfers of `hop_s` add; the plan's overlap hides the share of the steady ones."""
    waits = sem.floor((microbatches - 1) * (point.pipeline - 1) / point.pipeline)
    ends = point.pipeline * point.virtual_stages - 1
    return 2.0 * hop_s * (ends + point.schedule.steady_transfers * (1 - hidden) * waits)


def single_stage(point: PlanPoint, sem: Semantics) -> Scalar:
    """1 without a pipeline, 0 with one: whether the same stage holds embedding and head."""
    return sem.exact_maximum(2 - point.pipeline, 0.0)


def excess_s(layer_s: Scalar, first_s: Scalar, last_s: Scalar, point: PlanPoint, sem: Semantics) -> Scalar:
    """What the heaviest stage takes above a plain one, for one microbatch: embedding, head, additional layers."""
    apart_s = sem.maximum(
        point.extra_layers_first * layer_s + first_s,
        point.extra_layers_last * layer_s + last_s,
        point.extra_layers_middle * layer_s,
    )
    single = single_stage(point, sem)
    return (1 - single) * apart_s + single * (first_s + last_s)


def step_time(
    counted: OpCounts, times: OpTimes, point: PlanPoint, stack: Stack, memory_s_per_byte: Scalar, sem: Semantics
) -> StepTime:
    """The step of the slowest pipeline, all pipelines being alike."""
    hide, m = times.hide, counted.microbatches
    stage = plain_stage(times, point)
    first_s, last_s = edge_s(times, "first"), edge_s(times, "last")
    layer_s = stage.seconds * point.pipeline / layer_count(counted)
    traffic_s = gradient_traffic_s(counted, times, point, sem)
    parts = {
        "steady_s": (m - hide.data) * stage.seconds,
        "reduction_s": overlapped_s(hide.data * stage.seconds, traffic_s, 1.0, hide.contention, sem),
        "bubble_s": bubble_s(stage, point, sem),
        "transfers_s": transfers_s(
            time_s(times.laws.boundary, counted.boundary_bytes), m, point, hide.pipeline, sem
        ),
        "uneven_s": (m - 1) * excess_s(layer_s, first_s, last_s, point, sem) + first_s + last_s,
        "optimizer_s": optimizer_s(counted, point, memory_s_per_byte, sem),
        "host_s": stack.step_s,
    }
    links_s = busiest_links_s(counted, times, point, sem)
    return StepTime(
        stage=stage,
        gradient_traffic_s=traffic_s,
        links_s=links_s,
        step_s=sem.maximum(total(parts.values()), links_s),
        **parts,
    )


def plain_stage(times: OpTimes, point: PlanPoint) -> Stage:
    """A stage of the mean number of layers, without embedding and head."""
    layers = [block for block in times.blocks if block.position == "layer"]
    inverse_stages = 1.0 / point.pipeline
    return Stage(
        forward_s=inverse_stages * total(block.repeats * block.forward.seconds for block in layers),
        backward_s=inverse_stages * total(block.repeats * backward_s(block) for block in layers),
        weights_s=inverse_stages * total(block.repeats * block.weights.seconds for block in layers),
    )


def backward_s(block: BlockPasses) -> Scalar:
    """B of one block with the forward work that it repeats."""
    return block.backward.seconds + block.recompute_s


def edge_s(times: OpTimes, position: str) -> Scalar:
    """Seconds for one microbatch of the blocks that only the first or the last stage holds."""
    blocks = [block for block in times.blocks if block.position == position]
    return total(
        block.repeats * (block.forward.seconds + backward_s(block) + block.weights.seconds) for block in blocks
    )


def layer_count(counted: OpCounts) -> Scalar:
    """Repeated blocks of all kinds."""
    return total(block.repeats for block in counted.blocks if block.position == "layer")


def on_heaviest_stage(
    counted: OpCounts, quantity: Callable[[BlockCounts], Scalar], point: PlanPoint, sem: Semantics
) -> Scalar:
    """The sum of a count over the blocks of the heaviest stage (of the mean number of layers)."""

    def at(position: str) -> Scalar:
        return total(b.repeats * quantity(b) for b in counted.blocks if b.position == position)

    first, last, single = at("first"), at("last"), single_stage(point, sem)
    edges = (1 - single) * sem.exact_maximum(first, last) + single * (first + last)
    return at("layer") / point.pipeline + edges


def gradient_traffic_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    """Gradient reduction and weight gathering once a step, in one bucket for each layer."""
    gradients = on_heaviest_stage(counted, lambda block: gradient_bytes(block, point), point, sem)
    weights = on_heaviest_stage(counted, lambda block: weight_bytes(block, point), point, sem)
    buckets = layer_count(counted) / point.pipeline
    zero, laws = point.zero, times.laws
    sharded_s = time_s(laws.shard, zero.reduces_once * gradients, zero.reduces_once * buckets) + time_s(
        laws.shard, zero.gathers_once * weights, zero.gathers_once * buckets
    )
    return sharded_s + time_s(laws.replica, gradients / point.data_shard, buckets)


def optimizer_s(counted: OpCounts, point: PlanPoint, memory_s_per_byte: Scalar, sem: Semantics) -> Scalar:
    """The update streams through memory: states and master weights read and written, gradients read, weights written."""
    elements = on_heaviest_stage(counted, lambda block: block.parameters, point, sem)
    states_bytes = 2.0 * (point.optimizer.states * point.state_bytes + point.precision.master_bytes)
    per_element = states_bytes + point.gradient_bytes + point.precision.weight_bytes
    return memory_s_per_byte * per_element * elements * share(point.zero.states, point.data_shard)


def share(divided: Scalar, ranks: Scalar) -> Scalar:
    """What one rank holds of something that is divided over `ranks` (1) or replicated (0)."""
    return (1 - divided) + divided / ranks


def busiest_links_s(counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics) -> Scalar:
    """Seconds that each tier's links are busy with all traffic of a step; the largest bounds the step."""
    payloads = _step_payloads(counted, times, point, sem)
    tiers = range(len(times.laws.sync.by_tier))
    return sem.maximum(*(total(law.by_tier[i] * payload for law, payload in payloads) for i in tiers))


def _step_payloads(
    counted: OpCounts, times: OpTimes, point: PlanPoint, sem: Semantics
) -> tuple[tuple[Law, Scalar], ...]:
    """Bytes that each law carries in one step on the heaviest stage."""
    laws, m, zero = times.laws, counted.microbatches, point.zero

    def of(quantity: Callable[[BlockCounts], Scalar]) -> Scalar:
        return on_heaviest_stage(counted, quantity, point, sem)

    gradients, weights = of(lambda b: gradient_bytes(b, point)), of(lambda b: weight_bytes(b, point))
    hops = 3.0 * point.context_ring * (point.context - 1)
    exchanges = 2.0 * (1 - point.context_ring)
    gathers = zero.gathers_once + m * zero.gathers_per_microbatch
    reduces = zero.reduces_once + m * zero.reduces_per_microbatch
    return (
        (laws.sync, (2.0 + point.recompute.redo_rest) * m * of(lambda b: b.sync_bytes)),
        (laws.ring, hops * m * of(lambda b: total(a.ring_bytes for a in b.attentions))),
        (laws.exchange, exchanges * m * of(lambda b: total(a.exchange_bytes for a in b.attentions))),
        (laws.shard, gathers * weights + reduces * gradients),
        (laws.replica, gradients / point.data_shard),
        (laws.boundary, 2.0 * m * counted.boundary_bytes),
    )
