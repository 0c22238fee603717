"""What a step costs under a plan and why; the answer also as plain data, with the keys that programs rely on."""

import dataclasses
import functools
import math
from typing import Any

from costmodel import Exact, Shown
from costmodel.evaluators import evaluate, memory_by_stage
from costmodel.formulas import (
    HELD,
    MFU_CONVENTION,
    MOMENTS,
    SECOND,
    Breakdown,
    StageMemory,
    Term,
    allocated_bytes,
    at_moment,
    reserved_bytes,
)
from costmodel.inputs import Cluster, Plan, Workload, active_parameters, parameters
from costmodel.measured import fits_probability, posterior, step_log_sd
from costmodel.specs import expecting
from optimize.diagnosis.inputs import Inputs
from optimize.diagnosis.money import economics_json
from optimize.diagnosis.operators import RoofedOperator, operators
from optimize.diagnosis.sensitivity import Elasticity, elasticities
from optimize.diagnosis.time_to_target import time_to_target
from optimize.status import CommandError, Status
from optimize.versions import SCHEMA

_EXACT = Exact(math)
_ABSENT_S = 1e-12  # below it a term is rounding


@dataclasses.dataclass(frozen=True, kw_only=True)
class StagePeak:
    """Memory of one pipeline stage at its peak: terms in bytes, which sum to it."""

    number: int  # from 1
    terms: dict[str, float]
    moment: str  # when the peak occurs
    reserved_bytes: float  # of it, what the framework's allocator holds,
    allocated_bytes: float  # and what is in tensors: the figures of training logs
    second: dict[str, float]  # terms of the second memory

    @property
    def peak_bytes(self) -> float:
        """Bytes of the accelerator's memory."""
        return sum(self.terms.values())

    @property
    def second_bytes(self) -> float:
        """Bytes of the second memory."""
        return sum(self.second.values())


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explanation(Shown):
    """Everything that the screen, the JSON and the figures of `equipoise explain` show."""

    inputs: Inputs
    breakdown: Breakdown
    stages: tuple[StagePeak, ...]
    elasticities: tuple[Elasticity, ...]
    operators: tuple[RoofedOperator, ...]

    @property
    def fullest(self) -> StagePeak:
        """The stage with the highest peak."""
        return max(self.stages, key=lambda stage: stage.peak_bytes)

    @property
    def fits(self) -> bool:
        """Whether every stage does. (`Breakdown.fits` takes the heaviest middle stage to be the second: a bound.)"""
        return bool(self.fullest.peak_bytes <= self.breakdown.limit_bytes) and self.second_fits

    @property
    def fits_probability(self) -> float:
        """The probability that the fullest stage fits, by how far predictions of memory are off."""
        return fits_probability(self.fullest.peak_bytes, self.inputs.cluster)

    @functools.cached_property
    def step_interval_s(self) -> tuple[float, float]:
        """Seconds that one run in ten is below, and one in ten above: 10th and 90th percentile of the prediction."""
        return step_interval_s(self.inputs.workload, self.inputs.cluster, self.inputs.plan, self.breakdown.step_s)

    @property
    def second_bytes(self) -> float:
        """What the stage that offloads most has in the second memory."""
        return max(stage.second_bytes for stage in self.stages)

    @property
    def second_fits(self) -> bool:
        """Whether the second memory holds it."""
        return bool(self.second_bytes <= self.breakdown.second_limit_bytes)


def step_interval_s(workload: Workload, cluster: Cluster, plan: Plan, step_s: float) -> tuple[float, float]:
    """The 10th and 90th percentile of a step that is predicted as `step_s`: log-normal, by `step_log_sd`."""
    spread = math.exp(posterior.P90 * step_log_sd((workload, cluster, plan)))
    return step_s / spread, step_s * spread


@expecting()
def explain(workload: Workload, cluster: Cluster, plan: Plan) -> Explanation:
    """Evaluate a plan and everything that explains its cost."""
    return explain_inputs(Inputs(workload=workload, cluster=cluster, plan=plan))


def explain_inputs(inputs: Inputs, *, checked: bool = True) -> Explanation:
    """The same, with where each of them was read; a run that was measured is not `checked` against the rules."""
    job = inputs.workload, inputs.cluster, inputs.plan
    breakdown = evaluate(*job, checked=checked)
    _check_finite(breakdown)
    return Explanation(
        inputs=inputs,
        breakdown=breakdown,
        stages=tuple(_stage(i + 1, stage, inputs.cluster) for i, stage in enumerate(memory_by_stage(*job))),
        elasticities=elasticities(*job),
        operators=operators(*job),
    )


def _check_finite(breakdown: Breakdown) -> None:
    """Numbers far beyond anything physical overflow: say where, rather than tell infinite seconds."""
    for term in breakdown.terms:
        if not math.isfinite(term.exposed_s + term.hidden_s):
            message = (
                f"the seconds of `{term.name}` are not finite; expected hardware and sizes of a physical magnitude"
            )
            raise CommandError(Status.bad_input, message)


def _stage(number: int, memory: StageMemory, cluster: Cluster) -> StagePeak:
    moment = max(MOMENTS, key=lambda each: float(at_moment(memory, each)))
    absent = dict.fromkeys((name for names in MOMENTS.values() for name in names), 0.0)
    terms = memory.of(HELD) | absent | memory.of(MOMENTS[moment])
    second = {name: float(getattr(memory, f"second_{name}_bytes")) for name in SECOND}
    return StagePeak(
        number=number,
        terms={name: float(size_bytes) for name, size_bytes in terms.items()},
        moment=moment,
        reserved_bytes=float(reserved_bytes(memory, cluster, _EXACT)),
        allocated_bytes=float(allocated_bytes(memory, cluster, _EXACT)),
        second=second,
    )


def limiting(term: Term) -> str | None:
    """The resource behind the largest candidate of a term's maximum; None for a term that is absent."""
    if max(term.exposed_s, term.exposed_s + term.hidden_s) <= _ABSENT_S:
        return None
    return max(zip(term.limits, term.limit_names, strict=True))[1]


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """The answer of DESIGN section 9, without the keys that every command adds."""
    breakdown = explanation.breakdown
    return {
        "schema": SCHEMA,
        "status": Status.ok.name,
        "message": "fits in memory" if explanation.fits else "does not fit in memory",
        "inputs": explanation.inputs.as_json(),
        "parameters": int(parameters(explanation.inputs.workload)),
        "active_parameters": int(active_parameters(explanation.inputs.workload)),
        "step_s": breakdown.step_s,
        "step_s_p10": explanation.step_interval_s[0],
        "step_s_p90": explanation.step_interval_s[1],
        "tokens_per_s": breakdown.tokens_per_s,
        "mfu": breakdown.mfu,
        "mfu_convention": MFU_CONVENTION,
        "hfu": breakdown.hfu,
        "terms": [
            {"name": t.name, "exposed_s": t.exposed_s, "hidden_s": t.hidden_s, "limited_by": limiting(t)}
            for t in breakdown.terms
        ],
        "memory": _memory_json(explanation),
        "economics": economics_json(breakdown.economics, explanation.inputs.cluster),
        "time_to_target": time_to_target(explanation.inputs, breakdown),
        "violations": [],
        "elasticities": {e.parameter.key: e.value for e in explanation.elasticities},
        "operators": [dataclasses.asdict(operator) for operator in explanation.operators],
        "plan": dataclasses.asdict(explanation.inputs.plan),
    }


def _memory_json(explanation: Explanation) -> dict[str, Any]:
    fullest = explanation.fullest
    return {
        "peak_bytes": fullest.peak_bytes,
        "limit_bytes": explanation.breakdown.limit_bytes,
        "fits": explanation.fits,
        "fits_probability": explanation.fits_probability,
        "peak_stage": fullest.number,
        "peak_moment": fullest.moment,
        "reserved_bytes": fullest.reserved_bytes,
        "allocated_bytes": fullest.allocated_bytes,
        "stages": [stage.terms for stage in explanation.stages],
        "second_memory": {
            "peak_bytes": explanation.second_bytes,
            "limit_bytes": explanation.breakdown.second_limit_bytes,
            "fits": explanation.second_fits,
            "stages": [stage.second for stage in explanation.stages],
        },
    }
