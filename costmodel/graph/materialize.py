"""Communication between the pieces that write a tensor and those that read it: the cheapest way between their layouts.

Where the devices of both hold equal pieces, one each, the way is a shortest path (`layouts`), inside their group or
from one group to another. Other pieces send what each reads, as `played` does. Source: nnScaler's adapters.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from costmodel.graph.dataflow import Dataflow
from costmodel.graph.layouts import Cost, Layout, Way, cheapest, cheapest_across, moved
from costmodel.graph.views import Tensor, View, layout_of


class Side(NamedTuple):
    """Devices that write or read a tensor, in order, and how it lies on them."""

    devices: tuple[int, ...]
    layout: Layout


class Transfer(NamedTuple):
    """What becomes of one tensor between those that write it and some that read it."""

    tensor: Tensor
    writers: Side
    readers: Side
    way: Way


def materialize(flow: Dataflow, cost: Callable[[Tensor], Cost] = lambda _: moved) -> tuple[Transfer, ...]:
    """The cheapest way of every tensor to each layout in which it is read otherwise than written.

    `cost` gives what a step costs by tensor: elements moved, or `seconds_on` a cluster for the bytes of its elements.
    """
    written: dict[Tensor, dict[int, set[View]]] = {}
    read: dict[tuple[Tensor, str], dict[int, set[View]]] = {}
    for operator, device in zip(flow.operators, flow.devices, strict=True):
        for view in operator.writes:
            written.setdefault(view.tensor, {}).setdefault(device, set()).add(view)
        for view in operator.reads:
            key = view.tensor, re.sub(r"(\.\d+)+$", "", operator.name)  # its pieces read together
            read.setdefault(key, {}).setdefault(device, set()).add(view)
    sides = dict.fromkeys((tensor, _side(views)) for (tensor, _), views in read.items() if tensor in written)
    found = []
    for tensor, readers in sides:
        writers = _side(written[tensor])
        if writers is not None and readers is not None and writers != readers:
            way = _way(writers, readers, tensor, cost(tensor))
            found += [] if way is None else [Transfer(tensor, writers, readers, way)]
    return tuple(found)


def _side(views: Mapping[int, set[View]]) -> Side | None:
    """The layout of one view on each device; None where some have several, or they form none."""
    if any(len(each) > 1 for each in views.values()):
        return None
    devices = tuple(sorted(views))
    try:
        return Side(devices, layout_of([next(iter(views[device])) for device in devices]))
    except ValueError:
        return None


def _way(writers: Side, readers: Side, tensor: Tensor, cost: Cost) -> Way | None:
    """Inside one group of devices, or from one to another; None for groups that share some."""
    if writers.devices == readers.devices:
        return cheapest(writers.layout, readers.layout, tensor.shape, cost)
    apart = set(writers.devices).isdisjoint(readers.devices)
    return cheapest_across(writers.layout, readers.layout, tensor.shape, cost) if apart else None
