"""Equipoise's command line and optimizer: everything that asks questions of `costmodel`. Importing it loads nothing."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize import cores as cores
    from optimize import units as units
    from optimize.clusters import design as design
    from optimize.diagnosis import explain as explain
    from optimize.diagnosis import predict as predict
    from optimize.diagnosis import validate as validate
    from optimize.hardware import solve_hardware as solve_hardware
    from optimize.layers import find_layers as find_layers
    from optimize.plans import find_plan as find_plan
    from optimize.status import CommandError as CommandError
    from optimize.status import Status as Status

door.hang(__name__)
