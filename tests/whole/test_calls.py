"""Functions and classes of the doors, called wrongly: one line where they are called, with field, value and what is
allowed. Nothing is taken silently."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import costmodel
import optimize
from costmodel.specs import SpecError, load_curves
from optimize.question import Job, Limits, Objective
from optimize.status import CommandError

MODEL, MACHINE = costmodel.load_workload("llama3-8b", batch=64), costmodel.load_cluster("h100", accelerators=8)
PLAN, FIXED = costmodel.Plan(data=8), {"context": 1, "schedule": "one_f_one_b", "pipeline": 1}
ARRAY = np.array([1, 2])
ALWAYS_WRONG = (object(), [math.nan], ARRAY, b"x", {1: object()}, {"a": 1}, np.float64(math.nan))
TAKE_ARRAYS = ("Job", "Limits")  # inside the search; `design` does not
NO_NUMBER = (*ALWAYS_WRONG, math.nan, -1, -math.inf, 10**400, "8", "", True, None, [8], np.array([8.0]))
LONGEST = 1_500  # characters: all names of a table


class Call(NamedTuple):
    """A call as it should be: what must be given, numbers and others that may be."""

    function: Callable[..., Any]
    needed: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    others: dict[str, Any] = {}


CALLS = {
    "evaluate": Call(costmodel.evaluate, {"workload": MODEL, "cluster": MACHINE, "plan": PLAN}, {}, {"checked": True}),
    "violations": Call(costmodel.violations, {"plan": PLAN, "workload": MODEL, "cluster": MACHINE}),
    "explain": Call(optimize.explain, {"workload": MODEL, "cluster": MACHINE, "plan": PLAN}),
    "validate": Call(optimize.validate, {"workload": MODEL, "cluster": MACHINE, "plan": PLAN}),
    "find_plan": Call(
        optimize.find_plan,
        {"workload": MODEL, "cluster": MACHINE},
        {"top": 2, "margin": 0.9},
        {"fixed": FIXED, "unrestricted": False, "objective": "step_s"},
    ),
    "find_layers": Call(
        optimize.find_layers,
        {"workload": MODEL, "cluster": MACHINE, "plan": PLAN},
        {"seconds": 1.0, "seed": 1},
        {"modes": ("none",)},
    ),
    "predict": Call(optimize.predict, {"rows": []}, {}, {"stack": {}}),
    "calibrate": Call(costmodel.calibrate, {"cases": []}),
    "load_workload": Call(costmodel.load_workload, {"name_or_path": "llama3-8b"}, {"sequence": 8, "batch": 8}),
    "load_cluster": Call(costmodel.load_cluster, {"name_or_path": "h100"}, {"accelerators": 8}, {"software": "fsdp"}),
    "load_plan": Call(costmodel.load_plan, {"path": "nowhere.toml"}),
    "design": Call(
        optimize.design,
        {
            "jobs": [Job(workload=MODEL, tokens=1e9)],
            "limits": Limits(budget_usd=1e6),
            "template": MACHINE,
        },
        {"seconds": 1.0, "margin": 0.9, "tolerance": 0.01, "work": 10.0, "seed": 1},
        {"objective": Objective.time, "failures": "base", "sweep": "budget_usd", "curves": load_curves()},
    ),
    "Job": Call(Job, {"workload": MODEL, "tokens": 1e9}, {"tokens": 1e9, "weight": 1.0}),
    "Limits": Call(Limits, {}, {}, dict.fromkeys(("budget_usd", "power_w", "deadline_s", "carbon_g"), 1e6)),
    "Plan": Call(costmodel.Plan, {}, {}, {"data": 8, "microbatch": 1, "schedule": "gpipe", "stage_layers": (4, 4)}),
}
NONE_IS_DEFAULT = ("sequence", "batch", "accelerators")
WRONG = [
    pytest.param(call, call.needed | call.numbers | call.others | {name: value}, name, id=f"{title} {name} {i}")
    for title, call in CALLS.items()
    for name in call.needed | call.numbers | call.others
    for i, value in enumerate(NO_NUMBER if name in call.numbers else ALWAYS_WRONG)
    if not (value is None and name in NONE_IS_DEFAULT)
    if not (isinstance(value, np.ndarray) and title in TAKE_ARRAYS and name != "workload")
]


def refusal(function: Callable[..., Any], *arguments: Any, **given: Any) -> str:
    """The one line that a wrong call ends in."""
    with pytest.raises((SpecError, CommandError, ValueError)) as told:
        function(*arguments, **given)
    message = str(told.value)
    assert message.isprintable(), message
    assert len(message) < LONGEST
    return message


@pytest.mark.parametrize(("call", "given", "name"), WRONG)
def test_a_wrong_value_is_refused(call, given, name):
    told = refusal(call.function, **given)
    assert f"`{name}`" in told or "`cluster`" in told or "`model`" in told or "fixed: `" in told or "plan: `" in told
    assert "expected" in told or "is not a field" in told


@pytest.mark.parametrize("title", CALLS)
def test_what_is_missing_and_what_is_unknown(title):
    call = CALLS[title]
    for name in call.needed:
        told = refusal(call.function, **{key: value for key, value in call.needed.items() if key != name})
        assert f"`{name}` is missing; expected {title}(" in told
    misspelt = f"{next(iter(call.needed | call.numbers | call.others))}s"
    assert f"`{misspelt}` is not an argument; did you mean {misspelt[:-1]}" in refusal(
        call.function, **call.needed, **{misspelt: 1}
    )


def test_an_array_of_limits_is_no_question():
    several = {"limits": Limits(budget_usd=ARRAY)}  # pyright: ignore[reportArgumentType]
    assert "`limits` is" in refusal(optimize.design, **CALLS["design"].needed | several)


def test_too_many_and_twice():
    assert "4 arguments are given without a name" in refusal(optimize.explain, MODEL, MACHINE, PLAN, 1)
    assert "`workload` is given twice" in refusal(optimize.explain, MODEL, MACHINE, PLAN, workload=MODEL)
    assert refusal(costmodel.Plan, 8).endswith("expected every argument by name")


@pytest.mark.parametrize("batch", [-1, 0, math.nan, math.inf, "64", None, [64], np.array([8, 8])])
def test_a_workload_of_ones_own(batch):
    """Its numbers may be traced where it is made, and are checked where it is used."""
    fields = {"name": "own", "blocks": MODEL.blocks, "sequence": 8192, "hidden": 4096}
    assert "`batch` is missing; expected Workload(" in refusal(costmodel.Workload, **fields)
    own = costmodel.Workload(**fields, batch=batch)
    assert "evaluate: workload: `batch` is" in refusal(costmodel.evaluate, own, MACHINE, PLAN)
    assert "find_plan: workload: `batch` is" in refusal(optimize.find_plan, own, MACHINE)


def test_an_error_of_ones_own_objective_is_told():
    told = refusal(optimize.find_plan, MODEL, MACHINE, fixed=FIXED, objective=lambda breakdown: breakdown.nothing)
    assert "objective: AttributeError" in told


def test_errors_inside_pass():
    """A `TypeError` that the call itself is not to blame for stays what it is."""

    def broken(_: Any) -> None:
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        optimize.design(**CALLS["design"].needed, progress=broken, seconds=0.1, fixed=FIXED)
