"""What is prepared for formulas: of the same objects once, of other ones anew."""

import dataclasses

import jax
import numpy as np
import pytest

from costmodel import Plan, prepare
from costmodel.pytree import by_identity
from costmodel.specs.files import SpecError
from tests.support.builders import cluster, small_decoder


def test_what_is_made_of_the_same_objects_is_made_once():
    made = []

    @by_identity(2)
    def pair(first, second):
        made.append((first, second))
        return [first, second]

    one, equal, other = (tuple(own) for own in ([1.0], [1.0], [2.0]))
    assert pair(one, other) is pair(one, other)
    assert pair(equal, other) is not pair(one, other)
    assert len(made) == 2
    assert pair(other, one) == [(2.0,), (1.0,)]  # the third: all are forgotten
    assert pair(one, other) == [(1.0,), (2.0,)]
    assert len(made) == 4


def test_arrays_are_read_anew():
    twice = by_identity(2)(lambda one: [2.0 * each for each in one])
    array = (np.ones(1),)
    assert twice(array) == [2.0]
    array[0][:] = 3.0
    assert twice(array) == [6.0]


def test_nothing_traced_outlives_its_trace():
    machine = cluster(8)

    def own(bandwidth):
        chip = dataclasses.replace(machine.accelerator, hbm_bytes_per_s=bandwidth)
        there = dataclasses.replace(machine, accelerator=chip)
        return 2.0 * prepare(small_decoder(), there, Plan(data=8))[1].accelerator.hbm_bytes_per_s

    with jax.checking_leaks():
        assert jax.jit(jax.grad(own))(1.0) == 2.0


def test_other_software_and_pieces_are_prepared_anew():
    workload, machine, plan = small_decoder(), cluster(8), Plan(data=8)
    slower = dataclasses.replace(machine.stack, step_s=1.5)
    assert prepare(workload, machine, plan)[0] is prepare(workload, machine, plan)[0]
    assert prepare(workload, machine, plan)[1].stack.step_s != 1.5
    assert prepare(workload, machine, plan, slower)[1].stack.step_s == 1.5
    pieces = dataclasses.replace(plan, pieces=2, recompute="full")
    assert prepare(workload, machine, pieces)[0] != prepare(workload, machine, plan)[0]


@pytest.mark.parametrize(
    ("fields", "words"),
    [({"schedule": "1f1b"}, "`schedule` is '1f1b'; expected one of gpipe"), ({"data": 0}, "`data` is 0")],
)
def test_a_name_that_nothing_has_is_told_in_words(fields, words):
    with pytest.raises(SpecError, match=words):
        prepare(small_decoder(), cluster(8), Plan(**{"data": 8, **fields}))
