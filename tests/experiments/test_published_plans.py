"""Published runs: near what was published, and ranked among the plans that there are."""

import math

import numpy as np
import pytest

from costmodel import evaluate
from experiments.published_plans import ranks, runs


def test_they_are_near_what_was_published():
    """Twelve large runs, each with its software; the bars of the whole table, and what is known to miss them."""
    lines = runs.predicted()
    assert len(lines) == 12
    assert all(line["source"] for line in lines)
    far = [line for line in lines if abs(math.expm1(line["error"])) > 0.15]
    assert len(far) <= 2
    assert all(line["miss"] for line in far)


def test_ranks_compare_with_what_evaluate_says():
    run = next(each for each in runs.runs() if each.name.startswith("Llama 3 70B, 64"))
    found = ranks.ranked(run, "same software", 4000, 0)
    own = float(evaluate(run.workload, run.cluster, run.plan).step_s)
    assert 0 <= found["faster"] <= 1
    assert found["best_s"] <= own
    assert sum(found["difference"].values()) == pytest.approx(own - found["best_s"], abs=1e-9)
    every = ranks.ranked(run, "all", 4000, 0)
    assert every["plans"] > found["plans"]


def test_steps_of_a_block_are_those_of_evaluate():
    run = runs.runs()[9]
    fixed = {name: getattr(run.plan, name) for name in ranks.SPACES["same software"]}
    whole = ranks.lattice(run.workload, run.cluster, fixed)
    numbers = np.linspace(0, len(whole) - 1, 5).astype(int)
    steps, fits = ranks._evaluated(whole, numbers)
    for number, step_s, fit in zip(numbers, steps, fits, strict=True):
        found = evaluate(run.workload, run.cluster, whole.plan(int(number)))
        assert step_s == pytest.approx(found.step_s, rel=1e-9)
        assert fit or not found.fits
