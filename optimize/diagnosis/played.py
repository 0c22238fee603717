"""The passes of a plan's pipeline played out, event by event, on its own stage times: the check of the closed form.

`costmodel.formulas.pipeline` takes a plain stage, and what a first, a middle and a last one have beyond it; here every
stage has its own layers, the embedding and the head, and every operation its own start (`costmodel.graph.play`).
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from costmodel import Exact
from costmodel.formulas import BlockPasses, Parts, in_flight, streamed_s
from costmodel.graph import Played, chunk_count, kinds_by_chunk, layers_by_chunk, play
from costmodel.inputs import SCHEDULES, Plan, PlanPoint, Position

MOST_OPERATIONS = 2_000_000  # that are played, about a microsecond and 150 bytes each

_EXACT = Exact(math)

Seconds = tuple[float, float, float]
"""F, B and W: forward, input gradient with what it computes again, weight gradient."""


@dataclass(frozen=True, kw_only=True)
class PipelineCheck:
    """The passes of a step by the closed form and as they were played out.

    `ordered_s` is there where the model has several kinds of layer: the closed form and `played_s` spread each kind
    evenly over the stages, `ordered_s` gives every stage its own, in the order in which the model lists them.
    """

    closed_s: float
    played_s: float
    ordered_s: float | None
    step_s: float  # the step with the played passes in place of the closed form's
    in_flight_difference: float  # the largest of any stage, in microbatches, between memory's formula and the play
    seconds: float = field(compare=False)  # that the check took

    @property
    def difference(self) -> float:
        """Played over closed, minus one: positive where the closed form is too fast."""
        return self.played_s / self.closed_s - 1


def check_pipeline(plan: Plan, point: PlanPoint, done: Parts) -> PipelineCheck | None:
    """Play a legal plan; None where that is more than `MOST_OPERATIONS`.

    All microbatches are played: stages of nearly the same length take long to settle into a steady state (a play of
    ten turns of all stages, extrapolated to forty, was up to 1 % off).
    """
    start = time.perf_counter()
    microbatches = round(done.counts.microbatches)
    if microbatches * chunk_count(plan) * len("FBW") > MOST_OPERATIONS:
        return None
    played, ordered = _play(plan, done, _spread_evenly(plan, done), microbatches), _in_order(plan, done)
    step, played_s = done.step, played.makespan_s
    summed_s = played_s + step.reduction_s + step.work.optimizer_s + step.optimizer_waits_s + step.host_s
    return PipelineCheck(
        closed_s=step.passes_s,
        played_s=played_s,
        ordered_s=None if ordered is None else _play(plan, done, ordered, microbatches).makespan_s,
        step_s=max(summed_s, step.work.links_s),
        in_flight_difference=_in_flight_difference(point, played, microbatches),
        seconds=time.perf_counter() - start,
    )


def played_passes(plan: Plan, done: Parts) -> Played | None:
    """The passes of a legal plan, each stage with its own layers; None where they are more than `MOST_OPERATIONS`."""
    microbatches = round(done.counts.microbatches)
    if microbatches * chunk_count(plan) * len("FBW") > MOST_OPERATIONS:
        return None
    return _play(plan, done, _in_order(plan, done) or _spread_evenly(plan, done), microbatches)


def _play(plan: Plan, done: Parts, chunks: Sequence[Seconds], microbatches: int) -> Played:
    forward_s, backward_s, weight_s = zip(*chunks, strict=True)
    hop = done.step.work.hops
    return play(
        plan.schedule,
        plan.pipeline,
        microbatches,
        len(chunks) // plan.pipeline,
        forward_s=forward_s,
        backward_s=backward_s,
        weight_s=weight_s,
        transfer_s=hop.ends_s,
        steady_transfer_s=hop.steady_s,
    )


def _spread_evenly(plan: Plan, done: Parts) -> list[Seconds]:
    """Seconds of each chunk, all layers being alike: the mean over the kinds."""
    kinds = done.times.layers
    count = sum(block.repeats for block in kinds)
    mean = tuple(sum(block.repeats * of(block) for block in kinds) / count for of in _PASSES)
    held = layers_by_chunk(plan, count)
    return _whole([(n * mean[0], n * mean[1], n * mean[2]) for n in held], plan, done)


def _in_order(plan: Plan, done: Parts) -> list[Seconds] | None:
    """Seconds of each chunk with the layers that it holds when they follow one another; None for one kind of layer."""
    kinds = done.times.layers
    if len(kinds) == 1 or plan.pipeline == 1:
        return None
    chunks = []
    for inside in kinds_by_chunk(plan, kinds):
        f, b, w = (sum(n * of(block) for n, block in zip(inside, kinds, strict=True)) for of in _PASSES)
        chunks.append((f, b, w))
    return _whole(chunks, plan, done)


def _whole(chunks: list[Seconds], plan: Plan, done: Parts) -> list[Seconds]:
    """Chunks with the host's work on each microbatch, waits for the second memory, the embedding and the head."""
    held = layers_by_chunk(plan, done.counts.layer_count)
    half_s = 0.5 * done.times.microbatch_s * plan.pipeline / len(chunks)
    hosted = [(f + half_s, b + half_s, w) for f, b, w in chunks]
    return _with_ends([_streamed(chunk, n, plan, done) for chunk, n in zip(hosted, held, strict=True)], done)


def _streamed(chunk: Seconds, layers: float, plan: Plan, done: Parts) -> Seconds:
    """A chunk behind the traffic of its layers with the second memory; W inside B unless the schedule splits it off."""
    moved, (f, b, w) = done.times.streams, chunk
    if moved is None:
        return chunk
    if not SCHEDULES[plan.schedule].splits:
        b, w = b + w, 0.0
    part = layers / moved.layers
    there_s, back_s = part * moved.forward_s(_EXACT), part * moved.backward_s(_EXACT)
    return streamed_s(f, there_s, moved, _EXACT), streamed_s(b, back_s, moved, _EXACT), w


def _with_ends(chunks: list[Seconds], done: Parts) -> list[Seconds]:
    """The embedding on the first chunk, the head on the last."""
    for position, at in ((Position.FIRST, 0), (Position.LAST, -1)):
        blocks = [block for block in done.times.blocks if block.position == position]
        f, b, w = (sum(block.repeats * of(block) for block in blocks) for of in _PASSES)
        chunks[at] = (chunks[at][0] + f, chunks[at][1] + b, chunks[at][2] + w)
    return chunks


_PASSES: tuple[Callable[[BlockPasses], float], ...] = (
    lambda block: block.forward_s,
    lambda block: block.backward_s,
    lambda block: block.weights.seconds,
)


def _in_flight_difference(point: PlanPoint, played: Played, microbatches: int) -> float:
    stages = len(played.in_flight)
    formula = (in_flight(point, float(microbatches), float(stages - i), _EXACT) for i in range(stages))
    return max(abs(a - b) for a, b in zip(formula, played.in_flight, strict=True))
