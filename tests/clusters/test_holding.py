"""Hardware of an answer holds the fullest stage of every plan, where the search spreads kinds of layers evenly."""

import dataclasses

import numpy as np
import pytest

from costmodel.inputs.plan import Plan
from experiments.search_quality.score import score_design
from experiments.search_quality.suite import draw, problem_of
from optimize.clusters.evolution import evolved
from optimize.clusters.frontier import holding
from optimize.diagnosis.validate import validate
from optimize.question.clusters import sized
from optimize.question.objective import Limits
from optimize.question.quantities import Job
from tests.support.builders import small_decoder

UNEVEN = Plan(
    data=16, pipeline=8, expert=16, virtual_stages=4, microbatch=2, schedule="interleaved",
    stage_layers=(7, 7, 8, 8, 8, 8, 8, 7), overlap_expert=True, overlap_pipeline=True,
)  # fmt: skip


@pytest.mark.parametrize("several", [False, True])
def test_the_fullest_stage_of_any_plan_is_held(several):
    """DeepSeek-V3, whose leading layers are dense, alone and as the second of two jobs."""
    asked = problem_of(draw(9101, ("joint",), 8)[7]).problem
    asked = dataclasses.replace(asked, limits=Limits(budget_usd=2e7))
    plans, rates = (UNEVEN,), np.exp(0.5 * (asked.ends[0] + asked.ends[1]))
    if several:
        other = Job(workload=small_decoder(batch=256), tokens=1e9)
        asked, plans = dataclasses.replace(asked, jobs=(other, asked.job)), (Plan(data=128), UNEVEN)
    small = asked.hardware(rates, 40e9, 128.0)
    held = holding(asked, plans, small)
    assert held.hbm_bytes > small.hbm_bytes
    chip = dataclasses.replace(asked.machine.accelerator, hbm_bytes=float(held.hbm_bytes))
    machine = sized(dataclasses.replace(asked.machine, accelerator=chip), 128)
    own = validate(asked.jobs[-1].workload, machine, UNEVEN)
    assert own.peak_bytes == pytest.approx(own.limit_bytes, rel=1e-9)
    assert holding(asked, plans, held) is held


def test_a_method_is_scored_on_hardware_that_holds_its_plan():
    asked = problem_of(draw(9101, ("joint",), 8)[7])
    for found in evolved(asked.problem, 0, 20_000)[:3]:
        value = score_design(asked, found.accelerators, np.exp(found.y), found.hbm_bytes, list(found.plans))
        assert value is not None
        assert value >= np.exp(found.log_value) * (1 - 1e-9)
