"""A user's own node: what runs on its devices, the table of what was measured, and the cluster that follows."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.measured.node.devices import Devices as Devices
    from costmodel.measured.node.devices import Node as Node
    from costmodel.measured.node.fit import fit_node as fit_node
    from costmodel.measured.node.measure import measure as measure
    from costmodel.measured.node.own import OwnConstants as OwnConstants
    from costmodel.measured.node.own import carried as carried
    from costmodel.measured.node.own import own_constants as own_constants
    from costmodel.measured.node.table import COLUMNS as COLUMNS
    from costmodel.measured.node.table import Measured as Measured
    from costmodel.measured.node.table import as_rows as as_rows

door.hang(__name__)
