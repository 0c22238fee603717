"""Ctrl-C at any moment of `plan`'s search over frameworks: the best so far, with a bound, or nothing was found yet."""

import dataclasses
import functools

import pytest

from costmodel import evaluate
from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.plans import evaluation, find_for, find_launchable, launchable
from optimize.status import Status

JOB = load_workload("llama3-8b", batch=32), load_cluster("h100", 16)


@pytest.mark.parametrize("after", [12, 40, 60])
def test_the_best_so_far_is_told(after, monkeypatch):
    whole, _ = _complete()
    usual, count = evaluation.cost, [0]

    def interrupted(*arguments):
        count[0] += 1
        if count[0] == after:
            raise KeyboardInterrupt
        return usual(*arguments)

    monkeypatch.setattr(evaluation, "cost", interrupted)
    found, each = find_launchable(*JOB)
    assert count[0] >= after
    assert found.status is Status.incomplete
    assert each
    assert evaluate(*JOB, found.plan).fits
    assert found.lower_bound <= whole.value <= found.value * (1 + 1e-9)


def test_before_there_is_any_it_is_an_interruption(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "cost", interrupted)
    with pytest.raises(KeyboardInterrupt):
        find_launchable(*JOB)


@pytest.mark.parametrize("only", [False, True])
def test_the_bound_is_one_of_what_lies_in_the_second_memory_too(only, monkeypatch):
    """Without it tensor parallelism over slow links alone fits; interrupted before anything is looked at with it."""
    node = load_cluster("h100", 4)
    slow = (dataclasses.replace(node.tiers[0], bandwidth_bytes_per_s=7e9), *node.tiers[1:])
    chip = dataclasses.replace(node.accelerator, hbm_bytes=46e9)
    fixed = {"schedule": "one_f_one_b", "context": 1, "expert_tensor": 1, "tensor": {1, 4}, "pipeline": 1}
    fixed |= {"microbatch": 1, "zero_stage": {1, 2, 3}}
    job = load_workload("llama3-8b", batch=64), dataclasses.replace(node, accelerator=chip, tiers=slow)
    search = functools.partial(find_for, "deepspeed") if only else find_launchable
    whole, _ = search(*job, fixed=fixed, margin=0.5)
    assert whole.plan.offload_optimizer > 0

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(launchable, "best_variant", interrupted)
    found, _ = search(*job, fixed=fixed, margin=0.5)
    assert found.status is Status.incomplete
    assert found.lower_bound <= whole.value < found.value
    assert found.lower_bound / found.value == pytest.approx(1 / (1 + found.gap))
    assert found.plans[0].gap == found.gap


_KEPT = []


def _complete():
    if not _KEPT:
        _KEPT.append(find_launchable(*JOB))
    return _KEPT[0]
