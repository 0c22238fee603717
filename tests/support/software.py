"""Clusters whose software has other habits."""

import dataclasses
from typing import Any

from costmodel.inputs.cluster import Cluster


def running(machine: Cluster, **habits: Any) -> Cluster:
    """The cluster with other habits of its software."""
    own = dataclasses.replace(machine.stack.habits, **habits)
    return dataclasses.replace(machine, stack=dataclasses.replace(machine.stack, habits=own))
