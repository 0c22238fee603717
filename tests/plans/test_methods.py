"""Methods with plans: the soonest is that of all enumerated one by one, and what fits."""

import pytest

from costmodel import Plan, cost, prepare
from costmodel.exact import Exact
from costmodel.target import METHODS, applied, fewest, instance
from optimize.targets import find_method
from tests.support.builders import cluster, small_decoder

MODEL = small_decoder(layers=4, batch=32)


def problem(workers):
    return instance(workers, 64)


@pytest.mark.parametrize("target", [1e-2, 1e-9])
def test_the_soonest_method_and_plan(target):
    import numpy as np

    machines = cluster(8)
    found = find_method(MODEL, machines, problem, target)
    assert [each["train_s"] for each in found] == sorted(each["train_s"] for each in found)
    divided = [each for each in found if each["method"] == "subnetworks" and each["plan"].data > 1]
    assert bool(divided) == (target > 1e-3)  # below the bias only the one worker that has the whole model arrives
    for each in found:
        workload, machine, point = prepare(MODEL, machines, each["plan"])
        method = METHODS[each["method"]]()
        narrow, point = applied(method, workload, point)
        step_s = float(cost(narrow, machine, point, Exact(np)).step_s)
        assert each["step_s"] == pytest.approx(step_s, rel=1e-9)
        plain = Plan(data=8, zero_stage=0)
        narrow, point = applied(method, workload, prepare(MODEL, machines, plain)[2])
        steps = fewest(method, problem(8), target)
        assert each["train_s"] <= steps * float(cost(narrow, machine, point, Exact(np)).step_s) * (1 + 1e-9)
