"""Shell scripts as the commands that they would run, with the variables that they set themselves."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.launch.shell.script import commands as commands
    from optimize.launch.shell.script import held as held
    from optimize.launch.shell.values import UNDECIDED as UNDECIDED
    from optimize.launch.shell.values import candidates as candidates

door.hang(__name__)
