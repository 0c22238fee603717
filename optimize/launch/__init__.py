"""The frameworks' launch files, both ways."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.launch import frameworks as frameworks
    from optimize.launch.plan_files import PlanFile as PlanFile
    from optimize.launch.plan_files import is_launch_file as is_launch_file
    from optimize.launch.plan_files import read_plan_file as read_plan_file

door.hang(__name__)
