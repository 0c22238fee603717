"""A plan checked before it is reported: every rule, an exact score, memory of every stage, the schedule played out.

Searches score relaxed points and batches in float32; what they report passes through here, one plan at a time, in
float64 and on the host (milliseconds: no compilation).
"""

import math
from dataclasses import dataclass
from typing import Any

from costmodel import Exact
from costmodel.evaluators import memory_by_stage, prepare
from costmodel.formulas import Breakdown, StageMemory, breakdown, limit_bytes, parts, peak
from costmodel.inputs import Cluster, Plan, Workload
from costmodel.measured import fits_probability
from costmodel.specs import expecting, violations
from optimize.diagnosis.played import PipelineCheck, check_pipeline

WORTH_SAYING = 0.01  # of the pipeline's passes: a larger difference to the closed form gets a message
_EXACT = Exact(math)


@dataclass(frozen=True, kw_only=True)
class Validation:
    """What is wrong with a plan. One that breaks a rule is not scored: `breakdown` and `pipeline` are None."""

    plan: Plan
    violations: tuple[str, ...]
    breakdown: Breakdown | None  # without money
    stages: tuple[StageMemory, ...]
    limit_bytes: float  # with the stack's margin off
    fits_probability: float  # into all of the accelerator's memory
    pipeline: PipelineCheck | None
    messages: tuple[str, ...]

    @property
    def stage_bytes(self) -> tuple[float, ...]:
        """The peak of each pipeline stage."""
        return tuple(float(peak(stage, _EXACT)) for stage in self.stages)

    @property
    def peak_bytes(self) -> float:
        """The peak of the fullest stage."""
        return max(self.stage_bytes, default=0.0)

    @property
    def fits(self) -> bool:
        """Every stage, each with its own layers, stays within the accelerator's memory."""
        return bool(self.stages) and self.peak_bytes <= self.limit_bytes

    @property
    def passes(self) -> bool:
        """Whether it can be launched: no rule is broken and every stage fits."""
        return not self.violations and self.fits

    def as_json(self) -> dict[str, Any]:
        """The value of the key `validation` in the answer of a command."""
        check, score = self.pipeline, self.breakdown
        return {
            "violations": list(self.violations),
            "step_s": None if score is None else float(score.step_s),
            "peak_bytes": self.peak_bytes,
            "limit_bytes": self.limit_bytes,
            "fits": self.fits,
            "fits_probability": self.fits_probability,
            "stage_bytes": list(self.stage_bytes),
            "pipeline_closed_s": None if check is None else check.closed_s,
            "pipeline_played_s": None if check is None else check.played_s,
            "pipeline_difference": None if check is None else check.difference,
            "played_step_s": None if check is None else check.step_s,
            "played_in_s": None if check is None else check.seconds,
            "messages": list(self.messages),
        }


@expecting()
def validate(workload: Workload, cluster: Cluster, plan: Plan) -> Validation:
    """Check one plan. Nothing is raised for a bad one: what is wrong is in the answer."""
    broken, allowed_bytes = violations(plan, workload, cluster), float(limit_bytes(cluster))
    if broken:
        return Validation(
            plan=plan,
            violations=broken,
            breakdown=None,
            stages=(),
            limit_bytes=allowed_bytes,
            fits_probability=0.0,
            pipeline=None,
            messages=broken,
        )
    numbers, cluster_numbers, point = prepare(workload, cluster, plan)
    done = parts(numbers, cluster_numbers, point, _EXACT)
    pipeline = check_pipeline(plan, point, done)
    stages = memory_by_stage(workload, cluster, plan)
    return Validation(
        plan=plan,
        violations=(),
        breakdown=breakdown(numbers, cluster_numbers, point, done, _EXACT),
        stages=stages,
        limit_bytes=allowed_bytes,
        fits_probability=fits_probability(max(float(peak(stage, _EXACT)) for stage in stages), cluster),
        pipeline=pipeline,
        messages=(*_memory_messages(stages, allowed_bytes), *_pipeline_messages(pipeline)),
    )


def _memory_messages(stages: tuple[StageMemory, ...], allowed_bytes: float) -> tuple[str, ...]:
    full = [(float(peak(stage, _EXACT)), i + 1) for i, stage in enumerate(stages)]
    most_bytes, number = max(full, key=lambda pair: pair[0])
    if most_bytes <= allowed_bytes:
        return ()
    over = sum(1 for stage_bytes, _ in full if stage_bytes > allowed_bytes)
    return (
        f"{over} of {len(full)} stages do not fit: stage {number} needs {most_bytes / 2**30:.1f} GiB of "
        f"{allowed_bytes / 2**30:.1f}",
    )


def _pipeline_messages(check: PipelineCheck | None) -> tuple[str, ...]:
    if check is None:
        return ("the pipeline has too many operations to be played out; the closed form stands alone",)
    said = []
    if abs(check.difference) > WORTH_SAYING:
        said.append(f"played out, the pipeline takes {check.difference:+.1%} against the closed form")
    if check.ordered_s is not None and abs(check.ordered_s / check.played_s - 1) > WORTH_SAYING:
        said.append(
            f"with each stage's own kinds of layer, in the model's order, the pipeline takes "
            f"{check.ordered_s / check.played_s - 1:+.1%}: `stage_layers` can balance them"
        )
    if check.in_flight_difference > 1e-9:
        said.append(f"a stage holds {check.in_flight_difference:.2f} microbatches more or less than memory counts")
    return tuple(said)
