"""The best hardware for fixed plans, what bounds it, and what more of a limit would buy."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.hardware.rows import bytes_of_modes as bytes_of_modes
    from optimize.hardware.rows import bytes_of_rows as bytes_of_rows
    from optimize.hardware.rows import tangents_of_rows as tangents_of_rows
    from optimize.hardware.runs import tangents_of_runs as tangents_of_runs
    from optimize.hardware.runs import tangents_of_schedules as tangents_of_schedules
    from optimize.hardware.shadow_prices import shadow_prices as shadow_prices
    from optimize.hardware.solving import HardwareSolutions as HardwareSolutions
    from optimize.hardware.solving import solve_hardware as solve_hardware
    from optimize.hardware.solving import solve_plans as solve_plans
    from optimize.hardware.solving import stack as stack
    from optimize.hardware.tangents import aggregated as aggregated
    from optimize.hardware.tangents import dual_bound as dual_bound
    from optimize.hardware.tangents import largest_alone as largest_alone
    from optimize.hardware.tangents import priced_bound as priced_bound
    from optimize.hardware.tangents import project as project

door.hang(__name__)
