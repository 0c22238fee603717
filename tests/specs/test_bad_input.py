"""Each wrong input gives one line that says what is wrong, what is allowed and where it was read."""

from pathlib import Path

import pytest

from costmodel.specs.files import SpecError
from costmodel.specs.loading import load_cluster, load_plan
from costmodel.specs.plans import plan_from
from costmodel.specs.workloads import load_workload
from tests.support.files.bad_inputs import BAD_INPUTS

LOAD = {"model": load_workload, "cluster": load_cluster, "plan": load_plan}


@pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda bad: bad.name)
def test_wrong_input_gives_one_line(bad, tmp_path):
    with pytest.raises(SpecError) as caught:
        LOAD[bad.kind](bad.write(tmp_path), **dict(bad.arguments))
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 1500
    assert caught.value.__cause__ is None
    for word in bad.words:
        assert word in message


def test_names_are_unique():
    assert len({bad.name for bad in BAD_INPUTS}) == len(BAD_INPUTS) >= 20


@pytest.mark.parametrize("value", [None, 3, 1.5, [], {}, b"h100", True])
def test_names_of_a_wrong_type(value):
    for kind, load in LOAD.items():
        with pytest.raises(SpecError, match=f"`{kind}` is "):
            load(value)


@pytest.mark.parametrize("value", [[], "tensor", 3, None])
def test_plans_that_are_no_table(value):
    with pytest.raises(SpecError, match="expected an object"):
        plan_from({"plan": value})


def test_a_path_object_is_never_a_name():
    with pytest.raises(SpecError, match="no such file"):
        load_cluster(Path("h100"))


@pytest.mark.parametrize("name", ["a\0b.json", "x" * 5000 + ".toml", "\udc80.toml"])
def test_names_that_no_file_can_have(name):
    with pytest.raises(SpecError) as caught:
        load_plan(name)
    assert str(caught.value).isprintable()
    with pytest.raises(SpecError):
        load_workload(name)


def test_spec_errors_are_value_errors():
    with pytest.raises(ValueError, match="unknown|neither"):
        load_workload("nothing")
