"""What functions are given: a name where an object is expected is said where it is given, in one line."""

from typing import Any

from costmodel.inputs import Cluster, Plan, Workload
from costmodel.specs.files import SpecError, show

_MADE_BY = {
    "workload": (Workload, 'load_workload("llama3-8b")'),
    "cluster": (Cluster, 'load_cluster("h100")'),
    "template": (Cluster, 'load_cluster("gb200-nvl72")'),
    "plan": (Plan, "Plan(data=8)"),
}


def expect(**given: Any) -> None:
    """Raise `SpecError` for an argument, by its name, that is no object of its class."""
    for name, value in given.items():
        kind, maker = _MADE_BY[name]
        if not isinstance(value, kind):
            raise SpecError(f"`{name}` is {show(value)}; expected a {kind.__name__}, such as {maker}")
