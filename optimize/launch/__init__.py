"""The frameworks' launch files, both ways."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.launch.framework import FREE as FREE
    from optimize.launch.framework import Framework as Framework
    from optimize.launch.framework import Known as Known
    from optimize.launch.framework import canonical as canonical
    from optimize.launch.frameworks import FRAMEWORKS as FRAMEWORKS
    from optimize.launch.frameworks import beside_launch as beside_launch
    from optimize.launch.frameworks import framework_at as framework_at
    from optimize.launch.frameworks import framework_of as framework_of
    from optimize.launch.frameworks import launch as launch
    from optimize.launch.frameworks import names_on as names_on
    from optimize.launch.frameworks import of_the_model as of_the_model
    from optimize.launch.frameworks import outside as outside
    from optimize.launch.frameworks import read as read
    from optimize.launch.plan_files import TABLE as TABLE
    from optimize.launch.plan_files import is_launch_file as is_launch_file
    from optimize.launch.plan_files import model_in_file as model_in_file
    from optimize.launch.plan_files import read_plan_file as read_plan_file

door.hang(__name__)
