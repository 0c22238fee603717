"""Rounds to a target: rates by method, exact moments, independent subnetworks, and the algorithms to check them."""

from typing import TYPE_CHECKING

from costmodel import door

if TYPE_CHECKING:
    from costmodel.convergence import laboratory as laboratory
    from costmodel.convergence import subnetworks as subnetworks
    from costmodel.convergence.moments import dcgd_errors as dcgd_errors
    from costmodel.convergence.moments import local_errors as local_errors
    from costmodel.convergence.moments import local_map as local_map
    from costmodel.convergence.moments import rounds_until as rounds_until
    from costmodel.convergence.quadratics import constants as constants
    from costmodel.convergence.quadratics import energy as energy
    from costmodel.convergence.quadratics import gradients as gradients
    from costmodel.convergence.quadratics import optimum as optimum
    from costmodel.convergence.quadratics import random_quadratic as random_quadratic
    from costmodel.convergence.rates import RATES as RATES
    from costmodel.convergence.rates import Rate as Rate
    from costmodel.convergence.rates import reaches as reaches
    from costmodel.convergence.rates import rounds as rounds

door.hang(__name__)
