"""Where nothing fits: which plan needs least memory, and words that nobody asks for are not looked for."""

import dataclasses
import pickle

import numpy as np
import pytest

from costmodel.specs.loading import load_cluster
from costmodel.specs.workloads import load_workload
from optimize.lattice.enumeration import lattice
from optimize.plans import infeasible
from optimize.plans.best_beside import find_plan
from optimize.plans.evaluation import exactly
from optimize.plans.find_in_lattice import find_in_lattice
from optimize.plans.infeasible import leanest
from optimize.plans.row_bounds import in_order_of_bounds
from optimize.status import CommandError, Status
from tests.support.builders import small_decoder, small_moe

ASKED = {
    "dense": (small_decoder(layers=8, batch=24), {}),
    "experts": (small_moe(layers=4, batch=16), {"context": 1}),
    "offloaded": (small_decoder(layers=8, batch=24), {"offload_optimizer": 1.0, "context": 1}),
}
FIXED = {"schedule": "one_f_one_b", "context": 1, "microbatch": 1, "zero_stage": 1, "tensor": {1, 2}}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("ordered", [False, True])
def test_the_plan_that_needs_least_is_that_of_all(name, ordered):
    workload, fixed = ASKED[name]
    whole = lattice(workload, load_cluster("h100", accelerators=8), fixed)
    whole = in_order_of_bounds(whole) if ordered else whole
    cost = exactly(whole, np.arange(len(whole)))
    needed = whole.needed(cost.peak_bytes, cost.second_bytes)
    assert needed[leanest(whole)] == pytest.approx(needed.min(), rel=1e-6)


def test_words_are_looked_for_when_they_are_read(monkeypatch):
    """A refusal that another answer replaces is never put into words."""
    said = []
    monkeypatch.setattr(infeasible, "_too_much", lambda whole: said.append(len(whole)) or "too  much")
    own = load_cluster("h100", accelerators=4)
    machine = dataclasses.replace(own, accelerator=dataclasses.replace(own.accelerator, hbm_bytes=30e9))
    workload = load_workload("llama3-8b", batch=8)
    with pytest.raises(CommandError) as refused:
        find_in_lattice(workload, machine, fixed=FIXED, margin=0.5)
    assert not said
    assert (str(refused.value), refused.value.message, len(said)) == ("too much", "too much", 1)
    assert find_plan(workload, machine, fixed=FIXED, margin=0.5).plan.offload_optimizer > 0
    assert len(said) == 1


@pytest.mark.parametrize(("fixed", "told"), [({}, True), ({"offload_optimizer": 1.0}, False)])
def test_it_is_said_that_the_least_is_of_plans_that_offload_nothing(fixed, told):
    """Beside them some that offload are looked at, which need less."""
    own = load_cluster("h100", accelerators=4)
    machine = dataclasses.replace(own, accelerator=dataclasses.replace(own.accelerator, hbm_bytes=4e9))
    with pytest.raises(CommandError) as refused:
        find_plan(load_workload("llama3-8b", batch=8), machine, fixed=FIXED | fixed, margin=0.5)
    assert ("legal plans that offload nothing the one that needs least" in refused.value.message) is told
    assert "the one that needs least" in refused.value.message


def test_errors_of_commands_cross_processes_with_their_words():
    def told() -> str:
        return "memory: 3 GB\n too much"

    error = CommandError(Status.infeasible, told, ("memory",))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is CommandError
    assert (again.status, again.message, again.violations) == (Status.infeasible, "memory: 3 GB too much", ("memory",))
