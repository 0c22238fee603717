"""The best hardware for fixed plans: a convex problem, and the certificate of its answer."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from optimize.hardware.of_plans import hardware_problem as hardware_problem
    from optimize.hardware.of_plans import shadow_prices as shadow_prices
    from optimize.hardware.of_plans import solve_plans as solve_plans
    from optimize.hardware.solving import HardwareSolutions as HardwareSolutions
    from optimize.hardware.solving import solve_hardware as solve_hardware

door.hang(__name__)
