"""A plan with its own schedule kept: recompute in whole layers of each stage, and lighter stages at the ends.

Any schedule, interleaved and zero-bubble ones too. What looks best in closed form is played out; the plan as it is
takes part, so that nothing slower comes back.
"""

import dataclasses
import math
from collections.abc import Iterator

from costmodel import Exact
from costmodel.evaluators import prepare
from costmodel.formulas import cost
from costmodel.inputs import SCHEDULES, Cluster, Plan, Workload, layers
from costmodel.specs import violations
from optimize.diagnosis import Validation, validate

PLAYED = 6  # of the variants, besides the plan itself
LIGHTER = ((0, 1), (1, 1), (0, 2), (1, 2), (1, 0))  # layers less on the first and on the last stage
_EXACT = Exact(math)


def with_own_schedule(workload: Workload, cluster: Cluster, plan: Plan) -> tuple[Validation, int]:
    """The best of a plan's variants as played out, and how many were evaluated."""
    hbm_bytes, found = float(cluster.accelerator.hbm_bytes), []
    for variant in _variants(workload, plan):
        if violations(variant, workload, cluster):
            continue
        quick = cost(*prepare(workload, cluster, variant), _EXACT)
        if quick.peak_bytes <= hbm_bytes:
            found.append((float(quick.step_s), len(found), variant))
    best = [validate(workload, cluster, variant) for _, _, variant in sorted(found)[:PLAYED]]
    own = validate(workload, cluster, plan)
    return min((own, *(each for each in best if each.passes)), key=played_step_s), len(found)


def played_step_s(validation: Validation) -> float:
    """Seconds of a step as played out, each stage with its own kinds of layer; too long for that: in closed form."""
    played = validation.pipeline
    if played is None:
        return math.inf if validation.breakdown is None else float(validation.breakdown.step_s)
    return played.step_s + (0.0 if played.ordered_s is None else played.ordered_s - played.played_s)


def _variants(workload: Workload, plan: Plan) -> Iterator[Plan]:
    each, odd = divmod(layers(workload), plan.pipeline)
    for mode, share in (("none", 1.0), ("selective", 1.0), *(("full", k / each) for k in range(1, each + 1))):
        again = dataclasses.replace(plan, recompute=mode, recompute_share=share)
        if not odd or share == 1.0:  # whole layers of each stage
            yield again
        if share == 1.0 and plan.pipeline > 2 and not SCHEDULES[plan.schedule].splits:
            yield from (dataclasses.replace(again, stage_layers=held) for held in _lighter(each, odd, plan.pipeline))


def _lighter(each: int, odd: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Layers by stage where the ends hold less than their share, what is over on late middle stages."""
    for first, last in LIGHTER:
        if each <= max(first, last):
            continue
        more, rest = divmod(odd + first + last, stages - 2)
        middle = [each + more + (stages - 3 - place < rest) for place in range(stages - 2)]
        yield (each - first, *middle, each - last)
