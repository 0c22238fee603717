"""Equipoise's command line and optimizer: everything that asks questions of `costmodel`. Importing it does no work."""

from optimize.status import CommandError as CommandError
from optimize.status import Status as Status
