"""What functions are given: a wrong argument is refused where it is given, in one line."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from costmodel.calls import wrong_call
from costmodel.inputs import Block, Cluster, Plan, Stack, Workload
from costmodel.specs.checks import LEAF, Check, an, check_fields, fail
from costmodel.specs.files import SpecError

P = ParamSpec("P")
T = TypeVar("T")


_BLOCKS = Check(
    "a tuple of one or more Blocks",
    lambda value: isinstance(value, tuple) and value != () and all(isinstance(block, Block) for block in value),
)
_FIELDS: dict[type, Mapping[str, Check]] = {
    Workload: {"blocks": _BLOCKS, **dict.fromkeys(("sequence", "batch", "hidden"), LEAF)},
    Cluster: {"accelerators": LEAF},
}

_OBJECTS = {
    "workload": an(Workload, 'load_workload("llama3-8b")'),
    "cluster": an(Cluster, 'load_cluster("h100")'),
    "template": an(Cluster, 'load_cluster("gb200-nvl72")'),
    "plan": an(Plan, "Plan(data=8)"),
    "stack": an(Stack, 'load_cluster("h100").stack'),
}
"""By the name of the argument."""


def expecting(arrays: bool = False, /, **checks: Check) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose wrong calls raise `SpecError`: what is missing or unknown, or what a check does not accept.

    Objects are checked by the names of their arguments, with their numbers, unless those may be `arrays`; what is None
    by default may be None.
    """

    def of(function: Callable[P, T]) -> Callable[P, T]:
        parameters, name = inspect.signature(function).parameters, function.__name__
        tests = [(n, check) for n in parameters if (check := checks.get(n, _OBJECTS.get(n))) is not None]
        optional = {n for n, parameter in parameters.items() if parameter.default is None}
        order = [n for n, parameter in parameters.items() if parameter.kind is not parameter.VAR_POSITIONAL]

        @functools.wraps(function)
        def call(*arguments: P.args, **given: P.kwargs) -> T:
            known = {**dict(zip(order, arguments, strict=False)), **given}
            for argument, check in tests:
                if argument in known and not ((value := known[argument]) is None and argument in optional):
                    if not check(value):
                        fail(name, argument, value, check.expected)
                    check_fields(f"{name}: {argument}", value, {} if arrays else _FIELDS.get(type(value), {}))
            try:
                return function(*arguments, **given)
            except TypeError:
                if told := wrong_call(function, name, arguments, given):
                    raise SpecError(told) from None
                raise

        return call

    return of
